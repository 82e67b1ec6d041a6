"""Rows of a shard's images, with digests of their records."""

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.block import Block, starts_of
from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.errors import StepError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.image_records import IMAGE_ROW, IMAGES, IMAGES_VERSION, ShardImages
from recordmill.transforms.blocks.image_facts import FactColumns
from recordmill.transforms.blocks.image_tasks import source_image_ids
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.records.digest_record import RecordDigests
from recordmill.transforms.shards.line_file import LineFile
from recordmill.transforms.storage.resolve import join_path, storage_for


class ImageRecords:
    """Collector of the rows of a shard's images.

    Args:
        table: Features of the records.

    Attributes:
        add_record: Function that adds a serialised tf.Example, in one or several parts.
    """

    def __init__(self, table: FeatureTable):
        self._digests = RecordDigests(table)
        self.add_record = self._digests.add
        self._names: list[bytes] = []
        self._sha256: list[str] = []
        self._records: list[np.ndarray] = []

    def add_images(self, facts: FactColumns, records_per_image: np.ndarray) -> None:
        """Add the images of the records that were added since the last call."""
        self._names += facts.name.rows()
        self._sha256 += facts.sha256
        self._records.append(records_per_image)

    def rows(self, block: Block, estimate: RecordEstimate) -> tuple[np.ndarray, np.ndarray]:
        """Return a row per planned image, and the ids of their annotations, int64.

        Args:
            block: Images that were planned for the shard, in order. Those that were added are among them, in order.
            estimate: Estimate of the plan.

        Returns:
            IMAGE_ROW [N], and int64.
        """
        rows = np.zeros(len(block), IMAGE_ROW)
        rows["id"] = source_image_ids(block)
        rows["size"], rows["planned"] = estimate.estimate_block(block)
        if block.is_continuation is not None:
            rows["continues"] = block.is_continuation
        records = np.concatenate(self._records) if self._records else np.zeros(0, np.int64)
        labels, objects, ids = sum_digests(self._digests, records)
        places = _places(self._names, block.file_name.rows())
        rows["image"][places] = image_digests(self._sha256)
        rows["labels"][places], rows["records"][places], rows["objects"][places] = labels, records, objects
        return rows, ids


def _places(names: list[bytes], planned: list[bytes]) -> np.ndarray:
    """Return the index of each name in `planned`, which has all names in the same order.

    >>> _places([b"b", b"d"], [b"a", b"b", b"c", b"d"]).tolist()
    [1, 3]
    """
    places, remaining = [], enumerate(planned)
    for name in names:
        place = next((place for place, other in remaining if other == name), None)
        if place is None:
            raise StepError(f"{name!r} has a record in a shard that it was not planned for")
        places.append(place)
    return np.array(places, np.int64)


def image_digests(sha256: list[str]) -> np.ndarray:
    """Return the first half of hex digests of images: uint64 [N, 2]; 0 for empty ones."""
    return np.frombuffer(bytes.fromhex("".join([text[:32] or "0" * 32 for text in sha256])), "<u8").reshape(-1, 2)


def sum_digests(digests: RecordDigests, records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sums of the digests of consecutive records of images.

    Args:
        records: int64 [N], number of records of each image; 1 or more.

    Returns:
        uint64 [N, 2], sums of digests; int64 [N], numbers of ids of annotations; and int64, these ids.
    """
    ids, ids_per_record = digests.annotation_ids()
    if not len(records):
        return np.zeros((0, 2), np.uint64), records, ids
    firsts = starts_of(records)[:-1]
    return np.add.reduceat(digests.digests(), firsts, axis=0), np.add.reduceat(ids_per_record, firsts), ids


def shard_images(
    shard: str, names: list[str], rows: np.ndarray, ids: np.ndarray, sources: list[str] | None = None
) -> ShardImages:
    """Return the images of a shard.

    Args:
        shard: Name of the file.
        names: File names in records.
        rows: IMAGE_ROW [N].
        ids: int64, ids of annotations.
        sources: Names of whole images; None without tiles.
    """
    return ShardImages(
        shard,
        msgspec.Raw(msgspec.json.encode(names)),
        rows.tobytes(),
        IMAGES_VERSION,
        pack_ids(ids),
        msgspec.UNSET if sources is None else msgspec.Raw(msgspec.json.encode(sources)),
    )


def pack_ids(ids: np.ndarray) -> bytes:
    """Return `ShardImages.object_ids`: int64 to compressed bytes."""
    return zlib.compress(ids.astype("<i8").tobytes()) if len(ids) else b""


def whole_names(block: Block) -> list[str]:
    """Return the file name of each image, or of the image that a tile is of."""
    names = block.file_name.texts()
    if block.tile_xy_px is None:
        return names
    is_tile = (block.tile_xy_px[:, 0] >= 0).tolist()
    columns = zip(is_tile, block.whole_name.texts(), names, strict=True)
    return [whole if tile else name for tile, whole, name in columns]


def images_path(output: str, split: str) -> str:
    """Return the path of the images of an incomplete split."""
    return join_path(output, f"{state_folder(split)}/{IMAGES}")


_ENCODE_LINES = msgspec.json.Encoder().encode_lines
_DECODER = msgspec.json.Decoder(ShardImages)


def images_line(images: ShardImages) -> bytes:
    """Return a line of images-SPLIT.jsonl."""
    return _ENCODE_LINES([images])


def read_images(path: str) -> Iterator[ShardImages]:
    """Yield the images of each shard in a file of `split_images`, line by line.

    Raises:
        FileNotFoundError: There is no file.
        msgspec.DecodeError: A line is damaged.
    """
    with storage_for(path).open(path) as file:
        yield from map(_DECODER.decode, file)


class ImageLines(LineFile):
    """File of lines of images. It holds the last line back."""

    def __init__(self, output: str, path: str):
        super().__init__(output, path)
        self._last = b""

    def write(self, line: bytes) -> None:
        if self._last:
            super().write(self._last)
        self._last = line

    def add_to_last(self, images: ShardImages) -> None:
        """Add the images of a shard that is not kept, which have no records, to the last line. A plan of all images
        needs them."""
        if self._last:
            self._last = images_line(_with_images(_DECODER.decode(self._last), images))

    def __exit__(self, *error: Any) -> None:
        if self._last and error[0] is None:
            super().write(self._last)
        super().__exit__(*error)


def _with_images(images: ShardImages, more: ShardImages) -> ShardImages:
    """Return the images of a shard, and those without records of another one that the shard does not name."""
    names, sources = images.image_names()
    more_names, more_sources = more.image_names()
    known = set(names)
    places = [place for place, name in enumerate(more_names) if name not in known]
    names = names + [more_names[place] for place in places]  # a new list: without tiles, both are one
    sources = sources + [more_sources[place] for place in places]
    rows = np.concatenate([images.array, more.array[places]])
    has_tiles = images.sources != msgspec.UNSET or more.sources != msgspec.UNSET
    return shard_images(images.shard, names, rows, images.ids, sources if has_tiles else None)
