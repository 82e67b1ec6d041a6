import gzip
import os
import random
import zipfile
from pathlib import Path

import pytest

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.transforms.storage import resolve as module
from recordmill.transforms.storage.gcs_storage import GcsStorage
from recordmill.transforms.storage.resolve import (
    find_archive,
    join_path,
    local_copy,
    open_unpacked,
    read_unpacked,
    storage_for,
)
from tests.transforms.storage.conftest import archive, path_of


def test_archive_in_bucket_is_read_there(tmp_path, gcs):
    gcs.put("resolved/x.zip", Path(archive(tmp_path / "x.zip", {"a/b.txt": b"of the bucket"})).read_bytes())
    path = path_of("resolved/x.zip/a/b.txt")
    assert find_archive(path) == path_of("resolved/x.zip")
    assert storage_for(path).read(path) == b"of the bucket"


def test_paths_of_known_and_unknown_storages():
    assert isinstance(storage_for("gs://b/a"), GcsStorage)
    for path in ("gs://", "s3://", "s3:///"):
        with pytest.raises(ConfigError, match="does not name a bucket"):
            storage_for(path)
    with pytest.raises(ConfigError, match=r"^gs:/b/x lacks a slash\. Give gs://bucket/folder$"):
        storage_for("gs:/b/x")
    for path, cure in (
        ("ftp://b/a", "Download it, and give the local path"),
        ("https://b/a.zip", "Download it, and give the local path"),
        ("file:///data/a", "Give /data/a"),
        ("hdfs://b/a", "Give a local path, gs://bucket/folder or s3://bucket/folder"),
    ):
        with pytest.raises(ConfigError) as caught:
            storage_for(path)
        assert str(caught.value) == f"{path}: {path.partition(':')[0]}:// is not supported. {cure}"


def test_local_copy_of_a_local_file(tmp_path):
    with local_copy(str(tmp_path / "model.keras")) as path:
        assert path == str(tmp_path / "model.keras")


def test_local_copy_is_deleted(gcs):
    gcs.put("models/tiny.keras", b"model" * 1_000_000)
    with local_copy(path_of("models/tiny.keras")) as path:
        assert os.path.basename(path) == "tiny.keras"  # Keras looks at its ending
        assert Path(path).read_bytes() == b"model" * 1_000_000
    assert not os.path.exists(os.path.dirname(path))


def test_local_copy_of_a_member(tmp_path):
    with local_copy(f"{archive(tmp_path / 'models.zip', {'in/tiny.keras': b'model'})}/in/tiny.keras") as path:
        assert Path(path).read_bytes() == b"model"


def test_local_copy_of_nothing(gcs):
    with pytest.raises(ConfigError, match="gs://bucket/nothing: no such file"), local_copy(path_of("nothing")):
        pass


JOINED = [
    ("out", "a.json", "out/a.json"),
    ("out/", ".state/a.json", "out/.state/a.json"),
    ("", "a.json", "a.json"),
    ("gs://b", "x/y", "gs://b/x/y"),
    ("gs://b/a/", "x/y", "gs://b/a/x/y"),
]


@pytest.mark.parametrize(("folder", "name", "path"), JOINED)
def test_join_path(folder, name, path):
    assert join_path(folder, name) == path


CONTENT = random.Random(0).randbytes(5 << 19) + b'{"images": []}' * 1000


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize(
    "data",
    [
        CONTENT,
        gzip.compress(CONTENT),
        gzip.compress(CONTENT[:7]) + gzip.compress(b"") + gzip.compress(CONTENT[7:]) + bytes(512),
    ],
)
def test_compression_is_found_by_content(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    assert read_unpacked(str(tmp_path / name)) == CONTENT


def test_an_empty_file(tmp_path):
    for data in (b"", gzip.compress(b""), b"\x1f"):
        (tmp_path / "a").write_bytes(data)
        assert read_unpacked(str(tmp_path / "a")) == (data if len(data) == 1 else b"")


@pytest.mark.parametrize("size", [2, 9, 17, 1000, -9, -1])
def test_a_file_that_is_cut(tmp_path, size):
    (tmp_path / "a").write_bytes(gzip.compress(CONTENT)[:size])
    with pytest.raises(AnnotationFileError, match="is a truncated gzip file"):
        read_unpacked(str(tmp_path / "a"))


@pytest.mark.parametrize("offset", [3, 1000, -6, -1])
def test_a_damaged_file(tmp_path, offset):
    data = bytearray(gzip.compress(CONTENT))
    data[offset] ^= 0xFF
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(AnnotationFileError, match="a is a "):
        read_unpacked(str(tmp_path / "a"))


@pytest.mark.parametrize("members", [1, 5])
def test_bomb_is_unpacked_to_its_bound_and_no_further(tmp_path, monkeypatch, members):
    monkeypatch.setattr(module, "_ALWAYS", 3 << 20)
    zeros = 4_000_000
    (tmp_path / "a").write_bytes(gzip.compress(bytes(zeros // members)) * members)
    with pytest.raises(AnnotationFileError, match="more than 3,145,728 bytes"):
        read_unpacked(str(tmp_path / "a"))
    monkeypatch.setattr(module, "_RATIO", 2000)
    assert read_unpacked(str(tmp_path / "a")) == bytes(zeros)


@pytest.mark.parametrize("read", [read_unpacked, lambda path: b"".join(open_unpacked(path)[1])])
def test_zip_bomb_is_not_unpacked(tmp_path, monkeypatch, read):
    """Its packed size may lie, too: another member begins behind it."""
    monkeypatch.setattr(module, "_ALWAYS", 3 << 20)
    archive(tmp_path / "a.zip", {"zeros": bytes(4_000_000), "next": b""})
    data = bytearray((tmp_path / "a.zip").read_bytes())
    entry = data.index(b"PK\x01\x02")
    path = str(tmp_path / "a.zip" / "zeros")
    for packed in (data[entry + 20 : entry + 24], b"\0\0\0\1"):
        data[entry + 20 : entry + 24] = packed
        (tmp_path / "a.zip").write_bytes(data)
        with pytest.raises(
            AnnotationFileError, match="zeros is compressed and decompresses to more than 3,145,728 bytes"
        ):
            read(path)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("zeros", bytes(4_000_000))
        file.writestr("random", CONTENT * 2, zipfile.ZIP_DEFLATED)
    assert read(str(tmp_path / "b.zip" / "zeros")) == bytes(4_000_000)
    assert read(str(tmp_path / "b.zip" / "random")) == CONTENT * 2


def test_files_without_ranges_are_known(tmp_path):
    (tmp_path / "a.json").write_bytes(CONTENT)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("stored", CONTENT)
        file.writestr("gzip", gzip.compress(CONTENT))
        file.writestr("deflated", CONTENT, zipfile.ZIP_DEFLATED)
    compressed = {name: open_unpacked(f"{tmp_path}/{name}")[0] for name in ("a.json", "a.zip/stored", "a.zip/gzip")}
    assert compressed == {"a.json": False, "a.zip/stored": False, "a.zip/gzip": True}
    assert open_unpacked(f"{tmp_path}/a.zip/deflated")[0]


def test_file_in_bucket_or_in_archive_is_unpacked_too(tmp_path, gcs):
    storage_for(path_of("a.json")).write(path_of("a.json"), gzip.compress(CONTENT))
    assert read_unpacked(path_of("a.json")) == CONTENT
    archive(tmp_path / "a.zip", {"in/a.json.gz": gzip.compress(CONTENT)})
    assert read_unpacked(str(tmp_path / "a.zip/in/a.json.gz")) == CONTENT


def test_data_after_gzip_members_is_named(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(CONTENT) + bytes(512) + b"more")
    with pytest.raises(AnnotationFileError, match="a has other bytes after its gzip data"):
        read_unpacked(str(tmp_path / "a"))


def test_bound_covers_whole_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_ALWAYS", 1 << 20)
    content = bytes(30_000_000) + random.Random(0).randbytes(400_000)
    (tmp_path / "a").write_bytes(gzip.compress(content))
    assert b"".join(module.open_unpacked(str(tmp_path / "a"))[1]) == content
