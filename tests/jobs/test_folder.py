"""`recordmill folder` from end to end: images of one class each become records, and what reads them."""

import csv
import hashlib
import io
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import recordmill as package
from tests.conftest import SHARED_DATA, manifest_of, read_examples, rejects_of
from tests.jobs.folders import (
    CLASSES,
    NOT_IMAGES,
    SPLITS,
    THREE,
    class_list,
    classes_of,
    counts,
    draw_all,
    examples_of,
    image_files,
    splits_of,
    three_splits,
    write_table,
)


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
    assert "5 in --images that nothing refers to" in outcome.out
    assert outcome.err == ""


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


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--split", "train,val"), "a name, or shares like train=0.8,val=0.1,test=0.1, is expected"),
        (("--split", "train=0.8,val=0.1"), "--split: the shares sum to 0.9, not 1"),
        (("--labels", "labels.csv", "--split", "val"), "says which split an image is of (test, train), and so does"),
        (("--labels", "labels.csv", "--split-seed", "3"), "--split-seed divides a data set, but"),
        (
            ("--labels", "labels.csv", "--labels", "plain.csv"),
            "labels.csv says which split an image is of, the others do",
        ),
        (("--images", "empty"), "--images empty: no file in it, nor in any folder below"),
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


# What reads it


def test_the_reader_gives_images_and_their_label(pictures, converted):
    files = image_files(pictures)
    seen = set()
    for split in SPLITS:
        for example in package.open(str(converted))[split].tensorflow():
            name = example["file_name"].numpy().decode()
            seen.add(name)
            assert example["image"].dtype == tf.uint8
            expected = np.asarray(Image.open(files[name]).convert("RGB"))
            assert (example["image"].numpy() == expected).all()
            assert example["label"].dtype == tf.int64
            assert example["label"].numpy() == CLASSES.index(name.split("/")[0])
    assert seen == set(files)


def test_a_batch_for_a_training_step(converted):
    train = package.open(str(converted))["train"]
    images, labels = next(iter(train.tensorflow(batch=4, resize=(8, 8), as_supervised=True)))
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
