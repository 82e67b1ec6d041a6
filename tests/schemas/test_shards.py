import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.features import ShardNaming
from recordmill.schemas.shards import ShardKey, ShardNames

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
def test_shard_is_called_as_beam_and_tfds_call_it(key, gzip, file):
    names = ShardNames("coco", key.split)
    assert names.file(key, 17, gzip) == file
    assert names.stable(key) == file.removesuffix(".gz")
    assert file.startswith(names.stable_prefix)


@given(NAMES, SPLITS, st.integers(0, 10**6), st.integers(1, 10**6), st.booleans())
def test_a_shard_is_known_by_its_name(name, split, index, count, gzip):
    names = ShardNames(name, split)
    assert names.is_one(names.file(ShardKey(split, index, count), 1, gzip))


@given(NAMES, SPLITS, NAMES, SPLITS)
def test_shard_is_not_taken_for_another_split_s(name, split, other_name, other_split):
    file = ShardNames(name, split).file(ShardKey(split, 0, 1), 1, gzip=False)
    assert ShardNames(other_name, other_split).is_one(file) == ((name, split) == (other_name, other_split))


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
    assert not ShardNames("coco", "train").is_one(file)


# As the Keras recipe calls them

KERAS_NAMES = ShardNames("coco", "train", ShardNaming.KERAS)


@pytest.mark.parametrize(
    ("index", "examples", "gzip", "file"),
    [
        (0, 4096, False, "file_00-4096.tfrec"),
        (7, 0, False, "file_07-0.tfrec"),
        (99, 1, True, "file_99-1.tfrec.gz"),
        (123, 12, False, "file_123-12.tfrec"),
    ],
)
def test_shard_of_keras_recipe_is_called_by_its_number_and_its_examples(index, examples, gzip, file):
    key = ShardKey("train", index, 200)
    assert KERAS_NAMES.file(key, examples, gzip) == file
    assert KERAS_NAMES.stable(key) == f"coco-train.tfrecord-{index:05d}-of-00200"
    assert not file.startswith(KERAS_NAMES.stable_prefix)


@given(st.integers(0, 10**6), st.integers(0, 10**9), st.booleans())
def test_shard_of_keras_recipe_is_known_by_its_name_and_so_is_link_to_it(index, examples, gzip):
    key = ShardKey("train", index, index + 1)
    assert KERAS_NAMES.is_one(KERAS_NAMES.file(key, examples, gzip))
    assert KERAS_NAMES.is_one(KERAS_NAMES.stable(key))


@pytest.mark.parametrize(
    "file",
    [
        "file_0-4096.tfrec",
        "file_00.tfrec",
        "file_00-4096.tfrecord",
        "file_00-4096.tfrec.bak",
        "file_00--1.tfrec",
        "my_file_00-4096.tfrec",
        "../file_00-4096.tfrec",
        "file_00-4096.tfrec\n",
        ".file_00-4096.tfrec.0a1b2c3d.tmp",
        "coco-val.tfrecord-00000-of-00001",
    ],
)
def test_what_is_no_shard_of_keras_recipe(file):
    assert not KERAS_NAMES.is_one(file)


@pytest.mark.parametrize("file", ["file_00-4096.tfrec", "file_00-4096.tfrec.gz"])
def test_other_layouts_do_not_take_keras_recipe_s_files_for_theirs(file):
    assert not ShardNames("coco", "train").is_one(file)


def test_keys_are_ordered_by_split_and_index():
    keys = [ShardKey(split, index, 12) for split in ("train", "val") for index in range(12)]
    assert sorted(random.Random(0).sample(keys, len(keys))) == keys
