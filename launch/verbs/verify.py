"""`recordmill verify`: check a data set."""

import shlex
from collections.abc import Iterator, Sequence
from functools import partial

from apache_beam.options.pipeline_options import PipelineOptions
from rich.table import Table

from recordmill.launch.local_engine.fork_writers import WORTH_IT, fork_if_many
from recordmill.launch.preflight.check_runner import check_runner, check_staging
from recordmill.launch.runners.beam_options import Runner, chosen_runner, job_purpose, local_mode
from recordmill.launch.runners.run import run as run_job
from recordmill.launch.runners.run import run_for_report
from recordmill.launch.terminal import progress
from recordmill.launch.terminal.console import print_faults, terminal
from recordmill.launch.terminal.require_tensorflow import require_tensorflow
from recordmill.pipelines import verify
from recordmill.pipelines.dataset_options import VerifyOptions
from recordmill.schemas.dataset.checks import Check, Faults, ShardCheck
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.sizes import number_text, size_text
from recordmill.schemas.statistics import REPORT
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.dataset.fact_lines import replaced_lines
from recordmill.transforms.insight.write_report import has_report
from recordmill.transforms.shards.commit_splits import read_commits
from recordmill.transforms.verify.check_folder import all_faults


def run(options: VerifyOptions, progress_mode: str, beams: PipelineOptions) -> bool:
    """Check a data set, print the result, and return True if there are errors. A template is only built; its job fails
    if there are errors.

    Raises:
        ConfigError: There is no data set, or no such split or shard; or TensorFlow is not installed.
        JobError: The check failed; or the model is missing, or differs from the recorded one.
    """
    if chosen_runner(beams) is not Runner.LOCAL:
        check_runner(beams, options.paths)
        if options.check in (None, "tensorflow"):
            raise ConfigError(
                "--check tensorflow (the default) runs only on this machine, because remote workers lack TensorFlow. "
                "Use --check decode, which decodes as the writer does, or --check hashes"
            )
        if job_purpose(beams) == "dry run":
            raise ConfigError("verify does not support a dry run. Leave --dry_run out")
        check_staging(beams)
    expected = verify.expected_shards(options)
    if job_purpose(beams) == "template":
        run_job(lambda p: verify.build_judging(p, expected, options.folder, options.workers), beams)
        terminal().print("The template was written; launching it runs the job, which fails if there is a fault.")
        return False
    records = sum(shard.info.examples for shard in expected)
    mode = local_mode(beams)
    forked = fork_if_many(lambda: records >= WORTH_IT, options.workers, mode)
    with forked, progress.show_progress(progress_mode):
        if options.chosen_check is Check.TENSORFLOW:
            is_checking = options.recompute is None
            what = "verify --check tensorflow" if is_checking else "verify --recompute"
            require_tensorflow(what, is_checking)
        verify.load_models(expected)
        progress.expect_records([shard.info for shard in expected], in_this_process=mode == "in_memory")
        build = partial(verify.build, expected=expected, workers=options.workers)
        checks = run_for_report(build, beams, list[ShardCheck], options.folder)
    faults = all_faults(options.folder, checks)
    listed = sum(len(split.shards) for split in require_manifest(options.folder).splits.values())
    print_checks(options.folder, checks, faults, options.chosen_check, listed - len(checks))
    for unchecked in _unchecked_lines(options):
        terminal().print(unchecked)
    return bool(faults)


def print_checks(
    folder: str,
    checks: Sequence[ShardCheck],
    faults: Faults,
    check: Check = Check.TENSORFLOW,
    unread: int = 0,
) -> None:
    """Print the result of verify: a line per split, and the errors. `unread` shards were skipped."""
    console = terminal()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("split")
    for column in ("shards", "examples", "objects", "size"):
        table.add_column(column, justify="right")
    for split in sorted({shard_check.split for shard_check in checks}):
        split_checks = [shard_check for shard_check in checks if shard_check.split == split]
        table.add_row(
            split,
            f"{len(split_checks):,}",
            f"{sum(shard_check.examples for shard_check in split_checks):,}",
            f"{sum(shard_check.objects for shard_check in split_checks):,}",
            size_text(sum(shard_check.bytes for shard_check in split_checks)),
        )
    console.print(table)
    print_faults(faults)
    if features := sum(shard_check.features for shard_check in checks):
        most = max(shard_check.difference for shard_check in checks)
        console.print(
            f"{features:,} features were computed again: they differ by at most {most:.2g} of their largest number"
        )
    done = "read and parsed" if check is Check.HASHES else "read, parsed and decoded"
    if faults:
        verdict = f": {number_text(len(faults), 'fault')}"
    elif unread:
        verdict = f": no fault in {len(checks):,} of {len(checks) + unread:,} shards: all their records were {done}"
    else:
        verdict = f" is intact: all records were {done}"
    console.print(f"{folder}{verdict}")


def _unchecked_lines(options: VerifyOptions) -> Iterator[str]:
    """Yield a sentence for each part that was not checked."""
    if options.check is None and options.chosen_check is Check.DECODE:
        yield (
            "TensorFlow is not installed, so its decoder and parser were not tried; "
            'pip install "recordmill[tensorflow]", or use --check decode'
        )
    if splits := sorted(split for log in read_commits(options.folder).values() for split in log.manifests):
        yield (
            f"A run of --add that was interrupted is about to add to {' and '.join(splits)}: the same command, or any "
            "other --add, completes it. Files that it replaces were not checked"
        )
    manifest = require_manifest(options.folder)
    for split in manifest.splits:
        yield from (f"{split}: {text}" for text in replaced_lines(options.folder, manifest, split))
    if has_report(options.folder):
        yield f"{REPORT} was not checked; recordmill report {shlex.quote(options.folder)} writes it again"
