"""`recordmill folder`: what there is to convert, from checked options."""

from typing import Any

from recordmill.launch.preflight.check_inputs import check_folder_inputs
from recordmill.launch.preflight.check_sample import check_sample
from recordmill.launch.preflight.recipe import folder_recipes
from recordmill.launch.verbs.convert import Conversion, of_images, pictures
from recordmill.pipelines.options.folder_options import FolderOptions


def conversion(options: FolderOptions) -> Conversion:
    """What the options, and tables of labels, ask for.

    Raises:
        ConfigError: a file or folder that they name is not there; splits are asked for in two ways.
        AnnotationFileError: a table cannot be read.
    """
    check_folder_inputs(options)
    if not options.labels:
        check_sample(options)
    recipes = folder_recipes(options)
    splits = tuple(recipe.split for recipe in recipes)
    return of_images(
        options,
        splits,
        lambda: recipes,
        lambda p: _gather(p, options, splits),
        lambda: pictures(options),
    )


def _gather(p: Any, options: FolderOptions, splits: tuple[str, ...]) -> Any:
    from recordmill.pipelines import folder

    return folder.gather(p, options, splits, options.table)
