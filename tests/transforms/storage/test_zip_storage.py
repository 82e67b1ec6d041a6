import errno
import gc
import os
import random
import struct
import time
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage import range_stream, zip_storage
from recordmill.transforms.storage.interface import ChangedFileError, FileTooLargeError, StoredFile, UnreadableFileError
from recordmill.transforms.storage.local_storage import LocalStorage
from recordmill.transforms.storage.resolve import join_path, list_existing, storage_for
from recordmill.transforms.storage.zip_archive import Directory
from recordmill.transforms.storage.zip_storage import ZipStorage
from tests.gcs_stand_in import Fault, Kind
from tests.transforms.storage.conftest import archive, path_of

MEMBERS = {"val/1.png": b"one", "val/deep/2.png": b"two" * 1000, "val/é ü.png": b""}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("masks.zip", ZipStorage),
        ("masks.zip/val/1.png", ZipStorage),
        ("masks.zip/gone", ZipStorage),
        ("MASKS.ZIP/val", ZipStorage),
        ("folder.zip", LocalStorage),
        ("folder.zip/a.png", LocalStorage),
        ("gone.zip/a.png", LocalStorage),
        ("masks.zipped/a.png", LocalStorage),
        ("masks", LocalStorage),
    ],
)
def test_archive_is_known_by_its_name_and_by_being_file(tmp_path, path, kind):
    archive(tmp_path / "masks.zip", MEMBERS)
    archive(tmp_path / "MASKS.ZIP", MEMBERS)
    (tmp_path / "folder.zip").mkdir()
    assert type(storage_for(str(tmp_path / path))) is kind


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_are_read_by_their_names(tmp_path, method):
    path = archive(tmp_path / "masks.zip", MEMBERS, method)
    storage = storage_for(path)
    for name, data in MEMBERS.items():
        member = join_path(path, name)
        assert storage.read(member) == data
        assert storage.open(member).read() == data
        assert storage.size(member) == len(data)


@pytest.mark.parametrize("name", ["1.png", "deep/2.png", "é ü.png"])
def test_one_folder_at_top_may_be_left_out(tmp_path, name):
    path = archive(tmp_path / "masks.zip", {**MEMBERS, "__MACOSX/val/._1.png": b"of a Mac"})
    storage = storage_for(path)
    assert storage.read(f"{path}/{name}") == MEMBERS[f"val/{name}"]
    assert list_existing(str(path), (name, f"val/{name}", "missing.png")) == [f"val/{name}"]


def test_folder_without_files_is_no_other_folder_at_top(tmp_path):
    path = archive(tmp_path / "masks.zip", {"val/1.png": b"one", "train/": b""})
    assert storage_for(path).read(f"{path}/1.png") == b"one"


@pytest.mark.parametrize(
    ("more_members", "names"),
    [({}, ["1.png"]), ({"__MACOSX/x": b""}, ["1.png"]), ({"top.png": b""}, ["masks/1.png", "top.png"])],
)
def test_files_are_listed_below_folder_that_has_archive_s_name(tmp_path, more_members, names):
    path = archive(tmp_path / "masks.zip", {"masks/1.png": b"", **more_members})
    assert [file.name for file in storage_for(path).walk(path)] == names


@pytest.mark.parametrize("name", ["set.zip", "other.zip"])
@pytest.mark.parametrize("more_members", [{}, {"__MACOSX/set/._a.csv": b""}, {".DS_Store": b""}])
def test_folders_below_the_only_folder_at_top_may_be_left_out(tmp_path, name, more_members):
    path = archive(tmp_path / name, {"set/a.csv": b"", "set/train/images/1.png": b"1", **more_members})
    storage = storage_for(path)
    for folder in f"{path}/train/images", f"{path}/set/train/images/":
        assert storage.is_folder(folder)
        assert [(file.name, file.path) for file in storage.walk(folder)] == [
            ("1.png", f"{path}/set/train/images/1.png")
        ]
    assert not storage.is_folder(f"{path}/set/val")
    assert not storage.is_folder(f"{path}/val")


def test_of_several_folders_none_may_be_left_out(tmp_path):
    path = archive(tmp_path / "masks.zip", {"val/1.png": b"", "train/1.png": b""})
    assert storage_for(path).size(f"{path}/1.png") is None


def test_member_of_very_name_goes_before_one_below_folder(tmp_path):
    path = archive(tmp_path / "masks.zip", {"1.png": b"top", "val/1.png": b"below"})
    assert storage_for(path).read(f"{path}/1.png") == b"top"


@pytest.mark.parametrize("name", ["gone.png", "val", "val/", "../masks.zip", "", "val/../val/1.png"])
def test_member_not_there_is_missing_file(tmp_path, name):
    path = archive(tmp_path / "masks.zip", MEMBERS)
    storage = storage_for(path)
    assert storage.size(f"{path}/{name}") is None
    with pytest.raises(FileNotFoundError):
        storage.read(f"{path}/{name}")
    with pytest.raises(FileNotFoundError):
        storage.open(f"{path}/{name}")


def test_all_members_are_listed_with_their_sizes_and_checksums(tmp_path):
    path = archive(tmp_path / "masks.zip", MEMBERS)
    with zipfile.ZipFile(path) as file:
        file_crcs = {info.filename: f"{info.CRC:08x}" for info in file.infolist()}
        packed = {info.filename: info.compress_size for info in file.infolist()}
    files = list(storage_for(path).walk(path))
    assert files == [
        StoredFile(f"{path}/{name}", len(data), file_crcs[name], name, packed_bytes=packed[name])
        for name, data in MEMBERS.items()
    ]
    assert all(storage_for(file.path).read(file.path) == MEMBERS[file.name] for file in files)


def test_folders_of_an_archive(tmp_path):
    path = archive(tmp_path / "masks.zip", MEMBERS)
    storage = storage_for(path)
    names = {name: storage.is_folder(f"{path}{name}") for name in ("", "/", "/val", "/val/deep", "/va", "/val/1.png")}
    assert names == {"": True, "/": True, "/val": True, "/val/deep": True, "/va": False, "/val/1.png": False}


def test_folders_members_themselves_are_no_files(tmp_path):
    path = archive(tmp_path / "masks.zip", {"val/": b"", "val/1.png": b"x"})
    assert [file.name for file in storage_for(path).walk(path)] == ["val/1.png"]
    assert storage_for(path).names(path) == []


@pytest.mark.parametrize("members", [{}, {"val/": b""}])
def test_archive_without_files_is_empty_folder(tmp_path, members):
    path = archive(tmp_path / "masks.zip", members)
    assert storage_for(path).is_folder(path)
    assert list(storage_for(path).walk(path)) == []


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x05\x06", b"PK\x03\x04" + bytes(100)])
def test_not_an_archive_is_named(tmp_path, data):
    (tmp_path / "masks.zip").write_bytes(data)
    path = str(tmp_path / "masks.zip")
    with pytest.raises(ConfigError, match=r"masks\.zip is not a ZIP archive"):
        storage_for(path).size(f"{path}/1.png")


def test_nothing_can_be_written(tmp_path):
    path = archive(tmp_path / "masks.zip", MEMBERS)
    before = (tmp_path / "masks.zip").read_bytes()
    storage, member = storage_for(path), f"{path}/val/1.png"
    for write in (
        lambda: storage.write(member, b"x"),
        lambda: storage.create(member),
        lambda: storage.delete(member),
        lambda: storage.delete_folder(f"{path}/val"),
        lambda: storage.delete_leftovers(path),
        lambda: storage.link(member, "2.png"),
    ):
        with pytest.raises(OSError, match="archives are read-only"):
            write()
    assert (tmp_path / "masks.zip").read_bytes() == before


def test_replaced_member_is_another(tmp_path):
    """In a new archive, whose own version is right."""
    path = archive(tmp_path / "masks.zip", {"a.png": b"old", "b.png": b"kept"})
    listed = {file.name: file for file in storage_for(path).walk(path)}
    archive(tmp_path / "masks.zip", {"a.png": b"new", "b.png": b"kept", "c.png": b""})
    storage, name = storage_for(path), listed["a.png"].path
    with pytest.raises(ChangedFileError) as caught:
        storage.read(name, listed["a.png"].version)
    assert caught.value.filename == name
    assert storage.read(name) == b"new"
    assert storage.read(listed["b.png"].path, listed["b.png"].version) == b"kept"


def test_member_that_was_damaged_on_its_way_is_read_again(tmp_path, gcs):
    """Ranges of a bucket come without a checksum."""
    gcs.put("damaged.zip", Path(archive(tmp_path / "a.zip", {"a.png": CONTENT})).read_bytes())
    storage, path = storage_for(path_of("damaged.zip")), path_of("damaged.zip/a.png")
    assert storage.stat(path)  # reads the directory
    gcs.log.clear()
    gcs.faults.append(Fault(Kind.CORRUPTED, "read", times=2))
    assert storage.read(path) == CONTENT
    assert [call.operation for call in gcs.log] == ["read"] * 3  # and nobody asks whether the archive has changed
    gcs.faults = [Fault(Kind.CORRUPTED, "read", times=3)]
    with pytest.raises(UnreadableFileError, match="damaged or encrypted"):
        storage.read(path)


# Damage


def test_damaged_member_is_unreadable_and_others_are_read(tmp_path):
    path = archive(tmp_path / "masks.zip", {"a.png": b"abcdef" * 50, "b.png": b"whole"})
    data = bytearray(Path(path).read_bytes())
    data[0] ^= 255
    Path(path).write_bytes(data)
    storage = storage_for(path)
    for read in (storage.read, storage.open):
        with pytest.raises(UnreadableFileError, match="damaged or encrypted"):
            read(f"{path}/a.png")
    assert storage.read(f"{path}/b.png") == b"whole"


@settings(max_examples=100)
@given(st.integers(0), st.integers(1, 255), st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
def test_one_damaged_byte_of_member_is_named(tmp_path_factory, place, change, method):
    folder = tmp_path_factory.mktemp("damaged")
    content = bytes(range(256))
    path = archive(folder / "masks.zip", {"a.png": content}, method)
    data = bytearray(Path(path).read_bytes())
    data[place % data.index(b"PK\x01\x02")] ^= change  # its directory stays whole
    Path(path).write_bytes(data)
    try:
        outcome = storage_for(path).read(f"{path}/a.png")
    except UnreadableFileError as error:
        outcome = error.filename
    assert outcome in (content, f"{path}/a.png")


def test_threads_that_begin_at_once_read_one_directory(tmp_path, monkeypatch):
    path = archive(tmp_path / "masks.zip", MEMBERS)
    read_range, reads = LocalStorage.read_range, []

    def slowly(self, path, start, length, version=""):
        reads.append((start, length))
        time.sleep(0.05)
        return read_range(self, path, start, length, version)

    monkeypatch.setattr(LocalStorage, "read_range", slowly)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(storage_for(path).size, [f"{path}/1.png"] * 8)) == [3] * 8
    assert len(reads) == 1


def test_disk_that_fails_is_not_taken_for_damaged_member(tmp_path, monkeypatch):
    path = archive(tmp_path / "masks.zip", MEMBERS)

    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LocalStorage, "read_range", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        storage_for(path).read(f"{path}/val/1.png")
    assert not isinstance(caught.value, UnreadableFileError)


# Members by range


def test_member_is_one_read(tmp_path, monkeypatch):
    members = {f"{number}.png": bytes([number]) * 5000 for number in range(20)}
    path = archive(tmp_path / "masks.zip", members, zipfile.ZIP_STORED)
    storage = storage_for(path)
    storage.size(f"{path}/0.png")  # reads the directory
    read_range = LocalStorage.read_range
    reads = []

    def noted(self, path, start, length, version=""):
        reads.append((start, length))
        return read_range(self, path, start, length, version)

    monkeypatch.setattr(LocalStorage, "read_range", noted)
    assert [storage.read(f"{path}/{name}") for name in reversed(members)] == list(members.values())[::-1]
    assert len(reads) == len(members)
    assert all(length < 5000 + 100 for _, length in reads)


@pytest.mark.parametrize(("kept_bytes", "requests"), [(1 << 30, 3), (1000, 100)])
def test_members_of_small_archive_in_bucket_come_in_blocks(tmp_path, gcs, monkeypatch, kept_bytes, requests):
    """One that is larger than CACHE_BYTES is one request a member."""
    monkeypatch.setattr(range_stream, "_BLOCK_BYTES", 40_000)
    monkeypatch.setattr(zip_storage, "CACHE_BYTES", kept_bytes)
    members = {f"{number}.png": bytes([number]) * 1000 for number in range(100)}
    gcs.put(f"{requests}.zip", Path(archive(tmp_path / "a.zip", members, zipfile.ZIP_STORED)).read_bytes())
    path = path_of(f"{requests}.zip")
    files = list(storage_for(path).walk(path))
    gcs.log.clear()
    with ThreadPoolExecutor(8) as pool:
        contents = list(pool.map(storage_for(path).read, [f"{path}/{name}" for name in members]))
    assert contents == list(members.values())
    assert len(files) == 100
    assert [call.operation for call in gcs.log] == ["read"] * requests


@pytest.fixture
def no_whole(monkeypatch):
    """All members are large."""
    monkeypatch.setattr(zip_storage, "WHOLE_BYTES", 0)


CONTENT = random.Random(0).randbytes(300_000) + bytes(200_000)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_large_member_is_streamed_unchanged_read(tmp_path, no_whole, method, monkeypatch):
    path = archive(tmp_path / "a.zip", {"a.json": CONTENT, "b": b"after"}, method)
    storage, member = storage_for(path), f"{path}/a.json"
    whole = storage.read(member)
    plain = tmp_path / "a.json"
    plain.write_bytes(CONTENT)
    monkeypatch.delattr(ZipStorage, "read")
    with storage.open(member) as file:
        assert file.read(7) == whole[:7]
        file.seek(0)
        assert file.read() == whole
    assert storage.checksum(member) == storage_for(str(plain)).checksum(str(plain))
    with pytest.raises(ChangedFileError):
        storage.open(member, "00000000")


def test_ranges_of_large_stored_member_are_ranges_of_archive(tmp_path, no_whole, monkeypatch):
    path = archive(tmp_path / "a.zip", {"a.json": CONTENT, "b": b"after"}, zipfile.ZIP_STORED)
    storage, member = storage_for(path), f"{path}/a.json"
    version = storage.stat(member).version
    monkeypatch.delattr(ZipStorage, "read")
    for start, length in ((0, 5), (1000, 250_000), (499_990, 100), (500_000, 5), (600_000, 5)):
        assert storage.read_range(member, start, length, version) == CONTENT[start : start + length]
    with pytest.raises(ChangedFileError):
        storage.read_range(member, 0, 5, "00000000")
    data = bytearray(Path(path).read_bytes())
    data[0] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(UnreadableFileError, match="no header") as caught:
        storage.read_range(member, 0, 5)
    assert caught.value.filename == member


def test_stream_is_of_archive_that_was_opened(tmp_path, no_whole):
    path = archive(tmp_path / "a.zip", {"a.json": random.Random(0).randbytes(3 << 20)}, zipfile.ZIP_STORED)
    with storage_for(path).open(f"{path}/a.json") as file:
        file.read(10)
        os.utime(path, (1, 1))
        with pytest.raises(ChangedFileError) as caught:
            file.read()
    assert caught.value.filename == path


def test_large_member_in_bucket_is_streamed_of_one_generation(tmp_path, no_whole, gcs):
    content = random.Random(0).randbytes(9 << 20)
    path = archive(tmp_path / "a.zip", {"a.json": content}, zipfile.ZIP_DEFLATED)
    gcs.put("streamed.zip", Path(path).read_bytes())
    storage, member = storage_for(path_of("streamed.zip")), path_of("streamed.zip/a.json")
    with storage.open(member) as file:
        assert file.read() == content
    with storage.open(member) as file:
        file.read(10)
        gcs.put("streamed.zip", Path(path).read_bytes())
        with pytest.raises(FileNotFoundError):
            file.read()


def test_members_behind_others_data_are_found(tmp_path):
    """A self-extracting archive begins with a program; the places in its directory are counted from behind that."""
    path = archive(tmp_path / "plain.zip", MEMBERS)
    moved = tmp_path / "moved.zip"
    moved.write_bytes(b"#!/bin/sh\n" * 100 + Path(path).read_bytes())
    assert storage_for(str(moved)).read(f"{moved}/val/deep/2.png") == MEMBERS["val/deep/2.png"]


def test_member_is_read_no_further_than_its_reader_takes(tmp_path):
    path = f"{archive(tmp_path / 'a.zip', {'zeros': bytes(1_000_000)})}/zeros"
    storage = storage_for(path)
    with pytest.raises(FileTooLargeError, match="1,000,000 bytes; the limit is 999,999"):
        storage.read(path, most_bytes=999_999)
    assert storage.read(path, most_bytes=1_000_000) == bytes(1_000_000)


def test_oversized_member_is_not_read(tmp_path):
    """Its directory says that one byte is packed in ten gigabytes, which take no room on the disk."""
    archive(tmp_path / "a.zip", {"one": b"1"}, zipfile.ZIP_STORED)
    data = (tmp_path / "a.zip").read_bytes()
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    directory = bytearray(data[start:end])
    directory[20:24] = struct.pack("<I", 4_000_000_000)
    tail = bytearray(data[end:])
    tail[16:20] = struct.pack("<I", 4_000_000_100)
    with open(tmp_path / "a.zip", "r+b") as file:
        file.seek(4_000_000_100)
        file.write(directory + tail)
    storage, path = storage_for(str(tmp_path / "a.zip")), str(tmp_path / "a.zip" / "one")
    with pytest.raises(FileTooLargeError, match="4,000,000,000 bytes"):
        storage.read(path, most_bytes=256_000_000)


def test_last_member_of_a_name_counts(tmp_path, caplog):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data in (b"first", b"second", b"last"):
            file.writestr("a.jpg", data)
    storage = storage_for(str(tmp_path / "a.zip"))
    (file,) = storage.walk(str(tmp_path / "a.zip"))
    assert storage.read(file.path, file.version) == b"last"
    (told,) = caplog.messages
    assert told.endswith("a.zip: 2 members have the name of a later one, and are ignored")


def test_directories_of_many_archives_are_not_all_kept(tmp_path):
    def count_directories() -> int:
        gc.collect()
        return sum(isinstance(item, Directory) for item in gc.get_objects())

    before = count_directories()
    for number in range(40):
        path = archive(tmp_path / f"{number}.zip", MEMBERS)
        assert storage_for(path).is_folder(f"{path}/val")
    assert count_directories() - before < 40
