"""Faults of a job on an engine: one line names the fault soon, and the exit code is 1 or 2."""

import re
import signal

import pytest

from tests.conftest import coco_flags
from tests.engines import servers
from tests.engines.command import Command
from tests.engines.conftest import of_job_server
from tests.engines.flink import LOCAL, running_job_server

LOOPBACK = "--environment_type=LOOPBACK"


def line_of(command: Command) -> str:
    """The one line on standard error."""
    assert command.code == 1, command
    assert re.fullmatch(r"recordmill: .+\n", command.err), command
    return command.err


def without_progress(arguments: list[str]) -> list[str]:
    return [*arguments, "--progress", "none"]


def test_no_worker_at_endpoint(sample, flink_local, tmp_path):
    arguments = without_progress(coco_flags(sample, tmp_path / "out"))
    with servers.port_without_server() as port:
        beam = [*flink_local[:2], "--environment_type=EXTERNAL", f"--environment_config=localhost:{port}"]
        assert "Connection refused" in line_of(Command([*arguments, "--", *beam], tmp_path).end())


@pytest.mark.parametrize("engine_name", ["flink_local", "prism"])
def test_error_of_ours_is_named_unchanged(engine_name, sample, tmp_path, request):
    arguments = ["convert", "--images", sample.images, "--instances", sample.instances, "--output", tmp_path / "out"]
    engine = request.getfixturevalue(engine_name)
    told = line_of(Command([*without_progress(arguments), "--", *engine], tmp_path).end())
    assert told.startswith("recordmill: 1 of 24 images (4.2%) are rejected, more than --max-rejects 0.01 allows: ")


def test_good_job_says_nothing_on_standard_error(sample, prism, flink_local, tmp_path):
    for number, engine in enumerate((prism, flink_local)):
        arguments = without_progress(coco_flags(sample, tmp_path / str(number)))
        command = Command([*arguments, "--", *engine], tmp_path).end()
        assert (command.code, command.err) == (0, ""), command


def test_job_server_dies_in_middle(disturbed_job, job_server_jar, tmp_path):
    """And finished shards are kept, so that the next run goes on from there."""
    with running_job_server(job_server_jar, LOCAL, tmp_path) as server:
        job = disturbed_job([*of_job_server(server), LOOPBACK], tmp_path)
        command = job.run(lambda command: server.process.send_signal(signal.SIGKILL))
    assert "job server" in line_of(command)
    assert "which has " in job.goes_on(on_engine=False).out
