"""Jobs on s3://, whose server misbehaves: what passes is not seen in the result, and what stays is never silent."""

from collections.abc import Callable
from functools import partial

import pytest

from recordmill.transforms.storage.fsspec_storage import FsspecStorage
from tests.engines.buckets.jobs import ALWAYS, check_all_accounted, files_of, is_one_line, objects_of, shards_of, shown
from tests.engines.buckets.jobs import zipped as zip_of
from tests.faults.jobs import convert_folder_and_zip
from tests.faults.test_gcs_faults import OTHER_CONTAINERS, STATE, converted_locally, expected, noise, some
from tests.gcs_stand_in import BUCKET, Fault, Kind
from tests.s3_stand_in import S3StandIn, emptied, running

__all__ = ["expected", "noise"]  # fixtures

ROOT = f"s3://{BUCKET}"
OUT = f"{ROOT}/out"


@pytest.fixture(scope="module")
def server():
    with running() as stand_in:
        yield stand_in


@pytest.fixture
def s3(server, noise, monkeypatch) -> S3StandIn:
    """The images and instances in a bucket."""
    s3 = emptied(server, monkeypatch)
    for name, data in files_of(noise / "even").items():
        s3.put(f"even/{name}", data)
    s3.put("odd.zip", zip_of(files_of(noise / "odd")))
    s3.put("instances.json", (noise / "instances.json").read_bytes())
    return s3


@pytest.fixture
def job(recordmill) -> Callable:
    return partial(convert_folder_and_zip, recordmill, ROOT, OUT)


def check_ended(s3: S3StandIn, expected: dict[str, bytes]) -> None:
    s3.faults = []
    assert shards_of(objects_of(s3, "out")) == expected
    check_all_accounted(shown(s3))
    assert [name for name in objects_of(s3, "out") if name.startswith(".recordmill")] == []


def test_first_line_names_missing_checks(s3, expected, job, recordmill):
    outcome = job()
    assert outcome.code == 0, outcome
    first = " ".join(outcome.err.split()).removeprefix("note: ")
    assert first.startswith(f"s3:// {FsspecStorage.caveat}")
    check_ended(s3, expected)
    assert recordmill("verify", OUT, "--check", "decode").code == 0


def test_passing_fault_changes_nothing(s3, monkeypatch, expected, job):
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")  # what is not set in use
    s3.faults = [some(Kind.TRUNCATED, operation="read"), some(Kind.STATUS)]
    outcome = job("--max-rejects", 0)
    assert outcome.code == 0, outcome
    assert all(fault._matched for fault in s3.faults)
    check_ended(s3, expected)


@pytest.mark.parametrize(
    ("operation", "name", "status", "code"),
    [
        ("read", "even/8.jpg", 503, 1),
        ("read", "odd.zip", 403, 2),
        ("upload", "out/manifest.json", 403, 1),
        ("complete", f"out/{STATE}/*-00001-of-00002", 403, 1),
    ],
)
def test_staying_fault_ends_in_one_line(s3, expected, job, operation, name, status, code):
    s3.faults = [Fault(Kind.STATUS, operation, name, status=status, message="not here", times=ALWAYS)]
    outcome = job()
    assert outcome.code == code, outcome
    line = outcome.err.splitlines()[-1] + "\n"
    assert is_one_line(line)
    assert [word for word in (f"{ROOT}/", "not here") if word not in line] == []
    assert "manifest.json" not in objects_of(s3, "out")
    s3.faults = []
    assert job().code == 0
    check_ended(s3, expected)


@pytest.mark.parametrize("container", OTHER_CONTAINERS)
def test_faults_of_container(s3, monkeypatch, noise, tmp_path, job, container):
    """A staying fault ends in one line, and the same command continues in spite of passing faults."""
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")  # what is not set in use; both jobs have one client
    expected = converted_locally(noise, tmp_path, "--container", container)
    s3.faults = [Fault(Kind.STATUS, "complete", f"out/{STATE}/coco-train*1*", status=403, times=ALWAYS)]
    outcome = job("--container", container)
    assert (outcome.code, is_one_line(outcome.err.splitlines()[-1] + "\n")) == (1, True), outcome
    assert "manifest.json" not in objects_of(s3, "out")
    s3.faults = [some(Kind.TRUNCATED, operation="read"), some(Kind.STATUS)]
    assert job("--max-rejects", 0, "--container", container).code == 0
    check_ended(s3, expected)
