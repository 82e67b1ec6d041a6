"""Shards: numbers, file names, results of finished ones."""

import re

import msgspec

from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.features import ShardNaming
from recordmill.schemas.image_records import ShardImages
from recordmill.schemas.problems import Fingerprints
from recordmill.schemas.rejects import Metric, Rejected
from recordmill.schemas.statistics import Statistics


class ShardKey(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Shard of a split: number `index` (from 0) of `count`."""

    split: str
    index: int
    count: int


class JobPart(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Part of a job that several processes share: it writes the shards of each split whose number modulo `count` is
    `index`."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def has(self, key: ShardKey) -> bool:
        """Return True if the part writes a shard.

        >>> [index for index in range(8) if JobPart(1, 3).has(ShardKey("train", index, 8))]
        [1, 4, 7]
        """
        return key.index % self.count == self.index

    def num_shards(self, shards: int) -> int:
        """Return how many of a split's shards the part writes.

        >>> [JobPart(index, 3).num_shards(8) for index in range(3)]
        [3, 3, 2]
        """
        return len(range(self.index, shards, self.count))


def parse_job_part(text: str) -> JobPart:
    """Return the part in a text like `3/16`.

    Raises:
        ValueError: There is no such part.

    >>> parse_job_part("3/16")
    JobPart(index=3, count=16)
    """
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text, re.ASCII)
    if match is None:
        raise ValueError("must be K/N, the number of the part and of all parts: 0/16 to 15/16")
    part = JobPart(int(match[1]), int(match[2]))
    if part.index >= part.count:
        parts = f"0/{part.count} to {part.count - 1}/{part.count}" if part.count > 1 else "0/1"
        why = f"parts count from 0: {parts}" if part.count else "there must be at least one part, 0/1"
        raise ValueError(why)
    return part


DEFAULT_SHARD_BYTES = 150_000_000
SIZING_OPTIONS = ("num_shards", "shard_size", "examples_per_shard")
"""Options that size shards, by their names in recipes."""


class ShardSizing(msgspec.Struct, frozen=True):
    """Sizing of a split's shards: the first set attribute."""

    num_shards: int | None = None
    shard_bytes: int | None = None
    examples_per_shard: int | None = None


class SplitSize(msgspec.Struct, frozen=True):
    """Planned size of a split: images or rows, expected bytes of records, shards."""

    images: int
    bytes: int
    shards: int


class IndexInfo(msgspec.Struct, frozen=True):
    """File of a shard's index: size in bytes, and CRC-32C as in ShardInfo."""

    bytes: int
    crc32c: str


class ShardInfo(msgspec.Struct, frozen=True):
    """A finished shard."""

    file: str  # name in the output folder
    examples: int  # number of records
    bytes: int  # size of the file, compressed if it is
    crc32c: str  # of the file, in Cloud Storage's form: a bucket returns it without a read of the file
    sha256: str  # hex digest of the file
    index: IndexInfo | msgspec.UnsetType = msgspec.UNSET  # index of the shard; UNSET for GZIP, which has none


class ShardResult(msgspec.Struct, frozen=True):
    """Result of writing a shard; stored as its resume state."""

    key: ShardKey
    plan: str  # digest of the shard's input (images, sizes and versions of files, annotations, options)
    made_by: dict[str, str]  # see SplitManifest
    info: ShardInfo
    counted: dict[Metric, int]  # contents of the records
    rejected: tuple[Rejected, ...]  # rejects of writing the shard
    statistics: Statistics  # statistics of its records
    class_counts: dict[int, int] = {}  # see SplitManifest; by class index
    fingerprints: Fingerprints | None = None  # fingerprints of its images; None if records have no images
    record_sizes: bytes = b""  # int64 size of each tf.Example in bytes, of a shard from another container
    images: ShardImages | None = None  # images that were planned for it; None if records have no images


class ShardNames(msgspec.Struct, frozen=True):
    """File names of the shards of one split.

    TFDS and Beam: `coco-train.tfrecord-00003-of-00128`. Keras recipe: `file_03-4096.tfrec`, with the number of
    examples, which is known when the shard is finished. `.gz` is appended to the names of compressed shards. Other
    containers: see `recordmill.schemas.containers.CONTAINERS`.
    """

    name: str
    split: str
    naming: ShardNaming = ShardNaming.TFDS
    container: str = TFRECORD

    @property
    def is_keras(self) -> bool:
        """True for the names of the Keras recipe. Only TFRecord files have them."""
        return self.naming is ShardNaming.KERAS and self.container == TFRECORD

    def file(self, key: ShardKey, examples: int, gzip: bool) -> str:
        """Return the name of a finished shard.

        >>> ShardNames("coco", "train").file(ShardKey("train", 3, 128), 17, gzip=True)
        'coco-train.tfrecord-00003-of-00128.gz'
        """
        ending = ".gz" if gzip else ""
        if self.is_keras:
            return f"file_{key.index:02d}-{examples}.tfrec{ending}"
        return self.stable(key) + ending

    def stable(self, key: ShardKey) -> str:
        """Return the shard's name in the scheme of TFDS and Beam, or of its container, for any naming of files. It is
        known before the shard is finished."""
        return CONTAINERS[self.container].file_name(f"{self.name}-{self.split}", key.index, key.count)

    def is_one(self, file: str) -> bool:
        """Return True if `file` is named like a shard of the split or a link to one, for any shard count."""
        return self._match(f"{re.escape(self.name)}-{re.escape(self.split)}", file) is not None

    def key(self, file: str, count: int) -> ShardKey:
        """Return the key of a shard of the split by its file name, of `count` shards.

        >>> ShardNames("coco", "train", ShardNaming.KERAS).key("file_03-4096.tfrec", 8)
        ShardKey(split='train', index=3, count=8)
        """
        match = self._match(f"{re.escape(self.name)}-{re.escape(self.split)}", file)
        if match is None:
            raise ValueError(f"{file} is not the name of a shard")
        return ShardKey(self.split, int(match["index"]), count)

    def is_one_of_any_split(self, file: str) -> bool:
        """Return True if `file` is named like a shard of any split of the data set, or a link to one.

        >>> ShardNames("coco", "train").is_one_of_any_split("coco-val.tfrecord-00000-of-00001")
        True
        """
        return self._match(f"{re.escape(self.name)}-.+", file) is not None

    def _match(self, prefix: str, file: str) -> re.Match[str] | None:
        match = re.fullmatch(CONTAINERS[self.container].file_pattern(prefix), file)
        return re.fullmatch(_KERAS_FILE, file) if match is None and self.is_keras else match


_KERAS_FILE = r"file_(?P<index>\d{2,})-\d+\.tfrec(?:\.gz)?"
_PATTERNS = (_KERAS_FILE, *(row.file_pattern("[^/]+") for row in CONTAINERS.values()))
SHARD_FILES = "|".join(re.sub(r"\?P<\w+>", "", pattern) for pattern in _PATTERNS)
"""Regular expression of the names of shards of any data set."""


def parse_shard_name(split: str, file: str) -> ShardKey:
    """Return the key of a file with a name of TFDS and Beam.

    >>> parse_shard_name("train", "coco-train.tfrecord-00003-of-00128.gz")
    ShardKey(split='train', index=3, count=128)
    """
    match = re.fullmatch(CONTAINERS[TFRECORD].file_pattern(".+"), file)
    if match is None:
        raise ValueError(f"{file} is not the name of a shard")
    return ShardKey(split, int(match["index"]), int(match["count"]))
