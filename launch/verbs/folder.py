"""`recordmill folder`, from checked options to the summary on the terminal."""

from collections.abc import Sequence
from typing import Any

from recordmill.launch.preflight.check_inputs import check_folder_inputs
from recordmill.launch.preflight.recipe import folder_recipes
from recordmill.launch.verbs.convert import Conversion, convert, show_plan
from recordmill.pipelines.options.folder_options import FolderOptions


def run_folder(options: FolderOptions, progress_mode: str, beam_arguments: Sequence[str]) -> None:
    """Convert, or find that it has been done, and print what is there.

    Raises:
        RecordmillError: see `recordmill.launch.runners.run.run`.
    """
    check_folder_inputs(options)
    recipes = folder_recipes(options)
    convert(_conversion(options, [recipe.split for recipe in recipes]), recipes, progress_mode, beam_arguments)


def plan_folder(options: FolderOptions, progress_mode: str) -> None:
    """Print what `run_folder` would do. The plan is made in this process, whatever runner the job will have."""
    check_folder_inputs(options)
    splits = [recipe.split for recipe in folder_recipes(options)]
    show_plan(_conversion(options, splits), splits, progress_mode)


def _conversion(options: FolderOptions, splits: list[str]) -> Conversion:
    return Conversion(options, lambda p: _gather(p, options, splits))


def _gather(p: Any, options: FolderOptions, splits: list[str]) -> Any:
    from recordmill.pipelines import folder

    return folder.gather(p, options, tuple(splits))
