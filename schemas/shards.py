"""Shards: how many, how they are called, what is known of one when it is finished."""

import re

import msgspec

from schemas.rejects import Rejected, Tally


class ShardKey(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One shard of one split: number `index` (from 0) of `count`."""

    split: str
    index: int
    count: int


class ShardSizing(msgspec.Struct, frozen=True):
    """How a split is cut into shards: by one of the three, the first that is set."""

    num_shards: int | None = None
    shard_bytes: int | None = None
    examples_per_shard: int | None = None


class ShardInfo(msgspec.Struct, frozen=True):
    """A finished shard.

    Attributes:
        file: its name within the output folder.
        examples: records in it.
        bytes: size of the file, compressed if it is.
        sha256: hex digest of the file.
    """

    file: str
    examples: int
    bytes: int
    sha256: str


class ShardResult(msgspec.Struct, frozen=True):
    """All that writing a shard brought to light; kept as its resume state.

    Attributes:
        plan: digest of what was to be written (images, their files' sizes and versions, annotations, options).
        counted: what is in the records.
        rejected: what was left out while writing it.
    """

    key: ShardKey
    plan: str
    info: ShardInfo
    counted: dict[Tally, int]
    rejected: tuple[Rejected, ...]


def shard_prefix(name: str, split: str) -> str:
    """What the names of a split's shards start with."""
    return f"{name}-{split}.tfrecord"


def shard_file(name: str, key: ShardKey, gzip: bool) -> str:
    """The file name TFDS and Beam give a shard.

    >>> shard_file("coco", ShardKey("train", 3, 128), gzip=True)
    'coco-train.tfrecord-00003-of-00128.gz'
    """
    return f"{shard_prefix(name, key.split)}-{key.index:05d}-of-{key.count:05d}{'.gz' if gzip else ''}"


_SHARD_FILE = re.compile(r"(.+)-(\d{5,})-of-(\d{5,})(?:\.gz)?")


def is_shard_of(file: str, name: str, split: str) -> bool:
    """Whether `file` is named as a shard of that split, of any count, compressed or not."""
    match = _SHARD_FILE.fullmatch(file)
    return match is not None and match[1] == shard_prefix(name, split)
