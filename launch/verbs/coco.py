"""`recordmill coco`: what there is to convert, from checked options."""

from typing import Any

from recordmill.launch.preflight.check_inputs import check_coco_inputs
from recordmill.launch.preflight.choose_encoders import choose_encoder
from recordmill.launch.preflight.recipe import coco_recipes
from recordmill.launch.verbs.convert import Conversion, of_images, pictures
from recordmill.pipelines.options.coco_options import CAPTIONS, CocoOptions
from recordmill.schemas.encoders import EncoderSource, TextForm


def conversion(options: CocoOptions) -> Conversion:
    """What the options ask for.

    Raises:
        ConfigError: a file or folder that they name is not there.
    """
    check_coco_inputs(options)
    text = _text(options)
    return of_images(
        options,
        options.splits,
        lambda: coco_recipes(options, text),
        lambda p: _gather(p, options, text),
        lambda: pictures(options),
    )


def _text(options: CocoOptions) -> EncoderSource | None:
    if options.text_form is TextForm.RAW:
        return None
    return choose_encoder(options, options.text_form, CAPTIONS, options.output, options.splits)


def _gather(p: Any, options: CocoOptions, text: EncoderSource | None) -> Any:
    from recordmill.pipelines import coco

    return coco.gather(p, options, text)
