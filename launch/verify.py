"""`recordmill verify`, from a folder to a verdict."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from launch.summary import print_checks, terminal
from schemas.errors import ConfigError
from schemas.reports import ShardCheck


def run_verify(folder: str, workers: int | None, progress_mode: str, beam_arguments: Sequence[str]) -> bool:
    """Check every record of a data set, print what was found, and tell whether it is whole.

    Raises:
        ConfigError: no data set there, or TensorFlow is not installed.
        JobError: the check itself failed.
    """
    from launch import progress
    from launch.run import run
    from pipelines import verify

    expected = verify.expected_shards(folder)
    _require_tensorflow()
    with tempfile.TemporaryDirectory(prefix="recordmill-") as temporary:
        report = os.path.join(temporary, "checks.json")
        with progress.shown(progress_mode):
            run(partial(verify.build, expected=expected, report=report, workers=workers), beam_arguments)
        with open(report, "rb") as file:
            checks = msgspec.json.decode(file.read(), type=list[ShardCheck])
    faults = [*verify.folder_faults(folder, checks), *(fault for check in checks for fault in check.faults)]
    print_checks(terminal(), folder, checks, faults)
    return not faults


def _require_tensorflow() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # of no use here, and it announces itself at every start
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # checking needs no GPU, and one may be training
    try:
        with _without_native_messages():
            import tensorflow as tf

            tf.constant(0)  # makes the devices, and what there is to say of them
    except ImportError as error:
        raise ConfigError("verify decodes images with TensorFlow: pip install 'recordmill[tensorflow]'") from error


@contextmanager
def _without_native_messages() -> Iterator[None]:
    """Nothing that native code prints on standard error while the block runs: TensorFlow reports each GPU library that
    it does not find as an error, before any setting of its log is heard."""
    if sys.stderr is None:  # the caller has closed it
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
