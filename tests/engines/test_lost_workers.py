"""A worker or a machine is lost while shards are written: the cluster starts the job again and writes the same bytes.

The images are in a bucket that answers slowly, so that there is time.
"""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.engines import fetch
from tests.engines.command import Command
from tests.engines.conftest import in_pool, of_job_server
from tests.engines.worker_pool import Pool, running_pool


@pytest.fixture
def patient_pool(worker_python, bucket, tmp_path) -> Iterator[Pool]:
    """A pool whose workers read from the slow bucket."""
    variables = {"STORAGE_EMULATOR_HOST": bucket.url}
    with running_pool(worker_python, tmp_path / "pool.log", variables) as pool:
        yield pool


@pytest.fixture
def disturb(disturbed_job, cluster_job_server, patient_pool, tmp_path) -> Callable[..., None]:
    """Kills something when some shards are finished, some are being written and some are not, and mends it as
    Kubernetes would: the job ends as if nothing had happened."""
    job = disturbed_job([*of_job_server(cluster_job_server), *in_pool(patient_pool)], tmp_path)
    kept: dict[str, int] = {}

    def run(kill: Callable[[], None], mend: Callable[[], None] = lambda: None) -> None:
        def happens(command: Command) -> None:
            kill()
            kept.update(job.finished())
            mend()

        command = job.run(happens, lambda: any(path.exists() for path in job.output.glob(".coco-*.tmp")))
        assert command.code == 0, command
        job.assert_kept(kept)

    return run


def test_a_killed_worker_is_replaced(disturb, cluster, patient_pool):
    """Flink asks the pool for another."""
    killed = set()

    def kill() -> None:
        for worker in patient_pool.workers():
            os.kill(worker, signal.SIGKILL)
            killed.add(worker)

    disturb(kill)
    assert killed
    assert any("io.grpc.StatusRuntimeException" in failure for failure in cluster.failures()), "a connection is lost"


@pytest.mark.parametrize("flink", [fetch.FLINK, fetch.NEWER_FLINK], indirect=True)
def test_killed_task_manager_is_replaced(disturb, cluster, flink):
    assert cluster.version() == flink
    disturb(cluster.kill_task_manager, cluster.start_task_manager)
    assert any("TaskManager" in failure for failure in cluster.failures())
