"""Finished shards are read back into image files in a folder, and the rows that their records hold into pieces."""

import csv
import io
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection

from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.extract.extract_files import FileWriter, UnusableRecordError, is_there, read_record
from recordmill.transforms.extract.extract_labels import LABEL_FORMATS, LabelExtractor
from recordmill.transforms.extract.extract_pieces import (
    ExtractedRecord,
    PieceFile,
    SplitPieces,
    found_piece,
    read_piece,
    records_of_piece,
)
from recordmill.transforms.extract.extract_rows import Row, RowExtractor
from recordmill.transforms.extract.label_format import LabelFormat
from recordmill.transforms.records.read_shards import FaultList, ManifestShard, readable_records
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn
from recordmill.transforms.runtime.threads import look_ahead
from recordmill.transforms.storage.interface import Upload
from recordmill.transforms.storage.resolve import join_path, storage_for


@dataclass(eq=False, repr=False)
class ExtractShards(beam.PTransform):
    """ManifestShard become (split, their file), and leave a piece each; the files of their records are written below
    `folder` by `threads` threads, by default as many as there are cores where the shard is extracted. `format_` is
    `coco` or one of `LABEL_FORMATS`."""

    folder: str
    threads: int | None
    format_: str = "coco"

    def expand(self, shards: PCollection[ManifestShard]) -> PCollection[tuple[str, str]]:
        extract = beam.ParDo(_ExtractShard(self.folder, self.threads, self.format_))
        return shards | "SpreadShards" >> beam.Reshuffle() | "Extract" >> extract


class _ExtractShard(ThreadedDoFn):
    """Holds the threads that write."""

    def __init__(self, folder: str, threads: int | None, format_: str):
        super().__init__(threads)
        self._folder, self._format = folder, format_

    def setup(self):
        super().setup()
        self._writer = FileWriter(self._folder)

    def process(self, shard: ManifestShard) -> Iterator[tuple[str, str]]:
        if is_extracted(shard, self._folder, self.pool, self.threads):
            progress.skipped_images(shard.info.examples)
            progress.finished_shard()
        else:
            extract_shard(shard, self._folder, self._writer, self.pool, self.threads, self._format)
        yield shard.split, shard.info.file


def is_extracted(shard: ManifestShard, folder: str, pool: Executor, threads: int) -> bool:
    """Whether an earlier run has extracted a shard, and all its files are still there."""
    piece = found_piece(folder, shard.info.file)
    if piece is None:
        return False
    files = (file for record in records_of_piece(folder, piece) for file in record.files)
    return all(look_ahead(partial(is_there, folder), files, pool, threads))


def extract_shard(
    shard: ManifestShard, folder: str, writer: FileWriter, pool: Executor, threads: int, format_: str
) -> None:
    """Read a shard to its end, or to its first damaged record, and write the files of every record, then the piece.

    Raises:
        OSError: a file cannot be written.
    """
    faults = FaultList()
    damage: list[Fault] = []
    readable = readable_records(shard, ShardReader(shard.path), damage)
    piece = PieceFile(folder, shard.info.file)
    try:
        for record, found in look_ahead(RecordExtractor(shard, writer, format_), enumerate(readable), pool, threads):
            if record:
                piece.add(record)
            faults.add(found)
        faults.add(damage)
        piece.commit(faults.faults(), is_damaged=bool(damage))
    finally:
        piece.abandon()  # nothing to do after a commit


class RecordExtractor:
    """Extracts the records of one shard. Imports TensorFlow."""

    def __init__(self, shard: ManifestShard, writer: FileWriter, format_: str):
        self._file = shard.info.file
        self._table, self._labels = shard.table, shard.labels
        self._extract = (
            RowExtractor(shard.table, shard.labels, shard.split)
            if format_ == "coco"
            else LabelExtractor(shard.table, shard.labels, shard.split, LABEL_FORMATS[format_])
        )
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
            rows, (image_file, *others), faults = self._extract(read_record(record, self._table, self._labels))
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


ANNOTATIONS = "annotations"
"""The folder of the JSON files."""
_ROWS_AT_ONCE = 1000


class Document(msgspec.Struct, frozen=True):
    """A file, how many annotations, or labels, it has, and how many ids several of these have."""

    file: str
    annotations: int
    shared_ids: int = 0


class ExtractedSplit(msgspec.Struct, frozen=True):
    """Result of a split. `image_bytes` is the size of its `images` files, which `rows` image rows name. `lost` and
    `notes` have numbers of things that the format does not hold, or holds otherwise."""

    split: str
    rows: int
    images: int
    image_bytes: int
    documents: tuple[Document, ...]
    faults: Faults
    lost: dict[str, int] = {}
    notes: dict[str, int] = {}


@dataclass(eq=False, repr=False)
class WriteDocuments(beam.PTransform):
    """(split, a shard's file) become ExtractedSplit, its documents written below `folder` of the shards' pieces."""

    folder: str
    table: FeatureTable
    labels: LabelMap
    format_: str = "coco"

    def expand(self, shards: PCollection[tuple[str, str]]) -> PCollection[ExtractedSplit]:
        return (
            shards
            | "GroupBySplit" >> beam.GroupByKey()  # (split, [file])
            | "Write" >> beam.Map(_write, self.folder, self.table, self.labels, self.format_)
        )


def _write(
    group: tuple[str, Iterable[str]], folder: str, table: FeatureTable, labels: LabelMap, format_: str
) -> ExtractedSplit:
    if format_ == "coco":
        return write_documents(*group, folder, table, labels)
    return write_list(*group, folder, table, LABEL_FORMATS[format_])


def write_documents(
    split: str, shards: Iterable[str], folder: str, table: FeatureTable, labels: LabelMap
) -> ExtractedSplit:
    """Write the annotations of a split's records. Left out are records whose image file has the name of a different
    one, or whose image id an earlier record has for another image.

    Args:
        shards: whose pieces are there.
    """
    pieces = _kept_pieces(folder, shards, table)
    documents = []
    if "image.class_name" in table.sources:
        file = f"{ANNOTATIONS}/labels_{split}.csv"
        documents.append(Document(file, write_labels(join_path(folder, file), split, pieces.labels())))
    for name, annotations, categories in _contents(split, pieces, table, labels):
        file = f"{ANNOTATIONS}/{name}_{split}.json"
        written = write_document(join_path(folder, file), pieces.image_rows(), annotations, categories)
        documents.append(Document(file, *written))
    rows = sum(1 for _ in pieces.image_rows())
    return ExtractedSplit(split, rows, pieces.images, pieces.image_bytes, tuple(documents), pieces.faults)


def write_list(
    split: str, shards: Iterable[str], folder: str, table: FeatureTable, format_: LabelFormat
) -> ExtractedSplit:
    """Write the list of a split's images, if the format has one. Left out are records as `write_documents` says, and
    those whose label file has the name of a different one."""
    pieces = _kept_pieces(folder, shards, table, has_label_files=True)
    rows = objects = 0
    lost: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    path = join_path(folder, format_.list_file.format(split=split))
    with storage_for(path).writing(path) if format_.list_file else nullcontext() as upload:
        for image in pieces.rows():
            rows, objects = rows + 1, objects + image.objects
            lost.update(image.lost)
            notes.update(image.notes)
            if upload is not None:
                upload.write(f"{image.line}\n".encode())
    documents = (Document(format_.labels.format(split=split), objects),)
    return ExtractedSplit(
        split, rows, pieces.images, pieces.image_bytes, documents, pieces.faults, dict(lost), dict(notes)
    )


def _kept_pieces(folder: str, shards: Iterable[str], table: FeatureTable, has_label_files: bool = False) -> SplitPieces:
    """Return the pieces of a split, and delete files that cannot be kept."""
    pieces = tuple(read_piece(folder, shard) for shard in sorted(shards))
    found = SplitPieces(folder, pieces, table, has_label_files)
    for path in sorted(found.spoiled):
        storage_for(folder).delete(join_path(folder, path))
    return found


def write_document(
    path: str, images: Iterable[Row], annotations: Iterable[Row], categories: list[Category] | None
) -> tuple[int, int]:
    """Write a COCO file, which is not in memory at once; how many annotations it has, and how many ids several have.

    Args:
        categories: None for a file that has none.
    """
    with storage_for(path).writing(path) as upload:
        upload.write(b'{"images":[')
        _write_rows(upload, images)
        upload.write(b'],"annotations":[')
        number, ids = _write_rows(upload, annotations)
        end = b"" if categories is None else b',"categories":' + msgspec.json.encode(categories)
        upload.write(b"]" + end + b"}\n")
    return number, int((np.unique(np.array(ids, np.int64), return_counts=True)[1] > 1).sum())


def _write_rows(upload: Upload, rows: Iterable[Row]) -> tuple[int, "array[int]"]:
    """Write rows between commas; how many there are, and the ids of those that have one within 64 bits."""
    number, ids, rest = 0, array("q"), iter(rows)
    while some := list(islice(rest, _ROWS_AT_ONCE)):
        upload.write((b"," if number else b"") + b",".join(row.json for row in some))
        ids.extend(row.id for row in some if row.id is not None and abs(row.id) < 1 << 63)
        number += len(some)
    return number, ids


def write_labels(path: str, split: str, labels: Iterable[tuple[str, str]]) -> int:
    """Write a CSV of image paths below the split's folder of images, their classes and the split; how many there are.

    Args:
        labels: paths and classes.
    """
    number, rest = 0, iter(labels)
    with storage_for(path).writing(path) as upload:
        upload.write(_csv([("path", "label", "split")]))
        while some := list(islice(rest, _ROWS_AT_ONCE)):
            upload.write(_csv((*label, split) for label in some))
            number += len(some)
    return number


def _csv(rows: Iterable[Sequence[str]]) -> bytes:
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue().encode()


def _contents(
    split: str, pieces: SplitPieces, table: FeatureTable, labels: LabelMap
) -> Iterator[tuple[str, Iterable[Row], list[Category] | None]]:
    """Name, annotations, categories (captions have none) of each file that the data set's records can fill."""
    if "objects.id" not in table.sources:
        return
    categories = [msgspec.structs.replace(category, isthing=None) for category in labels.categories]
    yield "instances", pieces.objects("instances"), categories
    if Part.KEYPOINTS in table.parts:
        figures = [category for category in categories if category.keypoints]
        yield "person_keypoints", pieces.objects("keypoints"), figures
    if Part.CAPTIONS in table.parts:
        yield "captions", pieces.captions(), None
    if "panoptic.png" in table.sources:
        yield "panoptic", pieces.panoptic(split), list(labels.segments)
