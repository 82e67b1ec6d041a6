import numpy as np
import pytest

from recordmill.schemas.features import FeatureKind
from recordmill.schemas.layouts import DETECTION, KERAS, TFDS, change_keys_and_types
from recordmill.transforms.records.digest_record import RecordDigests
from recordmill.transforms.records.example import ExampleWriter

VALUES = {
    "captions.id": [7, 8],
    "image.encoded": b"J" * 5000,
    "image.file_name": b"a.jpg",
    "image.format": b"jpeg",
    "image.height": 30,
    "image.id": b"1",
    "image.number": 1,
    "image.sha256": b"0" * 64,
    "image.width": 40,
    "objects.area": [1.5, 2.5],
    "objects.area_whole": [1, 2],
    "objects.bbox_yxyx": [0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 1.0, 1.0],
    "objects.category_id": [1, 300],
    "objects.category_name": [b"cat", b"dog"],
    "objects.class_index": [0, 1],
    "objects.id": [5, -300],
    "objects.is_crowd": [0, 1],
    "objects.label": [1, 300],
    **{f"objects.{edge}": [0.0, 0.5] for edge in ("xmin", "xmax", "ymin", "ymax")},
}
TABLE = DETECTION.with_parts(())


def digests(table, *changes: dict) -> RecordDigests:
    result = RecordDigests(table)
    for change in changes:
        result.add(*ExampleWriter(table).record(VALUES | change))
    return result


@pytest.mark.parametrize(
    ("table", "source", "value", "is_label"),
    [
        (TABLE, "image.encoded", b"K" * 90, False),
        (TABLE, "image.format", b"png", False),
        (TABLE, "image.height", 31, False),
        (TABLE, "image.sha256", b"1" * 64, False),
        (TABLE, "image.id", b"2", False),
        (TABLE, "objects.id", [4, 5], False),
        (TFDS.with_parts(()), "image.number", 99_999, False),
        (TABLE, "image.file_name", b"b.jpg", True),
        (TABLE, "objects.label", [1, 301], True),
        (TABLE, "objects.xmin", [0.0, 0.25], True),
        (TABLE, "objects.category_name", [b"cat", b"emu"], True),
        (TABLE, "objects.is_crowd", [1, 1], True),
    ],
)
def test_digest_has_labels_but_no_image_and_no_ids(table, source, value, is_label):
    before, after = digests(table, {}, {source: value}).digests()
    assert (before != after).any() == is_label


def test_parts_of_a_record_do_not_matter():
    """The image of a record is a part, or inside another one."""
    parts = ExampleWriter(TABLE).record(VALUES)
    result = RecordDigests(TABLE)
    result.add(*parts)
    result.add(b"".join(parts))
    first, second = result.digests()
    assert len(parts) > 1
    assert (first == second).all()


@pytest.mark.parametrize("kind", [FeatureKind.INT64, FeatureKind.FLOAT])
def test_annotation_ids(kind):
    table = change_keys_and_types(TABLE, {}, {"image/object/id": kind})
    nothing = {source: [] for source in VALUES if source.startswith("objects.")}
    ids, numbers = digests(table, {}, nothing, {"objects.id": [1 << 20, 3]}).annotation_ids()
    assert ids.tolist() == [5, -300, 1 << 20, 3]
    assert numbers.tolist() == [2, 0, 2]


def test_records_of_one_object_each():
    values = {source: value[0] for source, value in VALUES.items() if isinstance(value, list)}
    values["objects.bbox_xywh_px"] = [1.0, 2.0, 3.0, 4.0]
    ids, numbers = digests(KERAS.with_parts(()), values, values | {"objects.id": 6}).annotation_ids()
    assert ids.tolist() == [5, 6]
    assert numbers.tolist() == [1, 1]


def test_no_records():
    result = RecordDigests(TABLE)
    ids, numbers = result.annotation_ids()
    assert (result.digests().shape, len(ids), len(numbers)) == ((0, 2), 0, 0)
    assert ids.dtype == np.int64
