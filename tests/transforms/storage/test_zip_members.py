import io
import struct
import tracemalloc
import zipfile
import zlib

import pytest

from recordmill.transforms.storage.zip_directory import Directory
from recordmill.transforms.storage.zip_members import DamagedMemberError, unpack

PLAIN = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
MEMBERS = {"a.png": b"one", "b/é ü.png": b"two" * 1000, "empty": b"", "last": bytes(range(256))}


class Archive:
    """An archive in memory."""

    def __init__(self, members: dict[str, bytes] = MEMBERS, method: int = zipfile.ZIP_DEFLATED, extra: bytes = b""):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", method) as file:
            for name, data in members.items():
                info = zipfile.ZipInfo(name)
                info.extra = extra
                file.writestr(info, data, method)
        self.data = bytearray(stream.getvalue())

    @property
    def directory(self) -> int:
        """Where the directory's first entry begins."""
        return self.data.index(b"PK\x01\x02")

    def read(self) -> dict[str, bytes]:
        """Each member out of the bytes of its span."""
        return {
            member.name: unpack(self.range(member.start, member.length), member)
            for member in Directory(self.range, "a.zip", len(self.data))
        }

    def range(self, start: int, length: int) -> bytes:
        return bytes(self.data[start : start + length])


@pytest.mark.parametrize("method", PLAIN)
@pytest.mark.parametrize("extra", [b"", struct.pack("<HH", 0xCAFE, 50_000) + bytes(50_000)])
def test_every_member_is_in_its_span(method, extra):
    assert Archive(method=method, extra=extra).read() == MEMBERS


def test_a_name_of_old_archives_is_not_taken_for_another():
    """In the characters of DOS, as there is no flag that says UTF-8."""
    archive = Archive({"x.png": b"one"})
    for place in (archive.data.index(b"x.png"), archive.data.rindex(b"x.png")):
        archive.data[place] = 0x81  # ü
    assert archive.read() == {"ü.png": b"one"}


# Damage


@pytest.mark.parametrize("method", [9, 93, 99])
def test_a_method_that_is_not_known_is_told(method):
    archive = Archive({"a.png": b"abc"})
    struct.pack_into("<H", archive.data, archive.directory + 10, method)
    with pytest.raises(DamagedMemberError, match=f"method {method}, which is not supported"):
        archive.read()


@pytest.mark.parametrize("method", PLAIN[1:])
def test_a_member_that_unpacks_to_more_than_it_says_takes_no_memory(method):
    """64 MB of zeros are some bytes of bzip2 or LZMA."""
    archive = Archive({"a.png": bytes(64_000_000)}, method)
    struct.pack_into("<I", archive.data, archive.directory + 24, 1000)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedMemberError):
            archive.read()
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", PLAIN)
def test_a_header_of_another_name_than_the_directory_s_is_told(method):
    archive = Archive({"a.png": b"abc"}, method)
    archive.data[archive.data.index(b"a.png")] = ord("b")
    with pytest.raises(DamagedMemberError, match="another name than the directory"):
        archive.read()


@pytest.mark.parametrize("said", [0, 10, 999, 1001])
@pytest.mark.parametrize("method", PLAIN)
def test_no_more_and_no_less_is_unpacked_than_the_directory_says(said, method):
    archive = Archive({"a.png": bytes(1000)}, method)
    struct.pack_into("<I", archive.data, archive.directory + 24, said)
    struct.pack_into("<I", archive.data, archive.directory + 16, zlib.crc32(bytes(said)))
    with pytest.raises(DamagedMemberError, match=r"does not end where it should|bytes where the directory says"):
        archive.read()


@pytest.mark.parametrize("method", PLAIN)
def test_bytes_of_another_checksum_are_told(method):
    archive = Archive({"a.png": b"abc"}, method)
    archive.data[archive.directory + 16] ^= 1
    with pytest.raises(DamagedMemberError, match="checksum"):
        archive.read()


@pytest.mark.parametrize("length", [0, 29, 34, 60])
def test_a_span_that_is_cut_is_told(length):
    """As where the archive has become shorter since its directory was read."""
    archive = Archive({"a.png": b"abc" * 100}, zipfile.ZIP_STORED)
    (member,) = Directory(archive.range, "a.zip", len(archive.data))
    with pytest.raises(DamagedMemberError):
        unpack(bytes(archive.data[:length]), member)


def test_what_is_encrypted_is_told_as_such():
    archive = Archive({"a.png": b"abc"})
    archive.data[archive.directory + 8] |= 1
    with pytest.raises(DamagedMemberError, match="it is encrypted"):
        archive.read()
