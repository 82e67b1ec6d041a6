"""A job that reads from a slow bucket, so that there is time to disturb it."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.engines.command import Command
from tests.engines.output import files_of
from tests.faults.jobs import LocalPlace, assert_whole, finished_shards
from tests.gcs_stand_in import GcsStandIn

SHARDS = 8
SLOW_S = 0.25


class DisturbedJob:
    """The command of `slow_job` on an engine, into `output`; `whole` gives the files that nothing disturbed."""

    def __init__(
        self,
        job: list[object],
        engine: list[str],
        bucket: GcsStandIn,
        folder: Path,
        whole: Callable[[], Mapping[str, str]],
    ):
        self._job = job
        self._engine = engine
        self._bucket = bucket
        self._folder = folder
        self._whole = whole
        self.output = folder / "out"

    def run(self, disturb: Callable[[Command], None], is_time: Callable[[], bool] = lambda: True) -> Command:
        """Disturb it when some shards are finished, and wait for its end."""
        self._bucket.latency_s = SLOW_S
        command = self.start(self.output, self._engine)
        last = time.monotonic() + 180
        while not (self._noted() and is_time()):
            assert command.code is None, command
            assert time.monotonic() < last, "no shard is finished"
            time.sleep(0.02)
        disturb(command)
        self._bucket.latency_s = 0.0
        return command.end()

    def goes_on(self, on_engine: bool = True) -> Command:
        """Run it again: it keeps what is finished, and ends as if nothing had happened."""
        kept = self.finished()
        again = self.start(self.output, self._engine if on_engine else []).end()
        assert again.code == 0, again
        self.assert_kept(kept)
        return again

    def assert_kept(self, kept: Mapping[str, int]) -> None:
        """The finished shards are not written again, and all is as a run leaves it that nothing disturbs."""
        assert 0 < len(kept) < SHARDS
        assert {name: (self.output / name).stat().st_mtime_ns for name in kept} == kept
        assert files_of(self.output) == self._whole()
        assert_whole(LocalPlace(self._folder).files(str(self.output)))

    def finished(self) -> Mapping[str, int]:
        """Shards that are noted as finished, with their times."""
        return {name: (self.output / place).stat().st_mtime_ns for name, place in self._noted().items()}

    def _noted(self) -> Mapping[str, str]:
        """Shards that are noted as finished, and where they were; a job at work may move them."""
        return finished_shards(LocalPlace(self._folder).files(str(self.output)))

    def start(self, output: Path, engine: list[str]) -> Command:
        environment = {"STORAGE_EMULATOR_HOST": self._bucket.url}
        beam = ["--progress", "none", *(["--", *engine] if engine else [])]
        says = self._folder / f"says-{time.monotonic_ns()}"
        return Command([*self._job, "--output", output, *beam], says, environment)
