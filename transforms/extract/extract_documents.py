"""The rows of a split's records become COCO's JSON files, or a table of labels where images are of one class each."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import Category
from recordmill.schemas.features import FeatureTable, Part, RecordOf
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.line_blocks import LineBlock
from recordmill.schemas.names import name_key
from recordmill.schemas.plan_report import Fault
from recordmill.transforms.extract.extract_files import WrittenFile
from recordmill.transforms.extract.extract_rows import (
    CaptionRow,
    ImageRow,
    PanopticRow,
    RecordRows,
    panoptic_path,
    row_of_line,
)
from recordmill.transforms.extract.extract_shards import ExtractedRecord, ExtractedShard
from recordmill.transforms.runtime.line_blocks import merged_lines
from recordmill.transforms.storage.resolve import storage_for

ANNOTATIONS = "annotations"
"""The folder of the JSON files."""


class Document(msgspec.Struct, frozen=True):
    """A file, and how many annotations, or labels, it has."""

    file: str
    annotations: int


class ExtractedSplit(msgspec.Struct, frozen=True):
    """What was written for a split. `image_bytes` is the size of its `images` files, which `rows` image rows name."""

    split: str
    rows: int
    images: int
    image_bytes: int
    documents: tuple[Document, ...]
    faults: tuple[Fault, ...]


class WriteDocuments(beam.PTransform):
    """(split, ExtractedShard) become ExtractedSplit, its documents written below `folder`."""

    def __init__(self, folder: str, table: FeatureTable, labels: LabelMap):
        super().__init__()
        self._folder = folder
        self._table = table
        self._labels = labels

    def expand(self, shards: PCollection[tuple[str, ExtractedShard]]) -> PCollection[ExtractedSplit]:
        return (
            shards
            | "GroupBySplit" >> beam.GroupByKey()  # (split, [ExtractedShard])
            | "Write" >> beam.Map(_write, self._folder, self._table, self._labels)
        )


def _write(
    group: tuple[str, Iterable[ExtractedShard]], folder: str, table: FeatureTable, labels: LabelMap
) -> ExtractedSplit:
    return write_documents(*group, folder, table, labels)


def write_documents(
    split: str, shards: Iterable[ExtractedShard], folder: str, table: FeatureTable, labels: LabelMap
) -> ExtractedSplit:
    """Write the annotations of a split's records. Left out are records whose image file has the name of a different
    one, or whose image id an earlier record has for another image."""
    shards = sorted(shards, key=lambda shard: shard.file)
    faults = [fault for shard in shards for fault in shard.faults]
    found = [_Found(shard.file, record) for shard in shards for record in shard.records]
    one_an_image = table.record_of is RecordOf.IMAGE
    spoiled = set()
    for collision in collisions(found):
        faults.append(collision.fault)
        spoiled |= set(collision.paths)
    storage = storage_for(folder)
    for path in sorted(spoiled):
        storage.delete(storage.join(folder, path))
    records = list(_of_one_image_each_id(found, spoiled, one_an_image, faults))
    images = {record.rows.image.id: record for record in reversed(records)}
    written = {record.files[0].path: record.files[0].bytes for record in images.values()}
    documents = []
    if "image.class_name" in table.sources:
        file = f"{ANNOTATIONS}/labels_{split}.csv"
        storage.write(storage.join(folder, file), labels_table(split, (record.rows for record in records)))
        documents.append(Document(file, len(records)))
    rows = [images[id_].rows.image for id_ in sorted(images)]
    of_objects = _ObjectRows(shards, found, records)
    for kind, annotations, categories in _contents(split, of_objects, records, spoiled, table, labels):
        file = f"{ANNOTATIONS}/{kind}_{split}.json"
        documents.append(Document(file, write_document(storage.join(folder, file), rows, annotations, categories)))
    return ExtractedSplit(split, len(images), len(written), sum(written.values()), tuple(documents), tuple(faults))


def write_document(
    path: str, images: Iterable[ImageRow], annotations: Iterable[Sequence[bytes]], categories: list[Category] | None
) -> int:
    """Write a COCO file, whose annotations are not in memory at once; how many there are.

    Args:
        annotations: the JSON of rows, in lists of some.
        categories: None for a file that has none.
    """
    number = 0
    upload = storage_for(path).create(path)
    try:
        upload.write(b'{"images":' + msgspec.json.encode(images) + b',"annotations":[')
        for rows in annotations:
            if rows:
                upload.write((b"," if number else b"") + b",".join(rows))
                number += len(rows)
        end = b"" if categories is None else b',"categories":' + msgspec.json.encode(categories)
        upload.write(b"]" + end + b"}\n")
        upload.commit()
    finally:
        upload.abandon()  # nothing to do after a commit
    return number


def labels_table(split: str, rows: Iterable[RecordRows]) -> bytes:
    """CSV of image paths below the split's folder of images, their classes and the split, by path."""
    lines = sorted((row.image.file_name, row.class_name or "", split) for row in rows)
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("path", "label", "split"))
    writer.writerows(lines)
    return table.getvalue().encode()


class _Found(NamedTuple):
    """A record, and the shard that it is in."""

    shard: str
    record: ExtractedRecord


class Collision(NamedTuple):
    """Records that have different files of one name, so that none of them can be kept; `paths` are its spellings."""

    paths: tuple[str, ...]
    fault: Fault


def collisions(found: Sequence[tuple[str, ExtractedRecord]]) -> Iterator[Collision]:
    """Names that several records use for different files. (The same file may well be that of two image rows.)"""
    users: dict[str, list[tuple[str, ExtractedRecord, WrittenFile]]] = {}
    for shard, record in found:
        for file in record.files:
            users.setdefault(name_key(file.path), []).append((shard, record, file))
    for (shard, first, file), *others in users.values():
        for other_shard, other, other_file in others:
            if other_file.sha256 != file.sha256:
                paths = tuple(sorted({file.path, *(each.path for _, _, each in others)}))
                where = f"record {first.number} of {shard} has that name for another file: neither is kept"
                fault = Fault(other_shard, other.number, "duplicate_name", f"{other_file.path!r}: {where}")
                yield Collision(paths, fault)
                break


def _of_one_image_each_id(
    found: Sequence[_Found], spoiled: set[str], one_an_image: bool, faults: list[Fault]
) -> Iterator[ExtractedRecord]:
    """Records whose image was kept, and is that of the first record with its id; `faults` takes the others."""
    first: dict[int, _Found] = {}
    for item in found:
        record, image = item.record, item.record.rows.image
        if record.files[0].path in spoiled:
            continue
        known = first.setdefault(image.id, item)
        if known is not item and (one_an_image or known.record.rows.image != image):
            detail = f"image id {image.id} is that of record {known.record.number} of {known.shard}, too"
            faults.append(Fault(item.shard, record.number, "duplicate_image_id", f"{detail}; this one is left out"))
        else:
            yield record


class _ObjectRows:
    """The JSON of the rows of objects, by id, but for those of records that are left out."""

    def __init__(self, shards: Iterable[ExtractedShard], found: Iterable[_Found], records: Iterable[ExtractedRecord]):
        self._shards = shards
        kept = set(map(id, records))
        self._left_out = {(item.shard, item.record.number) for item in found if id(item.record) not in kept}

    def instances(self) -> Iterator[list[bytes]]:
        return self._rows(shard.instances for shard in self._shards)

    def keypoints(self) -> Iterator[list[bytes]]:
        return self._rows(shard.keypoints for shard in self._shards)

    def _rows(self, blocks: Iterable[tuple[LineBlock, ...]]) -> Iterator[list[bytes]]:
        for lines in merged_lines(chain.from_iterable(blocks)):
            rows = map(row_of_line, lines)
            yield [json for shard, record, json in rows if (shard, record) not in self._left_out]


def _contents(
    split: str,
    of_objects: _ObjectRows,
    records: Sequence[ExtractedRecord],
    spoiled: set[str],
    table: FeatureTable,
    labels: LabelMap,
) -> Iterator[tuple[str, Iterable[Sequence[bytes]], list[Category] | None]]:
    """Kind, JSON of annotations, categories (captions have none) of each file that the data set's records can fill."""
    if "objects.id" not in table.sources:
        return
    rows = [record.rows for record in records]
    categories = [msgspec.structs.replace(category, isthing=None) for category in labels.categories]
    yield "instances", of_objects.instances(), categories
    if Part.KEYPOINTS in table.parts:
        figures = [category for category in categories if category.keypoints]
        yield "person_keypoints", of_objects.keypoints(), figures
    if Part.CAPTIONS in table.parts:
        yield "captions", _encoded(numbered_captions(row for of_record in rows for row in of_record.captions)), None
    if "panoptic.png" in table.sources:
        panoptic = sorted(_panoptic_rows(split, records, spoiled), key=_image_id)
        yield "panoptic", _encoded(panoptic), list(labels.segments)


def _panoptic_rows(split: str, records: Iterable[ExtractedRecord], spoiled: set[str]) -> Iterator[PanopticRow]:
    """Those whose PNG was written, and kept."""
    for record in records:
        row = record.rows.panoptic
        kept = {file.path for file in record.files} - spoiled
        if row and panoptic_path(split, row.file_name) in kept:
            yield row


def _encoded(rows: Iterable[CaptionRow] | Iterable[PanopticRow]) -> Iterator[list[bytes]]:
    return ([msgspec.json.encode(row)] for row in rows)


def numbered_captions(rows: Iterable[CaptionRow]) -> list[CaptionRow]:
    """Captions by id; those without one are numbered from 1 on, by image id, in the order that their record has."""
    ordered = sorted(rows, key=_image_id)
    return sorted(
        (msgspec.structs.replace(row, id=number) if row.id is None else row for number, row in enumerate(ordered, 1)),
        key=_ids,
    )


def _ids(row: Any) -> tuple[int, int]:
    return row.id, row.image_id


def _image_id(row: CaptionRow | PanopticRow) -> int:
    return row.image_id
