"""Masks, as COCO's run lengths, become what records hold: a PNG, or compressed run lengths.

Runs go down the columns, zeros first, and sum to height * width.
"""

import numpy as np

from recordmill.transforms.masks.encode_png import UP, pack_rows

# A character holds 5 bits of a signed number, so a number of k characters reaches from -2 ** (5k - 1) up to below
# 2 ** (5k - 1).
_REACH = 1 << (5 * np.arange(1, 13, dtype=np.int64) - 1)


def mask_png(runs: np.ndarray, width: int, height: int) -> bytes:
    """Run lengths become an 8-bit greyscale PNG of the full image, 1 inside the object and 0 outside.

    The bitmap is never drawn: PNG's filter Up stores each pixel minus the one above, which down a column is 0 except
    where ones begin (1) and where they have ended (255), and run lengths say just that. None but the first may be 0.

    >>> mask_png(np.array([2, 3, 1]), width=3, height=2)[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    ends = np.cumsum(runs)
    begins, ends = ends[:-1:2], ends[1::2]  # of the runs of ones
    if not len(begins):
        return pack_rows(np.empty((0, 1 + width), np.uint8), blank_above=height)
    first_column, first_row = np.divmod(begins, height)
    last_column, last_row = np.divmod(ends - 1, height)
    crossing = bool((first_column < last_column).any())  # from the bottom of a column to the top of the next
    top, bottom = (0, height) if crossing else (int(first_row.min()), int(last_row.max()) + 1)
    # One row more than is kept, for the ends below the last.
    rows = np.zeros((bottom - top + 1, 1 + width), np.uint8)
    rows[:, 0] = UP
    rows[first_row - top, 1 + first_column] = 1
    rows[last_row + 1 - top, 1 + last_column] = 255
    if crossing:  # at the first pixel of each column, have more runs of ones begun than ended?
        at = height * np.arange(width)
        rows[0, 1:] = np.searchsorted(begins, at, side="right") > np.searchsorted(ends, at, side="right")
    return pack_rows(rows[:-1], blank_above=top, blank_below=height - bottom)


def mask_rle(runs: np.ndarray) -> bytes:
    """Run lengths become COCO's compressed `counts`, the same bytes as pycocotools gives for the same mask.

    Each number is cut into groups of 5 bits, lowest first, each group a character from 48 ("0") on; 32 marks that more
    follow, and 16 in the last one is the sign. From the fourth run on, the number is the difference to the run two
    before (rleToString in pycocotools' maskApi.c, which is quicker, but writes past its memory where a few runs have
    2 ** 24 pixels).

    >>> mask_rle(np.array([2, 3, 1]))
    b'231'
    """
    numbers = _canonical(runs).copy()
    numbers[3:] -= numbers[1:-2]  # NumPy reads all of it before it writes
    magnitude = numbers ^ numbers >> 63  # -1 reaches as far as 0, -17 as far as 16
    lengths = 1 + np.searchsorted(_REACH, magnitude, side="right")
    place = np.arange(lengths.max())
    groups = (numbers[:, None] >> 5 * place) & 31
    groups += 48 + 32 * (place < lengths[:, None] - 1)
    return groups[place < lengths[:, None]].astype(np.uint8).tobytes()


def _canonical(runs: np.ndarray) -> np.ndarray:
    """The same mask without runs of length 0, but for a leading one."""
    if np.count_nonzero(runs[1:]) == len(runs) - 1:
        return runs
    edges = np.cumsum(runs)
    # An edge met twice is none: what turned 0 there turns 1 again.
    places, times = np.unique(edges[edges < edges[-1]], return_counts=True)
    return np.diff(places[times % 2 == 1], prepend=0, append=edges[-1])
