"""Move the fingerprints, images and examples of a split to the shards that `replan_split` plans."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import starts_of
from recordmill.schemas.image_records import ShardImages
from recordmill.schemas.problems import FINGERPRINT, FINGERPRINT_VERSION, Fingerprints, Problem
from recordmill.schemas.statistics import Example
from recordmill.transforms.containers.container import RecordFile
from recordmill.transforms.insight.list_problems import worst_problems
from recordmill.transforms.records.digest_record import RecordDigests
from recordmill.transforms.repack.repack_shards import read_range
from recordmill.transforms.repack.replan_split import Replan
from recordmill.transforms.shards.image_records import shard_images, sum_digests
from recordmill.transforms.shards.moved_shard import byte_ranges, misplaced_list, moved_example

_SOURCE_BITS = 32
"""A shard has fewer than 2 ** 32 records."""


class MovedRecords:
    """Positions of records in new shards.

    Args:
        starts: Offset of each record of each new shard, and its end; None if records have no byte ranges.
    """

    def __init__(self, replan: Replan, starts: Sequence[np.ndarray | None]):
        moves, self._starts = replan.moves, starts
        keys = (moves.source << _SOURCE_BITS) | moves.first
        order = np.argsort(keys)
        self._keys, self._targets = keys[order], moves.target[order]
        self._ends = moves.first[order] + moves.records[order]
        self._new = starts_of(moves.records)[:-1][order]
        self._borders = starts_of(replan.examples)
        self._image_ends = np.cumsum(replan.images.rows["records"].astype(np.int64))

    def locate(self, source: int, record: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return new shard, number there, and number of records of an image from it on: int64 [N] each.

        Args:
            source: Index of the old shard.
            record: int64 [N], number of the image's first record in it.
        """
        move = np.searchsorted(self._keys, (source << _SOURCE_BITS) | record, side="right") - 1
        place = self._new[move] + record - (self._keys[move] & ((1 << _SOURCE_BITS) - 1))
        ends = self._image_ends[np.searchsorted(self._image_ends, place, side="right")]
        return self._targets[move], place - self._borders[self._targets[move]], ends - place

    def extent(self, target: int, record: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return offset and size of records in a new shard, see `byte_ranges`."""
        return byte_ranges(self._starts[target], record, number)


class ReplannedShard(NamedTuple):
    """An old shard. `new_files` are the names of the new ones."""

    file: str
    source: int
    moved: MovedRecords
    new_files: Sequence[str]

    def example(self, known: Example) -> Example:
        """Return an example in its new shard."""
        located = self.moved.locate(self.source, np.array([known.record]))
        target, record = int(located[0][0]), int(located[1][0])
        offset, extent = (int(column[0]) for column in self.moved.extent(target, *located[1:]))
        return moved_example(known, self.new_files[target], record, offset, extent)


class _OldLines:
    """Lists of an old shard, sorted by new shard.

    Args:
        source: Index of the old shard.
        fingerprints: None if records have no images.
    """

    def __init__(self, source: int, fingerprints: Fingerprints | None, images: ShardImages, moved: MovedRecords):
        self.names: list[str] = msgspec.json.decode(images.names)
        self.sources: list[str] | None = (
            None if images.sources is msgspec.UNSET else msgspec.json.decode(images.sources)
        )
        if fingerprints is None:
            return
        self.version = fingerprints.version
        rows = fingerprints.array.copy()
        target, record, number = moved.locate(source, rows["record"].astype(np.int64))
        rows["record"], rows["bytes"] = record, number
        order = np.lexsort((record, target))
        self._rows, self._targets = rows[order], target[order]
        names: list[str] = msgspec.json.decode(fingerprints.names)
        self._fingerprint_names = [names[row] for row in order.tolist()]
        self._problems = fingerprints.problems
        self._target_of_name: dict[str, int] = {}
        if self._problems:  # perhaps of an image whose fingerprint is in another shard
            records = images.array["records"].astype(np.int64)
            targets = moved.locate(source, starts_of(records)[:-1][records > 0])[0].tolist()
            wholes = self.sources or self.names
            for row, target in zip(np.flatnonzero(records).tolist(), targets, strict=True):
                self._target_of_name.setdefault(wholes[row], target)

    def fingerprints(self, target: int) -> tuple[np.ndarray, list[str]]:
        """Return rows and names of the images of a new shard; `bytes` of a row is the number of records."""
        first, end = np.searchsorted(self._targets, (target, target + 1)).tolist()
        return self._rows[first:end], self._fingerprint_names[first:end]

    def problems(self, target: int) -> Iterator[Problem]:
        """Yield the problems of these images."""
        return (problem for problem in self._problems if self._target_of_name[problem.file_name] == target)


# Long list of arguments: lists of both kinds, where records went, and files of both kinds.
def moved_lists(
    replan: Replan,
    moved: MovedRecords,
    fingerprints: Iterator[Fingerprints] | None,
    images: Iterator[ShardImages],
    files: Sequence[str],
    new_files: Sequence[str],
) -> Iterator[tuple[Fingerprints | None, ShardImages]]:
    """Yield the fingerprints and the images of each new shard. Lists of an old shard are in memory from the first to
    the last new shard that has an image of it.

    Args:
        fingerprints, images: Of the old shards, in the order of `files`.
        files, new_files: Names of the old shards, and of the new ones.

    Raises:
        JobError: A list is not that of its shard.
    """
    new, moves = replan.images, replan.moves
    last = np.full(len(files), -1)
    for column in (new, moves):
        np.maximum.at(last, column.source, column.target)
    borders = np.searchsorted(new.target, np.arange(len(new_files) + 1))
    runs = np.searchsorted(moves.target, np.arange(len(new_files) + 1))
    objects = starts_of(new.rows["objects"])
    lines = _read_lines(files, fingerprints, images, moved)
    held: dict[int, _OldLines] = {}
    for target, file in enumerate(new_files):
        rows = slice(*borders[target : target + 2].tolist())
        sources = np.union1d(new.source[rows], moves.source[runs[target] : runs[target + 1]]).tolist()
        while sources and (missing := [source for source in sources if source not in held]):
            source, line = next(lines)
            if last[source] >= target:
                held[source] = line
            elif source in missing:
                raise misplaced_list("images", files[source])
        yield (
            None
            if fingerprints is None
            else _join_fingerprints(file, target, [held[source] for source in sources], moved),
            _join_images(file, replan, rows, new.objects[objects[rows.start] : objects[rows.stop]], held),
        )
        held = {source: line for source, line in held.items() if last[source] > target}


def _read_lines(
    files: Sequence[str],
    fingerprints: Iterator[Fingerprints] | None,
    images: Iterator[ShardImages],
    moved: MovedRecords,
) -> Iterator[tuple[int, _OldLines]]:
    for source, file in enumerate(files):
        own, known = next(images, None), None if fingerprints is None else next(fingerprints, None)
        for what, line in (("images", own), ("fingerprints", known)):
            if (line is None and (what == "images" or fingerprints is not None)) or (line and line.shard != file):
                raise misplaced_list(what, file)
        if own is not None:
            yield source, _OldLines(source, known, own, moved)


def _join_fingerprints(file: str, target: int, lines: Sequence[_OldLines], moved: MovedRecords) -> Fingerprints:
    parts = [line.fingerprints(target) for line in lines]
    rows = np.concatenate([np.zeros(0, FINGERPRINT), *(rows for rows, _ in parts)])
    order = np.argsort(rows["record"], kind="stable")
    rows, names = rows[order], [name for _, names in parts for name in names]
    columns = (rows[name].astype(np.int64) for name in ("record", "bytes"))
    rows["offset"], rows["bytes"] = moved.extent(target, *columns)
    return Fingerprints(
        file,
        msgspec.Raw(msgspec.json.encode([names[row] for row in order.tolist()])),
        rows.tobytes(),
        min((line.version for line in lines), default=FINGERPRINT_VERSION),
        worst_problems(problem for line in lines for problem in line.problems(target)),
    )


def _join_images(
    file: str, replan: Replan, rows: slice, objects: np.ndarray, lines: Mapping[int, _OldLines]
) -> ShardImages:
    new = replan.images
    places = list(zip(new.source[rows].tolist(), new.row[rows].tolist(), strict=True))
    names = [lines[source].names[row] for source, row in places]
    has_tiles = any(lines[source].sources is not None for source, _ in places)
    wholes = [(lines[source].sources or lines[source].names)[row] for source, row in places] if has_tiles else None
    return shard_images(file, names, new.rows[rows], objects, wholes)


def digest_cut_images(replan: Replan, target: int, table_digests: RecordDigests, file: RecordFile) -> None:
    """Set the digests of the images of a new shard that have further records in another one."""
    new = replan.images
    borders = np.searchsorted(new.target, (target, target + 1))
    rows = np.arange(*borders)
    records = new.rows["records"].astype(np.int64)
    starts = starts_of(records[rows])
    is_cut = new.is_cut[rows]
    new.rows["labels"][rows[is_cut]] = 0
    is_read = is_cut & (records[rows] > 0)
    for start, end in zip(starts[:-1][is_read].tolist(), starts[1:][is_read].tolist(), strict=True):
        for record in read_range(file, start, end):
            table_digests.add(record)
    if is_read.any():
        new.rows["labels"][rows[is_read]] = sum_digests(table_digests, records[rows[is_read]])[0]
