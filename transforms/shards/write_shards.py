"""Each shard is written as a whole by one worker, see `recordmill.transforms.shards.shard_writer`.

This is the only step that reads image bytes, and it passes them on to nothing but the file.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas.duplicates import Fingerprints
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.rejects.bounded_rejects import count_rejects
from recordmill.transforms.runtime.outputs import Written
from recordmill.transforms.runtime.threads import ThreadedDoFn
from recordmill.transforms.shards.record_maker import RecordContext
from recordmill.transforms.shards.shard_file import ShardRecipe
from recordmill.transforms.shards.shard_processes import forked
from recordmill.transforms.shards.shard_writer import ShardWriter


class WriteShards(beam.PTransform):
    """Convert (ShardKey, packed Block) to Written. An empty shard has empty bytes.

    Args:
        checked: a PCollection of one element, before which no picture is read.
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        threads: that fetch and check images; None for as many as there are cores where a shard is written.
    """

    def __init__(
        self, checked: PCollection, labels: PCollection, table: PCollection, recipe: ShardRecipe, threads: int | None
    ):
        super().__init__()
        self._checked = checked
        self._labels = labels
        self._table = table
        self._recipe = recipe
        self._threads = threads

    def expand(self, placed: PCollection[tuple[ShardKey, bytes]]):
        sides = AsSingleton(self._labels), AsSingleton(self._table), AsSingleton(self._checked)
        write = _WriteShard(self._recipe, self._threads)
        grouped = placed | "GroupByShard" >> beam.GroupByKey()  # (ShardKey, [packed Block])
        results = grouped | "Write" >> beam.ParDo(write, *sides)
        return written_of(results)


def written_of(results: PCollection[ShardResult]) -> Written:
    """Shards, Facts and fingerprints of ShardResults."""
    return Written(
        results | "Shards" >> beam.Map(shard_of),
        results | "Facts" >> beam.Map(facts_of),
        results | "Fingerprints" >> beam.FlatMap(_fingerprints).with_output_types(Any),
    )


def shard_of(result: ShardResult) -> tuple[str, ShardInfo]:
    return result.key.split, result.info


def facts_of(result: ShardResult) -> Facts:
    split = result.key.split
    return Facts(
        counts={(split, metric.value): number for metric, number in result.counted.items()},
        rejects=count_rejects((split, reject) for reject in result.rejected),
        classes={(split, index): number for index, number in result.class_counts.items()},
        statistics={split: result.statistics},
    )


def _fingerprints(result: ShardResult) -> list[tuple[str, Fingerprints]]:
    return [(result.key.split, result.fingerprints)] if result.fingerprints else []


class _WriteShard(ThreadedDoFn):
    """Holds the threads that fetch and check images. Where the process has forked others for it, and there is more than
    one shard, these write them."""

    def __init__(self, recipe: ShardRecipe, threads: int | None):
        super().__init__(threads)
        self._recipe = recipe

    def start_bundle(self):
        self._written: deque[Future[ShardResult]] = deque()

    def process(
        self, group: tuple[ShardKey, Iterable[bytes]], labels: LabelMap, table: FeatureTable, _: object
    ) -> Iterator[ShardResult]:
        key, packed = group
        processes = forked()
        if processes is None or key.count == 1:
            yield ShardWriter(self._recipe, RecordContext(labels, table, self.pool, self.threads)).finish(key, packed)
            return
        self._written.append(processes.finish(self._recipe, labels, table, self._given_threads, key, list(packed)))
        if len(self._written) > 2 * processes.number:  # the runner holds what is to come, in less memory
            yield self._written.popleft().result()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        while self._written:
            yield GlobalWindows.windowed_value(self._written.popleft().result())
