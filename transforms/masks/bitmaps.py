"""Masks drawn: run lengths to pixels and back, to another size, and their bounds."""

from collections.abc import Sequence

import numpy as np
from pycocotools import mask as coco_mask


def bitmap(runs: np.ndarray, width: int, height: int) -> np.ndarray:
    """COCO's run lengths, down the columns and zeros first, as bool [height, width].

    >>> bitmap(np.array([1, 3]), 2, 2).tolist()
    [[False, True], [True, True]]
    """
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T


def run_lengths(pixels: np.ndarray) -> np.ndarray:
    """bool [height, width] as COCO's run lengths.

    >>> run_lengths(np.array([[False, True], [True, True]]))
    array([1, 3])
    """
    flat = pixels.ravel(order="F")
    changes = np.flatnonzero(np.diff(flat, prepend=False))
    return np.diff(changes, prepend=0, append=flat.size)


def mask_bounds(counts: Sequence[bytes], width: int, height: int) -> np.ndarray:
    """The boxes that masks fill, of compressed counts: float64 [M, 4], ymin, xmin, ymax, xmax in pixels, the last two
    those after it; NaN of a mask without a pixel.

    >>> mask_bounds([b"13", b"31", b"4"], 2, 2).tolist()
    [[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0], [nan, nan, nan, nan]]
    """
    x, y, wide, high = coco_mask.toBbox([{"counts": each, "size": [height, width]} for each in counts]).T
    bounds = np.column_stack((y, x, y + high, x + wide))
    bounds[wide == 0] = np.nan
    return bounds


def resized(pixels: np.ndarray, width: int, height: int) -> np.ndarray:
    """[H, W] or [H, W, channels] as [height, width …]: each new pixel is the one its middle lies in, so that ids stay
    ids.

    >>> resized(np.array([[1, 2, 3, 4]]), 2, 1).tolist()
    [[2, 4]]
    """
    return pixels[_middles(pixels.shape[0], height)[:, None], _middles(pixels.shape[1], width)]


def _middles(old: int, new: int) -> np.ndarray:
    """Of `old` pixels in a row, those that the middles of `new` ones lie in."""
    return ((np.arange(new) + 0.5) * old / new).astype(int)
