import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from recordmill.schemas.shards import ShardKey, ShardResult
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.processes import fork_processes, forked_processes
from recordmill.transforms.shards.shard_file import shard_folders
from recordmill.transforms.shards.write_shards import write_shard
from recordmill.transforms.storage.local_storage import LocalUpload
from tests.faults import warm_process
from tests.faults.jobs import LocalPlace, Shard
from tests.transforms.blocks.of_tasks import pack_tasks

HALVES = {ShardKey("train", 0, 2): slice(10), ShardKey("train", 1, 2): slice(10, 20)}


@pytest.fixture
def shard(tmp_path) -> Shard:
    return Shard(LocalPlace(tmp_path), tmp_path)


def in_another(function: Callable, *arguments: object) -> Any:
    """Result or exception of a function in a process without threads."""
    with ProcessPoolExecutor(1, warm_process._warm()) as pool:
        return pool.submit(function, *arguments).result()


def begun(shard: Shard) -> list[Future[ShardResult]]:
    """Two shards, of half the tasks each, on their way."""
    recipe, (labels, table) = shard.recipe(False), shard.CONTEXT
    packed = {key: pack_tasks(shard.tasks[half]) for key, half in HALVES.items()}
    folders = shard_folders(recipe, "train")
    return [
        forked_processes().submit(write_shard, (recipe, labels, table, key, blocks), 2, 2, folders)
        for key, blocks in packed.items()
    ]


def write(shard: Shard) -> tuple[list[ShardResult], list[progress.Progress], int, bool]:
    with fork_processes(2):
        number = len(multiprocessing.active_children())
        results = [future.result() for future in begun(shard)]
    seen = [progress.snapshot()]
    progress.reset()
    seen.append(progress.snapshot())
    return results, seen, number, bool(forked_processes() or multiprocessing.active_children())


def test_processes_write_same_bytes_and_report(shard):
    results, (seen, reset), number, is_left = in_another(write, shard)
    assert (number, is_left) == (2, False)
    files = shard.files()
    here = f"{shard.output}-here"
    assert results == [shard.finish(False, here, key, half) for key, half in HALVES.items()]
    assert files == shard.files(here)
    size = sum(task.ref.size_bytes for task in shard.tasks)
    assert (seen.images_done, seen.bytes_done, seen.shards_done, seen.images_skipped) == (20, size, 2, 0)
    assert reset == progress.Progress()


def fail(shard: Shard) -> None:
    with fork_processes(2):
        begun(shard)[0].result()


def test_error_of_process_is_that_of_thread(shard):
    Path(shard.output).write_bytes(b"")
    with pytest.raises(FileExistsError) as here:
        shard.finish()
    with pytest.raises(FileExistsError) as folder:
        in_another(fail, shard)
    assert str(folder.value) == str(here.value)


def leave(shard: Shard, ending: str) -> None:
    commit = LocalUpload.commit

    def stuck(upload: LocalUpload, path: str | None = None) -> None:
        while (path or upload._path).endswith(ending):
            time.sleep(0.05)
        commit(upload, path)

    LocalUpload.commit = stuck
    with fork_processes(2):
        begun(shard)
        while len(temporary(shard, ending)) < 2:
            time.sleep(0.01)


def temporary(shard: Shard, name: str = "") -> list[Path]:
    return [path for path in Path(shard.output).rglob(".*.tmp") if f"{name}." in path.name]


@pytest.mark.parametrize("ending", ["00002", "00002.idx", "00002.json"])
def test_early_end_removes_unfinished_files(ending, shard):
    """A shard, its index, and the note of it."""
    in_another(leave, shard, ending)
    assert not temporary(shard)


def signalled(shard: Shard, number: int) -> list[ShardResult]:
    with fork_processes(2):
        for process in multiprocessing.active_children():
            os.kill(process.pid, number)
        time.sleep(0.2)
        return [future.result() for future in begun(shard)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_reaches_parent(number, shard):
    assert len(in_another(signalled, shard, number)) == 2


def test_one_killed_is_error(shard):
    with pytest.raises(BrokenProcessPool):
        in_another(signalled, shard, signal.SIGKILL)


def die(file: Path) -> None:
    with fork_processes(2):
        file.write_text(" ".join(str(process.pid) for process in multiprocessing.active_children()))
        os.kill(os.getpid(), signal.SIGKILL)


def test_they_end_with_their_parent(tmp_path):
    with pytest.raises(BrokenProcessPool):
        in_another(die, tmp_path / "pids")
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    last = time.monotonic() + 10
    while any(map(is_alive, pids)):
        assert time.monotonic() < last
        time.sleep(0.01)


def is_alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
