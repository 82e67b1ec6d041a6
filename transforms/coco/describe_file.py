"""Summarize an annotation file from its blocks, and check that the file fits its flag."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from isal import isal_zlib

from recordmill.schemas.errors import WrongFlagError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationBlock, AnnotationFile, AnnotationKind, AnnotationSource, FieldRows
from recordmill.transforms.coco.coco_rows import CocoImageRow
from recordmill.transforms.coco.convert_rows import count_keypoints, keypoint_reach, row_size_px
from recordmill.transforms.coco.decode_coco import CocoRows
from recordmill.transforms.coco.file_fields import COUNTED, count_fields, field_rows, has_data, has_numbers
from recordmill.transforms.coco.sample_boxes import SampledBoxes, fraction_boxes, join_samples, sample_boxes
from recordmill.transforms.join.guess_box_format import box_warnings, check_box_format

OBJECT_KINDS = (AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS)


class BlockSummary(msgspec.Struct, frozen=True):
    """Summary of one block of an annotation file.

    Attributes:
        number: Index of the block in its file.
        images, annotations: Numbers of rows, valid and malformed.
        categories: Categories of the file; empty in all blocks but one.
        has_annotations: True if the file has a list of annotations. The list may be empty.
        lvis, unread, optional: See AnnotationFile.
        fields: Names of the fields in which at least one annotation row has data.
        has_field: True if a row has the field that the kind needs.
        keypoints: Number of rows by category id and by number of keypoints.
        has_keypoint: True if a row has a labelled keypoint. The row may be malformed otherwise.
        keypoint_reach: Largest coordinate of a keypoint of a sample of the object rows; 0 without keypoints.
        uses_zero: True if a row has the category id 0.
        without_box: Number of object rows without `bbox`.
        rotated: Number of rows with `attributes.rotation`.
        negative_areas: Number of annotation rows whose area is below 0.
        number_texts: Number of rows with a number as text.
        hashed_ids: Numbers of images and of annotations whose string id is stored as a hash.
        fractions: Number of object rows whose `bbox` is within 0..1; id and text of the first of them.
        boxes: Boxes of a sample of the object rows.
        sizes: Packed int64 [3, N]: image id, width, height (pixels) of image rows that have a size.
        ids: Packed int64 [2, N]: annotation id and image id.
        observed: See AnnotationFile.
    """

    number: int
    images: int
    annotations: int
    categories: tuple[Category, ...]
    has_annotations: bool
    lvis: bool
    unread: FieldRows
    optional: FieldRows
    fields: frozenset[str]
    has_field: bool
    keypoints: dict[int, dict[int, int]]
    has_keypoint: bool
    keypoint_reach: float
    uses_zero: bool
    without_box: int
    rotated: int
    negative_areas: int
    number_texts: int
    hashed_ids: tuple[int, int]
    fractions: tuple[int, str]
    boxes: SampledBoxes | None
    sizes: bytes
    ids: bytes
    observed: tuple[tuple[str, str, int, int], ...] = ()


def summarize(block: AnnotationBlock, rows: CocoRows) -> BlockSummary:
    """Return the summary of the rows of a block."""
    kind = block.source.kind
    fractions = fraction_boxes(_rows_within_1(rows)) if guesses_boxes(block.source) else []
    bad_images = sum(reject.what == "image" for reject in rows.rejected)
    has_ids = kind not in (AnnotationKind.PANOPTIC, AnnotationKind.IMAGE_INFO)
    return BlockSummary(
        block.number,
        len(rows.images) + bad_images,
        len(rows.annotations) + len(rows.rejected) - bad_images,
        tuple(rows.categories),
        rows.has_annotations,
        any(row.neg_category_ids is not None or row.not_exhaustive_category_ids is not None for row in rows.images),
        rows.unread,
        _count_optional(rows),
        frozenset(count_fields(rows.annotations)) if kind is AnnotationKind.IMAGE_INFO else rows.fields,
        _has_field(kind, rows),
        count_keypoints(rows.annotations) if kind is AnnotationKind.KEYPOINTS else {},
        kind is AnnotationKind.KEYPOINTS
        and ("keypoints" in rows.fields or any(has_data(row.keypoints) for row in rows.annotations)),
        keypoint_reach(rows.sampled) if kind is AnnotationKind.KEYPOINTS else 0,
        0 in _column_values(rows, "category_id", "category_id"),
        rows.without_box,
        rows.rotated,
        int((_column_values(rows, "area_px2", "area") < 0).sum()),
        rows.number_texts,
        (sum(row.id in rows.id_texts.images for row in rows.images), len(rows.id_texts.annotations)),
        (len(fractions), f"{fractions[0].id} has {bytes(fractions[0].bbox).decode()}" if fractions else ""),
        sample_boxes(rows.sampled) if guesses_boxes(block.source) else None,
        _pack_columns(_known_sizes(rows.images)) if guesses_boxes(block.source) else b"",
        _pack_columns(_annotation_ids(rows)) if has_ids else b"",
        (*rows.image_fields.observed, *rows.object_fields.observed),
    )


def guesses_boxes(source: AnnotationSource) -> bool:
    """Return True if the file has boxes, and the user did not set their format."""
    return source.kind in OBJECT_KINDS and source.bbox_format is None


def _column_values(rows: CocoRows, column: str, field: str) -> np.ndarray:
    """Return a column of the annotation rows [M], or the values of its field in the rows that have one."""
    if rows.objects is not None:
        return rows.objects[column]
    values = (getattr(row, field, None) for row in rows.annotations)
    return np.array([value for value in values if value is not None])


def _rows_within_1(rows: CocoRows) -> list[Any]:
    """Return the annotation rows whose `bbox` may be within 0..1."""
    if rows.objects is None:
        return rows.annotations
    boxes = rows.objects["boxes_xywh_px"]
    return [rows.annotations[row] for row in np.flatnonzero((boxes >= 0).all(axis=1) & (boxes <= 1).all(axis=1))]


def _count_optional(rows: CocoRows) -> FieldRows:
    """Count the crowd rows, and the image rows with entries in LVIS's lists."""
    crowds = int((_column_values(rows, "is_crowd", "iscrowd") != 0).sum())
    lists = ("neg_category_ids", "not_exhaustive_category_ids")
    image_counts = {name: sum(bool(getattr(row, name)) for row in rows.images) for name in lists}
    return field_rows({}, image_counts, {"iscrowd": crowds})


def describe_file(source: AnnotationSource, summaries: Iterable[BlockSummary]) -> AnnotationFile:
    """Merge the summaries of all blocks of a file.

    Raises:
        WrongFlagError: The file is not of this kind, or boxes do not look like x, y, width, height in pixels.
    """
    blocks = sorted(summaries, key=lambda block: block.number)
    categories = tuple(category for block in blocks for category in block.categories)
    file = AnnotationFile(
        source.path,
        source.kind,
        sum(block.images for block in blocks),
        sum(block.annotations for block in blocks),
        categories,
        any(block.lvis for block in blocks),
        _sum_field_rows(block.unread for block in blocks),
        _sum_field_rows(block.optional for block in blocks),
        _usual_keypoint_numbers(categories, blocks),
        (*_shared_ids_warnings(source.path, [block.ids for block in blocks]), *_missing_warnings(source, blocks)),
        any(block.uses_zero for block in blocks),
        negative_areas=sum(block.negative_areas for block in blocks) if source.kind in OBJECT_KINDS else 0,
        observed=tuple(label for block in blocks for label in block.observed),
    )
    _check_kind(source, file, blocks)
    if boxes := [block.boxes for block in blocks if block.boxes]:
        sample = join_samples(boxes)
        sized = sample.boxes(_sizes_by_id(sample.image_ids, [block.sizes for block in blocks]))
        check_box_format(source.path, sized)
        return msgspec.structs.replace(file, warnings=(*file.warnings, *box_warnings(source.path, sized)))
    return file


_FRACTIONS = 2
"""Coordinates of keypoints in pixels reach beyond. Fractions of keypoints outside their image are above 1."""


def _missing_warnings(source: AnnotationSource, blocks: Sequence[BlockSummary]) -> Iterator[str]:
    """Yield warnings about keypoints, boxes and ids that records store differently from the file."""
    number = sum(block.annotations for block in blocks)
    if source.kind is AnnotationKind.KEYPOINTS and number and not any(block.has_keypoint for block in blocks):
        yield (
            f"{source.path}: none of the {number:,} annotations has a labelled keypoint, so every visibility is 0. "
            "Export the file with its keypoints, or leave out --keypoints"
        )
    if 0 < (reach := max((block.keypoint_reach for block in blocks), default=0)) < _FRACTIONS:
        yield (
            f"{source.path}: no keypoint has a coordinate above {reach:g}. They look like fractions of the image's "
            "sides, but are read as pixels. Multiply them by width and height"
        )
    if without := sum(block.without_box for block in blocks):
        yield (
            f"{source.path}: {without:,} of {number:,} annotations have no bbox; the bounds of their segmentations "
            "are their boxes"
        )
    if texts := sum(block.number_texts for block in blocks):
        yield f"{source.path}: {texts:,} rows have numbers as strings, which are read as numbers. Remove the quotes"
    hashed = [sum(numbers) for numbers in zip(*(block.hashed_ids for block in blocks), strict=True)]
    if any(hashed):
        yield (
            f"{source.path}: {hashed[0]:,} images and {hashed[1]:,} annotations have string ids; records have a hash "
            "of each id instead, and the file names"
        )
    if source.kind in OBJECT_KINDS and (rotated := sum(block.rotated for block in blocks)):
        yield (
            f"{source.path}: {rotated:,} of {number:,} annotations have attributes.rotation, as CVAT's rotated boxes; "
            "boxes are stored upright, without the rotation. Export polygons to keep it"
        )
    if source.kind in OBJECT_KINDS and (negative := sum(block.negative_areas for block in blocks)):
        yield (
            f"{source.path}: {negative:,} of {number:,} annotations have a negative area, which records store. Remove "
            "area from these rows, and records have the area of the box"
        )
    if fractions := [block.fractions for block in blocks if block.fractions[0]]:
        boxes = sum(block_boxes for block_boxes, _ in fractions)
        yield (
            f"{source.path}: {boxes:,} of {number:,} boxes are within 0..1 (annotation {fractions[0][1]}). They "
            "look like fractions of the image's sides, but are read as pixels. Multiply them by width and height"
        )


def _sum_field_rows(counts: Iterable[FieldRows]) -> FieldRows:
    total = {list_: Counter[str]() for list_ in COUNTED}
    for block_counts in counts:
        for list_, list_counts in block_counts.items():
            total[list_].update(list_counts)
    return field_rows(*total.values())


def _usual_keypoint_numbers(categories: Iterable[Category], blocks: Iterable[BlockSummary]) -> dict[int, int]:
    """Return by category id the most frequent number of keypoints per row, for categories without keypoint names."""
    unnamed = {category.id for category in categories if not category.keypoints}
    counts = defaultdict[int, Counter[int]](Counter)
    for block in blocks:
        for id_ in block.keypoints.keys() & unnamed:
            counts[id_].update(block.keypoints[id_])
    return {
        id_: max(category_counts, key=lambda number: (category_counts[number], number))
        for id_, category_counts in counts.items()
    }


def _sizes_by_id(image_ids: np.ndarray, packed_blocks: Iterable[bytes]) -> Mapping[int, tuple[int, int]]:
    """Return by image id the width and height in pixels. The last row of an image wins."""
    sizes: dict[int, tuple[int, int]] = {}
    for packed_block in packed_blocks:
        columns = _unpack_columns(packed_block, 3)
        for id_, width, height in columns[:, np.isin(columns[0], image_ids)].T.tolist():
            sizes[id_] = (width, height)
    return sizes


def _known_sizes(rows: Iterable[CocoImageRow]) -> np.ndarray:
    sizes = [(row.id, *size) for row in rows if (size := row_size_px(row))]
    return np.array(sizes, np.int64).reshape(-1, 3).T


def _annotation_ids(rows: CocoRows) -> np.ndarray:
    """Return ids of annotations (ascending) and images: int64 [2, N]."""
    ids, image_ids = _column_values(rows, "object_id", "id"), _column_values(rows, "image_id", "image_id")
    order = np.argsort(ids)
    return np.stack([ids[order], image_ids[order]])


def _pack_columns(columns: np.ndarray) -> bytes:
    """Compress int64 [columns, rows] as differences: ascending ids shrink."""
    return isal_zlib.compress(np.diff(columns, prepend=0).tobytes(), 1) if columns.size else b""


def _unpack_columns(packed: bytes, columns: int) -> np.ndarray:
    """Return the int64 [columns, rows] of `_pack`."""
    numbers = np.frombuffer(isal_zlib.decompress(packed), np.int64) if packed else np.empty(0, np.int64)
    return np.cumsum(numbers.reshape(columns, -1), axis=1)


def _shared_ids_warnings(path: str, packed_blocks: Sequence[bytes]) -> Iterator[str]:
    """Yield a warning if annotations of several images share an id. (Duplicates in one image are rejected.)

    Args:
        packed: Annotation and image ids of each block, see `_ids`.
    """
    block_ids = [_unpack_columns(packed_block, 2)[0] for packed_block in packed_blocks]
    ids = np.sort(np.concatenate(block_ids or [np.empty(0, np.int64)]))
    repeated = ids[1:][ids[1:] == ids[:-1]]
    if not repeated.size:
        return
    images = defaultdict[int, set[int]](set)
    for packed_block in packed_blocks:
        columns = _unpack_columns(packed_block, 2)
        for id_, image_id in columns[:, np.isin(columns[0], repeated)].T.tolist():
            images[id_].add(image_id)
    shared = [id_ for id_, image_ids in images.items() if len(image_ids) > 1]
    if shared:
        first = min(shared)
        one, other = sorted(images[first])[:2]
        yield (
            f"{path}: annotations of different images share an id: those of images {one} and {other} share {first} "
            f"(number of such ids: {len(shared):,}). None is rejected, but tools that look up annotations by id, such "
            "as pycocotools, find only one for each id. Renumber the annotations if you evaluate with these tools"
        )


_FIELDS = {
    AnnotationKind.PANOPTIC: "segments_info",
    AnnotationKind.CAPTIONS: "caption",
    AnnotationKind.KEYPOINTS: "keypoints",
    AnnotationKind.INSTANCES: "bbox",
    AnnotationKind.STUFF: "segmentation",
}
"""Field that the rows of each kind need. A row with several of the fields is of the first kind."""


def _check_kind(source: AnnotationSource, file: AnnotationFile, blocks: Sequence[BlockSummary]) -> None:
    """Refuse a file that has no data for its flag, but data for another flag.

    Raises:
        WrongFlagError: The annotations lack the field that the flag needs; or the file has no list of annotations; or
            --image-info would drop the annotations of the file.
    """
    path, kind, number = source.path, source.kind, file.annotations
    fields = frozenset[str]().union(*(block.fields for block in blocks))
    if kind is AnnotationKind.IMAGE_INFO:
        if number:
            row_kind = _find_kind(fields) or AnnotationKind.INSTANCES
            raise WrongFlagError(
                f"{path} has {number:,} annotations, which --image-info would drop. {_give_file(row_kind)}"
            )
        return
    # A category that names keypoints is enough: a small file may show no person.
    is_named = kind is AnnotationKind.KEYPOINTS and any(category.keypoints for category in file.categories)
    if file.images and not any(block.has_annotations for block in blocks):
        raise WrongFlagError(
            f"{path} has images but no list of annotations, which {_kind_flag(kind)} needs. "
            f"{_give_file(AnnotationKind.IMAGE_INFO)}"
        )
    has_field = is_named or any(block.has_field for block in blocks)
    if number and not has_field and (fitting := _find_kind(fields - {_FIELDS[kind]})):
        raise WrongFlagError(
            f"none of the {number:,} annotations of {path} has {_FIELDS[kind]}, which {_kind_flag(kind)} needs. They "
            f"have {_FIELDS[fitting]}. {_give_file(fitting)}"
        )


def _has_field(kind: AnnotationKind, rows: CocoRows) -> bool:
    """Return True if a row has the field that the kind needs. The row may be malformed otherwise."""
    if kind is AnnotationKind.IMAGE_INFO:
        return False
    if kind is AnnotationKind.KEYPOINTS:
        return "keypoints" in rows.fields or any(has_numbers(row.keypoints) for row in rows.annotations)
    if kind is AnnotationKind.STUFF and rows.annotations:
        return any(has_data(row.segmentation) for row in rows.annotations)
    return bool(rows.annotations) or _FIELDS[kind] in rows.fields


def _find_kind(fields: frozenset[str]) -> AnnotationKind | None:
    return next((kind for kind, field in _FIELDS.items() if field in fields), None)


def _kind_flag(kind: AnnotationKind) -> str:
    return f"--{kind.value.replace('_', '-')}"


def _give_file(kind: AnnotationKind) -> str:
    """Return the cure of a file of another kind. DATA may be the folder of an export, beside which no flag of a file
    is read."""
    masks = ", its PNGs to --panoptic-masks" if kind is AnnotationKind.PANOPTIC else ""
    return f"Give the file to {_kind_flag(kind)}{masks}, and the folder of the images as DATA"
