"""Write shards, each by one worker: `recordmill.transforms.shards.shard_writer`.

No other step reads image bytes, and they go to the shard only."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.rejects import Metric
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult, key_of
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.dataset.facts import FACTS
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.records.record_file import ShardReader
from recordmill.transforms.records.shard_index import index_of
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import made_by
from recordmill.transforms.runtime.processes import ShardDoFn
from recordmill.transforms.shards.shard_file import (
    FinishedShards,
    ShardRecipe,
    WrittenShard,
    folders_of,
    write_index,
    written_shard,
)
from recordmill.transforms.shards.shard_writer import ordered_block, write_shard
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)


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
        """Side inputs of a shard."""
        return AsSingleton(self.labels), AsSingleton(self.table), AsSingleton(self.checked)

    def expand(self, placed: PCollection[tuple[ShardKey, bytes]]):
        write = beam.ParDo(_WriteShard(self.recipe, self.threads), *self.sides)
        grouped = placed | "GroupByShard" >> beam.GroupByKey()  # (ShardKey, [packed Block])
        return grouped | "Write" >> write.with_output_types(WrittenShard)


class _WriteShard(ShardDoFn):
    """DoFn with the threads that read and check images."""

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


class _MakeRecords(_WriteShard):
    """Convert (ShardKey, [packed Block]) to (split, record) and, tagged FACTS, a WrittenShard for each run."""

    def process(
        self, group: tuple[ShardKey, Iterable[bytes]], labels: LabelMap, table: FeatureTable, _: object
    ) -> Iterator[Any]:
        key, recipe = group[0], self._recipe
        block = ordered_block(group[1], recipe.seed)
        encode = recipe.maker.start(RecordContext(labels, table, self.pool, self.threads, recipe.output))
        for run in encode(block.having(split=np.zeros(len(block), np.int64)), key.split):
            for reject in run.rejected:
                progress.rejected(reject)
            lengths = []
            for record in map(b"".join, run.records):
                lengths.append(len(record))
                yield key.split, record
            counted = dict(+run.counted) | {Metric.RECORD_BYTES: sum(lengths)}
            rest = counted, tuple(run.rejected), Statistics(), run.class_counts
            result = ShardResult(key, "", {}, ShardInfo("", 0, 0, "", ""), *rest)
            yield TaggedOutput(FACTS, written_shard("", result))


@dataclass(eq=False, repr=False)
class WriteWithBeam(WriteShards):
    """Convert as WriteShards does, with Beam's sink, which writes to the state folders of the splits."""

    splits: Sequence[str]
    num_shards: int | None  # of each split; None if the runner chooses

    def expand(self, placed: PCollection[tuple[ShardKey, bytes]]):
        _LOGGER.warning(
            "--writer beam: a job that is stopped starts from the beginning; no statistics, no search for duplicates"
        )
        make = beam.ParDo(_MakeRecords(self.recipe, self.threads), *self.sides).with_outputs(FACTS, main="records")
        made = placed | "GroupByShard" >> beam.GroupByKey() | "MakeRecords" >> make
        return (made[FACTS], *(self._write(made.records, split) for split in self.splits)) | "All" >> beam.Flatten()

    def _write(self, records: PCollection, split: str) -> PCollection:
        name = shard_names(self.recipe.name, split, self.recipe.layout).stable_prefix
        path = join_path(self.recipe.output, f"{state_folder(split)}/{name}")
        suffix = ".gz" if self.recipe.gzip else ""  # Beam compresses by it
        sink = beam.io.WriteToTFRecord(path, file_name_suffix=suffix, num_shards=self.num_shards or 0)
        of_split = beam.FlatMapTuple(lambda its, record: [record] * (its == split)).with_output_types(bytes)
        note = beam.Map(_note, split, self.recipe).with_output_types(Any)
        return records | f"Of-{split}" >> of_split | f"Write-{split}" >> sink | f"Note-{split}" >> note


def _note(path: str, split: str, recipe: ShardRecipe) -> TimestampedValue:
    """Read a shard, write its index and its note."""
    reader, file = ShardReader(path), path.rsplit("/", 1)[-1]
    deque(reader.records(), maxlen=0)
    index = msgspec.UNSET if recipe.gzip else write_index(path, index_of(reader.lengths))
    checksums = storage_for(path).checksum(path)[1], reader.sha256.hexdigest()
    progress.finished_shard()
    info = ShardInfo(file, reader.examples, reader.size, *checksums, index)
    result = ShardResult(key_of(split, file), "", made_by(recipe.layout), info, {}, (), Statistics(reader.examples))
    # Beam emits names at the end of the window, when Prism takes side inputs as complete.
    return TimestampedValue(FinishedShards(recipe.output, recipe.name, recipe.layout).note(result), MIN_TIMESTAMP)
