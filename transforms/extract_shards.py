"""Finished shards are taken apart: image files into a folder, and what their records say of them as rows."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import apache_beam as beam
import msgspec

from schemas.errors import RecordError
from schemas.features import FeatureTable
from schemas.labels import LabelMap
from schemas.reports import Fault
from schemas.shards import ShardInfo
from transforms import progress
from transforms.extract_files import FileWriter, WrittenFile
from transforms.extract_rows import RecordRows, RowExtractor
from transforms.extract_values import RecordReader, UnusableRecordError
from transforms.read_shards import ShardReader
from transforms.storage import storage_for


class ListedShard(msgspec.Struct, frozen=True):
    """A shard as the manifest describes it.

    Attributes:
        path: of the file.
        table: what is in its records.
        labels: the data set's classes.
    """

    path: str
    split: str
    info: ShardInfo
    table: FeatureTable
    labels: LabelMap


class ExtractedRecord(msgspec.Struct, frozen=True):
    """A record whose image has been written.

    Attributes:
        number: of the record in its shard, from 0.
        files: that were written, its image first.
    """

    number: int
    rows: RecordRows
    files: tuple[WrittenFile, ...]


class ExtractedShard(msgspec.Struct, frozen=True):
    """What came of a shard, up to its first damaged record."""

    split: str
    file: str
    records: tuple[ExtractedRecord, ...]
    faults: tuple[Fault, ...]


class ExtractShards(beam.PTransform):
    """ListedShard become (split, ExtractedShard), their files written below `folder`; `threads` write."""

    def __init__(self, folder: str, threads: int):
        super().__init__()
        self._folder = folder
        self._threads = threads

    def expand(self, shards):
        extract = beam.ParDo(_ExtractShard(self._folder, self._threads))
        return shards | "SpreadShards" >> beam.Reshuffle() | "Extract" >> extract


class _ExtractShard(beam.DoFn):
    """Holds the threads that write."""

    def __init__(self, folder: str, threads: int):
        self._folder = folder
        self._threads = threads

    def setup(self):
        self._writer = FileWriter(self._folder)
        self._pool = ThreadPoolExecutor(self._threads, "extract")

    def process(self, shard: ListedShard) -> Iterator[tuple[str, ExtractedShard]]:
        extracted = extract_shard(shard, self._writer, self._pool, self._threads)
        progress.finished_shard()
        yield shard.split, extracted

    def teardown(self):
        self._pool.shutdown(cancel_futures=True)


def extract_shard(shard: ListedShard, writer: FileWriter, pool: Executor, threads: int) -> ExtractedShard:
    """Read a shard to its end, or to its first damaged record, and write the files of every record.

    Raises:
        OSError: a file cannot be written.
    """
    file = shard.info.file
    faults: list[Fault] = []
    if storage_for(shard.path).size(shard.path) is None:
        return ExtractedShard(shard.split, file, (), (Fault(file, None, "missing", "no such file"),))
    damage: list[Fault] = []
    extract = RecordExtractor(shard, writer)
    records = []
    waiting: deque[Future[tuple[ExtractedRecord | None, list[Fault]]]] = deque()
    numbered = enumerate(_readable_records(shard, damage))
    while True:
        item = next(numbered, None)
        if item:
            waiting.append(pool.submit(extract, *item))
        if waiting and (item is None or len(waiting) > 2 * threads):
            extracted, found = waiting.popleft().result()
            records += [extracted] if extracted else []
            faults += found
        if item is None and not waiting:
            return ExtractedShard(shard.split, file, tuple(records), (*faults, *damage))


def _readable_records(shard: ListedShard, damage: list[Fault]) -> Iterator[bytes]:
    """The records of a shard up to the first that is damaged; what is wrong with the file joins `damage`."""
    reader = ShardReader(shard.path)
    file = shard.info.file
    examples = 0
    try:
        for record in reader.records():
            yield record
            examples += 1
    except RecordError as error:
        damage.append(Fault(file, error.record, error.reason, error.detail))
    except (
        Exception
    ) as error:  # a damaged GZIP stream ends in one of several types; the file is named and the others are read
        damage.append(Fault(file, None, "unreadable", f"{type(error).__name__}: {error}"))
    else:
        if examples != shard.info.examples:
            damage.append(Fault(file, None, "count", f"{examples} records, the manifest says {shard.info.examples}"))
        if reader.sha256.hexdigest() != shard.info.sha256:
            damage.append(Fault(file, None, "sha256", "the file's SHA-256 is not the manifest's"))


class RecordExtractor:
    """Extracts the records of one shard. Imports TensorFlow."""

    def __init__(self, shard: ListedShard, writer: FileWriter):
        self._file = shard.info.file
        self._read = RecordReader(shard.table, shard.labels)
        self._extract = RowExtractor(shard.table, shard.labels, shard.split)
        self._writer = writer

    def __call__(self, number: int, record: bytes) -> tuple[ExtractedRecord | None, list[Fault]]:
        """Write a record's files. Without its image it is None.

        Raises:
            OSError: a file cannot be written.
        """
        faults: list[tuple[str, str]] = []
        extracted = None
        try:
            rows, (image_file, *others), faults = self._extract(self._read(record))
            image, is_new = self._writer.write(image_file)
            files = [image]
            for other in others:
                try:
                    files.append(self._writer.write(other)[0])
                except UnusableRecordError as fault:
                    faults.append((fault.reason, fault.detail))
            if is_new:
                progress.wrote_image(image.bytes)
            extracted = ExtractedRecord(number, rows, tuple(files))
        except UnusableRecordError as fault:
            faults = [*faults, (fault.reason, fault.detail)]
        return extracted, [Fault(self._file, number, reason, detail) for reason, detail in faults]
