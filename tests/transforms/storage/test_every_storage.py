"""Behaviour that all kinds of storage share."""

import pytest

from recordmill.transforms.storage.interface import FileTooLargeError, Storage
from recordmill.transforms.storage.resolve import join_path, storage_for
from tests import s3_stand_in

DATA = b"\x00\r\n\xff456789"


@pytest.fixture(scope="module")
def s3_server():
    with s3_stand_in.running() as server:
        yield server


@pytest.fixture(params=["local", "gs", "s3"])
def root(request, tmp_path, monkeypatch) -> str:
    """Path of an empty folder or bucket."""
    if request.param == "local":
        return str(tmp_path)
    if request.param == "gs":
        request.getfixturevalue("gcs").page_size = 1
    else:
        s3_stand_in.emptied(request.getfixturevalue("s3_server"), monkeypatch)
    return f"{request.param}://bucket"


@pytest.fixture
def storage(root) -> Storage:
    return storage_for(root)


def put(storage: Storage, root: str, *names: str) -> None:
    for name in names:
        storage.write(join_path(root, name), name.encode())


def contents(storage: Storage, root: str) -> dict[str, bytes]:
    return {file.name: storage.read(file.path) for file in storage.walk(root)}


def test_files_of_a_folder(storage, root):
    names = ["b", "a", ".c", "deep/é [b]*?.txt", "deep/er/d"]
    put(storage, f"{root}/in", *names)
    put(storage, root, "into/e")
    for folder in (f"{root}/in", f"{root}/in/"):
        files = {file.name: file for file in storage.walk(folder)}
        assert files.keys() == set(names)
        assert sorted(storage.walk_names(folder)) == sorted(names)
        assert storage.names(folder) == [".c", "a", "b"]
    for name, file in files.items():
        assert (file.path, file.size_bytes) == (f"{root}/in/{name}", len(name.encode()))
        assert (storage.size(file.path), storage.read(file.path)) == (len(name.encode()), name.encode())
        assert storage.stat(file.path).version == file.version
    assert storage.names(f"{root}/none") == []
    folders = {"in": True, "in/": True, "in/deep": True, "": True, "in/a": False, "none": False}
    assert {name: storage.is_folder(f"{root}/{name}") for name in folders} == folders
    assert storage.size(f"{root}/in/a/below a file") is None


def test_read(storage, root):
    path, empty = f"{root}/a", f"{root}/empty"
    storage.write(path, DATA)
    storage.write(empty, b"")
    ranges = [(2, 3), (8, 9), (10, 1), (3, 0)]
    assert [storage.read_range(path, *range_) for range_ in ranges] == [DATA[2:5], DATA[8:], b"", b""]
    assert (storage.read(path, most_bytes=10), storage.read(empty, most_bytes=10)) == (DATA, b"")
    with pytest.raises(FileTooLargeError):
        storage.read(path, most_bytes=9)
    with storage.open(path) as file:
        assert (file.read(2), file.read()) == (DATA[:2], DATA[2:])
        file.seek(5)
        assert file.read() == DATA[5:]
    with storage.open(empty) as file:
        assert file.read() == b""
    assert storage.checksum(path)[0] == 10


def test_absent(storage, root):
    path = f"{root}/none"
    for read in (storage.read, storage.open, storage.checksum, lambda path: storage.read_range(path, 0, 5)):
        with pytest.raises(FileNotFoundError) as caught:
            read(path)
        assert caught.value.filename == path
    assert storage.size(path) is storage.stat(path) is None
    with pytest.raises(FileNotFoundError):
        storage.move(path, f"{root}/b")
    storage.delete(path)
    storage.delete_folder(path)


def test_files_are_replaced_moved_and_deleted(storage, root):
    put(storage, root, "f0", "f/a", "f/.b", "f/deep/c")
    storage.write(f"{root}/new/folder/a", b"first")
    storage.write(f"{root}/new/folder/a", b"second")
    storage.move(f"{root}/new/folder/a", f"{root}/f0")
    storage.delete(f"{root}/f/a")
    assert contents(storage, root) == {"f0": b"second", "f/.b": b"f/.b", "f/deep/c": b"f/deep/c"}
    storage.delete_folder(f"{root}/f")
    assert contents(storage, root) == {"f0": b"second"}


@pytest.mark.parametrize("pieces", [(), (b"new ", b"bytes"), (b"a" * 40_000_000, b"b" * 40_000_000)])
def test_upload_is_seen_whole_when_it_is_committed(storage, root, pieces):
    storage.write(f"{root}/a", b"old")
    for path, before in (("a", 3), ("b", None)):
        upload = storage.create(f"{root}/{path}")
        for piece in pieces:
            upload.write(piece)
        assert storage.size(f"{root}/{path}") == before
        upload.commit()
        upload.abandon()
    assert contents(storage, root) == dict.fromkeys("ab", b"".join(pieces))
    upload = storage.create(f"{root}/first")
    upload.commit(f"{root}/last")
    assert contents(storage, root) == dict.fromkeys("ab", b"".join(pieces)) | {"last": b""}


def test_abandoned_upload_leaves_no_trace(storage, root):
    upload = storage.create(f"{root}/a")
    upload.write(b"bytes")
    upload.abandon()
    upload.abandon()
    assert contents(storage, root) == {}
