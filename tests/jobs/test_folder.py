"""`recordmill folder` from end to end: images of one class each become records, and what reads them."""

import csv
import hashlib
from collections import Counter

import msgspec
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import recordmill as package
from recordmill.transforms.images.listing import listing_of
from tests.conftest import manifest_of, read_examples, shard_bytes
from tests.jobs.folders import CLASSES, NOT_IMAGES, SPLITS, examples_of, image_files, splits_of, whole_folder


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
    splits = manifest_of(converted)["splits"]
    written = Counter(splits_of(converted).values())
    for name, split in splits.items():
        assert split["images"] == {"rows": written[name], "written": written[name], "without_record": 0, "rejected": {}}
        assert sum(shard["examples"] for shard in split["shards"]) == written[name] > 0
        assert split["unlisted"] == {"files": 5, "first": sorted(NOT_IMAGES)}
        assert split["recipe"]["inputs"] == [msgspec.to_builtins(listing_of(str(pictures)))]
    assert (converted / "labels.csv").read_text() == "0,Cat\n1,big dog\n2,Öl\n"


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


def test_images_and_labels_come_out_as_they_went_in(pictures, converted, extracted, tmp_path, recordmill):
    files, splits = image_files(pictures), splits_of(converted)
    for split in SPLITS:
        below = extracted / "images" / split
        found = {path.relative_to(below).as_posix(): path.read_bytes() for path in below.rglob("*") if path.is_file()}
        assert found == {name: path.read_bytes() for name, path in files.items() if splits[name] == split}
        with (extracted / "annotations" / f"labels_{split}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows == [{"path": name, "label": name.split("/")[0], "split": split} for name in sorted(found)]
    assert sorted(path.name for path in extracted.iterdir()) == ["annotations", "images"]
    assert recordmill("extract", converted, tmp_path / "val", "--split", "val").code == 0
    whole = whole_folder(extracted).items()
    of_val = {name: data for name, data in whole if name.startswith(("images/val/", "annotations/labels_val"))}
    assert whole_folder(tmp_path / "val") == of_val


def test_what_was_extracted_gives_the_same_bytes_again(converted, extracted, tmp_path, recordmill):
    flags = ["--output", tmp_path / "out", "--num-shards", 2]
    for split in SPLITS:
        flags += ["--images", extracted / "images" / split]
        flags += ["--labels", extracted / "annotations" / f"labels_{split}.csv"]
    outcome = recordmill("folder", *flags)
    assert outcome.code == 0, outcome
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)
