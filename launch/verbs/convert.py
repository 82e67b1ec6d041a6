"""A conversion, whatever it converts: from checked options to the summary on the terminal."""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from recordmill.launch.preflight.check_regions import distant_buckets
from recordmill.launch.preflight.claim_output import OutputState, claim_late, claim_output, finished_shards
from recordmill.launch.terminal.summary import print_plan, print_splits, terminal, terminal_of_errors
from recordmill.pipelines.options.convert_options import ConvertOptions
from recordmill.schemas.errors import ConfigError, EmptyDatasetError
from recordmill.schemas.manifest import Recipe
from recordmill.schemas.plan_report import PlanReport
from recordmill.transforms.metadata.dataset_folder import read_manifest, require_manifest, tidy

if TYPE_CHECKING:
    from recordmill.launch.runners.beam_options import Purpose  # which imports Beam


class Conversion(NamedTuple):
    """One kind of conversion with its options.

    Attributes:
        gather: takes a `beam.Pipeline` and returns a `recordmill.pipelines.convert.Gathered`; imports Beam only when it
            is called.
    """

    options: ConvertOptions
    gather: Callable[[Any], Any]


def convert(
    conversion: Conversion, recipes: Sequence[Recipe], progress_mode: str, beam_arguments: Sequence[str]
) -> None:
    """Write the splits that there are recipes for, or find that it has been done, and print what is there.

    Raises:
        RecordmillError: see `recordmill.launch.runners.run.run`.
    """
    options = conversion.options
    purpose, is_dataflow = _check_places(options, beam_arguments) if beam_arguments else ("run", False)
    splits, console = [recipe.split for recipe in recipes], terminal()
    if purpose == "dry run":
        _run(conversion, recipes, "none", beam_arguments)
        console.print("A dry run of Beam's: the job was made, and neither run nor anything written.")
        return
    before = read_manifest(options.output) if options.overwrite else None
    if before:
        _check_there_is_something(conversion, splits, progress_mode)
    # Dataflow may refuse a job: what it is to replace stays until it is taken.
    is_late = is_dataflow and options.overwrite
    states = claim_output(options.output, recipes, options.overwrite, look_only=is_late)
    claim = partial(claim_late, options.output, recipes, before) if is_late else None
    if set(states) == {OutputState.COMPLETE}:
        if purpose == "template":
            raise ConfigError(f"{options.output} holds all of it already, so no job was made; overwrite=true makes one")
        what = "the whole split" if len(recipes) == 1 else "all these splits"
        console.print(f"{options.output} holds {what} already; --overwrite would write again.")
    else:
        if OutputState.UNFINISHED in states:
            finished = finished_shards(options.output, recipes)
            console.print(f"Going on with an unfinished run in {options.output}: {finished:,} finished shards are kept")
        _run(conversion, recipes, progress_mode, beam_arguments, claim)
        if purpose == "template":
            console.print("The template was made; what launches it runs the job.")
            return
    manifest = require_manifest(options.output)
    for split in splits:  # a run that was killed as it ended may have left something
        tidy(options.output, manifest.splits[split])
    print_splits(console, options.output, manifest, splits)


def _run(
    conversion: Conversion,
    recipes: Sequence[Recipe],
    progress_mode: str,
    beam_arguments: Sequence[str],
    submitted: Callable[[], Any] | None = None,
) -> None:
    from recordmill.launch.runners.run import run
    from recordmill.launch.runners.watch import polling
    from recordmill.launch.terminal import progress
    from recordmill.pipelines.convert import write_all

    # Workers in other processes have counters of their own, so finished shards are counted in the folder.
    count = partial(_tell_finished, conversion.options.output, recipes)
    with progress.shown(progress_mode), polling(count) if beam_arguments else nullcontext():
        run(lambda p: write_all(conversion.gather(p), conversion.options, recipes), beam_arguments, submitted)


def _tell_finished(output: str, recipes: Sequence[Recipe]) -> None:
    from recordmill.transforms.runtime.progress import update_from_counters

    update_from_counters("", {"shards_written": finished_shards(output, recipes)})


def _check_places(options: ConvertOptions, beam_arguments: Sequence[str]) -> tuple["Purpose", bool]:
    """Refuse buckets that Dataflow could not use, and warn of distant ones. Returns the purpose of the job, and whether
    it runs on Dataflow."""
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    from recordmill.launch.preflight.check_runner import check_staging
    from recordmill.launch.runners.beam_options import Runner, beam_options, purpose_of, runner_of

    beams = beam_options(beam_arguments)
    purpose = purpose_of(beams)
    if purpose != "dry run":
        check_staging(beams)
    region = beams.view_as(GoogleCloudOptions).region
    for line in distant_buckets([*options.images, options.output], region) if region else ():
        terminal_of_errors().print(f"warning: {line}")
    return purpose, runner_of(beams) is Runner.DATAFLOW


def _check_there_is_something(conversion: Conversion, splits: Sequence[str], progress_mode: str) -> None:
    """Make a plan before --overwrite deletes the previous output, so that unusable inputs are reported first. (Without
    --overwrite, the job itself reports them.)

    Raises:
        RecordmillError: see `recordmill.launch.runners.run.run`; or there is no image for a split.
    """
    plan = _plan(conversion, progress_mode)
    for split in splits:
        if not plan.images_by_split.get(split):
            raise EmptyDatasetError(
                f"there is no image to write to split {split}; {conversion.options.output} is left as it was"
            )


def show_plan(conversion: Conversion, splits: Sequence[str], progress_mode: str) -> None:
    """Print what `convert` would do. The plan is made in this process, whatever runner the job will have."""
    print_plan(terminal(), _plan(conversion, progress_mode), conversion.options, splits)


def _plan(conversion: Conversion, progress_mode: str) -> PlanReport:
    from recordmill.launch.runners.run import run
    from recordmill.launch.terminal import progress
    from recordmill.pipelines.convert import report_all

    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        report = os.path.join(folder, "plan.json")
        with progress.shown(progress_mode):
            run(lambda p: report_all(conversion.gather(p), conversion.options, report), [])
        with open(report, "rb") as file:
            return msgspec.json.decode(file.read(), type=PlanReport)
