"""Positions of the records of a shard that are copied to another file: all of them, or some."""

from collections.abc import Collection
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import spans, starts_of
from recordmill.schemas.errors import JobError
from recordmill.schemas.image_records import ShardImages
from recordmill.schemas.problems import FINGERPRINT, Fingerprints
from recordmill.schemas.statistics import Example
from recordmill.transforms.blocks.image_facts import NO_OFFSET
from recordmill.transforms.containers.container import Container
from recordmill.transforms.shards.image_records import pack_ids


def record_starts(sizes: np.ndarray, container: Container) -> np.ndarray | None:
    """Return the offset of each record of a shard, and its end; None if records have no byte ranges.

    Args:
        sizes: int64 [n], size of each tf.Example in bytes.
    """
    in_file = container.sizes_in_file(sizes)
    return None if in_file is None else starts_of(in_file)


def byte_ranges(starts: np.ndarray | None, record: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the offset and the size in bytes of consecutive records of N images: int64 [N] each; NO_OFFSET and the
    number of records if they have no byte ranges.

    Args:
        starts: See `record_starts`.
        record: int64 [N], number of the first record.
        number: int64 [N], number of records.
    """
    if starts is None:
        return np.full_like(record, NO_OFFSET), number
    return starts[record], starts[record + number] - starts[record]


def moved_example(known: Example, file: str, record: int, offset: int, extent: int) -> Example:
    """Return an example whose records are in another file, see `byte_ranges`."""
    head = known.rank, known.key, file, record
    return Example(*head, records=extent) if offset == NO_OFFSET else Example(*head, offset, extent)


def misplaced_list(what: str, file: str) -> JobError:
    """Return the error that the line of a shard is missing in a list, or not in the order of the shards."""
    return JobError(f"the {what} of {file} are missing or out of order in their list. Run recordmill verify")


class MovedShard(NamedTuple):
    """A shard whose records are in another file now.

    Attributes:
        file, new_file: Names of both files.
        starts, new_starts: See `record_starts`.
        is_copied: bool [n], True for records that are in the other file; None for all.
        removed: Names of the images without a record in the other file.
    """

    file: str
    new_file: str
    starts: np.ndarray | None
    new_starts: np.ndarray | None
    is_copied: np.ndarray | None = None
    removed: Collection[str] = frozenset()

    def fingerprints(self, known: Fingerprints | None) -> Fingerprints:
        if known is None or known.shard != self.file:
            raise misplaced_list("fingerprints", self.file)
        rows = known.array.copy()
        if self.removed:
            names = msgspec.json.decode(known.names, type=list[str])
            is_left = np.array([name not in self.removed for name in names], bool)
            left = msgspec.Raw(msgspec.json.encode([name for name in names if name not in self.removed]))
            problems = tuple(problem for problem in known.problems if problem.file_name not in self.removed)
            known, rows = msgspec.structs.replace(known, names=left, problems=problems), rows[is_left]
        columns = (rows[name].astype(np.int64) for name in ("record", "offset", "bytes"))
        rows["record"], rows["offset"], rows["bytes"] = self._move(*columns)
        return msgspec.structs.replace(known, shard=self.new_file, rows=rows.astype(FINGERPRINT).tobytes())

    def images(self, known: ShardImages | None) -> ShardImages:
        if known is None or known.shard != self.file:
            raise misplaced_list("images", self.file)
        moved = msgspec.structs.replace(known, shard=self.new_file)
        return without_images(moved, self.removed) if self.removed else moved

    def example(self, known: Example) -> Example | None:
        """Return an example in the new file; None if its records are not there."""
        if self.is_copied is not None and not self.is_copied[known.record]:
            return None
        has_range = known.offset is not msgspec.UNSET and known.bytes is not msgspec.UNSET
        place = (known.record, known.offset, known.bytes) if has_range else (known.record, NO_OFFSET, known.records)
        moved = self._move(*(np.array([number]) for number in place))
        record, offset, extent = (int(column[0]) for column in moved)
        return moved_example(known, self.new_file, record, offset, extent)

    def _move(
        self, record: np.ndarray, offset: np.ndarray, extent: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the new number, offset and extent of consecutive records of N images: int64 [N] each.

        Args:
            record: Number of the first record.
            offset: Its offset in bytes; NO_OFFSET without byte ranges.
            extent: Size of the records in bytes; their number without byte ranges.
        """
        number = extent if self.starts is None else np.searchsorted(self.starts, offset + extent) - record
        if self.is_copied is not None:
            record = starts_of(self.is_copied)[record]
        return record, *byte_ranges(self.new_starts, record, number)


def without_images(images: ShardImages, removed: Collection[str]) -> ShardImages:
    """Return the images of a shard without some; of tiles, without those of some whole images."""
    rows, is_left = images.array, np.array([name not in removed for name in images.image_names()[1]], bool)
    starts = starts_of(rows["objects"].astype(np.int64))[:-1]
    ids = (
        images.ids[spans(starts[is_left], rows["objects"][is_left].astype(np.int64))]
        if images.object_ids
        else starts[:0]
    )
    return msgspec.structs.replace(
        images,
        names=_left_names(images.names, is_left),
        rows=rows[is_left].tobytes(),
        object_ids=pack_ids(ids),
        sources=msgspec.UNSET if images.sources is msgspec.UNSET else _left_names(images.sources, is_left),
    )


def _left_names(names: msgspec.Raw, is_left: np.ndarray) -> msgspec.Raw:
    left = [name for name, stays in zip(msgspec.json.decode(names), is_left.tolist(), strict=True) if stays]
    return msgspec.Raw(msgspec.json.encode(left))
