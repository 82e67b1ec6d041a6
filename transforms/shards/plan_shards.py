"""Every image gets its shard, without one big sort.

The order of a split is that of a stable hash of (seed, image id). Its 63-bit space is cut into RANGES; how many
images and bytes fall into each is summed first and handed to all workers, so that a range knows the ranks before it,
and only the images within a range are sorted: their keys and sizes, not what is known of them. What comes of it, the
first image of each shard, is handed to all workers, and each image finds its shard by its key. The same images, sizes
and seed give the same plan on every engine.

How a rank becomes a shard:

    num_shards N           rank * N // images: N shards whose counts differ by one at most, some empty where N > images
    examples_per_shard N   examples before // N: N in each but the last. Where an image is several examples (one an
                           object), those of one image may be in two shards; it is read for each
    shard_bytes B          (bytes before + half its own) // B: each is within an image of B, but the last, which holds
                           the rest. Where an image is larger than B, its size takes B's place, so no shard is empty
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsDict, PCollection

from recordmill.schemas.images import ImageTask
from recordmill.schemas.shards import Amount, Measured, ShardKey, ShardSizing, TaskOrder
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.coders import pack, unpacker

RANGES = 4096
_HASH_BITS = 63  # Beam's integers are signed, 64 bits
_RANGE_SHIFT = _HASH_BITS - 12

Order = tuple[int, int]
"""(hash, image id): what images are sorted by."""


class RangeCensus(NamedTuple):
    """As Census, of one range."""

    images: int
    bytes: int
    examples: int
    largest: int
    last: tuple[Order, int] | None


class Census(NamedTuple):
    """How much there is to write of one split.

    Attributes:
        sums: int64 [3, RANGES]: images, expected bytes of their records, framed, and how many records they give.
        largest: expected size of the records of the image that has the largest.
        last: order and expected size of the last image that gives an example; None where there is none.
    """

    sums: np.ndarray
    largest: int
    last: tuple[Order, int] | None


_Packed = bytes  # as SplitPlan.bytes is a number


class SplitPlan(msgspec.Struct, frozen=True):
    """A split cut into shards.

    Attributes:
        sizing: as asked for, with `shard_bytes` raised to the largest image's records where those are larger.
        shards, images, bytes, examples: totals; bytes are expected, before compression.
        before: int64 [3, RANGES], as bytes: images, bytes and examples that lie ahead of each range; empty where images
            are not placed by it. Beam measures side inputs, object by object.
    """

    sizing: ShardSizing
    shards: int
    images: int
    bytes: int
    examples: int
    before: _Packed = b""


class Piece(NamedTuple):
    """How many examples of an image go into which shard."""

    shard: int
    examples: int


class Start(NamedTuple):
    """Where the images from `order` on go, up to the next Start: into the shard of the only piece. Of an image that is
    in several shards there are several pieces, and the next image has a Start, too."""

    order: TaskOrder
    pieces: tuple[Piece, ...]


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


def count_range(images: list[tuple[TaskOrder, Amount]]) -> RangeCensus:
    """What is in a range, whose images are given in order."""
    sizes, examples = zip(*(amount for _, amount in images), strict=True)
    last = next(((order[0], amount.bytes) for order, amount in reversed(images) if amount.examples), None)
    return RangeCensus(len(images), sum(sizes), sum(examples), max(sizes), last)


def _planned(split_census: tuple[str, Census], sizing: ShardSizing) -> tuple[str, SplitPlan]:
    split, census = split_census
    plan = plan_split(census, sizing)
    progress.planned(plan.images, plan.shards)
    return split, plan


def _found(of_range: tuple[tuple[str, int], bytes], plans: dict[str, SplitPlan]) -> tuple[str, bytes]:
    (split, range_), packed = of_range
    return split, pack(list(find_starts(plans[split], range_, in_range(packed))))


def find_starts(plan: SplitPlan, range_: int, images: list[tuple[TaskOrder, Amount]]) -> Iterator[Start]:
    """Where shards begin within a range, whose images are given in order, and which images are in several."""
    before = None
    for (order, _), pieces in zip(images, place_range(plan, range_, [amount for _, amount in images]), strict=True):
        if len(pieces) > 1 or pieces[0].shard != before:
            yield Start(order, tuple(pieces))
        before = pieces[0].shard  # of several, the last is another


def _collected(split: str, packed: Iterable[bytes]) -> tuple[str, list[Start]]:
    return split, list(first_starts(chain.from_iterable(map(unpacker(list[Start]), packed))))


def first_starts(starts: Iterable[Start]) -> Iterator[Start]:
    """Those of all ranges, in order, without those at which a range begins, but no shard."""
    before = None
    for start in sorted(starts):
        if len(start.pieces) > 1 or start.pieces[0].shard != before:
            yield start
        before = start.pieces[0].shard  # of several, the last is another


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


def pieces_of(order: TaskOrder, starts: list[Start], amount: Amount) -> tuple[Piece, ...]:
    """Where an image of `amount` goes."""
    pieces = starts[bisect_right(starts, order, key=_order_of) - 1].pieces
    return pieces if len(pieces) > 1 else (Piece(pieces[0].shard, amount.examples),)


def _order_of(start: Start) -> TaskOrder:
    return start.order


def _empty(split_plan: tuple[str, SplitPlan]) -> Iterator[ShardKey]:
    return empty_shards(*split_plan)


def image_order(seed: int, image_id: int) -> Order:
    """The sort key of an image in its split: a hash, evenly distributed and the same on every machine, and its id.

    >>> image_order(0, 139)
    (4972096885692211845, 139)
    """
    digest = blake2b(f"{seed}/{image_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - _HASH_BITS), image_id


def task_order(seed: int, task: ImageTask) -> TaskOrder:
    """The sort key of a task in its split; of rows that are known by one key, their content's order."""
    row = task.labels.row
    more = (row.record, task.file_name, row.place) if row else (b"", "", "")
    return image_order(seed, task.image_id), *more


def hash_range(order: Order) -> int:
    """The range, 0..RANGES-1, that an image falls into; ranges are in the order of images."""
    return order[0] >> _RANGE_SHIFT


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


def plan_split(census: Census, sizing: ShardSizing) -> SplitPlan:
    """How many shards, and what lies ahead of each range."""
    images, total_bytes, examples = census.sums.sum(axis=1).tolist()
    if sizing.num_shards is not None:
        shards = sizing.num_shards
    elif sizing.examples_per_shard is not None:
        shards = max(1, -(-examples // sizing.examples_per_shard))
    else:
        last_bytes = census.last[1] if census.last else 0
        shard_bytes = max(sizing.shard_bytes or 1, census.largest, 1)
        sizing = ShardSizing(shard_bytes=shard_bytes)
        shards = (total_bytes - last_bytes + last_bytes // 2) // shard_bytes + 1
    before = np.cumsum(census.sums, axis=1) - census.sums
    return SplitPlan(sizing, shards, images, total_bytes, examples, before.tobytes())


def place_range(plan: SplitPlan, range_: int, amounts: list[Amount]) -> Iterator[list[Piece]]:
    """Where each image of a range goes, whose expected amounts are given in order: one shard, or neighbouring ones."""
    before = np.frombuffer(plan.before, np.int64).reshape(3, RANGES)
    rank, bytes_before, examples_before = before[:, range_].tolist()
    for size, examples in amounts:
        if plan.sizing.num_shards is not None:
            yield [Piece(rank * plan.shards // plan.images, examples)]
        elif plan.sizing.examples_per_shard is not None:
            yield _filled(examples_before, examples, plan.sizing.examples_per_shard, plan.shards)
        elif plan.sizing.shard_bytes is not None:
            yield [Piece(min((bytes_before + size // 2) // plan.sizing.shard_bytes, plan.shards - 1), examples)]
        rank += 1
        bytes_before += size
        examples_before += examples


def _filled(before: int, examples: int, per_shard: int, shards: int) -> list[Piece]:
    """Shards are filled one after the other.

    >>> _filled(before=6, examples=3, per_shard=4, shards=3)
    [Piece(shard=1, examples=2), Piece(shard=2, examples=1)]
    """
    pieces = []
    while examples:
        shard, taken = before // per_shard, before % per_shard
        piece = min(examples, per_shard - taken)
        pieces.append(Piece(shard, piece))
        before, examples = before + piece, examples - piece
    return pieces or [Piece(min(before // per_shard, shards - 1), 0)]


def split_task(task: ImageTask, examples: list[int]) -> Iterator[ImageTask]:
    """The task in pieces of so many annotations each; itself, if there is only one."""
    if len(examples) == 1:
        yield task
        return
    start = 0
    for number in examples:
        annotations = task.annotations[start : start + number]
        yield msgspec.structs.replace(task, annotations=annotations, is_continuation=start > 0)
        start += number


def empty_shards(split: str, plan: SplitPlan) -> Iterator[ShardKey]:
    """The shards that no image is placed in: there are some only where more were asked for than there are images."""
    if plan.sizing.num_shards is not None and plan.images < plan.shards:
        used = {rank * plan.shards // plan.images for rank in range(plan.images)}
        yield from (ShardKey(split, index, plan.shards) for index in range(plan.shards) if index not in used)
