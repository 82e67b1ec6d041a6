"""Shards: their number, their file names, and what is known of one when it is finished."""

import re

import msgspec

from recordmill.schemas.features import ShardNaming
from recordmill.schemas.problems import Fingerprints
from recordmill.schemas.rejects import Metric, Rejected
from recordmill.schemas.statistics import Statistics


class ShardKey(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One shard of one split: number `index` (from 0) of `count`."""

    split: str
    index: int
    count: int


class ShardSizing(msgspec.Struct, frozen=True):
    """How a split is divided into shards: by the first of the three attributes that is set."""

    num_shards: int | None = None
    shard_bytes: int | None = None
    examples_per_shard: int | None = None


class SplitSize(msgspec.Struct, frozen=True):
    """How much is to be written of a split: images or rows, bytes of records as expected, shards."""

    images: int
    bytes: int
    shards: int


class IndexInfo(msgspec.Struct, frozen=True):
    """The file of a shard's index: its size, and its CRC-32C as of ShardInfo."""

    bytes: int
    crc32c: str


class ShardInfo(msgspec.Struct, frozen=True):
    """A finished shard."""

    file: str  # its name within the output folder
    examples: int  # records in it
    bytes: int  # size of the file, compressed if it is
    crc32c: str  # of the file, as Cloud Storage writes it, which knows it of every object: looking costs no read
    sha256: str  # hex digest of the file
    index: IndexInfo | msgspec.UnsetType = msgspec.UNSET  # of the file of its index; UNSET for GZIP, which has none


class ShardResult(msgspec.Struct, frozen=True):
    """The outcome of writing a shard; kept as its resume state."""

    key: ShardKey
    plan: str  # digest of what was to be written (images, their files' sizes and versions, annotations, options)
    made_by: dict[str, str]  # see SplitManifest
    info: ShardInfo
    counted: dict[Metric, int]  # what is in the records
    rejected: tuple[Rejected, ...]  # what was left out while writing it
    statistics: Statistics  # of its records
    class_counts: dict[int, int] = {}  # see SplitManifest; by class index
    fingerprints: Fingerprints | None = None  # of its pictures; None where records have none


class ShardNames(msgspec.Struct, frozen=True):
    """File names of the shards of one split.

    As TFDS and Beam do, `coco-train.tfrecord-00003-of-00128`; or as the Keras recipe does, `file_03-4096.tfrec`, with
    the number of examples, which is known when the shard is finished. `.gz` is added to the names of compressed ones.
    """

    name: str
    split: str
    naming: ShardNaming = ShardNaming.TFDS

    @property
    def stable_prefix(self) -> str:
        """Prefix of the `stable` names of all shards of the split."""
        return f"{self.name}-{self.split}.tfrecord"

    def file(self, key: ShardKey, examples: int, gzip: bool) -> str:
        """The name of a finished shard.

        >>> ShardNames("coco", "train").file(ShardKey("train", 3, 128), 17, gzip=True)
        'coco-train.tfrecord-00003-of-00128.gz'
        """
        ending = ".gz" if gzip else ""
        if self.naming is ShardNaming.KERAS:
            return f"file_{key.index:02d}-{examples}.tfrec{ending}"
        return self.stable(key) + ending

    def stable(self, key: ShardKey) -> str:
        """The shard's name in the scheme of TFDS and Beam, even where its file has another; known before it is
        finished."""
        return f"{self.stable_prefix}-{key.index:05d}-of-{key.count:05d}"

    def is_one(self, file: str) -> bool:
        """Whether `file` is named as a shard of the split or as a link to one: any shard count, compressed or not."""
        match = _SHARD_FILE.fullmatch(file)
        if match is not None and match[1] == self.stable_prefix:
            return True
        return self.naming is ShardNaming.KERAS and _KERAS_FILE.fullmatch(file) is not None


_SHARD_FILE = re.compile(r"(.+)-(\d{5,})-of-(\d{5,})(?:\.gz)?")
_KERAS_FILE = re.compile(r"file_(\d{2,})-(\d+)\.tfrec(?:\.gz)?")


def key_of(split: str, file: str) -> ShardKey:
    """The key of a file that is named as TFDS and Beam do.

    >>> key_of("train", "coco-train.tfrecord-00003-of-00128.gz")
    ShardKey(split='train', index=3, count=128)
    """
    match = _SHARD_FILE.fullmatch(file)
    if match is None:
        raise ValueError(f"{file} is no shard's name")
    return ShardKey(split, int(match[2]), int(match[3]))


def is_shard_of(name: str, file: str, naming: ShardNaming) -> bool:
    """Whether `file` is named as a shard of any split of the data set `name`, or as a link to one.

    >>> is_shard_of("coco", "coco-val.tfrecord-00000-of-00001", ShardNaming.TFDS)
    True
    """
    match = _SHARD_FILE.fullmatch(file)
    if match is not None and match[1].startswith(f"{name}-") and match[1].endswith(".tfrecord"):
        return True
    return naming is ShardNaming.KERAS and _KERAS_FILE.fullmatch(file) is not None
