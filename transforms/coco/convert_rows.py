"""Rows of COCO files become annotations of their kind, or rejects that say what is wrong with them."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from recordmill.schemas.annotations import (
    Annotation,
    Caption,
    Category,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
    unnamed_keypoints,
)
from recordmill.schemas.coco import AnnotationKind, AnnotationSource, BoxFormat
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.coco.box_formats import BOX, LARGEST, box_area_px2, box_xywh_px
from recordmill.transforms.coco.decode_coco import (
    AnnotationRow,
    CaptionRow,
    KeypointsRow,
    PanopticRow,
    RegionRow,
    SegmentRow,
)
from recordmill.transforms.coco.file_fields import has_numbers
from recordmill.transforms.storage.resolve import storage_for

_NUMBERS = msgspec.json.Decoder(tuple[float, ...] | None)

Sizes = Mapping[int, tuple[int, int] | None]
"""Width and height of images in pixels, by image id; None where the file does not say."""

Converter = Callable[[Any], Annotation | Caption | StuffAnnotation | PanopticAnnotation | Rejected]
"""Makes of a row what the records need, or says why it cannot."""


def row_converter(source: AnnotationSource, categories: list[Category], sizes: Sizes) -> Converter:
    """What makes annotations of the rows of a file; a file of images alone has none.

    Args:
        categories: of the file, with names for keypoints that have none.
        sizes: of its images.
    """
    return _CONVERTERS.get(source.kind, _annotation_converter)(source, categories, sizes)


def _annotation_converter(
    source: AnnotationSource, categories: list[Category], sizes: Sizes
) -> Callable[..., Annotation | Rejected]:
    """Of a row and, where it has some, its keypoints."""
    format_ = source.bbox_format or BoxFormat.XYWH
    if format_ is BoxFormat.XYWH:
        return _annotation

    def convert(row: AnnotationRow, keypoints_xyv: tuple[float, ...] = ()) -> Annotation | Rejected:
        size = sizes.get(row.image_id)
        if size is None and format_ is not BoxFormat.XYXY:
            if row.image_id not in sizes:
                detail = f"bbox is fractions of an image, and no image row of the file has the id {row.image_id}"
                return _malformed(row, Reason.UNKNOWN_IMAGE, detail)
            detail = "bbox is fractions of an image whose width and height the file does not say"
            return _malformed(row, Reason.MALFORMED_BOX, f"{detail}: {_shown(row.bbox)}")
        return _annotation(row, keypoints_xyv, format_, size or (0, 0))

    return convert


def _annotation(
    row: AnnotationRow,
    keypoints_xyv: tuple[float, ...] = (),
    format_: BoxFormat = BoxFormat.XYWH,
    size: tuple[int, int] = (0, 0),
) -> Annotation | Rejected:
    try:
        box = numbers = BOX.decode(row.bbox)
        if format_ is not BoxFormat.XYWH:  # the usual case is spared a call for each row
            box = box_xywh_px(numbers, format_, *size)
        fault = box_fault(box)
    except msgspec.DecodeError:
        fault = "bbox is not a list of four numbers"
    if fault:
        return _malformed(row, Reason.MALFORMED_BOX, f"{fault}: {_shown(row.bbox)}")
    area = row.area if row.area is not None else box[2] * box[3]
    if format_ is not BoxFormat.XYWH:
        area = box_area_px2(area, numbers, format_, box)
    if not abs(area) <= LARGEST:
        return _malformed(row, Reason.MALFORMED_ANNOTATION, f"area is {area}")
    segmentation = bytes(getattr(row, "segmentation", b""))
    return Annotation(row.id, row.category_id, box, area, bool(row.iscrowd), segmentation, keypoints_xyv)


def keypoints_by_rows(rows: Iterable[KeypointsRow], categories: Iterable[Category]) -> dict[int, int]:
    """How many keypoints most rows have, by id, of the categories that name none and have rows with some."""
    unnamed = {category.id for category in categories if not category.keypoints}
    counts: dict[int, Counter[int]] = {}
    for row in rows:
        if row.category_id in unnamed and has_numbers(row.keypoints):
            with contextlib.suppress(msgspec.DecodeError):
                number, rest = divmod(len(_NUMBERS.decode(row.keypoints) or ()), 3)
                if not rest:
                    counts.setdefault(row.category_id, Counter())[number] += 1
    return {
        id_: max(of_category, key=lambda number: (of_category[number], number)) for id_, of_category in counts.items()
    }


def _keypoints_converter(source: AnnotationSource, categories: list[Category], sizes: Sizes) -> Converter:
    annotation = _annotation_converter(source, categories, sizes)
    keypoints = {category.id: category.keypoints for category in categories}
    names = {category.id: category.name for category in categories}

    def convert(row: KeypointsRow) -> Annotation | Rejected:
        if not row.keypoints or row.category_id not in keypoints:  # an unknown category is rejected later
            return annotation(row)
        try:
            numbers = _NUMBERS.decode(row.keypoints) or ()
        except msgspec.DecodeError:
            detail = f"keypoints are not a list of numbers: {_shown(row.keypoints)}"
            return _malformed(row, Reason.MALFORMED_KEYPOINTS, detail)
        expected = len(keypoints[row.category_id])
        if fault := keypoints_fault(numbers, expected):
            is_unnamed = expected and keypoints[row.category_id] == unnamed_keypoints(expected)
            by_rows = " by most of its rows" if is_unnamed else ""
            category = f"category {names[row.category_id]!r} has {expected} keypoints{by_rows}"
            detail = f"{category}: {fault}: {_shown(row.keypoints)}"
            return _malformed(row, Reason.MALFORMED_KEYPOINTS, detail)
        return annotation(row, numbers)

    return convert


def keypoints_fault(numbers: tuple[float, ...], expected: int) -> str:
    """What makes x, y, visibility of `expected` keypoints unusable; empty for good ones.

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


def _caption_converter(source: AnnotationSource, categories: list[Category], sizes: Sizes) -> Converter:
    def convert(row: CaptionRow) -> Caption:
        return Caption(row.id, row.caption)

    return convert


def _region_converter(source: AnnotationSource, categories: list[Category], sizes: Sizes) -> Converter:
    def convert(row: RegionRow) -> StuffAnnotation:
        return StuffAnnotation(row.id, row.category_id, bytes(row.segmentation))

    return convert


def _panoptic_converter(source: AnnotationSource, categories: list[Category], sizes: Sizes) -> Converter:
    masks = storage_for(source.masks)

    def convert(row: PanopticRow) -> PanopticAnnotation | Rejected:
        segments = tuple(map(_segment, row.segments_info))
        fault = segments_fault(segments)
        if name_wrong := name_fault(row.file_name):
            fault = f"the file name {row.file_name!r} {name_wrong}"
        if fault:
            return Rejected("annotation", None, Reason.MALFORMED_PANOPTIC, fault, row.image_id)
        return PanopticAnnotation(masks.join(source.masks, row.file_name), row.file_name, segments)

    return convert


def _segment(row: SegmentRow) -> Segment:
    return Segment(row.id, row.category_id, bool(row.iscrowd), row.bbox, row.area)


def segments_fault(segments: tuple[Segment, ...]) -> str:
    """What makes a panoptic row's segments unusable; empty for good ones."""
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
    """What makes a box unusable whatever its image's size; empty for a good one.

    >>> box_fault((1.0, 2.0, -3.0, 4.0))
    'bbox has a negative width or height'
    """
    if not all(abs(number) <= LARGEST for number in bbox_xywh_px):
        return "bbox has a number that is beyond any image"
    if bbox_xywh_px[2] < 0 or bbox_xywh_px[3] < 0:
        return "bbox has a negative width or height"
    return ""


_CONVERTERS: dict[AnnotationKind, Callable[[AnnotationSource, list[Category], Sizes], Converter]] = {
    AnnotationKind.INSTANCES: _annotation_converter,
    AnnotationKind.KEYPOINTS: _keypoints_converter,
    AnnotationKind.CAPTIONS: _caption_converter,
    AnnotationKind.STUFF: _region_converter,
    AnnotationKind.PANOPTIC: _panoptic_converter,
}
