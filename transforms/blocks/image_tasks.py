"""Convert images of Blocks to structs and back."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from recordmill.schemas.block import Block, Ragged, ragged_bytes, ragged_numbers, ragged_texts
from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, ImageLabels
from recordmill.schemas.inputs.images import ImageRef, ImageTask
from recordmill.schemas.rejects import IdTexts
from recordmill.transforms.runtime.beam_steps import pack, unpacker

_UNPACK_LABELS = unpacker(ImageLabels)


def image_tasks(block: Block, splits: Sequence[str]) -> list[ImageTask]:
    """Return each image of a complete Block as an ImageTask."""
    objects = annotations_of(block)
    firsts = block.first_object_of_image.tolist() if objects else [0] * (len(block) + 1)
    columns = (
        block.image_id.tolist(),
        block.file_name.texts(),
        block.image_size_px.tolist(),
        image_paths(block),
        block.file_bytes.tolist(),
        block.file_version.texts(),
        block.image_data.rows() if block.image_data is not None else [b""] * len(block),
        block.file_offset.tolist() if block.file_offset is not None else [-1] * len(block),
        block.split.tolist(),
        labels_of(block),
        block.is_continuation.tolist() if block.is_continuation is not None else [False] * len(block),
        firsts,
        firsts[1:],
    )
    return [
        ImageTask(
            id_,
            name,
            width or None,
            height or None,
            ImageRef(path, size, version, data, offset),
            splits[split],
            tuple(objects[first:last]),
            labels,
            continued,
        )
        for id_, name, (width, height), path, size, version, data, offset, split, labels, continued, first, last in zip(
            *columns, strict=False
        )
    ]


def file_folder(path: str, file_name: str) -> str:
    """Return the value of `file_folder` for a path: the folder, if the path ends with the name.

    >>> file_folder("img/a.jpg", "a.jpg"), file_folder("img/a.jpg", "b.jpg")
    ('img/', 'img/a.jpg')
    """
    folder = path[: -len(file_name)] if file_name and path.endswith(file_name) else ""
    return folder if folder.endswith("/") else path


def image_paths(block: Block) -> list[str]:
    """Return the path of each image file."""
    names = block.file_name.texts()
    return [
        folder + name if folder.endswith("/") else folder
        for folder, name in zip(block.file_folder.texts(), names, strict=True)
    ]


def annotations_of(block: Block) -> list[Annotation]:
    """Return each object of a Block as an Annotation."""
    if not block.num_objects:
        return []
    segmentation = block.segmentation.rows() if block.segmentation is not None else [b""] * block.num_objects
    keypoints = [()] * block.num_objects
    if block.keypoints_xyv is not None:
        values, starts = block.keypoints_xyv.values.tolist(), block.keypoints_xyv.starts.tolist()
        keypoints = [tuple(values[start:end]) for start, end in itertools.pairwise(starts)]
    boxes = map(tuple, block.boxes_xywh_px.tolist())
    plain = (
        block.object_id.tolist(),
        block.category_id.tolist(),
        boxes,
        block.area_px2.tolist(),
        block.is_crowd.tolist(),
    )
    if block.in_fractions is None and all(getattr(block, name) is None for name in _RARE):
        return list(map(Annotation, *plain, segmentation, keypoints))
    rare = (_rare_values(getattr(block, name), default, block.num_objects) for name, default in _RARE.items())
    return list(map(Annotation, *plain, segmentation, keypoints, *rare))


_RARE: dict[str, Any] = {
    "difficult": False,
    "truncated": False,
    "view": "",
    "track_id": -1,
    "corners_px": (0.0,) * 8,
    "in_fractions": False,
}
"""Columns of objects that most Blocks lack, with the value of an object without one."""


def _rare_values(column: Any, default: Any, number: int) -> list[Any]:
    if column is None:
        return [() if isinstance(default, tuple) else default] * number
    if isinstance(column, Ragged):
        return column.texts()
    return [tuple(row) if any(row) else () for row in column.tolist()] if column.ndim > 1 else column.tolist()


def labels_of(block: Block) -> list[ImageLabels]:
    """Return the labels of each image, without its objects."""
    if block.class_name is not None:
        return [ImageLabels(class_name=name) for name in block.class_name.texts()]
    if block.labels is None:
        return [NO_LABELS] * len(block)
    return [_UNPACK_LABELS(row) if row else NO_LABELS for row in block.labels.rows()]


def with_id_texts(block: Block, texts: IdTexts) -> Block:
    """Return the Block with the texts of ids, if any."""
    columns = {}
    if texts.images:
        columns["id_text"] = ragged_texts([texts.images.get(id_, "") for id_ in block.image_id.tolist()])
    if texts.annotations and block.num_objects:
        columns["object_id_text"] = ragged_texts([texts.annotations.get(id_, "") for id_ in block.object_id.tolist()])
    return block.replace(**columns)


def id_texts(block: Block) -> IdTexts:
    """Return the id texts of a Block's images and objects."""
    pairs = (block.image_id, block.id_text), (block.object_id, block.object_id_text)
    return IdTexts(*(_texts(ids, column) for ids, column in pairs))


def _texts(ids: np.ndarray, column: Ragged | None) -> dict[int, str]:
    if column is None:
        return {}
    return {id_: text for id_, text in zip(ids.tolist(), column.texts(), strict=True) if text}


def object_columns(objects: Sequence[Annotation]) -> dict[str, Any]:
    """Return the columns of objects, without empty optional ones."""
    columns: dict[str, Any] = {
        "object_id": np.array([each.id for each in objects], np.int64),
        "category_id": np.array([each.category_id for each in objects], np.int64),
        "boxes_xywh_px": np.array([each.bbox_xywh_px for each in objects], np.float64).reshape(-1, 4),
        "area_px2": np.array([each.area_px2 for each in objects], np.float64),
        "is_crowd": np.array([each.is_crowd for each in objects], bool),
    }
    if any(each.segmentation for each in objects):
        columns["segmentation"] = ragged_bytes([each.segmentation for each in objects])
    if any(each.keypoints_xyv for each in objects):
        columns["keypoints_xyv"] = ragged_numbers([each.keypoints_xyv for each in objects])
    for name, default in _RARE.items():
        values = [getattr(each, name) for each in objects]
        if any(value not in (default, ()) for value in values):
            texts = isinstance(default, str)
            columns[name] = ragged_texts(values) if texts else np.array([v if v != () else default for v in values])
    return columns


def label_column(labels: Sequence[ImageLabels]) -> Ragged | None:
    """Return the column `labels`; None if no image has any."""
    if all(each is NO_LABELS or each == NO_LABELS for each in labels):
        return None
    return ragged_bytes([b"" if each == NO_LABELS else pack(each) for each in labels])


_AT_ONCE = 64


def each_task(block: Block, splits: Sequence[str]) -> Iterator[ImageTask]:
    """Yield each image of a complete Block as an ImageTask; only a few exist at a time, to save memory."""
    for start in range(0, len(block), _AT_ONCE):
        yield from image_tasks(block.cut(start, min(start + _AT_ONCE, len(block))), splits)


NO_IMAGES = Block(
    image_id=np.zeros(0, np.int64),
    source=np.zeros(0, np.int64),
    part=np.zeros(0, np.int64),
    file_name=ragged_texts([]),
    image_size_px=np.zeros((0, 2), np.int64),
    split=np.zeros(0, np.int64),
    file_folder=ragged_texts([]),
    file_bytes=np.zeros(0, np.int64),
    file_version=ragged_texts([]),
    state=np.zeros(0, np.int64),
    is_shared=np.zeros(0, bool),
)
