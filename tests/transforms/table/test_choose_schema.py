import io
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import ColumnType, FeatureKind
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading, TableSchema, schema_files
from recordmill.schemas.layouts import row_image_features
from recordmill.schemas.rejects import Reason
from recordmill.transforms.rows.observe_columns import TableStats, observe
from recordmill.transforms.rows.read_json import read_json_lines
from recordmill.transforms.rows.row_batch import BadRow, RowBatch, plain_array
from recordmill.transforms.table.choose_schema import ChosenSchema, choose_schema, numbered_columns
from recordmill.transforms.table.read_schema import columns_by_name, read_schema
from recordmill.transforms.table.table_options import TableOptions

FILES = (RowsFile("a.csv", 1, ""), RowsFile("b.csv", 1, "", 1))
IMAGES = {"images": ("pics",)}


def batch(columns: dict, is_typed: bool) -> RowBatch:
    arrays = {
        name: plain_array(values if isinstance(values, pa.Array) else pa.array(values), [])
        if is_typed
        else pa.array([value or None for value in values], pa.large_string())
        for name, values in columns.items()
    }
    rows = len(next(iter(arrays.values())))
    return RowBatch(arrays, np.arange(1, rows + 1), [], is_typed)


def options(**more) -> TableOptions:
    return TableOptions(data=("r.csv",), output="out", **more)


def choose(*files: dict, is_typed: bool = False, schema: tuple[Column, ...] = (), **more) -> ChosenSchema:
    """Return the schema of files of one batch each; `schema` are columns of --schema, and `more` are options."""
    given, known = options(**more), columns_by_name(TableSchema(schema))
    stats = TableStats()
    for number, columns in enumerate(files):
        stats.add(observe(batch(columns, is_typed), number, numbered_columns(given, known)))
    return choose_schema(stats, given, known, None, FILES)


def choose_from(stats: TableStats, **more) -> ChosenSchema:
    return choose_schema(stats, options(**more), {}, None, FILES)


def types(*files: dict, is_typed: bool = False) -> dict[str, ColumnType]:
    return {column.name: column.type for column in choose(*files, is_typed=is_typed).schema.columns}


def test_images_in_column_are_said_to_be_unchecked():
    files = [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"text", None]
    (warning,) = choose({"image.bytes": pa.array(files, pa.binary())}, is_typed=True).warnings
    assert warning.startswith("column image.bytes: 2 of 3 values are JPEG or PNG files, which are stored unchecked")


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["1", "-20", "0"], ColumnType.INT64),
        (["9223372036854775807", "-9223372036854775808"], ColumnType.INT64),
        (["1", "2.5", "-.5", "1e-3", "7."], ColumnType.FLOAT),
        (["9223372036854775808", "1.5"], ColumnType.FLOAT),
        (["1.5", "nan", "-inf"], ColumnType.FLOAT),
        (["true", "FALSE"], ColumnType.BOOL),
        (["2026-11-22", "1969-12-31"], ColumnType.DATE),
        (["2026-11-22", "2026-11-22T10:00:00Z"], ColumnType.TIMESTAMP),
        (["2026-11-22 10:00", "2026-11-22T10:00:00.123456+02:00"], ColumnType.TIMESTAMP),
        (["007", "08"], ColumnType.BYTES),  # zip codes, house numbers
        (["12025550147", "+12025550148"], ColumnType.BYTES),  # phone numbers
        (["+3", "-5.5"], ColumnType.BYTES),
        (["16777217.0", "-3", "1e3"], ColumnType.INT64),  # float32 does not hold the first
        (["16777216.0", "3"], ColumnType.FLOAT),
        (["16777217.0", "0.5"], ColumnType.FLOAT),
        (["16777217.00000000000001"], ColumnType.FLOAT),
        (["9007199254740993.0", "16777217"], ColumnType.FLOAT),  # nor does float64 hold this
        (["9223372036854775808"], ColumnType.BYTES),
        (["2026-02-30"], ColumnType.BYTES),
        (["1", "x"], ColumnType.BYTES),
        (["true", "1"], ColumnType.BYTES),
        (["=1+1", "=A2*3"], ColumnType.BYTES),  # nothing computes them
        ([".", "e5"], ColumnType.BYTES),
        (["nan"], ColumnType.FLOAT),
    ],
)
def test_texts(values, type_):
    assert types({"c": [*values, ""]}) == {"c": type_}
    assert types({"c": values[:1]}, {"c": values[1:] or values}) == {"c": type_}, "in any batch or file"


@pytest.mark.parametrize(
    ("array", "type_", "is_list"),
    [
        (pa.array([1, 2], pa.uint8()), ColumnType.INT64, False),
        (pa.array([1 << 63], pa.uint64()), ColumnType.BYTES, False),
        (pa.array([1.5, None], pa.float16()), ColumnType.FLOAT, False),
        (pa.array([True, None]), ColumnType.BOOL, False),
        (pa.array([1], pa.timestamp("ns", "UTC")), ColumnType.TIMESTAMP, False),
        (pa.array([1], pa.date64()), ColumnType.DATE, False),
        (pa.array([3_000_000], pa.date32()), ColumnType.DATE, False),  # of a year that Python has not
        (pa.array(["1", "2"]), ColumnType.BYTES, False),
        (pa.array([b"\xff"]), ColumnType.BYTES, False),
        (pa.array(["u", "v"]).dictionary_encode(), ColumnType.ENUM, False),
        (pa.ListArray.from_arrays([0, 2], pa.array(["u", "v"]).dictionary_encode()), ColumnType.ENUM, True),
        (pa.array([2, 1]).dictionary_encode(), ColumnType.INT64, False),
        (pa.array(["x" * 1001]).dictionary_encode(), ColumnType.BYTES, False),
        (pa.array([[1, 2], [], None]), ColumnType.INT64, True),
        (pa.array([[1.5]], pa.large_list(pa.float32())), ColumnType.FLOAT, True),
        (pa.array([[{"a": 1}]]), ColumnType.BYTES, True),
        (pa.array([Decimal(10**18), Decimal(1)], pa.decimal128(38, 0)), ColumnType.INT64, False),
        (pa.array([Decimal(10**19), Decimal(1)], pa.decimal128(38, 0)), ColumnType.BYTES, False),
        (pa.array([Decimal("123456789.00")], pa.decimal128(20, 2)), ColumnType.INT64, False),
        (pa.array([Decimal("123456789.00000000001")], pa.decimal128(30, 11)), ColumnType.FLOAT, False),
        (pa.array([Decimal("0.50")], pa.decimal128(20, 2)), ColumnType.FLOAT, False),
        (pa.array([123456789.0, None, -1.0]), ColumnType.INT64, False),
        (pa.array([1.0, 2.0]), ColumnType.FLOAT, False),
        (pa.array([[123456789.0], []]), ColumnType.INT64, True),
        (pa.array(["u" * 20], pa.string_view()), ColumnType.BYTES, False),
        (pa.array([b"u"], pa.binary_view()), ColumnType.BYTES, False),
        (pa.array([[[1, 2], [3, 4]], None]), ColumnType.INT64, True),
    ],
)
def test_typed_values(array, type_, is_list):
    (column,) = choose({"c": array}, is_typed=True).schema.columns
    assert (column.type, column.is_list) == (type_, is_list)


def test_numeric_type_asked_for():
    found = choose({"a": ["1"], "b": ["2"]}, dtype=("a=float32",))
    assert [column.type for column in found.schema.columns] == [ColumnType.FLOAT, ColumnType.INT64]


def test_columns_without_value_in_some_row_are_optional():
    found = choose({"a": ["1", ""], "b": ["1", "2"], "c": ["", "x"]}, {"b": ["3"]}, default=("c=y",))
    assert found.schema.columns == (
        Column("a", "a", ColumnType.INT64, is_optional=True),
        Column("b", "b", ColumnType.INT64),
        Column("c", "c", ColumnType.BYTES, default="y"),
    )
    assert [feature.shape for feature in found.schema.features] == [("0 or 1 of a",), (), ()]
    assert [text for text in found.warnings if "column a is not in b.csv" in text]
    stats = observe(batch({"b": [1]}, True), 0)  # JSON Lines: the first batch lacks a key that the second has
    stats.add(observe(batch({"a": [1], "b": [2]}, True), 0))
    columns = choose_from(stats).schema.columns
    assert {column.name: column.is_optional for column in columns} == {"a": True, "b": False}


def test_warning_of_numeric_class_names():
    (text,) = choose({"c": ["1", "2"]}, label="c").warnings
    assert "class '1' has label 0" in text
    assert choose({"c": ["1", "2"]}, label="c", classes=("1", "2")).warnings == ()
    (text,) = choose({"g": ["1", "2"]}, {"g": ["1.0"]}, key="g").warnings
    assert text.startswith("column g has 2 numbers without a fraction and 1 with one: as names they are text")


WHOLE, FRACTIONS, TRUTHS = [0, 1, 10], [0.0, 2.0, float("nan")], [True, False]


@pytest.mark.parametrize(
    ("files", "names", "warned"),
    [
        ([WHOLE, FRACTIONS], ["0", "1", "2.0", "10"], ["'0' and '0.0'"]),
        ([WHOLE, TRUTHS], ["0", "1", "10"], ["'0' and 'false'"]),
        ([FRACTIONS, TRUTHS], ["0", "1", "2.0"], ["'0' and '0.0' and 'false'"]),
        ([[4, 5], TRUTHS], ["0", "1", "4", "5"], ["'0' and 'false'"]),
        ([WHOLE, [2.0]], ["0", "1", "2.0", "10"], []),
        ([[2.0, 10.0]], ["2.0", "10.0"], []),
        ([TRUTHS], ["false", "true"], []),
        ([["True", "False"]], ["False", "True"], []),
        ([["1", "01", "cat"], [1.0]], ["01", "1", "1.0", "cat"], []),
    ],
)
def test_classes_that_are_equal_numbers_are_one(files, names, warned):
    chosen = choose(*({"c": pa.array(values)} for values in files), is_typed=True, label="c")
    assert [category.name for category in chosen.labels.categories] == names
    texts = [text for text in chosen.warnings if "equal numbers are one class" in text]
    assert [text.partition("such as ")[2] for text in texts] == warned


def test_true_of_csv_is_true_of_other_formats():
    stats = observe(batch({"c": ["True", "False"]}, False), 0, ["c"])
    stats.add(observe(batch({"c": [True]}, True), 1, ["c"]))
    assert [category.name for category in choose_from(stats, label="c").labels.categories] == ["false", "true"]


def test_classes_may_be_named_in_another_form_of_numbers():
    chosen = choose({"c": ["1.0", "0.0"]}, label="c", classes=("0", "1"))
    assert [category.name for category in chosen.labels.categories] == ["0", "1"]


def test_file_without_rows_lacks_no_column():
    stats = observe(RowBatch({}, np.zeros(0, np.int64), [], True), 1)
    stats.add(observe(batch({"a": ["0"]}, False), 0, ["a"]))
    found = choose_from(stats, label="a")
    assert (found.schema.columns, found.warnings) == ((Column("a", "a", ColumnType.CLASS),), ())
    (column,) = choose_from(stats).schema.columns
    assert not column.is_optional
    stats.add(observe(batch({"b": ["1"]}, False), 1))
    assert [column.is_optional for column in choose_from(stats).schema.columns] == [True, True]


def test_where_no_row_can_be_read_first_is_named():
    def bad(*lines: int) -> RowBatch:
        rows = [BadRow(line, Reason.MALFORMED_ROW, f"odd {line}") for line in lines]
        return RowBatch({}, np.zeros(0, np.int64), rows, True)

    stats = TableStats()
    for number, of_file in ((1, bad(1)), (0, bad(5)), (0, bad(7, 8))):
        stats.add(observe(of_file, number))
    with pytest.raises(ConfigError, match=r"^none of 4 rows can be read\. The first is a\.csv row 5: odd 5$"):
        choose_from(stats, label="a")
    stats.add(observe(batch({"a": ["1"]}, False), 1))
    assert choose_from(stats).warnings == ()


def test_odd_values_are_named_with_number_and_place():
    (text,) = choose({"c": ["1", "2", "x"]}).warnings
    assert text.startswith(
        "column c is written as text, as it has whole numbers (2) and text (1), the first 'x' in a.csv row 3"
    )
    (text,) = choose({"c": ["1e39", "1"]}).warnings
    assert text.startswith("float32, the type in records, rounds numbers of c (1 of 2); ")
    (text,) = choose({"c": ["", ""], "d": ["x", "y"]}).warnings
    assert text.startswith("column c has no value in any row")


def enum(*files, **choice) -> tuple[str, ...]:
    (column,) = choose(*({"c": values} for values in files), **choice).schema.columns
    assert column.type is ColumnType.ENUM
    return column.values


def test_enums_are_numbered_over_all_files(monkeypatch):
    coded = [pa.array(values).dictionary_encode() for values in (["b", None, "c"], ["a", "b"])]
    assert enum(*coded, is_typed=True) == ("a", "b", "c"), "and not by a file's own codes"
    assert enum(*coded, is_typed=True, default=("c=aa",)) == ("a", "aa", "b", "c")
    (text,) = choose({"c": coded[0]}, is_typed=True).warnings
    assert "in schema.json: c of 2 values" in text
    asked = {"schema": (Column("c", "c", ColumnType.ENUM),)}
    assert enum(["10", "9", ""], ["9"], **asked) == ("9", "10"), "as classes are"
    assert enum(["b", "a"], schema=(Column("c", "c", ColumnType.ENUM, values=("x", "b")),)) == ("x", "b")
    assert choose({"c": ["b", "a"]}, **asked).warnings == ()
    mixed = choose({"c": coded[0]}, {"c": pa.array(["x"])}, is_typed=True)
    assert mixed.schema.columns[0].type is ColumnType.BYTES
    assert "it has values of an enum (2) and text (1), the first 'x' in b.csv row 1" in mixed.warnings[0]
    with pytest.raises(ConfigError, match="an enum with a value twice"):
        enum(["b"], schema=(Column("c", "c", ColumnType.ENUM, values=("x", "x")),))
    monkeypatch.setattr("recordmill.transforms.rows.observe_columns.MOST_DISTINCT", 1)
    many = choose({"c": coded[0]}, is_typed=True)
    assert many.schema.columns[0].type is ColumnType.BYTES
    assert "as it has values of an enum, the first 'b', and more than" in many.warnings[0]
    with pytest.raises(CategoryError, match="too many to be an enum"):
        enum(["a", "b"], **asked)


def test_default_is_class_and_fills_no_list():
    assert [c.name for c in choose({"c": ["b", ""]}, label="c", default=("c=a",)).labels.categories] == ["a", "b"]
    with pytest.raises(ConfigError, match="--default c: the column has lists"):
        choose({"c": pa.array([[1], None])}, is_typed=True, default=("c=1",))
    with pytest.raises(CategoryError, match="column c has lists"):
        choose({"c": pa.array([["a"], None])}, is_typed=True, label="c")


def test_columns_that_differ_in_blanks_are_quoted():
    with pytest.raises(ConfigError, match=r"no column 'lable'. The columns are 'label', ' label', c$"):
        choose({"label": ["a"], " label": ["b"], "c": ["1"]}, label="lable")


def test_classes_are_numbered(monkeypatch):
    assert [c.name for c in choose({"c": ["b", "a", "", "b"]}, label="c").labels.categories] == ["a", "b"]
    assert [c.name for c in choose({"c": ["10", "9"]}, label="c").labels.categories] == ["9", "10"]
    far = choose({"c": pa.array([3_000_000, 0], pa.date32())}, is_typed=True, label="c").labels
    assert [c.name for c in far.categories] == ["10183-09-21", "1970-01-01"]
    given = choose({"c": ["b", "a"]}, label="c", classes=("b", "a", "x"))
    assert [(c.id, c.name) for c in given.labels.categories] == [(0, "b"), (1, "a"), (2, "x")]
    with pytest.raises(CategoryError, match="no row has a class of --classes or --encoders, which are z"):
        choose({"c": ["b"]}, label="c", classes=("z",))
    with pytest.raises(CategoryError, match="""Quote a name with a comma: --classes '"a,b",c'"""):
        choose({"c": ["a,b", "c"]}, label="c", classes=("a", "b", "c"))
    with pytest.raises(CategoryError, match="no value in any row"):
        choose({"c": [""], "d": ["1"]}, label="c")
    monkeypatch.setattr("recordmill.transforms.rows.observe_columns.MOST_DISTINCT", 2)
    with pytest.raises(CategoryError, match="too many to be classes"):
        choose({"c": ["a", "b"]}, {"c": ["c"]}, label="c")


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"columns": ("a", "x")}, "--columns: no column 'x'"),
        ({"columns": ("a", "x"), "label": "x"}, "--label: no column 'x' among --columns"),
        ({"label": "x"}, "--label: no column 'x'. The columns are a, b"),
        ({"label": "b"}, "column b is not in b.csv. Every row needs a value"),
        ({"key": "x"}, "no column 'x'"),
        ({"label": "a", "rename": (f"a={'x' * 201}",)}, "--rename it"),
        ({"label": "a", "rename": ("a=x\ny",)}, "--rename it"),
        ({"rename": ("a=b",)}, "columns 'a' and 'b' would both be the feature 'b'"),
        ({"schema": (Column("a", "a", ColumnType.CLASS),)}, "--schema: column a has classes. Add --label a"),
        ({"schema": (Column("x", "x", ColumnType.INT64),)}, "--schema: no column 'x'"),
        ({"dtype": ("x=int64",)}, "--dtype: no column 'x'"),
        ({"label": "a", "dtype": ("a=int64",)}, "--dtype a: column a has classes"),
        ({"text_column": ("a",), "text": "counts", "dtype": ("a=int64",)}, "--dtype a: column a has texts"),
        ({**IMAGES, "image_column": "x", "key": "a"}, "--image-column: no column 'x'"),
        ({**IMAGES, "image_column": "x", "columns": ("a",)}, "--image-column: no column 'x'"),
        ({**IMAGES, "image_column": "b"}, "column b is not in b.csv. Every row needs a value"),
        ({"rename": ("a=",)}, "column 'a' would be a feature without a name; --rename it"),
        ({"default": ("a=x",)}, "--default: column a: 'x' is not of type int64"),
        ({"default": ("a=nan",), "schema": (Column("a", "a", ColumnType.FLOAT),)}, "--default: column a: 'nan'"),
        (
            {**IMAGES, "image_column": "a", "columns": ("a",), "rename": ("a=image",)},
            "column 'a' would be the feature 'image', which is the",
        ),
    ],
)
def test_columns_missing_in_table(more, fault):
    with pytest.raises(ConfigError) as caught:
        choose({"a": ["1"], "b": ["2"]}, {"a": ["1"]}, **more)
    assert fault in str(caught.value)


def test_column_without_name_is_no_feature():
    with pytest.raises(ConfigError, match=r"^b\.csv: a column has no name\. Name it"):
        choose({"a": ["1"]}, {"": ["1"]})


def test_image_paths_on_request():
    rows = {"a": ["1.jpg", "2.jpg"], "b": ["2", "3"]}

    def names(**more) -> list[str]:
        return [column.name for column in choose(rows, **IMAGES, image_column="a", **more).schema.columns]

    assert names() == ["b"]
    assert names(columns=("a",)) == ["a"]
    assert names(label="a") == names(text_column=("a",), text="counts") == ["a", "b"]
    assert choose({"a": ["1.jpg"]}, **IMAGES, image_column="a").schema == TableSchema(())


SCHEMA = TableSchema(
    (
        Column("a b", 'f"\n', ColumnType.INT64, is_list=True),
        Column("c", "c", ColumnType.CLASS),
        Column("d", "d", ColumnType.FLOAT, is_optional=True),
        Column("e", "e", ColumnType.BOOL, default="true"),
        Column("m", "M", ColumnType.ENUM, is_optional=True, values=("é", "x y")),
        Column("n", "n", ColumnType.ENUM, is_list=True, values=("1", "2")),
        Column("t", "t", ColumnType.TIMESTAMP),
        Column("x", "x", ColumnType.BYTES),
        Column("y", "y", ColumnType.DATE),
    )
)


def test_columns_follow_from_features():
    assert set(TableSchema.of_features(SCHEMA.features).columns) == set(SCHEMA.columns)
    assert {feature.name: feature.kind for feature in SCHEMA.features}["d"] is FeatureKind.FLOAT


def test_files_of_schema_are_read_back(tmp_path):
    pytest.importorskip("tensorflow_metadata", reason="the extra dev is not installed, or has none for this Python")
    files = schema_files((*SCHEMA.features, *row_image_features((4, 3))), ["u", "v"])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert set(read_schema(str(tmp_path / "schema.json")).columns) == set(SCHEMA.columns)
    by_name = {
        column.name: (column.type, column.is_list, column.values)
        for column in read_schema(str(tmp_path / "schema.pbtxt")).columns
    }
    integers = dict.fromkeys(("c", "e", "t", "y"), (ColumnType.INT64, False, ()))
    assert by_name == {
        'f"\n': (ColumnType.INT64, True, ()),
        "d": (ColumnType.FLOAT, False, ()),
        "M": (ColumnType.ENUM, False, ("é", "x y")),
        "n": (ColumnType.ENUM, True, ("1", "2")),
        "x": (ColumnType.BYTES, False, ()),
        **integers,
        **dict.fromkeys(("image/pixels", "image/filename", "image/source_id"), (ColumnType.BYTES, False, ())),
        **dict.fromkeys(("image/height", "image/width"), (ColumnType.INT64, False, ())),
    }
    for name in files:
        (tmp_path / name).write_text("feature { nonsense }" if name.endswith("pbtxt") else "{}")
        with pytest.raises(ConfigError, match="is not a schema"):
            read_schema(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "schema.json",
            '{"columns": [{"name": "a", "feature": "", "type": "bool"}, {"name": "a", "feature": "", "type": "date"}]}',
        ),
        ("schema.pbtxt", 'feature { name: "a" type: INT } feature { name: "a" type: BYTES }'),
    ],
)
def test_schema_has_each_column_once(tmp_path, name, text):
    if name.endswith("pbtxt"):
        pytest.importorskip("tensorflow_metadata")
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"{name} has the column 'a' twice. Remove one"):
        read_schema(str(tmp_path / name))


def test_both_features_of_text_are_of_one_column(tmp_path):
    parts = [
        Column("t", f"t/{type_.value}", type_, is_list=True) for type_ in (ColumnType.TERM_INDEX, ColumnType.TERM_VALUE)
    ]
    (tmp_path / "schema.json").write_bytes(msgspec.json.encode(TableSchema(tuple(parts))))
    assert list(read_schema(str(tmp_path / "schema.json")).columns) == parts


def test_lists_in_lists_have_a_shape():
    found = choose({"a": [[[1, 2, 3], [4, 5, 6]], None], "b": [[[1.5]], [[2.5]]]}, is_typed=True)
    assert [(column.shape, column.as_feature.shape) for column in found.schema.columns] == [
        ((2, 3), ("N of a",)),  # a row lacks it
        ((1, 1), ("1", "1")),
    ]
    assert TableSchema.of_features(found.schema.features).columns[1] == found.schema.columns[1]


@pytest.mark.parametrize("files", [[[[[1, 2], [3]]]], [[[[1, 2]]], [[[1, 2], [3, 4]]]], [[[["x"]]]], [[[[1]], [1]]]])
def test_lists_in_lists_without_shape_are_error_with_its_cure(files):
    batches = [
        next(read_json_lines("x", io.BytesIO(msgspec.json.encode({"m": row})), RowsReading(), 9))
        for of in files
        for row in of
    ]
    stats = TableStats()
    for read in batches:
        stats.add(observe(read, 0))
    with pytest.raises(ConfigError, match=r"^column m has lists .* in lists, .* Give one flat list"):
        choose_from(stats)
    as_text = {"m": Column("m", "m", ColumnType.BYTES)}
    assert choose_schema(stats, options(), as_text, None, FILES).schema.columns[0].type is ColumnType.BYTES


def test_names_of_numbers_keep_their_order():
    numbers = batch({"c": pa.array(["cat"]).dictionary_encode()}, True)._replace(names={"c": ("dog", "cat")})
    stats = observe(numbers, 0, ["c"])
    assert choose_from(stats).schema.columns[0].values == ("dog", "cat")
    labels = choose_from(stats, label="c").labels
    assert [category.name for category in labels.categories] == ["dog", "cat"]


@pytest.mark.parametrize(
    ("values", "is_typed", "names"),
    [
        (["1.0", "nan", "2.0", "-inf"], False, ["1.0", "2.0"]),
        (["cat", "nan"], False, ["cat", "nan"]),
        ([1.0, float("inf")], True, ["1.0"]),
    ],
)
def test_nan_among_numbers_is_no_class(values, is_typed, names):
    assert [each.name for each in choose({"c": values}, is_typed=is_typed, label="c").labels.categories] == names


def test_points_in_time_cut_are_named():
    fine = batch({"t": pa.array([1], pa.timestamp("us"))}, True)._replace(cut={"t": 1})
    for given in (options(), options(label="t")):
        (text,) = choose_schema(observe(fine, 0, numbered_columns(given, {})), given, {}, None, FILES).warnings
        assert text.startswith("column t: 1 of 1 points in time are finer than a microsecond")


@pytest.mark.parametrize(
    ("array", "rounded"),
    [
        (pa.array([0.1, 0.5, float("nan")]), 1),
        (pa.array([(1 << 24) + 1, 1 << 24, (1 << 63) - 1, -(1 << 63)]), 2),
        (pa.array([Decimal("0.10"), Decimal("0.50")]), 1),
        (pa.array([Decimal("1.00000000000000000001")]), 1),  # float64 holds 1
        (pa.array([Decimal("2.00000000000")], pa.decimal128(30, 11)), 0),  # Arrow's own cast is not exact
        (pa.array(["0.1", "16777217", "18446744073709551617", "1e39"]), 4),
        (pa.array(["9007199254740993.0", "0.500000000000000000001", "0.10000000149011612"]), 2),
        (pa.array([0.1], pa.float32()), 0),
        (pa.array([1 << 63, (1 << 63) + 1], pa.uint64()), 1),
    ],
)
def test_numbers_that_float32_rounds_are_counted_by_equality(array, rounded):
    is_typed = array.type != pa.string()
    assert (
        observe(batch({"a": array.to_pylist() if not is_typed else array}, is_typed), 0).columns["a"].rounded == rounded
    )
