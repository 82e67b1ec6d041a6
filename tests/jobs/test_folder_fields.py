"""Columns of tables of labels that are open fields of images."""

import csv
import json
import math

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.beam import ReadDataset, WriteDataset
from tests.beam_pipeline import Pipeline
from tests.conftest import draw_jpeg, manifest_of, read_examples, shard_bytes

ROWS = [
    {"path": "a.jpg", "label": "cat", "age": 3, "score": 0.5, "colour": "red", "is_old": True, "day": "2020-01-02"},
    {"path": "b.jpg", "label": "dog", "age": -7, "score": 2.0, "colour": "grün", "is_old": False, "day": "2020-01-03"},
    {"path": "c.jpg", "label": "cat", "age": None, "score": None, "colour": None, "is_old": None, "day": None},
]
MISSING = {"age": -1, "score": math.nan, "colour": "", "is_old": -1, "day": ""}


@pytest.fixture
def folder(tmp_path):
    for row in ROWS:
        draw_jpeg(tmp_path / "images" / row["path"])
    return tmp_path


def write_table(folder, ending: str, rows=ROWS):
    path = folder / f"labels.{ending}"
    if ending == "csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ROWS[0])
            writer.writeheader()
            writer.writerows(rows)
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def convert(recordmill, folder, table, *more):
    flags = "--labels", table, "--output", folder / "out", *more
    return recordmill("convert", folder / "images", "--format", "folder", *flags)


def stored(value):
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("fields", ["all", "age,image.score,colour,is_old,day"])
def test_columns_are_fields(ending, fields, folder, recordmill):
    assert convert(recordmill, folder, write_table(folder, ending), "--fields", fields).code == 0
    examples = {example["image/filename"][0].decode(): example for example in read_examples(folder / "out")}
    for row in ROWS:
        for name, missing in MISSING.items():
            value = missing if row[name] is None else row[name]
            right = [stored(value)]
            assert examples[row["path"]][name] == (pytest.approx(right, nan_ok=True) if name == "score" else right)
    assert recordmill("verify", folder / "out").code == 0


def test_named_kinds_and_two_processes(folder, recordmill):
    table = write_table(folder, "csv")
    fields = "age:float,is_old:text,score:text"
    assert convert(recordmill, folder, table, "--fields", fields).code == 0
    examples = {example["image/filename"][0]: example for example in read_examples(folder / "out")}
    first = examples[b"a.jpg"]
    assert (first["age"], first["is_old"], first["score"]) == ([3.0], [b"True"], [b"0.5"])
    more = "--output", folder / "two", "--workers", 2
    assert convert(recordmill, folder, table, "--fields", fields, *more).code == 0
    assert shard_bytes(folder / "two") == shard_bytes(folder / "out")


def test_lists_of_json(folder, recordmill):
    rows = [row | {"box": [1, 2], "tags": ["x"] * number} for number, row in enumerate(ROWS)]
    assert convert(recordmill, folder, write_table(folder, "jsonl", rows), "--fields", "box,tags").code == 0
    examples = {example["image/filename"][0]: example for example in read_examples(folder / "out")}
    assert [examples[name]["box"] for name in sorted(examples)] == [[1, 2]] * 3
    assert [examples[name]["tags"] for name in sorted(examples)] == [[], [b"x"], [b"x", b"x"]]


def test_repeated_rows_give_one_record_in_any_order(folder, recordmill):
    rows = [*ROWS, ROWS[0] | {"age": 9}]
    hashes = []
    for number, order in enumerate((rows, rows[::-1])):
        table = write_table(folder, "csv", order)
        more = "--max-rejects", 1, "--output", folder / f"out{number}"
        assert convert(recordmill, folder, table, "--fields", "age", *more).code == 0
        hashes.append(shard_bytes(folder / f"out{number}"))
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_samples_have_columns(ending, folder, recordmill):
    table = write_table(folder, ending)
    fields = "age,score,colour,is_old"
    assert convert(recordmill, folder, table, "--fields", fields).code == 0
    with Pipeline() as p:
        read = p | ReadDataset(folder / "images", format="folder", labels=table, fields=fields)
        read | WriteDataset(folder / "piped", name="images")
        ages = read.samples | beam.Map(lambda sample: sample.fields.get("age"))
        assert_that(ages, equal_to([3, -7, None]))
    assert shard_bytes(folder / "piped") == shard_bytes(folder / "out")


def test_without_the_flag(folder, recordmill):
    assert convert(recordmill, folder, write_table(folder, "csv")).code == 0
    assert not {*read_examples(folder / "out")[0]} & {*MISSING}
    split = manifest_of(folder / "out")["splits"]["train"]
    assert "fields" not in split["recipe"]["options"]
    assert "--labels has columns that are not written. Add --fields age,colour,day,is_old,score" in split["warnings"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("colr", "Did you mean image.colour?"),
        ("label", "paths, classes or splits"),
        ("age:double", "kind"),
    ],
)
def test_wrong_columns_are_errors(fields, words, folder, recordmill):
    run = convert(recordmill, folder, write_table(folder, "csv"), "--fields", fields)
    assert (run.code, words in run.err) == (2, True), run.err


def test_fields_need_a_table(folder, recordmill):
    draw_jpeg(folder / "images" / "cat" / "d.jpg")
    run = recordmill("convert", folder / "images", "--format", "folder", "--output", folder / "out", "--fields", "age")
    assert run.code == 2
    assert "--labels" in run.err
