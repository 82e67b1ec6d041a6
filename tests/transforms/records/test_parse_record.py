import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.features import FeatureKind, parse_spec
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.records.parse_record import RecordParseError, RecordParser, length_faults

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


LISTS = {
    FeatureKind.BYTES: lambda values: tf.train.Feature(bytes_list=tf.train.BytesList(value=values)),
    FeatureKind.FLOAT: lambda values: tf.train.Feature(float_list=tf.train.FloatList(value=values)),
    FeatureKind.INT64: lambda values: tf.train.Feature(int64_list=tf.train.Int64List(value=values)),
}


def record(**changes: list) -> bytes:
    values = VALUES | changes
    features = {feature.name: LISTS[feature.kind](values[feature.name]) for feature in TABLE.features}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


PARSE = RecordParser(TABLE)


@pytest.mark.parametrize("data", [b"no\nrecord", b"", record(image=[])], ids=["no Example", "empty", "no image"])
def test_bad_record_of_table_is_named(data):
    with pytest.raises(RecordParseError) as caught:
        PARSE(data)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


# Lengths

DETECTION, TFDS = LAYOUTS["detection"], LAYOUTS["tfds"]


def faults(table, keypoints: int = 2, **changed: int) -> list[str]:
    """Faults of a record of two objects, two captions and two segments, if some lists have another length."""
    lengths = {"objects_keypoint_" + name: 4 for name in ("x", "y", "visibility", "text")}
    lengths |= {"objects_bbox_yxyx": 8, "segments_bbox_yxyx": 8, "objects_corners": 16} | changed
    values = {feature.source: np.zeros(lengths.get(feature.source.replace(".", "_"), 2)) for feature in table.features}
    return [reason for reason, _ in length_faults(values, table, keypoints)]


@pytest.mark.parametrize("table", [DETECTION, TFDS, DETECTION.with_parts(())])
def test_lists_of_one_length_have_no_fault(table):
    assert faults(table) == []


@pytest.mark.parametrize(
    ("table", "changed"),
    [
        (DETECTION, {"objects_area": 1}),
        (DETECTION, {"objects_category_name": 3}),
        (DETECTION, {"objects_mask_rle": 0}),
        (DETECTION, {"objects_keypoint_y": 3}),
        (TFDS, {"objects_bbox_yxyx": 4}),
        (TFDS, {"objects_bbox_yxyx": 9}),
        (TFDS, {"captions_id": 1}),
        (TFDS, {"segments_area": 1}),
        (TFDS, {"segments_bbox_yxyx": 0}),
    ],
)
def test_lists_of_unequal_length(table, changed):
    assert faults(table, **changed) == ["object_lists"]


def test_lists_of_neg_categories_may_be_of_any_length():
    assert faults(DETECTION, image_neg_category_ids=5, image_not_exhaustive_category_ids=0) == []


@pytest.mark.parametrize("keypoints", [1, 3])
def test_so_many_keypoints_for_each_object(keypoints):
    assert faults(DETECTION, keypoints) == ["keypoints"]


# TensorFlow

SPEC = parse_spec(TABLE)


@st.composite
def features(draw) -> dict[str, tf.train.Feature]:
    """Features of a record of the table, some with a wrong type or length, some absent."""
    found = {}
    for feature in TABLE.features:
        kind = draw(st.sampled_from([feature.kind] * 20 + list(FeatureKind)))
        numbers = draw(st.sampled_from([VALUES[feature.name]] * 10 + [[], [-(2**63), 2**63 - 1], list(range(8))]))
        if draw(st.integers(0, 30)):
            values = [f"{number}\0".encode() for number in numbers] if kind is FeatureKind.BYTES else numbers
            if kind is not FeatureKind.BYTES:
                values = [number if isinstance(number, (int, float)) else 0 for number in numbers]
                values = list(map(float if kind is FeatureKind.FLOAT else int, values))
            found[feature.name] = LISTS[kind](values)
    if not draw(st.integers(0, 10)):
        found[draw(st.sampled_from(["more", TABLE.features[0].name]))] = tf.train.Feature()
    return found


@settings(max_examples=300)
@given(features())
def test_tensorflow_takes_same_records_and_finds_same_values(features):
    data = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    try:
        expected = tf.io.parse_single_example(data, SPEC)
    except tf.errors.InvalidArgumentError:
        with pytest.raises(RecordParseError):
            PARSE(data)
        return
    values = PARSE(data)
    for feature in TABLE.features:
        tensor = expected[feature.name]
        wanted = (tensor.flat_values if hasattr(tensor, "flat_values") else tensor).numpy()
        found = values[feature.source]
        if isinstance(wanted, bytes):
            assert found == wanted
        else:
            assert (found.tolist(), found.dtype) == (np.ravel(wanted).tolist(), wanted.dtype)
