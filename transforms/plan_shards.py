"""Every image gets its shard, without one big sort.

The order of a split is that of a stable hash of (seed, image id). Its 63-bit space is cut into RANGES; how many
images and bytes fall into each is summed first and handed to all workers, so that a range knows the ranks before it,
and only the images within a range are sorted. The same images, sizes and seed give the same plan on every engine.

How a rank becomes a shard:

    num_shards N           rank * N // images: N shards whose counts differ by one at most, some empty where N > images
    examples_per_shard N   rank // N: N in each but the last
    shard_bytes B          (bytes before + half its own) // B: each is within an image of B, but the last, which holds
    the rest.
                           Where an image is larger than B, its size takes B's place, so that no shard is empty
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsDict, PCollection

from schemas.features import FeatureTable, Kind
from schemas.images import ImageTask
from schemas.shards import ShardKey, ShardSizing
from schemas.tfrecord import FRAME_BYTES
from transforms import (
    coders,  # noqa: F401  registers the coders of the elements
    progress,
)

RANGES = 4096
_HASH_BITS = 63  # Beam's integers are signed, 64 bits
_RANGE_SHIFT = _HASH_BITS - 12

Order = tuple[int, int]
"""(hash, image id): what images are sorted by."""


class Census(msgspec.Struct, frozen=True):
    """How much there is to write of one split.

    Attributes:
        images: how many, per range of the hash space.
        bytes: expected size of their records, framed, per range.
        largest: expected size of the largest record.
        last: order and expected size of the last image; None without images.
    """

    images: tuple[int, ...]
    bytes: tuple[int, ...]
    largest: int
    last: tuple[Order, int] | None


class SplitPlan(msgspec.Struct, frozen=True):
    """A split cut into shards.

    Attributes:
        sizing: as asked for, with `shard_bytes` raised to the largest record where that is larger.
        shards, images, bytes: totals; bytes are expected, before compression.
        images_before, bytes_before: what lies ahead of each range.
    """

    sizing: ShardSizing
    shards: int
    images: int
    bytes: int
    images_before: tuple[int, ...]
    bytes_before: tuple[int, ...]


class ShardPlans(NamedTuple):
    """What PlanShards gives.

    Attributes:
        placed: (ShardKey, ImageTask).
        empty: ShardKey of the shards that get no image.
        plans: (split, SplitPlan).
    """

    placed: PCollection
    empty: PCollection
    plans: PCollection


class PlanShards(beam.PTransform):
    """ImageTask become ShardPlans."""

    def __init__(self, sizing: ShardSizing, seed: int, table: FeatureTable):
        super().__init__()
        self._sizing = sizing
        self._seed = seed
        self._table = table

    def expand(self, tasks):
        plans = (
            tasks
            | "Measure" >> beam.Map(_measured, self._seed, self._table)  # (split, (Order, size))
            | "TakeCensus" >> beam.CombinePerKey(CensusFn())
            | "PlanSplits" >> beam.Map(_planned, self._sizing)  # (split, SplitPlan)
        )
        placed = (
            tasks
            | "KeyByRange" >> beam.Map(_by_range, self._seed).with_output_types(tuple[tuple[str, int], ImageTask])
            | "GroupByRange" >> beam.GroupByKey()  # ((split, range), [ImageTask])
            | "PlaceRange"
            >> beam.FlatMap(_placed, AsDict(plans), self._seed, self._table).with_output_types(
                tuple[ShardKey, ImageTask]
            )
        )
        empty = plans | "EmptyShards" >> beam.FlatMap(_empty).with_output_types(ShardKey)
        return ShardPlans(placed, empty, plans)


def _measured(task: ImageTask, seed: int, table: FeatureTable) -> tuple[str, tuple[Order, int]]:
    return task.split, (image_order(seed, task.image_id), expected_bytes(task, table))


def _planned(split_census: tuple[str, Census], sizing: ShardSizing) -> tuple[str, SplitPlan]:
    split, census = split_census
    plan = plan_split(census, sizing)
    progress.planned(plan.images, plan.bytes, plan.shards)
    return split, plan


def _by_range(task: ImageTask, seed: int) -> tuple[tuple[str, int], ImageTask]:
    return (task.split, hash_range(image_order(seed, task.image_id))), task


def _placed(
    group: tuple[tuple[str, int], Iterable[ImageTask]],
    plans: dict[str, SplitPlan],
    seed: int,
    table: FeatureTable,
) -> Iterator[tuple[ShardKey, ImageTask]]:
    (split, range_), tasks = group
    plan = plans[split]
    ordered = sorted(tasks, key=lambda task: image_order(seed, task.image_id))
    sizes = [expected_bytes(task, table) for task in ordered]
    for task, index in zip(ordered, place_range(plan, range_, sizes), strict=True):
        yield ShardKey(split, index, plan.shards), task


def _empty(split_plan: tuple[str, SplitPlan]) -> Iterator[ShardKey]:
    return empty_shards(*split_plan)


def image_order(seed: int, image_id: int) -> Order:
    """Where an image stands in its split's order: evenly spread, and the same everywhere.

    >>> image_order(0, 139)
    (4972096885692211845, 139)
    """
    digest = blake2b(f"{seed}/{image_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _HASH_BITS), image_id


def hash_range(order: Order) -> int:
    """The range, 0..RANGES-1, that an image falls into; ranges are in the order of images."""
    return order[0] >> _RANGE_SHIFT


# Mean bytes of a value: floats are four, ids and labels short varints, names as in COCO, each with its list's overhead.
_VALUE_BYTES = {Kind.FLOAT: 4, Kind.INT64: 2, Kind.BYTES: 9}
_SCALAR_BYTES = 80  # SHA-256, id and the other short texts


def expected_bytes(task: ImageTask, table: FeatureTable) -> int:
    """Size of the task's framed record, before its image has been read: right but for what varies in names and ids."""
    keys = sum(len(feature.name) + 12 for feature in table.features)
    of_object = sum(_VALUE_BYTES[feature.kind] for feature in table.features if feature.shape)
    fixed = keys + _SCALAR_BYTES + FRAME_BYTES + len(task.file_name)
    return task.ref.size_bytes + fixed + of_object * len(task.annotations)


class CensusFn(beam.CombineFn):
    """(Order, size) become a Census."""

    def create_accumulator(self):
        return np.zeros((2, RANGES), np.int64), 0, None

    def add_input(self, accumulator, measured):
        sums, largest, last = accumulator
        order, size = measured
        range_ = hash_range(order)
        sums[0, range_] += 1
        sums[1, range_] += size
        return sums, max(largest, size), max(last or measured, measured)

    def merge_accumulators(self, accumulators):
        sums, largest, last = self.create_accumulator()
        for other_sums, other_largest, other_last in accumulators:
            sums += other_sums
            largest = max(largest, other_largest)
            last = max(filter(None, (last, other_last)), default=None)
        return sums, largest, last

    def extract_output(self, accumulator):
        sums, largest, last = accumulator
        return Census(tuple(sums[0].tolist()), tuple(sums[1].tolist()), largest, last)


def plan_split(census: Census, sizing: ShardSizing) -> SplitPlan:
    """How many shards, and what lies ahead of each range."""
    images, total_bytes = sum(census.images), sum(census.bytes)
    if sizing.num_shards is not None:
        shards = sizing.num_shards
    elif sizing.examples_per_shard is not None:
        shards = -(-images // sizing.examples_per_shard)
    else:
        shard_bytes = max(sizing.shard_bytes or 1, census.largest, 1)
        sizing = ShardSizing(shard_bytes=shard_bytes)
        last_size = census.last[1] if census.last else 0
        shards = (total_bytes - last_size + last_size // 2) // shard_bytes + 1
    return SplitPlan(sizing, shards, images, total_bytes, _before(census.images), _before(census.bytes))


def _before(counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((np.cumsum(counts) - counts).tolist())


def place_range(plan: SplitPlan, range_: int, sizes: list[int]) -> Iterator[int]:
    """The shard index of each image of a range, whose expected sizes are given in order."""
    rank, bytes_before = plan.images_before[range_], plan.bytes_before[range_]
    for size in sizes:
        if plan.sizing.num_shards is not None:
            yield rank * plan.shards // plan.images
        elif plan.sizing.examples_per_shard is not None:
            yield rank // plan.sizing.examples_per_shard
        elif plan.sizing.shard_bytes is not None:
            yield (bytes_before + size // 2) // plan.sizing.shard_bytes
        rank += 1
        bytes_before += size


def empty_shards(split: str, plan: SplitPlan) -> Iterator[ShardKey]:
    """The shards that no image is placed in: there are some only where more were asked for than there are images."""
    if plan.images < plan.shards:
        used = {rank * plan.shards // plan.images for rank in range(plan.images)}
        yield from (ShardKey(split, index, plan.shards) for index in range(plan.shards) if index not in used)
