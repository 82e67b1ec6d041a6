from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.tables import Column
from recordmill.schemas.rejects import Reason
from recordmill.transforms.rows.convert_columns import convert_column
from recordmill.transforms.rows.row_batch import plain_array


def convert(array, type_: ColumnType, classes=(), **column):
    """The values of each row, None where it has none; and the places and reasons of faults."""
    if not isinstance(array, pa.Array | None):
        array = plain_array(pa.array(array), [])
    rows = 2 if array is None else len(array)
    of = Column("c", "f", type_, **column)
    feature, faults = convert_column(of, array, rows, {name: index for index, name in enumerate(classes)})
    values = feature.values.to_pylist() if isinstance(feature.values, pa.Array) else feature.values.tolist()
    found = [values[begin:end] for begin, end in zip(feature.ends, feature.ends[1:], strict=False)]
    absent = np.zeros(rows, bool) if feature.absent is None else feature.absent
    return [None if gone else value for value, gone in zip(found, absent, strict=True)], [
        (fault.place, fault.reason) for fault in faults
    ]


@pytest.mark.parametrize(
    ("type_", "texts", "values"),
    [
        (ColumnType.INT64, ["1", "-9223372036854775808"], [[1], [-(1 << 63)]]),
        (ColumnType.FLOAT, ["1", "2.5"], [[1.0], [2.5]]),
        (ColumnType.BOOL, ["true", "False"], [[1], [0]]),
        (ColumnType.DATE, ["1970-01-02", "1969-12-31"], [[1], [-1]]),
        (ColumnType.TIMESTAMP, ["1970-01-01 00:00:01", "1970-01-01T01:00:00.5+01:00"], [[10**6], [500_000]]),
        (ColumnType.TIMESTAMP, ["1970-01-02", "1970-01-01T00:00Z"], [[86_400 * 10**6], [0]]),
        (ColumnType.BYTES, ["é", "1"], [["é".encode()], [b"1"]]),
    ],
)
def test_texts(type_, texts, values):
    assert convert(texts, type_) == (values, [])


@pytest.mark.parametrize(
    ("type_", "array", "values"),
    [
        (ColumnType.INT64, pa.array([1, 2], pa.uint8()), [[1], [2]]),
        (ColumnType.FLOAT, pa.array([1, (1 << 53) + 1]), [[1.0], [float(1 << 53)]]),
        (ColumnType.BOOL, pa.array([True, False]), [[1], [0]]),
        (ColumnType.DATE, pa.array([1, 2], pa.date32()), [[1], [2]]),
        (
            ColumnType.TIMESTAMP,
            pa.array([-1, 253_402_300_800], pa.timestamp("s")),
            [[-(10**6)], [253_402_300_800 * 10**6]],
        ),
        (ColumnType.INT64, pa.array([123456789.0, -0.0]), [[123456789], [0]]),
        (ColumnType.INT64, pa.array([Decimal("123456789.00"), Decimal(1)]), [[123456789], [1]]),
        (ColumnType.TIMESTAMP, pa.array([1, 2], pa.date32()), [[86_400 * 10**6], [2 * 86_400 * 10**6]]),
        (ColumnType.BYTES, pa.array([b"\xff", b""]), [[b"\xff"], [b""]]),
        (ColumnType.BYTES, pa.array([1.5, 2.0]), [[b"1.5"], [b"2.0"]]),
        (ColumnType.BYTES, pa.array([True, False]), [[b"true"], [b"false"]]),
        (ColumnType.BYTES, pa.array([20_000, 0], pa.date32()), [[b"2024-10-04"], [b"1970-01-01"]]),
        (ColumnType.BYTES, pa.array([3_000_000, 0], pa.date32()), [[b"10183-09-21"], [b"1970-01-01"]]),
        (ColumnType.BYTES, pa.array([Decimal("1.50"), Decimal(2)]), [[b"1.50"], [b"2.00"]]),
        (ColumnType.BYTES, pa.array([float("nan"), 1.0]), [[b"nan"], [b"1.0"]]),
        (ColumnType.BYTES, pa.array(["u", "v"]).dictionary_encode(), [[b"u"], [b"v"]]),
        (ColumnType.BYTES, pa.array([1, 90_000 * 10**9], pa.duration("ns")), [[b"PT0.000000001S"], [b"P1DT3600S"]]),
        (
            ColumnType.BYTES,
            pa.array(
                [{"t": 1, "m": [("k", 2)], "l": [3]}, {"l": None}],
                pa.struct(
                    {
                        "t": pa.timestamp("ns"),
                        "m": pa.map_(pa.string(), pa.time64("ns")),
                        "l": pa.list_(pa.duration("ns")),
                    }
                ),
            ),
            [
                [b'{"t":"1970-01-01 00:00:00.000000001","m":[["k","00:00:00.000000002"]],"l":["PT0.000000003S"]}'],
                [b'{"t":null,"m":null,"l":null}'],
            ],
        ),
    ],
)
def test_typed_values(type_, array, values):
    assert convert(array, type_) == (values, [])


def test_lists():
    array = pa.array([[1, 2], [], None, [3]])
    assert convert(array, ColumnType.INT64, is_list=True, is_optional=True) == ([[1, 2], [], None, [3]], [])
    found, faults = convert(pa.array([[1, None], [2]]), ColumnType.INT64, is_list=True)
    assert (found[1], faults) == ([2], [(0, Reason.MISSING_VALUE)])
    assert convert(pa.array([[b"x"], [b"y", b"z"]]), ColumnType.BYTES, is_list=True)[0] == [[b"x"], [b"y", b"z"]]
    assert convert([1, 2], ColumnType.INT64, is_list=True) == ([[1], [2]], []), "a value is a list of one"
    assert convert(array, ColumnType.BYTES, is_optional=True)[0] == [[b"[1,2]"], [b"[]"], None, [b"[3]"]]


@pytest.mark.parametrize("array", [pa.array(["1", None, "3"], pa.large_string()), pa.array([1, None, 3])])
def test_missing_values(array):
    assert convert(array, ColumnType.INT64, is_optional=True) == ([[1], None, [3]], [])
    assert convert(array, ColumnType.INT64, default="7") == ([[1], [7], [3]], [])
    assert convert(array, ColumnType.INT64)[1] == [(1, Reason.MISSING_VALUE)]


@pytest.mark.parametrize(
    ("type_", "values", "default", "found"),
    [
        (ColumnType.DATE, pa.array([1, None], pa.date32()), "1970-01-03", [[1], [2]]),
        (ColumnType.TIMESTAMP, pa.array([1, None], pa.timestamp("us", "Europe/Berlin")), "1970-01-01", [[1], [0]]),
        (ColumnType.FLOAT, pa.array([Decimal("1.50"), None]), "2", [[1.5], [2.0]]),
        (ColumnType.BYTES, pa.array([b"\xff", None]), "none", [[b"\xff"], [b"none"]]),
        (ColumnType.BYTES, pa.array([b"\xff", None], pa.binary(1)), "none", [[b"\xff"], [b"none"]]),
    ],
)
def test_default_leaves_other_values_unchanged(type_, values, default, found):
    assert convert(values, type_, default=default) == (found, [])


def test_column_that_file_has_not():
    assert convert(None, ColumnType.FLOAT, is_optional=True) == ([None, None], [])
    assert convert(None, ColumnType.FLOAT, default="1.5") == ([[1.5], [1.5]], [])


@pytest.mark.parametrize(
    ("type_", "array", "reason"),
    [
        (ColumnType.INT64, ["x", "1"], Reason.OTHER_TYPE),
        (ColumnType.INT64, ["9223372036854775808", "1"], Reason.OTHER_TYPE),
        (ColumnType.INT64, [1.5, 1.0], Reason.OTHER_TYPE),
        (ColumnType.INT64, pa.array([[1], None]), Reason.OTHER_TYPE),
        (ColumnType.FLOAT, ["nan", "1"], Reason.NOT_FINITE),
        (ColumnType.FLOAT, [float("inf"), 1.0], Reason.NOT_FINITE),
        (ColumnType.FLOAT, ["1e39", "1"], Reason.NOT_FINITE),
        (ColumnType.BOOL, ["yes", "true"], Reason.OTHER_TYPE),
        (ColumnType.INT64, [True, False], Reason.OTHER_TYPE),
        (ColumnType.INT64, pa.array([1], pa.timestamp("s")), Reason.OTHER_TYPE),
        (ColumnType.BOOL, [2, 1], Reason.OTHER_TYPE),
        (ColumnType.BOOL, [0.5, 1.0], Reason.OTHER_TYPE),
        (ColumnType.DATE, pa.array([18_000, 86_400], pa.timestamp("s")), Reason.OTHER_TYPE),
        (ColumnType.DATE, ["2026-02-30", "2026-02-28"], Reason.OTHER_TYPE),
        (ColumnType.TIMESTAMP, ["soon", "2026-02-28"], Reason.OTHER_TYPE),
        (ColumnType.CLASS, ["z", "a"], Reason.UNKNOWN_CLASS),
    ],
)
def test_unfit_values_are_found(type_, array, reason):
    found, faults = convert(array, type_, classes=("a",))
    assert (0, reason) in faults
    if type_ is not ColumnType.INT64 or (isinstance(array, list) and array[0] is not True):
        assert {place for place, _ in faults} == {0}
        assert len(found) == 2


def test_missing_value_is_no_fault():
    floats = pa.array([1.5, None])
    assert convert(floats, ColumnType.DATE, is_optional=True)[1] == [(0, Reason.OTHER_TYPE)]


def test_classes():
    assert convert(["b", "a"], ColumnType.CLASS, classes=("a", "b")) == ([[1], [0]], [])
    assert convert([3, 1], ColumnType.CLASS, classes=("1", "3")) == ([[1], [0]], [])
    assert convert([True, False], ColumnType.CLASS, classes=("false", "true")) == ([[1], [0]], [])
    for classes in (("false", "true"), ("False", "True")):
        for values in ([True, False], ["True", "False"], ["true", "FALSE"]):
            assert convert(values, ColumnType.CLASS, classes=classes) == ([[1], [0]], [])
    for values in ([1.0, 0.0], ["1.0", "0"], [True, False]):
        assert convert(values, ColumnType.CLASS, classes=("0", "1")) == ([[1], [0]], [])
    assert [fault for _, fault in convert(["01", "1.5"], ColumnType.CLASS, classes=("0", "1"))[1]] == [
        Reason.UNKNOWN_CLASS,
        Reason.UNKNOWN_CLASS,
    ]
    assert convert(["1.0"], ColumnType.CLASS, classes=("1", "cat"))[1] == [(0, Reason.UNKNOWN_CLASS)]
    far = pa.array([3_000_000, 0], pa.date32())
    assert convert(far, ColumnType.CLASS, classes=("10183-09-21", "1970-01-01")) == ([[0], [1]], [])
    assert convert(["a", None], ColumnType.CLASS, classes=("a",))[1] == [(1, Reason.MISSING_VALUE)]
    assert convert(["a", None], ColumnType.CLASS, classes=("a", "b"), default="b") == ([[0], [1]], [])


@pytest.mark.parametrize(
    ("classes", "default", "found", "reason"),
    [
        (("1.5", "2"), None, [[0], None], Reason.MISSING_VALUE),
        (("1.5", "2"), "2", [[0], [1]], None),
        (("1.5", "NaN"), None, [[0], [1]], None),  # --classes names it
        (("1.5", "Nuts"), None, [[0], [0]], Reason.UNKNOWN_CLASS),
    ],
)
def test_nan_among_classes(classes, default, found, reason):
    faults = [(1, reason)] if reason else []
    given = convert(["1.5", "NaN"], ColumnType.CLASS, classes=classes, default=default)
    assert given == (found, faults)


def test_enums():
    coded = pa.array(["v", None, "u"]).dictionary_encode()
    assert convert(coded, ColumnType.ENUM, classes=("u", "v"), is_optional=True) == ([[1], None, [0]], [])
    assert convert(["v", "w"], ColumnType.ENUM, classes=("u", "v"))[1] == [(1, Reason.UNKNOWN_CLASS)]
    lists = pa.ListArray.from_arrays([0, 2, 2, 3], pa.array(["v", "u", "v"]).dictionary_encode())
    assert convert(lists, ColumnType.ENUM, classes=("u", "v"), is_list=True) == ([[1, 0], [], [1]], [])
    assert convert(lists, ColumnType.BYTES, is_list=True)[0] == [[b"v", b"u"], [], [b"v"]]
    digits = pa.ListArray.from_arrays([0, 2], pa.array(["7", "8"]).dictionary_encode())
    assert convert(digits, ColumnType.INT64, is_list=True) == ([[7, 8]], [])
    assert convert(digits, ColumnType.FLOAT, is_list=True) == ([[7.0, 8.0]], [])
    holes = pa.ListArray.from_arrays([0, 2, 3], pa.array(["v", None, "x"]).dictionary_encode())
    faults = convert(holes, ColumnType.ENUM, classes=("u", "v"), is_list=True)[1]
    assert sorted(faults) == [(0, Reason.MISSING_VALUE), (1, Reason.UNKNOWN_CLASS)]


@pytest.mark.parametrize(("unit", "value"), [("s", 1 << 40), ("ms", 1 << 62), ("s", 1 << 62)])
def test_point_in_time_beyond_int64_is_reject(unit, value):
    found, faults = convert(pa.array([0, value], pa.timestamp(unit)), ColumnType.TIMESTAMP)
    expected = value * 10**6 if value == 1 << 40 else None
    assert (found[0], faults) == ([0], [] if expected else [(1, Reason.OTHER_TYPE)])
    assert expected is None or found[1] == [expected]


def test_point_in_time_beyond_python_is_right_beside_reject():
    found, faults = convert(pa.array([1 << 40, 1 << 62], pa.timestamp("s")), ColumnType.TIMESTAMP)
    assert (found[0], faults) == ([(1 << 40) * 10**6], [(1, Reason.OTHER_TYPE)])


def test_whole_numbers_of_texts_are_exact():
    texts = ["12.0", "1e3", "9007199254740993", "9007199254740993.0", "1.5", "9007199254740991.4"]
    found, faults = convert(texts, ColumnType.INT64)
    assert found[:4] == [[12], [1000], [9007199254740993], [9007199254740993]]
    assert faults == [(4, Reason.OTHER_TYPE), (5, Reason.OTHER_TYPE)]


def test_lists_in_lists():
    array = plain_array(pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9]]]), [])
    found, faults = convert(array, ColumnType.FLOAT, is_list=True, shape=(2, 2))
    assert (found[:2], faults) == ([[1, 2, 3, 4], [5, 6, 7, 8]], [(2, Reason.OTHER_TYPE)])
    assert convert(array, ColumnType.BYTES)[0][0] == [b"[[1,2],[3,4]]"]
