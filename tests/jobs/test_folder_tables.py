"""`recordmill folder --labels`: tables that tell the class of an image, and its split."""

from collections import Counter

import pytest

from tests.conftest import manifest_of, rejects_of, shard_bytes
from tests.jobs.folders import (
    class_list,
    classes_of,
    counts,
    draw,
    draw_all,
    image_files,
    splits_of,
    three_splits,
    write_table,
)


def test_a_table_without_splits_divides_as_the_folder_does(pictures, converted, tmp_path, recordmill):
    rows = [(name, name.split("/")[0]) for name in sorted(image_files(pictures), reverse=True)]
    table = write_table(tmp_path / "labels.csv", [("image", "class"), *rows])
    outcome = recordmill("folder", *three_splits(pictures, tmp_path / "out"), "--labels", table)
    assert outcome.code == 0, outcome
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_several_tables_with_splits(tmp_path, recordmill):
    names = ["a.jpg", "b.png", "in/c.jpg", "in/d e.JPG", "f.jpg"]
    images = draw_all(tmp_path / "images", [*names, "extra.jpg"])
    splits = ["TRAIN", "test", "Validation", "train", "test"]
    labels = ["dog", "cat, big", "dog", "cat, big", "emu"]
    rows = list(zip(splits, names, labels, strict=True))
    write_table(tmp_path / "1.csv", [("split", "image_uri", "label"), *rows[:3]])
    write_table(tmp_path / "2.csv", [("class", "set", "file"), *((label, *row) for *row, label in rows[3:])])
    tables = ["--labels", tmp_path / "1.csv", "--labels", tmp_path / "2.csv"]
    outcome = recordmill("folder", "--images", images, *tables, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome
    assert splits_of(tmp_path / "out") == dict(zip(names, map(str.lower, splits), strict=True))
    assert classes_of(tmp_path / "out") == dict(zip(names, labels, strict=True))
    assert class_list(tmp_path / "out") == ["cat, big", "dog", "emu"]
    assert manifest_of(tmp_path / "out")["splits"]["test"]["unlisted"] == {"files": 1, "first": ["extra.jpg"]}
    assert recordmill("verify", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("content", "flags"),
    [
        (b"\xef\xbb\xbfPath;Label;;\r\n{here}/images/a.jpg;cat;;\r\n{here}/./images//b.jpg;dog;;\r\n;;;\r\n", ()),
        (
            b"where,path,what\n a.jpg ,x, cat\n\nb.jpg,y,dog,too many\n",
            ("--path-column", "where", "--label-column", "what"),
        ),
    ],
    ids=["of Excel, with whole paths", "other columns"],
)
def test_tables_as_programs_write_them(tmp_path, recordmill, monkeypatch, content, flags):
    draw_all(tmp_path / "images", ["a.jpg", "b.jpg"])
    (tmp_path / "labels.csv").write_bytes(content.replace(b"{here}", bytes(tmp_path)))
    monkeypatch.chdir(tmp_path)
    outcome = recordmill("folder", "--images", "images", "--labels", "labels.csv", "--output", "out", *flags)
    assert outcome.code == 0, outcome
    assert classes_of(tmp_path / "out") == {"a.jpg": "cat", "b.jpg": "dog"}


def test_two_spellings_of_an_accent_are_one_path_and_one_label(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["\u00e9.jpg", "b.jpg"])
    rows = [("path", "label"), ("\u00e9.jpg", "\u00e9"), ("e\u0301.jpg", "e\u0301"), ("b.jpg", "e\u0301")]
    table = write_table(tmp_path / "labels.csv", rows)
    flags = ["--images", images, "--labels", table, "--output", tmp_path / "out", "--max-rejects", 0.5]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0, outcome
    assert classes_of(tmp_path / "out") == {"\u00e9.jpg": "\u00e9", "b.jpg": "\u00e9"}
    assert class_list(tmp_path / "out") == ["\u00e9"]
    assert counts(tmp_path / "out")["rejected"] == {"duplicate_image_id": 1}


def test_every_bad_line_of_a_table_is_told(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["good.jpg", "twice.jpg", "torn.jpg", "both.jpg"])
    rows = [
        ("path", "label", "split"),
        ("good.jpg", "cat", "train"),
        ("twice.jpg", "cat", "train"),
        ("./twice.jpg", "cat", "train"),
        ("torn.jpg", "cat", "train"),
        ("torn.jpg", "dog", "train"),
        ("both.jpg", "cat", "train"),
        ("both.jpg", "cat", "test"),
        ("gone.jpg", "cat", "train"),
        ("good.jpg", "", "train"),
        ("good.jpg", "cat", "../x"),
        ("../good.jpg", "cat", "train"),
    ]
    table = write_table(tmp_path / "labels.csv", [*rows, ("torn.jpg", "emu", "test"), ("test.jpg", "cat", "test")])
    draw(images / "test.jpg", 9)
    outcome = recordmill(
        "folder", "--images", images, "--labels", table, "--output", tmp_path / "out", "--max-rejects", 1
    )
    assert outcome.code == 0, outcome
    assert splits_of(tmp_path / "out") == {"good.jpg": "train", "twice.jpg": "train", "test.jpg": "test"}
    rejected = Counter(
        (row["split"], row["reason"], row["detail"]) for row in rejects_of(tmp_path / "out") if row["what"] == "image"
    )
    torn = "3 rows of 'torn.jpg' say 'cat' in train, 'dog' in train, 'emu' in test: none is taken"
    both = "2 rows of 'both.jpg' say 'cat' in test, 'cat' in train: none is taken"
    must = "must be letters, digits and _: it is part of file names"
    fallback = sorted(manifest_of(tmp_path / "out")["splits"])[0]
    assert rejected == {
        ("train", "duplicate_image_id", "another row says the same of 'twice.jpg'"): 1,
        ("train", "duplicate_image_id", torn): 2,
        ("test", "duplicate_image_id", torn): 1,
        ("train", "duplicate_image_id", both): 1,
        ("test", "duplicate_image_id", both): 1,
        ("train", "image_missing", "no file 'gone.jpg' under --images"): 1,
        ("train", "malformed_image", "labels.csv line 10: 'good.jpg' has no label"): 1,
        (fallback, "malformed_image", f"labels.csv line 11: 'good.jpg' is of split '../x', which {must}"): 1,
        (
            "train",
            "unsafe_file_name",
            "labels.csv line 12: the path '../good.jpg' has .. in it",
        ): 1,
    }
    for split in ("train", "test"):
        images_of_split = counts(tmp_path / "out", split)
        assert images_of_split["rows"] == images_of_split["written"] + sum(images_of_split["rejected"].values())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a.jpg,cat\n", "its first line has 'a.jpg', 'cat': name the column with --path-column"),
        (b"path,label,split\na.jpg,cat,\n", "so there is nothing to write"),
        (b'path,label\na.jpg,"cat\n', "cannot be read as CSV (unexpected end of data"),
    ],
    ids=["no header", "no good row", "open quote"],
)
def test_a_table_that_cannot_be_used_is_refused_in_a_line(tmp_path, recordmill, content, told):
    images = draw_all(tmp_path / "images", ["a.jpg"])
    (tmp_path / "labels.csv").write_bytes(content)
    flags = ["--images", images, "--labels", tmp_path / "labels.csv", "--output", tmp_path / "out"]
    outcome = recordmill("folder", *flags)
    assert outcome.code in (1, 2)
    assert told in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "out" / "manifest.json").exists()
