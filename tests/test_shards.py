"""Names and order of shards."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.shards import ShardKey, is_shard_of, shard_file, shard_prefix

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
SPLITS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_]{0,8}", fullmatch=True)


@pytest.mark.parametrize(
    ("key", "gzip", "file"),
    [
        (ShardKey("train", 0, 1), False, "coco-train.tfrecord-00000-of-00001"),
        (ShardKey("train", 3, 128), False, "coco-train.tfrecord-00003-of-00128"),
        (ShardKey("val", 3, 128), True, "coco-val.tfrecord-00003-of-00128.gz"),
        (ShardKey("train", 99_998, 99_999), False, "coco-train.tfrecord-99998-of-99999"),
        (ShardKey("train", 123_456, 200_000), False, "coco-train.tfrecord-123456-of-200000"),
    ],
)
def test_shard_file(key, gzip, file):
    assert shard_file("coco", key, gzip) == file
    assert file.startswith(shard_prefix("coco", key.split))


@given(NAMES, SPLITS, st.integers(0, 10**6), st.integers(1, 10**6), st.booleans())
def test_a_shard_is_known_by_its_name(name, split, index, count, gzip):
    assert is_shard_of(shard_file(name, ShardKey(split, index, count), gzip), name, split)


@given(NAMES, SPLITS, NAMES, SPLITS)
def test_a_shard_is_not_taken_for_another_split_s(name, split, other_name, other_split):
    file = shard_file(name, ShardKey(split, 0, 1), gzip=False)
    assert is_shard_of(file, other_name, other_split) == ((name, split) == (other_name, other_split))


@pytest.mark.parametrize(
    "file",
    [
        "coco-val.tfrecord-00000-of-00001",
        "coco2-train.tfrecord-00000-of-00001",
        "my-coco-train.tfrecord-00000-of-00001",
        "coco-train.tfrecord-0-of-1",
        "coco-train.tfrecord-00000-of-00001.tmp",
        ".coco-train.tfrecord-00000-of-00001.0a1b2c3d.tmp",
        "coco-train.tfrecord",
        "manifest.json",
    ],
)
def test_what_is_no_shard_of_coco_train(file):
    assert not is_shard_of(file, "coco", "train")


def test_keys_are_ordered_by_split_and_index():
    keys = [ShardKey(split, index, 12) for split in ("train", "val") for index in range(12)]
    assert sorted(random.Random(0).sample(keys, len(keys))) == keys
