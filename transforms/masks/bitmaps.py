"""Masks drawn: run lengths to pixels and back, and to another size."""

import numpy as np


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


def mask_bounds(runs: np.ndarray, height: int) -> tuple[int, int, int, int] | None:
    """The box that a mask fills, of run lengths: ymin, xmin, ymax, xmax in pixels, the last two those after it; None of
    a mask without a pixel.

    >>> mask_bounds(np.array([1, 3]), 2), mask_bounds(np.array([3, 1]), 2), mask_bounds(np.array([4]), 2)
    ((0, 0, 2, 2), (1, 1, 2, 2), None)
    """
    edges = np.cumsum(runs)
    begins, ends = edges[:-1:2], edges[1::2]  # of the runs of ones
    begins, ends = begins[begins < ends], ends[begins < ends]
    if not len(begins):
        return None
    first_column, first_row = np.divmod(begins, height)
    last_column, last_row = np.divmod(ends - 1, height)
    xmin, xmax = int(first_column[0]), int(last_column[-1]) + 1
    if (first_column < last_column).any():  # a run goes on at the top of the next column
        return 0, xmin, height, xmax
    return int(first_row.min()), xmin, int(last_row.max()) + 1, xmax


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
