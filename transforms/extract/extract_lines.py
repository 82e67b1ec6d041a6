"""The rows and files of a record as lines in the order of the files that they go to, and back."""

import hashlib
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

import msgspec

from recordmill.schemas.names import name_key
from recordmill.transforms.extract.extract_files import WrittenFile
from recordmill.transforms.extract.extract_rows import RecordRows, panoptic_path
from recordmill.transforms.runtime.line_blocks import ordered_bytes

ID_BYTES = 8
"""With which the keys of annotations begin; and those of captions that have no id."""
NO_ID = ordered_bytes(0)
_KEY_BYTES = 2 * ID_BYTES
_NUMBER_BYTES = 4


class Lines(str, Enum):
    """What lines are of."""

    FILES = "files"
    IMAGES = "images"
    LABELS = "labels"
    INSTANCES = "instances"
    KEYPOINTS = "keypoints"
    CAPTIONS = "captions"
    PANOPTIC = "panoptic"


class RecordAt(NamedTuple):
    """A record by its shard and its number there, from 0."""

    shard: str
    number: int


class ExtractedRecord(msgspec.Struct, frozen=True):
    """A record whose image has been written.

    Attributes:
        files: that were written, its image first.
    """

    of: RecordAt
    rows: RecordRows
    files: tuple[WrittenFile, ...]


class Line(NamedTuple):
    """A line of any kind but LABELS: what it is sorted by, first, then the record that it is of; and what it says."""

    key: bytes
    of: RecordAt
    data: bytes


class FileLine(msgspec.Struct, frozen=True, array_like=True):
    """A file that a record has, and whether it is its image. Names that may be one have one key."""

    file: WrittenFile
    is_image: bool


class ImageLine(msgspec.Struct, frozen=True, array_like=True):
    """A record's row of its image as JSON, and the path of the image's file."""

    json: bytes
    path: str


def record_lines(split: str, record: ExtractedRecord) -> Iterator[tuple[Lines, bytes]]:
    """The lines of a record, each of its kind."""
    of, rows, files = record.of, record.rows, record.files
    for number, file in enumerate(files):
        key = hashlib.sha256(name_key(file.path).encode()).digest()[:_KEY_BYTES]
        yield Lines.FILES, _line(key, of, msgspec.msgpack.encode(FileLine(file, number == 0)))
    image = ImageLine(msgspec.json.encode(rows.image), files[0].path)
    yield Lines.IMAGES, _line(_key(rows.image.id, 0), of, msgspec.msgpack.encode(image))
    for kind, objects in ((Lines.INSTANCES, rows.instances), (Lines.KEYPOINTS, rows.keypoints)):
        for row in objects:
            yield kind, _line(_key(row.id, row.image_id), of, row.json)
    for number, caption in enumerate(rows.captions):
        place = number.to_bytes(_NUMBER_BYTES, "big")  # orders those of a record that have no id
        yield Lines.CAPTIONS, _line(_key(caption.id or 0, caption.image_id), of, place + msgspec.json.encode(caption))
    panoptic = rows.panoptic
    if panoptic and panoptic_path(split, panoptic.file_name) in {file.path for file in files}:
        yield Lines.PANOPTIC, _line(_key(panoptic.image_id, 0), of, msgspec.json.encode(panoptic))
    if rows.class_name is not None:
        words = (rows.image.file_name, rows.class_name, of.shard)
        yield Lines.LABELS, "\0".join(words).encode() + of.number.to_bytes(_NUMBER_BYTES, "big")


def line_of(line: bytes) -> Line:
    shard, _, rest = line[_KEY_BYTES:].partition(b"\0")
    of = RecordAt(shard.decode(), int.from_bytes(rest[:_NUMBER_BYTES], "big"))
    return Line(line[:_KEY_BYTES], of, rest[_NUMBER_BYTES:])


def caption_json(line: Line) -> bytes:
    return line.data[_NUMBER_BYTES:]


def label_of(line: bytes) -> tuple[RecordAt, str, str]:
    """The record, the image's name and its class of a line of LABELS."""
    name, _, rest = line[:-_NUMBER_BYTES].decode().partition("\0")
    class_name, _, shard = rest.rpartition("\0")
    return RecordAt(shard, int.from_bytes(line[-_NUMBER_BYTES:], "big")), name, class_name


def _line(key: bytes, of: RecordAt, data: bytes) -> bytes:
    return b"%b%b\0%b%b" % (key, of.shard.encode(), of.number.to_bytes(_NUMBER_BYTES, "big"), data)


def _key(first: int, second: int) -> bytes:
    return ordered_bytes(first) + ordered_bytes(second)
