"""Each shard is written as a whole by one worker, see `recordmill.transforms.shards.shard_writer`.

This is the only step that reads image bytes, and it passes them on to nothing but the file.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.runtime.processes import ShardDoFn
from recordmill.transforms.shards.record_maker import RecordContext
from recordmill.transforms.shards.shard_file import ShardRecipe, WrittenShard, folders_of
from recordmill.transforms.shards.shard_writer import write_shard


@dataclass(eq=False, repr=False)
class WriteShards(beam.PTransform):
    """Convert (ShardKey, packed Block) to WrittenShard. An empty shard has empty bytes.

    Args:
        checked: a PCollection of one element, before which no picture is read.
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        threads: that fetch and check images; None for as many as there are cores where a shard is written.
    """

    checked: PCollection
    labels: PCollection
    table: PCollection
    recipe: ShardRecipe
    threads: int | None

    @property
    def sides(self) -> tuple[AsSingleton, ...]:
        """What each shard needs besides its Blocks."""
        return AsSingleton(self.labels), AsSingleton(self.table), AsSingleton(self.checked)

    def expand(self, placed: PCollection[tuple[ShardKey, bytes]]):
        write = beam.ParDo(_WriteShard(self.recipe, self.threads), *self.sides)
        grouped = placed | "GroupByShard" >> beam.GroupByKey()  # (ShardKey, [packed Block])
        return grouped | "Write" >> write.with_output_types(WrittenShard)


class _WriteShard(ShardDoFn):
    """Holds the threads that fetch and check images."""

    def __init__(self, recipe: ShardRecipe, threads: int | None):
        super().__init__(threads)
        self._recipe = recipe

    def process(
        self, group: tuple[ShardKey, Iterable[bytes]], labels: LabelMap, table: FeatureTable, _: object
    ) -> Iterator[WrittenShard]:
        key, packed = group
        folders = folders_of(self._recipe, key.split)
        yield from self.do(_write, self._recipe, labels, table, key, list(packed), shards=key.count, folders=folders)


def _write(
    recipe: ShardRecipe,
    labels: LabelMap,
    table: FeatureTable,
    key: ShardKey,
    packed: list[bytes],
    pool: Executor,
    threads: int,
) -> WrittenShard:
    return write_shard(key, packed, recipe, RecordContext(labels, table, pool, threads, recipe.output))
