import gc
import os
import threading
import time
from collections.abc import Callable

import pytest

from recordmill.transforms.storage import gcs_client, gcs_upload
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.interface import Storage, UnreadableFileError
from tests.gcs_stand_in import Fault, Kind
from tests.transforms.storage.conftest import path_of

STORAGE: Storage = GcsStorage()
ALWAYS = float("inf")
MB = 1024 * 1024
BYTES = bytes(range(256)) * 400

SIZES = [0, 8 * MB, 8 * MB + 1, 17 * MB]


@pytest.mark.parametrize("size", SIZES)
def test_writing(gcs, size):
    data = os.urandom(size)
    STORAGE.write(path_of("new/a"), data)
    assert gcs.objects() == {"new/a": data}
    chunks = -(-size // gcs_upload.CHUNK_BYTES)
    assert [call.operation for call in gcs.log] == (["start", *["chunk"] * chunks] if size > 8 * MB else ["upload"])


@pytest.mark.parametrize("size", [10, 3 * MB])
def test_a_file_of_many_writes_appears_whole_at_commit(gcs, size):
    upload = STORAGE.create(path_of("f/a"))
    for _ in range(3):
        upload.write(b"x" * size)
    assert gcs.log == []
    upload.commit(path_of("f/b"))
    assert gcs.objects() == {"f/b": b"x" * size * 3}
    upload.abandon()
    assert gcs.objects() == {"f/b": b"x" * size * 3}


def test_an_upload_that_is_abandoned_or_forgotten_leaves_nothing(gcs):
    for forget in (False, True):
        upload = STORAGE.create(path_of("a"))
        upload.write(b"x" * 9 * MB)
        if not forget:
            upload.abandon()
        del upload
        gc.collect()
    with pytest.raises(ZeroDivisionError):
        STORAGE.create(path_of("a")).write(b"%d" % (1 // 0))
    assert gcs.log == []


def test_an_upload_that_failed_can_be_committed_again(gcs):
    upload = STORAGE.create(path_of("a"))
    upload.write(BYTES)
    gcs.faults.append(Fault(Kind.STATUS, "upload", status=403))
    with pytest.raises(PermissionError):
        upload.commit()
    upload.commit()
    assert gcs.objects() == {"a": BYTES}


@pytest.mark.parametrize(("status", "first"), [(404, 1), (410, 2)])
def test_an_upload_whose_session_is_lost_is_begun_anew(gcs, monkeypatch, status, first):
    monkeypatch.setattr(gcs_upload, "CHUNK_BYTES", 4 * MB)
    data = os.urandom(9 * MB)
    gcs.faults.append(Fault(Kind.STATUS, "chunk", first=first, status=status, message="the session is gone"))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 2


@pytest.mark.parametrize(("kind", "sessions"), [(Kind.PARTIAL, 2), (Kind.LOST, 1)])
def test_an_upload_of_which_the_server_keeps_a_part_is_begun_anew_but_not_one_whose_answer_is_lost(gcs, kind, sessions):
    data = os.urandom(9 * MB)
    gcs.faults.append(Fault(kind, "chunk"))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == sessions


def test_an_upload_whose_sessions_are_all_lost_is_an_error(gcs):
    gcs.faults.append(Fault(Kind.STATUS, "chunk", times=ALWAYS, status=410, message="the session is gone"))
    with pytest.raises(OSError, match="the session is gone") as caught:
        STORAGE.write(path_of("a"), b"x" * 9 * MB)
    assert caught.value.filename == path_of("a")
    assert len(gcs.calls("start")) == gcs_client.TRIES
    assert gcs.objects() == {}


@pytest.mark.parametrize("size", [1000, 9 * MB])
def test_bytes_that_arrive_damaged_are_sent_again(gcs, size):
    data = os.urandom(size)
    gcs.faults.append(Fault(Kind.CORRUPTED, "chunk" if size > MB else "upload"))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}


@pytest.mark.parametrize("size", [1000, 9 * MB])
def test_bytes_that_always_arrive_damaged_are_not_left_there(gcs, size):
    gcs.faults += [Fault(Kind.CORRUPTED, operation, times=ALWAYS) for operation in ("upload", "chunk")]
    with pytest.raises(OSError, match="checksum") as caught:
        STORAGE.write(path_of("a"), os.urandom(size))
    assert not isinstance(caught.value, UnreadableFileError)
    assert gcs.objects() == {}


def test_what_another_run_has_written_in_place_of_damaged_bytes_is_let_be(gcs):
    gcs.faults = [
        Fault(Kind.CORRUPTED, "upload", times=ALWAYS),
        Fault(Kind.REPLACED, "delete", first=gcs_client.TRIES, data=b"of another run"),
    ]
    with pytest.raises(OSError, match="checksum"):
        STORAGE.write(path_of("a"), BYTES)
    assert gcs.objects() == {"a": b"of another run"}


def test_a_checksum_that_the_server_refuses_is_tried_anew(gcs):
    message = 'Provided CRC32C "AAAAAA==" doesn\'t match calculated CRC32C "BBBBBB==".'
    gcs.faults.append(Fault(Kind.STATUS, "upload", status=400, message=message))
    STORAGE.write(path_of("a"), BYTES)
    assert gcs.objects() == {"a": BYTES}


# While it is being written


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(gcs_upload, "CHUNK_BYTES", MB)


def begun(gcs, path: str, data: bytes, chunks: int):
    """An upload of which so many chunks have come."""
    upload = STORAGE.create(path)
    for start in range(0, len(data), MB // 4):
        upload.write(data[start : start + MB // 4])
    wait_until(lambda: len(gcs.calls("chunk")) >= chunks)
    return upload


def wait_until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def uploads() -> int:
    return sum(thread.name == "upload" for thread in threading.enumerate())


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("size", [3 * MB, 3 * MB + 1, 4 * MB - 1])
def test_a_large_file_is_sent_while_it_is_written(gcs, size):
    data = os.urandom(size)
    upload = begun(gcs, path_of("a"), data, 3)
    assert gcs.objects() == {}
    upload.commit()
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 1
    wait_until(lambda: not uploads())


@pytest.mark.usefixtures("small_chunks")
def test_its_last_name_may_be_known_at_its_end(gcs):
    data = os.urandom(3 * MB)
    begun(gcs, path_of("f/0"), data, 1).commit(path_of("f/12"))
    assert gcs.objects() == {"f/12": data}


@pytest.mark.usefixtures("small_chunks")
def test_what_is_being_sent_and_is_abandoned_or_forgotten_leaves_nothing(gcs):
    abandoned, forgotten = (begun(gcs, path_of(name), os.urandom(3 * MB + 1), 3) for name in "ab")
    abandoned.abandon()
    wait_until(lambda: uploads() == 1)
    del forgotten
    gc.collect()
    wait_until(lambda: not uploads())
    assert len(gcs.calls("start")) == 2
    assert gcs.objects() == {}


@pytest.mark.usefixtures("small_chunks")
def test_a_session_that_is_lost_while_a_file_is_written_is_begun_anew(gcs):
    data = os.urandom(4 * MB + 1)
    gcs.faults.append(Fault(Kind.STATUS, "chunk", first=2, status=410, message="the session is gone"))
    begun(gcs, path_of("a"), data, 4).commit()
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 2


@pytest.mark.usefixtures("small_chunks")
def test_what_cannot_be_sent_is_told_while_it_is_written(gcs):
    gcs.faults.append(Fault(Kind.STATUS, "start", status=403, message="may not"))
    upload = STORAGE.create(path_of("a"))
    upload.write(b"x" * 2 * MB)
    wait_until(lambda: not uploads())
    with pytest.raises(PermissionError, match="may not") as caught:
        upload.write(b"x")
    assert caught.value.filename == path_of("a")
    with pytest.raises(PermissionError):
        upload.commit()


@pytest.mark.usefixtures("small_chunks")
def test_bytes_that_arrive_damaged_while_a_file_is_written_are_sent_again(gcs):
    data = os.urandom(3 * MB)
    gcs.faults.append(Fault(Kind.CORRUPTED, "chunk", first=4))
    begun(gcs, path_of("a"), data, 3).commit()
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 2
