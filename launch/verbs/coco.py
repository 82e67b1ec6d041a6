"""`recordmill coco`, from checked options to the summary on the terminal."""

from collections.abc import Sequence
from typing import Any

from recordmill.launch.preflight.check_inputs import check_coco_inputs
from recordmill.launch.preflight.recipe import coco_recipe
from recordmill.launch.verbs.convert import Conversion, convert, show_plan
from recordmill.pipelines.options.coco_options import CocoOptions


def run_coco(options: CocoOptions, progress_mode: str, beam_arguments: Sequence[str]) -> None:
    """Convert, or find that it has been done, and print what is there.

    Raises:
        RecordmillError: see `recordmill.launch.runners.run.run`.
    """
    check_coco_inputs(options)
    convert(_conversion(options), [coco_recipe(options)], progress_mode, beam_arguments)


def plan_coco(options: CocoOptions, progress_mode: str) -> None:
    """Print what `run_coco` would do. The plan is made in this process, whatever runner the job will have."""
    check_coco_inputs(options)
    show_plan(_conversion(options), [options.split], progress_mode)


def _conversion(options: CocoOptions) -> Conversion:
    return Conversion(options, lambda p: _gather(p, options))


def _gather(p: Any, options: CocoOptions) -> Any:
    from recordmill.pipelines import coco

    return coco.gather(p, options)
