"""Image rows of one class, as tests compare them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.inputs.splits import name_id
from recordmill.transforms.folder.choose_classes import build_image_rows


class Row(NamedTuple):
    name: str
    class_name: str
    split: str


def rows_in(block: Block, splits: Sequence[str]) -> list[Row]:
    """Return the rows of a Block, and check that their ids are hashes of their names."""
    block.check("test")
    names = block.file_name.texts()
    assert block.image_id.tolist() == list(map(name_id, names))
    assert not block.image_size_px.any()
    row_splits = [splits[number] for number in block.split.tolist()]
    return list(map(Row, names, block.class_name.texts(), row_splits))


def block_of(rows: Sequence[Row], splits: Sequence[str]) -> Block:
    return build_image_rows(Block(file_name=ragged_texts([row.name for row in rows]))).replace(
        class_name=ragged_texts([row.class_name for row in rows]),
        split=np.array([splits.index(row.split) for row in rows], np.int64),
    )
