"""When shards are written by processes that are forked, and by how many."""

import multiprocessing
import shutil
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from recordmill.launch.local_engine import engine, fork_writers
from recordmill.transforms.runtime.processes import forked_processes
from tests.faults import warm_process

MANY = 1000


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """Folders of the least number of files for forked writers, and of one fewer."""
    folder = tmp_path_factory.mktemp("images")
    for name, number in (("many", MANY), ("few", MANY - 1)):
        (folder / name).mkdir()
        for index in range(number):
            (folder / name / f"{index}.jpg").touch()
        shutil.make_archive(str(folder / name), "zip", folder / name)
    return folder


def writers(images: str, threads: int | None, mode: str, cores: int, is_own: bool, obstacle: str) -> tuple[int, int]:
    """How many processes are said to write, and how many there are, in a process that has `cores` cores."""
    if is_own:
        engine._is_entered = True
    fork_writers.usable_cores = lambda: cores
    if obstacle == "tensorflow":
        sys.modules["tensorflow"] = sys
    elif obstacle == "thread":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    with fork_writers.fork_if_many(lambda: fork_writers.are_many([images]), threads, mode):
        processes = forked_processes()
        return processes.number if processes else 0, len(multiprocessing.active_children())


def notes() -> list[bool]:
    """Return whether each mode is said to be slower, in the process of a command and in another."""
    modes = ("multi_processing", "in_memory", "")
    other_process_note = fork_writers.slower_processes(modes[0])
    engine._is_entered = True
    return ["in less time" in note for note in (other_process_note, *map(fork_writers.slower_processes, modes))]


def test_note_says_that_beam_processes_are_slower():
    with ProcessPoolExecutor(1, warm_process._warm()) as pool:
        assert pool.submit(notes).result() == [False, True, False, False]


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ({}, 4),
        ({"images": "few"}, 0),
        ({"images": "many.zip"}, 4),
        ({"images": "few.zip"}, 0),
        ({"images": "gs://bucket/images"}, 4),
        ({"images": "not there"}, 0),
        ({"threads": 3}, 3),
        ({"threads": 64}, 4),
        ({"threads": 1}, 0),
        ({"cores": 1}, 0),
        ({"cores": 96}, 8),
        ({"mode": "multi_processing"}, 0),
        ({"mode": ""}, 0),
        ({"is_own": False}, 0),
        ({"obstacle": "tensorflow"}, 0),
        ({"obstacle": "thread"}, 0),
    ],
)
def test_where_and_how_many(given, number, images):
    usual = {"images": "many", "threads": None, "mode": "in_memory", "cores": 4, "is_own": True, "obstacle": ""}
    asked = usual | given
    if "://" not in asked["images"]:
        asked["images"] = str(images / asked["images"])
    with ProcessPoolExecutor(1, warm_process._warm()) as pool:
        assert pool.submit(writers, *asked.values()).result() == (number, number)
