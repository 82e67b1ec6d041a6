"""The same records through Beam's own sink: `--writer beam`.

Every record goes through a shuffle, and which record is in which shard differs between runs; docs/performance.md says
what that costs.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from recordmill.schemas.dataset_files import state_folder
from recordmill.schemas.duplicates import Fingerprints
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.images import ImageTask
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.rejects import Count, Metric, Rejected
from recordmill.schemas.shard_index import index_of
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.examples.encode_examples import Encoded
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.rejects.gather_rejects import GatherRejects
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.outputs import REJECTED, Written, of_split, route_outputs
from recordmill.transforms.runtime.threads import ThreadedDoFn
from recordmill.transforms.shards.record_maker import RecordContext, RecordMaker
from recordmill.transforms.shards.shard_file import ShardPlace, ShardRecipe, write_index
from recordmill.transforms.statistics.count_records import Counted, count_records
from recordmill.transforms.storage.resolve import storage_for


class Sunk(NamedTuple):
    """What SinkRecords gives: see Written."""

    shards: PCollection
    statistics: PCollection
    fingerprints: PCollection


class SinkRecords(beam.PTransform):
    """Records of a split become Sunk; their files are in the folder of its state.

    Args:
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        num_shards: how many; 0 lets the runner choose.
    """

    def __init__(self, labels: PCollection, table: PCollection, place: ShardPlace, split: str, num_shards: int):
        super().__init__()
        self._labels = labels
        self._table = table
        self._place = place
        self._split = split
        self._num_shards = num_shards

    def expand(self, records: PCollection[bytes]):
        place = self._place
        names = shard_names(place.name, self._split, place.layout)
        path = storage_for(place.output).join(place.output, f"{state_folder(self._split)}/{names.stable_prefix}")
        described = (
            records
            | "WriteToTFRecord"
            >> beam.io.WriteToTFRecord(
                path,
                file_name_suffix=".gz" if place.gzip else "",
                num_shards=self._num_shards,
                compression_type=CompressionTypes.GZIP if place.gzip else CompressionTypes.UNCOMPRESSED,
            )
            # The sink's names have the window's last timestamp, at which Prism takes side inputs as complete.
            | "OfNoTime" >> beam.Map(_of_no_time)
            | "DescribeShard" >> beam.Map(describe_shard, AsSingleton(self._labels), AsSingleton(self._table))
        )
        return Sunk(
            described | "Infos" >> beam.Map(_info) | "ShardsBySplit" >> of_split(self._split),
            described | "Statistics" >> beam.Map(_statistics) | "StatisticsBySplit" >> of_split(self._split),
            described | "Fingerprints" >> beam.FlatMap(_fingerprints) | "FingerprintsBySplit" >> of_split(self._split),
        )


class WriteWithBeamSink(beam.PTransform):
    """ImageTask become Written, by `beam.io.WriteToTFRecord`.

    Args:
        checked: a PCollection of one element, before which no picture is read.
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        threads: see `recordmill.transforms.shards.write_shards.WriteShards`.
        split: which the tasks are of.
        num_shards: how many; 0 lets the runner choose.
    """

    # Three side inputs, and what a shard is known by.
    def __init__(
        self,
        checked: PCollection,
        labels: PCollection,
        table: PCollection,
        recipe: ShardRecipe,
        threads: int | None,
        split: str,
        num_shards: int,
    ):
        super().__init__()
        self._checked = checked
        self._labels = labels
        self._table = table
        self._recipe = recipe
        self._threads = threads
        self._split = split
        self._num_shards = num_shards

    def expand(self, tasks: PCollection[ImageTask]):
        recipe, number = self._recipe, self._recipe.maker.images_at_once
        sides = AsSingleton(self._labels), AsSingleton(self._table), AsSingleton(self._checked)
        make = beam.ParDo(_MakeRecords(recipe.maker, self._threads), *sides).with_output_types(Encoded)
        made = (
            tasks
            | "SpreadImages" >> beam.Reshuffle()
            | "ImagesAtOnce" >> beam.BatchElements(number, number)
            | "ImagesOfNoTime" >> beam.Map(_of_no_time)  # as the names of shards
            | "MakeRecords" >> make.with_outputs(REJECTED, main="encoded")
        )
        records = made.encoded | "Records" >> beam.FlatMap(_records).with_output_types(bytes)
        sunk = records | "SinkRecords" >> SinkRecords(self._labels, self._table, recipe, self._split, self._num_shards)
        rejected = (
            made[REJECTED] | "RejectedImages" >> of_split(self._split),
            made.encoded | "RejectedAnnotations" >> beam.FlatMap(_rejected) | "OfSplit" >> of_split(self._split),
        )
        counted = (
            made.encoded | "Counted" >> beam.FlatMap(_counted),
            records | "RecordBytes" >> beam.Map(_record_bytes),
        ) | "AllCounted" >> beam.Flatten()
        return Written(
            sunk.shards,
            counted | "CountedBySplit" >> of_split(self._split),
            rejected | "GatherRejects" >> GatherRejects(),
            made.encoded | "Classes" >> beam.FlatMap(_classes, self._split),
            sunk.statistics,
            sunk.fingerprints,
        )


class _MakeRecords(ThreadedDoFn):
    """Holds the threads that fetch and check images."""

    def __init__(self, maker: RecordMaker, threads: int | None):
        super().__init__(threads)
        self._maker = maker

    def process(
        self, tasks: Sequence[ImageTask], labels: LabelMap, table: FeatureTable, _: object
    ) -> Iterator[Encoded | TaggedOutput]:
        make = self._maker.start(RecordContext(labels, table, self.pool, self.threads))
        return route_outputs(made for _, made in make(tasks))


def _records(encoded: Encoded) -> Iterator[bytes]:
    return map(b"".join, encoded.records)


def _record_bytes(record: bytes) -> Count:
    return Count(Metric.RECORD_BYTES, len(record))


def _of_no_time(item: Any) -> TimestampedValue:
    return TimestampedValue(item, MIN_TIMESTAMP)


def _counted(encoded: Encoded) -> list[Count]:
    return [Count(metric, number) for metric, number in encoded.counted.items()]


def _classes(encoded: Encoded, split: str) -> list[tuple[tuple[str, int], int]]:
    return [((split, index), number) for index, number in encoded.class_counts.items()]


def _rejected(encoded: Encoded) -> list[Rejected]:
    return encoded.rejected


class DescribedShard(NamedTuple):
    """A shard that Beam has written. Of `counted` there is nothing where an image has several records: they are in
    several shards."""

    info: ShardInfo
    counted: Counted


def _info(shard: DescribedShard) -> ShardInfo:
    return shard.info


def _statistics(shard: DescribedShard) -> Statistics:
    return shard.counted.statistics


def _fingerprints(shard: DescribedShard) -> list[Fingerprints]:
    return [shard.counted.fingerprints] if shard.counted.fingerprints else []


def describe_shard(path: str, labels: LabelMap, table: FeatureTable) -> DescribedShard:
    """Count, checksums and statistics of a shard that Beam has written, read back from where it is; its index is
    written."""
    reader, file = ShardReader(path), path.rsplit("/", 1)[-1]
    counted = count_records(reader.records(), table, labels, file)
    index = msgspec.UNSET if file.endswith(".gz") else write_index(path, index_of(reader.lengths))
    progress.finished_shard()
    _, crc32c = storage_for(path).checksum(path)
    info = ShardInfo(file, reader.examples, reader.size, crc32c, reader.sha256.hexdigest(), index)
    return DescribedShard(info, counted)
