import numpy as np
import pytest
from pycocotools import mask as coco_mask

from recordmill.schemas.features import FeatureKind
from recordmill.schemas.field_features import FLAT_VALUES, LENGTHS, RAGGED, FieldColumn
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


@pytest.mark.parametrize(
    ("kind", "size", "is_bool", "stored", "expected"),
    [
        ("int64", 0, False, [3, -1], [3, None]),
        ("int64", 0, True, [1, 0, -1], [True, False, None]),
        ("float", 0, False, np.float32([0.1, np.nan]), [0.1, None]),
        ("bytes", 0, False, [b"\xc3\xa9", b""], ["é", None]),
        ("int64", 2, False, [1, -1, -1, -1], [[1, -1], None]),  # -1 beside a value is one
        ("int64", 2, True, [1, -1], [[True, None]]),
        ("float", 2, False, np.float32([0.1, np.nan]), [[0.1, None]]),
        ("bytes", 2, False, [b"a", b"", b"", b""], [["a", ""], None]),
    ],
)
def test_field(kind, size, is_bool, stored, expected):
    column = FieldColumn("object", "f", FeatureKind(kind), size, is_bool)
    assert RecordView({column.source: np.array(stored, object if kind == "bytes" else None)}).field(column) == expected
    image = FieldColumn("image", "f", FeatureKind(kind), RAGGED, is_bool)
    assert RecordView({image.source: np.array([], np.float32)}).field(image) == [None]


def test_field_of_lists_of_different_lengths():
    column = FieldColumn("object", "f", FeatureKind.INT64, RAGGED)
    values = {f"{column.source}{FLAT_VALUES}": np.array([4, -1, 5]), f"{column.source}{LENGTHS}": np.array([2, 0, 1])}
    assert RecordView(values).field(column) == [[4, -1], None, [5]]
    with pytest.raises(ValueError, match="3 values for lists of 2 values"):
        RecordView(values | {f"{column.source}{LENGTHS}": np.array([2])}).field(column)
