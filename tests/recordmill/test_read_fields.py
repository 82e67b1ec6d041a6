"""Readers' values of open fields: single, lists of one length and of different lengths, of objects and images."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill._split_records import RecordContents
from recordmill.schemas.errors import RecordError
from recordmill.schemas.features import FeatureKind, parse_spec
from recordmill.schemas.field_features import RAGGED, FieldColumn, add_fields
from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.records.example import ExampleWriter
from tests.recordmill.splits import LABELS, Drawn, draw, split_of, write_split

INT, FLOAT, BYTES = FeatureKind.INT64, FeatureKind.FLOAT, FeatureKind.BYTES
COLUMNS = [
    FieldColumn(axis, f"{kind.value}.{name}", kind, size)
    for axis in ("image", "object")
    for kind in (INT, FLOAT, BYTES)
    for name, size in (("single", 0), ("pair", 2), ("list", RAGGED))
]
DTYPE = {INT: np.int64, FLOAT: np.float32, BYTES: object}
PADDING = {INT: -1, FLOAT: np.nan, BYTES: b""}
OBJECTS = (0, 2, 3)


def value_of(column: FieldColumn, record: int, row: int) -> Any:
    size = (record + row) % 3 if column.size == RAGGED else column.size or 1
    numbers = [10 * record + row + position for position in range(size)]
    made = [b"t%d\0" % number if column.kind is BYTES else number for number in numbers]
    return made if column.size else made[0]


def values_of(column: FieldColumn, record: int, objects: int | None) -> Any:
    """Values of each object; of the image, or of a record of one object, if `objects` is None."""
    if column.axis == "image" or objects is None:
        return value_of(column, record, 0)
    return [value_of(column, record, row) for row in range(objects)]


def draw_record(layout: str, record: int, objects: int | None) -> Drawn:
    """A record of a layout, with fields if it stores them."""
    drawn = draw(RecordContents(LAYOUTS[layout].with_parts(()), LABELS), record, objects)
    sources = contents_of(layout).table.sources
    for column in COLUMNS:
        values, flat = values_of(column, record, objects), f"{column.source}/ragged_flat_values"
        if flat in sources:
            drawn.values[f"{column.source}/ragged_row_lengths_0"] = list(map(len, values))
            drawn.values[flat] = [*chain.from_iterable(values)]
        elif column.source in sources:
            is_nested = column.size and column.axis == "object" and objects is not None
            drawn.values[column.source] = [*chain.from_iterable(values)] if is_nested else values
    return drawn


def contents_of(layout: str) -> RecordContents:
    return RecordContents(add_fields(LAYOUTS[layout].with_parts(()), COLUMNS).table, LABELS)


def objects_in(layout: str, record: int) -> int | None:
    return None if layout in ("keras", "classification") else OBJECTS[record]


@pytest.fixture(params=["detection", "tfds", "keras", "classification"])
def layout(request) -> str:
    return request.param


@pytest.fixture
def split(layout, tmp_path: Path):
    contents = contents_of(layout)
    drawn = [draw_record(layout, record, objects_in(layout, record)) for record in range(len(OBJECTS))]
    return write_split(tmp_path, contents, drawn)


def name_of(column: FieldColumn, layout: str) -> str:
    return column.shown if layout != "classification" else column.path


def columns_of(layout: str) -> list[FieldColumn]:
    return [column for column in COLUMNS if layout != "classification" or column.axis == "image"]


def assert_is(actual: Any, expected: Any, column: FieldColumn) -> None:
    if isinstance(expected, bytes):
        assert actual == expected
        return
    assert np.asarray(actual).dtype == DTYPE[column.kind]
    width = (0, column.size) if column.size > 0 and not expected else np.shape(expected)
    np.testing.assert_array_equal(np.asarray(actual, object), np.array(expected, object).reshape(width))


def test_numpy(split, layout):
    names = {name_of(column, layout) for column in columns_of(layout)}
    assert names == {name for name, reading in split.features.items() if ".field:" in reading.source}
    for record, example in enumerate(split.numpy()):
        for column in columns_of(layout):
            expected = values_of(column, record, objects_in(layout, record))
            actual = example[name_of(column, layout)]
            if column.size == RAGGED and column.axis == "object" and objects_in(layout, record) is not None:
                assert actual.shape == (objects_in(layout, record),)
                for one, own in zip(actual, expected, strict=True):
                    assert_is(one, own, column)
                    assert one.flags.writeable
            else:
                assert_is(actual, expected, column)


def test_tensorflow(split, layout):
    """The values of numpy(); lists of different lengths of objects are ragged tensors."""
    for tensors, arrays in zip(split.tensorflow(), split.numpy(), strict=True):
        for column in columns_of(layout):
            tensor, array = tensors[name_of(column, layout)], arrays[name_of(column, layout)]
            if isinstance(tensor, tf.RaggedTensor):
                assert tensor.to_list() == [own.tolist() for own in array]
            else:
                np.testing.assert_array_equal(tensor.numpy(), array)


def pad(lists: list, shape: tuple[int, ...], missing: Any) -> np.ndarray:
    padded = np.full(shape, missing, object)
    for at, item in enumerate(lists):
        padded[at] = pad(item, shape[1:], missing) if isinstance(item, list) else item
    return padded


def test_batches_are_padded_with_missing_values(split, layout):
    (batch,) = split.tensorflow(batch=3, keys=[name_of(column, layout) for column in columns_of(layout)])
    for column in columns_of(layout):
        lists = [values_of(column, record, objects_in(layout, record)) for record in range(3)]
        tensor = batch[name_of(column, layout)]
        expected = pad(lists, tuple(tensor.shape), PADDING[column.kind])
        np.testing.assert_array_equal(tensor.numpy(), expected.astype(tensor.numpy().dtype))


def test_static_shapes(tmp_path):
    contents = contents_of("detection")
    split = write_split(tmp_path, contents, [draw_record("detection", 1, 2)])
    data = split.tensorflow(batch=1, pad=4, drop_remainder=True, keys=["float.list", "bytes.pair", "image.int64.list"])
    shapes = {name: tuple(spec.shape) for name, spec in data.element_spec.items()}
    assert shapes == {"float.list": (1, 4, 4), "bytes.pair": (1, 4, 2), "image.int64.list": (1, 4)}
    (batch,) = data.as_numpy_iterator()
    assert {name: tensor.shape for name, tensor in batch.items()} == shapes
    (example,) = split.grain(pad=4, keys=list(shapes))
    for name, array in example.items():
        np.testing.assert_array_equal(array, batch[name][0], strict=True)


def test_ragged_batches(split, layout):
    (batch,) = split.tensorflow(batch=3, ragged=True, keys=[name_of(column, layout) for column in columns_of(layout)])
    for column in columns_of(layout):
        lists = [values_of(column, record, objects_in(layout, record)) for record in range(3)]
        tensor = batch[name_of(column, layout)]
        actual = tensor.to_list() if isinstance(tensor, tf.RaggedTensor) else tensor.numpy().tolist()
        assert actual == lists


def test_parse_spec(split, layout):
    """A batch is that of the records."""
    contents = contents_of(layout)
    records = split.read(range(3))
    batch = tf.io.parse_example(records, parse_spec(contents.table))
    for number, record in enumerate(records):
        single = tf.io.parse_single_example(record, parse_spec(contents.table))
        for feature in contents.table.features:
            if ".field:" in feature.source:
                together = batch[feature.name][number]
                together = together.to_tensor() if isinstance(together, tf.RaggedTensor) else together
                one, other = single[feature.name].numpy(), together.numpy()
                np.testing.assert_array_equal(np.reshape(one, np.shape(other)), other)


def test_label_of_image_is_not_its_class(tmp_path):
    table = add_fields(LAYOUTS["detection"].with_parts(()), [FieldColumn("image", "label", INT)]).table
    contents = RecordContents(table, LABELS)
    split = write_split(tmp_path, contents, [draw(contents, 1)])
    assert "image.label" in split[0]
    with pytest.raises(Exception, match="as_supervised needs"):
        split.tensorflow(as_supervised=True)


def test_lengths_that_do_not_fit_are_damage(tmp_path):
    contents = contents_of("detection")
    drawn = draw_record("detection", 1, 2)
    lengths = "objects.field:float.list/ragged_row_lengths_0"
    drawn.values[lengths] = [5, 5]
    record = ExampleWriter(contents.table).write(drawn.values)
    split = split_of(tmp_path, contents, [[record]])
    with pytest.raises(RecordError, match="3 values for lists of 10 values"):
        _ = split[0]
