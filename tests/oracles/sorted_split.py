"""The plan of a split, found with all images in one place, one image at a time."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.shards import ShardSizing
from tests.oracles.task_order import image_order


class Amount(NamedTuple):
    """Share of an image in its shard: expected size of its records with frames, and number of records."""

    bytes: int
    examples: int


class Piece(NamedTuple):
    """How many examples of an image go into which shard."""

    shard: int
    examples: int


Placed = dict[int, list[Piece]]
"""By image id."""


def in_order(amounts: dict[int, Amount], seed: int) -> list[int]:
    return sorted(amounts, key=lambda id_: image_order(seed, id_))


def placed_by_sorting(amounts: dict[int, Amount], sizing: ShardSizing, seed: int) -> Placed:
    """Place of each image, found by sorting all images."""
    placed: Placed = {}
    bytes_before, examples_before, highest = 0, 0, 0
    shard_bytes = max(sizing.shard_bytes or 0, 1, *(amount.bytes for amount in amounts.values()))
    for rank, id_ in enumerate(in_order(amounts, seed)):
        size, examples = amounts[id_]
        if sizing.num_shards is not None:
            placed[id_] = [Piece(rank * sizing.num_shards // len(amounts), examples)]
        elif sizing.examples_per_shard is not None:
            one_by_one = [
                number // sizing.examples_per_shard for number in range(examples_before, examples_before + examples)
            ]
            counts = Counter(one_by_one) or {examples_before // sizing.examples_per_shard: 0}
            placed[id_] = [Piece(shard, counts[shard]) for shard in sorted(counts)]
        else:
            placed[id_] = [Piece((bytes_before + size // 2) // shard_bytes, examples)]
        highest = max([highest, *(piece.shard for piece in placed[id_] if examples)])
        bytes_before += size
        examples_before += examples
    if sizing.num_shards is None:  # what comes after the last example opens no shard
        placed = {id_: [Piece(min(shard, highest), count) for shard, count in placed[id_]] for id_ in placed}
    return placed


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
