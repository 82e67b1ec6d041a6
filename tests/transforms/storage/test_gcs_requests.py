import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from google.auth.credentials import AnonymousCredentials

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage import gcs_client, gcs_requests
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.interface import FileTooLargeError, Storage, UnreadableFileError
from tests.gcs_stand_in import Call, Fault, Kind
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
    chunks = 1 + size // gcs_requests.CHUNK_BYTES  # the last tells that there are no more
    assert [call.operation for call in gcs.log] == ["start", *["chunk"] * chunks]


def test_upload_abandoned_or_forgotten_leaves_nothing(gcs):
    for forget in (False, True):
        upload = STORAGE.create(path_of("a"))
        upload.write(b"x" * 7 * MB)
        if not forget:
            upload.abandon()
        del upload
        gc.collect()
    with pytest.raises(ZeroDivisionError):
        STORAGE.create(path_of("a")).write(b"%d" % (1 // 0))
    assert gcs.log == []


def test_upload_that_failed_can_be_committed_again(gcs):
    upload = STORAGE.create(path_of("a"))
    upload.write(BYTES)
    gcs.faults.append(Fault(Kind.STATUS, "chunk", status=403))
    with pytest.raises(PermissionError):
        upload.commit()
    upload.commit()
    assert gcs.objects() == {"a": BYTES}


@pytest.mark.parametrize(("status", "first"), [(404, 1), (410, 2)])
def test_lost_upload_session_is_restarted(gcs, monkeypatch, status, first):
    monkeypatch.setattr(gcs_requests, "CHUNK_BYTES", 4 * MB)
    data = os.urandom(9 * MB)
    gcs.faults.append(Fault(Kind.STATUS, "chunk", first=first, status=status, message="the session is gone"))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 2


@pytest.mark.parametrize(("kind", "sessions"), [(Kind.PARTIAL, 2), (Kind.LOST, 1)])
def test_partial_upload_is_restarted(gcs, kind, sessions):
    data = os.urandom(9 * MB)
    gcs.faults.append(Fault(kind, "chunk"))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == sessions


def test_upload_whose_sessions_are_all_lost_is_error(gcs):
    gcs.faults.append(Fault(Kind.STATUS, "chunk", times=ALWAYS, status=410, message="the session is gone"))
    with pytest.raises(OSError, match="the session is gone") as caught:
        STORAGE.write(path_of("a"), b"x" * 9 * MB)
    assert caught.value.filename == path_of("a")
    assert len(gcs.calls("start")) == gcs_client.TRIES
    assert gcs.objects() == {}


def is_last(call: Call) -> bool:
    return not call.range.endswith("/*")


@pytest.mark.parametrize("size", [1000, 9 * MB])
def test_bytes_that_arrive_damaged_are_sent_again(gcs, size):
    data = os.urandom(size)
    gcs.faults.append(Fault(Kind.CORRUPTED, "chunk", when=is_last))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}


@pytest.mark.parametrize("size", [1000, 9 * MB])
def test_bytes_that_always_arrive_damaged_are_not_left_there(gcs, size):
    gcs.faults.append(Fault(Kind.CORRUPTED, "chunk", times=ALWAYS))
    with pytest.raises(OSError, match="checksum") as caught:
        STORAGE.write(path_of("a"), os.urandom(size))
    assert not isinstance(caught.value, UnreadableFileError)
    assert gcs.objects() == {}


def test_file_of_another_run_stays_after_damage(gcs):
    gcs.faults = [
        Fault(Kind.CORRUPTED, "chunk", times=ALWAYS),
        Fault(Kind.REPLACED, "delete", first=gcs_client.TRIES, data=b"of another run"),
    ]
    with pytest.raises(OSError, match="checksum"):
        STORAGE.write(path_of("a"), BYTES)
    assert gcs.objects() == {"a": b"of another run"}


def test_refused_checksum_is_retried(gcs):
    message = 'Provided CRC32C "AAAAAA==" doesn\'t match calculated CRC32C "BBBBBB==".'
    gcs.faults.append(Fault(Kind.STATUS, "chunk", status=400, message=message))
    STORAGE.write(path_of("a"), BYTES)
    assert gcs.objects() == {"a": BYTES}


# While it is being written


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(gcs_requests, "CHUNK_BYTES", MB)


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
def test_large_file_is_sent_while_it_is_written(gcs, size):
    data = os.urandom(size)
    upload = begun(gcs, path_of("a"), data, 2)
    assert gcs.objects() == {}
    upload.commit()
    upload.abandon()
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 1
    wait_until(lambda: not uploads())


@pytest.mark.usefixtures("small_chunks")
def test_its_last_name_may_be_known_at_its_end(gcs):
    data = os.urandom(3 * MB)
    begun(gcs, path_of("f/0"), data, 1).commit(path_of("f/12"))
    assert gcs.objects() == {"f/12": data}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("is_cancelled", [True, False])
@pytest.mark.parametrize("is_abandoned", [True, False])
def test_abandoned_upload_leaves_nothing(gcs, is_abandoned, is_cancelled):
    """Also if the server is not told, as Google's BlobWriter ends what was sent where it is collected."""
    if not is_cancelled:
        gcs.faults.append(Fault(Kind.RESET, "cancel", times=ALWAYS))
    upload = begun(gcs, path_of("a"), os.urandom(3 * MB + 1), 2)
    upload.itself = upload
    if is_abandoned:
        upload.abandon()
    del upload
    gc.collect()
    wait_until(lambda: not uploads())
    gc.collect()
    assert gcs.objects() == {}
    assert len(gcs.calls("cancel")) >= 1


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    "fault",
    [
        Fault(Kind.STATUS, "chunk", first=2, status=410, message="the session is gone"),
        Fault(Kind.CORRUPTED, "chunk", when=is_last),
    ],
)
def test_lost_or_damaged_upload_is_error(gcs, fault):
    """Sent bytes are not kept, so they cannot be sent again."""
    gcs.faults.append(fault)
    upload = begun(gcs, path_of("a"), os.urandom(4 * MB + 1), 2)
    with pytest.raises(OSError, match=r"checksum|the session is gone") as caught:
        upload.commit()
    upload.abandon()
    wait_until(lambda: not uploads())
    assert caught.value.filename == path_of("a")
    assert gcs.objects() == {}


@pytest.mark.usefixtures("small_chunks")
def test_failing_upload_is_named_during_write(gcs):
    """Who writes does not wait for room."""
    gcs.faults.append(Fault(Kind.STATUS, "start", status=403, message="may not"))
    upload = STORAGE.create(path_of("a"))
    with pytest.raises(PermissionError, match="may not") as caught:
        deque(map(upload.write, [b"x" * MB] * 1000), 0)
    assert caught.value.filename == path_of("a")
    with pytest.raises(PermissionError):
        upload.commit()
    upload.abandon()
    wait_until(lambda: not uploads())
    assert gcs.objects() == {}


class _Token(AnonymousCredentials):
    """A token that is refused until it is refreshed."""

    def __init__(self):
        super().__init__()
        self.fetched = 0
        self.asked: list[tuple[str, str, str]] = []

    def before_request(self, request, method, url, headers):
        self.asked.append((method, url, headers["Accept-Encoding"]))
        headers["Authorization"] = f"Bearer {self.fetched}"

    def refresh(self, request):
        self.fetched += 1


@pytest.mark.parametrize(("refused", "is_had"), [(1, True), (2, True), (3, False)])
def test_refused_credentials_are_refreshed_twice_at_most(gcs, monkeypatch, refused, is_had):
    gcs.put("a", b"bytes")
    token = _Token()
    monkeypatch.setattr(gcs_client.connection()[0], "credentials", token)
    gcs.faults.append(Fault(Kind.STATUS, "read", times=refused, status=401))
    if is_had:
        assert STORAGE.read(path_of("a")) == b"bytes"
    else:
        with pytest.raises(ConfigError, match="the credentials were rejected"):
            STORAGE.read(path_of("a"))
    assert token.fetched == min(refused, 2)
    # Without gzip the server would unpack what is stored so, and the checksum would not be of what comes.
    assert set(token.asked) == {("GET", f"{gcs.url}/download/storage/v1/b/bucket/o/a?alt=media", "gzip")}


def test_proxy_of_environment_is_asked(gcs, monkeypatch):
    gcs.put("a", b"bytes")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://storage.invalid")
    monkeypatch.setenv("HTTP_PROXY", gcs.url)
    assert STORAGE.read(path_of("a")) == b"bytes"
    assert [file.name for file in STORAGE.walk(path_of(""))] == ["a"]


@pytest.mark.parametrize(("most_bytes", "is_read"), [(4, False), (5, True), (None, True)])
def test_object_of_unknown_length_is_bounded(monkeypatch, most_bytes, is_read):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"bytes")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_address[1]}")
        if is_read:
            assert STORAGE.read(path_of("a"), most_bytes=most_bytes) == b"bytes"
        else:
            with pytest.raises(FileTooLargeError):
                STORAGE.read(path_of("a"), most_bytes=most_bytes)
        server.shutdown()
