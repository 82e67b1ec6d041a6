"""Two runs of one job at once, or one that pauses while another does it all, end with one correct data set."""

import contextlib
import os
import random
import re
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from tests.faults.jobs import (
    Files,
    Job,
    LocalPlace,
    SmallJob,
    array_records,
    coco,
    coco_parquet,
    coco_repacked,
    coco_tars,
    folder_splits,
    place_called,
    small_coco,
    zipped,
)
from tests.faults.warm_process import Command


@pytest.mark.parametrize(
    ("where", "command"),
    [
        ("local", coco),
        ("local", zipped(folder_splits)),
        ("gs", folder_splits),
        ("s3", array_records),
        ("local", coco_parquet),
        ("gs", coco_tars),
        ("local", coco_repacked),
    ],
)
def test_two_at_once(where, command, pictures, tmp_path, server, request):
    """Started together, within some milliseconds, and at random within the time that a run takes."""
    job = Job(place_called(where, tmp_path, server), tmp_path, partial(command, pictures))
    whole = job.undisturbed()
    offsets = random.Random(request.node.callspec.id)
    for longest in (0, 0.01, job.seconds):
        output = job.new_output()
        one = job.start(output)
        time.sleep(offsets.uniform(0, longest))
        other = job.start(output)
        assert_done_or_refused(one.end(), other.end())
        assert job.place.files(output) == whole, other
    log = tmp_path / "verify"
    log.mkdir()
    Job(job.place, log, lambda output: ["verify", output]).run(output)


def test_two_containers_at_once(pictures, tmp_path):
    """Into one folder: one job is done, and the other is refused."""
    jobs = [Job(LocalPlace(tmp_path), tmp_path, partial(command, pictures)) for command in (coco_parquet, coco_tars)]
    wholes = []
    for number, job in enumerate(jobs):
        job.run(f"{tmp_path}/whole{number}")
        wholes.append(job.place.files(f"{tmp_path}/whole{number}"))
    for number, after in enumerate((0, 0.01, jobs[0].seconds / 3, jobs[0].seconds / 2)):
        output = f"{tmp_path}/both{number}"
        one = jobs[number % 2].start(output)
        time.sleep(after)
        commands = [one, jobs[1 - number % 2].start(output)]
        codes = [command.end().code for command in commands]
        assert 0 in codes, commands
        (refused,) = (command for command in commands if command.code)
        assert re.fullmatch(r"(note: .+\n)*recordmill: .+\n", refused.err), refused
        assert jobs[0].place.files(output) == wholes[(number + codes.index(0)) % 2], commands


def test_two_extractions_at_once(pictures, tmp_path):
    """Into one folder, started together, or one while the other works: one is done, the other is refused."""
    place = LocalPlace(tmp_path)
    SmallJob(place, tmp_path, small_coco(pictures, tmp_path)).run(f"{tmp_path}/data")
    job = Job(place, tmp_path, lambda output: ["extract", f"{tmp_path}/data", output])
    whole_output = job.new_output()
    job.run(whole_output)
    told = []
    for after in (0, 0, job.seconds / 3, job.seconds / 2):
        output = job.new_output()
        one = job.start(output)
        time.sleep(after)
        other = job.start(output)
        assert_done_or_refused(one.end(), other.end())
        assert job.place.files(output) == job.place.files(whole_output)
        told += [f" is writing to {output}. " in one.err + other.err]
    assert sum(told) >= 2  # and the others came too late


@pytest.mark.parametrize("begin", ["anew", "all but the end"])
def test_one_pauses_while_another_does_it_all(small_job, begin):
    """Whatever a run has seen so far may be out of date when it takes its next step."""
    whole = small_job.undisturbed()
    if begin == "all but the end":
        small_job.before = small_job.all_but_the_end()
    is_local = isinstance(small_job.place, LocalPlace)
    steps = [2, 3, 8, 20] if is_local else [5, 13, 21]
    for step in steps:
        pause(small_job, step, whole)


def test_run_pauses_before_it_reads_note(pictures, tmp_path):
    job = SmallJob(LocalPlace(tmp_path), tmp_path, small_coco(pictures, tmp_path))
    whole = job.undisturbed()
    job.before = job.all_but_the_end()
    pause(job, 1, whole)


def pause(job: SmallJob, step: int, whole: Files) -> None:
    output = job.new_output()
    paused = job.signalled(output, step, signal.SIGSTOP, with_reads=True)
    assert wait_until_stopped(paused)
    job.run(output)
    os.kill(paused.process.pid, signal.SIGCONT)
    assert_done_or_refused(paused.end())
    assert job.place.files(output) == whole, paused
    print(f"PAUSE before step {step}")


def wait_until_stopped(command: Command) -> bool:
    """False where it ends without being stopped."""
    while command.process.exitcode is None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{command.process.pid}/stat").read_text()
            if status.rpartition(")")[2].split()[0] == "T":
                return True
        time.sleep(0.005)
    return False


def assert_done_or_refused(*commands: Command) -> None:
    """Assert that at least one of several equal commands is done, and others are refused."""
    for command in commands:
        assert command.code in (0, 2), command
        if command.code == 2:
            assert re.fullmatch(r"recordmill: .+\n", command.err), command
    assert len(commands) == 1 or 0 in [command.code for command in commands]
