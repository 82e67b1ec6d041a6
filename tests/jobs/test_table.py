"""Tables, as a user runs it."""

import csv
import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import manifest_of, read_examples, rejects_of, shard_bytes

SHARES = ["--split", "train=0.7,val=0.2,test=0.1"]


def drawn(count: int = 600) -> list[dict]:
    rng = random.Random(0)
    return [
        {
            "id": number,
            "price": round(rng.random() * 100, 2),
            "kind": rng.choice(["cat", "dog", "emu"]),
            "patient": f"p{number // 7}",
            "note": rng.choice(["", 'é, "quoted"', "two\nlines", "=1+1", "<script>"]),
            "seen": rng.choice([True, False]),
        }
        for number in range(count)
    ]


def write_csv(path: Path, rows: list[dict]) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0].keys())
        table.writeheader()
        table.writerows(
            {name: str(v).lower() if v is True or v is False else v for name, v in row.items()} for row in rows
        )
    return path


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> list[Path]:
    """One table as CSV in three parts, JSON Lines and Parquet."""
    folder, found = tmp_path_factory.mktemp("rows"), drawn()
    write_csv(folder / "part-2.csv", found[:100])
    write_csv(folder / "part-0.csv", found[100:400])
    write_csv(folder / "part-1.csv", found[400:])
    whole = [{name: value for name, value in row.items() if value != ""} for row in found]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in whole))
    pq.write_table(
        pa.Table.from_pylist([row | {"note": row["note"] or None} for row in found]), folder / "rows.parquet"
    )
    return [folder / "part-*.csv", folder / "rows.jsonl", folder / "rows.parquet"]


def test_three_formats_give_same_shards(rows, tmp_path, recordmill):
    """Whatever the order of files and rows: they are mixed by a hash of what they are."""
    more = ["--label", "kind", *SHARES, "--group-column", "patient", "--num-shards", "3", "--gzip"]
    for number, path in enumerate(rows):
        assert recordmill("convert", path, "--format", "table", "--output", tmp_path / str(number), *more).code == 0
        assert not list((tmp_path / str(number)).glob(".recordmill*"))
    shards = [shard_bytes(tmp_path / str(number)) for number in range(3)]
    assert shards[0] == shards[1] == shards[2]
    assert len(shards[0]) == 9
    assert recordmill("verify", tmp_path / "0").code == 0
    examples = {name: read_examples(tmp_path / "0", name) for name in ("train", "val", "test")}
    assert sum(map(len, examples.values())) == 600
    split_of = {(record["patient"][0], name) for name, records in examples.items() for record in records}
    assert len(split_of) == len(dict(split_of)) == 86
    assert {name for _, name in split_of} == set(examples)


def test_records_hold_the_rows(rows, tmp_path, recordmill):
    flags = [rows[0], "--format", "table", "--label", "kind", "--rename", "id=row/id", "--output", tmp_path]
    assert recordmill("convert", *flags).code == 0
    records = {record["row/id"][0]: record for record in read_examples(tmp_path)}
    assert len(records) == 600
    classes = ["cat", "dog", "emu"]
    for row in drawn():
        record = records[row["id"]]
        expected = {"kind": [classes.index(row["kind"])], "seen": [int(row["seen"])], "row/id": [row["id"]]}
        expected |= {"patient": [row["patient"].encode()]} | ({"note": [row["note"].encode()]} if row["note"] else {})
        assert {name: values for name, values in record.items() if name != "price"} == expected
        assert record["price"] == pytest.approx([row["price"]])
    assert [row["id"] for row in drawn()] != [record["row/id"][0] for record in read_examples(tmp_path)], "mixed"
    manifest = manifest_of(tmp_path)
    assert manifest["num_classes"] == 3
    assert sum(manifest["splits"]["train"]["class_counts"]) == 600
    assert {"schema.json", "schema.pbtxt", "features.json", "labels.csv"} <= {path.name for path in tmp_path.iterdir()}


def test_stratify_gives_each_split_its_share_of_every_class(tmp_path, recordmill):
    """Shares count the rows that are not rejected, in all files; the vocabulary comes from the rows of train."""
    kinds = ["cat"] * 400 + ["dog"] * 150 + ["emu"] * 17
    found = [
        {"id": n, "kind": kind, "price": "?" if n % 20 == 3 else n, "note": f"word{n % 3} word{n % 5}"}
        for n, kind in enumerate(kinds)
    ]
    write_csv(tmp_path / "one.csv", found)
    write_csv(tmp_path / "b-0.csv", found[::-1][:300])
    write_csv(tmp_path / "b-1.csv", found[::-1][300:])
    columns = [{"name": "price", "feature": "price", "type": "int64"}, {"name": "note", "feature": "note"}]
    (tmp_path / "schema.json").write_text(json.dumps({"columns": [columns[0], columns[1] | {"type": "bytes"}]}))
    flags = ["--label", "kind", "--key", "id", *SHARES, "--stratify", "--max-rejects", "0.1"]
    flags += ["--schema", tmp_path / "schema.json", "--text-column", "note", "--text", "counts"]
    for name in ("one", "b-*"):
        assert (
            recordmill(
                "convert", tmp_path / f"{name}.csv", "--format", "table", *flags, "--output", tmp_path / name[0]
            ).code
            == 0
        )
    assert shard_bytes(tmp_path / "b") == shard_bytes(tmp_path / "o")
    manifest = manifest_of(tmp_path / "o")
    good = Counter(row["kind"] for row in found if row["price"] != "?")
    for split, share in (("train", 0.7), ("val", 0.2), ("test", 0.1)):
        for number, kind in zip(manifest["splits"][split]["class_counts"], ("cat", "dog", "emu"), strict=True):
            assert abs(number - share * good[kind]) < 1
    ids = [{r["id"][0] for r in read_examples(tmp_path / "o", split)} for split in ("train", "val", "test")]
    # The encoder's split is that of the records: rejects of other columns have texts, too, and defaults are some.
    assert len(ids[0]) <= manifest["encoders"][0]["texts"] <= len(ids[0]) + len(found) - sum(good.values())
    assert recordmill("verify", tmp_path / "o").code == 0


def test_schema_of_data_set_writes_it_again(rows, tmp_path, recordmill):
    """With the names of features, and the defaults, that were given for it."""
    flags = [rows[1], "--format", "table", "--label", "kind", "--num-shards", "2"]
    named = ["--rename", "id=row/id,kind=species", "--default", "note=none"]
    assert recordmill("convert", *flags, *named, "--output", tmp_path / "out").code == 0
    again = ["--schema", tmp_path / "out" / "schema.json", "--output", tmp_path / "again"]
    assert recordmill("convert", *flags, *again).code == 0
    assert shard_bytes(tmp_path / "again") == shard_bytes(tmp_path / "out")
    assert (tmp_path / "again" / "schema.json").read_text() == (tmp_path / "out" / "schema.json").read_text()
    assert [b"none"] in [record["note"] for record in read_examples(tmp_path / "out")]


def test_added_split_keeps_labels_of_data_set(tmp_path, recordmill):
    for split, kinds in (("train", "abc"), ("val", "ac"), ("test", "ad")):
        (tmp_path / f"{split}.csv").write_text("id,kind\n" + "".join(f"{kind}{split},{kind}\n" for kind in kinds))
    flags = {
        split: ["convert", tmp_path / f"{split}.csv", "--format", "table", "--label", "kind", "--split", split]
        for split in ("train", "val", "test")
    }
    assert recordmill(*flags["train"], "--output", tmp_path / "out").code == 0
    added = recordmill(*flags["val"], "--output", tmp_path / "out")
    assert added.code == 0
    (warning,) = manifest_of(tmp_path / "out")["splits"]["val"]["warnings"]
    assert warning.startswith("no example is of 'b'")
    assert sorted(record["kind"] for record in read_examples(tmp_path / "out", "val")) == [[0], [2]]
    more = recordmill(*flags["test"], "--output", tmp_path / "out")
    assert (more.code, "has no class 'd'" in more.err, "--classes" in more.err) == (1, True, True)


@pytest.mark.parametrize("flag", ["--key", "--group-column"])
@pytest.mark.parametrize(
    ("suffix", "names", "missing"),
    [
        ("csv", [*map(str, range(20)), "0.5", "nan", "-NaN"], 2),
        ("csv", [*map(str, range(20)), "ann", "nan", "NaN"], 0),
        ("parquet", [*map(float, range(20)), float("nan"), None], 2),
    ],
)
def test_nan_that_rows_are_divided_by(flag, suffix, names, missing, tmp_path, recordmill):
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        path.write_text("".join(f"{value},1\n" for value in ["id", *names]))
    else:
        pq.write_table(pa.table({"id": names, "1": [1] * len(names)}), path)
    flags = ["--columns", "1", "--split", "train=0.5,val=0.5", "--max-rejects", "1", "--output", tmp_path / "out"]
    outcome = recordmill("convert", path, "--format", "table", flag, "id", *flags)
    assert outcome.code == 0, outcome
    assert [reject["reason"] for reject in rejects_of(tmp_path / "out")] == ["missing_value"] * missing
    examples = [*read_examples(tmp_path / "out", "train"), *read_examples(tmp_path / "out", "val")]
    assert len(examples) == len(names) - missing
