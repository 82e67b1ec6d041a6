"""Tests for FsspecStorage, on s3://."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage import resolve
from recordmill.transforms.storage.resolve import storage_for
from tests.gcs_stand_in import BUCKET, Fault, Kind
from tests.s3_stand_in import S3StandIn, emptied, running

ROOT = f"s3://{BUCKET}"


@pytest.fixture(scope="module")
def server():
    with running() as stand_in:
        yield stand_in


@pytest.fixture
def s3(server, monkeypatch) -> S3StandIn:
    return emptied(server, monkeypatch)


STORAGE = storage_for(ROOT)


def test_folder_marker_is_no_file(s3):
    s3.put("in/a", b"data")
    s3.put("in/marker/", b"")
    assert [file.name for file in STORAGE.walk(f"{ROOT}/in")] == STORAGE.names(f"{ROOT}/in") == ["a"]
    STORAGE.delete_folder(f"{ROOT}/in")
    assert set(s3.objects()) == {"in/marker/"}


def test_a_checksum(s3):
    s3.put("a.txt", b"0123456789")
    assert STORAGE.checksum(f"{ROOT}/a.txt") == (10, "KAwGng==")
    assert STORAGE.stat(f"{ROOT}/a.txt/") is None


PARTS = [b"a" * 40_000_000, b"b" * 40_000_000]
"""Pieces that are uploaded as more than one part."""


@pytest.mark.parametrize("pieces", [[b"small"], PARTS])
@pytest.mark.parametrize("is_collected", [True, False])
def test_upload_dropped_leaves_nothing(s3, pieces, is_collected):
    upload = STORAGE.create(f"{ROOT}/a")
    for piece in pieces:
        upload.write(piece)
    if is_collected:
        del upload
        gc.collect()
    else:
        upload.abandon()
    assert (s3.objects(), s3.unfinished()) == ({}, [])


# What goes wrong


def test_a_bucket_that_there_is_not(s3):
    with pytest.raises(FileNotFoundError, match="bucket does not exist"):
        STORAGE.write("s3://there-is-none/a", b"")


def operations() -> dict:
    """By the request that they make."""
    return {
        "read": lambda: STORAGE.read(f"{ROOT}/a", most_bytes=100),
        "stat": lambda: STORAGE.stat(f"{ROOT}/a").size_bytes,
        "list": lambda: [file.name for file in STORAGE.walk(ROOT)],
        "upload": lambda: STORAGE.write(f"{ROOT}/b", b"new"),
        "copy": lambda: STORAGE.move(f"{ROOT}/a", f"{ROOT}/c"),
        "delete": lambda: STORAGE.delete(f"{ROOT}/a"),
        "complete": lambda: commit(f"{ROOT}/b"),
    }


def commit(path: str) -> None:
    upload = STORAGE.create(path)
    upload.write(b"new")
    upload.commit()


@pytest.mark.parametrize("operation", operations())
def test_refused(s3, operation):
    s3.put("a", b"data")
    s3.faults = [Fault(Kind.STATUS, operation, status=403, message="not here", times=1000)]
    with pytest.raises(PermissionError, match="AWS_PROFILE") as caught:
        operations()[operation]()
    assert caught.value.filename.startswith(ROOT)
    assert s3.objects() == {"a": b"data"}


PASSING = [
    *((operation, Kind.STATUS) for operation in operations()),
    *((operation, Kind.RESET) for operation in operations()),
    *((operation, Kind.TRUNCATED) for operation in ("read", "list")),
]


@pytest.mark.parametrize(("operation", "kind"), PASSING)
def test_passing_fault_changes_nothing(s3, operation, kind):
    s3.put("a", b"data")
    expected = operations()[operation]()
    left = s3.objects()
    s3.reset()
    s3.put("a", b"data")
    s3.faults = [Fault(kind, operation, times=1)]
    assert operations()[operation]() == expected
    assert s3.objects() == left
    assert s3.faults[0]._matched >= 1


@pytest.mark.parametrize("kind", [Kind.STATUS, Kind.TRUNCATED])
def test_staying_fault_names_file(s3, kind):
    s3.put("a", b"data")
    s3.faults = [Fault(kind, "read", times=1000)]
    with pytest.raises(OSError, match=f"s3://{BUCKET}/a") as caught:
        STORAGE.read(f"{ROOT}/a", most_bytes=100)
    assert not isinstance(caught.value, FileNotFoundError)


def test_threads_share_one_client(s3):
    s3.put("a", b"data")
    before = s3.open_connections
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda _: STORAGE.read(f"{ROOT}/a", most_bytes=9), range(200))) == {b"data"}
    time.sleep(0.1)
    assert s3.open_connections - before <= 16


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr(resolve, "find_spec", lambda name: None)
    resolve._require.cache_clear()
    with pytest.raises(ConfigError, match=r's3:// needs the extra fsspec. Run: pip install "recordmill\[fsspec\]"'):
        storage_for("s3://bucket/a")
    resolve._require.cache_clear()
