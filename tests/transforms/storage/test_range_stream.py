import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.storage import range_stream
from recordmill.transforms.storage.range_stream import CachedBlocks, RangeStream

BYTES = bytes(range(256)) * 4


class Ranges:
    """Reads ranges of BYTES, and notes them."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []

    def __call__(self, start: int, length: int) -> bytes:
        self.read.append((start, length))
        return BYTES[start : start + length]


STEPS = st.one_of(
    st.tuples(st.just("read"), st.integers(-1, 1200)),
    st.tuples(st.sampled_from([io.SEEK_SET, io.SEEK_CUR, io.SEEK_END]), st.integers(-1100, 1100)),
)


@given(st.lists(STEPS, max_size=20), st.sampled_from([1, 100, 1024, 5000]))
def test_it_is_read_and_sought_as_bytes_themselves(steps, most):
    ranges = Ranges()
    stream = io.BufferedReader(RangeStream(ranges, "a", len(BYTES), most), 64)
    expected = io.BytesIO(BYTES)
    for how, number in steps:
        if how == "read":
            assert stream.read(number) == expected.read(number)
        else:
            place = number + {io.SEEK_SET: 0, io.SEEK_CUR: expected.tell(), io.SEEK_END: len(BYTES)}[how]
            if place < 0:
                with pytest.raises(OSError, match="the offset is before the start of the file"):
                    stream.seek(number, how)
                stream.seek(expected.tell())
            else:
                assert stream.seek(number, how) == expected.seek(place)
        assert stream.tell() == expected.tell()
    assert all(0 < length <= most for _, length in ranges.read)


@pytest.mark.parametrize(
    ("most", "ranges"), [(20_000, [(0, 20_000)]), (9_000, [(0, 9_000), (9_000, 9_000), (18_000, 2_000)])]
)
def test_all_it_comes_in_ranges_as_large_as_may_be(most, ranges):
    """Each is a request, where it is in a bucket."""
    read: list[tuple[int, int]] = []

    def read_range(start: int, length: int) -> bytes:
        read.append((start, length))
        return bytes(length)

    assert RangeStream(read_range, "a", 20_000, most).read() == bytes(20_000)
    assert read == ranges


def test_range_too_short_is_error():
    with pytest.raises(OSError, match="5 bytes were read instead of 20") as caught:
        RangeStream(lambda start, length: b"short", "a", 20, 20).readall()
    assert caught.value.filename == "a"


def test_an_empty_file():
    ranges = Ranges()
    assert RangeStream(ranges, "a", 0, 1).readall() == b""
    assert ranges.read == []


def test_ranges_of_kept_blocks_are_those_of_the_file(monkeypatch):
    monkeypatch.setattr(range_stream, "_BLOCK_BYTES", 100)
    ranges = Ranges()
    blocks = CachedBlocks(ranges, len(BYTES))
    for start in range(0, 1200, 50):
        for length in (0, 1, 50, 51, 1200):
            assert blocks.read_range(start, length) == BYTES[start : start + length]
    assert sorted(ranges.read) == [(start, 100) for start in range(0, len(BYTES), 100)]
