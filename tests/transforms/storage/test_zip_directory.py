import io
import struct
import tracemalloc
import zipfile
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.storage import zip_directory
from recordmill.transforms.storage.zip_directory import Directory

ENTRY, END, END_64, LOCATOR_64 = b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"


def packed(names: Iterable[str], comment: bytes = b"", extra: bytes = b"", note: bytes = b"") -> bytearray:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for number, name in enumerate(names):
            info = zipfile.ZipInfo(name)
            info.extra, info.comment = extra, note
            file.writestr(info, bytes([number % 256]) * number)
        file.comment = comment
    return bytearray(stream.getvalue())


def opened(data: bytes | bytearray) -> Directory:
    return Directory(lambda start, length: bytes(data[start : start + length]), "a.zip", len(data))


def facts(data: bytes | bytearray) -> list[tuple[str, int, int, int, int, int]]:
    """What zipfile finds, and we should."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return [
            (info.filename, info.header_offset, info.compress_size, info.file_size, info.CRC, info.compress_type)
            for info in file.infolist()
            if not info.is_dir()
        ]


def found(data: bytes | bytearray) -> list[tuple[str, int, int, int, int, int]]:
    directory = opened(data)
    assert [directory.find(member.name) for member in directory] == list(directory)
    return [(m.name, m.start, m.packed_bytes, m.size_bytes, m.crc32, m.method) for m in directory]


NAMES = st.lists(st.text(min_size=1, max_size=5).filter(lambda n: "\0" not in n), unique=True)


@given(NAMES, st.binary(max_size=300), st.sampled_from([b"", struct.pack("<HHI", 0x5455, 4, 7)]), st.binary(max_size=9))
def test_members_are_those_that_zipfile_finds(names, comment, extra, note):
    data = packed(names, comment.replace(END, b""), extra, note)
    assert found(data) == facts(data)


@pytest.mark.parametrize("step", [300, 1000, 1 << 20])
def test_a_directory_is_read_in_steps_that_need_not_end_where_a_member_does(step, monkeypatch):
    monkeypatch.setattr(zip_directory, "_STEP", step)
    data = packed((f"{number}/é{number}.jpg" for number in range(2000)), note=b"note" * 20)
    reads: list[int] = []

    def read(start: int, length: int) -> bytes:
        reads.append(length)
        return bytes(data[start : start + length])

    assert [member.name for member in Directory(read, "a.zip", len(data))] == [name for name, *_ in facts(data)]
    assert max(reads[1:]) <= step


def test_a_small_directory_comes_with_the_archive_s_end():
    data, reads = packed(["a", "b"]), []

    def read(start: int, length: int) -> bytes:
        reads.append((start, length))
        return bytes(data[start : start + length])

    assert len(list(Directory(read, "a.zip", len(data)))) == 2
    assert reads == [(0, len(data))]


def test_the_longest_comment_may_stand_at_the_end():
    data = packed(["a"], b"x" * 65_535)
    assert found(data) == facts(data)


def test_a_directory_where_the_end_s_own_signature_is_a_number_of_the_end():
    """As of an archive whose directory begins behind 101,010,256 bytes."""
    data = packed(["a"])
    data[-6:-2] = END
    data[-10:-6] = struct.pack("<I", len(data) - 22 - data.index(ENTRY))
    assert [member.name for member in opened(data)] == ["a"]


def with_numbers_of_64_bits(in_extra: bytes, fields: dict[int, int]) -> bytearray:
    """An archive of one member, in whose directory stands another extra field, and other numbers."""
    data = packed(["a"], extra=bytes(4 + 3 * 8 + 4))
    at = data.index(ENTRY)
    data[at + 47 : at + 47 + len(in_extra)] = in_extra
    for offset, value in fields.items():
        struct.pack_into("<I", data, at + offset, value)
    return data


PACKED, SIZE, START = 20, 24, 42
FULL = 0xFFFF_FFFF


@pytest.mark.parametrize("fields", [[SIZE], [PACKED], [START], [SIZE, START], [PACKED, START], [SIZE, PACKED, START]])
@pytest.mark.parametrize("before", [b"", struct.pack("<HH", 0x5455, 0)])
def test_numbers_of_more_than_32_bits_are_those_that_zipfile_finds(fields, before):
    numbers = struct.pack(f"<{len(fields)}Q", *(10_000_000_000 + field for field in fields))
    data = with_numbers_of_64_bits(before + struct.pack("<HH", 1, len(numbers)) + numbers, dict.fromkeys(fields, FULL))
    assert found(data) == facts(data)


def test_numbers_that_no_file_reaches_end_no_member_before_its_start():
    numbers = struct.pack("<HH3Q", 1, 24, *[(1 << 64) - 1] * 3)
    (member,) = opened(with_numbers_of_64_bits(numbers, dict.fromkeys((SIZE, PACKED, START), FULL)))
    assert member.start > 1 << 60
    assert member.size_bytes > 1 << 60
    assert member.length == 0


def test_a_member_ends_where_the_next_one_or_the_directory_begins():
    """Whatever order the directory names them in, and where two are the same bytes."""
    data = packed(["a", "b", "c", "d"])
    first, second, third, fourth = (start for _, start, *_ in facts(data))
    at = data.index(ENTRY)
    entries = [bytearray(data[at + 47 * number : at + 47 * (number + 1)]) for number in range(4)]
    entries[1][START : START + 4] = struct.pack("<I", third)
    data[at : at + 4 * 47] = b"".join(entries[::-1])
    assert {member.name: (member.start, member.length) for member in opened(data)} == {
        "a": (first, third - first),
        "b": (third, fourth - third),
        "c": (third, fourth - third),
        "d": (fourth, at - fourth),
    }
    assert second < third


def test_a_member_is_no_longer_than_it_can_be():
    """As where there are gigabytes of something else behind it."""
    numbers = struct.pack("<HHQ", 1, 8, 0)
    data = with_numbers_of_64_bits(numbers, {START: FULL, PACKED: 1000})
    at = data.index(ENTRY)
    data = data[:at] + bytes(200_000) + data[at:]
    data[-6:-2] = struct.pack("<I", at + 200_000)
    (member,) = opened(data)
    assert (member.start, member.length) == (0, 30 + 1 + 65_535 + 1000)


def test_what_stands_behind_a_zero_in_a_name_is_none_of_it():
    data = packed(["a.jpg_x", "hidden"])
    data[data.index(ENTRY) + 46 + 5] = data[data.rindex(ENTRY) + 46] = 0
    assert [member.name for member in opened(data)] == ["a.jpg"]


def test_names_that_nobody_has_are_not_found():
    directory = opened(packed(["a.jpg", "folder/", "folder/b.jpg"]))
    assert [directory.find(name) for name in ("", "a.jp", "a.jpg/", "folder/", "\ud800")] == [None] * 5


def test_of_one_name_the_last_is_found_whatever_stands_between():
    data = packed(["a", "b", "c", "a/"])
    for at, name in zip([data.index(ENTRY), data.index(ENTRY) + 47], "cc", strict=False):
        data[at + 46] = ord(name)
    directory = opened(data)
    assert [(member.name, member.size_bytes) for member in directory] == [("c", 2)]
    assert directory.repeated == 2


# Damage


def no_end(data: bytearray) -> None:
    data[data.index(END)] ^= 1


def other_signature(data: bytearray) -> None:
    data[data.rindex(ENTRY)] ^= 1


def longer_name(data: bytearray) -> None:
    data[data.rindex(ENTRY) + 28] += 1


def shorter_directory(data: bytearray) -> None:
    data[-10] -= 1


def larger_directory(data: bytearray) -> None:
    data[-7] = 255


def bad_utf_8(data: bytearray) -> None:
    at = data.index(ENTRY)
    data[at + 9] |= 8
    data[at + 46] = 0xFF


@pytest.mark.parametrize(
    "damage", [no_end, other_signature, longer_name, shorter_directory, larger_directory, bad_utf_8]
)
def test_a_damaged_directory_is_refused(damage):
    data = packed(["a", "b"])
    damage(data)
    with pytest.raises(ValueError, match=r"directory|utf-8"):
        opened(data)


def ending_64(**changed: int) -> bytes:
    numbers = {"size": 47, "offset": 31, "part": 0, "parts": 1} | changed
    return struct.pack("<4s36xQQ", END_64, numbers["size"], numbers["offset"]) + struct.pack(
        "<4sI8xI", LOCATOR_64, numbers["part"], numbers["parts"]
    )


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"part": 1}, "one of several parts"),
        ({"parts": 2}, "one of several parts"),
        ({"offset": (1 << 64) - 1}, "not where its end says"),
        ({"size": (1 << 64) - 1}, "not where its end says"),
    ],
)
def test_an_end_of_64_bits(changed, fault):
    data = packed(["a"])
    at = data.index(END)
    assert [member.start for member in opened(data[:at] + ending_64() + data[at:])] == [0]
    with pytest.raises(ValueError, match=fault):
        opened(data[:at] + ending_64(**changed) + data[at:])


def test_numbers_of_64_bits_that_are_missing_are_told():
    data = with_numbers_of_64_bits(struct.pack("<HHI", 1, 4, 0), {SIZE: FULL})
    with pytest.raises(ValueError, match="64 bits are missing"):
        opened(data)


def test_an_archive_that_became_shorter_is_no_damaged_one():
    data = packed(["a"])
    with pytest.raises(OSError, match="bytes came where there are") as caught:
        Directory(lambda start, length: bytes(data[start : start + length]), "a.zip", len(data) + 1)
    assert caught.value.filename == "a.zip"


def test_a_hundred_thousand_members_take_less_than_a_hundred_bytes_each():
    count = 100_000
    data = _many(count)
    tracemalloc.start()
    try:
        directory = opened(data)
        assert tracemalloc.get_traced_memory()[0] < 120 * count
        assert tracemalloc.get_traced_memory()[1] < 30_000_000 + 120 * count
    finally:
        tracemalloc.stop()
    assert directory.find(f"{count - 1:012}.jpg")


def _many(count: int) -> bytes:
    """The directory of so many members, none of which is there."""
    head = struct.pack("<4s6H3I5H2I", ENTRY, 20, 20, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0)
    entries = b"".join(head + b"%012d.jpg" % number for number in range(count))
    return entries + struct.pack("<4s4H2IH", END, 0, 0, 0, 0, len(entries), 0, 0)
