"""Class folders from end to end: images of one class each become records, and what reads them."""

import hashlib
import json
import zipfile
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import tensorflow as tf

from recordmill.launch.cli import main
from recordmill.schemas.statistics import SplitComparison, SplitStatistics
from recordmill.transforms.insight.across_splits import compare_splits
from recordmill.transforms.join.list_images import list_folder
from tests.conftest import manifest_of, read_examples, rejects_of, shard_bytes
from tests.jobs.folders import draw, draw_all, write_table

SPLITS = ("train", "val", "test")
THREE = ("--split", "train=0.5,val=0.25,test=0.25")
NOT_IMAGES = (".git/1.jpg", "Cat/._1.jpg", "Cat/.DS_Store", "big dog/Thumbs.db", "notes.txt")
CLASSES = ["Cat", "big dog", "Öl"]
"""Classes of `images`, by index: upper case sorts before lower case, and both before other characters than ASCII."""


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """Class folders of 24 JPEGs and PNGs of 1 to 4 channels and different sizes: endings in upper case, folders in
    folders, spaces, an accent. And files that are not images, or are hidden."""
    folder = tmp_path_factory.mktemp("images")
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


def three_splits(images: Path, out: Path) -> list[object]:
    return [images, "--format", "folder", "--output", out, *THREE, "--num-shards", 2]


@pytest.fixture(scope="module")
def converted(images, tmp_path_factory) -> Path:
    """`images` in three splits of two shards each."""
    folder = tmp_path_factory.mktemp("converted")
    assert main(list(map(str, ["convert", *three_splits(images, folder)]))) == 0
    return folder


def examples_of(out: Path) -> dict[str, dict[str, list]]:
    """Return all records by file name, with their split under `split`."""
    examples = {}
    for split in manifest_of(out)["splits"]:
        for example in read_examples(out, split):
            name = example["image/filename"][0].decode()
            assert name not in examples
            examples[name] = example | {"split": split}
    return examples


def splits_of(out: Path) -> dict[str, str]:
    return {name: example["split"] for name, example in examples_of(out).items()}


def test_every_feature_is_the_file_s(images, converted):
    examples = examples_of(converted)
    paths = {path.relative_to(images).as_posix(): path for path in images.rglob("*") if path.is_file()}
    files = {name: path for name, path in paths.items() if name not in NOT_IMAGES}
    assert set(examples) == set(files)
    assert len(files) == 24
    seen_channels = set()
    for name, example in examples.items():
        split = example.pop("split")
        data = files[name].read_bytes()
        height, width, channels = tf.io.decode_image(data, channels=0).shape
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
    written = Counter(splits_of(converted).values())
    for name, split in manifest_of(converted)["splits"].items():
        assert split["images"] == {"rows": written[name], "written": written[name], "without_record": 0, "rejected": {}}
        assert sum(shard["examples"] for shard in split["shards"]) == written[name] > 0
        assert split["unlisted"] == {"files": 5, "first": sorted(NOT_IMAGES)}
        assert split["recipe"]["inputs"] == [msgspec.to_builtins(list_folder(str(images)))]
    assert (converted / "labels.csv").read_text() == "0,Cat\n1,big dog\n2,Öl\n"


def test_statistics_are_of_the_records(converted):
    whole = json.loads((converted / "statistics.json").read_bytes())
    splits = {name: msgspec.convert(statistics, SplitStatistics) for name, statistics in whole["splits"].items()}
    assert msgspec.convert(whole["across_splits"], SplitComparison) == compare_splits(splits)
    for split, statistics in whole["splits"].items():
        assert json.loads((converted / f"statistics-{split}.json").read_bytes()) == statistics
        assert statistics["images"] == len(read_examples(converted, split))
        counts = manifest_of(converted)["splits"][split]["class_counts"]
        assert [row["images"] for row in statistics["classes"]] == counts


def test_extracted_files_give_same_bytes(converted, tmp_path, recordmill):
    extracted = tmp_path / "extracted"
    assert recordmill("extract", converted, extracted).code == 0
    flags = ["--output", tmp_path / "out", "--num-shards", 2, "--format", "folder"]
    for split in SPLITS:
        flags += ["--images", extracted / "images" / split]
        flags += ["--labels", extracted / "annotations" / f"labels_{split}.csv"]
    assert recordmill("convert", *flags).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_zip_and_one_thread_give_same_bytes(images, converted, tmp_path, recordmill):
    archive = tmp_path / "images.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(images.rglob("*")):
            file.write(path, path.relative_to(images).as_posix())
    assert recordmill("convert", *three_splits(archive, tmp_path / "out"), "--workers", 1).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)


def test_job_stops_when_it_cannot_succeed(tmp_path, recordmill):
    images = tmp_path / "images" / "a"
    images.mkdir(parents=True)
    for number in range(400):
        (images / f"{number}.jpg").write_bytes(b"")
    flags = [
        images.parent,
        "--format",
        "folder",
        "--classes",
        "a",
        "--output",
        tmp_path / "out",
        "--examples-per-shard",
        20,
    ]
    assert recordmill("convert", *flags).code == 1
    assert 100 <= len(rejects_of(tmp_path / "out")) < 200


@pytest.fixture
def many(tmp_path) -> Path:
    """40 images: 24 of a, 12 of b, 4 of c."""
    numbers = {"a": 24, "b": 12, "c": 4}
    return draw_all(tmp_path / "many", [f"{name}/{n}.png" for name, count in numbers.items() for n in range(count)])


def test_stratified_group_is_in_one_split(many, tmp_path, recordmill):
    """Half of b are in pairs with one of a, where paths are typed with `./`."""
    listed = tmp_path / "groups.csv"
    listed.write_text("file_name,group\n" + "".join(f"./{name}/{n}.png,{n}\n" for n in range(6) for name in "ab"))
    flags = [many, "--format", "folder", "--output", tmp_path / "out", *THREE, "--stratify", "--groups", listed]
    assert recordmill("convert", *flags).code == 0
    split_by_name = splits_of(tmp_path / "out")
    assert [split_by_name[f"a/{n}.png"] for n in range(6)] == [split_by_name[f"b/{n}.png"] for n in range(6)]
    splits = manifest_of(tmp_path / "out")["splits"]
    assert sum(split["images"].get("groups", 0) for split in splits.values()) == 6
    assert Counter(split_by_name.values()) == {"train": 20, "val": 9, "test": 11}  # no split is off by more than a pair


def test_splits_by_rank_are_exact_for_wanted_classes(many, tmp_path, recordmill):
    flags = [many, "--format", "folder", "--output", tmp_path / "out", *THREE, "--split-by", "rank", "--classes", "a,c"]
    assert recordmill("convert", *flags).code == 0
    assert Counter(splits_of(tmp_path / "out").values()) == {"train": 14, "val": 7, "test": 7}


@pytest.mark.parametrize("how", [["--stratify"], ["--split-by", "rank"]])
def test_rows_that_are_rejected_do_not_count(many, tmp_path, recordmill, how):
    """56 of 80 rows of class a have no file, and an image of b is in two classes."""
    paths = {"a": [f"a/{n}.png" for n in range(80)], "b": [f"b/{n}.png" for n in range(12)]}
    rows = [(path, name) for name, class_paths in paths.items() for path in class_paths]
    write_table(tmp_path / "t.csv", [("path", "label"), *rows, ("b/0.png", "a")])
    flags = [many, "--format", "folder", "--labels", tmp_path / "t.csv", "--output", tmp_path / "out", *THREE, *how]
    assert recordmill("convert", *flags, "--max-rejects", 1).code == 0
    counts = Counter((name[0], split) for name, split in splits_of(tmp_path / "out").items())
    shares = {"train": 0.5, "val": 0.25, "test": 0.25}
    sums = Counter(split for (_, split), number in counts.items() for _ in range(number))
    assert all(abs(sums[split] - 35 * share) <= 2 for split, share in shares.items())
    if how == ["--stratify"]:
        assert [counts["a", split] for split in shares] == [12, 6, 6]
        assert all(abs(counts["b", split] - 11 * share) < 1 for split, share in shares.items())
    for split in manifest_of(tmp_path / "out")["splits"].values():
        (rows_of,) = split["inputs"]
        assert rows_of["images"] == split["images"]["written"] + sum(split["images"]["rejected"].values())


def test_several_tables_with_splits(tmp_path, recordmill):
    names = ["a.jpg", "b.png", "in/c.jpg", "in/d e.JPG", "f.jpg"]
    images = draw_all(tmp_path / "images", [*names, "extra.jpg"])
    splits = ["TRAIN", "test", "Validation", "train", "test"]
    labels = ["dog", "cat, big", "dog", "cat, big", "emu"]
    rows = list(zip(splits, names, labels, strict=True))
    write_table(tmp_path / "1.csv", [("split", "image_uri", "label"), *rows[:3]])
    write_table(tmp_path / "2.csv", [("class", "set", "file"), *((label, *row) for *row, label in rows[3:])])
    tables = ["--labels", tmp_path / "1.csv", "--labels", tmp_path / "2.csv"]
    assert recordmill("convert", images, "--format", "folder", *tables, "--output", tmp_path / "out").code == 0
    examples = {
        name: (e["split"], e["image/class/text"][0].decode()) for name, e in examples_of(tmp_path / "out").items()
    }
    expected = zip(map(str.lower, splits), labels, strict=True)
    assert examples == dict(zip(names, expected, strict=True))
    manifest = manifest_of(tmp_path / "out")
    assert [category["name"] for category in manifest["categories"]] == ["cat, big", "dog", "emu"]
    assert manifest["splits"]["test"]["unlisted"] == {"files": 1, "first": ["extra.jpg"]}
    assert recordmill("verify", tmp_path / "out").code == 0
