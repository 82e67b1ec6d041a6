import io

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from recordmill.transforms.extract.extract_values import RunLengths, UnusableRecordError, mask_of_png, mask_of_rle
from recordmill.transforms.masks.encode_png import grey_png

RNG = np.random.default_rng(0)
BITMAPS = {
    "noise": RNG.integers(0, 2, (30, 40), np.uint8),
    "full": np.ones((30, 40), np.uint8),
    "first pixel": np.eye(30, 40, dtype=np.uint8),
    "one pixel": np.pad(np.ones((1, 1), np.uint8), ((29, 0), (39, 0))),
}


def expected(pixels: np.ndarray) -> RunLengths:
    rle = coco_mask.encode(np.asfortranarray(pixels))
    return RunLengths(rle["counts"].decode(), tuple(rle["size"]))


@pytest.mark.parametrize("name", BITMAPS)
def test_a_png_and_counts_become_what_pycocotools_gives(name):
    rle = expected(BITMAPS[name])
    assert mask_of_png(grey_png(BITMAPS[name]), 40, 30) == rle
    assert mask_of_rle(rle.counts.encode(), 40, 30) == rle


def test_no_pixel_is_no_mask():
    empty = np.zeros((30, 40), np.uint8)
    assert mask_of_png(grey_png(empty), 40, 30) == []
    assert mask_of_rle(expected(empty).counts.encode(), 40, 30) == []


@pytest.mark.parametrize(
    "counts", [b"", b"\xff\xfe", b"PY1", b"0" * 5000, expected(np.ones((31, 40), np.uint8)).counts.encode()]
)
def test_counts_that_are_no_mask_of_the_image(counts):
    with pytest.raises(UnusableRecordError) as caught:
        mask_of_rle(counts, 40, 30)
    assert caught.value.reason == "mask"


def rgb_png() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40, 30)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("png", "told"),
    [
        (b"", "does not decode"),
        (grey_png(BITMAPS["noise"])[:-30], "does not decode"),
        (grey_png(BITMAPS["noise"].T), "a PNG of 30x40, mode L; its image is 40x30"),
        (rgb_png(), "mode RGB"),
    ],
)
def test_a_png_that_is_no_mask_of_the_image(png, told):
    with pytest.raises(UnusableRecordError, match=told):
        mask_of_png(png, 40, 30)
