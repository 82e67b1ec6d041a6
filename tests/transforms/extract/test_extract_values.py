"""A serialised record becomes values."""

import pytest
import tensorflow as tf

from recordmill.schemas.features import Kind
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.extract.extract_values import RecordReader, UnusableRecordError

TABLE = LAYOUTS["tfds"].with_parts(())
VALUES = {
    "image": [b"picture\0\0"],
    "image/filename": [b"a.jpg"],
    "image/id": [7],
    "objects/area": [1, 2],
    "objects/bbox": [0.0, 0.25, 0.5, 1.0] * 2,
    "objects/category_id": [3, 4],
    "objects/id": [5, 6],
    "objects/is_crowd": [0, 1],
    "objects/label": [0, 1],
}


def record(**changes: list) -> bytes:
    features = {}
    for feature in TABLE.features:
        values = (VALUES | changes)[feature.name]
        if feature.kind is Kind.BYTES:
            features[feature.name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        elif feature.kind is Kind.FLOAT:
            features[feature.name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            features[feature.name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def read(data: bytes) -> dict:
    return RecordReader(TABLE, LabelMap(()))(data)


def test_values_by_source():
    values = read(record())
    assert values.pop("image.encoded") == b"picture\0\0"  # to its last byte
    assert values.pop("image.file_name") == b"a.jpg"
    assert {source: value.tolist() for source, value in values.items()} == {
        "image.number": [7],
        "objects.area_whole": [1, 2],
        "objects.bbox_yxyx": [0.0, 0.25, 0.5, 1.0] * 2,
        "objects.category_id": [3, 4],
        "objects.id": [5, 6],
        "objects.is_crowd": [0, 1],
        "objects.class_index": [0, 1],
    }


def test_no_objects():
    empty = {name: [] for name in VALUES if name.startswith("objects/")}
    assert {value.size for source, value in read(record(**empty)).items() if source.startswith("objects.")} == {0}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no record", "schema"),
        (b"", "schema"),
        (record(image=[]), "schema"),
        (record(**{"objects/id": [5]}), "object_lists"),
        (record(**{"objects/bbox": [0.0] * 4}), "object_lists"),
        (record(**{"objects/bbox": [0.0] * 7}), "schema"),
        (record(**{"objects/bbox": [0.0] * 7 + [float("inf")]}), "schema"),
    ],
)
def test_a_record_that_cannot_be_used(data, reason):
    with pytest.raises(UnusableRecordError) as caught:
        read(data)
    assert caught.value.reason == reason
    assert "\n" not in caught.value.detail
