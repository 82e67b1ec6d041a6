import io
import random
import struct
import tracemalloc
import zipfile
from functools import partial

import pytest

from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.member_stream import MemberStream
from recordmill.transforms.storage.zip_directory import Directory
from recordmill.transforms.storage.zip_members import MOST_BESIDES, Member

METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
CONTENT = random.Random(0).randbytes(300_000) + bytes(3_000_000) + b'{"id": 1}, ' * 50_000


class Archive:
    """An archive in memory of a member between two others, and the ranges that were read of it."""

    def __init__(self, method: int, content: bytes = CONTENT, extra: bytes = b"", stream: io.BytesIO | None = None):
        stream = stream or io.BytesIO()
        with zipfile.ZipFile(stream, "w") as file:
            for name, data in (("before", b"b" * 500_000), ("a.json", content), ("after", b"a" * 500_000)):
                info = zipfile.ZipInfo(name)
                info.extra = extra
                file.writestr(info, data, method if name == "a.json" else zipfile.ZIP_STORED)
        self.data = bytearray(stream.getvalue())
        self.reads: list[tuple[int, int]] = []

    @property
    def entry(self) -> int:
        """Where the directory's entry of the member begins."""
        return self.data.rindex(b"a.json") - 46

    def member(self) -> Member:
        found = Directory(lambda start, length: bytes(self.data[start : start + length]), "a.zip", len(self.data))
        member = found.find("a.json")
        assert member
        return member

    def open(self) -> MemberStream:
        return MemberStream(self.read_range, 1, self.member(), "a.zip/a.json")

    def read_range(self, start: int, length: int) -> bytes:
        self.reads.append((start, length))
        return bytes(self.data[start : start + length])


class Pipe(io.BytesIO):
    """What is written into it cannot go back, so that a member's sizes come after it."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError


def read_all(stream: MemberStream, size: int = 100_000) -> bytes:
    return b"".join(iter(partial(stream.read, size), b""))


@pytest.mark.parametrize("extra", [b"", struct.pack("<HH", 0xCAFE, 65_000) + bytes(65_000)])
@pytest.mark.parametrize("content", [CONTENT, b"", b"1", bytes(1 << 20), bytes((1 << 20) + 1)])
@pytest.mark.parametrize("method", METHODS)
def test_a_member_is_read_in_pieces(method, content, extra):
    archive = Archive(method, content, extra)
    assert read_all(archive.open()) == content
    member = archive.member()
    starts, lengths = zip(*archive.reads, strict=True)
    assert starts == (member.start, *(start + length for start, length in archive.reads[:-1]))
    assert max(lengths) <= MOST_BESIDES
    assert sum(lengths) <= member.length


@pytest.mark.parametrize("method", METHODS)
def test_what_comes_after_a_member_is_not_of_it(method):
    assert read_all(Archive(method, b"1", stream=Pipe()).open()) == b"1"


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_may_go_back_and_forth(method):
    file, expected = io.BufferedReader(Archive(method).open()), io.BytesIO(CONTENT)
    rng = random.Random(1)
    for _ in range(12):
        step = rng.choice([(rng.randrange(len(CONTENT)), 0), (rng.randrange(100_000), 1), (-rng.randrange(9999), 2)])
        assert file.seek(*step) == expected.seek(*step)
        assert file.read(70_000) == expected.read(70_000)
        assert file.tell() == expected.tell()
    file.seek(0)
    assert file.read() == CONTENT
    with pytest.raises(OSError, match="before the file's start"):
        Archive(method).open().seek(-1)


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_takes_the_memory_of_a_few_pieces(method):
    archive = Archive(method, random.Random(0).randbytes(1 << 20) * 40)
    stream = archive.open()
    tracemalloc.start()
    try:
        while stream.read(1 << 20):
            pass
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()


# Damage


def checksum(archive: Archive) -> None:
    archive.data[archive.entry + 16] ^= 1


def smaller(archive: Archive) -> None:
    struct.pack_into("<I", archive.data, archive.entry + 24, len(CONTENT) - 1)


def larger(archive: Archive) -> None:
    struct.pack_into("<I", archive.data, archive.entry + 24, len(CONTENT) + 1)


def content(archive: Archive) -> None:
    archive.data[archive.member().start + 200_000] ^= 1


def end(archive: Archive) -> None:
    """Half of what is packed is there."""
    packed = archive.member().packed_bytes
    struct.pack_into("<I", archive.data, archive.entry + 20, packed // 2)


@pytest.mark.parametrize("damage", [checksum, smaller, larger, content, end])
@pytest.mark.parametrize("method", METHODS)
def test_damage_is_told(method, damage):
    archive = Archive(method)
    damage(archive)
    with pytest.raises(UnreadableFileError, match="damaged or encrypted") as caught:
        read_all(archive.open())
    assert caught.value.filename == "a.zip/a.json"


def test_a_damaged_member_does_not_seem_to_end_for_who_goes_on():
    archive = Archive(zipfile.ZIP_STORED)
    checksum(archive)
    stream = archive.open()
    for read in (read_all, read_all, lambda stream: stream.seek(0) or read_all(stream)):
        with pytest.raises(UnreadableFileError, match="its checksum is not that"):
            read(stream)


def encrypted(archive: Archive) -> None:
    archive.data[archive.entry + 8] |= 1


def unknown_method(archive: Archive) -> None:
    archive.data[archive.entry + 10] = 99


def header(archive: Archive) -> None:
    archive.data[archive.member().start] ^= 1


def other_name(archive: Archive) -> None:
    archive.data[archive.data.index(b"a.json")] = ord("b")


@pytest.mark.parametrize("damage", [encrypted, unknown_method, header, other_name])
def test_what_cannot_be_read_at_all_is_told_as_it_is_opened(damage):
    archive = Archive(zipfile.ZIP_DEFLATED)
    damage(archive)
    with pytest.raises(UnreadableFileError):
        archive.open()


@pytest.mark.parametrize("method", METHODS)
def test_no_more_is_unpacked_than_a_piece_beyond_what_the_directory_says(method):
    archive = Archive(method, bytes(64_000_000))
    struct.pack_into("<I", archive.data, archive.entry + 24, 3_000_000)
    given: list[bytes] = []
    with pytest.raises(UnreadableFileError):
        given.extend(iter(partial(archive.open().read, 1 << 20), b""))
    assert len(b"".join(given)) <= 3_000_000
    assert sum(length for _, length in archive.reads) < 4_500_000


def test_a_storage_that_fails_is_not_taken_for_damage():
    archive = Archive(zipfile.ZIP_BZIP2, random.Random(0).randbytes(3_000_000))
    stream = archive.open()

    def fail(start: int, length: int) -> bytes:
        raise ConnectionResetError("reset")

    stream._read_range = fail
    for _ in range(2):  # nor for the end
        with pytest.raises(ConnectionResetError):
            read_all(stream)
