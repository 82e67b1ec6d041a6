"""Convert images of Blocks to structs and back."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from recordmill.schemas.block import (
    COLUMNS,
    Block,
    Ragged,
    decode_rows,
    empty_block,
    encode_rows,
    ragged_bytes,
    ragged_texts,
)
from recordmill.schemas.inputs.annotations import NO_LABELS, Annotation, ImageLabels
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask, TileOf
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
        block.list_rows("image_data"),
        block.list_rows("file_offset"),
        block.split.tolist(),
        labels_of(block),
        block.list_rows("is_continuation"),
        firsts,
        firsts[1:],
        tiles_of(block),
        block.list_rows("ignores_exif"),
    )
    return [
        ImageTask(
            id_,
            name,
            width or None,
            height or None,
            ImageFile(path, size, version, data, offset),
            splits[split],
            tuple(objects[first:last]),
            labels,
            continued,
            tile,
            ignores_exif,
        )
        for (
            *(id_, name, (width, height), path, size, version, data, offset, split, labels, continued, first, last),
            tile,
            ignores_exif,
        ) in zip(*columns, strict=False)
    ]


def tiles_of(block: Block) -> list[TileOf | None]:
    """Return the place of each image that is a tile; None for whole images."""
    if block.tile_xy_px is None:
        return [None] * len(block)
    columns = (
        block.tile_xy_px.tolist(),
        block.whole_size_px.tolist(),
        block.whole_name.texts(),
        *map(block.list_rows, ("whole_id", "is_first_tile", "is_measured")),
    )
    return [
        TileOf(x, y, width, height, name, whole_id, is_first, is_measured) if x >= 0 else None
        for (x, y), (width, height), name, whole_id, is_first, is_measured in zip(*columns, strict=True)
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


_RENAMED = {"id": "object_id", "bbox_xywh_px": "boxes_xywh_px", "fields": "object_fields"}
_OBJECT_COLUMNS = {field: _RENAMED.get(field, field) for field in Annotation.__struct_fields__}
"""Column of each field of Annotation. The default of a field is the fill value of its column."""
_NUM_REQUIRED = len(Annotation.__struct_fields__) - len(Annotation.__struct_defaults__)


def annotations_of(block: Block) -> list[Annotation]:
    """Return each object of a Block as an Annotation."""
    if not block.num_objects:
        return []
    names = list(_OBJECT_COLUMNS.values())
    required, optional = names[:_NUM_REQUIRED], names[_NUM_REQUIRED:]
    while optional and getattr(block, optional[-1]) is None:  # most Blocks lack the last columns
        optional.pop()
    columns = [decode_rows(name, getattr(block, name)) for name in required]
    return list(map(Annotation, *columns, *map(block.list_rows, optional)))


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
    image_ids, object_ids = source_ids(block)
    return IdTexts(_texts(image_ids, block.id_text), _texts(object_ids, block.object_id_text))


def source_ids(block: Block) -> tuple[Any, Any]:
    """Return the ids of images and of objects in the source: int64 [N] and [M]; None as in the Block."""
    object_ids = block.object_id
    if block.tile_xy_px is not None and block.whole_object_id is not None:
        is_tile = block.tile_xy_px[:, 0] >= 0
        object_ids = np.where(is_tile[block.image_of_object], block.whole_object_id, object_ids)
    return source_image_ids(block), object_ids


def source_image_ids(block: Block) -> np.ndarray:
    """Return the id of each image, or of the image that a tile is of: int64 [N]."""
    if block.tile_xy_px is None:
        return block.image_id
    return np.where(block.tile_xy_px[:, 0] >= 0, block.whole_id, block.image_id)


def _texts(ids: np.ndarray, column: Ragged | None) -> dict[int, str]:
    if column is None:
        return {}
    return {id_: text for id_, text in zip(ids.tolist(), column.texts(), strict=True) if text}


def object_columns(objects: Sequence[Annotation]) -> dict[str, Any]:
    """Return the columns of objects, without optional ones that only have fill values."""
    columns = {}
    for number, (field, name) in enumerate(_OBJECT_COLUMNS.items()):
        rows, fill = list(map(attrgetter(field), objects)), COLUMNS[name].fill
        if number < _NUM_REQUIRED or rows.count(fill) < len(rows):
            columns[name] = encode_rows(name, rows)
    return columns


def label_column(labels: Sequence[ImageLabels]) -> Ragged | None:
    """Return the column `labels`; None if no image has any."""
    if all(image_labels is NO_LABELS or image_labels == NO_LABELS for image_labels in labels):
        return None
    return ragged_bytes([b"" if image_labels == NO_LABELS else pack(image_labels) for image_labels in labels])


_AT_ONCE = 64


def stream_tasks(block: Block, splits: Sequence[str]) -> Iterator[ImageTask]:
    """Yield each image of a complete Block as an ImageTask; only a few exist at a time, to save memory."""
    for start in range(0, len(block), _AT_ONCE):
        yield from image_tasks(block.cut(start, min(start + _AT_ONCE, len(block))), splits)


NO_IMAGES = empty_block(
    *("image_id", "source", "part", "file_name", "image_size_px", "split"),
    *("file_folder", "file_bytes", "file_version", "state", "is_shared"),
)
