"""Rows of COCO files become annotations of their kind, or rejects that say what is wrong with them."""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from recordmill.schemas.inputs.annotations import (
    Annotation,
    Caption,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
)
from recordmill.schemas.inputs.coco import AnnotationKind, AnnotationSource, BoxFormat
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.coco.coco_rows import AnnotationRow, KeypointsRow, PanopticRow, SegmentRow
from recordmill.transforms.coco.file_fields import has_numbers
from recordmill.transforms.coco.guess_box_format import BOX, LARGEST
from recordmill.transforms.storage.interface import Storage
from recordmill.transforms.storage.resolve import join_path, storage_for

_NUMBERS = msgspec.json.Decoder(tuple[float, ...] | None)

Converter = Callable[[Any], Annotation | Caption | StuffAnnotation | PanopticAnnotation | Rejected]
"""Makes of a row what the records need, or says why it cannot."""


def row_converter(source: AnnotationSource) -> Converter:
    """Return the converter of the rows of a file to annotations; a file of images only has none.

    A block of a file may have neither the size of an image nor the categories: boxes of another format than COCO's stay
    unchanged, and keypoints are as many as the row has, until `complete_annotations`.
    """
    of_object = _unconverted if other_format(source) else _annotation
    converters: dict[AnnotationKind, Converter] = {
        AnnotationKind.KEYPOINTS: partial(_with_keypoints, of_object),
        AnnotationKind.CAPTIONS: lambda row: Caption(row.id, row.caption),
        AnnotationKind.STUFF: lambda row: StuffAnnotation(row.id, row.category_id, bytes(row.segmentation)),
        AnnotationKind.PANOPTIC: partial(_panoptic, storage_for(source.masks), source.masks),
    }
    return converters.get(source.kind, of_object)


def other_format(source: AnnotationSource) -> BoxFormat | None:
    """The format of a file's boxes, where it is not COCO's."""
    return None if source.bbox_format is BoxFormat.XYWH else source.bbox_format


def _annotation(row: AnnotationRow, keypoints_xyv: tuple[float, ...] = ()) -> Annotation | Rejected:
    try:
        box = BOX.decode(row.bbox)
        fault = box_fault(box)
    except msgspec.DecodeError:
        fault = _NO_BOX
    if fault:
        return _malformed(row, Reason.MALFORMED_BOX, f"{fault}: {_shown(row.bbox)}")
    area = row.area if row.area is not None else box[2] * box[3]
    if not abs(area) <= LARGEST:
        return _malformed(row, Reason.MALFORMED_ANNOTATION, f"area is {area}")
    segmentation = bytes(getattr(row, "segmentation", b""))
    return Annotation(row.id, row.category_id, box, area, bool(row.iscrowd), segmentation, keypoints_xyv)


_NO_BOX = "bbox is not a list of four numbers"


def _unconverted(row: AnnotationRow, keypoints_xyv: tuple[float, ...] = ()) -> Annotation | Rejected:
    """… whose box has another format, and whose area is NaN where the row has none."""
    try:
        box = BOX.decode(row.bbox)
    except msgspec.DecodeError:
        return _malformed(row, Reason.MALFORMED_BOX, f"{_NO_BOX}: {_shown(row.bbox)}")
    area = row.area if row.area is not None else math.nan
    segmentation = bytes(getattr(row, "segmentation", b""))
    return Annotation(row.id, row.category_id, box, area, bool(row.iscrowd), segmentation, keypoints_xyv)


def _with_keypoints(convert: Callable[..., Annotation | Rejected], row: KeypointsRow) -> Annotation | Rejected:
    try:
        numbers = _NUMBERS.decode(row.keypoints) or () if row.keypoints else ()
    except msgspec.DecodeError:
        detail = f"keypoints are not a list of numbers: {_shown(row.keypoints)}"
        return _malformed(row, Reason.MALFORMED_KEYPOINTS, detail)
    return convert(row, numbers)


def keypoints_fault(numbers: tuple[float, ...], expected: int) -> str:
    """Return the error of x, y, visibility of `expected` keypoints; empty without.

    >>> keypoints_fault((4.0, 5.0, 2.0), 1), keypoints_fault((4.0, 5.0, 3.0), 1)
    ('', 'a visibility is not 0, 1 or 2')
    """
    if len(numbers) not in (0, 3 * expected):
        return f"{len(numbers)} numbers instead of {3 * expected}"
    if not all(abs(number) <= LARGEST for number in numbers):
        return "a number is beyond any image"
    if not all(visibility in (0, 1, 2) for visibility in numbers[2::3]):
        return "a visibility is not 0, 1 or 2"
    return ""


def count_keypoints(rows: Iterable[KeypointsRow]) -> dict[int, dict[int, int]]:
    """How many rows have how many keypoints, by category id; those that have some."""
    counts: dict[int, Counter[int]] = {}
    for row in rows:
        if has_numbers(row.keypoints):
            with contextlib.suppress(msgspec.DecodeError):
                number, rest = divmod(len(_NUMBERS.decode(row.keypoints) or ()), 3)
                if not rest:
                    counts.setdefault(row.category_id, Counter())[number] += 1
    return {id_: dict(of_category) for id_, of_category in counts.items()}


def _panoptic(storage: Storage, masks: str, row: PanopticRow) -> PanopticAnnotation | Rejected:
    segments = tuple(map(_segment, row.segments_info))
    fault = segments_fault(segments)
    if name_wrong := name_fault(row.file_name):
        fault = f"the file name {row.file_name!r} {name_wrong}"
    if fault:
        return Rejected("annotation", None, Reason.MALFORMED_PANOPTIC, fault, row.image_id)
    return PanopticAnnotation(join_path(masks, row.file_name), row.file_name, segments)


def _segment(row: SegmentRow) -> Segment:
    return Segment(row.id, row.category_id, bool(row.iscrowd), row.bbox, row.area)


def segments_fault(segments: tuple[Segment, ...]) -> str:
    """Return the error of a panoptic row's segments; empty without."""
    if len({segment.id for segment in segments}) < len(segments):
        return "two of its segments have the same id"
    for segment in segments:
        if segment.bbox_xywh_px and (fault := box_fault(segment.bbox_xywh_px)):
            return f"segment {segment.id}: {fault}"
        if segment.area_px2 is not None and not abs(segment.area_px2) <= LARGEST:
            return f"segment {segment.id}: area is {segment.area_px2}"
    return ""


def _malformed(row: AnnotationRow, reason: Reason, detail: str) -> Rejected:
    return Rejected("annotation", row.id, reason, detail, row.image_id)


def _shown(raw: msgspec.Raw) -> str:
    """A piece of JSON on one line."""
    return " ".join(bytes(raw)[:200].decode(errors="replace").split())[:100]


def box_fault(bbox_xywh_px: tuple[float, float, float, float]) -> str:
    """Return the error of a box, independent of its image's size; empty without.

    >>> box_fault((1.0, 2.0, -3.0, 4.0))
    'bbox has a negative width or height'
    """
    x, y, width, height = bbox_xywh_px
    # Written out, as it is asked for every box; NaN is not within, either.
    if not (abs(x) <= LARGEST and abs(y) <= LARGEST and abs(width) <= LARGEST and abs(height) <= LARGEST):
        return "bbox has a number that is beyond any image"
    if width < 0 or height < 0:
        return "bbox has a negative width or height"
    return ""
