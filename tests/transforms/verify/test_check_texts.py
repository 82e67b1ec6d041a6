import pytest

from recordmill.schemas.dataset.checks import Check
from recordmill.schemas.features import ColumnType, FeatureTable
from recordmill.schemas.inputs.encoders import EncoderInfo, TextForm
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.tables import Column, TableSchema
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.verify.check_records import RowChecker

COLUMNS = (
    Column("title", "title/index", ColumnType.TERM_INDEX, is_list=True),
    Column("title", "title/value", ColumnType.TERM_VALUE, is_list=True),
)
TABLE = FeatureTable("table", TableSchema(COLUMNS).features)
ENCODER = EncoderInfo("title", TextForm.COUNTS, 5, "train", 7, "")


@pytest.mark.parametrize(
    ("index", "value", "told"),
    [([5], [1.0], "is not within 0 .. 4"), ([2, 1], [1.0, 1.0], "do not ascend"), ([2], [-1.0], "weighs -1")],
)
def test_row_whose_numbers_are_none_of_encoder_is_found(index, value, told):
    rows = [([0, 4], [1.0, 2.0]), ([], []), (index, value), ([1], [1.0])]
    write = ExampleWriter(TABLE).write
    records = [write({"title.index": of[0], "title.value": of[1]}) for of in rows]
    found = RowChecker(Check.TENSORFLOW, TABLE, LabelMap(()), (ENCODER,))(records)
    assert [len(faults) for faults in found] == [0, 0, 1, 0]
    assert told in found[2][0][1]
    assert RowChecker(Check.TENSORFLOW, TABLE, LabelMap(()))(records)[2] == []
