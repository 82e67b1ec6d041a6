"""COCO annotation files become, for each image id, what the file says of it.

A file is read whole, as JSON has to be, and grouped by image id; boxes are decoded when their image is yielded.
"""

import contextlib
import gc
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection

from schemas.coco import Annotation, AnnotationFile, CocoImage, ImagePart
from schemas.rejects import Reason, Rejected
from transforms import coders, progress  # noqa: F401  coders registers that of ImagePart
from transforms.decode_coco import AnnotationRow, CocoRows, ImageRow, decode_coco
from transforms.outputs import FILES, REJECTED, tag_by_type
from transforms.storage import storage_for

_LOGGER = logging.getLogger(__name__)


class CocoFiles(NamedTuple):
    """What ReadCoco gives.

    Attributes:
        parts: (image id, ImagePart).
        files: AnnotationFile.
        rejected: Rejected.
    """

    parts: PCollection
    files: PCollection
    rejected: PCollection


class ReadCoco(beam.PTransform):
    """Paths of COCO object instance files become CocoFiles."""

    def expand(self, paths):
        read = paths | "ReadFile" >> beam.FlatMap(_read).with_output_types(tuple[int, ImagePart]).with_outputs(
            FILES, REJECTED, main="parts"
        )
        return CocoFiles(read.parts, read[FILES], read[REJECTED])


def _read(path: str) -> Iterator[Any]:
    progress.entered("reading annotations")
    return tag_by_type((item.image_id, item) if isinstance(item, ImagePart) else item for item in read_coco(path))


def read_coco(path: str) -> Iterator[ImagePart | AnnotationFile | Rejected]:
    """What a COCO object instance file (https://cocodataset.org/#format-data) holds.

    Yields an ImagePart for each image id its rows name, a Rejected for each row that cannot be used, and one
    AnnotationFile.

    Raises:
        AnnotationFileError: not JSON (the message gives line and column), or not COCO's.
        OSError: the file cannot be read.
    """
    _LOGGER.info("Reading %s", path)
    with _gc_paused():
        rows = decode_coco(path, storage_for(path).read(path))
        parts = _group(rows)
    yield from rows.rejected
    for image_id, images, annotations in parts:
        usable = []
        for row in annotations:
            annotation = _annotation(row)
            if isinstance(annotation, Rejected):
                yield annotation
            else:
                usable.append(annotation)
        yield ImagePart(image_id, path, tuple(map(_image, images)), tuple(usable))
    bad_images = sum(reject.what == "image" for reject in rows.rejected)
    yield AnnotationFile(
        path,
        len(rows.images) + bad_images,
        len(rows.annotations) + len(rows.rejected) - bad_images,
        tuple(rows.categories),
    )


def _group(rows: CocoRows) -> Iterator[tuple[int, list[ImageRow], list[AnnotationRow]]]:
    """Rows by image id; a sort of ids costs half of what a dict of lists does."""
    image_ids = np.fromiter((row.image_id for row in rows.annotations), np.int64, len(rows.annotations))
    order = np.argsort(image_ids, kind="stable")
    image_ids = image_ids[order]
    starts = np.flatnonzero(np.diff(image_ids, prepend=image_ids[:1] - 1))
    ends = np.append(starts, len(order))[1:]
    spans = dict(zip(image_ids[starts].tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True))
    images: dict[int, list[ImageRow]] = {}
    for row in rows.images:
        images.setdefault(row.id, []).append(row)

    def groups() -> Iterator[tuple[int, list[ImageRow], list[AnnotationRow]]]:
        for image_id in images.keys() | spans.keys():
            start, end = spans.get(image_id, (0, 0))
            yield image_id, images.get(image_id, []), [rows.annotations[place] for place in order[start:end].tolist()]

    return groups()


def _image(row: ImageRow) -> CocoImage:
    # Exporters that do not know the size write 0.
    known = row.width is not None and row.height is not None and row.width > 0 and row.height > 0
    return CocoImage(row.id, row.file_name, row.width if known else None, row.height if known else None)


_BOX = msgspec.json.Decoder(tuple[float, float, float, float])


def _annotation(row: AnnotationRow) -> Annotation | Rejected:
    try:
        box = _BOX.decode(row.bbox)
        fault = box_fault(box)
    except msgspec.DecodeError:
        fault = "bbox is not a list of four numbers"
    if fault:
        shown = bytes(row.bbox)[:100].decode(errors="replace")
        return Rejected("annotation", row.id, Reason.MALFORMED_BOX, f"{fault}: {shown}", row.image_id)
    area = row.area if row.area is not None else box[2] * box[3]
    if not abs(area) <= _LARGEST:
        return Rejected("annotation", row.id, Reason.MALFORMED_ANNOTATION, f"area is {area}", row.image_id)
    return Annotation(row.id, row.category_id, box, area, bool(row.iscrowd))


_LARGEST = 1e18
"""More pixels, or square pixels, than any image has; records keep 32-bit floats, which end at 3.4e38."""


def box_fault(bbox_xywh_px: tuple[float, float, float, float]) -> str:
    """What makes a box unusable whatever its image's size; empty for a good one.

    >>> box_fault((1.0, 2.0, -3.0, 4.0))
    'bbox has a negative width or height'
    """
    if not all(abs(number) <= _LARGEST for number in bbox_xywh_px):
        return "bbox has a number that is beyond any image"
    if bbox_xywh_px[2] < 0 or bbox_xywh_px[3] < 0:
        return "bbox has a negative width or height"
    return ""


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
