"""Commands in processes of their own, forked from one that has imported everything already, so that a command takes
half a second where it would take three; and what may happen to them from within."""

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

# ruff: noqa: F401  everything that a command imports on its way is to be there when a process is forked
import apache_beam.runners.portability.fn_api_runner.fn_runner
import apache_beam.runners.worker.sdk_worker
import google.auth
import google.cloud.storage
import PIL.JpegImagePlugin
import PIL.PngImagePlugin
import requests.adapters
import rich.console
import s3fs

import recordmill.launch.cli
import recordmill.launch.preflight.check_inputs
import recordmill.launch.runners.run
import recordmill.launch.terminal.progress
import recordmill.launch.terminal.require_tensorflow
import recordmill.launch.verbs.convert
import recordmill.pipelines.coco
import recordmill.pipelines.convert
import recordmill.pipelines.folder
import recordmill.transforms.storage.fsspec_storage
import recordmill.transforms.storage.gcs_requests
import recordmill.transforms.storage.local_storage
import recordmill.transforms.storage.zip_storage
from recordmill.launch.local_engine import engine, fork_writers
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.shards import write_shards
from recordmill.transforms.shards.shard_file import ShardFile

CocoOptions.model_rebuild()  # pydantic imports modules where it builds its first model, which is late here: defer_build

_ROOT = Path(__file__).resolve().parents[2]
_IMPORTED_IN = os.getpid()

Disturbance = Callable[[], None]
"""Called in the process before its command."""


class Command:
    """A command that has been started; what it prints goes to files beginning with `log`."""

    def __init__(
        self,
        arguments: Sequence[object],
        log: Path,
        environment: Mapping[str, str] = {},
        disturbance: Disturbance | None = None,
    ):
        self._out, self._err = log.with_suffix(".out"), log.with_suffix(".err")
        files = str(self._out), str(self._err)
        words = [str(argument) for argument in arguments]
        self.process = _warm().Process(target=_run, args=(words, files, dict(environment), disturbance))
        self.process.start()

    def kill(self) -> None:
        self.process.kill()

    def end(self, timeout_s: float = 300) -> "Command":
        """Wait until it has ended."""
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(f"still running after {timeout_s} s\n{self}")
        return self

    @property
    def code(self) -> int | None:
        """Exit code, negative where a signal ended it."""
        return self.process.exitcode

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def out(self) -> str:
        return self._out.read_text() if self._out.exists() else ""

    @property
    def err(self) -> str:
        return self._err.read_text() if self._err.exists() else ""

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


@cache
def _warm() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "pytest"])  # a process imports what is __main__ here
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(_ROOT)  # the server knows no other way to this module
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return context


def _run(
    words: list[str], files: tuple[str, str], environment: dict[str, str], disturbance: Disturbance | None
) -> None:
    assert os.getpid() != _IMPORTED_IN, "this process had to import everything itself"
    os.environ.update(environment)
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    engine._is_entered = True
    fork_writers.WORTH_IT = 1
    if disturbance:
        disturbance()
    sys.exit(recordmill.launch.cli.main(words))


# Disturbances, by functools.partial


def in_one_process() -> None:
    """Let one process do all, so that what it does can be counted."""
    engine._is_entered = False


def signal_before(number: int, folder: str, signal_number: int, with_open: bool) -> None:
    """Send the process a signal before it asks the system for the `number`th time (from 1) to make, rename or delete
    something in `folder`, or to open a file there, if that counts too."""
    in_one_process()
    seen = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal seen
        is_wanted = _is_change(event, arguments) or (event == "open" and with_open)
        if is_wanted and any(f"{path}/".startswith(f"{folder}/") for path in arguments[:2]):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal_number)

    sys.addaudithook(hook)


def signal_after_record(number: int, signal_number: int) -> None:
    """Send the process a signal when it has written its `number`th record (from 1), which is in its file by then. Where
    the process outlives that, the thread that writes goes on a second later."""
    in_one_process()
    append, seen = ShardFile.append, []

    def disturbed(shard: ShardFile, *record: bytes) -> None:
        append(shard, *record)
        getattr(shard._writer, "_flush", lambda: None)()  # of TFRecord
        seen.append(record)
        if len(seen) == number:
            os.kill(os.getpid(), signal_number)
            time.sleep(1)

    ShardFile.append = disturbed


def write_in_forked_processes_only() -> None:
    """Let the process fail where it writes a shard, and not those that it forks."""
    ordered_block, parent = write_shards.ordered_block, os.getpid()

    def checked(*shard: Any) -> Any:
        assert os.getpid() != parent, "a shard is written by the process that runs the job"
        return ordered_block(*shard)

    write_shards.ordered_block = checked


def _is_change(event: str, arguments: tuple) -> bool:
    match event:
        case "os.mkdir":
            return not os.path.exists(arguments[0])
        case "os.remove":
            return os.path.lexists(arguments[0])
    return event in ("os.rename", "os.rmdir", "os.symlink")


def attach_terminal(path: str, kind: str) -> None:
    """Read from and write to a terminal, which is of that kind ($TERM)."""
    terminal = os.open(path, os.O_RDWR | os.O_NOCTTY)
    for number in range(3):
        os.dup2(terminal, number)
    os.close(terminal)
    # Those of Python hold that they write to files, which have positions.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    os.environ.pop("COLUMNS", None)
    os.environ["TERM"] = kind


def upload_in_chunks(size: int) -> None:
    """Send every object in chunks of `size` bytes, as large ones are sent."""
    recordmill.transforms.storage.gcs_requests.CHUNK_BYTES = size
