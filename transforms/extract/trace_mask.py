"""Outlines of masks as polygons."""

from typing import NamedTuple

import numpy as np

Ring = list[tuple[int, int]]
"""x, y of the corners of an outline, in pixels."""


class Outlines(NamedTuple):
    """Outlines of a mask along the edges of its pixels, so that they enclose exactly these.

    Attributes:
        parts: clockwise, of each connected part.
        holes: counter-clockwise.
    """

    parts: list[Ring]
    holes: list[Ring]

    @property
    def joined(self) -> Ring:
        """One ring through all rings. It goes from the first to each other one and back on the same line, so that the
        line encloses nothing."""
        first, *others = (*self.parts, *self.holes)
        ring = list(first)
        for other in others:
            ring += [first[0], *other, other[0]]
        return [*ring, first[0]] if others else ring


def trace_mask(mask: np.ndarray) -> Outlines:
    """Return the outlines of a mask with a pixel at least, bool or uint8 [height, width].

    >>> trace_mask(np.array([[True, True], [False, True]])).parts
    [[(0, 0), (2, 0), (2, 2), (1, 2), (1, 1), (0, 1)]]
    """
    (top, bottom), (left_edge, right_edge) = (np.flatnonzero(mask.any(axis=axis))[[0, -1]] for axis in (1, 0))
    padded = np.pad(mask[top : bottom + 1, left_edge : right_edge + 1].astype(bool), 1)
    above_left, above_right = padded[:-1, :-1], padded[:-1, 1:]
    left, right = padded[1:, :-1], padded[1:, 1:]
    corners = (above_left ^ above_right ^ left ^ right).astype(np.int64)
    corners[(above_left == right) & (above_right == left) & (right != left)] = 2  # where two corners touch
    ys, xs = (np.repeat(axis, corners[corners > 0]) for axis in np.nonzero(corners))
    # In a row, corners are the ends of horizontal edges, two by two; in a column, those of vertical ones.
    by_column = np.lexsort((ys, xs))
    below = np.empty(len(xs), np.int64)
    below[by_column[::2]], below[by_column[1::2]] = by_column[1::2], by_column[::2]
    is_part = right[ys, xs].tolist()
    points, partner = list(zip((xs + left_edge).tolist(), (ys + top).tolist(), strict=True)), below.tolist()
    is_seen = bytearray(len(points))
    found = Outlines([], [])
    for start in range(0, len(points), 2):
        ring, corner = [], start
        while not is_seen[corner]:
            is_seen[corner] = is_seen[corner ^ 1] = True
            ring += [points[corner], points[corner ^ 1]]
            corner = partner[corner ^ 1]
        if ring and is_part[start]:
            found.parts.append(ring)
        elif ring:
            found.holes.append([ring[0], *ring[:0:-1]])
    return found
