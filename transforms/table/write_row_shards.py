"""Sorted files of records become shards: a shard is a range of ranks in the order of its split."""

import hashlib
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial

import apache_beam as beam
import google_crc32c
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.recipes import Recipe
from recordmill.schemas.rejects import Metric
from recordmill.schemas.shards import ShardKey, ShardResult, ShardSizing
from recordmill.schemas.statistics import Statistics
from recordmill.schemas.tfrecord import FRAME_BYTES, head, masked
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.made_by import made_by
from recordmill.transforms.shards.shard_file import FinishedShards, ShardFile, ShardPlace, WrittenShard
from recordmill.transforms.shards.split_plan import SplitPlan
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.spill_file import Records, Spill, read_spill, rows_before

_LOGGER = logging.getLogger(__name__)

_READS = 16
"""Files that are read at once."""
_PIECE_ROWS = 1 << 14
_head = lru_cache(1 << 14)(head)


class RowShard(msgspec.Struct, frozen=True):
    """A shard to write: the rows of rank `first` up to `end`; those of rank `before` on are in ranges from
    `first_range` up to `end_range`."""

    key: ShardKey
    first: int
    end: int
    before: int
    first_range: int
    end_range: int


@dataclass(eq=False, repr=False)
class WriteRowShards(beam.PTransform):
    """(split, SplitPlan) become WrittenShard.

    Args:
        spills: PCollection of Spill.
        checked: a PCollection of one element, before which nothing is written.
        chosen: one ChosenSchema.
        recipes: of the splits.
    """

    spills: PCollection
    checked: PCollection
    chosen: PCollection
    recipes: Sequence[Recipe]
    output: str

    def expand(self, plans: PCollection[tuple[str, SplitPlan]]):
        spills, recipes = AsList(self.spills), {recipe.split: recipe for recipe in self.recipes}
        return (
            plans
            | "RowShards" >> beam.FlatMap(_shards, spills).with_output_types(RowShard)
            | "SpreadShards" >> beam.Reshuffle()
            | "WriteShard"
            >> beam.Map(
                _write, self.output, recipes, spills, AsSingleton(self.chosen), AsSingleton(self.checked)
            ).with_output_types(WrittenShard)
        )


def _shards(of_split: tuple[str, SplitPlan], spills: list[Spill]) -> Iterable[RowShard]:
    split, plan = of_split
    return row_shards(split, plan, [spill for spill in spills if spill.split == split])


def plan_rows(spills: Iterable[Spill], sizing: ShardSizing) -> SplitPlan:
    """A split cut into shards. Sizes are exact, as the records are made already; a size in bytes is met in the mean, as
    shards get equal numbers of rows."""
    spills = list(spills)
    rows = int(rows_before(spills)[-1])
    size = sum(spill.bytes for spill in spills) + rows * FRAME_BYTES
    if sizing.num_shards is not None:
        shards = sizing.num_shards
    elif sizing.examples_per_shard is not None:
        shards = max(1, -(-rows // sizing.examples_per_shard))
    else:
        largest = max((spill.largest for spill in spills), default=0) + FRAME_BYTES
        sizing = ShardSizing(shard_bytes=max(sizing.shard_bytes or 1, largest))
        shards = max(1, min(rows, round(size / (sizing.shard_bytes or 1))))
    return SplitPlan(sizing, shards, rows, size, rows)


def row_shards(split: str, plan: SplitPlan, spills: Iterable[Spill]) -> Iterable[RowShard]:
    """The shards of a split, the empty ones too."""
    before = rows_before(spills)
    rows = plan.images
    for index in range(plan.shards):
        if plan.sizing.examples_per_shard is not None:
            first, end = (min(rows, (index + more) * plan.sizing.examples_per_shard) for more in (0, 1))
        else:  # the borders of rank * shards // rows
            first, end = (-(-(index + more) * rows // plan.shards) for more in (0, 1))
        key = ShardKey(split, index, plan.shards)
        if first == end:
            yield RowShard(key, 0, 0, 0, 0, 0)
            continue
        first_range = int(np.searchsorted(before, first, "right")) - 1
        end_range = int(np.searchsorted(before, end, "left"))
        yield RowShard(key, first, end, int(before[first_range]), first_range, end_range)


def _write(
    shard: RowShard, output: str, recipes: dict[str, Recipe], spills: list[Spill], chosen: ChosenSchema, _: object
) -> WrittenShard:
    recipe = recipes[shard.key.split]
    place = ShardPlace(output, recipe.name, recipe.layout, bool(recipe.options["gzip"]))
    finished = FinishedShards(place)
    plan = _digest(shard, recipe, chosen)
    if found := finished.find(shard.key, plan):
        written, result = found
        _LOGGER.info("%s is there already, with %d examples", result.info.file, result.info.examples)
        progress.skipped_images(result.info.examples)
    else:
        own = [spill for spill in spills if spill.split == shard.key.split]
        written = finished.note(write_row_shard(shard, place, own, plan))
    progress.finished_shard()
    return written


def _digest(shard: RowShard, recipe: Recipe, chosen: ChosenSchema) -> str:
    """What is to be written, as a hex digest. The recipe holds the checksums of all files of rows."""
    encoders = [encoder.info for encoder in chosen.encoders]
    parts = (shard.key, shard.first, shard.end, recipe, chosen.schema, chosen.labels, encoders)
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()


def write_row_shard(shard: RowShard, place: ShardPlace, spills: Sequence[Spill], plan: str) -> ShardResult:
    """
    Raises:
        EndedElsewhereError: see `read_spill`.
        OSError: a file of records was cut short; the shard cannot be written.
    """
    size = 0
    with ShardFile(place, shard.key) as file:
        if shard.end > shard.first:
            records = read_shard(shard, spills)
            for start in range(0, len(records), _PIECE_ROWS):
                piece = records.slice(start, _PIECE_ROWS)
                lengths = pc.binary_length(piece).to_numpy() + FRAME_BYTES
                file.append_framed(framed(piece), lengths.tolist())
                size += int(lengths.sum()) - len(piece) * FRAME_BYTES
                progress.wrote_rows(len(piece))
    counted = {Metric.RECORD_BYTES: size, Metric.IMAGES: file.examples}
    statistics = Statistics(file.examples)
    return ShardResult(shard.key, plan, made_by(place.layout), file.info, counted, (), statistics)


def read_shard(shard: RowShard, spills: Sequence[Spill]) -> pa.LargeBinaryArray:
    """The shard's records in their order."""
    with ThreadPoolExecutor(_READS) as pool:
        read = partial(read_spill, first=shard.first_range, end=shard.end_range)
        parts = list(pool.map(read, spills))
    return Records.joined(parts).sorted().records.slice(shard.first - shard.before, shard.end - shard.first)


def framed(records: pa.LargeBinaryArray) -> bytes:
    """Records as they stand in a TFRecord file, one after the other: the bytes of `recordmill.schemas.tfrecord.frame`
    around each."""
    crcs = np.fromiter((google_crc32c.value(record) for record in records.to_pylist()), np.uint32, len(records))
    ends = pa.py_buffer(masked(crcs.astype(np.uint64)).astype("<u4").tobytes())
    tails = pa.FixedSizeBinaryArray.from_buffers(pa.binary(4), len(records), [None, ends])
    heads = pa.array([_head(length) for length in pc.binary_length(records).to_pylist()], pa.large_binary())
    whole = pc.binary_join_element_wise(
        heads, records, tails.cast(pa.large_binary()), pa.scalar(b"", pa.large_binary())
    )
    return whole.buffers()[2].to_pybytes()
