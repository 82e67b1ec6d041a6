"""Write records of rows to sorted files, see `recordmill.transforms.table.spill_file`."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.inputs.tables import RowsFile
from recordmill.schemas.shards import ShardKey, ShardSizing
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.dataset.facts import FACTS, tagged
from recordmill.transforms.records.tfrecord import framed
from recordmill.transforms.shards.plan_blocks import (
    ShardPlans,
    SplitPlan,
    plan_split,
    report_plans,
    shard_ranks,
)
from recordmill.transforms.table.choose_schema import ChosenSchema
from recordmill.transforms.table.make_records import RowsRecipe
from recordmill.transforms.table.read_records import RowReader
from recordmill.transforms.table.spill_file import Spill, record_orders, rows_before, sort_records, write_spill

_SPILL_BYTES = 64_000_000
"""Bytes of records that a worker holds."""


class SpillRows(beam.PTransform):
    """Convert RowsFile to Spill; Facts are in the output FACTS.

    Args:
        chosen: a PCollection of one ChosenSchema.
    """

    def __init__(self, chosen: PCollection, recipe: RowsRecipe):
        super().__init__()
        self._chosen = chosen
        self._recipe = recipe

    def expand(self, files: PCollection[RowsFile]):
        spill = beam.FlatMap(_spill, AsSingleton(self._chosen), self._recipe)
        return files | "SpreadFiles" >> beam.Reshuffle() | "Spill" >> spill.with_outputs(FACTS, main="spills")


def _spill(file: RowsFile, chosen: ChosenSchema, recipe: RowsRecipe) -> Iterator[Any]:
    reader = RowReader(file, chosen, recipe)
    pending: list[list[pa.Table]] = [[] for _ in recipe.splits.names]
    size = number = 0
    for made in reader:
        good, split = made.good, made.split
        orders = record_orders(recipe.seed, good.identities)
        records = pa.table({"order": orders, "line": good.lines, "record": good.records})
        for index, parts in enumerate(pending):
            parts.append(records.filter(pa.array(split == index)) if len(pending) > 1 else records)
        size += good.records.nbytes
        if size >= _SPILL_BYTES:
            yield from _spills(pending, file, number, recipe)
            size, number = 0, number + 1
    yield from _spills(pending, file, number, recipe)
    yield tagged(reader.facts)


def _spills(pending: list[list[pa.Table]], file: RowsFile, number: int, recipe: RowsRecipe) -> Iterator[Spill]:
    for split, parts in zip(recipe.splits.names, pending, strict=True):
        if any(map(len, parts)):
            records = sort_records(pa.concat_tables(parts))
            yield write_spill(recipe.output, split, file.path, f"rows-{file.number:05d}-{number:05d}", records)
        parts.clear()


class PlanRows(beam.PTransform):
    """Convert Spill to ShardPlans, for `recordmill.transforms.table.spill_file`."""

    def __init__(self, splits: Sequence[str], sizing: ShardSizing):
        super().__init__()
        self._splits = tuple(splits)
        self._sizing = sizing

    def expand(self, spills: PCollection[Spill]):
        once = spills.pipeline | "OncePlanned" >> beam.Impulse()
        plan = beam.FlatMap(_plan_splits, self._sizing, AsList(spills), self._splits).with_output_types(
            tuple[ShardKey, bytes]
        )
        planned = once | "PlanSplits" >> plan.with_outputs(FACTS, main="placed")
        return ShardPlans(planned.placed, planned[FACTS])


def _plan_splits(_: bytes, sizing: ShardSizing, spills: list[Spill], splits: Sequence[str]) -> Iterator[Any]:
    plans = {}
    for split in splits:
        of_split = sorted((spill for spill in spills if spill.split == split), key=attrgetter("name"))
        plans[split] = plan = plan_rows(of_split, sizing)
        for index in range(plan.shards):
            yield ShardKey(split, index, plan.shards), pack_block(shard_block(plan, index, of_split))
    yield report_plans(plans, sizing, "row")


def plan_rows(spills: Sequence[Spill], sizing: ShardSizing) -> SplitPlan:
    """Plan a split; `before` of the plan is by range of the hash."""
    rows = np.diff(rows_before(spills))
    sums = np.stack([rows, rows * framed(0), rows])
    sums[1, 0] += sum(spill.bytes for spill in spills)  # in which range does not matter: places are by ranks
    largest = framed(max((spill.largest for spill in spills), default=0))
    return plan_split(sizing, sums, largest, are_rows=True)


def shard_block(plan: SplitPlan, index: int, spills: Sequence[Spill]) -> Block:
    """Return the pieces of sorted files with a shard's rows; empty if it has none."""
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
