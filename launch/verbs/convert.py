"""Run a conversion, and print its summary."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import msgspec
from apache_beam.options.pipeline_options import GoogleCloudOptions

from recordmill.launch.local_engine.fork_writers import are_many, processes_forked, slower_processes
from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.preflight.check_memory import check_memory
from recordmill.launch.preflight.check_runner import check_staging, distant_buckets
from recordmill.launch.preflight.claim_output import (
    OutputState,
    absent_folders,
    claim_output,
    finished_shards,
    release_output,
)
from recordmill.launch.runners.beam_options import (
    Purpose,
    Runner,
    beam_options,
    local_mode,
    purpose_of,
    runner_of,
    with_job_name,
)
from recordmill.launch.runners.run import run
from recordmill.launch.runners.watch import polling
from recordmill.launch.terminal.console import print_lines, print_times, terminal, terminal_of_errors
from recordmill.launch.terminal.progress import Show, shown
from recordmill.pipelines.convert import Job, write_nothing
from recordmill.schemas.dataset.manifest import Plan
from recordmill.schemas.dataset.recipes import LISTING, Recipe
from recordmill.schemas.errors import AnnotationFileError, ConfigError, NoImageFoundError, VocabularyError
from recordmill.schemas.inputs.options import ConvertOptions
from recordmill.schemas.inputs.picture_options import PictureOptions
from recordmill.schemas.sizes import number_text
from recordmill.transforms.dataset.dataset_folder import read_statistics, require_manifest, tidy
from recordmill.transforms.dataset.fact_lines import data_set_lines, plan_lines
from recordmill.transforms.insight.across_splits import check_complete_duplicates, compare_splits
from recordmill.transforms.insight.write_report import has_report, try_to_report
from recordmill.transforms.runtime.progress import step_seconds, update_from_counters
from recordmill.transforms.shards.check_findings import check_space
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import file_storage_for


def convert(job: Job, progress_mode: str | Show, beam_arguments: Sequence[str]) -> None:
    """Write the splits unless they are complete, and print the summary.

    Raises:
        DuplicatesError: all is written already, and --duplicates refuses it.
        RecordmillError: see `recordmill.launch.runners.run.run`.
    """
    options, console = job.options, terminal()
    purpose = _check_places(options, beam_arguments) if beam_arguments else "run"
    recipes = job.recipes()
    if beam_arguments:
        beam_arguments = with_job_name(beam_arguments, options.output, options.splits)
    started = _Run(job, recipes, progress_mode, beam_arguments)
    if purpose == "dry run":
        started.run(shows_progress=False)
        console.print("A dry run of Beam's: the job was made, and neither run nor anything written.")
        return
    absent = absent_folders(options.output)
    states = claim_output(options.output, recipes, options.overwrite)
    is_run = set(states) != {OutputState.COMPLETE}
    if not is_run:
        what = "the whole split" if len(recipes) == 1 else "all these splits"
        said = f"{options.output} holds {what} already; --overwrite would write again."
        if options.images and not any(file.kind == LISTING for recipe in recipes for file in recipe.inputs):
            said += " Image files were not compared: give --overwrite if some were replaced or mended."
        console.print(said)
        if purpose == "template":
            started.run_nothing(said)
        if isinstance(options, PictureOptions) and options.refused_duplicates != "report":
            # as the job that writes these splits would
            table = require_manifest(options.output).table
            check_complete_duplicates(options.output, job.splits, table, options.refused_duplicates)
    else:
        if OutputState.UNFINISHED in states:
            finished = finished_shards(options.output, recipes)
            kept = number_text(finished, "finished shard")
            console.print(f"Going on with an unfinished run in {options.output}, which has {kept}")
        try:
            started.run()
        except (AnnotationFileError, ConfigError, VocabularyError, NoImageFoundError):  # before a shard is written
            new = [recipe for recipe, state in zip(recipes, states, strict=True) if state is OutputState.NEW]
            release_output(options.output, new, absent)
            raise
        if purpose == "template":
            console.print("The template was made; what launches it runs the job.")
            return
    manifest = require_manifest(options.output)
    for split in () if folder_fault(options.output) else job.splits:
        tidy(options.output, manifest.splits[split])  # a run that was killed as it ended may have left something
    if not has_report(options.output):  # a killed run may lack it, too
        try_to_report(options.output)
    comparison = compare_splits(read_statistics(options.output, manifest.splits))
    print_lines(console, data_set_lines(options.output, manifest, job.splits, comparison))
    print_times(console, started.seconds() if is_run else {})


class _Run(NamedTuple):
    """Conversion with its runner."""

    job: Job
    recipes: Sequence[Recipe]
    progress_mode: str | Show
    beam_arguments: Sequence[str]

    def run(self, shows_progress: bool = True) -> None:
        options = self.job.options
        for said in (*self.job.notes, *_caveats(options.paths)):
            terminal_of_errors().print(f"note: {said}")
        _check_memory(options, self.beam_arguments)
        # Workers in other processes count what they do for themselves.
        polled = polling(self._count_finished) if self.beam_arguments else nullcontext()
        progress = shown(self.progress_mode if shows_progress else "none")
        mode = local_mode(beam_options(self.beam_arguments))
        if options.images and (said := slower_processes(mode)):
            terminal_of_errors().print(f"note: {said}")
        forked = processes_forked(lambda: are_many(options.images), options.workers, mode)
        with forked, progress, polled:
            run(lambda p: self.job.write(p, self.recipes), self.beam_arguments)

    def _count_finished(self) -> None:
        number = finished_shards(self.job.options.output, self.recipes)
        update_from_counters("", {"shards_written": number})

    def seconds(self) -> dict[str, float]:
        """Return the duration of each step; of a remote job, the total."""
        seconds = step_seconds()
        return {"the job": sum(seconds.values())} if self.beam_arguments else seconds

    def run_nothing(self, reason: str) -> None:
        """Run an empty job, because the launcher of a template fails without one."""
        run(lambda p: write_nothing(p, reason), self.beam_arguments)


def _check_places(options: ConvertOptions, beam_arguments: Sequence[str]) -> Purpose:
    """Refuse buckets that Dataflow could not use and warn of distant ones. Return the purpose of the job."""
    beams = beam_options(beam_arguments)
    purpose = purpose_of(beams)
    if purpose != "dry run":
        check_staging(beams)
    region = beams.view_as(GoogleCloudOptions).region
    for line in distant_buckets(options.paths, region) if region else ():
        terminal_of_errors().print(f"warning: {line}")
    return purpose


def _caveats(paths: Iterable[str]) -> list[str]:
    """Return notes on checks that the storages of `paths` lack."""
    storages = {path.partition("://")[0]: file_storage_for(path) for path in paths if is_remote(path)}
    return [f"{scheme}:// {storage.caveat}" for scheme, storage in sorted(storages.items()) if storage.caveat]


def _check_memory(options: ConvertOptions, beam_arguments: Sequence[str], is_dry_run: bool = False) -> None:
    """Refuse a local job that exceeds the memory, and print its memory if it is much."""
    if runner_of(beam_options(beam_arguments)) is Runner.LOCAL and (said := check_memory(options, is_dry_run)):
        terminal_of_errors().print(f"note: {said}")


def show_plan(job: Job, progress_mode: str) -> None:
    """Print the plan of a job. This process makes it, for every runner."""
    for said in job.notes:
        terminal_of_errors().print(f"note: {said}")
    _check_memory(job.options, [], is_dry_run=True)
    recipes = job.recipes()
    with tempfile.TemporaryDirectory(prefix="recordmill-") as folder:
        report = os.path.join(folder, "plan.json")
        with shown(progress_mode):
            run(lambda p: job.report(p, recipes, report), [])
        with open(report, "rb") as file:
            plan = msgspec.json.decode(file.read(), type=Plan)
    print_lines(terminal(), plan_lines(plan, job.options.output))
    check_space(job.options.output, plan.sizes, job.options.has_exact_sizes)
