"""`--writer beam`: records through Beam's WriteToTFRecord, without resume, statistics and search for duplicates."""

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from recordmill.schemas.dataset_files import state_folder
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.rejects import Metric
from recordmill.schemas.shard_index import index_of
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.threads import ThreadedDoFn
from recordmill.transforms.shards.record_maker import RecordContext
from recordmill.transforms.shards.shard_file import ShardRecipe, write_index
from recordmill.transforms.shards.shard_writer import ordered_block
from recordmill.transforms.shards.write_shards import WriteShards, written_of
from recordmill.transforms.storage.resolve import storage_for

RESULTS = "results"
_LOGGER = logging.getLogger(__name__)


class MakeRecords(ThreadedDoFn):
    """Convert (ShardKey, [packed Block]) to (split, record) and, tagged RESULTS, a ShardResult per run of images
    without its file."""

    def __init__(self, recipe: ShardRecipe, threads: int | None):
        super().__init__(threads)
        self._recipe = recipe

    def process(
        self, group: tuple[ShardKey, Iterable[bytes]], labels: LabelMap, table: FeatureTable, _: object
    ) -> Iterator[Any]:
        key, packed = group
        recipe = self._recipe
        encode = recipe.maker.start(RecordContext(labels, table, self.pool, self.threads, recipe.output))
        block = ordered_block(packed, recipe.seed)
        for run in encode(block.having(split=np.zeros(len(block), np.int64)), key.split):
            for reject in run.rejected:
                progress.rejected(reject)
            record_bytes = 0
            for record in map(b"".join, run.records):
                record_bytes += len(record)
                yield key.split, record
            counted = dict(+run.counted) | {Metric.RECORD_BYTES: record_bytes}
            rest = tuple(run.rejected), Statistics(), run.class_counts
            yield TaggedOutput(RESULTS, ShardResult(key, "", {}, ShardInfo("", 0, 0, "", ""), counted, *rest))


class WriteWithBeam(WriteShards):
    """Convert (ShardKey, packed Block) to Written, of files in the folders of the splits' states.

    Args:
        num_shards: of each split; None if the runner chooses.
    """

    def __init__(self, *of: Any, splits: Sequence[str], num_shards: int | None):
        super().__init__(*of)
        self._splits = splits
        self._num_shards = num_shards or 0

    def expand(self, placed: PCollection[tuple[ShardKey, bytes]]):
        _LOGGER.warning(
            "--writer beam: a job that is stopped starts from the beginning; no statistics, no search for duplicates"
        )
        make = beam.ParDo(MakeRecords(self._recipe, self._threads), *self._sides)
        grouped = placed | "GroupByShard" >> beam.GroupByKey()
        made = grouped | "MakeRecords" >> make.with_outputs(RESULTS, main="records")
        shards = tuple(self._sink(made.records, split) for split in self._splits) | "AllShards" >> beam.Flatten()
        written = written_of(made[RESULTS])
        facts = (written.facts, shards | "OnlyCounted" >> beam.Map(_only_counted)) | "AllFacts" >> beam.Flatten()
        return written._replace(shards=shards, facts=facts)

    def _sink(self, records: PCollection, split: str) -> PCollection:
        recipe = self._recipe
        name = shard_names(recipe.name, split, recipe.layout).stable_prefix
        path = storage_for(recipe.output).join(recipe.output, f"{state_folder(split)}/{name}")
        suffix = ".gz" if recipe.gzip else ""  # which tells Beam to compress
        return (
            records
            | f"OfSplit-{split}" >> beam.FlatMap(_of_split, split).with_output_types(bytes)
            | f"Write-{split}" >> beam.io.WriteToTFRecord(path, file_name_suffix=suffix, num_shards=self._num_shards)
            | f"Describe-{split}" >> beam.Map(_describe, split).with_output_types(Any)
        )


def _of_split(item: tuple[str, bytes], split: str) -> list[bytes]:
    return [item[1]] if item[0] == split else []


def _only_counted(sunk: tuple[str, ShardInfo]) -> Facts:
    return Facts(statistics={sunk[0]: Statistics(sunk[1].examples)})


def _describe(path: str, split: str) -> TimestampedValue:
    """Read a shard back, and write its index."""
    reader = ShardReader(path)
    deque(reader.records(), maxlen=0)
    index = msgspec.UNSET if path.endswith(".gz") else write_index(path, index_of(reader.lengths))
    checksums = storage_for(path).checksum(path)[1], reader.sha256.hexdigest()
    progress.finished_shard()
    info = ShardInfo(path.rsplit("/", 1)[-1], reader.examples, reader.size, *checksums, index)
    # Beam emits names at the end of the window, when Prism takes side inputs as complete.
    return TimestampedValue((split, info), MIN_TIMESTAMP)
