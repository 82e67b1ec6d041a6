"""Count the pixels of an image's maps: classes of a semantic mask, metres of a depth map."""

import numpy as np

from recordmill.schemas.statistics import SCALE, Histogram
from recordmill.transforms.images.colours import strips
from recordmill.transforms.insight.count_images import bin_numbers

_DECIMALS = 9


def count_numbers(pixels: np.ndarray, least: int = 1) -> np.ndarray:
    """Return the number of pixels of each value: int64 [n], n at least `least`.

    >>> count_numbers(np.array([[0, 2], [2, 2]], np.uint8))
    array([1, 0, 3])
    """
    total = np.zeros(max(least, int(pixels.max(initial=0)) + 1), np.int64)
    for rows in strips(*pixels.shape[::-1]):
        total += np.bincount(pixels[rows].ravel(), minlength=len(total))
    return total


def count_values(pixels: np.ndarray) -> dict[int, int]:
    """Return the number of pixels of each value of a semantic mask: uint8 [height, width].

    >>> count_values(np.array([[0, 7], [7, 255]], np.uint8))
    {0: 1, 7: 2, 255: 1}
    """
    counts = count_numbers(pixels)
    values = np.flatnonzero(counts)
    return dict(zip(values.tolist(), counts[values].tolist(), strict=True))


def measure_depth(units: np.ndarray, metres_per_unit: float) -> Histogram:
    """Return the histogram of the metres of a depth map: uint16 [height, width], 0 unknown.

    >>> histogram = measure_depth(np.array([[0, 1000], [3000, 1000]], np.uint16), 0.001)
    >>> histogram.least, histogram.largest, histogram.count, round(histogram.total / SCALE, 3)
    (1.0, 3.0, 3, 5.0)
    """
    counts = count_numbers(units)
    counts[0] = 0
    known = np.flatnonzero(counts)
    if not len(known):
        return Histogram()
    counts = counts[known]
    metres = (known * metres_per_unit).round(_DECIMALS)  # 0.0014, not 0.0014000000000000002
    bins, first = np.unique(bin_numbers(metres), return_index=True)
    sums = np.add.reduceat(counts, first)  # bins ascend, as metres do
    total = sum(map(int.__mul__, np.rint(metres * SCALE).astype(np.int64).tolist(), counts.tolist()))
    return Histogram(total, float(metres[0]), float(metres[-1]), dict(zip(bins.tolist(), sums.tolist(), strict=True)))
