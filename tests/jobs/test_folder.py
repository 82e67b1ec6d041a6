"""`recordmill folder` from end to end: images of one class each, whatever tells the class."""

import csv
import hashlib
import io
import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
import tensorflow as tf
from PIL import Image

from recordmill.launch.cli import main
from recordmill.schemas.layouts import CLASSIFICATION
from recordmill.tensorflow_dataset import dataset
from tests.conftest import SHARED_DATA, manifest_of, read_examples, rejects_of, shard_bytes
from tests.jobs.test_coco import run_disturbed
from tests.jobs.test_verify import changed, records, rewrite

SPLITS = ("train", "val", "test")
THREE = ("--split", "train=0.5,val=0.25,test=0.25")
NOT_IMAGES = (".git/1.jpg", "Cat/._1.jpg", "Cat/.DS_Store", "big dog/Thumbs.db", "notes.txt")
CLASSES = ["Cat", "big dog", "Öl"]
"""Of `pictures`, by index: upper case sorts before lower case, and both before what is not ASCII."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Class folders of 24 JPEGs and PNGs of 1 to 4 channels and different sizes: endings in upper case, folders in
    folders, spaces, an accent. And files that are no images, or are hidden."""
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(8):
        draw(folder / "Cat" / f"{number}.jpg", number, "L" if number == 3 else "RGB")
        mode = ("L", "LA", "RGB", "RGBA")[number % 4]
        draw(folder / "big dog" / ("0 1.PNG" if number == 0 else f"{number}.png"), 20 + number, mode)
    for number, name in enumerate(
        ("a b.JPG", "c.Jpeg", "in/d.png", "in/side/e.jpg", "ü.jpg", "1.png", "2.jpg", "3.png")
    ):
        draw(folder / "Öl" / name, 40 + number)
    for name in NOT_IMAGES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"not an image")
    return folder


def draw(path: Path, number: int, mode: str = "RGB") -> None:
    """A picture whose size and colour are of its number, in the format that the file's ending names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (number * 5 % 256, 90, 200, 255)[: len(mode)]
    format_ = "PNG" if path.suffix.lower() == ".png" else "WEBP" if path.suffix == ".webp" else "JPEG"
    Image.new(mode, (20 + number, 60 - number), colour if len(mode) > 1 else colour[0]).save(path, format_)


def draw_all(folder: Path, names: Iterable[str]) -> Path:
    for number, name in enumerate(names):
        draw(folder / name, number % 50)
    return folder


def image_files(folder: Path) -> dict[str, Path]:
    """The images of `pictures`, or of one that is like it, by name."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path for name, path in files.items() if name not in NOT_IMAGES}


@pytest.fixture(scope="module")
def converted(pictures, tmp_path_factory) -> Path:
    """`pictures` in three splits of two shards each."""
    folder = tmp_path_factory.mktemp("converted")
    assert main(list(map(str, ["folder", *three_splits(pictures, folder)]))) == 0
    return folder


def three_splits(images: Path, out: Path) -> list[object]:
    return ["--images", images, "--output", out, *THREE, "--num-shards", 2]


@pytest.fixture(scope="module")
def extracted(converted, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("extracted") / "new"
    assert main(["extract", str(converted), str(folder)]) == 0
    return folder


def examples_of(out: Path) -> dict[str, dict[str, list]]:
    """Every record of every split by file name, and its split under `split`."""
    found = {}
    for split in manifest_of(out)["splits"]:
        for example in read_examples(out, split):
            name = example["image/filename"][0].decode()
            assert name not in found
            found[name] = example | {"split": split}
    return found


def splits_of(out: Path) -> dict[str, str]:
    return {name: example["split"] for name, example in examples_of(out).items()}


def classes_of(out: Path) -> dict[str, str]:
    return {name: example["image/class/text"][0].decode() for name, example in examples_of(out).items()}


def class_list(out: Path) -> list[str]:
    return [category["name"] for category in manifest_of(out)["categories"]]


def counts(out: Path, split: str = "train") -> dict:
    return manifest_of(out)["splits"][split]["images"]


def write_table(path: Path, rows: Iterable[Iterable[object]]) -> Path:
    table = io.StringIO(newline="")
    csv.writer(table).writerows(rows)
    path.write_bytes(table.getvalue().encode())
    return path


# What is in the records


def test_every_feature_is_the_file_s(pictures, converted):
    examples = examples_of(converted)
    files = image_files(pictures)
    assert set(examples) == set(files)
    assert len(files) == 24
    seen_channels = set()
    for name, example in examples.items():
        split = example.pop("split")
        data = files[name].read_bytes()
        pixels = tf.io.decode_image(data, channels=0)
        height, width, channels = pixels.shape
        seen_channels.add(channels)
        class_name = name.split("/")[0]
        source_id = example.pop("image/source_id")
        assert example == {
            "image/channels": [channels],
            "image/class/label": [CLASSES.index(class_name)],
            "image/class/text": [class_name.encode()],
            "image/encoded": [data],
            "image/filename": [name.encode()],
            "image/format": [b"png" if name.lower().endswith(".png") else b"jpeg"],
            "image/height": [height],
            "image/key/sha256": [hashlib.sha256(data).hexdigest().encode()],
            "image/width": [width],
        }
        assert 0 <= int(source_id[0]) < 1 << 63
        assert split in SPLITS
    assert seen_channels == {1, 2, 3, 4}
    assert len({example["image/key/sha256"][0] for example in examples.values()}) == 24


def test_the_features_are_those_of_the_table_and_parse_by_their_types(converted):
    kinds = {"bytes": tf.string, "int64": tf.int64}
    spec = {feature.name: tf.io.FixedLenFeature((), kinds[feature.kind.value]) for feature in CLASSIFICATION.features}
    for path in sorted(converted.glob("*.tfrecord-*")):
        for record in tf.data.TFRecordDataset(str(path)):
            parsed = tf.io.parse_single_example(record, spec)
            assert set(tf.train.Example.FromString(record.numpy()).features.feature) == set(spec)
            image = tf.io.decode_image(parsed["image/encoded"], channels=0)
            said = [parsed[f"image/{side}"].numpy() for side in ("height", "width", "channels")]
            assert list(image.shape) == said


def test_three_splits_of_one_job_are_in_one_manifest(pictures, converted):
    splits = manifest_of(converted)["splits"]
    assert set(splits) == set(SPLITS)
    found = Counter(splits_of(converted).values())
    for name, split in splits.items():
        assert split["images"] == {"rows": found[name], "written": found[name], "without_record": 0, "rejected": {}}
        assert sum(shard["examples"] for shard in split["shards"]) == found[name] > 0
        assert split["unlisted"] == {"files": 5, "first": sorted(NOT_IMAGES)}
        assert split["annotations"]["rows"] == 0
    assert sum(found.values()) == 24
    assert class_list(converted) == CLASSES
    assert (converted / "labels.csv").read_text() == "0,Cat\n1,big dog\n2,Öl\n"
    assert rejects_of(converted) == []


def test_the_summary_counts_each_split_and_names_what_is_no_image(pictures, tmp_path, recordmill):
    outcome = recordmill("folder", *three_splits(pictures, tmp_path))
    assert outcome.code == 0
    for split in SPLITS:
        written = counts(tmp_path, split)["written"]
        assert f"images-{split} is in {tmp_path}\n  images       {written} of {written}\n" in outcome.out
    assert "classes      3" in outcome.out
    assert "5 files that are not of the data set" in outcome.out
    assert outcome.err == ""


def test_classes_that_are_numbers_are_in_their_order(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", [f"{number}/a.jpg" for number in (10, 9, 2, 0)])
    assert recordmill("folder", "--images", images, "--output", tmp_path / "out").code == 0
    assert class_list(tmp_path / "out") == ["0", "2", "9", "10"]


def test_labels_from_names(tmp_path, recordmill):
    names = ["cat_0.jpg", "cat_1.JPG", "big_cat_2.png", "in/side/dog_3.jpeg", "dog_.jpg"]
    images = draw_all(tmp_path / "images", [*names, "_4.jpg", "cat5.jpg", "cat-6.jpg"])
    flags = ["--images", images, "--output", tmp_path / "out", "--label-from", "name", "--max-rejects", 1]
    assert recordmill("folder", *flags).code == 0
    assert classes_of(tmp_path / "out") == dict(zip(names, ["cat", "cat", "big_cat", "dog", "dog"], strict=True))
    assert counts(tmp_path / "out")["rejected"] == {"no_class": 3}
    assert {row["detail"] for row in rejects_of(tmp_path / "out")} == {
        f"{name!r} has no '_' after its class" for name in ("_4.jpg", "cat5.jpg", "cat-6.jpg")
    }


def test_another_separator(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["x-ray-001.jpg", "ct-002.png"])
    flags = ["--images", images, "--output", tmp_path / "out", "--label-from", "name", "--label-separator", "-"]
    assert recordmill("folder", *flags).code == 0
    assert classes_of(tmp_path / "out") == {"x-ray-001.jpg": "x-ray", "ct-002.png": "ct"}


# Tables of labels


def test_a_table_without_splits_divides_as_the_folder_does(pictures, converted, tmp_path, recordmill):
    rows = [(name, name.split("/")[0]) for name in sorted(image_files(pictures), reverse=True)]
    table = write_table(tmp_path / "labels.csv", [("image", "class"), *rows])
    outcome = recordmill("folder", *three_splits(pictures, tmp_path / "out"), "--labels", table)
    assert outcome.code == 0, outcome
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_a_table_with_splits(tmp_path, recordmill):
    names = ["a.jpg", "b.png", "in/c.jpg", "in/d e.JPG", "f.jpg"]
    images = draw_all(tmp_path / "images", [*names, "extra.jpg"])
    splits = ["TRAIN", "test", "Validation", "train", "test"]
    labels = ["dog", "cat, big", "dog", "cat, big", "emu"]
    rows = [("split", "image_uri", "label"), *zip(splits, names, labels, strict=True)]
    table = write_table(tmp_path / "labels.csv", rows)
    outcome = recordmill("folder", "--images", images, "--labels", table, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome
    assert splits_of(tmp_path / "out") == dict(zip(names, map(str.lower, splits), strict=True))
    assert classes_of(tmp_path / "out") == dict(zip(names, labels, strict=True))
    assert class_list(tmp_path / "out") == ["cat, big", "dog", "emu"]
    assert manifest_of(tmp_path / "out")["splits"]["test"]["unlisted"] == {"files": 1, "first": ["extra.jpg"]}
    assert recordmill("verify", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("content", "flags"),
    [
        (b"path,label\na.jpg,cat\nb.jpg,dog\n", ()),
        (b"\xef\xbb\xbfPath;Label\r\na.jpg;cat\r\nb.jpg;dog\r\n", ()),
        (b"path\tlabel\nb.jpg\tdog\na.jpg\tcat", ()),
        (b'"label","remarks","filename"\n"cat","says ""miau""\nand eats",./a.jpg\ndog,,b.jpg\n', ()),
        (
            b"where,path,what\n a.jpg ,x, cat\n\nb.jpg,y,dog,too many\n",
            ("--path-column", "where", "--label-column", "what"),
        ),
        (b"path,label\n{here}/images/a.jpg,cat\n{here}/./images//b.jpg,dog\n", ()),
        (b"path,label,,\na.jpg,cat,,\n,,,\nb.jpg,dog,,\n,,,\n , ,,\n", ()),
    ],
    ids=["plain", "of Excel", "tabs", "quoted", "other columns", "with whole paths", "with blank rows"],
)
def test_tables_as_programs_write_them(tmp_path, recordmill, monkeypatch, content, flags):
    draw_all(tmp_path / "images", ["a.jpg", "b.jpg"])
    (tmp_path / "labels.csv").write_bytes(content.replace(b"{here}", bytes(tmp_path)))
    monkeypatch.chdir(tmp_path)
    outcome = recordmill("folder", "--images", "images", "--labels", "labels.csv", "--output", "out", *flags)
    assert outcome.code == 0, outcome
    assert classes_of(tmp_path / "out") == {"a.jpg": "cat", "b.jpg": "dog"}


@pytest.mark.parametrize(("path", "taken"), [("i/b.jpg", "i/b.jpg"), ("b.jpg", "b.jpg"), ("{here}/i/b.jpg", "b.jpg")])
def test_a_relative_path_of_a_table_is_below_images_whatever_that_folder_is_called(
    tmp_path, recordmill, monkeypatch, path, taken
):
    monkeypatch.chdir(tmp_path)
    draw_all(tmp_path / "i", ["b.jpg", "i/b.jpg"])
    write_table(tmp_path / "labels.csv", [("path", "label"), (path.format(here=tmp_path), "cat")])
    assert recordmill("folder", "--images", "i", "--labels", "labels.csv", "--output", "out").code == 0
    assert list(examples_of(tmp_path / "out")) == [taken]


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


def test_several_tables(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a.jpg", "b.jpg"])
    tables = [
        write_table(tmp_path / "1.csv", [("path", "label", "split"), ("a.jpg", "cat", "train")]),
        write_table(tmp_path / "2.csv", [("class", "set", "file"), ("dog", "test", "b.jpg")]),
    ]
    flags = ["--images", images, "--labels", tables[0], "--labels", tables[1], "--output", tmp_path / "out"]
    assert recordmill("folder", *flags).code == 0
    assert splits_of(tmp_path / "out") == {"a.jpg": "train", "b.jpg": "test"}
    assert classes_of(tmp_path / "out") == {"a.jpg": "cat", "b.jpg": "dog"}


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
        ("", "cat", "train"),
        ("good.jpg", "", "train"),
        ("good.jpg", "cat", ""),
        ("good.jpg", "cat", "../x"),
        ("../good.jpg", "cat", "train"),
        ("/etc/passwd", "cat", "train"),
        ("https://example.org/a.jpg", "cat", "train"),
        ("C:\\a.jpg", "cat", "train"),
        ("good.jpg",),
        ("", ""),
        ("cat\\good.jpg", "cat", "train"),
        ("good.jpg", "cat\ndog", "train"),
        ("good.jpg", "cat", "all"),
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
    separated = "the parts of a path are to be separated by /"
    control = "a label with a control character"
    tfds_s = "is what TFDS calls all splits together"
    fallback = sorted(manifest_of(tmp_path / "out")["splits"])[0]
    assert rejected == {
        ("train", "duplicate_image_id", "another row says the same of 'twice.jpg'"): 1,
        ("train", "duplicate_image_id", torn): 2,
        ("test", "duplicate_image_id", torn): 1,
        ("train", "duplicate_image_id", both): 1,
        ("test", "duplicate_image_id", both): 1,
        ("train", "image_missing", "no file 'gone.jpg' under --images"): 1,
        ("train", "image_missing", f"no file 'cat\\\\good.jpg' under --images; {separated}"): 1,
        ("train", "malformed_image", f"labels.csv line 21: 'good.jpg' has {control}, 'cat\\ndog'"): 1,
        (fallback, "malformed_image", f"labels.csv line 23: 'good.jpg' is of split 'all', which {tfds_s}"): 1,
        ("train", "malformed_image", "labels.csv line 10: it has no path"): 1,
        ("train", "malformed_image", "labels.csv line 11: 'good.jpg' has no label"): 1,
        (fallback, "malformed_image", "labels.csv line 12: 'good.jpg' has no split"): 1,
        (fallback, "malformed_image", f"labels.csv line 13: 'good.jpg' is of split '../x', which {must}"): 1,
        ("train", "unsafe_file_name", "labels.csv line 14: the path '../good.jpg' leads out of the image folder"): 1,
        ("train", "unsafe_file_name", "labels.csv line 15: the path '/etc/passwd' is an absolute path"): 1,
        ("train", "unsafe_file_name", "labels.csv line 16: the path 'https://example.org/a.jpg' is a URL"): 1,
        ("train", "unsafe_file_name", "labels.csv line 17: the path 'C:\\\\a.jpg' is an absolute path"): 1,
        (fallback, "malformed_image", "labels.csv line 18: 'good.jpg' has no label"): 1,
    }
    for split in ("train", "test"):
        images_of_split = counts(tmp_path / "out", split)
        assert images_of_split["rows"] == images_of_split["written"] + sum(images_of_split["rejected"].values())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "has no column of paths"),
        (b"a.jpg,cat\n", "its first line has 'a.jpg', 'cat': name the column with --path-column"),
        (b"path,breed\na.jpg,cat\n", "name the column with --label-column"),
        (b"path,label\n", "so there is nothing to write"),
        (b"path,label,split\na.jpg,cat,\n", "so there is nothing to write"),
        (b'path,label\na.jpg,"cat\n', "cannot be read as CSV (unexpected end of data"),
        (b"path,label\na.jpg,caf\xe9\n", "is not UTF-8 (invalid continuation byte"),
        ("path,label\na.jpg,cat\n".encode("utf-16"), "is not UTF-8"),
        (b"path,label\na.jpg," + b"x" * (1 << 20) + b"x\n", "field larger than field limit"),
    ],
    ids=["empty", "no header", "no label", "no row", "no good row", "open quote", "Latin-1", "UTF-16", "a huge field"],
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


# Which split an image is of


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> Path:
    """24 images of `a`, 12 of `b`, 4 of `c`."""
    numbers = {"a": 24, "b": 12, "c": 4}
    names = [f"{class_}/{number}.png" for class_, count in numbers.items() for number in range(count)]
    return draw_all(tmp_path_factory.mktemp("many"), names)


def divided(recordmill, images: Path, out: Path, *flags: object) -> dict[str, str]:
    outcome = recordmill("folder", "--images", images, "--output", out, *THREE, *flags)
    assert outcome.code == 0, outcome
    return splits_of(out)


def test_images_stay_in_their_split_when_others_join_and_go(many, tmp_path, recordmill):
    before = divided(recordmill, many, tmp_path / "before")
    assert Counter(before.values()) == {"train": 24, "val": 9, "test": 7}
    by_split = {split: [number for number in range(12) if before[f"b/{number}.png"] == split] for split in SPLITS}
    assert by_split == {"train": [1, 3, 6, 8, 10, 11], "val": [5, 7], "test": [0, 2, 4, 9]}  # of all versions
    grown = Path(shutil.copytree(many, tmp_path / "grown"))
    draw_all(grown, [f"{class_}/new {number}.jpg" for class_ in "abd" for number in range(5)])
    for number in range(10):
        (grown / "a" / f"{number}.png").unlink()
    after = divided(recordmill, grown, tmp_path / "after")
    assert len(after) == 40 + 15 - 10
    assert {name: split for name, split in after.items() if name in before} == {
        name: split for name, split in before.items() if name in after
    }


def test_another_seed_moves_no_image_between_splits_and_another_split_seed_does(many, tmp_path, recordmill):
    before = divided(recordmill, many, tmp_path / "before")
    assert divided(recordmill, many, tmp_path / "seed", "--seed", 1) == before
    assert shard_bytes(tmp_path / "seed") != shard_bytes(tmp_path / "before")
    other = divided(recordmill, many, tmp_path / "split seed", "--split-seed", 1)
    assert set(other) == set(before)
    assert sum(other[name] != before[name] for name in before) > 15


def test_stratify_gives_each_split_its_share_of_every_class(many, tmp_path, recordmill):
    found = divided(recordmill, many, tmp_path / "out", "--stratify")
    assert Counter((name.split("/")[0], split) for name, split in found.items()) == {
        ("a", "train"): 12,
        ("a", "val"): 6,
        ("a", "test"): 6,
        ("b", "train"): 6,
        ("b", "val"): 3,
        ("b", "test"): 3,
        ("c", "train"): 2,
        ("c", "val"): 1,
        ("c", "test"): 1,
    }
    grown = draw_all(Path(shutil.copytree(many, tmp_path / "grown")), [f"d/{number}.jpg" for number in range(8)])
    after = divided(recordmill, grown, tmp_path / "after", "--stratify")
    assert after.items() >= found.items()  # of the other classes none is moved by a new one
    assert Counter(split for name, split in after.items() if name.startswith("d/")) == {"train": 4, "val": 2, "test": 2}


def test_over_many_small_classes_the_shares_hold(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", [f"c{class_}/{number}.png" for class_ in range(20) for number in range(5)])
    shares = {"train": 0.8, "val": 0.1, "test": 0.1}
    flags = ["--split", ",".join(f"{name}={share}" for name, share in shares.items()), "--stratify"]
    outcome = recordmill("folder", "--images", images, "--output", tmp_path / "out", *flags)
    assert outcome.code == 0, outcome
    found = splits_of(tmp_path / "out")
    assert Counter(found.values()) == pytest.approx({name: 100 * share for name, share in shares.items()}, abs=5)
    by_class = Counter((name.split("/")[0], split) for name, split in found.items())
    assert {by_class[f"c{class_}", "train"] for class_ in range(20)} == {4}
    assert {by_class[f"c{class_}", split] for class_ in range(20) for split in ("val", "test")} == {0, 1}


def test_a_split_that_gets_no_image_is_an_error(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/1.jpg", "b/2.jpg"])
    outcome = recordmill("folder", "--images", images, "--output", tmp_path / "out", *THREE)
    assert outcome.code == 2
    assert "gets none of the 2 images; give it a larger share, try another --split-seed or --stratify" in outcome.err
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_dry_run_tells_the_images_of_each_split_and_writes_nothing(many, tmp_path, recordmill):
    outcome = recordmill("folder", "--images", many, "--output", tmp_path / "out", *THREE, "--dry-run")
    assert outcome.code == 0
    assert "images-train, images-val, images-test would be written to" in outcome.out
    assert "images       40\n" in outcome.out
    assert "               train 24, val 9, test 7\n" in outcome.out
    assert "classes      3\n" in outcome.out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_tells_of_a_split_that_gets_no_image(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/1.jpg", "b/1.jpg"])
    flags = ["--images", images, "--output", tmp_path / "out", "--split", "val=1/1000,train=0.999", "--dry-run"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0
    assert "               val 0, train 2\n" in outcome.out


# Classes


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg"], "are called 'train', 'val', as splits are"),
        (["Train/1.jpg", "TEST/2.jpg"], "--images {images}/TEST --split test"),
        (["pets/cat/1.jpg", "pets/dog/2.jpg"], "in one folder, 'pets', so there would be one class"),
        (["cat/1.jpg", "notes.jpg"], "if it is the only class, --classes cat"),
    ],
)
def test_folders_that_are_not_likely_to_be_classes_are_refused(tmp_path, recordmill, names, told):
    images = draw_all(tmp_path / "images", names)
    for more in ([], ["--dry-run"]):
        outcome = recordmill("folder", "--images", images, "--output", tmp_path / "out", "--max-rejects", 1, *more)
        assert outcome.code == 1
        assert told.format(images=images) in outcome.err
        assert outcome.err.count("\n") == 1
        assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("names", "classes"), [(["cat/1.jpg"], ["cat"]), (["train/1.jpg", "test/2.jpg"], ["train", "test"])]
)
def test_they_are_taken_if_they_are_named(tmp_path, recordmill, names, classes):
    """Trains, and laboratory tests, may well be photographed."""
    flags = ["--images", draw_all(tmp_path / "images", names), "--output", tmp_path / "out"]
    outcome = recordmill("folder", *flags, "--classes", ",".join(classes))
    assert outcome.code == 0, outcome
    assert classes_of(tmp_path / "out") == {name: name.split("/")[0] for name in names}
    assert class_list(tmp_path / "out") == classes


@pytest.mark.parametrize(("archive", "top"), [("pets.zip", "data"), ("pets-v2.zip", "pets")])
def test_the_one_folder_at_the_top_of_a_zip_is_no_class(tmp_path, recordmill, archive, top):
    images = draw_all(tmp_path / "images", ["cat/1.jpg", "dog/2.jpg"])
    with zipfile.ZipFile(tmp_path / archive, "w") as file:
        for path in images.rglob("*.jpg"):
            file.write(path, f"{top}/{path.relative_to(images)}")
    outcome = recordmill("folder", "--images", tmp_path / archive, "--output", tmp_path / "out")
    assert outcome.code == 1
    assert f"give --images {tmp_path / archive}/{top}" in outcome.err
    outcome = recordmill("folder", "--images", tmp_path / archive / top, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome
    assert class_list(tmp_path / "out") == ["cat", "dog"]


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        ("cta", "--classes cta: no image is of these; there are 'cat', 'dog'"),
        ("cat,Dog", "--classes 'Dog': no image is of that class; did you mean 'dog'?"),
    ],
)
def test_classes_that_are_not_there_are_told(tmp_path, recordmill, classes, told):
    images = draw_all(tmp_path / "images", ["cat/a.jpg", "dog/b.jpg"])
    outcome = recordmill("folder", "--images", images, "--output", tmp_path / "out", "--classes", classes)
    assert outcome.code == 1
    assert told in outcome.err
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_class_that_a_split_lacks_keeps_its_index(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["cat/a.jpg", "dog/b.jpg"])
    flags = ["--images", images, "--output", tmp_path / "out", "--classes", "zebra,cat,dog"]
    assert recordmill("folder", *flags).code == 0
    assert class_list(tmp_path / "out") == ["zebra", "cat", "dog"]
    assert {e["image/class/label"][0] for e in examples_of(tmp_path / "out").values()} == {1, 2}


def test_only_the_classes_that_are_asked_for_in_that_order(many, tmp_path, recordmill):
    flags = ["--images", many, "--output", tmp_path, "--classes", "c,a"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0
    assert class_list(tmp_path) == ["c", "a"]
    found = {
        (name.split("/")[0], example["image/class/text"][0], example["image/class/label"][0])
        for name, example in examples_of(tmp_path).items()
    }
    assert found == {("c", b"c", 0), ("a", b"a", 1)}
    assert counts(tmp_path) == {"rows": 40, "written": 28, "without_record": 0, "rejected": {}, "of_other_classes": 12}
    assert "28 of 40 (of other classes 12)" in outcome.out
    assert recordmill("verify", tmp_path).code == 0


def test_a_second_split_with_other_classes_is_refused(many, tmp_path, recordmill):
    other = draw_all(tmp_path / "other", ["a/1.jpg", "z/2.jpg"])
    out = tmp_path / "out"
    assert recordmill("folder", "--images", many, "--output", out).code == 0
    before = manifest_of(out)
    outcome = recordmill("folder", "--images", other, "--output", out, "--split", "val")
    assert outcome.code == 1
    assert "with other categories than these files have" in outcome.err
    assert manifest_of(out) == before
    flags = ["--images", other, "--output", out, "--split", "val", "--classes", "a,b,c", "--overwrite"]
    assert recordmill("folder", *flags).code == 0
    assert counts(out, "val")["of_other_classes"] == 1
    assert set(manifest_of(out)["splits"]) == {"train", "val"}
    assert recordmill("verify", out).code == 0


# What is left out, and what becomes of pictures


def test_bad_files_are_rejected_and_counted_and_a_webp_is_encoded_anew(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/good.jpg", "a/good.png", "b/web.webp", "b/named wrong.png"])
    whole = {name: (images / "a" / name).read_bytes() for name in ("good.jpg", "good.png")}
    (images / "b" / "named wrong.png").write_bytes(whole["good.jpg"])
    (images / "a" / "half.jpg").write_bytes(whole["good.jpg"][: len(whole["good.jpg"]) // 2])
    (images / "a" / "half.png").write_bytes(whole["good.png"][: len(whole["good.png"]) // 2])
    (images / "a" / "empty.jpg").write_bytes(b"")
    (images / "a" / "page.jpg").write_text("<html>not found</html>")
    Image.new("RGB", (40, 30)).save(images / "a" / "icon.png", "ICO")
    draw(images / "no class.jpg", 7)
    draw(images / "b" / "bell\a.jpg", 8)
    flags = ["--images", images, "--output", tmp_path / "out", "--max-rejects", 1]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0, outcome
    reasons = {(row["detail"].split("'")[1], row["reason"]) for row in rejects_of(tmp_path / "out")}
    assert reasons == {
        ("a/half.jpg", "image_unreadable"),
        ("a/half.png", "image_unreadable"),
        ("a/empty.jpg", "image_unreadable"),
        ("a/page.jpg", "unsupported_format"),
        ("a/icon.png", "unsupported_format"),
        ("no class.jpg", "no_class"),
        ("b/bell\\x07.jpg", "unsafe_file_name"),
    }
    images_read = counts(tmp_path / "out")
    assert images_read["rejected"] == {
        "image_unreadable": 3,
        "no_class": 1,
        "unsafe_file_name": 1,
        "unsupported_format": 2,
    }
    assert (images_read["rows"], images_read["written"]) == (11, 4)
    assert images_read["rewritten"]["by_format"] == {"webp": 1}
    examples = examples_of(tmp_path / "out")
    assert examples["b/named wrong.png"]["image/format"] == [b"jpeg"]
    assert examples["b/named wrong.png"]["image/encoded"] == [whole["good.jpg"]]
    web = examples["b/web.webp"]
    said = [web[f"image/{side}"][0] for side in ("height", "width", "channels")]
    assert tf.io.decode_image(web["image/encoded"][0]).shape == said == [58, 22, 3]
    assert web["image/format"][0] in (b"jpeg", b"png")
    assert recordmill("verify", tmp_path / "out").code == 0


def test_too_many_rejects_fail_and_accepting_them_goes_on(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", ["a/1.jpg", "b/2.jpg", "3.jpg"])
    flags = ["--images", images, "--output", tmp_path / "out"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 1
    assert "1 of 3 images (33.3%) are rejected" in outcome.err
    assert "'3.jpg' is in no folder" in outcome.err
    assert not (tmp_path / "out" / "manifest.json").exists()
    outcome = recordmill("folder", *flags, "--max-rejects", 0.5)
    assert outcome.code == 0
    assert "Going on with an unfinished run" in outcome.out


def test_all_as_jpegs(pictures, tmp_path, recordmill):
    flags = ["--images", pictures, "--output", tmp_path, *THREE, "--format", "jpeg"]
    assert recordmill("folder", *flags).code == 0
    files = image_files(pictures)
    pngs = {name for name in files if name.lower().endswith(".png")}
    examples = examples_of(tmp_path)
    assert set(examples) == set(files)
    for name, example in examples.items():
        assert example["image/format"] == [b"jpeg"]
        said = [example[f"image/{side}"][0] for side in ("height", "width", "channels")]
        assert list(tf.io.decode_jpeg(example["image/encoded"][0], channels=0).shape) == said
        assert (example["image/encoded"] == [files[name].read_bytes()]) == (name not in pngs)
    for split in SPLITS:
        mine = [name for name in pngs if examples[name]["split"] == split]
        assert counts(tmp_path, split)["rewritten"] == {
            "by_format": {"png": len(mine)},
            "turned": 0,
            "shrunk": 0,
            "bytes_read": sum(files[name].stat().st_size for name in mine),
            "bytes_written": sum(len(examples[name]["image/encoded"][0]) for name in mine),
        }
    assert recordmill("verify", tmp_path).code == 0


# The same bytes every time


@pytest.mark.parametrize("workers", [1, 4])
def test_the_same_bytes_from_one_thread_and_four(pictures, converted, tmp_path, recordmill, workers):
    assert recordmill("folder", *three_splits(pictures, tmp_path), "--workers", workers).code == 0
    assert shard_bytes(tmp_path) == shard_bytes(converted)


def test_the_same_bytes_from_a_zip(pictures, converted, tmp_path, recordmill):
    archive = tmp_path / "pictures.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(pictures.rglob("*")):
            file.write(path, path.relative_to(pictures).as_posix())
    assert recordmill("folder", *three_splits(archive, tmp_path / "out")).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_both_writers_write_the_same_records(pictures, converted, tmp_path, recordmill):
    outcome = recordmill("folder", *three_splits(pictures, tmp_path), "--writer", "beam")
    assert outcome.code == 0, outcome
    assert examples_of(tmp_path) == examples_of(converted)
    assert len(shard_bytes(tmp_path)) == 6
    for split in SPLITS:
        assert counts(tmp_path, split) == counts(converted, split)
    assert recordmill("verify", tmp_path).code == 0


# And back


def test_images_and_labels_come_out_as_they_went_in(pictures, converted, extracted):
    files, splits = image_files(pictures), splits_of(converted)
    for split in SPLITS:
        below = extracted / "images" / split
        found = {path.relative_to(below).as_posix(): path.read_bytes() for path in below.rglob("*") if path.is_file()}
        assert found == {name: path.read_bytes() for name, path in files.items() if splits[name] == split}
        with (extracted / "annotations" / f"labels_{split}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows == [{"path": name, "label": name.split("/")[0], "split": split} for name in sorted(found)]
    assert sorted(path.name for path in extracted.iterdir()) == ["annotations", "images"]


def test_what_was_extracted_gives_the_same_bytes_again(converted, extracted, tmp_path, recordmill):
    flags = ["--output", tmp_path / "out", "--num-shards", 2]
    for split in SPLITS:
        flags += ["--images", extracted / "images" / split]
        flags += ["--labels", extracted / "annotations" / f"labels_{split}.csv"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0, outcome
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_a_cmyk_jpeg_is_whole_when_read_back(tmp_path, recordmill):
    draw_all(tmp_path / "images", ["b/1.jpg"])
    (tmp_path / "images" / "a").mkdir()
    Image.new("CMYK", (20, 20), (1, 2, 3, 4)).save(tmp_path / "images" / "a" / "x.jpg")
    assert recordmill("folder", "--images", tmp_path / "images", "--output", tmp_path / "out").code == 0
    outcome = recordmill("verify", tmp_path / "out")
    assert outcome.code == 0, outcome
    for example in examples_of(tmp_path / "out").values():
        assert example["image/channels"] == [tf.io.decode_image(example["image/encoded"][0], channels=0).shape[2]]


def test_a_split_that_was_extracted_is_a_set_of_class_folders(converted, extracted, tmp_path, recordmill):
    flags = ["--images", extracted / "images" / "train", "--output", tmp_path / "out", "--num-shards", 2]
    assert recordmill("folder", *flags).code == 0
    names = [name for name in shard_bytes(converted) if "-train." in name]
    assert shard_bytes(tmp_path / "out") == {name: shard_bytes(converted)[name] for name in names}


# Verify


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    """A data set of two images in one shard."""
    folder = tmp_path_factory.mktemp("pair")
    images = draw_all(folder / "images", ["Cat/1.jpg", "dog/2.jpg"])
    assert main(["folder", "--images", str(images), "--output", str(folder / "out")]) == 0
    return folder / "out"


def test_a_whole_data_set_passes(converted, recordmill):
    outcome = recordmill("verify", converted)
    assert outcome.code == 0
    assert "whole: every record read, parsed and decoded" in outcome.out


@pytest.mark.parametrize(
    ("feature", "value", "reason"),
    [
        ("image/class/text", b"emu", "class"),
        ("image/class/text", b"Cat", "class"),
        ("image/class/label", 0, "class"),
        ("image/class/label", 77, "class"),
        ("image/class/label", -1, "class"),
        ("image/channels", 7, "image_channels"),
        ("image/height", 7, "image_size"),
        ("image/key/sha256", b"0" * 64, "image_sha256"),
        ("image/encoded", b"\xff\xd8\xff not a picture", "image_undecodable"),
    ],
)
def test_verify_finds_a_record_that_contradicts_itself(pair, tmp_path, recordmill, feature, value, reason):
    out = Path(shutil.copytree(pair, tmp_path / "out"))
    (path,) = out.glob("[!.]*.tfrecord-*")
    whole = records(path)
    (place,) = (number for number, record in enumerate(whole) if b"dog/2.jpg" in record)
    whole[place] = changed(whole[place], feature, value)
    rewrite(path, whole)
    manifest = manifest_of(out)
    shard = manifest["splits"]["train"]["shards"][0]
    shard["bytes"], shard["sha256"] = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))
    outcome = recordmill("verify", out)
    assert outcome.code == 1
    assert f"{path.name} record {place}: {reason}: " in outcome.out


# Running again


def test_a_complete_data_set_is_not_written_again(pictures, tmp_path, recordmill):
    assert recordmill("folder", *three_splits(pictures, tmp_path)).code == 0
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    outcome = recordmill("folder", *three_splits(pictures, tmp_path))
    assert outcome.code == 0
    assert "holds all these splits already; --overwrite would write again" in outcome.out
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_an_image_that_was_added_is_told_and_overwrite_takes_it(pictures, converted, tmp_path, recordmill):
    images = Path(shutil.copytree(pictures, tmp_path / "images"))
    out = tmp_path / "out"
    assert recordmill("folder", *three_splits(images, out)).code == 0
    draw(images / "Cat" / "new.jpg", 11)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    outcome = recordmill("folder", *three_splits(images, out))
    assert outcome.code == 2
    assert "made otherwise (inputs was" in outcome.err
    assert "--overwrite to replace it" in outcome.err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert recordmill("folder", *three_splits(images, out), "--overwrite").code == 0
    assert splits_of(out).items() >= splits_of(converted).items()
    assert len(splits_of(out)) == 25
    assert recordmill("verify", out).code == 0


def whole_folder(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_overwrite_replaces_all_the_splits_of_another_name_and_division(tmp_path, recordmill):
    images = draw_all(tmp_path / "images", [f"{class_}/{number}.jpg" for class_ in "ab" for number in range(4)])
    flags = ["--images", images, "--output", tmp_path / "out"]
    assert recordmill("folder", *flags, "--split", "train=0.5,val=0.5").code == 0
    again = ["--name", "pets", "--split", "train=0.75,val=0.25", "--overwrite"]
    outcome = recordmill("folder", *flags, *again)
    assert outcome.code == 0, outcome
    assert len(splits_of(tmp_path / "out")) == 8
    assert {name.partition("-")[0] for name in shard_bytes(tmp_path / "out")} == {"pets"}
    assert recordmill("verify", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--split", "train"), "holds the split val of the same images, divided by --split train=0.5,val=0.5"),
        (("--split", "train=0.5,test=0.5"), "with --split train=0.5,test=0.5 some images would be in both"),
        (("--split", "train", "--name", "pets"), "--name pets would mix two data sets"),
    ],
)
def test_overwrite_of_one_split_may_not_take_images_of_another_one(tmp_path, recordmill, flags, told):
    images = draw_all(tmp_path / "images", [f"{class_}/{number}.jpg" for class_ in "ab" for number in range(4)])
    out = tmp_path / "out"
    assert recordmill("folder", "--images", images, "--output", out, "--split", "train=0.5,val=0.5").code == 0
    before = whole_folder(out)
    outcome = recordmill("folder", "--images", images, "--output", out, *flags, "--overwrite")
    assert outcome.code == 2
    assert told in outcome.err
    assert whole_folder(out) == before


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--classes", "Cat"], "--classes Cat: no image is of these; there are 'cat', 'dog'"),
        (["--classes", "cat,Dog"], "did you mean 'dog'?"),
        (["--labels", "gone.csv"], "there is no image to write to split train; {out} is left as it was"),
        (["--labels", "latin.csv"], "is not UTF-8"),
        (["--labels", "open.csv"], "cannot be read as CSV"),
        (["--labels", "empty.csv"], "there is no image to write to split train"),
        (["--split", "val=1/1000000,train=999999/1000000"], "there is no image to write to split val"),
        (["--images", "more"], "'cat/1.jpg' is both"),
        (["--label-from", "name"], "there is no image to write to split train"),
    ],
)
def test_overwrite_deletes_nothing_for_a_job_that_cannot_be_done(tmp_path, recordmill, monkeypatch, wrong, told):
    monkeypatch.chdir(tmp_path)
    draw_all(tmp_path / "images", ["cat/1.jpg", "dog/2.jpg"])
    draw_all(tmp_path / "more", ["cat/1.jpg"])
    for name, table in (("gone", "gone.jpg,cat\n"), ("empty", ""), ("open", 'cat/1.jpg,"cat\n')):
        (tmp_path / f"{name}.csv").write_text(f"path,label\n{table}")
    (tmp_path / "latin.csv").write_bytes(b"path,label\ncaf\xe9.jpg,cat\n")
    assert recordmill("folder", "--images", "images", "--output", "out").code == 0
    before = whole_folder(tmp_path / "out")
    outcome = recordmill("folder", "--images", "images", "--output", "out", "--overwrite", *wrong)
    assert outcome.code in (1, 2)
    assert told.format(out="out") in outcome.err
    assert outcome.err.count("\n") == 1
    assert whole_folder(tmp_path / "out") == before
    assert "images-train.tfrecord-00000-of-00001" in before
    assert recordmill("verify", "out").code == 0


def test_an_image_that_was_renamed_is_told(pictures, tmp_path, recordmill):
    """Of all that is listed only a name is another."""
    images = Path(shutil.copytree(pictures, tmp_path / "images"))
    assert recordmill("folder", "--images", images, "--output", tmp_path / "out").code == 0
    (images / "Cat" / "0.jpg").rename(images / "Cat" / "9.jpg")
    outcome = recordmill("folder", "--images", images, "--output", tmp_path / "out")
    assert outcome.code == 2
    assert "made otherwise (inputs was" in outcome.err


@pytest.mark.parametrize(
    ("flag", "told"), [("--split-seed", "split-seed was 0, now 3"), ("--seed", "seed was 0, now 3")]
)
def test_another_division_is_refused_in_the_same_folder(converted, pictures, recordmill, flag, told):
    outcome = recordmill("folder", *three_splits(pictures, converted), flag, 3)
    assert outcome.code == 2
    assert told in outcome.err


def test_a_shard_that_was_deleted_is_written_again(pictures, converted, tmp_path, recordmill):
    out = Path(shutil.copytree(converted, tmp_path / "out"))
    (out / "images-val.tfrecord-00001-of-00002").unlink()
    assert recordmill("folder", *three_splits(pictures, out)).code == 0
    assert shard_bytes(out) == shard_bytes(converted)
    assert set(manifest_of(out)["splits"]) == set(SPLITS)
    assert recordmill("verify", out).code == 0


def test_a_killed_run_goes_on(pictures, converted, tmp_path, recordmill):
    """A process that dies in the middle of three splits."""
    out = tmp_path / "out"
    flags = three_splits(pictures, out)
    disturbance = "if len(seen) == 13: os.kill(os.getpid(), signal.SIGKILL)"
    killed = run_disturbed(tmp_path, ["folder", *map(str, flags)], disturbance)
    assert killed.returncode == -9, killed.stderr
    left = {path.name: path.stat().st_mtime_ns for path in out.glob("[!.]*.tfrecord-*")}
    assert 0 < len(left) < 6
    assert not (out / "manifest.json").exists()
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0
    assert "Going on with an unfinished run" in outcome.out
    assert shard_bytes(out) == shard_bytes(converted)
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()}.items() >= left.items()
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


# What reads it


def test_the_reader_gives_images_and_their_label(pictures, converted):
    files = image_files(pictures)
    seen = set()
    for split in SPLITS:
        for example in dataset(str(converted), split=split):
            name = example["file_name"].numpy().decode()
            seen.add(name)
            assert example["image"].dtype == tf.uint8
            expected = tf.io.decode_image(files[name].read_bytes(), channels=3)
            assert (example["image"].numpy() == expected.numpy()).all()
            assert example["label"].dtype == tf.int64
            assert example["label"].numpy() == CLASSES.index(name.split("/")[0])
    assert seen == set(files)


def test_a_batch_for_a_training_step(converted):
    def fixed(example):
        return tf.image.resize(example["image"], (8, 8)), example["label"]

    images, labels = next(iter(dataset(str(converted)).map(fixed).batch(4)))
    assert images.shape == (4, 8, 8, 3)
    assert set(labels.numpy().tolist()) <= {0, 1, 2}


def test_tfds_opens_the_folder(converted):
    tfds = pytest.importorskip("tensorflow_datasets", reason="the extra dev is not installed")
    builder = tfds.builder_from_directory(str(converted))
    assert builder.info.name == "images"
    label = builder.info.features["image/class/label"]
    assert isinstance(label, tfds.features.ClassLabel)
    assert label.names == CLASSES
    for split in SPLITS:
        ours = {example["image/filename"][0]: example for example in read_examples(converted, split)}
        assert builder.info.splits[split].num_examples == len(ours)
        for example in tfds.as_numpy(builder.as_dataset(split=split)):
            expected = ours.pop(example["image/filename"])
            assert example["image/encoded"].shape[:2] == (expected["image/height"][0], expected["image/width"][0])
            assert [example["image/class/label"]] == expected["image/class/label"]
            assert [example["image/class/text"]] == expected["image/class/text"]
        assert ours == {}


# The command line


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--split", "train=0.8,val=0.1"), "--split: the shares sum to 0.9, not 1"),
        (("--split", "train=-0.5,val=1.5"), "--split"),
        (("--split", "train=0,val=1"), "--split: every share must be more than 0"),
        (("--split", "train=nan,val=1"), "a name, or shares like train=0.8,val=0.1,test=0.1, is expected"),
        (("--split", "train=1/0"), "a name, or shares like train=0.8,val=0.1,test=0.1, is expected"),
        (("--split", "train,val"), "a name, or shares like train=0.8,val=0.1,test=0.1, is expected"),
        (("--split", "train=0.5,train=0.5"), "--split names train twice"),
        (("--split", "../x=0.5,val=0.5"), "--split '../x' must be letters, digits and _"),
        (("--split", "train=1.5,val=0.5"), "--split: every share must be more than 0 and at most 1"),
        (("--split", "train=1e400"), "a name, or shares like train=0.8,val=0.1,test=0.1, is expected"),
        (("--split", "train=1e-300,val=1"), "a name, or shares like train=0.8,val=0.1,test=0.1, is expected"),
        (("--split", "all"), "--split 'all' is what TFDS calls all splits together"),
        (("--split-seed", "3"), "--split-seed divides images, but --split names a single split"),
        (("--label-separator", "-"), "--label-separator - would do nothing without --label-from name"),
        (("--classes", ","), "argument --classes: ',': names, with commas between them, are expected"),
        (("--classes", ""), "argument --classes: '': names, with commas between them, are expected"),
        (("--labels", "labels.csv", "--split", "val"), "says which split an image is of (test, train), and so does"),
        (("--labels", "labels.csv", "--split-seed", "3"), "--split-seed divides images, but"),
        (("--images", "images/a"), "images/a is within"),
        (("--stratify",), "--stratify divides classes, but --split names a single split"),
        (("--classes", "cat,dog,cat"), "--classes names 'cat' twice"),
        (("--label-from", "name", "--label-separator", ""), "--label-separator is empty"),
        (("--label-from", "size"), "--label-from 'size' is none of folder, name"),
        (("--label-column", "x"), "--label-column is of tables of --labels, and none is given"),
        (
            ("--labels", "labels.csv", "--label-from", "name"),
            "--labels gives the labels, and so does --label-from name",
        ),
        (("--labels", "gone.csv"), "--labels gone.csv: no such file"),
        (("--labels", "labels.csv", "--labels", "labels.csv"), "--labels labels.csv is given twice"),
        (("--labels", "labels.csv", "--split", "a=1/2,b=1/2"), "says which split an image is of (test, train), and so"),
        (
            ("--labels", "labels.csv", "--labels", "plain.csv"),
            "labels.csv says which split an image is of, the others do",
        ),
        (("--layout", "detection"), "--layout 'detection' is none of classification"),
        (("--images", "images/"), "two of these are the same"),
        (("--images", "empty"), "--images empty: no file in it, nor in any folder below"),
        (("--images", "imagse"), "--images imagse: no such folder (did you mean images?)"),
    ],
)
def test_a_wrong_command_is_refused_in_a_line(tmp_path, recordmill, monkeypatch, flags, told):
    monkeypatch.chdir(tmp_path)
    draw_all(tmp_path / "images", ["a/1.jpg", "a/2.jpg"])
    (tmp_path / "empty" / "a").mkdir(parents=True)
    write_table(
        tmp_path / "labels.csv", [("path", "label", "split"), ("a/1.jpg", "a", "train"), ("a/2.jpg", "a", "test")]
    )
    write_table(tmp_path / "plain.csv", [("path", "label"), ("a/1.jpg", "a")])
    outcome = recordmill("folder", "--images", "images", "--output", "out", *flags)
    assert outcome.code == 2
    assert told in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shares", ["a=1/3,b=1/3,c=1/3", " a = 0.1 , b = 9/10 "])
def test_shares_as_people_write_them(many, tmp_path, recordmill, shares):
    outcome = recordmill("folder", "--images", many, "--output", tmp_path / "out", "--split", shares, "--dry-run")
    assert outcome.code == 0
    assert "images       40\n" in outcome.out


def test_two_folders_that_have_a_name_in_common_are_refused(tmp_path, recordmill):
    draw_all(tmp_path / "1", ["a/1.jpg"])
    draw_all(tmp_path / "2", ["a/1.jpg", "a/2.jpg"])
    flags = ["--images", tmp_path / "1", "--images", tmp_path / "2", "--output", tmp_path / "out"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 1
    assert "'a/1.jpg' is both" in outcome.err
    assert outcome.err.count("\n") == 1


# Real data


real = pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")


@real
def test_74_photographs_and_drawings_of_37_classes(tmp_path, recordmill):
    """Names with spaces, endings in upper case, files that are not what they are called."""
    folder = SHARED_DATA / "cbir_mixed_jpg_png"
    files = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.suffix.lower() in (".jpg", ".png")
    }
    assert len(files) == 74
    outcome = recordmill("folder", "--images", folder, "--output", tmp_path / "out", *THREE)
    assert outcome.code == 0, outcome
    examples = examples_of(tmp_path / "out")
    assert set(examples) == set(files)
    classes = sorted({name.split("/")[0] for name in files})
    assert len(classes) == 37
    assert class_list(tmp_path / "out") == classes
    for name, example in examples.items():
        data = files[name].read_bytes()
        with Image.open(io.BytesIO(data)) as image:
            kind, size, bands = image.format.lower(), image.size, len(image.getbands())
        assert example["image/encoded"] == [data]
        assert example["image/format"] == [kind.encode()]
        assert (example["image/width"][0], example["image/height"][0]) == size
        assert image.mode == "P" or example["image/channels"] == [bands]
        assert example["image/class/text"] == [name.split("/")[0].encode()]
        assert example["image/class/label"] == [classes.index(name.split("/")[0])]
    assert recordmill("verify", tmp_path / "out").code == 0


@real
def test_six_images_of_a_table_with_splits(tmp_path, recordmill):
    folder = SHARED_DATA / "tfrecorder_images"
    table = folder / "tfrecorder" / "test_data" / "data.csv"
    outcome = recordmill("folder", "--images", folder, "--labels", table, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome
    with table.open(newline="") as file:
        rows = {row["image_uri"]: row for row in csv.DictReader(file)}
    examples = examples_of(tmp_path / "out")
    assert {name: example["split"] for name, example in examples.items()} == {
        name: row["split"].lower() for name, row in rows.items()
    }
    assert set(splits_of(tmp_path / "out").values()) == {"train", "validation", "test"}
    for name, example in examples.items():
        assert example["image/class/text"] == [rows[name]["label"].encode()]
        assert example["image/class/label"] == [["cat", "goat"].index(rows[name]["label"])]
        assert example["image/encoded"] == [(folder / name).read_bytes()]
        with Image.open(folder / name) as image:
            assert (example["image/width"][0], example["image/height"][0]) == image.size
    assert recordmill("verify", tmp_path / "out").code == 0
