import hashlib

import pytest
from PIL import Image

from recordmill.schemas.dataset.checks import Check
from recordmill.schemas.features import ColumnType, FeatureTable, RecordOf
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.encoders import EncoderInfo, TextForm
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.tables import Column, TableSchema
from recordmill.schemas.layouts import row_image_features
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.sample.draw_scene import encoded
from recordmill.transforms.verify.check_records import RowChecker

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


@pytest.mark.parametrize("how", [Check.HASHES, Check.TENSORFLOW])
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
def test_record_is_named_and_no_other(bad, reason, how):
    check = RowChecker(how, TABLE, LabelMap((Category(0, "a"), Category(1, "b"))))
    faults = check([record(), record(o=[b"1"]), bad, record(l=[])])
    assert [[fault for fault, _ in record_faults] for record_faults in faults] == [[], [], [reason], []]


@pytest.mark.parametrize("how", [Check.HASHES, Check.TENSORFLOW])
def test_a_name_of_no_class(how):
    table = TableSchema((Column("c", "c", ColumnType.CLASS_NAME),)).table()
    records = [ExampleWriter(table).write({"row.class_index/c": name}) for name in (b"b", b"c")]
    faults = RowChecker(how, table, LabelMap((Category(0, "a"), Category(1, "b"))))(records)
    assert [[fault for fault, _ in record_faults] for record_faults in faults] == [[], ["class"]]


def image_table(raw_size: tuple[int, int] | None) -> FeatureTable:
    features = sorted((*SCHEMA.features, *row_image_features(raw_size)), key=lambda feature: feature.name)
    return FeatureTable("table", tuple(features), record_of=RecordOf.ROW)


JPEG = encoded(Image.new("RGB", (40, 30), (200, 60, 50)), "JPEG")
IMAGE = {
    "image.channels": 3,
    "image.encoded": JPEG,
    "image.file_name": b"a.jpg",
    "image.format": b"jpeg",
    "image.height": 30,
    "image.id": b"7",
    "image.sha256": hashlib.sha256(JPEG).hexdigest().encode(),
    "image.width": 40,
    "image.pixels": bytes(4 * 3 * 3),
}


@pytest.mark.parametrize("how", list(Check))
@pytest.mark.parametrize(
    ("raw_size", "changed", "reason"),
    [
        (None, {"image.encoded": JPEG[:-20] + bytes(20)}, "image_sha256"),
        (None, {"image.width": 41}, "image_size"),
        (None, {"image.channels": 1}, "image_channels"),
        (None, {"row.x": float("nan")}, "not_finite"),
        ((4, 3), {"image.pixels": bytes(35)}, "image_size"),
        ((4, 3), {"image.width": 4}, "image_size"),
        ((4, 3), {"image.height": 3}, "image_size"),
    ],
)
def test_image_of_row_is_looked_at(raw_size, changed, reason, how):
    table = image_table(raw_size)
    good = GOOD | IMAGE | ({"image.height": 4, "image.width": 3} if raw_size else {})
    records = [ExampleWriter(table).write(good | more) for more in ({}, changed, {})]
    faults = RowChecker(how, table, LabelMap((Category(0, "a"), Category(1, "b"))))(records)
    assert [[fault for fault, _ in record_faults][:1] for record_faults in faults] == [[], [reason], []]


def test_row_whose_numbers_are_none_of_encoder_is_found():
    columns = (
        Column("title", "title/index", ColumnType.TERM_INDEX, is_list=True),
        Column("title", "title/value", ColumnType.TERM_VALUE, is_list=True),
    )
    table = FeatureTable("table", TableSchema(columns).features)
    encoder = EncoderInfo("title", TextForm.COUNTS, 5, "train", 7, "")
    rows = [([0, 4], [1.0, 2.0]), ([], []), ([2, 1], [1.0, 1.0]), ([1], [1.0])]
    records = [ExampleWriter(table).write({"title.index": of[0], "title.value": of[1]}) for of in rows]
    record_faults = RowChecker(Check.TENSORFLOW, table, LabelMap(()), (encoder,))(records)
    assert [[reason for reason, _ in faults] for faults in record_faults] == [[], [], ["text"], []]
    assert RowChecker(Check.TENSORFLOW, table, LabelMap(()))(records)[2] == []
