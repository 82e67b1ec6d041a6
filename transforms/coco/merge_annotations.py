"""Merge the annotations of several files for one image: one list of objects, and one list of each other kind."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter, lt
from typing import Any, NamedTuple, TypeVar

import msgspec

from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import (
    NO_LABELS,
    AnnotatedImage,
    Annotation,
    Caption,
    Category,
    ImageLabels,
    ImageRow,
    PanopticAnnotation,
    StuffAnnotation,
    unnamed_keypoints,
)
from recordmill.schemas.inputs.boxes import LARGEST, box_area_px2, box_fault, box_xywh_px, keypoints_fault
from recordmill.schemas.inputs.coco import AnnotationKind, BoxFormat, FileAnnotations
from recordmill.schemas.inputs.images import MAX_PIXELS
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected
from recordmill.transforms.join.field_values import merge_fields


def merge_parts(image_id: int, parts: Iterable[FileAnnotations]) -> Iterator[AnnotatedImage | Rejected | Count]:
    """Merge the rows of all annotation files for one image id to one AnnotatedImage without a split.

    Rejects: all rows, if a file has different file names with the id, because its annotations may belong to any of the
    images; a second equal row; annotations, if no file has an image row with the id; a second annotation with the same
    id; and an image whose rows have different sizes.

    Raises:
        CollidingImagesError: Two files have different file names with the id, so that annotations are ambiguous.
    """
    parts = sorted(parts, key=lambda part: (part.source, part.kind))
    name = min((row.file_name for part in parts for row in part.rows), default=parts[0].source)
    for item in _merge_rows(image_id, parts):
        yield item.named(name) if isinstance(item, Rejected) else item


def _merge_rows(image_id: int, parts: list[FileAnnotations]) -> Iterator[AnnotatedImage | Rejected | Count]:
    merged = merge_annotations(image_id, parts)
    if merged.joined:
        yield Count(Metric.ANNOTATIONS_MERGED, merged.joined)
    listing = [part for part in parts if part.rows]
    yield from merged.rejected
    for part in parts:
        yield from part.rejected
    if not listing:
        labels = merged.labels
        rows: list[Any] = [*merged.annotations, *labels.captions, *labels.regions, *labels.panoptic]
        for row in rows:
            detail = f"no image row has the id {image_id}"
            yield Rejected("annotation", getattr(row, "id", None), Reason.UNKNOWN_IMAGE, detail, image_id)
        return
    image, reason, detail = _choose_image_row(listing)
    fields, other_values = merge_fields(row.fields for part in listing for row in part.rows)
    image = msgspec.structs.replace(image, fields=fields)
    annotated = AnnotatedImage(image, "", merged.annotations, merged.labels, merged.joined)
    same = f"another row of its file says the same of {image.file_name!r}"
    again = Rejected("image", image_id, Reason.DUPLICATE_IMAGE_ID, detail if reason is _AMBIGUOUS else same)
    yield from [again] * sum(len(part.rows) - 1 for part in listing)
    if len(listing) > 1:
        yield Count(Metric.ROWS_MERGED, len(listing) - 1)
    if merged.other_fields + other_values:
        yield Count(Metric.OTHER_FIELDS, merged.other_fields + other_values)
    yield Rejected("image", image_id, reason, detail, annotations=annotated.annotation_rows) if reason else annotated


_AMBIGUOUS = Reason.DUPLICATE_IMAGE_ID
_NAMES_SHOWN = 3


def _choose_image_row(parts: list[FileAnnotations]) -> tuple[ImageRow, Reason | None, str]:
    """Return the row that all files agree on, and the reject reason (None without) and detail of the image."""
    for part in parts:
        if len(part.rows) > 1 and len(names := {name_key(row.file_name): row.file_name for row in part.rows}) > 1:
            shown = ", ".join(map(repr, sorted(names.values())[:_NAMES_SHOWN])) + " …" * (len(names) > _NAMES_SHOWN)
            detail = (
                f"{part.source} gives this id to {len(names)} images, {shown}: all are rejected, because "
                f"the {len(part.annotations) + part.labels.rows} annotations of the id may belong to any of them"
            )
            return part.rows[0], _AMBIGUOUS, detail
    image = parts[0].rows[0]
    sizes: dict[tuple[int | None, int | None], str] = {}
    rows = [(row, part.source) for part in parts for row in part.rows]
    for row, source in rows:
        if row.file_name != image.file_name and name_key(row.file_name) != name_key(image.file_name):
            raise CollidingImagesError(
                f"image id {image.id} is {image.file_name!r} in {parts[0].source} and {row.file_name!r} in "
                f"{source}: the files use one id for different images, so joining them would mix up annotations. "
                "Convert each with a separate --split, or renumber one"
            )
        if row.width:
            image = image if image.width else row
            sizes.setdefault((row.width, row.height), source)
    if len(sizes) > 1:
        shown_sizes = " but ".join(f"{width}x{height} in {source}" for (width, height), source in sizes.items())
        return image, Reason.SIZE_MISMATCH, f"{image.file_name!r} is {shown_sizes}"
    if image.width and image.height and image.width * image.height > MAX_PIXELS:
        fault = f"the JSON gives {image.width}x{image.height} pixels; at most {MAX_PIXELS:,} are decoded"
        return image, Reason.TOO_LARGE, f"{image.file_name!r}: {fault}"
    return image, None, ""


class MergedAnnotations(NamedTuple):
    """Merged annotations of an image.

    Attributes:
        annotations: Objects, ordered by annotation id.
        joined: Number of keypoints rows that were joined with an instances row.
        other_fields: Number of values of open fields that are not those of the first of the joined rows.
    """

    annotations: tuple[Annotation, ...]
    labels: ImageLabels
    rejected: list[Rejected]
    joined: int
    other_fields: int = 0


def merge_annotations(image_id: int, parts: Sequence[FileAnnotations]) -> MergedAnnotations:
    """Merge the annotations of all files for an image.

    A row of a keypoints file and a row of an instances file with the same annotation id and category are one object. Of
    other rows with the same id the first is kept: by the name of the file, then by its order.
    """
    rejected: list[Rejected] = []
    object_parts = [part for part in parts if part.annotations]
    ids = [annotation.id for part in object_parts for annotation in part.annotations]
    if len(object_parts) == 1 and all(map(lt, ids, ids[1:])):  # common case: no sort
        annotations, joined, other_fields = object_parts[0].annotations, 0, 0
    else:
        annotations, joined, other_fields = _merge_objects(image_id, object_parts, rejected)
    if all(part.labels is NO_LABELS for part in parts):  # common case
        labels = NO_LABELS
    else:
        labels = ImageLabels(
            _merge_unique(image_id, parts, lambda part: part.labels.captions, rejected),
            _merge_unique(image_id, parts, lambda part: part.labels.regions, rejected),
            _merge_panoptic(image_id, parts, rejected),
            _first_list(part.labels.neg_category_ids for part in parts),
            _first_list(part.labels.not_exhaustive_category_ids for part in parts),
        )
    return MergedAnnotations(annotations, labels, rejected, joined, other_fields)


def _merge_objects(
    image_id: int, parts: Sequence[FileAnnotations], rejected: list[Rejected]
) -> tuple[tuple[Annotation, ...], int, int]:
    """Return objects with unique ids, ordered by id, the number of joined rows, and `MergedAnnotations.other_fields`.
    `rejected` gets the duplicates."""
    rows = sorted(
        ((annotation, part) for part in parts for annotation in part.annotations),
        # Instances come first. The sort is stable, so the rows of a file keep their order.
        key=lambda row: (row[0].id, row[1].kind is AnnotationKind.KEYPOINTS, row[1].source),
    )
    merged: list[tuple[Annotation, FileAnnotations]] = []
    joined = other_fields = 0
    for annotation, part in rows:
        before, first = merged[-1] if merged else (None, part)
        if before is None or before.id != annotation.id:
            merged.append((annotation, part))
            continue
        is_joined = first.kind is AnnotationKind.INSTANCES and part.kind is AnnotationKind.KEYPOINTS
        if is_joined and before.category_id == annotation.category_id:
            fields, other_values = merge_fields((before.fields, annotation.fields))
            merged[-1] = msgspec.structs.replace(before, keypoints_xyv=annotation.keypoints_xyv, fields=fields), part
            joined += 1
            other_fields += other_values
        else:
            rejected.append(_reject_duplicate(image_id, annotation.id, first.source, part.source))
    return tuple(annotation for annotation, _ in merged), joined, other_fields


def _reject_duplicate(image_id: int, annotation_id: int | None, first: str, second: str) -> Rejected:
    where = f"twice in {first}" if first == second else f"in {first} and in {second}"
    detail = f"an annotation of this id is {where}; the first is kept"
    return Rejected("annotation", annotation_id, Reason.DUPLICATE_ANNOTATION_ID, detail, image_id)


_Row = TypeVar("_Row", Caption, StuffAnnotation)


def _merge_unique(
    image_id: int,
    parts: Iterable[FileAnnotations],
    rows_of: Callable[[FileAnnotations], tuple[_Row, ...]],
    rejected: list[Rejected],
) -> tuple[_Row, ...]:
    """Return the rows of all parts with unique ids, ordered by id. `rejected` gets the duplicates."""
    rows = sorted(((row, part.source) for part in parts for row in rows_of(part)), key=lambda row: (row[0].id, row[1]))
    unique: list[tuple[_Row, str]] = []
    for row, source in rows:
        if unique and unique[-1][0].id == row.id:
            rejected.append(_reject_duplicate(image_id, row.id, unique[-1][1], source))
        else:
            unique.append((row, source))
    return tuple(row for row, _ in unique)


def _merge_panoptic(
    image_id: int, parts: Iterable[FileAnnotations], rejected: list[Rejected]
) -> tuple[PanopticAnnotation, ...]:
    rows = sorted(((row, part.source) for part in parts for row in part.labels.panoptic), key=itemgetter(1))
    for row, source in rows[1:]:
        detail = f"{source} has another panoptic row of this image, {row.file_name!r}, after {rows[0][0].file_name!r}"
        rejected.append(Rejected("annotation", None, Reason.DUPLICATE_ANNOTATION_ID, detail, image_id))
    return tuple(row for row, _ in rows[:1])


def _first_list(lists: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return next(filter(None, lists), ())


def complete_annotations(part: FileAnnotations, categories: Mapping[int, Category]) -> FileAnnotations:
    """Convert boxes to pixels, and check the number of keypoints, of a file's rows for an image.

    Args:
        categories: Categories of objects by id. Unnamed keypoints have been named.
    """
    if part.bbox_format is None and part.kind is not AnnotationKind.KEYPOINTS:
        return part
    usable: list[Annotation] = []
    rejected = list(part.rejected)
    for annotation in part.annotations:
        completed: Annotation | Rejected = annotation
        if part.bbox_format:
            completed = _convert_box(annotation, part, part.bbox_format)
        if isinstance(completed, Annotation) and completed.keypoints_xyv:
            completed = _check_keypoints(completed, part.image_id, categories.get(annotation.category_id))
        if isinstance(completed, Annotation):
            usable.append(completed)
        else:
            rejected.append(completed)
    return msgspec.structs.replace(part, annotations=tuple(usable), rejected=tuple(rejected), bbox_format=None)


def _convert_box(row: Annotation, part: FileAnnotations, format_: BoxFormat) -> Annotation | Rejected:
    def rejected(reason: Reason, detail: str) -> Rejected:
        return Rejected("annotation", row.id, reason, detail, part.image_id)

    numbers = row.bbox_xywh_px
    shown = _format_numbers(numbers)
    width, height = next(((row.width, row.height) for row in reversed(part.rows) if row.width), (None, None))
    if format_.is_fraction and not (width and height):
        if not part.rows:
            detail = f"bbox is fractions of an image, and no image row of the file has the id {part.image_id}"
            return rejected(Reason.UNKNOWN_IMAGE, detail)
        detail = f"bbox is fractions of an image whose width and height are missing from the file: {shown}"
        return rejected(Reason.MALFORMED_BOX, detail)
    box = box_xywh_px(numbers, format_, width or 0, height or 0)
    if fault := box_fault(box):
        return rejected(Reason.MALFORMED_BOX, f"{fault}: {shown}")
    area = box[2] * box[3] if math.isnan(row.area_px2) else box_area_px2(row.area_px2, numbers, format_, box)
    if not abs(area) <= LARGEST:
        return rejected(Reason.MALFORMED_ANNOTATION, f"area is {area}")
    return msgspec.structs.replace(row, bbox_xywh_px=box, area_px2=area)


def _check_keypoints(row: Annotation, image_id: int, category: Category | None) -> Annotation | Rejected:
    if category is None:  # screen_annotations rejects the object
        return msgspec.structs.replace(row, keypoints_xyv=())
    expected = len(category.keypoints)
    if not (fault := keypoints_fault(row.keypoints_xyv, expected)):
        return row
    by_rows = " by most of its rows" if expected and category.keypoints == unnamed_keypoints(expected) else ""
    detail = (
        f"category {category.name!r} has {expected} keypoints{by_rows}: {fault}: {_format_numbers(row.keypoints_xyv)}"
    )
    return Rejected("annotation", row.id, Reason.MALFORMED_KEYPOINTS, detail, image_id)


def _format_numbers(numbers: tuple[float, ...]) -> str:
    return f"[{', '.join(f'{number:.15g}' for number in numbers)}]"[:100]
