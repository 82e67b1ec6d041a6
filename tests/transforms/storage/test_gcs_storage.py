import gzip
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage import gcs_client, gcs_requests, gcs_storage
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.interface import (
    ChangedFileError,
    FileTooLargeError,
    NameRange,
    Storage,
    StoredFile,
    UnreadableFileError,
)
from recordmill.transforms.storage.resolve import join_path
from tests.gcs_stand_in import ACCOUNT, BUCKET, REQUESTER_PAYS, Fault, Kind
from tests.transforms.storage.conftest import path_of

STORAGE: Storage = GcsStorage()
GCS = GcsStorage()
ALWAYS = float("inf")
MB = 1024 * 1024
BYTES = bytes(range(256)) * 400
ODD_NAMES = ["a b.jpg", "a#b", "a?b=c&d", "%41", "a+b", "ü/é/日本 🐈.png", "//a", "a/../b", "a\tb"]


# Paths


@pytest.mark.parametrize("name", ODD_NAMES)
def test_no_character_of_name_is_special(gcs, name):
    path = join_path(path_of("folder"), name)
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
def test_name_that_no_object_can_have_is_one_missing(gcs, name):
    with pytest.raises(FileNotFoundError, match="the object name is invalid") as caught:
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
        with pytest.raises(ConfigError, match="is a bucket, not an object"):
            act(path)
    assert STORAGE.size(path) is None


# Reading


@pytest.mark.parametrize("is_packed", [False, True])
def test_object_is_read_no_further_than_its_reader_takes(gcs, is_packed):
    """Its size has not been asked for; what is packed may be far larger than its object."""
    if is_packed:
        gcs.put("big", gzip.compress(bytes(64 * MB)), contentEncoding="gzip")
    else:
        gcs.put("big", bytes(64 * MB))
    gcs.log.clear()
    tracemalloc.start()
    with pytest.raises(FileTooLargeError, match="more than 1,000,000 bytes"):
        STORAGE.read(path_of("big"), most_bytes=1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [call.operation for call in gcs.log] == ["read"]
    assert peak < 32 * MB
    assert STORAGE.read(path_of("big"), most_bytes=64 * MB) == bytes(64 * MB)


def test_a_missing_object(gcs):
    for act in (STORAGE.read, STORAGE.open, lambda path: GCS.read_range(path, 0, 5)):
        with pytest.raises(FileNotFoundError, match="no such object"):
            act(path_of("gone"))
    assert [call.status for call in gcs.log] == [404] * 3


def test_a_version_is_read_or_nothing(gcs):
    gcs.put("a", BYTES)
    (file,) = STORAGE.walk(path_of(""))
    assert GCS.read(file.path, file.version) == BYTES
    assert GCS.read_range(file.path, 1, 2, file.version) == BYTES[1:3]
    gcs.put("a", b"new")
    reads = [GCS.read, lambda path, version: GCS.read_range(path, 0, 1, version)]
    reads += [lambda path, version, n=n: GCS.read_ranges(path, [(0, 1)] * n, version) for n in (1, 2)]
    for act in reads:
        with pytest.raises(FileNotFoundError, match=f"gone or was replaced since it was listed .* {file.version}"):
            act(file.path, file.version)
    with pytest.raises(ChangedFileError):
        GCS.open(file.path, file.version)
    assert STORAGE.read(file.path) == b"new"


def test_gzip_encoded_object_is_decompressed(gcs):
    gcs.put("a", gzip.compress(BYTES), contentEncoding="gzip")
    assert STORAGE.read(path_of("a")) == BYTES
    assert STORAGE.open(path_of("a")).read() == BYTES
    assert GCS.read_range(path_of("a"), 0, 2) == b"\x1f\x8b"
    gcs.faults.append(Fault(Kind.TRUNCATED, "read"))
    assert STORAGE.read(path_of("a")) == BYTES


def test_ranges(gcs):
    gcs.put("a", BYTES)
    for start, length in ((5, 10), (len(BYTES) - 3, 10), (len(BYTES), 10), (0, 0)):
        assert GCS.read_range(path_of("a"), start, length) == BYTES[start : start + length]
    assert [call.range for call in gcs.log] == ["bytes=5-14", "bytes=102397-102406", "bytes=102400-102409"]


# Streams


def test_stream_reads_ranges_of_one_generation(gcs, monkeypatch):
    monkeypatch.setattr(gcs_storage, "RANGE_BYTES", 40_000)
    generation = gcs.put("a", BYTES).resource["generation"]
    with STORAGE.open(path_of("a")) as stream:
        assert stream.read(10) + stream.read(30_000) + stream.read() == BYTES
        assert stream.read(1) == b""
    assert [call.range for call in gcs.calls("read")] == ["bytes=0-39999", "bytes=40000-79999", "bytes=80000-102399"]
    assert {call.query["generation"] for call in gcs.calls("read")} == {generation}


@pytest.mark.parametrize(("times", "is_had"), [(1, True), (ALWAYS, False)])
def test_stream_read_to_its_end_is_checked(gcs, monkeypatch, times, is_had):
    """Its ranges have no checksums of their own."""
    monkeypatch.setattr(gcs_storage, "RANGE_BYTES", 40_000)
    gcs.put("a", BYTES)
    last = Fault(Kind.CORRUPTED, "read", when=lambda call: call.range.endswith(f"-{len(BYTES) - 1}"), times=times)
    monkeypatch.setattr("tests.gcs_stand_in.damaged", lambda data: data[:-1] + b"!")
    gcs.faults = [last]
    stream = STORAGE.open(path_of("a"))
    if is_had:
        assert stream.read() == BYTES
    else:
        with pytest.raises(UnreadableFileError, match="did not match their checksum"):
            stream.read()


@pytest.mark.parametrize("replaced", [True, False])
def test_object_that_changes_while_it_is_read_is_error(gcs, monkeypatch, replaced):
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


def test_gzip_object_replaced_at_opening_is_error(gcs, monkeypatch):
    gcs.put("a", gzip.compress(BYTES), contentEncoding="gzip")

    def read_metadata(path):
        metadata = gcs_requests.read_metadata(path)
        gcs.put("a", gzip.compress(b"new"), contentEncoding="gzip")
        return metadata

    monkeypatch.setattr(gcs_storage, "read_metadata", read_metadata)
    with pytest.raises(FileNotFoundError, match="gone or was replaced"):
        STORAGE.open(path_of("a"))


# Listing


def test_walk(gcs):
    names = ("f/a", "f/b/c", "f/b/d/e", "f/.hidden", "f0", "g/a", "f/", "f/empty/")
    generations = {name: gcs.put(name, name.encode()).resource["generation"] for name in names}
    expected = {
        StoredFile(path_of(f"f/{name}"), len(name) + 2, generations[f"f/{name}"], name)
        for name in ("a", "b/c", "b/d/e", ".hidden")
    }
    gcs.page_size = 3
    for folder in ("f", "f/", "f//"):
        assert set(STORAGE.walk(path_of(folder))) == expected
    names = [file.name for file in STORAGE.walk(f"gs://{BUCKET}")]
    assert names == ["f/.hidden", "f/a", "f/b/c", "f/b/d/e", "f0", "g/a"]
    assert list(STORAGE.walk(path_of("gone"))) == []
    assert {call.query["fields"] for call in gcs.log} == {"items(name,size,generation),nextPageToken"}
    assert STORAGE.names(path_of("f")) == [".hidden", "a"]
    assert STORAGE.names(f"gs://{BUCKET}") == ["f0"]


def test_walking_a_range_of_names(gcs):
    for name in "abcd":
        gcs.put(f"f/{name}", b"")
    part = NameRange("f/b", "f/d")
    assert [file.name for file in STORAGE.walk(path_of("f"), part)] == ["b", "c"]
    assert [(call.query["startOffset"], call.query["endOffset"]) for call in gcs.calls("list")] == [part]
    with pytest.MonkeyPatch.context() as monkeypatch:  # a server that knows of no ranges
        listed = gcs_storage.gcs_requests.list_pages
        monkeypatch.setattr(
            gcs_storage.gcs_requests, "list_pages", lambda path, bucket, query: listed(path, bucket, {"prefix": "f/"})
        )
        assert [file.name for file in STORAGE.walk(path_of("f"), part)] == ["b", "c"]


def test_is_folder_and_size(gcs):
    for name in ("f/g/a", "marked/"):
        gcs.put(name, b"12345")
    for path, is_folder in {"f": True, "f/": True, "f/g": True, "marked": True, "f/g/a": False, "f/x": False}.items():
        gcs.log.clear()
        assert STORAGE.is_folder(path_of(path)) is is_folder
        assert [(call.operation, call.query["maxResults"]) for call in gcs.log] == [("list", "1")]
    assert [STORAGE.size(path_of(path)) for path in ("f/g", "marked", "marked/")] == [None] * 3
    gcs.reset()
    assert STORAGE.is_folder(f"gs://{BUCKET}")


# Moving and deleting


@pytest.mark.parametrize("requests", [1, 3])
def test_move(gcs, requests):
    gcs.rewrite_requests = requests
    gcs.put("f/a", BYTES)
    gcs.put("b", b"old")
    STORAGE.move(path_of("f/a"), path_of("b"))
    assert gcs.objects() == {"b": BYTES}
    assert len(gcs.calls("copy")) == requests
    with pytest.raises(FileNotFoundError):
        STORAGE.move(path_of("f/a"), path_of("b"))
    assert gcs.objects() == {"b": BYTES}


def test_delete_folder(gcs):
    gcs.put("f/", b"")
    STORAGE.delete_folder(path_of("f"))
    assert gcs.objects() == {}
    for path in (f"gs://{BUCKET}", f"gs://{BUCKET}/"):
        with pytest.raises(ConfigError, match="is a bucket, not a folder"):
            STORAGE.delete_folder(path)


def test_not_supported_in_buckets(gcs):
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
def test_passing_faults_are_retried(gcs, fault):
    for name, call, expected in each_method(gcs):
        gcs.faults = [Fault(fault.kind, times=fault.times, status=fault.status)]
        gcs.log.clear()
        assert call() == expected, name
        has_no_body = name == "delete" and fault.kind is Kind.TRUNCATED
        assert len(gcs.log) >= (1 if has_no_body else 3), name
    assert gcs.objects() == {}


def test_after_connection_breaks_all_bytes_are_checked(gcs):
    gcs.put("a", BYTES)
    gcs.faults = [Fault(Kind.TRUNCATED, "read"), Fault(Kind.CORRUPTED, "read", first=1)]
    assert STORAGE.read(path_of("a")) == BYTES
    assert [call.range for call in gcs.calls("read")] == ["", "", ""]  # nothing is gone on with


def test_bytes_always_damaged_make_file_unreadable(gcs):
    gcs.put("a", BYTES)
    gcs.faults.append(Fault(Kind.CORRUPTED, "read", times=ALWAYS))
    with pytest.raises(UnreadableFileError, match="did not match their checksum in 5 tries") as caught:
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
def test_staying_faults_end(gcs, monkeypatch, kind):
    monkeypatch.setattr(gcs_client, "RETRY_S", 0.1)
    for name, call, _ in each_method(gcs):
        gcs.faults = [Fault(kind, times=ALWAYS, status=503, message="try later")]
        if name == "delete" and kind is Kind.TRUNCATED:  # its answer is empty
            continue
        with pytest.raises(OSError, match=r"gave up after 0\.1 s of retries\. The last error: .") as caught:
            call()
        assert caught.value.filename.startswith(path_of("f")), name
        assert "\n" not in str(caught.value)
        if kind is Kind.STATUS:
            assert "try later" in str(caught.value)


def test_no_permission(gcs):
    for name, call, _ in each_method(gcs):
        gcs.faults = [Fault(Kind.STATUS, times=ALWAYS, status=403)]
        gcs.log.clear()
        with pytest.raises(PermissionError) as caught:
            call()
        assert len(gcs.log) == 1, name  # it is not tried again
        assert f"{ACCOUNT} does not have storage.objects access to {gcs.log[0].operation}" in str(caught.value)
        assert caught.value.filename.startswith(path_of("f"))
        assert not isinstance(caught.value, UnreadableFileError)


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
        with pytest.raises(ConfigError, match="gs://nowhere/a: the bucket nowhere does not exist"):
            act("gs://nowhere/a")
        assert len(gcs.log) == 1


def test_a_bucket_whose_readers_pay(gcs):
    for name, call, _ in each_method(gcs):
        gcs.faults = [Fault(Kind.STATUS, times=ALWAYS, status=400, message=REQUESTER_PAYS)]
        with pytest.raises(ConfigError, match=f"the bucket {BUCKET} is set to requester pays"):
            pytest.fail(f"{name} gave {call()}")


# In other processes


def test_it_can_be_pickled(gcs):
    gcs.put("a", BYTES)
    STORAGE.read(path_of("a"))
    assert pickle.loads(pickle.dumps(STORAGE)).read(path_of("a")) == BYTES


def test_importing_it_imports_no_client():
    code = "import sys, recordmill.transforms.storage.gcs_storage\n"
    code += "print('google.cloud.storage' in sys.modules, 'requests' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.split() == ["False", "False"]


# Buckets that keep what is written


@pytest.mark.parametrize(
    ("protection", "says"),
    [
        (
            {"retentionExpirationTime": "2026-12-24T18:30:00.000Z"},
            "the bucket's retention policy, until 2026-12-24 18:30 UTC",
        ),
        ({"eventBasedHold": True}, "a hold, which the bucket places on new objects"),
    ],
)
def test_object_kept_says_why_and_cannot_be_moved(gcs, protection, says):
    STORAGE.write(path_of("free"), BYTES)
    assert GCS.protection(path_of("free")) == ""
    gcs.protection = protection
    STORAGE.write(path_of("a"), BYTES)
    assert GCS.protection(path_of("a")) == says
    for change in (lambda: STORAGE.move(path_of("a"), path_of("b")), lambda: STORAGE.write(path_of("a"), b"new")):
        with pytest.raises(PermissionError, match="cannot be deleted"):
            change()
    assert gcs.objects()["a"] == BYTES
