import io
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from recordmill.transforms.masks import encode_png
from recordmill.transforms.masks.encode_png import UP, grey_png, pack_rows

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=20)
FLAT = hnp.arrays(np.uint8, SHAPES, elements=st.sampled_from([0, 1, 255]))


def pillow(png: bytes) -> np.ndarray:
    """The pixels of a PNG that is 8-bit grey."""
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        assert (image.format, image.mode) == ("PNG", "L")
        return np.asarray(image)


@settings(deadline=None)
@given(hnp.arrays(np.uint8, SHAPES) | FLAT)
def test_pixels_come_back(pixels):
    np.testing.assert_array_equal(pillow(grey_png(pixels)), pixels)


def test_tensorflow_reads_it():
    import tensorflow as tf

    pixels = np.arange(256, dtype=np.uint8).reshape(8, 32).repeat(5, axis=0)
    np.testing.assert_array_equal(tf.io.decode_png(grey_png(pixels), channels=1).numpy()[:, :, 0], pixels)


def test_the_header_says_8_bit_grey_and_nothing_follows_the_end():
    png = grey_png(np.zeros((3, 700), np.uint8))
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert png[8:33] == b"\0\0\0\rIHDR" + b"\0\0\2\xbc\0\0\0\3\x08\0\0\0\0" + png[29:33]
    assert int.from_bytes(png[29:33], "big") == zlib.crc32(png[12:29])
    assert png[-12:] == b"\0\0\0\0IEND\xaeB`\x82"


@pytest.mark.parametrize("order", ["C", "F"])
def test_pixels_need_not_be_contiguous(order):
    pixels = np.asarray(np.arange(60, dtype=np.uint8).reshape(6, 10), order=order)[1::2, ::3]
    np.testing.assert_array_equal(pillow(grey_png(pixels)), pixels)


@pytest.mark.parametrize(
    "pixels", [np.zeros((2, 2), np.int64), np.zeros((2, 2, 1), np.uint8), np.zeros((0, 2), np.uint8)]
)
def test_what_is_no_grey_picture_is_refused(pixels):
    with pytest.raises(ValueError, match="expected uint8"):
        grey_png(pixels)


@settings(deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(1, 9))
def test_blank_rows_are_as_good_as_rows_of_zeros(above, below, count, width):
    if not above + below + count:
        return
    rows = np.arange(count * (1 + width), dtype=np.uint8).reshape(count, 1 + width)
    rows[:, 0] = UP
    expected = np.zeros((above + count + below, width), np.uint8)
    expected[above : above + count] = np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8)
    np.testing.assert_array_equal(pillow(pack_rows(rows, above, below)), expected)


@pytest.mark.parametrize("zeros", [0, 1, 258, 65_521, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_zeros_are_deflated_in_parts_and_checked_as_a_whole(zeros):
    rows = np.arange(1, 31, dtype=np.uint8).reshape(2, 15)
    assert zlib.decompress(encode_png._deflate(rows, zeros, zeros)) == bytes(zeros) + rows.tobytes() + bytes(zeros)


@settings(deadline=None)
@given(st.integers(1, 200_000))
@example(4 * 4 * 258 - 1)
@example(4 * 4 * 258)
@example(5 * 4 * 258)
def test_zeros_are_deflated_to_the_bytes_that_zlib_gives(zeros):
    assert encode_png._few_zero_blocks(zeros) == encode_png._blocks(bytes(zeros))
    assert encode_png._few_zero_blocks(0) == b""


@settings(deadline=None)
@given(st.binary(max_size=50), st.integers(0, 10_000_000))
def test_the_checksum_of_zeros_needs_no_zeros(before, count):
    checksum = zlib.adler32(before)
    assert encode_png._adler32_of_zeros(checksum, count) == zlib.adler32(bytes(count), checksum)


def test_the_same_pixels_are_the_same_bytes_whatever_was_written_before():
    first = pack_rows(np.zeros((1, 11), np.uint8), 40, 50)
    pack_rows(np.zeros((1, 7), np.uint8), 3, 5)
    encode_png._periodic_zero_blocks.cache_clear()
    assert pack_rows(np.zeros((1, 11), np.uint8), 40, 50) == first


def test_a_zlib_that_packs_zeros_in_another_way_is_asked_for_all_of_them(monkeypatch):
    def otherwise(data):  # as zlib does without Z_RLE's matches: stored blocks grow by the byte
        compressor = zlib.compressobj(level=0, wbits=-15)
        return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)

    def forget():
        encode_png._zeros_are_periodic.cache_clear()
        encode_png._periodic_zero_blocks.cache_clear()

    monkeypatch.setattr(encode_png, "_blocks", otherwise)
    forget()
    try:
        assert zlib.decompress(encode_png._few_zero_blocks(50_000) + b"\x03\x00", wbits=-15) == bytes(50_000)
    finally:
        forget()
