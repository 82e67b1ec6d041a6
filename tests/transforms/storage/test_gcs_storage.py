"""Google Cloud Storage behind the storage interface, against the stand-in."""

import gc
import gzip
import io
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage import gcs_client, gcs_storage
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.interface import Storage, StoredFile, UnreadableFileError
from tests.gcs_stand_in import ACCOUNT, BUCKET, REQUESTER_PAYS, Fault, Kind, running

STORAGE: Storage = GcsStorage()
GCS = GcsStorage()
ALWAYS = float("inf")
MB = 1024 * 1024
BYTES = bytes(range(256)) * 400
ODD_NAMES = [
    "a b.jpg",
    "a#b",
    "a?b=c&d",
    "%41",
    "a+b",
    "ü/é/日本 🐈.png",
    "//a",
    "a/../b",
    "a\tb",
]


@pytest.fixture(scope="module")
def server():
    with running() as stand_in:
        yield stand_in


@pytest.fixture
def gcs(server, monkeypatch):
    """A stand-in without objects, asked by clients without patience."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setattr(gcs_client, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(gcs_client, "LONGEST_WAIT_S", 0.02)
    server.reset()
    return server


def path_of(name: str) -> str:
    return f"gs://{BUCKET}/{name}"


# Paths


@pytest.mark.parametrize("name", ODD_NAMES)
def test_no_character_of_a_name_is_special(gcs, name):
    path = STORAGE.join(path_of("folder"), name)
    STORAGE.write(path, BYTES)
    assert gcs.objects() == {f"folder/{name}": BYTES}
    assert STORAGE.read(path) == BYTES
    assert STORAGE.size(path) == len(BYTES)
    assert STORAGE.open(path).read() == BYTES
    (file,) = STORAGE.walk(path_of("folder"))
    assert (file.name, file.path) == (name, path)
    upload = STORAGE.create(path)
    upload.write(b"new")
    upload.commit()
    assert gcs.objects() == {f"folder/{name}": b"new"}
    STORAGE.delete(path)
    assert gcs.objects() == {}


@pytest.mark.parametrize("name", ["ü" * 513, "a\nb", "a\rb", ".", "..", "\ud800"])
def test_a_name_that_no_object_can_have_is_one_that_is_missing(gcs, name):
    with pytest.raises(FileNotFoundError, match="no object can have such a name") as caught:
        STORAGE.read(path_of(name))
    assert caught.value.filename == path_of(name)
    assert STORAGE.size(path_of(name)) is None
    with pytest.raises(FileNotFoundError):
        STORAGE.write(path_of(name), b"")
    with pytest.raises(FileNotFoundError):
        STORAGE.create(path_of(name))
    assert gcs.log == []


@pytest.mark.parametrize("path", [f"gs://{BUCKET}", f"gs://{BUCKET}/"])
def test_a_bucket_is_no_object(gcs, path):
    for act in (STORAGE.read, STORAGE.open, STORAGE.create, STORAGE.delete, lambda path: STORAGE.write(path, b"")):
        with pytest.raises(ConfigError, match="is a bucket, where an object is needed"):
            act(path)
    assert STORAGE.size(path) is None


@pytest.mark.parametrize("path", ["gs://", "gs://Bucket/a", "a/b"])
def test_what_is_no_path_of_a_bucket(gcs, path):
    with pytest.raises(ConfigError, match="is no path of Google Cloud Storage"):
        STORAGE.read(path)


@pytest.mark.parametrize("folder", ["gs://b/a", "gs://b/a/", "gs://b"])
def test_join(folder):
    assert STORAGE.join(folder, "x/y") == folder.rstrip("/") + "/x/y"


# Reading


def test_reading_is_one_request(gcs):
    gcs.put("a", BYTES)
    assert STORAGE.read(path_of("a")) == BYTES
    assert [call.operation for call in gcs.log] == ["read"]


def test_an_empty_object(gcs):
    gcs.put("a", b"")
    assert STORAGE.read(path_of("a")) == b""
    assert STORAGE.open(path_of("a")).read() == b""
    assert GCS.read_range(path_of("a"), 0, 10) == b""


def test_an_object_without_md5_is_checked_too(gcs):
    gcs.put("a", BYTES, componentCount=2)
    assert STORAGE.read(path_of("a")) == BYTES
    gcs.faults.append(Fault(Kind.CORRUPTED, "read"))
    assert STORAGE.read(path_of("a")) == BYTES
    assert len(gcs.calls("read")) == 3


def test_threads_share_one_client_and_its_connections(gcs):
    paths = [path_of(str(number)) for number in range(32)]
    for number in range(32):
        gcs.put(str(number), b"%d" % number)
    gcs.connections = 0
    gcs.latency_s = 0.2
    with ThreadPoolExecutor(32) as pool:
        for _ in range(4):  # between which all connections are idle at once
            assert list(pool.map(STORAGE.read, paths)) == [b"%d" % number for number in range(32)]
    assert 16 < max(call.in_flight for call in gcs.log) <= 32
    assert gcs.connections <= 32
    assert len(gcs.log) == 128


def test_a_missing_object(gcs):
    for act in (STORAGE.read, STORAGE.open, lambda path: GCS.read_range(path, 0, 5)):
        with pytest.raises(FileNotFoundError, match="no such object") as caught:
            act(path_of("gone"))
        assert caught.value.filename == path_of("gone")
    assert STORAGE.size(path_of("gone")) is None
    assert [call.status for call in gcs.log] == [404] * 4


def test_a_version_is_read_or_nothing(gcs):
    gcs.put("a", BYTES)
    (file,) = STORAGE.walk(path_of(""))
    assert GCS.read(file.path, file.version) == BYTES
    assert GCS.read_range(file.path, 1, 2, file.version) == BYTES[1:3]
    gcs.put("a", b"new")
    for act in (GCS.read, lambda path, version: GCS.read_range(path, 0, 1, version)):
        with pytest.raises(FileNotFoundError, match=f"gone or was replaced since it was listed .* {file.version}"):
            act(file.path, file.version)
    assert STORAGE.read(file.path) == b"new"


def test_what_is_stored_with_gzip_encoding_comes_decompressed(gcs):
    gcs.put("a", gzip.compress(BYTES), contentEncoding="gzip")
    assert STORAGE.read(path_of("a")) == BYTES
    assert STORAGE.open(path_of("a")).read() == BYTES
    assert GCS.read_range(path_of("a"), 0, 2) == b"\x1f\x8b"
    gcs.faults.append(Fault(Kind.TRUNCATED, "read"))
    assert STORAGE.read(path_of("a")) == BYTES


def test_ranges(gcs):
    gcs.put("a", BYTES)
    assert GCS.read_range(path_of("a"), 5, 10) == BYTES[5:15]
    assert GCS.read_range(path_of("a"), len(BYTES) - 3, 10) == BYTES[-3:]
    assert GCS.read_range(path_of("a"), len(BYTES), 10) == b""
    assert GCS.read_range(path_of("a"), 0, 0) == b""
    assert [call.range for call in gcs.log] == ["bytes=5-14", "bytes=102397-102406", "bytes=102400-102409"]


# Streams


def test_a_stream_reads_ranges_of_one_generation(gcs, monkeypatch):
    monkeypatch.setattr(gcs_storage, "RANGE_BYTES", 40_000)
    generation = gcs.put("a", BYTES).generation
    with STORAGE.open(path_of("a")) as stream:
        assert stream.read(10) + stream.read(30_000) + stream.read() == BYTES
        assert stream.read(1) == b""
    assert [call.range for call in gcs.calls("read")] == ["bytes=0-39999", "bytes=40000-79999", "bytes=80000-102399"]
    assert {call.query["generation"] for call in gcs.calls("read")} == {str(generation)}


def test_a_stream_is_seekable(gcs):
    gcs.put("a", BYTES)
    expected = io.BytesIO(BYTES)
    with STORAGE.open(path_of("a")) as stream:
        for place, whence in ((-10, io.SEEK_END), (5, io.SEEK_SET), (100, io.SEEK_CUR), (10**6, io.SEEK_SET)):
            assert stream.seek(place, whence) == expected.seek(place, whence)
            assert stream.read(20) == expected.read(20)
            assert stream.tell() == expected.tell()
        with pytest.raises(OSError, match="before the file's start"):
            stream.seek(-(10**7), io.SEEK_END)


def test_an_archive_is_read_in_place(gcs):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for number in range(40):
            file.writestr(f"{number}", os.urandom(MB // 4))
        file.writestr("last", BYTES)
    gcs.put("a.zip", archive.getvalue())
    with zipfile.ZipFile(STORAGE.open(path_of("a.zip"))) as file:
        assert file.read("last") == BYTES
    assert len(gcs.calls("read")) <= 4


@pytest.mark.parametrize("replaced", [True, False])
def test_an_object_that_changes_while_it_is_read_is_an_error(gcs, monkeypatch, replaced):
    monkeypatch.setattr(gcs_storage, "RANGE_BYTES", 40_000)
    gcs.put("a", BYTES)
    stream = STORAGE.open(path_of("a"))
    assert stream.read(10) == BYTES[:10]
    if replaced:
        gcs.put("a", BYTES)
    else:
        STORAGE.delete(path_of("a"))
    with pytest.raises(FileNotFoundError, match="gone or was replaced"):
        stream.read()


def test_a_range_that_is_too_short_is_an_error(gcs, monkeypatch):
    gcs.put("a", BYTES)
    stream = STORAGE.open(path_of("a"))
    monkeypatch.setattr(GcsStorage, "read_range", lambda *arguments: b"short")
    with pytest.raises(OSError, match="5 bytes came where there are 102400"):
        stream.read(3)


def test_streams_of_lines(gcs):
    gcs.put("a", b"one\ntwo\n")
    assert list(STORAGE.open(path_of("a"))) == [b"one\n", b"two\n"]


# Listing


def test_walk(gcs):
    for name in ("f/a", "f/b/c", "f/b/d/e", "f/.hidden", "f0", "g/a", "f/", "f/empty/"):
        gcs.put(name, name.encode())
    expected = {
        StoredFile(name, path_of(f"f/{name}"), len(name) + 2, str(gcs.generation(f"f/{name}")))
        for name in ("a", "b/c", "b/d/e", ".hidden")
    }
    gcs.page_size = 3
    for folder in ("f", "f/", "f//"):
        assert set(STORAGE.walk(path_of(folder))) == expected
    assert [file.name for file in STORAGE.walk(f"gs://{BUCKET}")] == [
        "f/.hidden",
        "f/a",
        "f/b/c",
        "f/b/d/e",
        "f0",
        "g/a",
    ]
    assert list(STORAGE.walk(path_of("gone"))) == []
    assert {call.query["fields"] for call in gcs.log} == {"items(name,size,generation),nextPageToken"}


def test_names(gcs):
    for name in ("f/b", "f/a", "f/.c", "f/g/d", "f/", "e"):
        gcs.put(name, b"")
    gcs.page_size = 1
    assert STORAGE.names(path_of("f")) == [".c", "a", "b"]
    assert STORAGE.names(path_of("f/")) == [".c", "a", "b"]
    assert STORAGE.names(f"gs://{BUCKET}") == ["e"]
    assert STORAGE.names(path_of("gone")) == []


def test_is_folder_and_size(gcs):
    for name in ("f/g/a", "marked/"):
        gcs.put(name, b"12345")
    for path, is_folder in {"f": True, "f/": True, "f/g": True, "marked": True, "f/g/a": False, "f/x": False}.items():
        gcs.log.clear()
        assert STORAGE.is_folder(path_of(path)) is is_folder
        assert [(call.operation, call.query["maxResults"]) for call in gcs.log] == [("list", "1")]
    assert STORAGE.is_folder(f"gs://{BUCKET}")
    assert [STORAGE.size(path_of(path)) for path in ("f/g/a", "f/g", "marked", "marked/")] == [5, None, None, None]


def test_an_empty_bucket_is_a_folder(gcs):
    assert STORAGE.is_folder(f"gs://{BUCKET}/")
    assert list(STORAGE.walk(f"gs://{BUCKET}/")) == []


# Writing

SIZES = [0, 8 * MB, 8 * MB + 1, 17 * MB]


@pytest.mark.parametrize("size", SIZES)
def test_writing(gcs, size):
    data = os.urandom(size)
    STORAGE.write(path_of("new/a"), data)
    assert gcs.objects() == {"new/a": data}
    chunks = -(-size // gcs_storage.CHUNK_BYTES)
    assert [call.operation for call in gcs.log] == (["start", *["chunk"] * chunks] if size > 8 * MB else ["upload"])


def test_writing_again_replaces(gcs):
    for data in (b"1", b"2"):
        STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": b"2"}


@pytest.mark.parametrize("size", [10, 9 * MB])
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


def test_memory_does_not_grow_with_an_upload(gcs):
    import tracemalloc

    data = b"x" * MB
    upload = STORAGE.create(path_of("a"))
    tracemalloc.start()
    for _ in range(64):
        upload.write(data)
    assert tracemalloc.get_traced_memory()[1] < MB
    tracemalloc.stop()
    upload.abandon()


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
    monkeypatch.setattr(gcs_storage, "CHUNK_BYTES", 4 * MB)
    data = os.urandom(9 * MB)
    gcs.faults.append(Fault(Kind.STATUS, "chunk", first=first, status=status, message="the session is gone"))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 2


def test_an_upload_of_which_the_server_keeps_a_part_is_begun_anew(gcs):
    data = os.urandom(9 * MB)
    gcs.faults.append(Fault(Kind.PARTIAL, "chunk"))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 2


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


def test_a_checksum_that_the_server_refuses_is_tried_anew(gcs):
    message = 'Provided CRC32C "AAAAAA==" doesn\'t match calculated CRC32C "BBBBBB==".'
    gcs.faults.append(Fault(Kind.STATUS, "upload", status=400, message=message))
    STORAGE.write(path_of("a"), BYTES)
    assert gcs.objects() == {"a": BYTES}


def test_a_slow_upload_ends_well(gcs):
    gcs.faults.append(Fault(Kind.SLOW, "upload", seconds=0.1))
    STORAGE.write(path_of("a"), BYTES * 3)
    assert gcs.objects() == {"a": BYTES * 3}


# Deleting


def test_delete(gcs):
    gcs.put("a", b"")
    STORAGE.delete(path_of("a"))
    STORAGE.delete(path_of("a"))
    assert gcs.objects() == {}


def test_delete_folder(gcs):
    for name in ("f/a", "f/b/c", "f/", "f0", "g"):
        gcs.put(name, b"")
    STORAGE.delete_folder(path_of("f"))
    STORAGE.delete_folder(path_of("gone"))
    assert set(gcs.objects()) == {"f0", "g"}
    for path in (f"gs://{BUCKET}", f"gs://{BUCKET}/"):
        with pytest.raises(ConfigError, match="is a whole bucket"):
            STORAGE.delete_folder(path)


def test_what_buckets_have_not(gcs):
    STORAGE.delete_leftovers(path_of("f"))
    assert STORAGE.link(path_of("a"), "b") is False
    assert gcs.log == []


# What goes wrong and passes

PASSING = [
    *(Fault(Kind.STATUS, status=status, times=2) for status in (429, 503)),
    Fault(Kind.RESET, times=2),
    Fault(Kind.LOST, times=2),
    Fault(Kind.TRUNCATED, times=2),
]


def each_method(gcs):
    """A call of each method that asks the server once or more, and what it gives."""
    gcs.put("f/a", BYTES)
    yield "read", lambda: STORAGE.read(path_of("f/a")), BYTES
    yield "read_range", lambda: GCS.read_range(path_of("f/a"), 5, 10), BYTES[5:15]
    yield "open", lambda: STORAGE.open(path_of("f/a")).read(), BYTES
    yield "walk", lambda: [file.name for file in STORAGE.walk(path_of("f"))], ["a"]
    yield "names", lambda: STORAGE.names(path_of("f")), ["a"]
    yield "is_folder", lambda: STORAGE.is_folder(path_of("f")), True
    yield "size", lambda: STORAGE.size(path_of("f/a")), len(BYTES)
    yield "write", lambda: STORAGE.write(path_of("f/b"), BYTES), None
    yield "large", lambda: STORAGE.write(path_of("f/c"), BYTES * 90), None
    yield "delete", lambda: STORAGE.delete(path_of("f/c")), None
    yield "delete_folder", lambda: STORAGE.delete_folder(path_of("f")), None


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{fault.kind.name} {fault.status}")
def test_what_passes_is_survived_by_each_method(gcs, fault):
    for name, call, expected in each_method(gcs):
        gcs.faults = [Fault(fault.kind, times=fault.times, status=fault.status)]
        gcs.log.clear()
        assert call() == expected, name
        has_no_body = name == "delete" and fault.kind is Kind.TRUNCATED
        assert len(gcs.log) >= (1 if has_no_body else 3), name
    assert gcs.objects() == {}


def test_a_lost_answer_of_a_large_upload(gcs):
    data = os.urandom(9 * MB)
    gcs.faults.append(Fault(Kind.LOST, "chunk"))
    STORAGE.write(path_of("a"), data)
    assert gcs.objects() == {"a": data}
    assert len(gcs.calls("start")) == 1


def test_a_server_that_says_nothing_is_asked_again(gcs, monkeypatch):
    monkeypatch.setattr(gcs_client, "TIMEOUT_S", (0.2, 0.2))
    gcs.put("a", BYTES)
    gcs.faults.append(Fault(Kind.STALL, seconds=30))
    began_s = time.monotonic()
    assert STORAGE.read(path_of("a")) == BYTES
    assert time.monotonic() - began_s < 5


def test_after_a_connection_breaks_all_bytes_are_checked(gcs):
    gcs.put("a", BYTES)
    gcs.faults = [Fault(Kind.TRUNCATED, "read"), Fault(Kind.CORRUPTED, "read", first=1)]
    assert STORAGE.read(path_of("a")) == BYTES
    assert [call.range for call in gcs.calls("read")] == ["", "", ""]  # nothing is gone on with


def test_an_error_whose_words_are_cut_off_is_asked_for_again(gcs):
    gcs.faults.append(Fault(Kind.TRUNCATED, "read"))
    with pytest.raises(FileNotFoundError):
        STORAGE.read(path_of("gone"))
    assert len(gcs.log) == 2


def test_a_token_that_cannot_be_had_for_the_moment(gcs, monkeypatch):
    from google.auth.exceptions import RefreshError

    answers = iter([RefreshError("busy", retryable=True), RefreshError("account disabled")])

    def refuse(*arguments):
        raise next(answers)

    monkeypatch.setattr(gcs_client.client_of_process()._credentials, "before_request", refuse)
    with pytest.raises(ConfigError, match=r"the credentials are of no use \(account disabled\); run `gcloud auth"):
        STORAGE.read(path_of("a"))


@pytest.mark.parametrize("times", [1, 2])
def test_damaged_bytes_are_asked_for_again(gcs, times):
    gcs.put("a", BYTES)
    gcs.faults.append(Fault(Kind.CORRUPTED, "read", times=times))
    assert STORAGE.read(path_of("a")) == BYTES


def test_bytes_that_are_always_damaged_make_the_file_unreadable(gcs):
    gcs.put("a", BYTES)
    gcs.faults.append(Fault(Kind.CORRUPTED, "read", times=ALWAYS))
    with pytest.raises(UnreadableFileError, match="did not match their checksum when they came, 5 times") as caught:
        STORAGE.read(path_of("a"))
    assert caught.value.filename == path_of("a")
    assert len(gcs.calls("read")) == gcs_client.TRIES


def test_a_weather_of_faults(gcs):
    for number in range(100):
        gcs.put(str(number), b"%d" % number * 1000)
    gcs.faults = [
        Fault(Kind.STATUS, "read", probability=0.2, times=ALWAYS, status=503, seed=1),
        Fault(Kind.RESET, "read", probability=0.1, times=ALWAYS, seed=2),
        Fault(Kind.TRUNCATED, "read", probability=0.1, times=ALWAYS, seed=3),
        Fault(Kind.CORRUPTED, "read", probability=0.1, times=ALWAYS, seed=4),
    ]
    with ThreadPoolExecutor(16) as pool:
        read = list(pool.map(STORAGE.read, map(path_of, map(str, range(100)))))
    assert read == [b"%d" % number * 1000 for number in range(100)]
    assert len(gcs.log) > 140


# What goes wrong and stays


@pytest.mark.parametrize("kind", [Kind.STATUS, Kind.RESET, Kind.TRUNCATED])
def test_what_does_not_pass_is_given_up_in_the_end(gcs, monkeypatch, kind):
    monkeypatch.setattr(gcs_client, "RETRY_S", 0.1)
    for name, call, _ in each_method(gcs):
        gcs.faults = [Fault(kind, times=ALWAYS, status=503, message="try later")]
        if name == "delete" and kind is Kind.TRUNCATED:  # its answer is empty
            continue
        with pytest.raises(OSError, match=r"given up after trying for 0\.1 s; the last time: .") as caught:
            call()
        assert caught.value.filename.startswith(path_of("f")), name
        assert "\n" not in str(caught.value)
        if kind is Kind.STATUS:
            assert "try later" in str(caught.value)


def test_a_server_that_is_not_there(monkeypatch):
    monkeypatch.setattr(gcs_client, "RETRY_S", 0.05)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(OSError, match=r"given up .* Connection refused"):
            STORAGE.read(path_of("a"))


def test_no_permission(gcs):
    for name, call, _ in each_method(gcs):
        gcs.faults = [Fault(Kind.STATUS, times=ALWAYS, status=403)]
        gcs.log.clear()
        with pytest.raises(PermissionError) as caught:
            call()
        assert len(gcs.log) == 1, name  # it is not tried again
        operation = gcs.log[0].operation
        permission = {"list": "list", "delete": "delete", "upload": "create", "start": "create"}.get(operation, "get")
        assert f"{ACCOUNT} does not have storage.objects.{permission} access" in str(caught.value)
        assert caught.value.filename.startswith(path_of("f"))
        assert not isinstance(caught.value, UnreadableFileError)


def test_no_permission_names_the_account_where_the_server_does_not(gcs, monkeypatch):
    gcs.faults.append(Fault(Kind.STATUS, status=403, message="Access denied."))
    account = "me@project.iam.gserviceaccount.com"
    monkeypatch.setattr(gcs_client.client_of_process()._credentials, "service_account_email", account, raising=False)
    with pytest.raises(PermissionError, match=f"Access denied. \\(as {account}\\)"):
        STORAGE.read(path_of("a"))


def test_no_such_bucket(gcs):
    for act in (
        STORAGE.read,
        STORAGE.open,
        STORAGE.size,
        STORAGE.delete,
        STORAGE.is_folder,
        STORAGE.names,
        STORAGE.delete_folder,
        lambda path: list(STORAGE.walk(path)),
        lambda path: STORAGE.write(path, b""),
        lambda path: STORAGE.write(path, b"x" * 9 * MB),
    ):
        gcs.log.clear()
        with pytest.raises(ConfigError, match="gs://nowhere/a: there is no bucket nowhere"):
            act("gs://nowhere/a")
        assert len(gcs.log) == 1


def test_a_bucket_whose_readers_pay(gcs):
    for name, call, _ in each_method(gcs):
        gcs.faults = [Fault(Kind.STATUS, times=ALWAYS, status=400, message=REQUESTER_PAYS)]
        with pytest.raises(ConfigError, match=f"whoever reads the bucket {BUCKET} pays for it"):
            pytest.fail(f"{name} gave {call()}")


def test_credentials_that_are_not_accepted(gcs):
    gcs.faults.append(Fault(Kind.STATUS, times=ALWAYS, status=401, message="Invalid Credentials"))
    with pytest.raises(ConfigError, match=r"the credentials are of no use \(.*\); run `gcloud auth"):
        STORAGE.size(path_of("a"))


def test_an_error_of_another_kind_keeps_its_words(gcs):
    gcs.faults.append(Fault(Kind.STATUS, status=412, message="retention\npolicy"))
    with pytest.raises(OSError, match="PreconditionFailed: retention policy") as caught:
        STORAGE.write(path_of("a"), b"")
    assert caught.value.filename == path_of("a")


# The client


def test_each_server_has_a_client_of_its_own(gcs, monkeypatch):
    gcs.put("a", b"here")
    with running() as another:
        another.put("a", b"there")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", another.url)
        assert STORAGE.read(path_of("a")) == b"there"
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        assert STORAGE.read(path_of("a")) == b"here"


def test_threads_make_one_client(gcs, monkeypatch):
    made = []
    make = gcs_client._make_client

    def make_slowly(emulator: str):
        made.append(emulator)
        time.sleep(0.05)
        return make(emulator)

    monkeypatch.setattr(gcs_client, "_CLIENTS", {})
    monkeypatch.setattr(gcs_client, "_make_client", make_slowly)
    threads = [threading.Thread(target=STORAGE.names, args=(path_of(""),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [gcs.url]
    assert {call.operation for call in gcs.log} == {"list"}  # no metadata of the bucket


def test_it_can_be_pickled(gcs):
    gcs.put("a", BYTES)
    STORAGE.read(path_of("a"))
    assert pickle.loads(pickle.dumps(STORAGE)).read(path_of("a")) == BYTES


def test_importing_it_imports_no_client():
    code = "import sys, recordmill.transforms.storage.gcs_storage\n"
    code += "print('google.cloud.storage' in sys.modules, 'requests' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.split() == ["False", "False"]


# Credentials


@pytest.fixture
def metadata_server():
    """A port where connections are made and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def no_credentials(monkeypatch, tmp_path, metadata_server):
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{metadata_server.getsockname()[1]}")
    monkeypatch.setattr(gcs_client, "_found_none", (float("-inf"), ""))
    monkeypatch.setattr(gcs_client, "SEARCH_S", 0.3)


@pytest.mark.parametrize("answers", [False, True])
def test_a_search_for_credentials_ends_soon(no_credentials, metadata_server, answers):
    if not answers:
        metadata_server.close()
    began_s = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        errors = [pool.submit(STORAGE.read, path_of("a")).exception() for _ in range(4)]
    assert time.monotonic() - began_s < 3
    for error in errors:
        assert isinstance(error, ConfigError)
        for cure in ("gcloud auth application-default login", "GOOGLE_APPLICATION_CREDENTIALS", "service account"):
            assert cure in str(error)
        assert "\n" not in str(error)


def test_a_file_of_credentials_that_is_not_there(no_credentials, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(ConfigError, match=r"/nowhere/key\.json was not found"):
        STORAGE.read(path_of("a"))
