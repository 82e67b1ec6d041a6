"""manifest.json: what a data set folder holds. It is written last; where it lists a split, that split is complete."""

import os

import msgspec

from schemas.coco import Category
from schemas.errors import ConfigError
from schemas.shards import ShardInfo

FORMAT = 1
"""Raised when the same inputs and options would give other bytes, or the manifest another shape."""

MANIFEST = "manifest.json"
REJECTS = "rejects.jsonl"


def state_folder(split: str) -> str:
    """Folder within the output where an unfinished run of a split keeps what it needs to go on."""
    return f".recordmill-{split}"


class InputFile(msgspec.Struct, frozen=True):
    """An annotation file as it was read: its size in bytes and base64 CRC-32C (as Cloud Storage writes it)."""

    path: str
    bytes: int
    crc32c: str


class Recipe(msgspec.Struct, frozen=True):
    """What decides the bytes of a split's shards, besides the images themselves. Equal recipes may go on in one folder.

    Attributes:
        options: the command's options by flag name, without those that do not change a record (workers, progress …).
    """

    format: int
    name: str
    split: str
    layout: str
    annotation_files: tuple[InputFile, ...]
    images: tuple[str, ...]
    options: dict[str, str | int | float | bool | list[str] | None]


class Unlisted(msgspec.Struct, frozen=True):
    """Files under --images that no image row names; they are not part of the data set. `first` are a few of them."""

    files: int
    first: tuple[str, ...]


class InputRows(msgspec.Struct, frozen=True):
    """How many image and annotation rows an annotation file has, good and bad."""

    path: str
    images: int
    annotations: int


class ImageCounts(msgspec.Struct, frozen=True):
    """`rows` (image rows read) = `examples` (records written) + the sum of `rejected` (by reason)."""

    rows: int
    examples: int
    rejected: dict[str, int]


class AnnotationCounts(msgspec.Struct, frozen=True):
    """`rows` = `written` + the sums of `rejected` and `filtered` (by reason) + `of_rejected_images`.

    `boxes_clipped` of the written ones were cut at their image's edge.
    """

    rows: int
    written: int
    rejected: dict[str, int]
    filtered: dict[str, int]
    of_rejected_images: int
    boxes_clipped: int


class SplitManifest(msgspec.Struct, frozen=True):
    """A complete split."""

    recipe: Recipe
    compression: str
    inputs: tuple[InputRows, ...]
    images: ImageCounts
    annotations: AnnotationCounts
    unlisted: Unlisted
    record_bytes: int
    shards: tuple[ShardInfo, ...]

    @property
    def examples(self) -> int:
        return sum(shard.examples for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)


class Manifest(msgspec.Struct, frozen=True):
    """manifest.json."""

    format: int
    name: str
    layout: str
    categories: tuple[Category, ...]
    splits: dict[str, SplitManifest]


class _Format(msgspec.Struct):
    """What a manifest of any format has."""

    format: int


def decode_manifest(data: bytes, path: str) -> Manifest:
    """The manifest in `data`.

    Raises:
        ConfigError: it is not one, or one of another format; `path` is named.
    """
    try:
        format_ = msgspec.json.decode(data, type=_Format).format
        manifest = msgspec.json.decode(data, type=Manifest) if format_ == FORMAT else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a Recordmill manifest ({error}); was it edited or cut short?") from error
    if manifest is None:
        raise ConfigError(
            f"{path} is of manifest format {format_}, this program writes and reads format {FORMAT}; "
            "use the version that wrote it, or convert into another folder"
        )
    for split in manifest.splits.values():
        for shard in split.shards:
            if shard.file != os.path.basename(shard.file) or shard.file in ("", ".", ".."):
                raise ConfigError(f"{path} lists {shard.file!r}, which is not the name of a file in its folder")
    return manifest


def encode_json(value: object) -> bytes:
    """`value` as indented JSON, the same bytes for equal values."""
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2) + b"\n"
