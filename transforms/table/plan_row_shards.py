"""Rows get their shards: a shard is a range of ranks in the order of its split."""

from collections.abc import Iterable

import msgspec
import numpy as np

from recordmill.schemas.shards import ShardKey, ShardSizing
from recordmill.schemas.tfrecord import FRAME_BYTES
from recordmill.transforms.shards.split_plan import SplitPlan
from recordmill.transforms.table.spill_file import RANGES, Spill


class RowShard(msgspec.Struct, frozen=True):
    """A shard to write: the rows of rank `first` up to `end`; those of rank `before` on are in ranges from
    `first_range` up to `end_range`."""

    key: ShardKey
    first: int
    end: int
    before: int
    first_range: int
    end_range: int


def rows_before(spills: Iterable[Spill]) -> np.ndarray:
    """int64 [RANGES + 1]: how many rows of all `spills` lie ahead of each range."""
    return sum((np.frombuffer(spill.rows_before, np.int64) for spill in spills), np.zeros(RANGES + 1, np.int64))


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
