"""Columns of open fields."""

import json
import re

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.block import Ragged, ragged_bytes
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.field_features import (
    RAGGED,
    FieldColumn,
    add_fields,
    field_columns,
    field_keys,
    field_readings,
    is_field,
)
from recordmill.schemas.layouts import CLASSIFICATION, KERAS, LAYOUTS, TFDS
from recordmill.transforms.encoders import encode_fields
from recordmill.transforms.encoders.encode_fields import FieldEncoder

INT, FLOAT, BYTES = FeatureKind.INT64, FeatureKind.FLOAT, FeatureKind.BYTES
DETECTION = LAYOUTS["detection"].with_parts(())


def encode(column: FieldColumn, *values: object) -> tuple[dict, list]:
    encoder = FieldEncoder(add_fields(DETECTION, [column]).table)
    rows = ragged_bytes([json.dumps({"f": value}).encode() if value is not None else b"" for value in values])
    columns, faults = encoder.encode(column.axis, rows, len(values))
    plain = {
        source.partition(":")[2]: [row.tolist() for row in np.split(value.values, value.starts[1:-1])]
        if isinstance(value, Ragged)
        else np.asarray(value).tolist()
        for source, value in columns.items()
    }
    return plain, [(fault.place, fault.detail) for fault in faults]


@pytest.mark.parametrize(
    ("kind", "size", "values", "stored"),
    [
        (INT, 0, [3, None, True], {"f": [3, -1, 1]}),
        (FLOAT, 0, [0.5, 2, False], {"f": [0.5, 2.0, 0.0]}),
        (BYTES, 0, ["a", None, True, [1, "x"]], {"f": [b"a", b"", b"true", b'[1,"x"]']}),
        (INT, 2, [[1, 2], None], {"f": [[1, 2], [-1, -1]]}),
        (
            FLOAT,
            RAGGED,
            [[1.5], None, [2, 3]],
            {"f/ragged_flat_values": [[1.5], [], [2.0, 3.0]], "f/ragged_row_lengths_0": [1, 0, 2]},
        ),
    ],
)
def test_values_are_stored(kind, size, values, stored):
    assert encode(FieldColumn("object", "f", kind, size), *values) == (stored, [])


def test_missing_number_is_nan():
    columns, faults = encode(FieldColumn("image", "f", FLOAT), None)
    assert np.isnan(columns["f"]).all()
    assert faults == []


@pytest.mark.parametrize(
    ("kind", "size", "value", "fault"),
    [
        (INT, 0, "x", "column f: 'x' is not of type int64"),
        (INT, 0, 0.5, "column f: '0.5' is not of type int64"),
        (INT, 0, [1], "column f: [1] is not of type int64"),
        (INT, 2, [1], "field f: 1 values, not 2"),
    ],
)
def test_value_that_does_not_fit(kind, size, value, fault):
    fits = [0] * size if size else 0
    _, faults = encode(FieldColumn("object", "f", kind, size), fits, value)
    assert faults == [(1, fault)]


@pytest.mark.parametrize(
    ("table", "object_key", "image_key"),
    [
        (DETECTION, "image/object/a/b", "image/c"),
        (KERAS.with_parts(()), "a/b", "image_c"),
        (TFDS, "objects/a/b", "c"),
        (CLASSIFICATION.with_parts(()), "", "c"),
    ],
)
def test_keys(table, object_key, image_key):
    columns = (FieldColumn("image", "c", BYTES), *([FieldColumn("object", "a.b", INT)] if object_key else []))
    with_fields = add_fields(table, columns).table
    added = {feature.name for feature in with_fields.features} - {feature.name for feature in table.features}
    assert added == {object_key, image_key} - {""}
    assert {*field_columns(with_fields)} == {*columns}


def test_names_of_readers():
    """The object's field has the plain name, if an image's field has the same; so has another value of readers."""
    columns = [FieldColumn("image", path, INT) for path in ("f", "g", "label", "boxes")]
    table = add_fields(DETECTION, [*columns, FieldColumn("object", "f", INT)]).table
    assert {reading.name for reading in field_readings(table)} == {"f", "image.f", "g", "image.label", "image.boxes"}


@pytest.mark.parametrize("table", [DETECTION, KERAS.with_parts(())])
@pytest.mark.parametrize(("kind", "size"), [(BYTES, 2), (INT, RAGGED), (FLOAT, RAGGED)])
@pytest.mark.parametrize("axis", ["image", "object"])
def test_lists_keep_what_is_known_of_them(table, kind, size, axis):
    column = FieldColumn(axis, "f", kind, size, is_bool=kind is INT)
    with_field = add_fields(table, [column]).table
    (read,) = (column for column in field_columns(with_field) if not column.is_well_known)
    assert (read.kind, read.is_bool) == (kind, kind is INT)
    assert not any(feature.is_packed for feature in with_field.features if is_field(feature.source))


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        (
            FieldColumn("image", "height", INT),
            r"image/height, is taken \(.*\). Add --rename image/height=NAME",
        ),
        (FieldColumn("object", "area", INT), "recordmill.open gives the name of the field area to a value"),
        (FieldColumn("object", "boxes", INT), "recordmill.open gives the name of the field boxes to a value"),
        (FieldColumn("object", "a\nb", INT), r"the field 'a\\nb' has no key of 1 to 200 bytes of printable text"),
        (FieldColumn("object", "a..b", INT), "the key of the field 'a..b', image/object/a//b, has an empty part"),
        (FieldColumn("object", "x" * 300, INT), "has no key of 1 to 200 bytes of printable text"),
    ],
)
def test_field_without_a_key(column, fault):
    table, faults = add_fields(DETECTION, [column, FieldColumn("object", "f", INT)])
    assert [feature.name for feature in table.features if is_field(feature.source)] == ["image/object/f"]
    assert re.search(fault, faults[0])


def test_fields_have_other_keys():
    columns = [FieldColumn("image", "height", INT), FieldColumn("object", "f", BYTES, RAGGED)]
    table, faults = add_fields(DETECTION, columns, {"image/height": "rows", "image/object/f": "g"})
    assert not faults
    keys = field_keys(table)
    assert [keys[name] for name in ("image.height", "f")] == ["rows", "g/ragged_flat_values"]
    assert {*field_columns(table)} == {*columns}


@pytest.mark.parametrize(
    ("key", "name", "fault"),
    [
        ("image/object/g", "f", "records have no feature 'image/object/g'. Did you mean image/object/f?"),
        ("image/object/f", "a\n", "a key has 1 to 200 bytes of printable text"),
    ],
)
def test_other_key_that_is_wrong(key, name, fault):
    with pytest.raises(ConfigError, match=fault.replace("?", r"[?]")):
        add_fields(DETECTION, [FieldColumn("object", "f", INT)], {key: name})


VALUES = {
    FeatureKind.INT64: st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    FeatureKind.FLOAT: st.floats(-1e30, 1e30) | st.integers(-(2**60), 2**60) | st.booleans(),
    FeatureKind.BYTES: st.text(max_size=3),
}
COLUMNS = st.sampled_from(list(VALUES)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(st.none() | VALUES[kind], min_size=1, max_size=6))
)


@pytest.mark.parametrize(
    ("kind", "size", "values", "items", "missing"),
    [
        (INT, 0, [3, None, 0], [3, 0], 1),
        (FLOAT, 0, [0.5, None], [0.5], 1),
        (BYTES, 0, ["a", None, "a"], [b"a", b"a"], 1),
        (INT, 2, [[1, -1], None, [2, 3]], [1, 2, 3], 1),
        (FLOAT, 1, [[0.5], None], [0.5], 1),
        (BYTES, 2, [["a", ""], None], [b"a"], 1),
        (INT, RAGGED, [[1, 2], None, []], [1, 2], 2),
        (BYTES, RAGGED, [["a", "b" * 300], None], [b"a", b"b" * 300], 1),
    ],
)
@pytest.mark.parametrize("axis", ["image", "object"])
def test_items_for_statistics(axis, kind, size, values, items, missing):
    column = FieldColumn(axis, "f", kind, size)
    encoder = FieldEncoder(add_fields(DETECTION, [column]).table)
    for part, expected in ((values, (items, len(values), missing)), ([], ([], 0, 0))):
        rows = ragged_bytes([b"" if value is None else msgspec.json.encode({"f": value}) for value in part])
        columns, _ = encoder.encode(axis, rows, len(part))
        ((source, counted),) = encoder.items(axis, columns).items()
        assert source == column.source
        assert (list(counted.items), *counted[1:]) == expected


def test_first_ten_fields_have_statistics():
    columns = [FieldColumn("image", f"f{number:02}", INT) for number in range(12)]
    encoder = FieldEncoder(add_fields(DETECTION, columns).table)
    assert len(encoder.items("image", encoder.encode("image", None, 1)[0])) == 10


def encode_single(kind: FeatureKind, values: list) -> tuple[list, list]:
    column = FieldColumn("object", "a", kind)
    rows = ragged_bytes([b"" if value is None else msgspec.json.encode({"a": value}) for value in values])
    encoder = FieldEncoder(add_fields(DETECTION, [column]).table)
    columns, faults = encoder.encode("object", rows, len(values))
    (stored,) = columns.values()
    return list(stored), faults


@given(COLUMNS)
def test_plain_columns_are_those_of_the_general_way(drawn):
    quick = encode_single(*drawn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_fields, "_plain_column", lambda column, values: None)
        slow = encode_single(*drawn)
    np.testing.assert_array_equal(quick[0], slow[0])
    assert quick[1] == slow[1] == []


@pytest.mark.parametrize(
    ("kind", "values", "stored"),
    [
        (FeatureKind.INT64, ["true", "FALSE", "-7", None, True], [1, 0, -7, -1, 1]),
        (FeatureKind.FLOAT, ["1.5", 2, None], [1.5, 2, np.nan]),
        (FeatureKind.BYTES, ["a", 1, True, None], [b"a", b"1", b"true", b""]),
    ],
)
def test_other_values_become_the_kind(kind, values, stored):
    written, faults = encode_single(kind, values)
    np.testing.assert_array_equal(written, stored)
    assert not faults


def test_values_that_do_not_fit_are_faults():
    assert [fault.place for fault in encode_single(FeatureKind.INT64, [1, 2**63, "x"])[1]] == [1, 2]
