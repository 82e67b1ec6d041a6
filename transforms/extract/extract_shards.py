"""Finished shards are read back into image files in a folder, and the rows of annotations that their records hold."""

from collections.abc import Iterator
from concurrent.futures import Executor

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.line_blocks import LineBlock
from recordmill.schemas.plan_report import Fault
from recordmill.transforms.extract.extract_files import FileWriter, WrittenFile
from recordmill.transforms.extract.extract_rows import RecordRows, RowExtractor, row_line
from recordmill.transforms.extract.extract_values import RecordReader, UnusableRecordError
from recordmill.transforms.records.read_shards import ManifestShard, readable_records
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.runtime.line_blocks import LineSorter
from recordmill.transforms.runtime.look_ahead import look_ahead
from recordmill.transforms.runtime.threads import ThreadedDoFn


class ExtractedRecord(msgspec.Struct, frozen=True):
    """A record whose image has been written.

    Attributes:
        number: of the record in its shard, from 0.
        rows: but for those of objects, which are with its shard.
        files: that were written, its image first.
    """

    number: int
    rows: RecordRows
    files: tuple[WrittenFile, ...]


class ExtractedShard(msgspec.Struct, frozen=True):
    """What came of a shard, up to its first damaged record.

    Attributes:
        instances, keypoints: rows of objects, as of `row_line`: a split may have more than there is memory for.
    """

    split: str
    file: str
    records: tuple[ExtractedRecord, ...]
    faults: tuple[Fault, ...]
    instances: tuple[LineBlock, ...] = ()
    keypoints: tuple[LineBlock, ...] = ()


class ExtractShards(beam.PTransform):
    """ManifestShard become (split, ExtractedShard); their files are written below `folder` by `threads` threads, by
    default as many as there are cores where the shard is extracted."""

    def __init__(self, folder: str, threads: int | None):
        super().__init__()
        self._folder = folder
        self._threads = threads

    def expand(self, shards: PCollection[ManifestShard]) -> PCollection[tuple[str, ExtractedShard]]:
        extract = beam.ParDo(_ExtractShard(self._folder, self._threads))
        return shards | "SpreadShards" >> beam.Reshuffle() | "Extract" >> extract


class _ExtractShard(ThreadedDoFn):
    """Holds the threads that write."""

    def __init__(self, folder: str, threads: int | None):
        super().__init__(threads)
        self._folder = folder

    def setup(self):
        super().setup()
        self._writer = FileWriter(self._folder)

    def process(self, shard: ManifestShard) -> Iterator[tuple[str, ExtractedShard]]:
        yield shard.split, extract_shard(shard, self._writer, self.pool, self.threads)


def extract_shard(shard: ManifestShard, writer: FileWriter, pool: Executor, threads: int) -> ExtractedShard:
    """Read a shard to its end, or to its first damaged record, and write the files of every record.

    Raises:
        OSError: a file cannot be written.
    """
    faults: list[Fault] = []
    damage: list[Fault] = []
    records: list[ExtractedRecord] = []
    sorters = LineSorter(), LineSorter()
    readable = readable_records(shard, ShardReader(shard.path), damage)
    for extracted, found in look_ahead(RecordExtractor(shard, writer), enumerate(readable), pool, threads):
        records += [without_rows(extracted, shard.info.file, *sorters)] if extracted else []
        faults += found
    blocks = [sorter.blocks() for sorter in sorters]
    return ExtractedShard(shard.split, shard.info.file, tuple(records), (*faults, *damage), *blocks)


def without_rows(record: ExtractedRecord, shard: str, instances: LineSorter, keypoints: LineSorter) -> ExtractedRecord:
    """The record without the rows of its objects, which are sorted."""
    for sorter, rows in ((instances, record.rows.instances), (keypoints, record.rows.keypoints)):
        for row in rows:
            sorter.add(row_line(row, shard, record.number))
    left = msgspec.structs.replace(record.rows, instances=(), keypoints=())
    return msgspec.structs.replace(record, rows=left)


class RecordExtractor:
    """Extracts the records of one shard. Imports TensorFlow."""

    def __init__(self, shard: ManifestShard, writer: FileWriter):
        self._file = shard.info.file
        self._read = RecordReader(shard.table, shard.labels)
        self._extract = RowExtractor(shard.table, shard.labels, shard.split)
        self._writer = writer

    def __call__(self, numbered: tuple[int, bytes]) -> tuple[ExtractedRecord | None, list[Fault]]:
        """Write the files of a record, whose number in the shard is given. Without its image it is None.

        Raises:
            OSError: a file cannot be written.
        """
        number, record = numbered
        faults: list[tuple[str, str]] = []
        extracted = None
        try:
            rows, (image_file, *others), faults = self._extract(self._read(record))
            files = [self._writer.write(image_file)]
            for other in others:
                try:
                    files.append(self._writer.write(other))
                except UnusableRecordError as fault:
                    faults.append((fault.reason, fault.detail))
            extracted = ExtractedRecord(number, rows, tuple(files))
        except UnusableRecordError as fault:
            faults = [*faults, (fault.reason, fault.detail)]
        return extracted, [Fault(self._file, number, reason, detail) for reason, detail in faults]
