"""A conversion, whatever it converts: from checked options to the summary on the terminal."""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.preflight.check_regions import distant_buckets
from recordmill.launch.preflight.claim_output import (
    OutputState,
    absent_folders,
    claim_output,
    finished_shards,
    release_output,
)
from recordmill.launch.terminal.summary import (
    print_plan,
    print_splits,
    print_times,
    terminal,
    terminal_of_errors,
)
from recordmill.pipelines.options.convert_options import ConvertOptions
from recordmill.pipelines.options.picture_options import ImageOptions, PictureOptions
from recordmill.schemas.errors import AnnotationFileError, ConfigError, NoImageFoundError, VocabularyError
from recordmill.schemas.plan_report import PlanReport
from recordmill.schemas.recipes import Recipe
from recordmill.transforms.metadata.check_duplicates import check_complete_duplicates
from recordmill.transforms.metadata.dataset_folder import require_manifest, tidy
from recordmill.transforms.metadata.folder_statistics import read_statistics
from recordmill.transforms.report.write_report import has_report, try_to_report
from recordmill.transforms.statistics.compare_splits import compare_splits

if TYPE_CHECKING:
    from recordmill.launch.runners.beam_options import Purpose  # which imports Beam


class Conversion(NamedTuple):
    """What makes one kind of conversion.

    Attributes:
        splits: that are written.
        recipes: gives what decides the bytes of each split; reads the annotation files.
        write: adds to a `beam.Pipeline` the steps that write splits by their recipes; imports Beam when it is called,
            not before.
        report: likewise those that write the plan, as JSON into a local file.
        image_options: the options, where records are made of image files.
    """

    options: ConvertOptions
    splits: tuple[str, ...]
    recipes: Callable[[], list[Recipe]]
    write: Callable[[Any, Sequence[Recipe]], None]
    report: Callable[[Any, str], None]
    image_options: ImageOptions | None = None


def of_images(
    options: ImageOptions,
    splits: tuple[str, ...],
    recipes: Callable[[], list[Recipe]],
    gather: Callable[[Any], Any],
    contents: Callable[[], Any],
) -> Conversion:
    """A conversion of image files; `gather` makes of a `beam.Pipeline` a `recordmill.pipelines.convert.Gathered`;
    `contents` gives the `Contents` of that module."""

    def write(p: Any, found: Sequence[Recipe]) -> None:
        from recordmill.pipelines.convert import write_all

        write_all(gather(p), options, contents(), found)

    def report(p: Any, path: str) -> None:
        from recordmill.pipelines.convert import report_all

        report_all(gather(p), options, contents(), splits, path)

    return Conversion(options, splits, recipes, write, report, options)


def pictures(options: PictureOptions) -> Any:
    """Records that hold the pictures."""
    from recordmill.pipelines import convert

    return convert.pictures(options)


def convert(conversion: Conversion, progress_mode: str, beam_arguments: Sequence[str]) -> None:
    """Write the splits, or find that it has been done, and print what is there.

    Raises:
        DuplicatesError: all is written already, and --duplicates refuses it.
        RecordmillError: see `recordmill.launch.runners.run.run`.
    """
    from recordmill.launch.runners.beam_options import with_job_name

    options, console = conversion.options, terminal()
    purpose = _check_places(options, beam_arguments) if beam_arguments else "run"
    recipes = conversion.recipes()
    if beam_arguments:
        beam_arguments = with_job_name(beam_arguments, options.output, options.splits)
    job = _Job(conversion, recipes, progress_mode, beam_arguments)
    if purpose == "dry run":
        job.run(shows_progress=False)
        console.print("A dry run of Beam's: the job was made, and neither run nor anything written.")
        return
    absent = absent_folders(options.output)
    states = claim_output(options.output, recipes, options.overwrite)
    is_run = set(states) != {OutputState.COMPLETE}
    if not is_run:
        what = "the whole split" if len(recipes) == 1 else "all these splits"
        said = f"{options.output} holds {what} already; --overwrite would write again."
        console.print(said)
        if purpose == "template":
            job.run_nothing(said)
        _check_duplicates(options, conversion.splits)
    else:
        if OutputState.UNFINISHED in states:
            finished = finished_shards(options.output, recipes)
            console.print(f"Going on with an unfinished run in {options.output}: {finished:,} finished shards are kept")
        try:
            job.run()
        except (AnnotationFileError, ConfigError, VocabularyError, NoImageFoundError):  # before a shard is written
            new = [recipe for recipe, state in zip(recipes, states, strict=True) if state is OutputState.NEW]
            release_output(options.output, new, absent)
            raise
        if purpose == "template":
            console.print("The template was made; what launches it runs the job.")
            return
    manifest = require_manifest(options.output)
    for split in () if folder_fault(options.output) else conversion.splits:
        tidy(options.output, manifest.splits[split])  # a run that was killed as it ended may have left something
    if not has_report(options.output):  # likewise, before it was written
        try_to_report(options.output)
    comparison = compare_splits(read_statistics(options.output, manifest.splits))
    print_splits(console, options.output, manifest, conversion.splits, comparison)
    print_times(console, job.seconds() if is_run else {})


def _check_duplicates(options: ConvertOptions, splits: Sequence[str]) -> None:
    """Refuse splits that are there already as the job that writes them would."""
    if isinstance(options, PictureOptions) and options.duplicates != "report":
        table = require_manifest(options.output).table
        check_complete_duplicates(options.output, splits, table, options.duplicates)


class _Job(NamedTuple):
    """A conversion on its way to a runner."""

    conversion: Conversion
    recipes: Sequence[Recipe]
    progress_mode: str
    beam_arguments: Sequence[str]

    def run(self, shows_progress: bool = True) -> None:
        from recordmill.launch.runners.fork_writers import slower_processes, writers_forked
        from recordmill.launch.runners.run import run
        from recordmill.launch.runners.watch import polling
        from recordmill.launch.terminal import progress

        options = self.conversion.options
        _check_memory(options, self.beam_arguments)
        # Workers in other processes count what they do for themselves.
        count = partial(_tell_finished, options.output, self.recipes)
        polled = polling(count) if self.beam_arguments else nullcontext()
        shown = progress.shown(self.progress_mode if shows_progress else "none")
        images = self.conversion.image_options
        if images and (said := slower_processes(self.beam_arguments)):
            terminal_of_errors().print(f"note: {said}")
        forked = writers_forked(images.images, images.workers, self.beam_arguments) if images else nullcontext()
        with forked, shown, polled:
            run(lambda p: self.conversion.write(p, self.recipes), self.beam_arguments)

    def seconds(self) -> dict[str, float]:
        """How long each step of the job took; of one that ran elsewhere, the whole."""
        from recordmill.transforms.runtime.progress import step_seconds

        seconds = step_seconds()
        return {"the job": sum(seconds.values())} if self.beam_arguments else seconds

    def run_nothing(self, reason: str) -> None:
        """What launches a template takes it for a failure where there is no job."""
        from recordmill.launch.runners.run import run
        from recordmill.pipelines.convert import write_nothing

        run(lambda p: write_nothing(p, reason), self.beam_arguments)


def _tell_finished(output: str, recipes: Sequence[Recipe]) -> None:
    from recordmill.transforms.runtime.progress import update_from_counters

    update_from_counters("", {"shards_written": finished_shards(output, recipes)})


def _check_places(options: ConvertOptions, beam_arguments: Sequence[str]) -> "Purpose":
    """Refuse buckets that Dataflow could not use and warn of distant ones. Return the purpose of the job."""
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    from recordmill.launch.preflight.check_runner import check_staging
    from recordmill.launch.runners.beam_options import beam_options, purpose_of

    beams = beam_options(beam_arguments)
    purpose = purpose_of(beams)
    if purpose != "dry run":
        check_staging(beams)
    region = beams.view_as(GoogleCloudOptions).region
    for line in distant_buckets(options.paths, region) if region else ():
        terminal_of_errors().print(f"warning: {line}")
    return purpose


def show_plan(conversion: Conversion, progress_mode: str) -> None:
    """Print what `convert` would do. This process makes the plan, whatever runner the job will have."""
    print_plan(terminal(), _plan(conversion, progress_mode), conversion.options, conversion.splits)


def _check_memory(options: ConvertOptions, beam_arguments: Sequence[str], is_dry_run: bool = False) -> None:
    """Refuse what a local job would not have the memory for; say what it takes where that is much."""
    from recordmill.launch.preflight.check_memory import check_memory
    from recordmill.launch.runners.beam_options import Runner, beam_options, runner_of

    if runner_of(beam_options(beam_arguments)) is Runner.LOCAL and (said := check_memory(options, is_dry_run)):
        terminal_of_errors().print(f"note: {said}")


def _plan(conversion: Conversion, progress_mode: str) -> PlanReport:
    from recordmill.launch.runners.run import run
    from recordmill.launch.terminal import progress

    _check_memory(conversion.options, [], is_dry_run=True)
    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        report = os.path.join(folder, "plan.json")
        with progress.shown(progress_mode):
            run(lambda p: conversion.report(p, report), [])
        with open(report, "rb") as file:
            return msgspec.json.decode(file.read(), type=PlanReport)
