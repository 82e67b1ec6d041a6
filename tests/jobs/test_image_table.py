"""Tables with `--image-column`, as a user runs it."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import recordmill as package
from recordmill.schemas.errors import ConfigError
from tests.conftest import manifest_of, read_examples, rejects_of, shard_bytes
from tests.jobs.folders import draw

SPLITS = ("train", "val", "test")
SHARES = ["--split", "train=0.6,val=0.2,test=0.2"]
KINDS = ("cat", "dog", "emu")


class Drawn:
    """A folder of 30 images, and two rows about each."""

    def __init__(self, folder: Path):
        self.images = folder / "pics"
        paths = [f"{n % 3}/{n}.{('jpg', 'png')[n % 2]}" for n in range(30) for _ in range(2)]
        self.rows = [
            {"path": path, "kind": KINDS[n % 3], "price": n / 4, "note": "x" * (n % 5)} for n, path in enumerate(paths)
        ]
        for number, row in enumerate(self.rows[::2]):
            draw(self.images / row["path"], number)
        self.csv = folder / "rows.csv"
        with self.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, self.rows[0].keys())
            table.writeheader()
            table.writerows(self.rows)

    def flags(self, out: Path, *more: object) -> list[object]:
        return [
            "convert",
            self.csv,
            "--format",
            "table",
            "--images",
            self.images,
            "--image-column",
            "path",
            "--output",
            out,
            *more,
        ]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Drawn:
    return Drawn(tmp_path_factory.mktemp("drawn"))


def test_each_row_is_record_with_its_picture(drawn, tmp_path, recordmill):
    assert recordmill(*drawn.flags(tmp_path, "--label", "kind", *SHARES, "--num-shards", 2)).code == 0
    records = [(record, split) for split in SPLITS for record in read_examples(tmp_path, split)]
    by_row = {(r["image/filename"][0].decode(), r["price"][0]): (r, split) for r, split in records}
    assert len(records) == len(by_row) == 60
    for row in drawn.rows:
        record, _ = by_row[row["path"], row["price"]]
        assert record["image/encoded"] == [(drawn.images / row["path"]).read_bytes()]
        assert record["kind"] == [KINDS.index(row["kind"])]
        assert record.get("note", [b""]) == [row["note"].encode()]
        assert "path" not in record
        with Image.open(drawn.images / row["path"]) as picture:
            assert (record["image/width"], record["image/height"]) == ([picture.width], [picture.height])
        assert record["image/format"] == [b"png" if row["path"].endswith("png") else b"jpeg"]
    splits_of = {}
    for (path, _), (_, split) in by_row.items():
        assert splits_of.setdefault(path, split) == split
    assert set(splits_of.values()) == set(SPLITS)
    assert recordmill("verify", tmp_path).code == 0
    splits = manifest_of(tmp_path)["splits"].values()
    assert sum(sum(split["class_counts"]) for split in splits) == 60
    pixels = next(iter(package.open(str(tmp_path))["train"].tensorflow()))["image"]
    assert pixels.dtype == np.uint8
    assert pixels.shape[2] == 3
    with pytest.raises(ConfigError, match="no split"):
        package.open(str(tmp_path))["x"]
    assert recordmill("extract", tmp_path, tmp_path / "new").code == 2


def test_raw_pixels_equal_those_of_readers(drawn, tmp_path, recordmill):
    assert recordmill(*drawn.flags(tmp_path, "--raw-size", "12x16", "--label", "kind")).code == 0
    (record, *_) = read_examples(tmp_path)
    assert len(record["image/pixels"][0]) == 12 * 16 * 3
    assert not {"image/encoded", "image/format", "image/key/sha256"} & record.keys()
    for row in package.open(str(tmp_path))["train"].tensorflow():
        with Image.open(drawn.images / row["image/filename"].numpy().decode()) as picture:
            expected = np.asarray(picture.convert("RGB").resize((16, 12), Image.Resampling.BILINEAR))
        assert row["image"].shape == (12, 16, 3)
        assert (row["image"].numpy() == expected).all()
    features = json.loads((tmp_path / "features.json").read_text())["featuresDict"]["features"]
    assert features["image/pixels"]["tensor"] == {
        "dtype": "uint8",
        "encoding": "bytes",
        "shape": {"dimensions": ["12", "16", "3"]},
    }
    assert recordmill("verify", tmp_path).code == 0
    assert recordmill(*drawn.flags(tmp_path, "--label", "kind")).code == 2, "another recipe"


def test_bad_rows_are_rejects_with_their_line(drawn, tmp_path, recordmill):
    (tmp_path / "pics").mkdir()
    draw(tmp_path / "pics" / "good.jpg", 1)
    (tmp_path / "pics" / "cut.jpg").write_bytes((tmp_path / "pics" / "good.jpg").read_bytes()[:200])
    (tmp_path / "pics" / "spare.jpg").write_bytes(b"x")
    names = ["good.jpg", "cut.jpg", "gone.jpg", "../good.jpg", "", "good.jpg"]
    (tmp_path / "t.csv").write_text("path,n\n" + "".join(f'"{name}",{n}\n' for n, name in enumerate(names)))
    flags = [
        "convert",
        tmp_path / "t.csv",
        "--format",
        "table",
        "--images",
        tmp_path / "pics",
        "--image-column",
        "path",
    ]
    assert recordmill(*flags, "--output", tmp_path / "out").code == 1
    assert not shard_bytes(tmp_path / "out")
    assert recordmill(*flags, "--output", tmp_path / "out", "--max-rejects", 1).code == 0
    assert [(r["what"], r["id"], r["reason"]) for r in rejects_of(tmp_path / "out")] == [
        ("row", 2, "image_unreadable"),
        ("row", 3, "image_missing"),
        ("row", 4, "unsafe_file_name"),
        ("row", 5, "missing_value"),
    ]
    assert sorted(r["n"][0] for r in read_examples(tmp_path / "out")) == [0, 5]
    assert manifest_of(tmp_path / "out")["splits"]["train"]["unlisted"] == {"files": 1, "first": ["spare.jpg"]}
    later = recordmill(*flags, "--output", tmp_path / "later", "--max-rejects", 0.5)
    assert later.code == 1, "3 rows are found before images are read, and the cut one later"


def test_ranked_rows_are_exact_and_excluded_ones_are_left_out(drawn, tmp_path, recordmill):
    (tmp_path / "out.txt").write_text(drawn.rows[0]["path"] + "\n")
    how = [*SHARES, "--split-by", "rank", "--exclude", tmp_path / "out.txt"]
    assert recordmill(*drawn.flags(tmp_path / "out", *how)).code == 0
    splits = manifest_of(tmp_path / "out")["splits"]
    rows = {
        name: split["images"]["written"] + sum(split["images"]["rejected"].values()) for name, split in splits.items()
    }
    assert rows == {"train": 36, "val": 12, "test": 12}
    assert sum(split["images"]["rejected"].get("excluded", 0) for split in splits.values()) == 2


def file_rows(number: int) -> list[dict]:
    """Rows with images as Hugging Face stores them: of some the name is not known, and two are the same."""
    rows = []
    for n in range(number):
        content = io.BytesIO()
        Image.new("RGB", (20, 10 + n), (n, 0, 99)).save(content, ("JPEG", "PNG")[n % 2])
        path = (f"{n}.jpg", "../x.jpg", None)[n % 3]
        rows.append({"image": {"bytes": content.getvalue(), "path": path}, "kind": n % 2})
    return [*rows, rows[0]]


def test_rows_hold_the_files_of_pictures(tmp_path, recordmill):
    rows = file_rows(12)
    rows[3]["image"] = None
    rows[4]["image"] = rows[4]["image"] | {"bytes": rows[4]["image"]["bytes"][:60]}
    for name, part in (("a", rows[:7]), ("b", rows[7:])):
        pq.write_table(pa.Table.from_pylist(part), tmp_path / f"{name}.parquet", row_group_size=2)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "whole.parquet")
    flags = ["--image-column", "image", "--label", "kind", "--split", "train=0.5,val=0.5", "--num-shards", 1]
    flags += ["--max-rejects", 1]
    plan = recordmill(
        "convert", tmp_path / "whole.parquet", "--format", "table", *flags, "--output", tmp_path / "no", "--dry-run"
    )
    assert plan.code == 0
    written = {}
    for out, pattern in (("parts", "?.parquet"), ("whole", "whole.parquet")):
        assert (
            recordmill("convert", tmp_path / pattern, "--format", "table", *flags, "--output", tmp_path / out).code == 0
        )
        assert not list((tmp_path / out).glob(".recordmill*"))
        records = [(record, split) for split in SPLITS[:2] for record in read_examples(tmp_path / out, split)]
        assert [(r["what"], r["reason"]) for r in rejects_of(tmp_path / out)] == [
            ("row", "missing_value"),
            ("row", "image_unreadable"),
        ]
        written[out] = sorted((r["image/encoded"], r["image/filename"], r["kind"], split) for r, split in records)
    assert written["parts"] == written["whole"]
    found = [(encoded[0], kind[0]) for encoded, _, kind, _ in written["whole"]]
    assert sorted(found) == sorted((r["image"]["bytes"], r["kind"]) for n, r in enumerate(rows) if n not in (3, 4))
    names = [name[0].decode() for _, name, _, _ in written["whole"]]
    assert {name for name in names if name.endswith(".jpg")} == {"0.jpg", "6.jpg", "9.jpg"}
    assert all(len(name) == 32 for name in names if not name.endswith(".jpg")), "known by its bytes"


def test_column_of_texts_is_no_pictures(drawn, tmp_path, recordmill):
    wrong = recordmill(
        "convert", drawn.csv, "--format", "table", "--image-column", "path", "--output", tmp_path / "out"
    )
    assert (wrong.code, "add --images" in wrong.err) == (2, True)


@pytest.mark.parametrize("key", [[], ["--key", "n"]])
def test_held_copies_are_dropped(tmp_path, recordmill, key):
    """Images of equal size are in one file, and only copies are dropped."""
    pictures = []
    for seed in (1, 2, 1, 3):
        draw(tmp_path / "a.bmp", seed)
        pictures.append((tmp_path / "a.bmp").read_bytes())
    assert len(set(map(len, pictures))) == 1
    pq.write_table(pa.table({"image": pictures, "n": range(4)}), tmp_path / "t.parquet")
    flags = [
        "convert",
        tmp_path / "t.parquet",
        "--format",
        "table",
        "--image-column",
        "image",
        *key,
        "--max-rejects",
        0,
    ]
    assert recordmill(*flags, "--output", tmp_path / "out", "--duplicates", "drop").code == 0
    kept = {record["n"][0] for record in read_examples(tmp_path / "out")}
    assert kept in ({0, 1, 3}, {1, 2, 3})


@pytest.mark.parametrize("key", [[], ["--key", "n"]])
def test_rows_of_copies_are_dropped(tmp_path, recordmill, key):
    draw(tmp_path / "pics" / "a.jpg", 1)
    (tmp_path / "pics" / "b.jpg").write_bytes((tmp_path / "pics" / "a.jpg").read_bytes())
    draw(tmp_path / "pics" / "c.jpg", 2)
    (tmp_path / "t.csv").write_text("path,kind,n\na.jpg,x,0\na.jpg,x,1\nb.jpg,y,1\nc.jpg,x,3\n")
    flags = [
        "convert",
        tmp_path / "t.csv",
        "--format",
        "table",
        "--images",
        tmp_path / "pics",
        "--image-column",
        "path",
        *key,
    ]
    flags += ["--label", "kind", "--output", tmp_path / "out", "--duplicates", "drop", "--max-rejects", 0]
    assert recordmill(*flags).code == 0
    (reject,) = rejects_of(tmp_path / "out")
    assert (reject["what"], reject["id"], reject["reason"]) == ("row", 3, "duplicate")
    assert reject["detail"].endswith("the same bytes as 'a.jpg' of train, which is kept, with other labels")
    names = sorted(record["image/filename"][0] for record in read_examples(tmp_path / "out"))
    assert names == [b"a.jpg", b"a.jpg", b"c.jpg"]
