"""Records of a table with faults are found among those without."""

import pytest

from recordmill.schemas.annotations import Category
from recordmill.schemas.example import ExampleWriter
from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.tables import Column, ColumnType, TableSchema
from recordmill.transforms.verify.check_rows import RowChecker

SCHEMA = TableSchema(
    (
        Column("c", "c", ColumnType.CLASS),
        Column("e", "e", ColumnType.ENUM, is_list=True, values=("u", "v", "w")),
        Column("l", "l", ColumnType.FLOAT, is_list=True),
        Column("o", "o", ColumnType.BYTES, is_optional=True),
        Column("x", "x", ColumnType.FLOAT),
    )
)
TABLE = FeatureTable("table", SCHEMA.features, record_of=RecordOf.ROW)
GOOD = {"row.class_index/c": 1, "row.e": [2, 0], "row.l": [0.5], "row.o": [], "row.x": 1.5}


def record(**changed) -> bytes:
    values = {source.rpartition(".")[2]: source for source in TABLE.sources} | {"c": "row.class_index/c"}
    return ExampleWriter(TABLE).write(GOOD | {values[name]: value for name, value in changed.items()})


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (record(x=float("nan")), "not_finite"),
        (record(x=float("-inf")), "not_finite"),
        (record(l=[1.0, float("inf")]), "not_finite"),
        (record(c=2), "class"),
        (record(c=-1), "class"),
        (record(e=[0, 1, 3]), "enum"),
        (record(e=[-1]), "enum"),
        (record(o=[b"1", b"2"]), "schema"),
        (b"no record", "schema"),
        (b"", "schema"),
    ],
)
def test_the_record_is_named_and_no_other(bad, reason):
    check = RowChecker(TABLE, LabelMap((Category(0, "a"), Category(1, "b"))))
    faults = check([record(), record(o=[b"1"]), bad, record(l=[])])
    assert [[fault for fault, _ in of_record] for of_record in faults] == [[], [], [reason], []]
