"""Finished shards are read back into image files in a folder, and the rows that their records hold into pieces."""

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas.checks import Fault
from recordmill.transforms.extract.extract_files import FileWriter, is_there
from recordmill.transforms.extract.extract_pieces import ExtractedRecord, PieceFile, found_piece, records_of_piece
from recordmill.transforms.extract.extract_rows import RowExtractor
from recordmill.transforms.extract.extract_values import RecordReader, UnusableRecordError
from recordmill.transforms.records.read_shards import FaultList, ManifestShard, readable_records
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn
from recordmill.transforms.runtime.threads import look_ahead


@dataclass(eq=False, repr=False)
class ExtractShards(beam.PTransform):
    """ManifestShard become (split, their file), and leave a piece each; the files of their records are written below
    `folder` by `threads` threads, by default as many as there are cores where the shard is extracted."""

    folder: str
    threads: int | None

    def expand(self, shards: PCollection[ManifestShard]) -> PCollection[tuple[str, str]]:
        extract = beam.ParDo(_ExtractShard(self.folder, self.threads))
        return shards | "SpreadShards" >> beam.Reshuffle() | "Extract" >> extract


class _ExtractShard(ThreadedDoFn):
    """Holds the threads that write."""

    def __init__(self, folder: str, threads: int | None):
        super().__init__(threads)
        self._folder = folder

    def setup(self):
        super().setup()
        self._writer = FileWriter(self._folder)

    def process(self, shard: ManifestShard) -> Iterator[tuple[str, str]]:
        if is_extracted(shard, self._folder, self.pool, self.threads):
            progress.skipped_images(shard.info.examples)
            progress.finished_shard()
        else:
            extract_shard(shard, self._folder, self._writer, self.pool, self.threads)
        yield shard.split, shard.info.file


def is_extracted(shard: ManifestShard, folder: str, pool: Executor, threads: int) -> bool:
    """Whether an earlier run has extracted a shard, and all its files are still there."""
    piece = found_piece(folder, shard.info.file)
    if piece is None:
        return False
    files = (file for record in records_of_piece(folder, piece) for file in record.files)
    return all(look_ahead(partial(is_there, folder), files, pool, threads))


def extract_shard(shard: ManifestShard, folder: str, writer: FileWriter, pool: Executor, threads: int) -> None:
    """Read a shard to its end, or to its first damaged record, and write the files of every record, then the piece.

    Raises:
        OSError: a file cannot be written.
    """
    faults = FaultList()
    damage: list[Fault] = []
    readable = readable_records(shard, ShardReader(shard.path), damage)
    piece = PieceFile(folder, shard.info.file)
    try:
        for record, found in look_ahead(RecordExtractor(shard, writer), enumerate(readable), pool, threads):
            if record:
                piece.add(record)
            faults.add(found)
        faults.add(damage)
        piece.commit(faults.faults(), is_damaged=bool(damage))
    finally:
        piece.abandon()  # nothing to do after a commit


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
