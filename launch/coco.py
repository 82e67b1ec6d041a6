"""`recordmill coco`, from checked options to the summary on the terminal."""

import os
import tempfile
from collections.abc import Sequence
from functools import partial

import msgspec

from launch.summary import print_plan, print_split, terminal
from pipelines.check_inputs import check_annotations, check_inputs
from pipelines.claim_output import OutputState, claim_output
from pipelines.options import CocoOptions
from pipelines.recipe import coco_recipe
from schemas.reports import PlanReport
from transforms.manifest_file import require_manifest


def run_coco(options: CocoOptions, progress_mode: str, beam_arguments: Sequence[str]) -> None:
    """Convert, or find that it has been done, and print what is there.

    Raises:
        RecordmillError: see `launch.run.run`.
    """
    check_inputs(options)
    recipe = coco_recipe(options)
    if beam_arguments:
        from launch.run import beam_options

        beam_options(beam_arguments)  # what is wrong with them is told before --overwrite deletes anything
    if options.overwrite:
        check_annotations(options)
    state = claim_output(options.output, recipe, options.overwrite)
    console = terminal()
    if state is OutputState.COMPLETE:
        console.print(f"{options.output} holds the whole split already; --overwrite would write it again.")
    else:
        if state is OutputState.UNFINISHED:
            console.print(f"Going on with an unfinished run in {options.output}")
        from launch import progress
        from launch.run import run
        from pipelines import coco

        with progress.shown(progress_mode):
            run(partial(coco.build, options=options, recipe=recipe), beam_arguments)
    print_split(console, options.output, require_manifest(options.output), options.split)


def plan_coco(options: CocoOptions, progress_mode: str) -> None:
    """Print what `run_coco` would do. The plan is made in this process, whatever runner the job will have."""
    check_inputs(options)
    from launch import progress
    from launch.run import run
    from pipelines import coco

    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        report = os.path.join(folder, "plan.json")
        with progress.shown(progress_mode):
            run(partial(coco.build_dry_run, options=options, report=report), [])
        with open(report, "rb") as file:
            plan = msgspec.json.decode(file.read(), type=PlanReport)
    print_plan(terminal(), plan, options)
