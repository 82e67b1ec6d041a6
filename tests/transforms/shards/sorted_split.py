"""The plan of a split, found with all images in one place; and the tasks that tests plan."""

from collections import Counter

import msgspec
from hypothesis import strategies as st

from recordmill.schemas.annotations import Annotation, ImageLabels, TableRow
from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.shards import Amount, ShardSizing
from recordmill.transforms.shards.split_plan import Piece
from recordmill.transforms.shards.task_order import image_order

IDS = st.integers(-(1 << 63), (1 << 63) - 1)
SEED = 3
PLAIN = DETECTION.with_parts(())

SIZINGS = [
    ShardSizing(num_shards=1),
    ShardSizing(num_shards=7),
    ShardSizing(num_shards=1000),
    ShardSizing(examples_per_shard=1),
    ShardSizing(examples_per_shard=7),
    ShardSizing(shard_bytes=1),
    ShardSizing(shard_bytes=2_000),
    ShardSizing(shard_bytes=10**9),
]


def task(id_: int, size: int, split: str = "train", objects: int = 0) -> ImageTask:
    annotations = tuple(Annotation(number, 1, (0.0, 0.0, 1.0, 1.0), 1.0, False) for number in range(objects))
    return ImageTask(id_, f"{id_}.jpg", 40, 30, ImageRef(f"images/{id_}.jpg", size), split, annotations)


def row(id_: int, record: bytes, name: str, place: str) -> ImageTask:
    labels = ImageLabels(row=TableRow(record, 1, place))
    return msgspec.structs.replace(task(id_, 9), file_name=name, labels=labels)


def in_order(amounts: dict[int, Amount]) -> list[int]:
    return sorted(amounts, key=lambda id_: image_order(SEED, id_))


Placed = dict[int, list[Piece]]


def placed_by_sorting(amounts: dict[int, Amount], sizing: ShardSizing) -> Placed:
    """Where each image goes, found with all images in one place."""
    placed: Placed = {}
    bytes_before, examples_before, highest = 0, 0, 0
    shard_bytes = max(sizing.shard_bytes or 0, 1, *(amount.bytes for amount in amounts.values()))
    for rank, id_ in enumerate(in_order(amounts)):
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
