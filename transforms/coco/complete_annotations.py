"""What is said of an image is completed by what only the whole file tells: sizes of images, and categories."""

import math
from collections.abc import Mapping

import msgspec

from recordmill.schemas.annotations import Annotation, Category, unnamed_keypoints
from recordmill.schemas.coco import AnnotationKind, BoxFormat, FileAnnotations
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.coco.box_formats import LARGEST, box_area_px2, box_xywh_px
from recordmill.transforms.coco.convert_rows import box_fault, keypoints_fault

Categories = Mapping[int, Category]
"""Of objects, by id, with names for keypoints that have none."""


def complete_annotations(part: FileAnnotations, categories: Categories) -> FileAnnotations:
    """What a file says of an image, whose boxes are in pixels, and whose keypoints are as many as their category
    has."""
    if part.bbox_format is None and part.kind is not AnnotationKind.KEYPOINTS:
        return part
    kept: list[Annotation] = []
    rejected = list(part.rejected)
    for annotation in part.annotations:
        completed: Annotation | Rejected = annotation
        if part.bbox_format:
            completed = _in_pixels(annotation, part, part.bbox_format)
        if isinstance(completed, Annotation) and completed.keypoints_xyv:
            completed = _with_keypoints(completed, part.image_id, categories.get(annotation.category_id))
        if isinstance(completed, Annotation):
            kept.append(completed)
        else:
            rejected.append(completed)
    return msgspec.structs.replace(part, annotations=tuple(kept), rejected=tuple(rejected), bbox_format=None)


def _in_pixels(row: Annotation, part: FileAnnotations, format_: BoxFormat) -> Annotation | Rejected:
    numbers = row.bbox_xywh_px
    shown = _shown(numbers)
    width, height = next(((row.width, row.height) for row in reversed(part.rows) if row.width), (None, None))
    if format_ is not BoxFormat.XYXY and not (width and height):
        if not part.rows:
            detail = f"bbox is fractions of an image, and no image row of the file has the id {part.image_id}"
            return Rejected("annotation", row.id, Reason.UNKNOWN_IMAGE, detail, part.image_id)
        detail = f"bbox is fractions of an image whose width and height the file does not say: {shown}"
        return Rejected("annotation", row.id, Reason.MALFORMED_BOX, detail, part.image_id)
    box = box_xywh_px(numbers, format_, width or 0, height or 0)
    if fault := box_fault(box):
        return Rejected("annotation", row.id, Reason.MALFORMED_BOX, f"{fault}: {shown}", part.image_id)
    area = box[2] * box[3] if math.isnan(row.area_px2) else box_area_px2(row.area_px2, numbers, format_, box)
    if not abs(area) <= LARGEST:
        return Rejected("annotation", row.id, Reason.MALFORMED_ANNOTATION, f"area is {area}", part.image_id)
    return msgspec.structs.replace(row, bbox_xywh_px=box, area_px2=area)


def _with_keypoints(row: Annotation, image_id: int, category: Category | None) -> Annotation | Rejected:
    if category is None:  # which is rejected later
        return msgspec.structs.replace(row, keypoints_xyv=())
    expected = len(category.keypoints)
    if not (fault := keypoints_fault(row.keypoints_xyv, expected)):
        return row
    by_rows = " by most of its rows" if expected and category.keypoints == unnamed_keypoints(expected) else ""
    detail = f"category {category.name!r} has {expected} keypoints{by_rows}: {fault}: {_shown(row.keypoints_xyv)}"
    return Rejected("annotation", row.id, Reason.MALFORMED_KEYPOINTS, detail, image_id)


def _shown(numbers: tuple[float, ...]) -> str:
    return f"[{', '.join(f'{number:.15g}' for number in numbers)}]"[:100]
