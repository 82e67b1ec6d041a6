"""ImageTasks as Blocks."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from recordmill.schemas.block import Block, ragged_texts, starts_of
from recordmill.schemas.inputs.images import ImageTask
from recordmill.transforms.blocks.image_tasks import file_folder, label_column, object_columns
from recordmill.transforms.blocks.pack_block import pack_block


def block_of_tasks(tasks: Sequence[ImageTask], splits: Sequence[str]) -> Block:
    """A whole Block of ImageTasks."""
    index = {split: number for number, split in enumerate(splits)}
    objects = [annotation for task in tasks for annotation in task.annotations]
    return Block(
        image_id=np.array([task.image_id for task in tasks], np.int64),
        file_name=ragged_texts([task.file_name for task in tasks]),
        image_size_px=np.array([(task.width or 0, task.height or 0) for task in tasks], np.int64).reshape(-1, 2),
        split=np.array([index[task.split] for task in tasks], np.int64),
        file_folder=ragged_texts([file_folder(task.ref.path, task.file_name) for task in tasks]),
        file_bytes=np.array([task.ref.size_bytes for task in tasks], np.int64),
        file_version=ragged_texts([task.ref.version for task in tasks]),
        labels=label_column([task.labels for task in tasks]),
        first_object_of_image=starts_of(np.array([len(task.annotations) for task in tasks], np.int64)),
        **object_columns(objects),
        **_tile_columns(tasks, len(objects)),
    )


def _tile_columns(tasks: Sequence[ImageTask], objects: int) -> dict[str, object]:
    if not any(task.tile for task in tasks):
        return {}
    rows = [msgspec.structs.astuple(task.tile) if task.tile else (-1, -1, 0, 0, "", 0, False, False) for task in tasks]
    x, y, width, height, names, ids, is_first, is_measured = zip(*rows, strict=True)
    return {
        "tile_xy_px": np.column_stack([x, y]),
        "whole_size_px": np.column_stack([width, height]),
        "whole_name": ragged_texts(names),
        "whole_id": np.array(ids, np.int64),
        "is_first_tile": np.array(is_first),
        "is_measured": np.array(is_measured),
        "whole_object_id": 1000 + np.arange(objects),
    }


def pack_tasks(tasks: Iterable[ImageTask]) -> list[bytes]:
    """Packed Blocks, of an image each."""
    blocks = []
    for task in tasks:
        continued = np.array([True]) if task.is_continuation else None
        blocks.append(pack_block(block_of_tasks([task], (task.split,)).replace(is_continuation=continued)))
    return blocks
