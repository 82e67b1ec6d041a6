"""`recordmill embed`: what there is to convert, from checked options."""

from typing import Any

from recordmill.launch.preflight.check_inputs import check_embed_inputs
from recordmill.launch.preflight.check_sample import check_sample
from recordmill.launch.preflight.recipe import embed_recipes, folder_recipes
from recordmill.launch.terminal.require_tensorflow import require_tensorflow
from recordmill.launch.verbs.convert import Conversion, of_images
from recordmill.launch.verbs.table import rows_of
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
    if not (options.labels or options.rows):
        check_sample(options)
    require_tensorflow("embed", is_checking=False)
    from recordmill.transforms.embed.load_model import load_model

    model = load_model(options.choice).found
    rows = rows_of(options.as_table()) if options.rows else None
    recipes = embed_recipes(options, model, rows.recipes() if rows else folder_recipes(options))
    splits = tuple(recipe.split for recipe in recipes)

    def gather(p: Any) -> Any:
        from recordmill.pipelines import embed, folder

        table = embed.features(options, model).table
        gathered = rows.job.gather(p) if rows else folder.gather(p, options, splits, table)
        return embed.with_features(p, gathered, options, splits, table)

    return of_images(options, splits, lambda: recipes, gather, lambda: _features(options, model))


def _features(options: EmbedOptions, model: FeatureModel) -> Any:
    from recordmill.pipelines import embed

    return embed.features(options, model)
