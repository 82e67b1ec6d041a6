import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.features import ShardNaming
from recordmill.schemas.shards import ShardKey, ShardNames

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)
SPLITS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_]{0,8}", fullmatch=True)


TFDS_NAMES, KERAS_NAMES = ShardNames("coco", "train"), ShardNames("coco", "train", ShardNaming.KERAS)


@pytest.mark.parametrize(
    ("names", "index", "count", "gzip", "file"),
    [
        (TFDS_NAMES, 0, 1, False, "coco-train.tfrecord-00000-of-00001"),
        (TFDS_NAMES, 3, 128, True, "coco-train.tfrecord-00003-of-00128.gz"),
        (TFDS_NAMES, 99_998, 99_999, False, "coco-train.tfrecord-99998-of-99999"),
        (TFDS_NAMES, 123_456, 200_000, False, "coco-train.tfrecord-123456-of-200000"),
        (KERAS_NAMES, 0, 200, False, "file_00-4096.tfrec"),
        (KERAS_NAMES, 99, 200, True, "file_99-4096.tfrec.gz"),
        (KERAS_NAMES, 123, 200, False, "file_123-4096.tfrec"),
    ],
)
def test_file(names, index, count, gzip, file):
    key = ShardKey("train", index, count)
    assert names.file(key, 4096, gzip) == file
    assert names.stable(key) == f"coco-train.tfrecord-{index:05d}-of-{count:05d}"


@given(NAMES, SPLITS, st.integers(0, 10**6), st.integers(1, 10**6), st.integers(0, 10**9), st.booleans())
def test_a_shard_is_known_by_its_name(name, split, index, count, examples, gzip):
    key = ShardKey(split, index, count)
    for naming in ShardNaming:
        names = ShardNames(name, split, naming)
        assert names.is_one(names.file(key, examples, gzip))
        assert names.is_one(names.stable(key))


@given(NAMES, SPLITS, NAMES, SPLITS)
def test_shard_is_not_taken_for_another_split_s(name, split, other_name, other_split):
    file = ShardNames(name, split).file(ShardKey(split, 0, 1), 1, gzip=False)
    assert ShardNames(other_name, other_split).is_one(file) == ((name, split) == (other_name, other_split))


@pytest.mark.parametrize(
    ("names", "file"),
    [
        *((names, "coco-val.tfrecord-00000-of-00001") for names in (TFDS_NAMES, KERAS_NAMES)),
        *((TFDS_NAMES, f"{name}-train.tfrecord-00000-of-00001") for name in ("coco2", "my-coco")),
        (TFDS_NAMES, "coco-train.tfrecord-0-of-1"),
        (TFDS_NAMES, "coco-train.tfrecord-00000-of-00001.tmp"),
        (TFDS_NAMES, ".coco-train.tfrecord-00000-of-00001.0a1b2c3d.tmp"),
        (TFDS_NAMES, "coco-train.tfrecord"),
        (TFDS_NAMES, "manifest.json"),
        (TFDS_NAMES, "file_00-4096.tfrec"),
        (TFDS_NAMES, "file_00-4096.tfrec.gz"),
        *((KERAS_NAMES, f"file_{name}") for name in ("0-4096.tfrec", "00.tfrec", "00-4096.tfrecord", "00--1.tfrec")),
        (KERAS_NAMES, "file_00-4096.tfrec.bak"),
        (KERAS_NAMES, "my_file_00-4096.tfrec"),
        (KERAS_NAMES, "../file_00-4096.tfrec"),
        (KERAS_NAMES, "file_00-4096.tfrec\n"),
        (KERAS_NAMES, ".file_00-4096.tfrec.0a1b2c3d.tmp"),
    ],
)
def test_other_files_are_no_shards(names, file):
    assert not names.is_one(file)


def test_keys_are_ordered_by_split_and_index():
    keys = [ShardKey(split, index, 12) for split in ("train", "val") for index in range(12)]
    assert sorted(random.Random(0).sample(keys, len(keys))) == keys
