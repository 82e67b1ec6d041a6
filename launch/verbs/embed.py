"""`recordmill embed`: what there is to convert, from checked options."""

from typing import Any

from recordmill.launch.preflight.check_inputs import check_embed_inputs
from recordmill.launch.preflight.recipe import embed_recipes
from recordmill.launch.terminal.require_tensorflow import require_tensorflow
from recordmill.launch.verbs.convert import Conversion, of_images
from recordmill.pipelines.options.embed_options import EmbedOptions
from recordmill.schemas.models import FeatureModel


def conversion(options: EmbedOptions) -> Conversion:
    """What the options ask for. The model is loaded, so that what is wrong with it is told first.

    Raises:
        ConfigError: a file or folder that they name is not there; the model cannot be loaded, or takes no pictures;
            splits are asked for in two ways; TensorFlow is not installed.
        AnnotationFileError: a table cannot be read.
    """
    check_embed_inputs(options)
    require_tensorflow("embed runs its model", is_checking=False)
    from recordmill.transforms.embed.load_model import load_model

    model = load_model(options.choice).found
    recipes = embed_recipes(options, model)
    splits = tuple(recipe.split for recipe in recipes)
    return of_images(
        options,
        splits,
        lambda: recipes,
        lambda p: _gather(p, options, splits, model),
        lambda: _features(options, model),
    )


def _gather(p: Any, options: EmbedOptions, splits: tuple[str, ...], model: FeatureModel) -> Any:
    from recordmill.pipelines import embed

    return embed.gather(p, options, splits, model)


def _features(options: EmbedOptions, model: FeatureModel) -> Any:
    from recordmill.pipelines import embed

    return embed.features(options, model)
