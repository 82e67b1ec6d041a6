"""Convert rows of COCO files to Blocks of images and annotations. Faulty rows become rejects."""

import contextlib
import math
import posixpath
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.block import Block, Ragged, ragged_bytes, ragged_texts
from recordmill.schemas.inputs.annotations import (
    NO_LABELS,
    Annotation,
    Caption,
    ImageLabels,
    PanopticAnnotation,
    Segment,
    StuffAnnotation,
)
from recordmill.schemas.inputs.boxes import BOX, LARGEST, box_fault
from recordmill.schemas.inputs.coco import AnnotationBlock, AnnotationKind, AnnotationSource, BoxFormat
from recordmill.schemas.inputs.files import File
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import IdTexts, Reason, Rejected
from recordmill.transforms.blocks.image_tasks import label_column, object_columns, with_id_texts
from recordmill.transforms.coco.coco_rows import AnnotationRow, CocoImageRow, KeypointsRow, PanopticRow
from recordmill.transforms.coco.decode_coco import CocoRows
from recordmill.transforms.coco.file_fields import has_numbers
from recordmill.transforms.runtime.beam_steps import pack
from recordmill.transforms.storage.resolve import join_path

_NUMBERS = msgspec.json.Decoder(tuple[float, ...] | None)

Converter = Callable[[Any], Annotation | Caption | StuffAnnotation | PanopticAnnotation | Rejected]
"""Function from a row to an annotation, or to the reject of a faulty row."""


def row_converter(source: AnnotationSource) -> Converter:
    """Return the converter of a file's annotation rows.

    A block of a file may lack the image sizes and the categories. So `complete_annotations` converts boxes that are not
    in COCO's format, and checks the number of keypoints. Both are unchanged here.
    """
    convert_object = partial(_convert_object, is_xywh=not other_format(source))
    converters: dict[AnnotationKind, Converter] = {
        AnnotationKind.KEYPOINTS: partial(_convert_keypoints, convert_object),
        AnnotationKind.CAPTIONS: lambda row: Caption(row.id, row.caption),
        AnnotationKind.STUFF: lambda row: StuffAnnotation(row.id, row.category_id, bytes(row.segmentation)),
        AnnotationKind.PANOPTIC: partial(_convert_panoptic, source.masks),
    }
    return converters.get(source.kind, convert_object)


def other_format(source: AnnotationSource) -> BoxFormat | None:
    """Return the box format of a file. Return None for COCO's format, and for a file without a declared format."""
    return None if source.bbox_format is BoxFormat.XYWH else source.bbox_format


def _convert_object(
    row: AnnotationRow, keypoints_xyv: tuple[float, ...] = (), is_xywh: bool = True
) -> Annotation | Rejected:
    """Convert a row. If `is_xywh` is False, `bbox` is unchanged, and a missing area is NaN."""
    try:
        box = BOX.decode(row.bbox)
        fault = box_fault(box) if is_xywh else ""
    except msgspec.DecodeError:
        fault = "bbox is not a list of four numbers"
    if fault:
        return _reject_row(row, Reason.MALFORMED_BOX, f"{fault}: {_shorten_json(row.bbox)}")
    area = row.area
    if area is None:
        area = box[2] * box[3] if is_xywh else math.nan
    if is_xywh and not abs(area) <= LARGEST:
        return _reject_row(row, Reason.MALFORMED_ANNOTATION, f"area is {area}")
    segmentation = bytes(getattr(row, "segmentation", b""))
    return Annotation(row.id, row.category_id, box, area, bool(row.iscrowd), segmentation, keypoints_xyv)


def _convert_keypoints(convert: Callable[..., Annotation | Rejected], row: KeypointsRow) -> Annotation | Rejected:
    try:
        numbers = _NUMBERS.decode(row.keypoints) or () if row.keypoints else ()
    except msgspec.DecodeError:
        detail = f"keypoints are not a list of numbers: {_shorten_json(row.keypoints)}"
        return _reject_row(row, Reason.MALFORMED_KEYPOINTS, detail)
    return convert(row, numbers)


def count_keypoints(rows: Iterable[KeypointsRow]) -> dict[int, dict[int, int]]:
    """Count rows: by category id, then by number of keypoints. Rows without keypoints are not counted."""
    counts = defaultdict[int, Counter[int]](Counter)
    for row in rows:
        if has_numbers(row.keypoints):
            with contextlib.suppress(msgspec.DecodeError):
                number, rest = divmod(len(_NUMBERS.decode(row.keypoints) or ()), 3)
                if not rest:
                    counts[row.category_id][number] += 1
    return {id_: dict(category_counts) for id_, category_counts in counts.items()}


def keypoint_reach(rows: Iterable[KeypointsRow]) -> float:
    """Return the largest coordinate of a keypoint; 0 without keypoints."""
    reach = 0.0
    for row in rows:
        with contextlib.suppress(msgspec.DecodeError):
            numbers = _NUMBERS.decode(row.keypoints) or []
            reach = max((reach, *numbers[::3], *numbers[1::3]))
    return reach


def _convert_panoptic(masks: str, row: PanopticRow) -> PanopticAnnotation | Rejected:
    segments = tuple(Segment(e.id, e.category_id, bool(e.iscrowd), e.bbox, e.area) for e in row.segments_info)
    fault = segments_fault(segments)
    if name_wrong := name_fault(row.file_name):
        fault = f"the file name {row.file_name!r} {name_wrong}"
    if fault:
        return Rejected("annotation", None, Reason.MALFORMED_PANOPTIC, fault, row.image_id)
    return PanopticAnnotation(File(join_path(masks, row.file_name)), row.file_name, segments)


def segments_fault(segments: tuple[Segment, ...]) -> str:
    """Return the fault of the segments of a panoptic row; "" if they are valid."""
    if len({segment.id for segment in segments}) < len(segments):
        return "two of its segments have the same id"
    for segment in segments:
        if segment.bbox_xywh_px and (fault := box_fault(segment.bbox_xywh_px)):
            return f"segment {segment.id}: {fault}"
        if segment.area_px2 is not None and not abs(segment.area_px2) <= LARGEST:
            return f"segment {segment.id}: area is {segment.area_px2}"
    return ""


def _reject_row(row: AnnotationRow, reason: Reason, detail: str) -> Rejected:
    return Rejected("annotation", row.id, reason, detail, row.image_id)


def _shorten_json(raw: msgspec.Raw) -> str:
    """Return JSON text on one line, at most 100 characters."""
    return " ".join(bytes(raw)[:200].decode(errors="replace").split())[:100]


# Blocks

LABELS = {
    AnnotationKind.CAPTIONS: "captions",
    AnnotationKind.STUFF: "regions",
    AnnotationKind.PANOPTIC: "panoptic",
}
"""Field of ImageLabels for each kind of annotation."""
_BOXES = msgspec.json.Decoder(list[tuple[float, float, float, float]])


def row_size_px(row: CocoImageRow) -> tuple[int, int] | None:
    """Return width and height in pixels; None if unknown. Exporters that do not know the size write 0."""
    return (row.width, row.height) if row.width and row.height and row.width > 0 and row.height > 0 else None


def convert_image_rows(block: AnnotationBlock, rows: CocoRows, sources: Sequence[AnnotationSource]) -> Block:
    """Return the image rows of a file's block as a Block, in the order of the file. Image ids may repeat.

    Args:
        rows: Decoded rows of `block`.
        sources: All annotation files, see `join_annotations`.
    """
    names = [posixpath.normpath(row.file_name) if "/../" in row.file_name else row.file_name for row in rows.images]
    converted = Block(
        image_id=np.array([row.id for row in rows.images], np.int64),
        file_name=ragged_texts(names),
        image_size_px=np.array([row_size_px(row) or (0, 0) for row in rows.images], np.int64).reshape(-1, 2),
        labels=label_column(list(map(_lvis_labels, rows.images))),
        image_fields=_fields_column(rows.image_fields.texts),
    )
    return _add_origin(converted, block, rows, sources)


def _fields_column(texts: list[bytes]) -> Ragged | None:
    return ragged_bytes(texts) if any(texts) else None


def _add_origin(converted: Block, block: AnnotationBlock, rows: CocoRows, sources: Sequence[AnnotationSource]) -> Block:
    """Add string ids, and the columns `source` and `part`: index of the file, and number of the block in the file."""
    source, part = (np.full(len(converted), number, np.int64) for number in (sources.index(block.source), block.number))
    return with_id_texts(converted, rows.id_texts).replace(source=source, part=part)


def _lvis_labels(row: CocoImageRow) -> ImageLabels:
    if row.neg_category_ids is None and row.not_exhaustive_category_ids is None:
        return NO_LABELS
    return ImageLabels(
        neg_category_ids=tuple(row.neg_category_ids or ()),
        not_exhaustive_category_ids=tuple(row.not_exhaustive_category_ids or ()),
    )


def convert_annotation_rows(block: AnnotationBlock, rows: CocoRows, sources: Sequence[AnnotationSource]) -> Block:
    """Return annotations and rejects with an image id, grouped by image, in file order. Each image has one row.

    Args:
        rows, sources: See `convert_image_rows`.
    """
    source = block.source
    annotations = rows.annotations if source.kind is not AnnotationKind.IMAGE_INFO else []
    rejected = [reject for reject in rows.rejected if reject.image_id is not None]
    if rows.objects is None or rejected:
        converted = _convert_annotations(source, annotations, rejected, rows.id_texts, rows.object_fields.texts)
    else:
        columns = dict(rows.objects)
        converted = _group_objects(columns.pop("image_id"), columns)
    return _add_origin(converted, block, rows, sources)


def _convert_annotations(
    source: AnnotationSource, rows: Sequence[Any], rejected: Sequence[Rejected], texts: IdTexts, fields: Sequence[bytes]
) -> Block:
    convert, label = row_converter(source), LABELS.get(source.kind)
    named = IdTexts({}, texts.annotations).with_ids  # the join adds the string ids of images
    converted = [(row.image_id, convert(row)) for row in rows]
    if any(fields):
        converted = [
            (id_, msgspec.structs.replace(result, fields=own) if isinstance(result, Annotation) else result)
            for (id_, result), own in zip(converted, fields, strict=True)
        ]
    annotations: list[tuple[int, Any]] = [pair for pair in converted if not isinstance(pair[1], Rejected)]
    labels, rejects = defaultdict[int, list[Any]](list), defaultdict[int, list[Rejected]](list)
    for reject in (*rejected, *(result for _, result in converted if isinstance(result, Rejected))):
        rejects[reject.image_id or 0].append(named(reject))
    for image_id, annotation in annotations if label else ():
        labels[image_id].append(annotation)
    objects = [] if label else annotations
    image_of_object = np.array([image_id for image_id, _ in objects], np.int64)
    block = _group_objects(
        image_of_object, object_columns([annotation for _, annotation in objects]), [*labels, *rejects]
    )
    ids = block.image_id.tolist()
    replace = msgspec.structs.replace
    image_labels = [
        replace(NO_LABELS, **{label: tuple(labels[id_])}) if label and id_ in labels else NO_LABELS for id_ in ids
    ]
    packed = [pack(rejects[id_]) if id_ in rejects else b"" for id_ in ids]
    return block.replace(labels=label_column(image_labels), rejected=ragged_bytes(packed) if rejects else None)


def convert_plain_objects(
    source: AnnotationSource, rows: Sequence[AnnotationRow], fields: Sequence[bytes] = ()
) -> dict[str, Any] | None:
    """Return the object columns of rows in file order, and `image_id`: int64. Return None if a row is faulty, or the
    file has other annotations than boxes in COCO's format.

    Args:
        fields: Requested open fields of each row, as JSON; empty without any.
    """
    if source.kind is not AnnotationKind.INSTANCES or other_format(source):
        return None
    try:
        boxes = _BOXES.decode(b"[%b]" % b",".join([row.bbox for row in rows]))
    except msgspec.DecodeError:
        return None
    box = np.fromiter(chain.from_iterable(boxes), np.float64, 4 * len(rows)).reshape(-1, 4)
    areas = [row.area for row in rows]
    given = np.array(areas, np.float64)  # None becomes NaN
    area = np.where(np.isnan(given), box[:, 2] * box[:, 3], given)
    if np.isnan(given).sum() != areas.count(None):
        return None
    if not ((np.abs(box) <= LARGEST).all() and (box[:, 2:] >= 0).all() and (np.abs(area) <= LARGEST).all()):
        return None
    columns: dict[str, Any] = {
        "image_id": np.array([row.image_id for row in rows], np.int64),
        "object_id": np.array([row.id for row in rows], np.int64),
        "category_id": np.array([row.category_id for row in rows], np.int64),
        "boxes_xywh_px": box,
        "area_px2": area,
        "is_crowd": np.array([bool(row.iscrowd) for row in rows], bool),
    }
    segmentation = [getattr(row, "segmentation", b"") for row in rows]
    if any(segmentation):
        columns["segmentation"] = ragged_bytes(segmentation)
    if any(fields):
        columns["object_fields"] = ragged_bytes([*fields])
    return columns


def _group_objects(image_of_object: np.ndarray, objects: dict[str, Any], empty_image_ids: Sequence[int] = ()) -> Block:
    """Return a Block of the images of the objects, and of images `empty_image_ids` without objects."""
    order = np.argsort(image_of_object, kind="stable")
    image_ids = np.unique(np.concatenate([image_of_object, np.array(empty_image_ids, np.int64)]))
    ordered = image_of_object[order]
    starts = np.append(np.searchsorted(ordered, image_ids), len(ordered)).astype(np.int64)
    columns = {
        name: column.take(order) if isinstance(column, Ragged) else column[order] for name, column in objects.items()
    }
    return Block(image_id=image_ids, first_object_of_image=starts, **columns)
