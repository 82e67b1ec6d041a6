import io
import random
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.storage import zip_archive
from recordmill.transforms.storage.zip_archive import DamagedMemberError, Directory, Member, unpack

METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
ENTRY, END, END_64, LOCATOR_64 = b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
FLAGS, METHOD, CRC, PACKED, SIZE, START = 8, 10, 16, 20, 24, 42  # offsets in an entry of a directory
FULL = 0xFFFF_FFFF
WIDE = struct.pack("<HH", 0xCAFE, 65_000) + bytes(65_000)


def archive(
    members: dict[str, bytes], method: int = zipfile.ZIP_STORED, extra: bytes = b"", stream: io.BytesIO | None = None
) -> bytearray:
    stream = stream or io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.extra = extra
            file.writestr(info, data, method)
    return bytearray(stream.getvalue())


def opened(data: bytes | bytearray) -> Directory:
    return Directory(lambda start, length: bytes(data[start : start + length]), "a.zip", len(data))


def put(data: bytearray, offset: int, form: str, value: int) -> None:
    """Change a number in the first entry of the directory."""
    struct.pack_into(form, data, data.index(ENTRY) + offset, value)


def read(data: bytearray, member: Member | None = None, step: int = 1 << 20) -> bytes:
    """Return the content of a member, the first by default, out of ranges of `step` bytes."""
    member = member or next(iter(opened(data)))
    ends = range(member.start, member.start + member.length, step)
    pieces = (bytes(data[at : min(at + step, member.start + member.length)]) for at in ends)
    return b"".join(unpack(member, pieces, 1 << 20))


# The directory


@given(
    st.lists(st.text(min_size=1, max_size=5).filter(lambda name: "\0" not in name), unique=True),
    st.binary(max_size=300),
    st.sampled_from([b"", struct.pack("<HHI", 0x5455, 4, 7)]),
)
def test_directory_is_that_of_zipfile(names, comment, extra):
    data = archive({name: bytes([number % 256]) * number for number, name in enumerate(names)}, extra=extra)
    with zipfile.ZipFile(stream := io.BytesIO(data), "a") as file:
        file.comment = comment.replace(END, b"")
        expected = {
            (info.filename, info.header_offset, info.compress_size, info.file_size, info.CRC, info.compress_type)
            for info in file.infolist()
            if not info.is_dir()
        }
    directory = opened(stream.getvalue())
    assert [directory.find(member.name) for member in directory] == list(directory)
    assert {(m.name, m.start, m.packed_bytes, m.size_bytes, m.crc32, m.method) for m in directory} == expected


def test_requests_for_a_directory(monkeypatch):
    """A small one comes with the archive's end; of a large one, so much at a time."""
    monkeypatch.setattr(zip_archive, "_STEP", 100_000)
    for count, expected in ((2, 1), (5000, 4)):
        data, reads = archive({f"{number}.jpg": b"" for number in range(count)}), []

        def counted(start: int, length: int, data: bytes = data, reads: list[int] = reads) -> bytes:
            reads.append(length)
            return bytes(data[start : start + length])

        assert len(list(Directory(counted, "a.zip", len(data)))) == count
        assert len(reads) == expected
        assert max(reads) <= 100_000


def test_members_end_where_next_or_directory_starts():
    data = archive(dict.fromkeys("abcd", b""))
    starts = [member.start for member in opened(data)]
    put(data, 47 + START, "<I", starts[2])  # b has the bytes of c
    assert [(member.start, member.length) for member in opened(data)] == [
        (starts[0], starts[2] - starts[0]),
        *[(starts[2], starts[3] - starts[2])] * 2,
        (starts[3], data.index(ENTRY) - starts[3]),
    ]


def test_member_is_no_longer_than_it_can_be():
    """Gigabytes of other data may follow the member."""
    data = archive({"a": b"abc"})
    at = data.index(ENTRY)
    data = data[:at] + bytes(200_000) + data[at:]
    data[-6:-2] = struct.pack("<I", at + 200_000)
    (member,) = opened(data)
    assert (member.start, member.length) == (0, 30 + 2 * 65_535 + 3)


def test_find():
    data = archive({"a.jpg_x": b"", "folder/": b"", "folder/b.jpg": b"", "../x": b""})
    data[data.index(ENTRY) + 46 + 5] = 0  # what follows a zero is not of the name
    directory = opened(data)
    assert [member.name for member in directory] == ["../x", "a.jpg", "folder/b.jpg"]
    assert directory.tops == {"", "../", "folder/"}
    assert [directory.find(name) for name in ("", "a.jp", "a.jpg/", "folder/", "x", "\ud800")] == [None] * 6


def test_of_one_name_last_is_found():
    data = archive({name: name.encode() * number for number, name in enumerate(("a", "b", "c", "a/"))})
    for number in range(2):
        data[data.index(ENTRY) + 47 * number + 46] = ord("c")
    directory = opened(data)
    assert [(member.name, member.size_bytes) for member in directory] == [("c", 2)]
    assert directory.repeated == 2


def test_a_name_of_old_archives():
    """In the characters of DOS, as no flag says UTF-8."""
    data = archive({"x.png": b"one"})
    for at in (data.index(b"x.png"), data.rindex(b"x.png")):
        data[at] = 0x81
    assert [member.name for member in opened(data)] == ["ü.png"]
    assert read(data) == b"one"


def with_numbers_of_64_bits(numbers: dict[int, int]) -> bytearray:
    """An archive of one member, whose numbers are in an extra field of the directory."""
    data = archive({"a": b""}, extra=bytes(28))
    extra = struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers.values())
    at = data.index(ENTRY) + 47
    data[at : at + len(extra)] = extra
    for offset in numbers:
        put(data, offset, "<I", FULL)
    return data


def test_zip64():
    (member,) = opened(with_numbers_of_64_bits({SIZE: 10**10, PACKED: 2 * 10**10, START: 3 * 10**10}))
    assert (member.size_bytes, member.packed_bytes, member.start) == (10**10, 2 * 10**10, 3 * 10**10)
    assert member.length == 0  # it would begin behind the directory
    with pytest.raises(ValueError, match="that no file can have"):
        opened(with_numbers_of_64_bits({SIZE: 1 << 63}))


def test_archive_that_became_shorter_is_not_damaged_one():
    data = archive({"a": b""})
    with pytest.raises(OSError, match="bytes were read instead of") as caught:
        Directory(lambda start, length: bytes(data[start : start + length]), "a.zip", len(data) + 1)
    assert caught.value.filename == "a.zip"


@pytest.mark.parametrize(
    ("at", "byte"),
    [
        (lambda data: data.index(END), 0),
        (lambda data: data.rindex(ENTRY), 0),
        (lambda data: len(data) - 7, 255),  # a larger directory
        (lambda data: data.index(ENTRY) + 6, 255),  # a version that zipfile refuses
    ],
)
def test_damaged_directory_is_refused(at, byte):
    data = archive({"a": b"", "b": b""})
    data[at(data)] = byte
    with pytest.raises(ValueError, match=r"\w"):
        opened(data)


def test_members_take_some_hundred_bytes_each():
    head = struct.pack("<4s6H3I5H2I", ENTRY, 20, 20, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0)
    entries = b"".join(head + b"%012d.jpg" % number for number in range(20_000))
    data = entries + struct.pack("<4s4H2IH", END, 0, 0, 0, 0, len(entries), 0, 0)
    tracemalloc.start()
    try:
        directory = opened(data)
        assert tracemalloc.get_traced_memory()[0] < 130 * 20_000
    finally:
        tracemalloc.stop()
    assert directory.find("000000019999.jpg")


# Members

CONTENT = random.Random(0).randbytes(300_000) + bytes(3_000_000) + b'{"id": 1}, ' * 50_000


class Pipe(io.BytesIO):
    """Output without seek, so that a member's sizes follow it in a data descriptor."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError


@pytest.mark.parametrize("stream", [io.BytesIO, Pipe])
@pytest.mark.parametrize("extra", [b"", WIDE])
@pytest.mark.parametrize("method", METHODS)
def test_unpack(method, extra, stream):
    members = {"a": b"", "b": b"1", "c": bytes(1 << 20), "d": bytes((1 << 20) + 1), "é ü": CONTENT}
    data = archive(members, method, extra, stream())
    assert {member.name: read(data, member, 200_000) for member in opened(data)} == members


@pytest.mark.parametrize("method", METHODS)
def test_unpack_takes_memory_of_few_pieces(method):
    size, most = (16 << 20, 14_000_000) if method == zipfile.ZIP_LZMA else (4 << 20, 3_000_000)
    data = archive({"a": random.Random(0).randbytes(1 << 20) * (size >> 20)}, method)
    (member,) = opened(data)
    pieces = (bytes(data[at : at + 200_000]) for at in range(0, member.length, 200_000))
    tracemalloc.start()
    try:
        assert sum(map(len, unpack(member, pieces, 1 << 20))) == size
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def damaged(data: bytearray) -> None:
    data[500] ^= 1


FAULTS = {
    "encrypted": (lambda data: put(data, FLAGS, "<H", 1), "it is encrypted"),
    "unknown method": (lambda data: put(data, METHOD, "<H", 99), "method 99, which is not supported"),
    "no header": (lambda data: data.__setitem__(0, 0), "it has no header"),
    "checksum": (lambda data: put(data, CRC, "<I", 1), "its checksum differs from the directory's"),
    "smaller": (lambda data: put(data, SIZE, "<I", 999), "bytes instead|does not end"),
    "larger": (lambda data: put(data, SIZE, "<I", 1001), "bytes instead"),
    "cut": (lambda data: put(data, PACKED, "<I", 5), "bytes instead|does not end|end of data|not supported"),
    "damaged": (damaged, "."),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_member(fault, method):
    data = archive({"a": random.Random(0).randbytes(1000)}, method)
    change, message = FAULTS[fault]
    change(data)
    with pytest.raises(DamagedMemberError, match=message):
        read(data)


@pytest.mark.parametrize("length", [0, 29, 34, 60])
def test_a_member_that_is_cut(length):
    data = archive({"a": b"abc" * 100})
    (member,) = opened(data)
    with pytest.raises(DamagedMemberError):
        list(unpack(member, [bytes(data[:length])], 1000))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("crc32", [zlib.crc32(bytes(1000)), 0])
def test_a_zip_bomb_takes_no_memory(method, crc32):
    """64 MB of zeros are some bytes of bzip2 or LZMA."""
    data = archive({"a": bytes(64_000_000)}, method)
    put(data, SIZE, "<I", 1000)
    put(data, CRC, "<I", crc32)
    ranges: list[int] = []
    (member,) = opened(data)

    def pieces() -> Iterable[bytes]:
        for at in range(member.start, member.length, 200_000):
            ranges.append(at)
            yield bytes(data[at : at + 200_000])

    tracemalloc.start()
    try:
        with pytest.raises(DamagedMemberError, match=r"bytes instead of the directory's 1,000|does not end"):
            list(unpack(member, pieces(), 1 << 20))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert len(ranges) == 1
