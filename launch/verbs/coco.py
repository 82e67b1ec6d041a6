"""`recordmill coco`: what there is to convert, from checked options."""

from typing import Any

from recordmill.launch.preflight.check_inputs import check_coco_inputs
from recordmill.launch.preflight.recipe import coco_recipes
from recordmill.launch.verbs.convert import Conversion, of_pictures
from recordmill.pipelines.options.coco_options import CocoOptions


def conversion(options: CocoOptions) -> Conversion:
    """What the options ask for.

    Raises:
        ConfigError: a file or folder that they name is not there.
    """
    check_coco_inputs(options)
    return of_pictures(options, options.splits, lambda: coco_recipes(options), lambda p: _gather(p, options))


def _gather(p: Any, options: CocoOptions) -> Any:
    from recordmill.pipelines import coco

    return coco.gather(p, options)
