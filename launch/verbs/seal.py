"""`recordmill seal`: complete a data set whose parts were written by separate processes."""

import shlex

from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.preflight.check_folder import folder_fault
from recordmill.launch.runners.beam_options import Runner, chosen_runner
from recordmill.launch.terminal.console import terminal
from recordmill.launch.terminal.progress import Show, show_progress
from recordmill.launch.verbs.convert import print_splits
from recordmill.pipelines.dataset_options import SealOptions
from recordmill.schemas.dataset.dataset_files import MANIFEST
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.shards import JobPart
from recordmill.schemas.sizes import printable
from recordmill.transforms.dataset.dataset_folder import read_manifest, unfinished_splits
from recordmill.transforms.runtime.progress import set_step
from recordmill.transforms.shards.job_parts import JobPlan
from recordmill.transforms.shards.seal_parts import (
    choose_parts,
    find_parts,
    is_sealed,
    read_parts,
    seal_parts,
)
from recordmill.transforms.storage.resolve import storage_for, suggest_path


def run(options: SealOptions, progress_mode: str | Show, beams: PipelineOptions) -> bool:
    """Write the manifest of each job whose parts are in the folder, and print the summary.

    Raises:
        ConfigError: Parts are missing or differ, or there are none and the data set is not complete.
        RecordmillError: See `recordmill.transforms.shards.seal_parts.seal_parts`.
    """
    output = options.folder
    if chosen_runner(beams) is not Runner.LOCAL:
        raise ConfigError("seal runs on this machine only. Leave out the flags after the lone --")
    jobs = _jobs(options)
    if not jobs:
        splits = _complete_splits(output, options.split)
        terminal().print(f"{printable(output)} is already complete; nothing was written")
        print_splits(output, splits, beams, is_run=False)
        return False
    if fault := folder_fault(output):
        raise ConfigError(fault)
    chosen = {
        split: choose_parts(output, parts, plan.splits)
        for split, (plan, parts) in jobs.items()
        if not is_sealed(output, plan)  # by a run that was killed before it deleted the parts
    }
    with show_progress(progress_mode):
        set_step("sealing")
        for split, parts in chosen.items():
            seal_parts(output, read_parts(output, split, parts), options.max_rejects)
    print_splits(output, sorted(split for plan, _ in jobs.values() for split in plan.splits), beams)
    return False


def _jobs(options: SealOptions) -> dict[str, tuple[JobPlan, list[JobPart]]]:
    """Return the plan and the finished parts of each job, or of the job of `--split`, by the last of its splits.

    Raises:
        ConfigError: No job writes the split.
    """
    parts = find_parts(options.folder)
    jobs = {split: (read_parts(options.folder, split, parts[split][:1])[0].plan, parts[split]) for split in parts}
    if not options.split or not jobs:
        return jobs
    asked = {split: job for split, job in jobs.items() if options.split in job[0].splits}
    if not asked:
        known = sorted(split for plan, _ in jobs.values() for split in plan.splits)
        raise ConfigError(f"{options.folder} has no parts of split {options.split}; it has parts of {', '.join(known)}")
    return asked


def _complete_splits(output: str, split: str) -> list[str]:
    """Return the splits of a complete data set.

    Raises:
        ConfigError: There is none, or a run is unfinished, or it has no such split.
    """
    if unfinished := unfinished_splits(output):
        raise ConfigError(
            f"{output} has no finished part, and an unfinished run of {' and '.join(unfinished)}. Wait until the parts "
            f"have ended, or run the same command again, and then: recordmill seal {shlex.quote(output)}"
        )
    manifest = read_manifest(output)
    if manifest is None:
        is_folder = storage_for(output).is_folder(output)
        fault = f" has no part, and no {MANIFEST}" if is_folder else f": no such folder{suggest_path(output)}"
        raise ConfigError(f"{output}{fault}. Give the --output of the parts")
    splits = list(manifest.splits)
    if split and split not in splits:
        raise ConfigError(f"{output} has no split {split}; it has {', '.join(splits)}")
    return splits
