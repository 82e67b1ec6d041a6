from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.encoders import EncoderSource, TextEncoder, TextForm, TextSettings
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import SplitShares
from recordmill.schemas.inputs.tables import Column, RowsFile, TableSchema
from recordmill.schemas.rejects import Reason
from recordmill.transforms.encoders.fit_encoder import TextVectorizer
from recordmill.transforms.table import convert_texts as module
from recordmill.transforms.table.choose_schema import ChosenSchema, with_texts
from recordmill.transforms.table.convert_texts import convert_texts
from recordmill.transforms.table.fit_columns import row_texts
from recordmill.transforms.table.table_options import TableOptions

ENCODER = TextEncoder(1, "title", TextSettings(TextForm.COUNTS), "train", 3, ("cat", "dog"))
INDEX = Column("title", "title/index", ColumnType.TERM_INDEX, is_list=True)
VALUE = Column("title", "title/value", ColumnType.TERM_VALUE, is_list=True)
SCHEMA = TableSchema((Column("id", "id", ColumnType.INT64), Column("title", "title", ColumnType.BYTES)))
CHOSEN = ChosenSchema(SCHEMA, LabelMap(()), ("w",))


def options(**more) -> TableOptions:
    return TableOptions(data=("r.csv",), output="out", **{"text_column": ("title",), "text": "counts"} | more)


def test_rows_without_text():
    array = pa.array([b"dog cat dog", None, b"\xff", b"", b"yak"], pa.binary())

    (index, value), faults, counts = convert_texts((INDEX, VALUE), array, 5, TextVectorizer(ENCODER))
    assert (index.name, value.name) == ("title/index", "title/value")
    assert (index.values.tolist(), value.values.tolist()) == ([0, 1], [1.0, 2.0])
    assert index.ends.tolist() == value.ends.tolist() == [0, 2, 2, 2, 2, 2]
    assert (index.values.dtype, value.values.dtype) == (np.int64, np.float32)
    assert [(fault.place, fault.reason) for fault in faults] == [(2, Reason.OTHER_TYPE)]
    assert counts.tolist() == [[1, 0, 3, 0], [0] * 4, [0] * 4, [1, 1, 0, 0], [1, 1, 1, 1]]


def test_text_is_no_longer_than_row_of_csv(monkeypatch):
    monkeypatch.setattr(module, "MOST_TEXT_BYTES", 7)
    _, faults, counts = convert_texts(
        (INDEX, VALUE), pa.array(["dog cat", "dog cat ", "cat"]), 3, TextVectorizer(ENCODER)
    )
    assert [(fault.place, fault.reason) for fault in faults] == [(1, Reason.RECORD_TOO_LARGE)]
    assert "a text of 8 bytes" in faults[0].detail
    assert counts.tolist() == [[1, 0, 2, 0], [0] * 4, [1, 0, 1, 0]]


def test_features_of_text_columns():
    chosen = with_texts(CHOSEN, [ENCODER], options(text_names="value=words"))
    assert chosen.schema.columns[1:] == (INDEX, Column("title", "words", ColumnType.TERM_VALUE, is_list=True))
    assert chosen.encoders == (ENCODER,)
    assert chosen.warnings == ("w",)
    features = chosen.schema.features
    assert [(each.name, each.source, each.shape) for each in features[1:]] == [
        ("title/index", "title.index", ("T of title",)),
        ("words", "title.value", ("T of title",)),
    ]
    assert set(TableSchema.of_features(features).columns) == set(chosen.schema.columns)
    default = TableSchema((Column("title", "title", ColumnType.BYTES, default="none"),))
    schema = with_texts(CHOSEN._replace(schema=default), [ENCODER], options()).schema
    assert {column.default for column in TableSchema.of_features(schema.features).columns} == {"none"}


def test_counts_are_integers_where_asked_for():
    chosen = with_texts(CHOSEN, [ENCODER], options(dtype=("title/value=int64",)))
    assert [column.type for column in chosen.schema.columns[1:]] == [ColumnType.TERM_INDEX, ColumnType.TERM_COUNT]
    tokens = TextEncoder(1, "title", TextSettings(TextForm.TOKENS), "train", 3, ("cat", "dog"))
    with pytest.raises(ConfigError, match="title/value does not store counts of terms"):
        with_texts(CHOSEN, [tokens], options(text="tokens", dtype=("title/value=int64",)))


def test_name_that_another_column_has_is_refused():
    with pytest.raises(ConfigError, match="would both be the feature 'id'"):
        with_texts(CHOSEN, [ENCODER], options(text_names="index=id"))


def texts_of(
    file: RowsFile, split_of: dict[str, str], given: TableOptions, splits: tuple[str, ...], chosen: ChosenSchema
) -> list:
    sources = [EncoderSource(column, ENCODER.settings, split) for column, split in split_of.items()]
    return [(found.tag, found.value) for found in row_texts(file, sources, chosen, given, splits, given.reading)]


def test_texts_are_one_split_s_rows(tmp_path):
    """A row whose split is not known is of none; a default is a text."""
    table = {"title": ["a", None, "b", "c", "d"], "part": ["train", "Train ", "val", "x", None]}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    given, splits = options(split_column="part"), ("train", "val")
    file = RowsFile(str(tmp_path / "r.parquet"), 1, "")

    def texts(split: str, default: str | None = None) -> list[str]:
        schema = TableSchema(tuple(Column(name, name, ColumnType.BYTES, default=default) for name in table))
        found = texts_of(file, {"title": split, "part": "val"}, given, splits, CHOSEN._replace(schema=schema))
        assert found[1] == ("of part", ["val"])
        return found[0][1]

    assert (texts("train"), texts("val"), texts("train", "none")) == (["a"], ["b"], ["a", "none"])


def test_texts_of_split_where_classes_are_divided_one_by_one(tmp_path):
    """All rows of one class are of val, and those of the other of train; a row of no class is of none."""
    table = {"title": ["a", "b", "c", "d"], "id": [1, 2, 3, 4], "kind": ["y", "x", "y", "z"]}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    halves = SplitShares((("train", Fraction(1, 2)), ("val", Fraction(1, 2))))
    given = options(split=halves.shares, key="id", label="kind", stratify=True)
    schema = TableSchema((*SCHEMA.columns, Column("kind", "kind", ColumnType.CLASS)))
    labels = LabelMap((Category(0, "x"), Category(1, "y")))
    chosen = ChosenSchema(schema, labels, (), borders={0: (0,), 1: (1 << 63,)})
    file = RowsFile(str(tmp_path / "r.parquet"), 1, "")
    assert texts_of(file, {"title": "train"}, given, halves.names, chosen) == [("of title", ["a", "c"])]
    assert texts_of(file, {"title": "val"}, given, halves.names, chosen) == [("of title", ["b"])]
