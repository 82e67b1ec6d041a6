"""What a person meets who runs a job on an engine: one line that says what is wrong, soon, and exit code 1 or 2."""

import re
import signal
import time
from pathlib import Path

import pytest

from recordmill.transforms.storage.resolve import storage_for
from tests.conftest import coco_flags
from tests.engines import servers
from tests.engines.command import Command
from tests.engines.conftest import of_job_server
from tests.engines.flink import LOCAL, running_job_server
from tests.faults.jobs import LocalPlace, finished_shards
from tests.gcs_stand_in import BUCKET, running

LOOPBACK = "--environment_type=LOOPBACK"


def line_of(command: Command) -> str:
    """The one line on standard error."""
    assert command.code == 1, command
    assert re.fullmatch(r"recordmill: .+\n", command.err), command
    return command.err


def without_progress(arguments: list[str]) -> list[str]:
    return [*arguments, "--progress", "none"]


def test_nobody_listens_where_the_workers_should_be(sample, flink_local, tmp_path):
    arguments = without_progress(coco_flags(sample, tmp_path / "out"))
    with servers.port_without_server() as port:
        beam = [*flink_local[:2], "--environment_type=EXTERNAL", f"--environment_config=localhost:{port}"]
        assert "Connection refused" in line_of(Command([*arguments, "--", *beam], tmp_path).end())


@pytest.mark.parametrize("engine_name", ["flink_local", "prism"])
def test_an_error_of_ours_is_told_as_it_is(engine_name, sample, tmp_path, request):
    arguments = ["coco", "--images", sample.images, "--instances", sample.instances, "--output", tmp_path / "out"]
    engine = request.getfixturevalue(engine_name)
    told = line_of(Command([*without_progress(arguments), "--", *engine], tmp_path).end())
    assert told.startswith("recordmill: 1 of 24 images (4.2%) are rejected, more than --max-rejects 0.01 allows: ")


def test_a_good_job_says_nothing_on_standard_error(sample, prism, flink_local, tmp_path):
    for number, engine in enumerate((prism, flink_local)):
        arguments = without_progress(coco_flags(sample, tmp_path / str(number)))
        command = Command([*arguments, "--", *engine], tmp_path).end()
        assert (command.code, command.err) == (0, ""), command


def test_the_job_server_dies_in_the_middle(sample, job_server_jar, tmp_path):
    """And finished shards are kept, so that the next run goes on from there."""
    place, output = LocalPlace(tmp_path), tmp_path / "out"
    with running() as bucket, running_job_server(job_server_jar, LOCAL, tmp_path) as server:
        for file in storage_for(sample.images).walk(sample.images):
            bucket.put(f"images/{file.name}", Path(file.path).read_bytes())
        job = ["coco", "--images", f"gs://{BUCKET}/images", "--instances", sample.instances, "--output", output]
        job = without_progress([*job, "--max-rejects", "0.2", "--num-shards", "6", "--workers", "1"])
        slow = {"STORAGE_EMULATOR_HOST": bucket.url}
        bucket.latency_s = 0.3
        command = Command([*job, "--", *of_job_server(server), LOOPBACK], tmp_path, slow)
        last = time.monotonic() + 180
        while not finished_shards(place.files(str(output))):
            assert command.code is None, command
            assert time.monotonic() < last, "no shard is finished"
            time.sleep(0.02)
        server.process.send_signal(signal.SIGKILL)
        assert "job server" in line_of(command.end())
        assert 0 < len(finished_shards(place.files(str(output)))) < 6
        bucket.latency_s = 0.0
        goes_on = Command(job, tmp_path, slow).end()
        assert goes_on.code == 0, goes_on
        assert "which has " in goes_on.out
