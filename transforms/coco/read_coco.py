"""COCO annotation files become, for each image id, what the file says of it.

A file is read whole, as JSON has to be, and grouped by image id; boxes are decoded when their image is yielded.
"""

import contextlib
import gc
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection

from recordmill.schemas.annotations import NO_LABELS, ImageLabels, ImageRow, name_keypoints
from recordmill.schemas.coco import AnnotationFile, AnnotationKind, AnnotationSource, FieldRows, FileAnnotations
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.coco.check_kind import check_kind
from recordmill.transforms.coco.convert_rows import Sizes, keypoints_by_rows, row_converter
from recordmill.transforms.coco.decode_coco import CocoImageRow, CocoRows, decode_coco
from recordmill.transforms.coco.file_fields import field_rows
from recordmill.transforms.coco.guess_box_format import check_box_format
from recordmill.transforms.runtime import coders, progress  # noqa: F401  coders: for the coder of FileAnnotations
from recordmill.transforms.runtime.outputs import FILES, REJECTED, count_rejects, route_outputs
from recordmill.transforms.storage.read_unpacked import read_unpacked

_LOGGER = logging.getLogger(__name__)


class CocoFiles(NamedTuple):
    """What ReadCoco gives.

    Attributes:
        parts: (image id, FileAnnotations).
        files: AnnotationFile.
        rejected: Rejected, of rows that give no image.
    """

    parts: PCollection
    files: PCollection
    rejected: PCollection


class ReadCoco(beam.PTransform):
    """AnnotationSource become CocoFiles; `masks` is whether segmentations of objects are wanted."""

    def __init__(self, masks: bool):
        super().__init__()
        self._masks = masks

    def expand(self, sources: PCollection[AnnotationSource]):
        read = sources | "ReadFile" >> beam.FlatMap(_read, self._masks).with_output_types(
            tuple[int, FileAnnotations]
        ).with_outputs(FILES, REJECTED, main="parts")
        return CocoFiles(read.parts, read[FILES], read[REJECTED])


def _read(source: AnnotationSource, masks: bool) -> Iterator[Any]:
    progress.set_step("reading annotations")
    items = with_rejects(source, read_coco(source, masks))
    return route_outputs(
        count_rejects((item.image_id, item) if isinstance(item, FileAnnotations) else item for item in items)
    )


def with_rejects(source: AnnotationSource, items: Iterable[Any]) -> Iterator[Any]:
    """What `read_coco` gives, where the rejects of an image's annotations go with the image, as they are counted in its
    split. Those of no image stay for themselves."""
    held: dict[int, list[Rejected]] = {}
    for item in items:
        if isinstance(item, Rejected) and item.image_id is not None:
            held.setdefault(item.image_id, []).append(item)
        elif isinstance(item, FileAnnotations) and item.image_id in held:
            yield msgspec.structs.replace(item, rejected=tuple(held.pop(item.image_id)))
        else:
            yield item
    for image_id, rejected in held.items():
        yield FileAnnotations(image_id, source.path, source.kind, (), rejected=tuple(rejected))


def read_coco(source: AnnotationSource, masks: bool = False) -> Iterator[FileAnnotations | AnnotationFile | Rejected]:
    """What a COCO file (https://cocodataset.org/#format-data) holds.

    Yields a FileAnnotations for each image id that its rows give, a Rejected for each row that cannot be used, and one
    AnnotationFile.

    Args:
        masks: whether annotations keep their segmentation.

    Raises:
        AnnotationFileError: not JSON (the message gives line and column), or not COCO's; a WrongFlagError, not of this
            kind, or boxes do not look like x, y, width, height in pixels.
        OSError: the file cannot be read.
    """
    path, kind = source.path, source.kind
    _LOGGER.info("Reading %s", path)
    with _gc_paused():
        rows = decode_coco(path, read_unpacked(path), kind, masks)
        check_kind(source, rows)
        sizes = _sizes(rows.images)
        if source.kind in _OF_OBJECTS and source.bbox_format is None:
            check_box_format(path, rows.annotations, sizes)
        parts = _group(rows)
    keypoints = keypoints_by_rows(rows.annotations, rows.categories) if kind is AnnotationKind.KEYPOINTS else {}
    categories = [name_keypoints(category, keypoints.get(category.id, 0)) for category in rows.categories]
    convert = row_converter(source, categories, sizes)
    yield from rows.rejected
    for image_id, images, annotations in parts:
        usable: list[Any] = []
        for row in annotations:
            annotation = convert(row)
            if isinstance(annotation, Rejected):
                yield annotation
            else:
                usable.append(annotation)
        yield _part(image_id, source, images, tuple(usable))
    yield _summary(source, rows, keypoints)


def _summary(source: AnnotationSource, rows: CocoRows, keypoints: dict[int, int]) -> AnnotationFile:
    bad_images = sum(reject.what == "image" for reject in rows.rejected)
    return AnnotationFile(
        source.path,
        source.kind,
        len(rows.images) + bad_images,
        len(rows.annotations) + len(rows.rejected) - bad_images,
        tuple(rows.categories),
        any(row.neg_category_ids is not None or row.not_exhaustive_category_ids is not None for row in rows.images),
        rows.unread,
        _optional(rows),
        keypoints,
        tuple(shared_ids_warnings(source.path, rows.annotations)),
    )


def shared_ids_warnings(path: str, rows: Sequence[Any]) -> Iterator[str]:
    """That annotations of several images have one id, if they do. (Those of one image are rejected but for one.)"""
    ids = [row.id for row in rows if hasattr(row, "id")]  # a panoptic row has none
    if len(set(ids)) == len(ids):
        return
    images: dict[int, set[int]] = {}
    for row in rows:
        images.setdefault(row.id, set()).add(row.image_id)
    shared = [id_ for id_, of_id in images.items() if len(of_id) > 1]
    if shared:
        first = min(shared)
        one, other = sorted(images[first])[:2]
        yield (
            f"{path}: annotations of different images share an id, as those of the images {one} and {other} share "
            f"{first} (number of such ids: {len(shared):,}); all are kept, but tools that look annotations up by id, "
            "such as pycocotools, find one of each: number them anew if you evaluate with them"
        )


_OF_OBJECTS = (AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS)


def _optional(rows: CocoRows) -> FieldRows:
    """How many rows are crowds, or have entries in LVIS's lists."""
    crowds = sum(bool(getattr(row, "iscrowd", 0)) for row in rows.annotations)
    lists = ("neg_category_ids", "not_exhaustive_category_ids")
    of_images = {name: sum(bool(getattr(row, name)) for row in rows.images) for name in lists}
    return field_rows({}, of_images, {"iscrowd": crowds})


def _part(
    image_id: int, source: AnnotationSource, images: list[CocoImageRow], usable: tuple[Any, ...]
) -> FileAnnotations:
    rows = tuple(map(_image, images))
    if source.kind in _OF_OBJECTS:
        return FileAnnotations(image_id, source.path, source.kind, rows, usable, _lvis_labels(images))
    labels = _lvis_labels(images)
    if source.kind is not AnnotationKind.IMAGE_INFO:
        labels = msgspec.structs.replace(labels, **{_LABELS[source.kind]: usable})
    return FileAnnotations(image_id, source.path, source.kind, rows, (), labels)


_LABELS = {
    AnnotationKind.CAPTIONS: "captions",
    AnnotationKind.STUFF: "regions",
    AnnotationKind.PANOPTIC: "panoptic",
}
"""Which of ImageLabels an annotation of a kind is."""


def _lvis_labels(images: list[CocoImageRow]) -> ImageLabels:
    for row in images[:1]:
        if row.neg_category_ids is not None or row.not_exhaustive_category_ids is not None:
            return ImageLabels(
                neg_category_ids=tuple(row.neg_category_ids or ()),
                not_exhaustive_category_ids=tuple(row.not_exhaustive_category_ids or ()),
            )
    return NO_LABELS


def _group(rows: CocoRows) -> Iterator[tuple[int, list[CocoImageRow], list[Any]]]:
    """Rows by image id; a sort of ids costs half of what a dict of lists does."""
    image_ids = np.fromiter((row.image_id for row in rows.annotations), np.int64, len(rows.annotations))
    order = np.argsort(image_ids, kind="stable")
    image_ids = image_ids[order]
    starts = np.flatnonzero(np.diff(image_ids, prepend=image_ids[:1] - 1))
    ends = np.append(starts, len(order))[1:]
    spans = dict(zip(image_ids[starts].tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True))
    images: dict[int, list[CocoImageRow]] = {}
    for row in rows.images:
        images.setdefault(row.id, []).append(row)

    def groups() -> Iterator[tuple[int, list[CocoImageRow], list[Any]]]:
        for image_id in images.keys() | spans.keys():
            start, end = spans.get(image_id, (0, 0))
            yield image_id, images.get(image_id, []), [rows.annotations[index] for index in order[start:end].tolist()]

    return groups()


def _image(row: CocoImageRow) -> ImageRow:
    return ImageRow(row.id, row.file_name, *(_size(row) or (None, None)))


def _sizes(images: list[CocoImageRow]) -> Sizes:
    """Width and height of images by id."""
    known = {row.id: size for row in images if (size := _size(row))}
    return {row.id: known.get(row.id) for row in images}


def _size(row: CocoImageRow) -> tuple[int, int] | None:
    # Exporters that do not know the size write 0.
    return (row.width, row.height) if row.width and row.height and row.width > 0 and row.height > 0 else None


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """The garbage collector would walk a million fresh rows again and again (a third of the time), and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
