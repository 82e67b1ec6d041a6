import struct
from operator import itemgetter

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.features import Feature, FeatureKind, FeatureTable
from recordmill.transforms.records.example import ExampleWriter, merge_examples

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
EDGES = [0, 1, 127, 128, 16383, 16384, (1 << 31) - 1, 1 << 31, 1 << 32, INT64_MAX, -1, -128, -(1 << 31), INT64_MIN]

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# None begins another: protobuf's upb sorts "ab" before "a", its C++ the other way round, and so do we.
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/")).map(lambda name: name + "/")
VALUES = {
    FeatureKind.BYTES: st.binary(max_size=200) | TEXT.map(str.encode),
    FeatureKind.FLOAT: st.floats(width=32),
    FeatureKind.INT64: st.integers(INT64_MIN, INT64_MAX) | st.sampled_from(EDGES),
}


@st.composite
def features(draw) -> tuple[str, FeatureKind, bool, list]:
    """A name, a kind, whether it is a list, and values."""
    kind = draw(st.sampled_from(FeatureKind))
    is_list = draw(st.booleans())
    limits = {"max_size": 150} if is_list else {"min_size": 1, "max_size": 1}
    return draw(NAMES), kind, is_list, draw(st.lists(VALUES[kind], **limits))


def table(*columns: tuple[str, FeatureKind, bool]) -> FeatureTable:
    shapes = {True: ("N",), False: ()}
    return FeatureTable(
        "test", tuple(Feature(name, name, kind, shapes[is_list], "", "") for name, kind, is_list in columns)
    )


def read(record: bytes) -> dict[str, tuple[str, list]]:
    """Kind and values of each feature, as TensorFlow reads them."""
    found = {}
    for name, feature in tf.train.Example.FromString(record).features.feature.items():
        kind = feature.WhichOneof("kind")
        found[name] = kind.removesuffix("_list"), list(getattr(feature, kind).value)
    return found


def bits(kind: str, values: list) -> list:
    """Values that can be compared: NaN differs from itself, -0.0 equals 0.0."""
    return [struct.pack("<f", value) for value in values] if kind == "float" else values


@settings(max_examples=150)
@given(st.lists(features(), unique_by=itemgetter(0), max_size=6))
def test_tensorflow_reads_and_writes_same_bytes(columns):
    columns.sort(key=itemgetter(0))
    values = {name: items if is_list else items[0] for name, _, is_list, items in columns}
    record = ExampleWriter(table(*(column[:3] for column in columns))).write(values)
    found = {name: (kind, bits(kind, items)) for name, (kind, items) in read(record).items()}
    assert found == {name: (kind.value, bits(kind.value, items)) for name, kind, _, items in columns}
    assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record


@pytest.mark.parametrize("numbers", [[], [0, 1, 127]])
def test_array_of_small_numbers_is_written_as_list_of_them_is(numbers):
    writer = ExampleWriter(table(("n", FeatureKind.INT64, True)))
    assert writer.write({"n": np.array(numbers, np.int64)}) == writer.write({"n": numbers})
    assert writer.write({"n": tuple(numbers)}) == writer.write({"n": numbers})


def test_name_that_begins_another_comes_first():
    record = ExampleWriter(table(("a", FeatureKind.INT64, False), ("a/b", FeatureKind.INT64, False))).write(
        {"a": 1, "a/b": 2}
    )
    assert record.index(b"\x0a\x01a") < record.index(b"\x0a\x03a/b")
    assert read(record) == {"a": ("int64", [1]), "a/b": ("int64", [2])}


@pytest.mark.parametrize("number", EDGES)
def test_the_edges_of_int64(number):
    record = ExampleWriter(table(("x", FeatureKind.INT64, False), ("y", FeatureKind.INT64, True))).write(
        {"x": number, "y": [number] * 3}
    )
    assert read(record) == {"x": ("int64", [number]), "y": ("int64", [number] * 3)}


@pytest.mark.parametrize("length", [0, 127, 128, 16383, 16384, 1 << 21])
def test_lengths_around_varint_s_borders(length):
    record = ExampleWriter(table(("x", FeatureKind.BYTES, False))).write({"x": b"." * length})
    assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record
    assert read(record) == {"x": ("bytes", [b"." * length])}


def test_renamed_feature_keeps_its_source():
    renamed = FeatureTable("test", (Feature("image/height", "image.height", FeatureKind.INT64, (), "px", ""),))
    assert read(ExampleWriter(renamed).write({"image.height": 7, "image.width": 9})) == {"image/height": ("int64", [7])}


def test_source_without_value_is_refused():
    with pytest.raises(KeyError, match="y"):
        ExampleWriter(table(("x", FeatureKind.INT64, False), ("y", FeatureKind.INT64, False))).write({"x": 1})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (FeatureKind.BYTES, "text"),
        (FeatureKind.BYTES, 7),
        (FeatureKind.FLOAT, "1.5"),
        (FeatureKind.FLOAT, 1e39),
        (FeatureKind.INT64, 1.0),
        (FeatureKind.INT64, "1"),
        (FeatureKind.INT64, INT64_MAX + 1),
        (FeatureKind.INT64, INT64_MIN - 1),
    ],
)
def test_value_not_of_its_type_is_refused(kind, value):
    with pytest.raises((struct.error, OverflowError, TypeError)):
        ExampleWriter(table(("x", kind, True))).write({"x": [value]})


@settings(max_examples=60)
@given(st.lists(features(), unique_by=itemgetter(0), max_size=6), st.randoms())
def test_merged_records_equal_whole_one(columns, rng):
    columns.sort(key=itemgetter(0))
    values = {name: found if is_list else found[0] for name, _, is_list, found in columns}
    one = {name for name, *_ in columns if rng.random() < 0.5}

    def written(names: set[str]) -> bytes:
        return ExampleWriter(table(*(column[:3] for column in columns if column[0] in names))).write(values)

    assert merge_examples(written(one), written(values.keys() - one)) == written(set(values))


def test_image_is_not_copied_into_its_record():
    first, second = bytes(5000), b"\xff" * 70_000
    columns = (
        ("a", FeatureKind.BYTES, False),
        ("b", FeatureKind.BYTES, False),
        ("c", FeatureKind.BYTES, True),
        ("d", FeatureKind.INT64, False),
    )
    writer, values = ExampleWriter(table(*columns)), {"a": first, "b": second, "c": [first], "d": 300}
    record = writer.record(values)
    assert record[1] is first
    assert record[3] is second
    assert read(b"".join(record)) == {
        "a": ("bytes", [first]),
        "b": ("bytes", [second]),
        "c": ("bytes", [first]),
        "d": ("int64", [300]),
    }
    assert writer.write(values) == tf.train.Example.FromString(b"".join(record)).SerializeToString(deterministic=True)
