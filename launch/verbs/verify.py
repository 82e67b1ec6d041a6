"""`recordmill verify`, from a folder to a verdict."""

import os
import tempfile
from collections.abc import Sequence
from functools import partial

import msgspec

from recordmill.launch.terminal.require_tensorflow import require_tensorflow
from recordmill.launch.terminal.summary import print_checks, terminal
from recordmill.pipelines.options.verify_options import VerifyOptions
from recordmill.schemas.plan_report import ShardCheck


def run_verify(options: VerifyOptions, progress_mode: str, beam_arguments: Sequence[str]) -> bool:
    """Check every record of a data set, print what was found, and return whether it has no fault.

    Raises:
        ConfigError: no data set there, or none of what is asked for; or TensorFlow is not installed.
        JobError: the check itself failed; the model is gone, or another than it was.
    """
    from recordmill.launch.preflight.check_runner import require_local
    from recordmill.launch.runners.beam_options import beam_options
    from recordmill.launch.runners.run import run
    from recordmill.launch.terminal import progress
    from recordmill.pipelines import verify
    from recordmill.transforms.verify.check_folder import folder_faults

    if beam_arguments:
        require_local(beam_options(beam_arguments), "verify")
    expected = verify.expected_shards(options)
    with tempfile.TemporaryDirectory(prefix="recordmill-") as temporary:
        report = os.path.join(temporary, "checks.json")
        with progress.shown(progress_mode):
            is_checking = options.recompute is None
            require_tensorflow("verify decodes images" if is_checking else "verify runs the model", is_checking)
            verify.load_models(expected)
            progress.expect_records([shard.info for shard in expected], in_this_process=not beam_arguments)
            run(partial(verify.build, expected=expected, report=report, workers=options.workers), beam_arguments)
        with open(report, "rb") as file:
            checks = msgspec.json.decode(file.read(), type=list[ShardCheck])
    faults = [*folder_faults(options.folder, checks), *(fault for check in checks for fault in check.faults)]
    print_checks(terminal(), options.folder, checks, faults)
    return not faults
