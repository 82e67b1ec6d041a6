"""ImageTasks become Blocks."""

from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection

from recordmill.schemas.images import ImageTask
from recordmill.transforms.blocks.image_tasks import block_of_tasks
from recordmill.transforms.blocks.order_images import hash_images, image_order, ranges_of
from recordmill.transforms.runtime.coders import pack, unpacker
from recordmill.transforms.shards.plan_blocks import BlockKey, cut_range

_RANGE_BITS = 6


class GroupTasks(beam.PTransform):
    """Convert ImageTask to (BlockKey, packed Block) of whole Blocks."""

    def __init__(self, splits: Sequence[str], seed: int):
        super().__init__()
        self._splits = tuple(splits)
        self._seed = seed

    def expand(self, tasks: PCollection[ImageTask]):
        return (
            tasks
            | "KeyByRange" >> beam.Map(_by_range, self._seed).with_output_types(tuple[int, bytes])
            | "GroupByRange" >> beam.GroupByKey()  # (range, [packed ImageTask])
            | "JoinTasks" >> beam.FlatMap(_join, self._splits, self._seed).with_output_types(tuple[BlockKey, bytes])
        )


def _by_range(task: ImageTask, seed: int) -> tuple[int, bytes]:
    hashes = hash_images(np.array([task.image_id], np.int64), seed)
    return int(ranges_of(hashes, _RANGE_BITS)[0]), pack(task)


def _join(group: tuple[int, Iterable[bytes]], splits: Sequence[str], seed: int) -> Iterator[tuple[BlockKey, bytes]]:
    number, packed = group
    block = block_of_tasks(list(map(unpacker(ImageTask), packed)), splits)
    order = image_order(block, hash_images(block.image_id, seed))
    return cut_range(number, block.take(order))
