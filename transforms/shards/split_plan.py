"""A split cut into shards: their number, and what lies before each Block, from which each image finds its shard. Rows
of a table are counted as images of one example.

How a rank becomes a shard:

    num_shards N           rank * N // images: N shards whose counts differ by one at most, some empty where N > images
    examples_per_shard N   examples before // N: N in each but the last. Where an image is several examples (one an
                           object), those of one image may be in two shards; it is read for each
    shard_bytes B          (bytes before + half its own) // B: each is within an image of B, but the last, which holds
                           the rest. Where an image is larger than B, its size takes B's place, so no shard is empty.
                           Rows, whose sizes differ little: as num_shards, with the N that meets B in the mean
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.shards import ShardKey, ShardSizing


class Census(NamedTuple):
    """How much there is to write of one split.

    Attributes:
        sums: int64 [3, B]: images of each Block, expected bytes of their records, framed, and number of records.
        largest: expected size of the records of the image that has the largest.
        last: order and expected size of the last image that gives an example; None where there is none.
        are_rows: of a table.
    """

    sums: np.ndarray
    largest: int
    last: tuple[tuple[int, int], int] | None = None
    are_rows: bool = False


_Packed = bytes  # as SplitPlan.bytes is a number


class SplitPlan(msgspec.Struct, frozen=True):
    """A split cut into shards.

    Attributes:
        sizing: as asked for, with `shard_bytes` raised to the largest image's records where those are larger.
        shards, images, bytes, examples: totals; bytes are expected, before compression.
        before: int64 [3, B], as bytes: images, bytes and examples that lie before each Block; empty if images are not
            placed by it. Beam measures side inputs, object by object.
    """

    sizing: ShardSizing
    shards: int
    images: int
    bytes: int
    examples: int
    before: _Packed = b""


def plan_split(census: Census, sizing: ShardSizing) -> SplitPlan:
    """Return the number of shards, and what lies before each Block."""
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
        if census.are_rows:
            shards = max(1, min(images, round(total_bytes / shard_bytes)))
    before = np.cumsum(census.sums, axis=1) - census.sums
    return SplitPlan(sizing, shards, images, total_bytes, examples, before.tobytes())


def shard_ranks(plan: SplitPlan, index: int) -> tuple[int, int]:
    """Return the rank of the first row of a shard of a table, and the end.

    >>> [shard_ranks(SplitPlan(ShardSizing(num_shards=3), 3, 10, 0, 10), index) for index in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    """
    if plan.sizing.examples_per_shard is not None:
        first, end = (min(plan.images, (index + more) * plan.sizing.examples_per_shard) for more in (0, 1))
    else:  # the borders of rank * shards // images
        first, end = (-(-(index + more) * plan.images // plan.shards) for more in (0, 1))
    return first, end


def empty_shards(split: str, plan: SplitPlan) -> Iterator[ShardKey]:
    """The shards that no image is placed in: there are some only where more were asked for than there are images."""
    if plan.sizing.num_shards is not None and plan.images < plan.shards:
        used = {rank * plan.shards // plan.images for rank in range(plan.images)}
        yield from (ShardKey(split, index, plan.shards) for index in range(plan.shards) if index not in used)


_FEW_IMAGES = 2
_SOME_SHARDS = 10
_MANY_SHARDS = 10_000
_A_PICTURE = 10_000
"""Bytes; who asks for smaller shards has most likely left out a unit."""


def sizing_warnings(split: str, plan: SplitPlan, asked: ShardSizing, what: str = "image") -> Iterator[str]:
    """What is odd about a plan, a sentence each with its numbers and a cure; `what` is `image`, or `row` of a table."""
    gives = f"{_flag(asked)} gives split {split} {plan.shards:,} shards for {plan.images:,} {what}s"
    empty = plan.shards - plan.images
    if empty > 0 and asked.num_shards is not None:
        yield f"{gives}: {empty:,} of them are empty; give fewer"
    elif what == "image" and plan.shards > 1 and (asked.shard_bytes or _A_PICTURE) < _A_PICTURE:
        yield f"{gives}, as no picture is so small; did you mean {asked.shard_bytes}MB?"
    elif plan.shards >= _SOME_SHARDS and plan.images < _FEW_IMAGES * plan.shards:
        yield f"{gives}, about one in each; {_cure(asked)}"
    elif plan.shards > _MANY_SHARDS:
        yield f"{gives}, and so many files are slow to open and to list; {_cure(asked)}"


def _flag(asked: ShardSizing) -> str:
    if asked.num_shards is not None:
        return f"--num-shards {asked.num_shards:,}"
    if asked.examples_per_shard is not None:
        return f"--examples-per-shard {asked.examples_per_shard:,}"
    return f"--shard-size of {asked.shard_bytes:,} bytes"


def _cure(asked: ShardSizing) -> str:
    return "give fewer" if asked.num_shards is not None else "give more"
