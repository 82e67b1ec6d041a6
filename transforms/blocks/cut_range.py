"""Cut the images of a range into Blocks of bounded size."""

from collections.abc import Iterator

import numpy as np

from recordmill.schemas.block import Block
from recordmill.transforms.blocks.pack_block import pack_parts

BlockKey = int
"""Order of a Block: its range of hashes and its number in the range, as one integer."""
_PARTS = 1 << 32


_MOST_IMAGES, _MOST_BYTES = 1000, 1 << 20
"""Maximum size of a Block with more than one image."""


def cut_range(number: int, block: Block) -> Iterator[tuple[BlockKey, bytes]]:
    """Yield the images of a range, which are in order, as packed Blocks of bounded size, with their keys."""
    weight = _bytes_of(block)
    total = np.cumsum(weight)
    start, part = 0, 0
    while start < len(block):
        before = int(total[start - 1]) if start else 0
        end = int(np.searchsorted(total, before + _MOST_BYTES, side="right"))
        end = min(max(end, start + 1), start + _MOST_IMAGES)
        for _, packed in pack_parts(block.cut(start, end), np.zeros(end - start, np.int64)):
            yield number * _PARTS + part, packed
        start, part = end, part + 1


def _bytes_of(block: Block) -> np.ndarray:
    """Return the approximate number of bytes of columns of each image: int64 [N]."""
    size = np.full(len(block), 100, np.int64) + 60 * block.objects_per_image
    for column in (block.labels, block.rejected, block.image_data):
        if column is not None:
            size += column.lengths
    for column, item_bytes in ((block.segmentation, 1), (block.keypoints_xyv, 8)):
        if column is not None:
            size += item_bytes * np.diff(column.starts[block.first_object_of_image])
    return size
