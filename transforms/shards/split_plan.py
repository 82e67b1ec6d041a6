"""A split cut into shards: how many, and which images each gets, by arithmetic on what lies ahead of them.

How a rank becomes a shard:

    num_shards N           rank * N // images: N shards whose counts differ by one at most, some empty where N > images
    examples_per_shard N   examples before // N: N in each but the last. Where an image is several examples (one an
                           object), those of one image may be in two shards; it is read for each
    shard_bytes B          (bytes before + half its own) // B: each is within an image of B, but the last, which holds
                           the rest. Where an image is larger than B, its size takes B's place, so no shard is empty
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.images import ImageTask
from recordmill.schemas.shards import Amount, ShardKey, ShardSizing, TaskOrder
from recordmill.transforms.shards.task_order import Order


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


def count_range(images: list[tuple[TaskOrder, Amount]]) -> RangeCensus:
    """What is in a range, whose images are given in order."""
    sizes, examples = zip(*(amount for _, amount in images), strict=True)
    last = next(((order[0], amount.bytes) for order, amount in reversed(images) if amount.examples), None)
    return RangeCensus(len(images), sum(sizes), sum(examples), max(sizes), last)


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
    before = np.frombuffer(plan.before, np.int64).reshape(3, -1)
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


def find_starts(plan: SplitPlan, range_: int, images: list[tuple[TaskOrder, Amount]]) -> Iterator[Start]:
    """Where shards begin within a range, whose images are given in order, and which images are in several."""
    before = None
    for (order, _), pieces in zip(images, place_range(plan, range_, [amount for _, amount in images]), strict=True):
        if len(pieces) > 1 or pieces[0].shard != before:
            yield Start(order, tuple(pieces))
        before = pieces[0].shard  # of several, the last is another


def first_starts(starts: Iterable[Start]) -> Iterator[Start]:
    """Those of all ranges, in order, without those at which a range begins, but no shard."""
    before = None
    for start in sorted(starts):
        if len(start.pieces) > 1 or start.pieces[0].shard != before:
            yield start
        before = start.pieces[0].shard  # of several, the last is another


def pieces_of(order: TaskOrder, starts: list[Start], amount: Amount) -> tuple[Piece, ...]:
    """Where an image of `amount` goes."""
    pieces = starts[bisect_right(starts, order, key=_order_of) - 1].pieces
    return pieces if len(pieces) > 1 else (Piece(pieces[0].shard, amount.examples),)


def _order_of(start: Start) -> TaskOrder:
    return start.order


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
