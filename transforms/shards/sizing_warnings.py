"""Shards that are not likely to be meant: empty ones, those of an image each, far too many."""

from collections.abc import Iterator

from recordmill.schemas.shards import ShardSizing
from recordmill.transforms.shards.split_plan import SplitPlan

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
