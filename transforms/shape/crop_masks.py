"""Crop masks by their run lengths: the pixels of a large image are never drawn."""

from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import spans
from recordmill.transforms.images.decode_segmentation import compress_segmentation, decode_counts
from recordmill.transforms.images.masks import mask_rle


class MaskSpans(NamedTuple):
    """Pixels of a mask, as spans within a column.

    Attributes:
        column, top, bottom: int64 [n], ascending by column, then top. The row `bottom` is exclusive.
    """

    column: np.ndarray
    top: np.ndarray
    bottom: np.ndarray

    @property
    def pixels(self) -> int:
        return int((self.bottom - self.top).sum())

    @property
    def bounds_px(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom; right and bottom are exclusive. The mask has a pixel."""
        return int(self.column[0]), int(self.top.min()), int(self.column[-1]) + 1, int(self.bottom.max())

    def crop(self, x: int, y: int, width: int, height: int) -> "MaskSpans":
        """Return the pixels in a rectangle, in its frame."""
        first, end = np.searchsorted(self.column, (x, x + width))
        top = np.maximum(self.top[first:end], y) - y
        bottom = np.minimum(self.bottom[first:end], y + height) - y
        is_inside = top < bottom
        return MaskSpans(self.column[first:end][is_inside] - x, top[is_inside], bottom[is_inside])

    def segmentation(self, width: int, height: int) -> bytes:
        """Return the JSON of COCO's compressed run lengths of a mask of `width` x `height` pixels."""
        edges = self.column[:, None] * height + np.stack((self.top, self.bottom), axis=1)
        runs = np.diff(edges.ravel(), prepend=0, append=width * height)
        return msgspec.json.encode({"counts": mask_rle(runs).decode(), "size": [height, width]})


def mask_spans(segmentation: bytes, width: int, height: int) -> MaskSpans:
    """Return the pixels of a segmentation of an image of `width` x `height` pixels.

    Args:
        segmentation: See `recordmill.transforms.images.decode_segmentation.compress_segmentation`.

    Raises:
        UnusableError: The segmentation is not a mask of the image.

    >>> mask_spans(b"[[1, 0, 3, 0, 3, 2, 1, 2]]", 4, 3).column.tolist()
    [1, 2]
    """
    edges = np.cumsum(decode_counts(compress_segmentation(segmentation, width, height), width, height))
    begins, ends = edges[:-1:2], edges[1::2]
    begins, ends = begins[begins < ends], ends[begins < ends]
    first, last = begins // height, (ends - 1) // height
    number = last - first + 1
    column = spans(first, number)
    run = np.repeat(np.arange(len(begins)), number)
    top = np.where(column == first[run], begins[run] % height, 0)
    bottom = np.where(column == last[run], (ends[run] - 1) % height + 1, height)
    return MaskSpans(column, top, bottom)
