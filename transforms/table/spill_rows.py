"""Sorted files of records in the state folder of a split, between the order of rows and the order of shards.

A table's rows must be mixed, and memory may not hold all of them. So encoded records are sorted in pieces of bounded
size, each written as one file, and the writer of a shard reads a range of every file. Workers exchange only the places
of these files. `CopyRows` makes the records of a shard from them.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsList, PCollection

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.dataset.dataset_files import RECIPE, state_folder
from recordmill.schemas.errors import EndedElsewhereError
from recordmill.schemas.inputs.tables import RowsFile, RowsReading
from recordmill.schemas.rejects import Metric
from recordmill.schemas.shards import ShardKey, ShardSizing
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.record_maker import EncodeBlock, EncodedRun, RecordContext
from recordmill.transforms.records.tfrecord import framed_size
from recordmill.transforms.shards.plan_blocks import SplitPlan, plan_split, report_plans, shard_ranks
from recordmill.transforms.storage.resolve import join_path, storage_for
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.read_records import read_records
from recordmill.transforms.table.table_options import TableOptions

RANGES = 4096
_HASH_BITS = 63
_RANGE_SHIFT = _HASH_BITS - 12


class Spill(msgspec.Struct, frozen=True):
    """File of records, sorted by order.

    Attributes:
        source: File of rows that the records were made from.
        name: Name of the file in the state folder of the split.
        digest: Hash of the records and their orders.
        rows_before, bytes_before: int64 [RANGES + 1], as bytes: rows, and bytes of records, before each range of
            orders; the last ones are those of the file.
        largest: Bytes of the largest record.
    """

    split: str
    source: str
    name: str
    digest: str
    rows_before: bytes
    bytes_before: bytes
    largest: int

    @property
    def bytes(self) -> int:
        return int(np.frombuffer(self.bytes_before, np.int64)[-1])

    def piece(self, first: int, end: int) -> "SpillPiece":
        """Return the records of ranges `first` up to `end`."""
        rows, data = (np.frombuffer(before, np.int64) for before in (self.rows_before, self.bytes_before))
        start = int(rows[-1]) * _INDEX.itemsize + int(data[first])
        return SpillPiece(int(rows[first]), int(rows[end] - rows[first]), start, int(data[end] - data[first]))


class SpillPiece(NamedTuple):
    """Consecutive records in a Spill: index of the first one, number, offset and bytes."""

    first: int
    rows: int
    offset: int
    bytes: int


def spill_path(output: str, split: str, name: str) -> str:
    return join_path(output, f"{state_folder(split)}/{name}")


def sort_records(records: pa.Table) -> pa.Table:
    """Sort records by order, and by their bytes if orders are equal, so that the input's order does not matter.

    Args:
        records: `order`, uint64; `line`, int64, see RowBatch; and `record`, large_binary.
    """
    return records.sort_by([("order", "ascending"), ("record", "ascending")]).combine_chunks()


def record_orders(seed: int, identities: list[bytes]) -> np.ndarray:
    """Return the sort key of each record in its split, 0 .. 2**63 - 1: a hash, evenly distributed and the same on every
    machine.

    >>> record_orders(0, [b"139"]).tolist()
    [4972096885692211845]
    """
    start = hashlib.blake2b(f"{seed}/".encode(), digest_size=8)
    digests = []
    for identity in identities:
        digest = start.copy()
        digest.update(identity)
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64) >> np.uint64(64 - _HASH_BITS)


def write_spill(output: str, split: str, source: str, name: str, records: pa.Table) -> Spill:
    """Write sorted `records` of the file `source` as the file `name`; nothing if `output` is empty."""
    data = records["record"].chunk(0)
    index = np.zeros(len(data), _INDEX)
    index["order"], index["line"] = records["order"].to_numpy(), records["line"].to_numpy()
    index["length"] = pc.binary_length(data).to_numpy()
    borders = np.arange(RANGES, dtype=np.uint64) << np.uint64(_RANGE_SHIFT)
    rows_before = np.append(np.searchsorted(index["order"], borders), len(index)).astype(np.int64)
    bytes_before = np.concatenate([[0], np.cumsum(index["length"], dtype=np.int64)])[rows_before]
    parts = index.tobytes(), _value_bytes(data)
    if output:
        with storage_for(output).writing(spill_path(output, split, name)) as upload:
            for part in parts:
                upload.write(part)
    digest = hashlib.sha256(parts[0])
    digest.update(parts[1])
    before = rows_before.tobytes(), bytes_before.tobytes()
    return Spill(split, source, name, digest.hexdigest(), *before, int(index["length"].max()))


_INDEX = np.dtype([("order", "<u8"), ("line", "<i8"), ("length", "<u4")])


def read_index(path: str, piece: SpillPiece) -> np.ndarray:
    """Return `order`, `line` and `length` of a Spill's records.

    Raises:
        EndedElsewhereError: Another run of the job is done, and has deleted the file.
        OSError: The file was cut short.
    """
    return np.frombuffer(_read_bytes(path, piece.first * _INDEX.itemsize, piece.rows * _INDEX.itemsize), _INDEX)


def rows_before(spills: Iterable[Spill]) -> np.ndarray:
    """Return the number of rows of all `spills` before each range: int64 [RANGES + 1]."""
    return sum((np.frombuffer(spill.rows_before, np.int64) for spill in spills), np.zeros(RANGES + 1, np.int64))


def _read_bytes(path: str, start: int, size: int) -> bytes:
    if not size:
        return b""
    try:
        data = storage_for(path).read_range(path, start, size)
    except FileNotFoundError as error:
        _delete_unowned(os.path.dirname(path))
        raise EndedElsewhereError(
            f"{path} is gone, with rows that are not written yet: another run of this job is done and has deleted it. "
            "Run again: finished shards are kept"
        ) from error
    if len(data) != size:
        raise OSError(f"{path} was cut short")
    return data


def _delete_unowned(folder: str) -> None:
    """Delete a state folder that another run has deleted, and that this run has written to since. A folder with a
    recipe belongs to a third run."""
    storage = storage_for(folder)
    if storage.size(join_path(folder, RECIPE)) is None:
        storage.delete_folder(folder)


def read_piece(path: str, piece: Sequence[int]) -> pa.Table:
    """Return records of the Spill `path`, see `sort_records`; `piece` has the fields of SpillPiece.

    Raises:
        EndedElsewhereError: Another run of the job is done, and has deleted the file.
        OSError: The file was cut short.
    """
    records = SpillPiece(*piece)
    index = read_index(path, records)
    offsets = np.concatenate([[0], np.cumsum(index["length"], dtype=np.int64)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_read_bytes(path, records.offset, records.bytes))]
    values = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(index), buffers)
    return pa.table({"order": index["order"], "line": index["line"], "record": values})


def _value_bytes(array: pa.LargeBinaryArray) -> bytes:
    """Return the bytes of all values."""
    _, buffer, data = array.buffers()
    offsets = np.frombuffer(buffer, np.int64, len(array) + 1, array.offset * 8)
    return data.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()


_READS = 16
"""Maximum number of files to read at the same time."""
_RUN_ROWS = 1 << 14


class CopyRows(msgspec.Struct, frozen=True, tag=True):
    """RecordMaker for the Blocks of PlanRows."""

    def start(self, context: RecordContext) -> EncodeBlock:
        return lambda block, split: _copy_records(block, split, context.output)


def _copy_records(block: Block, split: str, output: str) -> Iterator[EncodedRun]:
    if not len(block):
        return
    records = read_shard(block, split, output)
    for start in range(0, len(records), _RUN_ROWS):
        run = records[start : start + _RUN_ROWS].to_pylist()
        number = len(run)
        rows = ((record,) for record in run)
        yield EncodedRun(rows, None, np.ones(number, np.int64), Counter({Metric.IMAGES: number}), [], {}, number, 0, [])


def read_shard(block: Block, split: str, output: str) -> pa.LargeBinaryArray:
    """Return the shard's records in order.

    Raises:
        EndedElsewhereError, OSError: See `read_piece`.
    """
    paths = [spill_path(output, split, name) for name in block.file_name.texts()]
    with ThreadPoolExecutor(_READS) as pool:
        parts = list(pool.map(read_piece, paths, block.rows.tolist()))
    first, end = block.ranks[0].tolist()
    return sort_records(pa.concat_tables(parts))["record"].chunk(0).slice(first, end - first)


_SPILL_BYTES = 64_000_000
"""Bytes of records that a worker holds in memory."""


# Long list of arguments: see `recordmill.transforms.table.read_records`.
def spill_file(
    file: RowsFile,
    facts: FactsBuilder,
    chosen: ChosenSchema,
    options: TableOptions,
    splits: tuple[str, ...],
    reading: RowsReading,
) -> Iterator[Spill]:
    """Yield a file's Spills."""
    pending: dict[str, list[pa.Table]] = {split: [] for split in splits}
    size = number = 0
    for made in read_records(file, facts, chosen, options, splits, reading):
        orders = record_orders(options.seed, made.identities)
        records = pa.table({"order": orders, "line": made.lines, "record": made.records})
        for index, parts in enumerate(pending.values()):
            parts.append(records.filter(pa.array(made.split == index)) if len(pending) > 1 else records)
        size += made.records.nbytes
        if size >= _SPILL_BYTES:
            yield from _write_pending(pending, file, number, options.written_folder)
            size, number = 0, number + 1
    yield from _write_pending(pending, file, number, options.written_folder)


def _write_pending(pending: dict[str, list[pa.Table]], file: RowsFile, number: int, output: str) -> Iterator[Spill]:
    for split, parts in pending.items():
        if any(map(len, parts)):
            records = sort_records(pa.concat_tables(parts))
            yield write_spill(output, split, file.path, f"rows-{file.number:05d}-{number:05d}", records)
        parts.clear()


class PlanRows(beam.PTransform):
    """Convert Spill to (ShardKey, packed Block), see `CopyRows`."""

    def __init__(self, splits: tuple[str, ...], sizing: ShardSizing):
        super().__init__()
        self._splits, self._sizing = splits, sizing

    def expand(self, spills: PCollection[Spill]):
        once = spills.pipeline | "OncePlanned" >> beam.Impulse()
        plan = WithFacts(_place_spills, self._sizing, AsList(spills), self._splits, types=tuple[ShardKey, bytes])
        return once | "PlanSplits" >> plan


def _place_spills(
    _: bytes, facts: FactsBuilder, sizing: ShardSizing, spills: list[Spill], splits: Sequence[str]
) -> Iterator[tuple[ShardKey, bytes]]:
    plans = {}
    for split in splits:
        split_spills = sorted((spill for spill in spills if spill.split == split), key=attrgetter("name"))
        plans[split] = plan = plan_rows(split_spills, sizing)
        for index in range(plan.shards):
            yield ShardKey(split, index, plan.shards), pack_block(shard_block(plan, index, split_spills))
    report_plans(plans, sizing, facts, "row")


def plan_rows(spills: Sequence[Spill], sizing: ShardSizing) -> SplitPlan:
    """Plan a split. `before` of the plan counts by range of the hash."""
    rows = np.diff(rows_before(spills))
    sums = np.stack([rows, rows * framed_size(0), rows])
    sums[1, 0] += sum(spill.bytes for spill in spills)  # the range does not matter: ranks decide the shard
    largest = framed_size(max((spill.largest for spill in spills), default=0))
    return plan_split(sizing, sums, largest, are_rows=True)


def shard_block(plan: SplitPlan, index: int, spills: Sequence[Spill]) -> Block:
    """Return the pieces of sorted files that have a shard's rows; empty if the shard has no rows."""
    first, end = shard_ranks(plan, index)
    before = np.frombuffer(plan.before, np.int64)[: len(plan.before) // 24]
    first_range = int(np.searchsorted(before, first, "right")) - 1
    end_range = int(np.searchsorted(before, end, "left"))
    pieces = [(spill, spill.piece(first_range, end_range)) for spill in spills] if first < end else []
    used = [(spill, piece) for spill, piece in pieces if piece.rows]
    return Block(
        image_id=np.arange(len(used)),
        file_name=ragged_texts([spill.name for spill, _ in used]),
        file_version=ragged_texts([spill.digest for spill, _ in used]),
        rows=np.array([piece for _, piece in used], np.int64).reshape(-1, 4),
        ranks=np.tile(np.array([first, end]) - before[first_range], (len(used), 1)),
    )
