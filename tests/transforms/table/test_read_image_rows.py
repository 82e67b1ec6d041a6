import json
import math
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.annotations import Category, TableRow
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import SplitShares, name_id
from recordmill.schemas.inputs.tables import Column, RowsFile, RowsReading, TableSchema
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.dataset.facts import Facts, FactsBuilder
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.read_records import read_records, row_block
from recordmill.transforms.table.table_options import TableOptions
from tests.transforms.dataset.kinds import listed

HALVES = SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2))))
SCHEMA = TableSchema((Column("kind", "kind", ColumnType.CLASS), Column("n", "n", ColumnType.INT64, is_optional=True)))
CHOSEN = ChosenSchema(SCHEMA, LabelMap((Category(0, "cat"), Category(1, "dog"))), ())


class Image(NamedTuple):
    id: int
    name: str
    split: str
    class_name: str | None
    row: TableRow


class Found(NamedTuple):
    images: list[Image]
    facts: Facts

    @property
    def rejects(self) -> list[Rejected]:
        """In the order of rows."""
        return sorted((reject for _, reject in listed(self.facts)), key=lambda reject: reject.id)


def read(path: Path, folders: tuple[str, ...] = ("pics",), **more) -> Found:
    options = TableOptions(
        data=(str(path),), output="out", split=HALVES.shares, image_column="path", images=folders, label="kind", **more
    )
    file = RowsFile(str(path), path.stat().st_size, "")
    facts = FactsBuilder()
    found = []
    for made in read_records(file, facts, CHOSEN, options, HALVES.names, RowsReading()):
        block = row_block(made, np.arange(len(made.names)), file, CHOSEN, "path")
        block.check("test")
        labels = labels_of(block)
        columns = block.image_id.tolist(), block.file_name.texts(), block.split.tolist(), labels
        found += [
            Image(i, name, HALVES.names[n], of.class_name, of.row) for i, name, n, of in zip(*columns, strict=True)
        ]
    return Found(found, facts.build())


def csv(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("path,kind,n\n" + "".join(f"{line}\n" for line in lines))
    return path


def test_row_has_its_class_its_record_and_its_place(tmp_path):
    found = read(path := csv(tmp_path, "x/a.jpg,dog,5"))
    (image,) = found.images
    split = HALVES.split_of("x/a.jpg")
    assert image[:4] == (name_id("x/a.jpg"), "x/a.jpg", split, "dog")
    assert (image.row.line, image.row.place) == (1, f"{path} row 1: column path")
    features = tf.train.Example.FromString(image.row.record).features.feature
    assert {name: list(feature.int64_list.value) for name, feature in features.items()} == {"kind": [1], "n": [5]}
    assert found.facts.inputs == {(split, str(path), "rows"): InputRows(str(path), "rows", 1, 0)}
    assert found.facts.classes == {}, "its image is not known yet"


def test_all_spellings_of_path_are_one_picture_in_one_split(tmp_path):
    whole = tmp_path / "pics" / "é" / "a.jpg"
    spellings = ("é/a.jpg", "./é//a.jpg", "e\u0301/a.jpg", " é/a.jpg ", str(whole))
    folders = (str(tmp_path / "pics"),)
    found = read(csv(tmp_path, *(f'"{name}",cat,{n}' for n, name in enumerate(spellings))), folders).images
    assert {image[:3] for image in found} == {(name_id("é/a.jpg"), "é/a.jpg", HALVES.split_of("é/a.jpg"))}
    assert len(found) == 5


def test_key_decides_instead_of_picture(tmp_path):
    rows = (f"{n}.jpg,cat,{n % 2}" for n in range(20))
    found = read(csv(tmp_path, *rows), key="n").images
    assert {(image.id, image.split) for image in found} == {(name_id(key), HALVES.split_of(key)) for key in ("0", "1")}
    assert len({image.name for image in found}) == 20


def test_unusable_paths_are_rejects(tmp_path):
    path = csv(tmp_path, "../a.jpg,cat,1", ",cat,2", "/elsewhere/a.jpg,cat,3", "http://x/a.jpg,cat,4", "a.jpg,emu,5")
    found = read(path)
    assert [(r.what, r.id, r.reason, r.detail) for r in found.rejects] == [
        ("row", line, reason, f"{path} row {line}: column {detail}")
        for line, reason, detail in (
            (1, Reason.UNSAFE_FILE_NAME, "path: the path '../a.jpg' has .. in it"),
            (2, Reason.MISSING_VALUE, "path has no value"),
            (3, Reason.UNSAFE_FILE_NAME, "path: the path '/elsewhere/a.jpg' is an absolute path"),
            (4, Reason.UNSAFE_FILE_NAME, "path: the path 'http://x/a.jpg' is a URL"),
            (5, Reason.UNKNOWN_CLASS, "kind: 'emu' is not a class"),
        )
    ]
    assert found.images == []
    assert found.facts.inputs == {("a", str(path), "rows"): InputRows(str(path), "rows", 5, 0)}


def test_values_that_are_no_paths(tmp_path):
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"path": p, "kind": "cat"}) + "\n" for p in (1, 2)))
    pq.write_table(pa.table({"path": [math.nan, 1.5, None], "kind": ["cat"] * 3}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"path": [b"\xff\xd8\xff"], "kind": ["cat"]}), tmp_path / "b.parquet")
    (tmp_path / "without.csv").write_text("kind\ncat\n")
    expected = {
        "t.jsonl": [(Reason.OTHER_TYPE, "1 is not the path"), (Reason.OTHER_TYPE, "2 is not the path")],
        "t.parquet": [
            (Reason.OTHER_TYPE, "nan is not the path"),
            (Reason.OTHER_TYPE, "1.5 is not the path"),
            (Reason.MISSING_VALUE, "no value"),
        ],
        "b.parquet": [(Reason.OTHER_TYPE, r"b'\xff\xd8\xff' is not the path")],
        "without.csv": [(Reason.MISSING_VALUE, "no value")],
    }
    for name, faults in expected.items():
        rejects = read(tmp_path / name).rejects
        assert [reject.reason for reject in rejects] == [reason for reason, _ in faults]
        assert all(detail in reject.detail for reject, (_, detail) in zip(rejects, faults, strict=True))
