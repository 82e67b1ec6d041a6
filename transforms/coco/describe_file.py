"""Describe an annotation file from its blocks: summary, and whether it fits its flag."""

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
from recordmill.transforms.coco.convert_rows import count_keypoints, size_of
from recordmill.transforms.coco.decode_coco import CocoRows
from recordmill.transforms.coco.file_fields import COUNTED, count_fields, field_rows, has_data, has_numbers
from recordmill.transforms.coco.guess_box_format import SampledBoxes, check_box_format, join_samples, sample_boxes

OF_OBJECTS = (AnnotationKind.INSTANCES, AnnotationKind.KEYPOINTS)


class BlockSummary(msgspec.Struct, frozen=True):
    """Findings of a block about its file.

    Attributes:
        number: of the block.
        images, annotations: rows, good and bad.
        categories: of the block that has them.
        has_annotations: whether there is the list, if an empty one.
        lvis, unread, optional: see AnnotationFile.
        fields: names of fields of annotation rows that some row has data in.
        has_field: whether some row has what the kind is about.
        keypoints: by category id, how many rows have how many keypoints.
        has_keypoint: whether a keypoint of some row is labelled.
        uses_zero: whether a row has the category id 0.
        without_box: rows of objects without `bbox`.
        rotated: rows with a rotation among their attributes.
        hashed_ids: number of images, and of annotations, whose id is a text of which a hash is stored.
        boxes: of some rows of objects.
        sizes: columns of image id, width, height (pixels) of image rows that have a size.
        ids: columns of annotation id and image id.
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
    uses_zero: bool
    without_box: int
    rotated: int
    hashed_ids: tuple[int, int]
    boxes: SampledBoxes | None
    sizes: bytes
    ids: bytes


def summarize(block: AnnotationBlock, rows: CocoRows) -> BlockSummary:
    """The summary of the rows of a block."""
    kind = block.source.kind
    bad_images = sum(reject.what == "image" for reject in rows.rejected)
    with_ids = rows.annotations if kind not in (AnnotationKind.PANOPTIC, AnnotationKind.IMAGE_INFO) else ()
    return BlockSummary(
        block.number,
        len(rows.images) + bad_images,
        len(rows.annotations) + len(rows.rejected) - bad_images,
        tuple(rows.categories),
        rows.has_annotations,
        any(row.neg_category_ids is not None or row.not_exhaustive_category_ids is not None for row in rows.images),
        rows.unread,
        _optional(rows),
        frozenset(count_fields(rows.annotations)) if kind is AnnotationKind.IMAGE_INFO else rows.fields,
        _has_field(kind, rows),
        count_keypoints(rows.annotations) if kind is AnnotationKind.KEYPOINTS else {},
        kind is AnnotationKind.KEYPOINTS and any(has_data(row.keypoints) for row in rows.annotations),
        0 in {getattr(row, "category_id", None) for row in rows.annotations},
        rows.without_box,
        rows.rotated,
        (sum(row.id in rows.id_texts.images for row in rows.images), len(rows.id_texts.annotations)),
        sample_boxes(rows.sampled) if guesses_boxes(block.source) else None,
        _pack(_known_sizes(rows.images)) if guesses_boxes(block.source) else b"",
        _pack(_ids(with_ids)),
    )


def guesses_boxes(source: AnnotationSource) -> bool:
    """Whether the format of the boxes of a file is not given."""
    return source.kind in OF_OBJECTS and source.bbox_format is None


def _optional(rows: CocoRows) -> FieldRows:
    """How many rows are crowds, or have entries in LVIS's lists."""
    crowds = sum(bool(getattr(row, "iscrowd", 0)) for row in rows.annotations)
    lists = ("neg_category_ids", "not_exhaustive_category_ids")
    of_images = {name: sum(bool(getattr(row, name)) for row in rows.images) for name in lists}
    return field_rows({}, of_images, {"iscrowd": crowds})


def describe_file(source: AnnotationSource, summaries: Iterable[BlockSummary]) -> AnnotationFile:
    """The summary of a file, by those of all its blocks.

    Raises:
        WrongFlagError: the file is not of this kind, or boxes do not look like x, y, width, height in pixels.
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
        _add(block.unread for block in blocks),
        _add(block.optional for block in blocks),
        _keypoints(categories, blocks),
        (*_shared_ids_warnings(source.path, [block.ids for block in blocks]), *_missing_warnings(source, blocks)),
        any(block.uses_zero for block in blocks),
    )
    _check_kind(source, file, blocks)
    if boxes := [block.boxes for block in blocks if block.boxes]:
        sample = join_samples(boxes)
        check_box_format(source.path, sample.boxes(_sizes(sample.image_ids, [block.sizes for block in blocks])))
    return file


def _missing_warnings(source: AnnotationSource, blocks: Sequence[BlockSummary]) -> Iterator[str]:
    """Yield warnings about keypoints, boxes and ids that are stored otherwise than in the file."""
    number = sum(block.annotations for block in blocks)
    if source.kind is AnnotationKind.KEYPOINTS and number and not any(block.has_keypoint for block in blocks):
        yield (
            f"{source.path}: none of the {number:,} annotations has a labelled keypoint, so every visibility is 0: "
            "export the file with its keypoints, or leave out --keypoints"
        )
    if without := sum(block.without_box for block in blocks):
        yield (
            f"{source.path}: {without:,} of {number:,} annotations have no bbox; the bounds of their polygons are "
            "their boxes"
        )
    hashed = [sum(numbers) for numbers in zip(*(block.hashed_ids for block in blocks), strict=True)]
    if any(hashed):
        yield (
            f"{source.path}: {hashed[0]:,} images and {hashed[1]:,} annotations have ids that are texts; records have "
            "a hash of each in its place, and the file names"
        )
    if source.kind in OF_OBJECTS and (rotated := sum(block.rotated for block in blocks)):
        yield (
            f"{source.path}: {rotated:,} of {number:,} annotations have attributes.rotation, as CVAT's rotated boxes; "
            "boxes are stored upright, without the rotation: export polygons to keep it"
        )


def _add(counts: Iterable[FieldRows]) -> FieldRows:
    total = {list_: Counter[str]() for list_ in COUNTED}
    for of_block in counts:
        for list_, of_list in of_block.items():
            total[list_].update(of_list)
    return field_rows(*total.values())


def _keypoints(categories: Iterable[Category], blocks: Iterable[BlockSummary]) -> dict[int, int]:
    """How many keypoints most rows have, by id, of the categories that name none and have rows with some."""
    unnamed = {category.id for category in categories if not category.keypoints}
    counts = defaultdict[int, Counter[int]](Counter)
    for block in blocks:
        for id_ in block.keypoints.keys() & unnamed:
            counts[id_].update(block.keypoints[id_])
    return {id_: max(of_id, key=lambda number: (of_id[number], number)) for id_, of_id in counts.items()}


def _sizes(image_ids: np.ndarray, packed: Iterable[bytes]) -> Mapping[int, tuple[int, int]]:
    """Width and height in pixels of these images; of several rows of one, the last one's."""
    sizes: dict[int, tuple[int, int]] = {}
    for of_block in packed:
        columns = _unpack(of_block, 3)
        for id_, width, height in columns[:, np.isin(columns[0], image_ids)].T.tolist():
            sizes[id_] = (width, height)
    return sizes


def _known_sizes(rows: Iterable[CocoImageRow]) -> np.ndarray:
    sizes = [(row.id, *size) for row in rows if (size := size_of(row))]
    return np.array(sizes, np.int64).reshape(-1, 3).T


def _ids(rows: Sequence[Any]) -> np.ndarray:
    """Ordered by annotation id."""
    ids = np.fromiter((row.id for row in rows), np.int64, len(rows))
    image_ids = np.fromiter((row.image_id for row in rows), np.int64, len(rows))
    order = np.argsort(ids)
    return np.stack([ids[order], image_ids[order]])


def _pack(columns: np.ndarray) -> bytes:
    """int64 [columns, rows], as differences, which are small where ids go up."""
    return isal_zlib.compress(np.diff(columns, prepend=0).tobytes(), 1) if columns.size else b""


def _unpack(packed: bytes, columns: int) -> np.ndarray:
    """int64 [columns, rows]."""
    numbers = np.frombuffer(isal_zlib.decompress(packed), np.int64) if packed else np.empty(0, np.int64)
    return np.cumsum(numbers.reshape(columns, -1), axis=1)


def _shared_ids_warnings(path: str, packed: Sequence[bytes]) -> Iterator[str]:
    """Yield a warning if annotations of several images share an id. (Duplicates in one image are rejected.)

    Args:
        packed: annotation and image ids, of each block.
    """
    ids = np.sort(np.concatenate([_unpack(of_block, 2)[0] for of_block in packed] or [np.empty(0, np.int64)]))
    repeated = ids[1:][ids[1:] == ids[:-1]]
    if not repeated.size:
        return
    images = defaultdict[int, set[int]](set)
    for of_block in packed:
        columns = _unpack(of_block, 2)
        for id_, image_id in columns[:, np.isin(columns[0], repeated)].T.tolist():
            images[id_].add(image_id)
    shared = [id_ for id_, of_id in images.items() if len(of_id) > 1]
    if shared:
        first = min(shared)
        one, other = sorted(images[first])[:2]
        yield (
            f"{path}: annotations of different images share an id, as those of the images {one} and {other} share "
            f"{first} (number of such ids: {len(shared):,}); none is rejected for it, but tools that look annotations "
            "up by id, such as pycocotools, find one of each: renumber them if you evaluate with them"
        )


_FIELDS = {
    AnnotationKind.PANOPTIC: "segments_info",
    AnnotationKind.CAPTIONS: "caption",
    AnnotationKind.KEYPOINTS: "keypoints",
    AnnotationKind.INSTANCES: "bbox",
    AnnotationKind.STUFF: "segmentation",
}
"""Fields that rows of a kind need. A row with several is read as the first."""


def _check_kind(source: AnnotationSource, file: AnnotationFile, blocks: Sequence[BlockSummary]) -> None:
    """Refuse a file that gives its flag nothing to read, and another flag something.

    Raises:
        WrongFlagError: its annotations have nothing that the flag is about; or there is no list of them; or it is given
            as a file of images alone, and its annotations would be dropped.
    """
    path, kind, number = source.path, source.kind, file.annotations
    fields = frozenset[str]().union(*(block.fields for block in blocks))
    if kind is AnnotationKind.IMAGE_INFO:
        if number:
            of_rows = _fitting(fields) or AnnotationKind.INSTANCES
            raise WrongFlagError(
                f"{path} has {number:,} annotations, which --image-info would drop; give it to {_flag(of_rows)}"
            )
        return
    # Keypoints that a category names are enough, as nobody need be in sight in a small file.
    is_named = kind is AnnotationKind.KEYPOINTS and any(category.keypoints for category in file.categories)
    if file.images and not any(block.has_annotations for block in blocks):
        raise WrongFlagError(
            f"{path} has images and no list of annotations, which {_flag(kind)} is for; give it to --image-info"
        )
    has_field = is_named or any(block.has_field for block in blocks)
    if number and not has_field and (fitting := _fitting(fields - {_FIELDS[kind]})):
        raise WrongFlagError(
            f"none of the {number:,} annotations of {path} has {_FIELDS[kind]}, which {_flag(kind)} is for; they have "
            f"{_FIELDS[fitting]}: give the file to {_flag(fitting)}"
        )


def _has_field(kind: AnnotationKind, rows: CocoRows) -> bool:
    """Whether some row has what the kind is about, if in a row that has another fault."""
    if kind is AnnotationKind.IMAGE_INFO:
        return False
    if kind is AnnotationKind.KEYPOINTS:
        return "keypoints" in rows.fields or any(has_numbers(row.keypoints) for row in rows.annotations)
    if kind is AnnotationKind.STUFF and rows.annotations:
        return any(has_data(row.segmentation) for row in rows.annotations)
    return bool(rows.annotations) or _FIELDS[kind] in rows.fields


def _fitting(fields: frozenset[str]) -> AnnotationKind | None:
    return next((kind for kind, field in _FIELDS.items() if field in fields), None)


def _flag(kind: AnnotationKind) -> str:
    masks = " with --panoptic-masks" if kind is AnnotationKind.PANOPTIC else ""
    return f"--{kind.value.replace('_', '-')}{masks}"
