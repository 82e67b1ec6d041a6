"""Rows of a COCO file become partial Blocks."""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.annotations import NO_LABELS, ImageLabels
from recordmill.schemas.block import Block, Ragged, ragged_bytes, ragged_texts
from recordmill.schemas.coco import AnnotationKind, AnnotationSource
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.blocks.image_tasks import label_column, object_columns
from recordmill.transforms.coco.box_formats import LARGEST
from recordmill.transforms.coco.convert_rows import Converter, other_format
from recordmill.transforms.coco.decode_coco import AnnotationRow, CocoImageRow
from recordmill.transforms.coco.describe_file import size_of
from recordmill.transforms.runtime.coders import pack

LABELS = {
    AnnotationKind.CAPTIONS: "captions",
    AnnotationKind.STUFF: "regions",
    AnnotationKind.PANOPTIC: "panoptic",
}
"""Which of ImageLabels an annotation of a kind is."""
_BOXES = msgspec.json.Decoder(list[tuple[float, float, float, float]])


def image_block(rows: Sequence[CocoImageRow]) -> Block:
    """Image rows in the order of the file, some of which may have one id."""
    return Block(
        image_id=np.array([row.id for row in rows], np.int64),
        file_name=ragged_texts([row.file_name for row in rows]),
        image_size_px=np.array([size_of(row) or (0, 0) for row in rows], np.int64).reshape(-1, 2),
        labels=label_column(list(map(_lvis_labels, rows))),
    )


def _lvis_labels(row: CocoImageRow) -> ImageLabels:
    if row.neg_category_ids is None and row.not_exhaustive_category_ids is None:
        return NO_LABELS
    return ImageLabels(
        neg_category_ids=tuple(row.neg_category_ids or ()),
        not_exhaustive_category_ids=tuple(row.not_exhaustive_category_ids or ()),
    )


def annotation_block(
    source: AnnotationSource, rows: Sequence[Any], rejected: Sequence[Rejected], convert: Converter
) -> Block:
    """Annotations by image, in the order of the file: an image has one row.

    Args:
        rejected: rows of known images that could not be decoded.
    """
    if source.kind is AnnotationKind.INSTANCES and not other_format(source):
        typed = _typed_objects(rows)
        if typed is not None and not rejected:
            return _by_image(np.array([row.image_id for row in rows], np.int64), typed)
    converted = [convert(row) for row in rows]
    bad = [*rejected, *(each for each in converted if isinstance(each, Rejected))]
    good = [(row.image_id, each) for row, each in zip(rows, converted, strict=True) if not isinstance(each, Rejected)]
    image_ids = np.array([image_id for image_id, _ in good], np.int64)
    usable: list[Any] = [each for _, each in good]
    label = LABELS.get(source.kind)
    objects = object_columns([] if label else usable)
    block = _by_image(np.array([] if label else image_ids, np.int64), objects, (*image_ids.tolist(), *_images(bad)))
    of_image: dict[int, list[Any]] = {}
    for image_id, each in good if label else ():
        of_image.setdefault(image_id, []).append(each)
    of_rejected: dict[int, list[Rejected]] = {}
    for reject in bad:
        of_rejected.setdefault(reject.image_id or 0, []).append(reject)
    ids = block.image_id.tolist()
    replace = msgspec.structs.replace
    labels = [
        replace(NO_LABELS, **{label: tuple(of_image[id_])}) if label and id_ in of_image else NO_LABELS for id_ in ids
    ]
    packed = [pack(of_rejected[id_]) if id_ in of_rejected else b"" for id_ in ids]
    return block.having(labels=label_column(labels), rejected=ragged_bytes(packed) if bad else None)


def _images(rejected: Iterable[Rejected]) -> list[int]:
    return [reject.image_id or 0 for reject in rejected]


def _typed_objects(rows: Sequence[AnnotationRow]) -> dict[str, Any] | None:
    """Columns of rows that are all usable; None if one is not."""
    try:
        boxes = _BOXES.decode(b"[%b]" % b",".join([row.bbox for row in rows]))
    except msgspec.DecodeError:
        return None
    box = np.fromiter(chain.from_iterable(boxes), np.float64, 4 * len(rows)).reshape(-1, 4)
    given = np.array([math.nan if row.area is None else row.area for row in rows], np.float64)
    has_area = np.array([row.area is not None for row in rows], bool)
    area = np.where(has_area, given, box[:, 2] * box[:, 3])
    if not ((np.abs(box) <= LARGEST).all() and (box[:, 2:] >= 0).all() and (np.abs(area) <= LARGEST).all()):
        return None
    columns: dict[str, Any] = {
        "object_id": np.array([row.id for row in rows], np.int64),
        "category_id": np.array([row.category_id for row in rows], np.int64),
        "boxes_xywh_px": box,
        "area_px2": area,
        "is_crowd": np.array([bool(row.iscrowd) for row in rows], bool),
    }
    segmentation = [getattr(row, "segmentation", b"") for row in rows]
    if any(segmentation):
        columns["segmentation"] = ragged_bytes(segmentation)
    return columns


def _by_image(image_of_object: np.ndarray, objects: dict[str, Any], others: Sequence[int] = ()) -> Block:
    """A Block of the images of objects, and of others without any."""
    order = np.argsort(image_of_object, kind="stable")
    image_ids = np.unique(np.concatenate([image_of_object, np.array(others, np.int64)]))
    ordered = image_of_object[order]
    starts = np.append(np.searchsorted(ordered, image_ids), len(ordered)).astype(np.int64)
    columns = {
        name: column.take(order) if isinstance(column, Ragged) else column[order] for name, column in objects.items()
    }
    return Block(image_id=image_ids, first_object_of_image=starts, **columns)
