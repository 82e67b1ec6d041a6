"""The pieces of a split's shards become COCO's JSON files, or a table of labels where images are of one class each.
They are written as lines are merged, so that no list of images or annotations is in memory."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
import msgspec
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import Category
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.plan_report import Faults
from recordmill.transforms.extract.extract_lines import Lines
from recordmill.transforms.extract.extract_pieces import read_piece
from recordmill.transforms.extract.split_pieces import SplitPieces
from recordmill.transforms.storage.interface import Upload
from recordmill.transforms.storage.resolve import storage_for

ANNOTATIONS = "annotations"
"""The folder of the JSON files."""


class Document(msgspec.Struct, frozen=True):
    """A file, how many annotations, or labels, it has, and how many ids several of these have."""

    file: str
    annotations: int
    shared_ids: int = 0


class ExtractedSplit(msgspec.Struct, frozen=True):
    """What was written for a split. `image_bytes` is the size of its `images` files, which `rows` image rows name."""

    split: str
    rows: int
    images: int
    image_bytes: int
    documents: tuple[Document, ...]
    faults: Faults


@dataclass(eq=False, repr=False)
class WriteDocuments(beam.PTransform):
    """(split, a shard's file) become ExtractedSplit, its documents written below `folder` of the shards' pieces."""

    folder: str
    table: FeatureTable
    labels: LabelMap

    def expand(self, shards: PCollection[tuple[str, str]]) -> PCollection[ExtractedSplit]:
        return (
            shards
            | "GroupBySplit" >> beam.GroupByKey()  # (split, [file])
            | "Write" >> beam.Map(_write, self.folder, self.table, self.labels)
        )


def _write(group: tuple[str, Iterable[str]], folder: str, table: FeatureTable, labels: LabelMap) -> ExtractedSplit:
    return write_documents(*group, folder, table, labels)


def write_documents(
    split: str, shards: Iterable[str], folder: str, table: FeatureTable, labels: LabelMap
) -> ExtractedSplit:
    """Write the annotations of a split's records. Left out are records whose image file has the name of a different
    one, or whose image id an earlier record has for another image.

    Args:
        shards: whose pieces are there.
    """
    pieces = SplitPieces(folder, tuple(read_piece(folder, shard) for shard in sorted(shards)), table)
    storage = storage_for(folder)
    for path in sorted(pieces.spoiled):
        storage.delete(storage.join(folder, path))
    documents = []
    if "image.class_name" in table.sources:
        file = f"{ANNOTATIONS}/labels_{split}.csv"
        documents.append(Document(file, write_labels(storage.join(folder, file), split, pieces.labels())))
    for name, kind, annotations, categories in _contents(split, pieces, table, labels):
        file = f"{ANNOTATIONS}/{name}_{split}.json"
        number = write_document(storage.join(folder, file), pieces.images(), annotations, categories)
        documents.append(Document(file, number, pieces.shared_ids[kind]))
    files, size = pieces.image_files()
    rows = sum(map(len, pieces.images()))
    return ExtractedSplit(split, rows, files, size, tuple(documents), pieces.faults)


def write_document(
    path: str,
    images: Iterable[Sequence[bytes]],
    annotations: Iterable[Sequence[bytes]],
    categories: list[Category] | None,
) -> int:
    """Write a COCO file, which is not in memory at once; how many annotations it has.

    Args:
        images, annotations: the JSON of rows, in lists of some.
        categories: None for a file that has none.
    """
    upload = storage_for(path).create(path)
    try:
        upload.write(b'{"images":[')
        _write_rows(upload, images)
        upload.write(b'],"annotations":[')
        number = _write_rows(upload, annotations)
        end = b"" if categories is None else b',"categories":' + msgspec.json.encode(categories)
        upload.write(b"]" + end + b"}\n")
        upload.commit()
    finally:
        upload.abandon()  # nothing to do after a commit
    return number


def _write_rows(upload: Upload, lists: Iterable[Sequence[bytes]]) -> int:
    """Write rows between commas; how many there are."""
    number = 0
    for rows in filter(None, lists):
        upload.write((b"," if number else b"") + b",".join(rows))
        number += len(rows)
    return number


def write_labels(path: str, split: str, labels: Iterable[Sequence[tuple[str, str]]]) -> int:
    """Write a CSV of image paths below the split's folder of images, their classes and the split; how many there are.

    Args:
        labels: paths and classes in their order, in lists of some.
    """
    number = 0
    upload = storage_for(path).create(path)
    try:
        upload.write(_csv([("path", "label", "split")]))
        for part in labels:
            upload.write(_csv((*label, split) for label in part))
            number += len(part)
        upload.commit()
    finally:
        upload.abandon()  # nothing to do after a commit
    return number


def _csv(rows: Iterable[Sequence[str]]) -> bytes:
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue().encode()


def _contents(
    split: str, pieces: SplitPieces, table: FeatureTable, labels: LabelMap
) -> Iterator[tuple[str, Lines, Iterable[Sequence[bytes]], list[Category] | None]]:
    """Name, lines, JSON of annotations, categories (captions have none) of each file that the data set's records can
    fill."""
    if "objects.id" not in table.sources:
        return
    categories = [msgspec.structs.replace(category, isthing=None) for category in labels.categories]
    yield "instances", Lines.INSTANCES, pieces.objects(Lines.INSTANCES), categories
    if Part.KEYPOINTS in table.parts:
        figures = [category for category in categories if category.keypoints]
        yield "person_keypoints", Lines.KEYPOINTS, pieces.objects(Lines.KEYPOINTS), figures
    if Part.CAPTIONS in table.parts:
        yield "captions", Lines.CAPTIONS, pieces.captions(), None
    if "panoptic.png" in table.sources:
        yield "panoptic", Lines.PANOPTIC, pieces.panoptic(split), list(labels.segments)
