"""The same records through Beam's own sink: `--writer beam`.

Every record goes through a shuffle, and which record is in which shard differs between runs; docs/performance.md says
what that costs.
"""

from collections.abc import Collection

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.pvalue import AsSingleton, PCollection
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from recordmill.schemas.images import ImageTask
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.manifest import state_folder
from recordmill.schemas.rejects import Count, Metric, Rejected
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.examples.encode_examples import Encoded, EncodeExamples
from recordmill.transforms.images.load_images import LoadImages
from recordmill.transforms.records.read_shards import ShardReader
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.outputs import REJECTED, Written, of_split
from recordmill.transforms.shards.encode_pictures import EncodePictures
from recordmill.transforms.shards.shard_file import ShardPlace, ShardRecipe
from recordmill.transforms.storage.resolve import storage_for


class SinkRecords(beam.PTransform):
    """Records of a split become (split, ShardInfo); their files are in the folder of its state.

    Args:
        num_shards: how many; 0 lets the runner choose.
    """

    def __init__(self, place: ShardPlace, split: str, num_shards: int):
        super().__init__()
        self._place = place
        self._split = split
        self._num_shards = num_shards

    def expand(self, records: PCollection[bytes]):
        place = self._place
        names = shard_names(place.name, self._split, place.layout)
        path = storage_for(place.output).join(place.output, f"{state_folder(self._split)}/{names.stable_prefix}")
        return (
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
            | "DescribeShard" >> beam.Map(describe_shard)
            | "ShardsBySplit" >> of_split(self._split)
        )


class WriteWithBeamSink(beam.PTransform):
    """ImageTask become Written, by `beam.io.WriteToTFRecord`.

    Args:
        checked: a PCollection of one element, before which no picture is read.
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        maker: of the records.
        split: which the tasks are of.
        num_shards: how many; 0 lets the runner choose.
    """

    def __init__(
        self,
        checked: PCollection,
        labels: PCollection,
        table: PCollection,
        recipe: ShardRecipe,
        maker: EncodePictures,
        split: str,
        num_shards: int,
    ):
        super().__init__()
        self._checked = checked
        self._labels = labels
        self._table = table
        self._recipe = recipe
        self._maker = maker
        self._split = split
        self._num_shards = num_shards

    def expand(self, tasks: PCollection[ImageTask]):
        recipe, maker = self._recipe, self._maker
        loaded = (
            tasks
            | "SpreadImages" >> beam.Reshuffle()
            | "WhenChecked" >> beam.Map(_same, AsSingleton(self._checked)).with_output_types(ImageTask)
            | "LoadImages" >> LoadImages(maker.pictures)
        )
        encoded = loaded.pictures | "EncodeExamples" >> EncodeExamples(self._labels, self._table, maker.boxes)
        records = encoded.encoded | "Records" >> beam.FlatMap(_records).with_output_types(bytes)
        shards = records | "SinkRecords" >> SinkRecords(recipe, self._split, self._num_shards)
        rejected = (
            loaded[REJECTED],
            encoded[REJECTED],
            encoded.encoded | "RejectedAnnotations" >> beam.FlatMap(_rejected),
        ) | "Rejected" >> beam.Flatten()
        counted = (
            encoded.encoded | "Counted" >> beam.FlatMap(_counted),
            records | "RecordBytes" >> beam.Map(_record_bytes),
        ) | "AllCounted" >> beam.Flatten()
        return Written(
            shards,
            counted | "CountedBySplit" >> of_split(self._split),
            rejected | "RejectedBySplit" >> of_split(self._split),
            encoded.encoded | "Classes" >> beam.FlatMap(_classes, self._split),
        )


def _same(task: ImageTask, _: object) -> ImageTask:
    return task


def _records(encoded: Encoded) -> Collection[bytes]:
    return encoded.records


def _record_bytes(record: bytes) -> Count:
    return Count(Metric.RECORD_BYTES, len(record))


def _of_no_time(path: str) -> TimestampedValue:
    return TimestampedValue(path, MIN_TIMESTAMP)


def _counted(encoded: Encoded) -> list[Count]:
    return [Count(metric, number) for metric, number in encoded.counted.items()]


def _classes(encoded: Encoded, split: str) -> list[tuple[tuple[str, int], int]]:
    return [((split, index), number) for index, number in encoded.class_counts.items()]


def _rejected(encoded: Encoded) -> list[Rejected]:
    return encoded.rejected


def describe_shard(path: str) -> ShardInfo:
    """Count and checksums of a shard that Beam has written, read back from where it is."""
    reader = ShardReader(path)
    examples = sum(1 for _ in reader.records())
    progress.finished_shard()
    _, crc32c = storage_for(path).checksum(path)
    return ShardInfo(path.rsplit("/", 1)[-1], examples, reader.size, crc32c, reader.sha256.hexdigest())
