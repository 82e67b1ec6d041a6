"""Each shard is written as a whole by one worker, see `recordmill.transforms.shards.shard_writer`.

This is the only step that reads image bytes, and it passes them on to nothing but the file.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn
from recordmill.transforms.shards.shard_file import ShardRecipe, WrittenShard
from recordmill.transforms.shards.shard_processes import forked
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


class _WriteShard(ThreadedDoFn):
    """Holds the threads that fetch and check images. Where the process has forked others for it, and there is more than
    one shard, these write them."""

    def __init__(self, recipe: ShardRecipe, threads: int | None):
        super().__init__(threads)
        self._recipe = recipe

    def start_bundle(self):
        self._written: deque[Future[WrittenShard]] = deque()

    def process(
        self, group: tuple[ShardKey, Iterable[bytes]], labels: LabelMap, table: FeatureTable, _: object
    ) -> Iterator[WrittenShard]:
        key, packed = group
        processes = forked()
        if processes is None or key.count == 1:
            of = RecordContext(labels, table, self.pool, self.threads, self._recipe.output)
            yield write_shard(key, packed, self._recipe, of)
            return
        self._written.append(processes.finish(self._recipe, labels, table, self._given_threads, key, list(packed)))
        if len(self._written) > 2 * processes.number:  # the runner holds what is to come, in less memory
            yield self._written.popleft().result()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        while self._written:
            yield GlobalWindows.windowed_value(self._written.popleft().result())
