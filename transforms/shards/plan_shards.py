"""Every image gets its shard, without one big sort.

The order of a split is that of a stable hash of (seed, image id). Its 63-bit space is cut into RANGES; how many
images and bytes fall into each is summed first and handed to all workers, so that a range knows the ranks before it,
and only the images within a range are sorted: their keys and sizes, not what is known of them. What comes of it, the
first image of each shard, is handed to all workers, and each image finds its shard by its key. The same images, sizes
and seed give the same plan on every engine.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsDict, PCollection

from recordmill.schemas.images import ImageTask
from recordmill.schemas.shards import Amount, Measured, ShardKey, ShardSizing, TaskOrder
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.coders import pack, unpacker
from recordmill.transforms.shards.split_plan import (
    Census,
    RangeCensus,
    SplitPlan,
    Start,
    count_range,
    empty_shards,
    find_starts,
    first_starts,
    pieces_of,
    plan_split,
    split_task,
)
from recordmill.transforms.shards.task_order import RANGES, hash_range, task_order


class ShardPlans(NamedTuple):
    """What PlanShards gives.

    Attributes:
        placed: (ShardKey, ImageTask as `pack` makes it).
        empty: ShardKey of the shards that get no image.
        plans: (split, SplitPlan).
    """

    placed: PCollection
    empty: PCollection
    plans: PCollection


class PlanShards(beam.PTransform):
    """ImageTask become ShardPlans."""

    def __init__(self, sizing: ShardSizing, seed: int, estimate: RecordEstimate):
        super().__init__()
        self._sizing = sizing
        self._seed = seed
        self._estimate = estimate

    def expand(self, tasks: PCollection[ImageTask]):
        measured = tasks | "Measure" >> beam.Map(measure, self._seed, self._estimate).with_output_types(Measured)
        ranges = (
            measured
            | "KeyByRange" >> beam.Map(_by_range)
            | "CollectRanges" >> beam.CombinePerKey(CollectRanges())  # ((split, range), [(TaskOrder, Amount)] packed)
        )
        plans = (
            ranges
            | "CountRanges" >> beam.Map(_counted)  # (split, (range, RangeCensus))
            | "TakeCensus" >> beam.CombinePerKey(CensusFn())
            | "PlanSplits" >> beam.Map(_planned, self._sizing)  # (split, SplitPlan)
        )
        starts = (
            ranges
            | "FindStarts" >> beam.Map(_found, AsDict(plans))  # (split, [Start] packed)
            | "GroupStarts" >> beam.GroupByKey()
            | "CollectStarts" >> beam.MapTuple(_collected)  # (split, [Start])
        )
        placed = measured | "Place" >> beam.FlatMap(_placed, AsDict(starts), AsDict(plans)).with_output_types(
            tuple[ShardKey, bytes]
        )
        empty = plans | "EmptyShards" >> beam.FlatMap(_empty).with_output_types(ShardKey)
        return ShardPlans(placed, empty, plans)


def measure(task: ImageTask, seed: int, estimate: RecordEstimate) -> Measured:
    return Measured(task.split, task_order(seed, task), expected_amount(task, estimate), pack(task))


def expected_amount(task: ImageTask, estimate: RecordEstimate) -> Amount:
    return Amount(estimate.bytes(task), estimate.examples(task))


def _by_range(measured: Measured) -> tuple[tuple[str, int], bytes]:
    return (measured.split, hash_range(measured.order[0])), pack((measured.order, measured.amount))


class CollectRanges(beam.CombineFn):
    """What `pack` makes of each (TaskOrder, Amount) becomes what it makes of a list of them."""

    def create_accumulator(self) -> list[bytes]:
        return []

    def add_input(self, accumulator: list[bytes], packed: bytes) -> list[bytes]:
        accumulator.append(packed)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[bytes]]) -> list[bytes]:
        return list(chain.from_iterable(accumulators))

    def extract_output(self, accumulator: list[bytes]) -> bytes:
        return b"".join((_LIST_OF, len(accumulator).to_bytes(4, "big"), *accumulator))


_LIST_OF = b"\xdd"
"""How MessagePack begins a list, whose length, 32 bits, follows."""


def in_range(packed: bytes) -> list[tuple[TaskOrder, Amount]]:
    """What CollectRanges made of a range, in order."""
    return sorted(unpacker(list[tuple[TaskOrder, Amount]])(packed))


def _counted(of_range: tuple[tuple[str, int], bytes]) -> tuple[str, tuple[int, RangeCensus]]:
    (split, range_), packed = of_range
    return split, (range_, count_range(in_range(packed)))


def _planned(split_census: tuple[str, Census], sizing: ShardSizing) -> tuple[str, SplitPlan]:
    split, census = split_census
    plan = plan_split(census, sizing)
    progress.planned(plan.images, plan.shards)
    return split, plan


def _found(of_range: tuple[tuple[str, int], bytes], plans: dict[str, SplitPlan]) -> tuple[str, bytes]:
    (split, range_), packed = of_range
    return split, pack(list(find_starts(plans[split], range_, in_range(packed))))


def _collected(split: str, packed: Iterable[bytes]) -> tuple[str, list[Start]]:
    return split, list(first_starts(chain.from_iterable(map(unpacker(list[Start]), packed))))


def _placed(
    measured: Measured, starts: dict[str, list[Start]], plans: dict[str, SplitPlan]
) -> Iterator[tuple[ShardKey, bytes]]:
    split = measured.split
    return place(measured, starts[split], plans[split].shards)


def place(measured: Measured, starts: list[Start], shards: int) -> Iterator[tuple[ShardKey, bytes]]:
    """An image with the shard that it is in; or with each of several, where its annotations are shared out."""
    pieces = pieces_of(measured.order, starts, measured.amount)
    keys = [ShardKey(measured.split, piece.shard, shards) for piece in pieces]
    if len(pieces) == 1:
        yield keys[0], measured.task
        return
    parts = split_task(unpacker(ImageTask)(measured.task), [piece.examples for piece in pieces])
    yield from zip(keys, map(pack, parts), strict=True)


def _empty(split_plan: tuple[str, SplitPlan]) -> Iterator[ShardKey]:
    return empty_shards(*split_plan)


class CensusFn(beam.CombineFn):
    """(range, RangeCensus) become a Census."""

    def create_accumulator(self):
        return np.zeros((3, RANGES), np.int64), 0, None

    def add_input(self, accumulator, of_range: tuple[int, RangeCensus]):
        sums, largest, last = accumulator
        range_, census = of_range
        sums[:, range_] += census[:3]
        return sums, max(largest, census.largest), max(filter(None, (last, census.last)), default=None)

    def merge_accumulators(self, accumulators):
        sums, largest, last = self.create_accumulator()
        for other_sums, other_largest, other_last in accumulators:
            sums += other_sums
            largest = max(largest, other_largest)
            last = max(filter(None, (last, other_last)), default=None)
        return sums, largest, last

    def extract_output(self, accumulator):
        sums, largest, last = accumulator
        return Census(sums, largest, last)
