import numpy as np
import pytest
from pycocotools import mask as coco_mask

from recordmill.schemas.layouts import BOX_CODINGS
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.images.masks import grey_png

RNG = np.random.default_rng(0)
MASKS = [RNG.integers(0, 2, (30, 40), np.uint8), np.eye(30, 40, dtype=np.uint8), np.zeros((30, 40), np.uint8)]
SIZE = 40, 30


@pytest.mark.parametrize("coding", BOX_CODINGS)
def test_boxes_in_pixels_are_those_as_fractions(coding):
    numbers = np.float32([[1.5, 2, 3, 4], [0, 0.25, 0.5, 1]])
    values = (
        {coding.sources[0]: numbers.ravel()}
        if len(coding.sources) == 1
        else dict(zip(coding.sources, numbers.T, strict=True))
    )
    record = RecordView(values, SIZE)
    for (ymin, xmin, ymax, xmax), box in zip(record.boxes_yxyx_frac.tolist(), record.boxes_xywh_px(), strict=True):
        assert box == pytest.approx((40 * xmin, 30 * ymin, 40 * (xmax - xmin), 30 * (ymax - ymin)))


def test_masks_in_both_forms():
    counts = [coco_mask.encode(np.asfortranarray(mask))["counts"] for mask in MASKS]
    for values in ({"objects.mask_png": list(map(grey_png, MASKS))}, {"objects.mask_rle": counts}):
        for found, expected in zip(RecordView(values, SIZE).masks(), MASKS, strict=True):
            assert (found.dtype, found.tolist()) == (np.uint8, expected.tolist())


@pytest.mark.parametrize(
    "values",
    [
        {
            "objects.mask_rle": [
                b"",
                b"\xff\xfe",
                b"PY1",
                b"0" * 5000,
                coco_mask.encode(np.ones((31, 40), np.uint8, "F"))["counts"],
            ]
        },
        {"objects.mask_png": [b"", grey_png(MASKS[0])[:-30]]},
    ],
)
def test_not_a_mask(values):
    assert {type(fault) for fault in RecordView(values, SIZE).masks()} == {UnusableError}


def test_raw_pixels():
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    values = {"image.pixels": pixels.tobytes()}
    assert (np.asarray(RecordView(values).decode_image((2, 4, 3))) == pixels).all()
    assert RecordView({}).decode_image() is None
    with pytest.raises(UnusableError, match="24 bytes"):
        RecordView(values).decode_image((2, 5, 3))
