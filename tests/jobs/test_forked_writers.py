"""Commands whose shards are written by processes that they fork: nobody sees that from outside."""

import os
import signal
import time
from pathlib import Path

from tests.conftest import coco_flags, shard_bytes
from tests.faults.warm_process import Command, write_in_forked_processes_only


def test_bytes_are_one_process(sample, tmp_path, copy_converted):
    shards = 12  # more than may be in hand at once
    flags = coco_flags(sample, tmp_path / "out", "--num-shards", shards)
    command = Command(flags, tmp_path / "log", disturbance=write_in_forked_processes_only).end()
    assert command.code == 0, command
    copy_converted(tmp_path / "here", "--num-shards", shards)
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "here")
    assert [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith(".")] == [".index"]


def test_single_shard_is_written_by_job_s_own_process(sample, tmp_path):
    flags = coco_flags(sample, tmp_path / "out", "--num-shards", 1)
    command = Command(flags, tmp_path / "log", disturbance=write_in_forked_processes_only).end()
    assert "a shard is written by the process that runs the job" in command.err


def children(process: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def forked(command: Command) -> list[int]:
    """The processes that a command forks, as soon as there are two."""
    last = time.monotonic() + 60
    while len(found := children(command.process.pid)) < 2:
        assert command.code is None, command
        assert time.monotonic() < last
        time.sleep(0.001)
    return found


def test_ctrl_c_reaches_all_and_is_named_once(sample, tmp_path):
    """The signal goes to all processes, as from a terminal."""
    command = Command(coco_flags(sample, tmp_path / "out", "--num-shards", 4), tmp_path / "log")
    found = forked(command)
    for process in (*found, command.process.pid):
        os.kill(process, signal.SIGINT)
    assert command.end(60).code == 130, command
    assert command.err.startswith("recordmill: interrupted. Finished shards are kept")
    assert len(command.err.splitlines()) == 1
    assert not any(Path(f"/proc/{process}").exists() for process in found)
