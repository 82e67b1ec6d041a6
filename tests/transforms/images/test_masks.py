import io
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image
from pycocotools import mask as coco_mask

from recordmill.transforms.images import masks
from recordmill.transforms.images.masks import (
    UP,
    bitmap,
    grey_png,
    mask_bounds,
    mask_png,
    mask_rle,
    pack_rows,
    resize_nearest,
    run_lengths,
)

SHAPES = array_shapes(min_dims=2, max_dims=2, max_side=20)


@given(arrays(bool, SHAPES))
def test_run_lengths_and_back(pixels):
    height, width = pixels.shape
    assert np.array_equal(bitmap(run_lengths(pixels), width, height), pixels)


@given(SHAPES.flatmap(lambda shape: st.lists(arrays(bool, shape), max_size=3)))
def test_bounds_of_masks_are_their_pixels(masks):
    height, width = masks[0].shape if masks else (4, 3)
    expected = np.full((len(masks), 4), np.nan)
    for row, pixels in enumerate(masks):
        rows, columns = np.nonzero(pixels)
        if len(rows):
            expected[row] = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
    found = mask_bounds([mask_rle(run_lengths(pixels)) for pixels in masks], width, height)
    np.testing.assert_array_equal(found, expected)


@given(arrays(np.uint8, SHAPES), st.integers(1, 40), st.integers(1, 40))
def test_resized_as_pillow_does_it(pixels, width, height):
    expected = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST))
    found = resize_nearest(pixels, width, height)
    assert found.shape == (height, width)
    # Pillow counts in 16.16 fixed point: a middle on a border may fall to either side of it.
    rows, columns = (
        (np.arange(new) + 0.5) * old / new for new, old in ((height, pixels.shape[0]), (width, pixels.shape[1]))
    )
    inside = [np.abs(middles - middles.round()) > 1e-3 for middles in (rows, columns)]
    clear = np.ix_(*inside)
    assert np.array_equal(found[clear], expected[clear])


def test_colours_stay_together():
    pixels = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)
    assert np.array_equal(resize_nearest(pixels, 2, 1), pixels[1:, 1::2])


FLAT = arrays(np.uint8, SHAPES, elements=st.sampled_from([0, 1, 255]))


def pillow(png: bytes) -> np.ndarray:
    """The pixels of a PNG that is 8-bit grey."""
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        assert (image.format, image.mode) == ("PNG", "L")
        return np.asarray(image)


@given(arrays(np.uint8, SHAPES) | FLAT)
def test_pixels_come_back(pixels):
    np.testing.assert_array_equal(pillow(grey_png(pixels)), pixels)


@pytest.mark.parametrize("order", ["C", "F"])
def test_pixels_need_not_be_contiguous(order):
    pixels = np.asarray(np.arange(60, dtype=np.uint8).reshape(6, 10), order=order)[1::2, ::3]
    np.testing.assert_array_equal(pillow(grey_png(pixels)), pixels)


@pytest.mark.parametrize(
    "pixels", [np.zeros((2, 2), np.int64), np.zeros((2, 2, 1), np.uint8), np.zeros((0, 2), np.uint8)]
)
def test_not_grey_is_refused(pixels):
    with pytest.raises(ValueError, match="expected uint8"):
        grey_png(pixels)


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
def test_zeros_are_deflated_in_parts_and_checked_as_whole(zeros):
    rows = np.arange(1, 31, dtype=np.uint8).reshape(2, 15)
    assert zlib.decompress(masks._deflate(rows, zeros, zeros)) == bytes(zeros) + rows.tobytes() + bytes(zeros)


@given(st.integers(1, 200_000))
@example(4 * 4 * 258 - 1)
@example(4 * 4 * 258)
@example(5 * 4 * 258)
def test_zeros_are_deflated_to_bytes_that_zlib_gives(zeros):
    assert masks._few_zero_blocks(zeros) == masks._blocks(bytes(zeros))
    assert masks._few_zero_blocks(0) == b""


@given(st.binary(max_size=50), st.integers(0, 10_000_000))
def test_checksum_of_zeros_needs_no_zeros(before, count):
    checksum = zlib.adler32(before)
    assert masks._adler32_of_zeros(checksum, count) == zlib.adler32(bytes(count), checksum)


def test_same_pixels_give_same_bytes():
    first = pack_rows(np.zeros((1, 11), np.uint8), 40, 50)
    pack_rows(np.zeros((1, 7), np.uint8), 3, 5)
    masks._periodic_zero_blocks.cache_clear()
    assert pack_rows(np.zeros((1, 11), np.uint8), 40, 50) == first


def test_other_zlib_is_asked_for_zeros(monkeypatch):
    def otherwise(data):  # as zlib does without Z_RLE's matches: stored blocks grow by the byte
        compressor = zlib.compressobj(level=0, wbits=-15)
        return compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH)

    def forget():
        masks._zeros_are_periodic.cache_clear()
        masks._periodic_zero_blocks.cache_clear()

    monkeypatch.setattr(masks, "_blocks", otherwise)
    forget()
    try:
        assert zlib.decompress(masks._few_zero_blocks(50_000) + b"\x03\x00", wbits=-15) == bytes(50_000)
    finally:
        forget()


# Pixel by pixel, and few pixels that differ from the rest.
BITMAPS = arrays(np.uint8, SHAPES, elements=st.integers(0, 1)) | arrays(
    np.uint8, SHAPES, elements=st.integers(0, 1), fill=st.integers(0, 1)
)


def runs_of(bitmap: np.ndarray) -> np.ndarray:
    """COCO's run lengths, counted pixel by pixel."""
    runs, value = [0], 0
    for pixel in bitmap.T.ravel():
        if pixel != value:
            runs.append(0)
            value = pixel
        runs[-1] += 1
    return np.array(runs, np.int64)


@settings(max_examples=200)
@given(BITMAPS)
@example(np.ones((3, 4), np.uint8))
@example(np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]], np.uint8))
def test_bitmap_is_same_as_png_and_as_counts_of_pycocotools(bitmap):
    (height, width), runs = bitmap.shape, runs_of(bitmap)
    np.testing.assert_array_equal(pillow(mask_png(runs, width, height)), bitmap)
    counts = mask_rle(runs)
    assert counts == coco_mask.encode(np.asfortranarray(bitmap))["counts"]
    np.testing.assert_array_equal(coco_mask.decode({"counts": counts, "size": [height, width]}), bitmap)


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=12))
@example([0, 15, 16, 31, 32, 511, 512, 16_383, 16_384, 40_000])
@example([1, 20, 1, 3, 40, 2])  # -17 and +39 to the run two before
@example([4, 1, 3, 17, 19, 1, 3, 17])  # +16, -16
def test_counts_of_long_runs_are_pycocotools(middle):
    runs = np.array([7, *(run + 1 for run in middle)], np.int64)
    height = int(runs.sum())
    (expected,) = coco_mask.frPyObjects([{"counts": runs.tolist(), "size": [height, 1]}], height, 1)
    assert mask_rle(runs) == expected["counts"]


def test_run_counts_beyond_pycocotools():
    runs = np.array([1 << 24, 1 << 24, 1 << 24, 1 << 25])
    # Four groups of zeros, then 16 (more must follow, or it were a sign), then 0; the last is a difference of 2 ** 24.
    assert mask_rle(runs) == b"PPPP`0" * 4


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30).filter(any))
def test_runs_of_length_0_change_nothing(counts):
    runs = np.array(counts, np.int64)
    column = np.repeat(np.arange(len(runs)) % 2, runs).astype(np.uint8)[:, None]
    assert mask_rle(runs) == mask_rle(runs_of(column))
