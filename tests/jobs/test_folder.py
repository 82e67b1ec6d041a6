"""`recordmill folder` from end to end: images of one class each become records, and what reads them."""

import hashlib
from collections import Counter

import msgspec
import tensorflow as tf

from recordmill.transforms.join.list_images import listing_of
from tests.conftest import manifest_of, shard_bytes
from tests.jobs.folders import CLASSES, NOT_IMAGES, SPLITS, examples_of, image_files, splits_of


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


def test_what_was_extracted_gives_the_same_bytes_again(converted, extracted, tmp_path, recordmill):
    flags = ["--output", tmp_path / "out", "--num-shards", 2]
    for split in SPLITS:
        flags += ["--images", extracted / "images" / split]
        flags += ["--labels", extracted / "annotations" / f"labels_{split}.csv"]
    assert recordmill("folder", *flags).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)
