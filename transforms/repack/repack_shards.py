"""Read finished shards, and write their records to new shards."""

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from hashlib import sha256
from itertools import islice

import msgspec
import numpy as np

from recordmill.schemas.dataset.checks import Fault
from recordmill.schemas.errors import FaultyDatasetError, IndexMismatchError, RecordError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.containers.container import Contents, RecordFile, container_of
from recordmill.transforms.containers.read_shards import ManifestShard, readable_records
from recordmill.transforms.repack.replan_split import Replan
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import pack, repacked_versions
from recordmill.transforms.runtime.processes import ListedShardDoFn
from recordmill.transforms.shards.shard_file import FinishedShards, ShardFile, shard_folders
from recordmill.transforms.storage.resolve import join_path

_READ_BYTES = 32 << 20
"""Maximum size of the records of all old shards that wait for their place in a new shard."""


class RecordRange(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive records of a finished shard: the first one, and their number."""

    info: ShardInfo
    first: int
    records: int

    @property
    def is_shard(self) -> bool:
        """True if it is the whole shard."""
        return not self.first and self.records == self.info.examples


class ShardToRepack(msgspec.Struct, frozen=True):
    """A new shard, and the records of finished shards that it gets; a ShardTarget.

    Attributes:
        folder: Folder of the finished shards.
        source_container: Their container.
        table, labels: Their contents, and those of the new shard.
        sources: Their records.
        order: Index in `sources` and number of the records that come next, as int32 pairs compressed by zlib; empty if
            the sources come one after the other.
        key: Key of the new shard.
        made_by: Versions that made the finished shards, see SplitManifest.
        output, name, layout, gzip, container: Of the new shard, see `recordmill.transforms.shards.shard_file`.
    """

    folder: str
    source_container: str
    table: FeatureTable
    labels: LabelMap
    sources: tuple[RecordRange, ...]
    order: bytes
    key: ShardKey
    made_by: dict[str, str]
    output: str
    name: str
    layout: str
    gzip: bool
    container: str

    @property
    def examples(self) -> int:
        """Number of records."""
        return sum(source.records for source in self.sources)

    @property
    def plan(self) -> str:
        """Hex digest of what the bytes of the new shard follow from, besides versions."""
        ranges = [(source.info.sha256, source.first, source.records) for source in self.sources]
        contents = self.table, self.labels, self.layout, self.gzip, self.container
        return sha256(pack((self.key, ranges, self.order, *contents))).hexdigest()

    def turns(self) -> Iterator[tuple[int, int]]:
        """Yield index in `sources` and number of the records that come next."""
        if not self.order:
            yield from ((index, source.records) for index, source in enumerate(self.sources))
            return
        pairs = np.frombuffer(zlib.decompress(self.order), np.int32)
        yield from zip(pairs[::2].tolist(), pairs[1::2].tolist(), strict=True)


def record_ranges(shards: Sequence[ShardInfo], plan: Replan, target: int) -> tuple[tuple[RecordRange, ...], bytes]:
    """Return `sources` and `order` of a new shard, see ShardToRepack.

    Args:
        shards: Old shards, in the order of their numbers.
    """
    runs = slice(*np.searchsorted(plan.moves.target, (target, target + 1)).tolist())
    source, first, records, _ = (column[runs] for column in plan.moves)
    ends = first + records
    # Runs of one old shard are one range, unless records between them have no place in the new shards.
    order = np.lexsort((first, source))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(source[order]) > 0) | (first[order][1:] != ends[order][:-1])
    numbers = np.empty(len(order), np.int32)
    numbers[order] = np.cumsum(is_new) - 1
    starts = order[is_new]
    lengths = np.bincount(numbers, records, len(starts)).astype(np.int64)
    columns = zip(source[starts].tolist(), first[starts].tolist(), lengths.tolist(), strict=True)
    sources = tuple(RecordRange(shards[index], *span) for index, *span in columns)
    if len(order) == len(sources) and (np.diff(numbers) > 0).all():
        return sources, b""
    return sources, zlib.compress(np.stack([numbers, records.astype(np.int32)], axis=1).tobytes())


class RepackShard(ListedShardDoFn):
    """Convert each ShardToRepack to its key and the SHA-256 of its note, see `repack_shard`."""

    def process(self, shard: ShardToRepack) -> Iterator[tuple[ShardKey, str]]:
        folders = shard_folders(shard, shard.key.split)
        yield from self.do(repack_shard, shard, shards=self._shards, folders=folders)


def repack_shard(shard: ShardToRepack, pool: Executor, threads: int) -> tuple[ShardKey, str]:
    """Write a shard, unless an earlier run has finished it. Its note has the sizes of its records.

    Raises:
        FaultyDatasetError: A finished shard is damaged, or is not that of the manifest.
        ConfigError: The container cannot store a record.
        OSError: A file cannot be read or written.
    """
    notes = FinishedShards(shard.output, shard.name, shard.layout, shard.container)
    made_by = repacked_versions(shard.made_by, shard.source_container, shard.container, shard.layout, shard.gzip)
    if earlier := notes.find(shard.key, shard.plan, made_by):
        progress.count_skipped_images(shard.examples)
        progress.count_finished_shard()
        return shard.key, earlier[0].note
    written, record_sizes = _write_records(shard)
    counts = Statistics(written.info.examples)
    result = ShardResult(shard.key, shard.plan, made_by, written.info, {}, (), counts, record_sizes=record_sizes)
    return shard.key, notes.note(result).note


def _write_records(shard: ShardToRepack) -> tuple[ShardFile, bytes]:
    damage = list[Fault]()
    with ShardFile(shard, shard.key, Contents(shard.table, shard.labels)) as file:
        if len(shard.sources) == 1 and shard.sources[0].is_shard:
            whole = _manifest_shard(shard, shard.sources[0])
            records = readable_records(whole, whole.reader(), damage)
        else:
            records = _merged_records(shard, damage)
        for record in records:
            file.append(record)
        if damage:
            raise FaultyDatasetError(
                f"{join_path(shard.folder, '')}{damage[0]}. Nothing was committed. recordmill "
                "verify lists all damage, and the command of the data set writes the shard again"
            )
    return file, file.lengths(0).tobytes()


def _manifest_shard(shard: ShardToRepack, source: RecordRange) -> ManifestShard:
    path, contents = join_path(shard.folder, source.info.file), (shard.table, shard.labels)
    return ManifestShard(path, shard.key.split, source.info, *contents, shard.source_container)


def _merged_records(shard: ShardToRepack, damage: list[Fault]) -> Iterator[bytes]:
    """Yield records of several shards up to the first damaged one. Errors of a file are appended to `damage`."""
    at_once = _READ_BYTES // max(1, len(shard.sources))
    ranges = [_records_of(shard, source, at_once) for source in shard.sources]
    file = ""
    try:
        for index, number in shard.turns():
            file = shard.sources[index].info.file
            for record in islice(ranges[index], number):
                progress.count_read_record(len(record))
                yield record
    except (RecordError, IndexMismatchError) as error:
        path = join_path(shard.folder, file)
        damage.append(Fault(file, None, "unreadable", str(error).removeprefix(f"{path}: ")))
    progress.count_finished_shard()


def _records_of(shard: ShardToRepack, source: RecordRange, at_once: int) -> Iterator[bytes]:
    contents = Contents(shard.table, shard.labels)
    file = container_of(shard.source_container).open(join_path(shard.folder, source.info.file), contents, source.info)
    file.check()
    yield from read_range(file, source.first, source.first + source.records, at_once)


def read_range(file: RecordFile, first: int, end: int, at_once: int = _READ_BYTES) -> Iterator[bytes]:
    """Yield consecutive records of a file. At most `at_once` bytes are read ahead, and at least one record."""
    if file.path.endswith(".gz"):  # no random access
        yield from islice(file.in_order(), first, end)
        return
    number = max(1, int(at_once // max(1.0, file.mean_bytes)))
    for start in range(first, end, number):
        yield from file.read(range(start, min(start + number, end)))
