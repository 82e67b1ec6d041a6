"""Grid of the tiles of images: places and sizes, without pixels."""

from typing import NamedTuple

import numpy as np

from recordmill.schemas.inputs.images import TileRules

_NARROW = 10
"""A tile is narrow if its width or height is less than the size of a tile divided by this."""


class TileGrid(NamedTuple):
    """Tiles of N images, in the order of images, and of each by y, then x.

    Attributes:
        stride_px: Distance of the left edges of neighbours in a row, and of the top edges of neighbours in a column.
        columns, rows: int64 [N], numbers of tiles; 1 and 1 for an image that stays whole.
        sides_px: int64 [N, 2], width and height of each image.
        size_px: Width and height of a tile that no edge of its image cuts.
    """

    stride_px: int
    columns: np.ndarray
    rows: np.ndarray
    sides_px: np.ndarray
    size_px: int

    @property
    def number(self) -> np.ndarray:
        """Number of tiles of each image: int64 [N]."""
        return self.columns * self.rows

    def xywh_px(self, images: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return left, top, width and height of tiles: int64 [T, 4].

        Args:
            images: int64 [T], index of each tile's image.
            places: int64 [T], index of each tile in its image.
        """
        at = np.stack((places % self.columns[images], places // self.columns[images]), axis=1)
        left_top = at * self.stride_px
        return np.concatenate((left_top, np.minimum(self.sides_px[images] - left_top, self.size_px)), axis=1)

    def touched(self, images: np.ndarray, low_px: np.ndarray, high_px: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first tile that each box touches, and the end: column and row, int64 [M, 2] each.

        Args:
            images: int64 [M], index of each box's image.
            low_px, high_px: float64 [M, 2], x and y of opposite corners inside the image; high > low.
        """
        numbers = np.stack((self.columns[images], self.rows[images]), axis=1)
        first = np.floor((low_px - self.size_px) / self.stride_px).astype(np.int64) + 1
        end = np.ceil(high_px / self.stride_px).astype(np.int64)
        return np.clip(first, 0, numbers - 1), np.clip(end, 1, numbers)

    def is_narrow(self, images: np.ndarray, xywh_px: np.ndarray) -> np.ndarray:
        """Return True for tiles that are what is left of a row or column, less than a tenth of the size: bool [T]."""
        is_cut = self.sides_px[images] > self.size_px
        return (is_cut & (xywh_px[:, 2:] * _NARROW < self.size_px)).any(axis=1)


def tile_grid(sides_px: np.ndarray, rules: TileRules) -> TileGrid:
    """Return the grid of images. The stride is the size without the overlap. The last tile of a row is what is left,
    and none is made that adds no pixel. A smaller image is one tile.

    Args:
        sides_px: int64 [N, 2], width and height of each image; 0, 0 for an image that stays whole.

    >>> grid = tile_grid(np.array([[250, 100]]), TileRules(100, 0.2))
    >>> grid.xywh_px(np.zeros(3, np.int64), np.arange(3)).tolist()
    [[0, 0, 100, 100], [80, 0, 100, 100], [160, 0, 90, 100]]
    """
    stride = max(1, round(rules.size_px * (1 - rules.overlap)))
    numbers = 1 + np.maximum(-(-(sides_px - rules.size_px) // stride), 0)
    return TileGrid(stride, numbers[:, 0], numbers[:, 1], sides_px, rules.size_px)
