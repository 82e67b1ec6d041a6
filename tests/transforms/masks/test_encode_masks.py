import io

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pycocotools import mask as coco_mask

from recordmill.transforms.masks.encode_masks import mask_png, mask_rle

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=14)
# Pixel by pixel, and few pixels that differ from the rest.
BITMAPS = hnp.arrays(np.uint8, SHAPES, elements=st.integers(0, 1)) | hnp.arrays(
    np.uint8, SHAPES, elements=st.integers(0, 1), fill=st.integers(0, 1)
)
EDGE_CASES = {
    "all_ones": np.ones((3, 4), np.uint8),
    "all_zeros": np.zeros((3, 4), np.uint8),
    "one_pixel": np.ones((1, 1), np.uint8),
    "one_row": np.array([[0, 1, 1, 0, 1]], np.uint8),
    "one_column": np.array([[1], [0], [1], [1]], np.uint8),
    "ends_at_a_columns_end": np.array([[0, 0, 0], [1, 0, 0], [1, 0, 0]], np.uint8),
    "begins_at_a_columns_start": np.array([[0, 1, 0], [0, 1, 0], [0, 0, 0]], np.uint8),
    "one_whole_column": np.array([[0, 1, 0], [0, 1, 0], [0, 1, 0]], np.uint8),
    "over_three_columns": np.array([[0, 1, 1], [0, 1, 1], [1, 1, 0]], np.uint8),
    "last_pixel": np.array([[0, 0], [0, 1]], np.uint8),
    "a_blank_row_within": np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]], np.uint8),
}


def runs_of(bitmap: np.ndarray) -> np.ndarray:
    """COCO's run lengths, counted pixel by pixel."""
    runs, value = [0], 0
    for pixel in bitmap.T.ravel():
        if pixel != value:
            runs.append(0)
            value = pixel
        runs[-1] += 1
    return np.array(runs, np.int64)


def png_pixels(png: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        assert (image.format, image.mode) == ("PNG", "L")
        return np.asarray(image)


def check_png(bitmap: np.ndarray) -> None:
    height, width = bitmap.shape
    np.testing.assert_array_equal(png_pixels(mask_png(runs_of(bitmap), width, height)), bitmap)


def check_rle(bitmap: np.ndarray) -> None:
    height, width = bitmap.shape
    counts = mask_rle(runs_of(bitmap))
    assert counts == coco_mask.encode(np.asfortranarray(bitmap))["counts"]
    np.testing.assert_array_equal(coco_mask.decode({"counts": counts, "size": [height, width]}), bitmap)


@pytest.mark.parametrize("name", EDGE_CASES)
def test_edge_cases_come_back(name):
    check_png(EDGE_CASES[name])
    check_rle(EDGE_CASES[name])


@settings(deadline=None)
@given(BITMAPS)
def test_pngs_hold_the_bitmap_as_0_and_1(bitmap):
    check_png(bitmap)


@settings(deadline=None)
@given(BITMAPS)
def test_counts_are_those_of_pycocotools(bitmap):
    check_rle(bitmap)


@settings(deadline=None)
@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=12))
@example([0, 15, 16, 31, 32, 511, 512, 16_383, 16_384, 40_000])
@example([1, 20, 1, 3, 40, 2])  # -17 and +39 to the run two before
@example([4, 1, 3, 17, 19, 1, 3, 17])  # +16, -16
def test_counts_of_long_runs_are_those_of_pycocotools(middle):
    runs = np.array([7, *(run + 1 for run in middle)], np.int64)
    height = int(runs.sum())
    (expected,) = coco_mask.frPyObjects([{"counts": runs.tolist(), "size": [height, 1]}], height, 1)
    assert mask_rle(runs) == expected["counts"]


def test_counts_of_runs_beyond_what_pycocotools_can_write():
    runs = np.array([1 << 24, 1 << 24, 1 << 24, 1 << 25])
    # Four groups of zeros, then 16 (more must follow, or it were a sign), then 0; the last is a difference of 2 ** 24.
    assert mask_rle(runs) == b"PPPP`0" * 4


@settings(deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=30).filter(any))
def test_runs_of_length_0_change_nothing(counts):
    runs = np.array(counts, np.int64)
    column = np.repeat(np.arange(len(runs)) % 2, runs).astype(np.uint8)[:, None]
    assert mask_rle(runs) == mask_rle(runs_of(column))
