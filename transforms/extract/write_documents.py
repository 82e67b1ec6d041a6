"""Documents of a split, such as COCO's JSON, from the pieces of its shards."""

import codecs
import csv
import hashlib
import io
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import compress, islice
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.schemas.features import FeatureTable, Part, RecordOf
from recordmill.schemas.field_features import field_columns
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.names import name_key
from recordmill.transforms.containers.read_shards import FaultList
from recordmill.transforms.extract.extract_files import ExtractedFile
from recordmill.transforms.extract.extract_pieces import (
    PIECES,
    ExtractedRecord,
    Piece,
    read_piece_records,
    read_shard_piece,
)
from recordmill.transforms.extract.extract_rows import RecordRows, Row, has_maps_only, nest_fields, panoptic_path
from recordmill.transforms.extract.label_format import LabelFormat
from recordmill.transforms.extract.write_formats import LABEL_FORMATS
from recordmill.transforms.storage.interface import Upload
from recordmill.transforms.storage.resolve import join_path, storage_for

ANNOTATIONS = "annotations"
"""Folder of the JSON files."""
CLASS_VALUES = "_classes.csv"
"""Table of the values of semantic masks, under the name that Roboflow's exports give it."""
_ROWS_AT_ONCE = 1000


class Document(msgspec.Struct, frozen=True):
    """A written file, its number of annotations or labels, and the number of ids that several of them share."""

    file: str
    annotations: int
    shared_ids: int = 0


class ExtractedSplit(msgspec.Struct, frozen=True):
    """Result of a split: `rows` image rows name `images` files of `image_bytes` bytes in total, `linked` of them links.
    `lost` and `notes` count contents that the format cannot store, or stores differently."""

    split: str
    rows: int
    images: int
    image_bytes: int
    documents: tuple[Document, ...]
    faults: Faults
    lost: dict[str, int] = {}
    notes: dict[str, int] = {}
    linked: int = 0


class _Keys(bytearray):
    """Array of digests of texts, 16 bytes each."""

    def add(self, text: bytes) -> None:
        self += hashlib.blake2b(text, digest_size=16).digest()

    def first_of_each(self, rows: np.ndarray) -> np.ndarray:
        """Return, for each of `rows`, the first of them with the same text: int64."""
        _, first, group = np.unique(np.frombuffer(self, "S16")[rows], return_index=True, return_inverse=True)
        return rows[first[group.ravel()]]

    def differ(self, rows: np.ndarray, other_rows: np.ndarray) -> np.ndarray:
        keys = np.frombuffer(self, "S16")
        return keys[rows] != keys[other_rows]


class _Files(NamedTuple):
    """The files of all records, one after the other.

    Attributes:
        names, paths, contents: Digests; `names` of the `name_key` of paths, which is equal for all spellings.
        record: int64, index of the record.
        size: int64, bytes.
        is_image, is_linked: bool.
    """

    names: _Keys
    paths: _Keys
    contents: _Keys
    record: np.ndarray
    size: np.ndarray
    is_image: np.ndarray
    is_linked: np.ndarray


class SplitPieces:
    """Pieces of a split, 0.6 kB of memory per record. Records are skipped if a different image file has the name of
    their image, or if an earlier record has their image id for another image.

    Args:
        has_label_files: True if images are identified by path and not by id, and need their label file.

    Attributes:
        faults: Errors of the shards and of skipped records.
        spoiled: Paths of files to delete.
        images, image_bytes: Number and size in bytes of image files.
        linked: Number of image files that are links.
        num_rows: Number of `rows`.
    """

    def __init__(self, folder: str, pieces: tuple[Piece, ...], table: FeatureTable, has_label_files: bool = False):
        self._folder = folder
        self._has_label_files = has_label_files
        self._pieces = pieces
        self._ends: list[int] = []  # end of each piece, in records
        self._numbers = array("q")  # number of each record within its shard
        self._image_ids, self._image_rows = _Keys(), _Keys()
        files = self._read()
        self._is_kept = np.ones(len(self._numbers), bool)
        faults = FaultList()
        for piece in pieces:
            faults.add_listed(piece.faults)
        faults.add(self._skip_name_clashes(files))
        faults.add(self._skip_duplicates(one_an_image=table.record_of is RecordOf.IMAGE))
        self.faults = faults.faults()
        images = np.unique(files.paths.first_of_each(np.flatnonzero(files.is_image & self._is_kept[files.record])))
        self.images, self.image_bytes = len(images), int(files.size[images].sum())
        self.linked = int(files.is_linked[images].sum())

    def _read(self) -> _Files:
        names, paths, contents = _Keys(), _Keys(), _Keys()
        record_indices, sizes, is_image, is_linked = array("q"), array("q"), array("b"), array("b")
        for piece in self._pieces:
            for record in read_piece_records(self._folder, piece):
                for number, file in enumerate(record.files):
                    names.add(name_key(file.path).encode())
                    paths.add(file.path.encode())
                    contents.add(file.sha256.encode())
                    record_indices.append(len(self._numbers))
                    sizes.append(file.bytes)
                    is_image.append(number == 0)
                    is_linked.append(file.is_linked)
                path = record.files[0].path.encode()
                self._image_ids.add(path if self._has_label_files else b"%d" % record.rows.image.id)
                self._image_rows.add(msgspec.json.encode((record.rows.image, record.files[0].path)))
                self._numbers.append(record.number)
            self._ends.append(len(self._numbers))
        columns = np.array(record_indices, np.int64), np.array(sizes, np.int64)
        return _Files(names, paths, contents, *columns, np.array(is_image, bool), np.array(is_linked, bool))

    def _skip_name_clashes(self, files: _Files) -> Iterator[Fault]:
        """Skip records whose image has the name of a different file. (Two rows may share an equal file.)"""
        indices = np.arange(len(files.record))
        first = files.names.first_of_each(indices)
        clashes = np.flatnonzero(files.contents.differ(indices, first))
        is_spoiled = np.isin(first, first[clashes])
        if self._has_label_files:
            is_spoiled = np.isin(files.record, files.record[is_spoiled])
        path_of: dict[int, str] = {}
        if is_spoiled.any():  # avoids another read of the pieces
            paths = (file.path for record in self._all_records() for file in record.files)
            path_of = {file: path for file, path in enumerate(paths) if is_spoiled[file]}
        self.spoiled = set(path_of.values())
        self._is_kept[files.record[is_spoiled & files.is_image]] = False
        _, one_a_name = np.unique(first[clashes], return_index=True)
        for file in clashes[one_a_name].tolist():
            records = files.record[first[file]], files.record[file]
            where = f"{self._where(records[0])} has a different file with that name; neither is kept"
            if not files.is_image[file] and self._has_label_files:
                images = (path_of[np.flatnonzero(files.is_image & (files.record == one))[0]] for one in records)
                where = (
                    f"the labels of {' and '.join(map(repr, images))} differ, so neither these nor the images are kept"
                )
            yield self._fault(files.record[file], "duplicate_name", f"{path_of[file]!r}: {where}")

    def _skip_duplicates(self, one_an_image: bool) -> Iterator[Fault]:
        """Skip records whose image differs from the first record with its id. Equal images share that record's row."""
        candidates = np.flatnonzero(self._is_kept)
        first = self._image_ids.first_of_each(candidates)
        self._has_row = np.zeros(len(self._is_kept), bool)
        self._has_row[first] = True
        self.num_rows = len(np.unique(first))
        is_other = (first != candidates) & (one_an_image | self._image_rows.differ(candidates, first))
        duplicates, originals = candidates[is_other], first[is_other]
        self._is_kept[duplicates] = False
        records = compress(self._all_records(), np.isin(np.arange(len(self._is_kept)), duplicates).tolist())
        for record, index, original in zip(records, duplicates, originals, strict=True) if len(duplicates) else ():
            image = record.files[0].path if self._has_label_files else f"image id {record.rows.image.id}"
            detail = f"{image} is also in {self._where(original)}; this record is skipped"
            yield self._fault(index, "duplicate_image_id", detail)

    def _all_records(self) -> Iterator[ExtractedRecord]:
        for piece in self._pieces:
            yield from read_piece_records(self._folder, piece)

    def _shard_of(self, record: int) -> str:
        return self._pieces[bisect_right(self._ends, record)].file

    def _where(self, record: int) -> str:
        return f"record {self._numbers[record]} of {self._shard_of(record)}"

    def _fault(self, record: int, reason: str, detail: str) -> Fault:
        return Fault(self._shard_of(record), self._numbers[record], reason, detail)

    def written_records(self) -> Iterator[ExtractedRecord]:
        """Yield the records that are not skipped."""
        return compress(self._all_records(), self._is_kept.tolist())

    def rows(self) -> Iterator[RecordRows]:
        """Yield the rows of each image, from its first record."""
        return (record.rows for record in compress(self._all_records(), self._has_row.tolist()))

    def image_rows(self) -> Iterator[Row]:
        for rows in self.rows():
            fields = nest_fields("image", rows.image_fields)
            row = msgspec.to_builtins(rows.image) | fields if fields else rows.image
            yield Row(rows.image.id, msgspec.json.encode(row))

    def objects(self, kind: str) -> Iterator[Row]:
        """Yield the rows of `instances` or `keypoints`."""
        for record in self.written_records():
            yield from getattr(record.rows, kind)

    def captions(self) -> Iterator[Row]:
        """Yield captions. Those without an id are numbered from 1."""
        captions = (caption for record in self.written_records() for caption in record.rows.captions)
        for number, row in enumerate(captions, 1):
            with_id = msgspec.structs.replace(row, id=number) if row.id is None else row
            yield Row(row.id, msgspec.json.encode(with_id))

    def panoptic(self, split: str) -> Iterator[Row]:
        """Yield the panoptic rows whose PNG was written and kept."""
        for record in self.written_records():
            if row := record.rows.panoptic:
                path = panoptic_path(split, row.file_name)
                if path not in self.spoiled and path in map(attrgetter("path"), record.files):
                    yield Row(None, msgspec.json.encode(row))


def write_split(
    group: tuple[str, Iterable[str]], folder: str, table: FeatureTable, labels: LabelMap, format_: str
) -> ExtractedSplit:
    """Write the documents of a split, and delete unusable files.

    Args:
        group: A split and its shards, which have pieces.
        format_: `coco` or one of `LABEL_FORMATS`.
    """
    split, shards = group
    pieces = SplitPieces(
        folder, tuple(read_shard_piece(folder, shard) for shard in sorted(shards)), table, format_ != "coco"
    )
    for path in sorted(pieces.spoiled):
        storage_for(folder).delete(join_path(folder, path))
    lost: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    if format_ == "coco":
        documents = tuple(_write_coco(folder, split, pieces, table, labels))
    else:
        documents = (write_list(folder, split, pieces, LABEL_FORMATS[format_], lost, notes),)
    counts = pieces.num_rows, pieces.images, pieces.image_bytes
    return ExtractedSplit(split, *counts, documents, pieces.faults, dict(lost), dict(notes), pieces.linked)


def write_list(
    folder: str, split: str, pieces: SplitPieces, format_: LabelFormat, lost: "Counter[str]", notes: "Counter[str]"
) -> Document:
    """Write the lines of a split's images for `join_lists`, if the format has lines. Their counts are added to `lost`
    and `notes`."""
    objects = 0
    path = _lines_path(folder, split)
    with storage_for(path).writing(path) if format_.list_file else nullcontext() as upload:
        for image in pieces.rows():
            objects += image.objects
            lost.update(image.lost)
            notes.update(image.notes)
            if upload is not None:
                upload.write(f"{image.line}\n".encode())
    return Document(format_.labels.format(split=split), objects)


def join_lists(
    folder: str, splits: Iterable[str], format_: LabelFormat, name: str, labels: LabelMap, table: FeatureTable
) -> None:
    """Write the files with a line per image, if the format has such files.

    Args:
        name: Name of the data set.
    """
    splits_by_file: dict[str, list[str]] = {}
    for split in sorted(splits) if format_.list_file else ():
        splits_by_file.setdefault(format_.list_file.format(split=split), []).append(split)
    for file, own in splits_by_file.items():
        paths, path = [_lines_path(folder, split) for split in own], join_path(folder, file)
        with storage_for(path).writing(path) as upload:
            upload.write(format_.head(name, own, labels, table, _lines(paths)))
            for number, line in enumerate(_lines(paths)):
                upload.write(format_.before(number) + line)
            upload.write(format_.foot)


def _lines_path(folder: str, split: str) -> str:
    return join_path(folder, f"{PIECES}/{split}.lines")


def _lines(paths: Iterable[str]) -> Iterator[bytes]:
    for path in paths:
        with storage_for(path).open(path) as file:
            yield from file


def _write_coco(
    folder: str, split: str, pieces: SplitPieces, table: FeatureTable, labels: LabelMap
) -> Iterator[Document]:
    """Write each kind of COCO file that the data set's records have contents for."""
    if "image.class_name" in table.sources:
        file = f"{ANNOTATIONS}/labels_{split}.csv"
        yield Document(file, _write_labels(join_path(folder, file), split, pieces, table))
    for name, annotations, categories in _contents(split, pieces, table, labels):
        file = f"{ANNOTATIONS}/{name}_{split}.json"
        yield Document(file, *write_document(join_path(folder, file), pieces.image_rows(), annotations, categories))


def _contents(
    split: str, pieces: SplitPieces, table: FeatureTable, labels: LabelMap
) -> Iterator[tuple[str, Iterable[Row], list[Category] | None]]:
    """Yield name, annotations and categories of each JSON file. Captions have no categories."""
    if "objects.id" not in table.sources or has_maps_only(table, labels):
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


def class_values(labels: LabelMap) -> ExtractedFile:
    """Return the table of the values of semantic masks and their classes, which `convert` reads."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("Pixel Value", "Class"))
    lines.writerows((category.id, category.name) for category in labels.segments)
    return ExtractedFile(CLASS_VALUES, text.getvalue().encode())


def write_document(
    path: str, images: Iterable[Row], annotations: Iterable[Row], categories: list[Category] | None
) -> tuple[int, int]:
    """Write a COCO file without holding it in memory. Return its number of annotations, and of ids that several share.

    Args:
        categories: None for a file without categories.
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
    """Write comma-separated rows; return their number and 64-bit ids."""
    number, ids, rest = 0, array("q"), iter(rows)
    while batch := list(islice(rest, _ROWS_AT_ONCE)):
        upload.write((b"," if number else b"") + b",".join(row.json for row in batch))
        ids.extend(row.id for row in batch if row.id is not None and abs(row.id) < 1 << 63)
        number += len(batch)
    return number, ids


LABEL_COLUMNS = ("path", "label", "split")


def _write_labels(path: str, split: str, pieces: SplitPieces, table: FeatureTable) -> int:
    """Write a CSV of image paths below the split's folder, classes, the split, and a column of each field of images.
    Return the number of rows."""
    paths = [column.path for column in field_columns(table) if column.path not in LABEL_COLUMNS]
    number = 0
    with storage_for(path).writing(path) as upload:
        utf8 = codecs.getwriter("utf-8")(upload)  # type: ignore[arg-type]  # an Upload only has write()
        lines = csv.writer(utf8, lineterminator="\n")
        lines.writerow((*LABEL_COLUMNS, *paths))
        for rows in (record.rows for record in pieces.written_records()):
            if rows.class_name is not None:
                cells = (_format_cell(rows.image_fields.get(path)) for path in paths)
                lines.writerow((rows.image.file_name, rows.class_name, split, *cells))
                number += 1
    return number


def _format_cell(value: Any) -> str:
    """Return the value of a field as a cell: a text unchanged, nothing for a missing value, JSON of others."""
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()
