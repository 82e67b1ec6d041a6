"""A worker, or all of a machine, is lost while shards are written; the cluster begins anew, and nothing tells from what
came out.

The images are in a bucket that answers slowly, so that there is time.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines import fetch
from tests.engines.command import Command
from tests.engines.conftest import SHARDS, in_pool, of_job_server
from tests.engines.output import files_of
from tests.engines.worker_pool import Pool, running_pool
from tests.faults.jobs import LocalPlace, assert_whole, finished_shards
from tests.gcs_stand_in import GcsStandIn

SLOW_S = 0.25


@pytest.fixture
def patient_pool(worker_python, bucket, tmp_path) -> Iterator[Pool]:
    """A pool whose workers read from the slow bucket."""
    variables = {"STORAGE_EMULATOR_HOST": bucket.url}
    with running_pool(worker_python, tmp_path / "pool.log", variables) as pool:
        yield pool


class Disturbed:
    """A job on the cluster, and what a run of it that nothing disturbed has left."""

    def __init__(self, job: list[object], engine: list[str], bucket: GcsStandIn, folder: Path):
        self._bucket = bucket
        self._folder = folder
        self._environment = {"STORAGE_EMULATOR_HOST": bucket.url}
        self._job = job
        self._engine = engine

    def run(self, kill: Callable[[], None], mend: Callable[[], None] = lambda: None) -> None:
        """Run it, kill something when some shards are finished, some are being written and some are not, mend it as
        Kubernetes would, and compare what comes out."""
        whole, output = self._folder / "whole", self._folder / "out"
        undisturbed = Command([*self._job, "--output", whole], self._folder / "whole-says", self._environment).end()
        assert undisturbed.code == 0, undisturbed
        self._bucket.latency_s = SLOW_S
        arguments = [*self._job, "--output", output, "--", *self._engine]
        command = Command(arguments, self._folder / "out-says", self._environment)
        last = time.monotonic() + 180
        while not (self._noted(output) and self._begun(output)):
            assert command.code is None, command
            assert time.monotonic() < last, "no shard is finished"
            time.sleep(0.02)
        kill()
        left = self._finished(output)
        assert 0 < len(left) < SHARDS
        mend()
        self._bucket.latency_s = 0.0
        assert command.end().code == 0, command
        assert {name: (output / name).stat().st_mtime_ns for name in left} == left, "finished shards are kept"
        assert files_of(output) == files_of(whole)
        assert_whole(LocalPlace(self._folder).files(str(output)))

    def _finished(self, output: Path) -> dict[str, int]:
        """Shards that are noted as finished, with the time they were."""
        return {name: (output / place).stat().st_mtime_ns for name, place in self._noted(output).items()}

    def _noted(self, output: Path) -> dict[str, str]:
        """The same, and where they were; a job at work may move them."""
        return finished_shards(LocalPlace(self._folder).files(str(output)))

    def _begun(self, output: Path) -> list[Path]:
        return [path for path in output.glob(".coco-*.tmp") if path.exists()]


@pytest.fixture
def disturbed(slow_job, cluster_job_server, patient_pool, bucket, tmp_path) -> Disturbed:
    return Disturbed(slow_job, [*of_job_server(cluster_job_server), *in_pool(patient_pool)], bucket, tmp_path)


def test_a_killed_worker_is_replaced(disturbed, cluster, patient_pool):
    """Flink asks the pool for another."""
    killed = set()

    def kill() -> None:
        for worker in patient_pool.workers():
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)

    disturbed.run(kill)
    assert killed
    assert any("io.grpc.StatusRuntimeException" in failure for failure in cluster.failures()), "a connection is lost"


@pytest.mark.parametrize("flink", [fetch.FLINK, fetch.NEWER_FLINK], indirect=True)
def test_a_killed_task_manager_is_replaced(disturbed, cluster, flink):
    assert cluster.version() == flink
    disturbed.run(cluster.kill_task_manager, cluster.start_task_manager)
    assert any("TaskManager" in failure for failure in cluster.failures())
