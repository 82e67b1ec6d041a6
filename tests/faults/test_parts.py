"""Parts of a job, which share only the output, are killed and run at once; the bytes are those of one job."""

import random
import signal
import time
from functools import partial

import pytest

from tests.faults import warm_process
from tests.faults.jobs import Files, Job, LocalPlace, Place, array_records, coco, folder_splits, place_called, zipped
from tests.faults.test_two_at_once import assert_done_or_refused
from tests.faults.warm_process import Command

PARTS = 16


class PartedJob:
    """A job as parts, into one output.

    Attributes:
        seconds: Duration of the whole job.
        whole: Files of an output of the whole job.
    """

    def __init__(self, place: Place, log, command, parts: int):
        job = Job(place, log, command)
        self.whole: Files = job.undisturbed()
        self.place, self.output, self.seconds, self.parts = place, job.new_output(), job.seconds, parts
        self._command, self._log, self._runs = command, log, 0

    def start(self, part: int, disturbance=None) -> Command:
        return self._start([*self._command(self.output), "--part", f"{part}/{self.parts}"], disturbance)

    def seal(self, disturbance=None) -> Command:
        return self._start(["seal", self.output], disturbance)

    def _start(self, words: list, disturbance) -> Command:
        self._runs += 1
        return Command(words, self._log / f"part{self._runs}", self.place.environment, disturbance)

    def run_all(self) -> None:
        for part in range(self.parts):
            ended = self.start(part).end()
            assert ended.code == 0, ended

    def assert_sealed(self, sealed: Command) -> None:
        assert sealed.end().code == 0, sealed
        assert self.place.files(self.output) == self.whole, sealed


def kill_at(moments: list[float], commands: list[Command]) -> int:
    """Kill commands that run together, each at its moment. Return how many were still running."""
    begun = time.monotonic()
    for moment, command in sorted(zip(moments, commands, strict=True), key=lambda item: item[0]):
        time.sleep(max(0.0, begun + moment - time.monotonic()))
        command.kill()
    return sum(command.end().was_killed for command in commands)


def coco_in_20(pictures, output: str) -> list[object]:
    return coco(pictures, output, "--num-shards", 20)


def splits_in_11(pictures, output: str, *more: object) -> list[object]:
    return folder_splits(pictures, output, "--num-shards", 11, *more)


@pytest.mark.parametrize(
    ("where", "command"),
    [
        pytest.param("local", zipped(splits_in_11), id="local splits"),
        pytest.param("local", array_records, id="local ArrayRecord"),  # 8 shards: some parts have none
        pytest.param("gs", coco_in_20, id="gs"),
        pytest.param("s3", splits_in_11, id="s3 splits"),
    ],
)
def test_sixteen_parts_killed_at_random(where, command, pictures, tmp_path, server, request):
    """All start together; each is killed at a moment of a seeded random generator, and run again. So is seal, three
    times."""
    job = PartedJob(place_called(where, tmp_path, server), tmp_path, partial(command, pictures), PARTS)
    moments = random.Random(request.node.callspec.id)
    commands = [job.start(part) for part in range(PARTS)]
    killed = [kill_at([moments.uniform(0, PARTS * job.seconds / 2) for _ in commands], commands)]
    job.place.settle()
    assert job.seal().end().code == (2 if killed[0] else 0)
    for command_of_part in [job.start(part) for part in range(PARTS)]:
        assert command_of_part.end().code == 0, command_of_part
    for _ in range(3):
        killed.append(kill_at([moments.uniform(0.2, job.seconds)], [job.seal()]))
        job.place.settle()
    job.assert_sealed(job.seal())
    print(f"KILLS {killed}")


def test_seal_killed_before_each_change(pictures, tmp_path):
    """Every second one."""
    job = PartedJob(LocalPlace(tmp_path), tmp_path, partial(coco, pictures), 3)
    job.run_all()
    before, kills = job.output, 0
    for number in range(1, 200, 2):
        job.output = f"{before}-{number}"
        job.place.copy(before, job.output)
        killed = job.seal(partial(warm_process.signal_before, number, job.output, signal.SIGKILL, False)).end()
        job.assert_sealed(job.seal() if killed.was_killed else killed)
        if not killed.was_killed:
            break
        kills += 1
    assert kills >= 10
    print(f"KILLS {kills}, each before a change")


@pytest.mark.parametrize("where", ["local", "gs"])
def test_parts_of_one_number_at_once(where, pictures, tmp_path, server):
    """All parts twice, in different order; then two seals, and a part that runs again meanwhile."""
    job = PartedJob(place_called(where, tmp_path, server), tmp_path, partial(coco, pictures), 2)
    commands = [job.start(part) for part in (0, 1, 1, 0)]
    for command in commands:
        assert command.end().code == 0, command
    again = job.start(1)
    seals = [job.seal(), job.seal()]
    assert_done_or_refused(*(seal.end() for seal in seals))
    assert again.end().code in (0, 1, 2), again
    assert (job.start(1) if again.code else again).end().code == 0
    job.assert_sealed(job.seal())
