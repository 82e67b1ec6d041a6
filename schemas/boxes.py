"""Convert the 32-bit floats of records back to the decimals of the source.

A record stores `float32(x / width)`. Many numbers of pixels give the same 32 bits. The number with the fewest decimals
is returned: 12 comes back as 12, and 473.07 as 473.07. A record made from these numbers has the same bits.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_MOST_DECIMALS = 15
_ARRAY_DECIMALS = 10
"""Arrays are rounded to less decimals than this. The few numbers that need more are rounded alone."""
_EXACT = 2.0**52
"""Floats from here on are whole numbers."""


def shortest_px(fraction: "np.float32", size_px: int, start_px: float = 0.0) -> float:
    """Return the number of pixels with the fewest decimals for which `float32((start_px + px) / size_px)` is
    `fraction`.

    If the fraction is inside the image, so is start_px + px, without a rounding error: `--boxes drop` is strict.

    >>> import numpy as np
    >>> shortest_px(np.float32(473.07 / 640), 640), shortest_px(np.float32((473.07 + 1.5) / 640), 640, 473.07)
    (473.07, 1.5)
    """
    exact = float(fraction) * size_px - start_px
    for decimals in range(_MOST_DECIMALS):
        rounded = round(exact, decimals) + 0.0  # + 0.0 turns -0.0 into 0.0
        end_px = start_px + rounded
        if type(fraction)(end_px / size_px) == fraction and (end_px <= size_px or fraction > 1):
            return rounded
    return exact


def shortest_decimal(value: "np.float32") -> float:
    """Return the shortest decimal whose 32-bit float is `value`.

    >>> import numpy as np
    >>> shortest_decimal(np.float32(702.1057)), float(np.float32(702.1057))
    (702.1057, 702.105712890625)
    """
    return float(str(value))


def exact_edges_px(edges_yxyx: "np.ndarray", width: int, height: int) -> tuple[float, float, float, float]:
    """Convert ymin, xmin, ymax, xmax as fractions to x, y, width, height in pixels."""
    ymin, xmin, ymax, xmax = edges_yxyx
    x, y = shortest_px(xmin, width), shortest_px(ymin, height)
    return x, y, shortest_px(xmax, width, x), shortest_px(ymax, height, y)


def shortest_px_array(fractions: "np.ndarray", sizes_px: "np.ndarray", starts_px: "np.ndarray") -> "np.ndarray":
    """Return the `shortest_px` of each fraction: float64 [M].

    Args:
        fractions: float32 [M].
        sizes_px: int64 [M], width or height of the image of each fraction in pixels.
        starts_px: float64 [M].
    """
    import numpy as np

    exact = fractions.astype(np.float64) * sizes_px - starts_px
    pixels, pending, alone = exact.copy(), np.arange(len(exact)), []

    def matches(end: "np.ndarray") -> "np.ndarray":
        fraction, size = fractions[pending], sizes_px[pending]
        return ((end / size).astype(np.float32) == fraction) & ((end <= size) | (fraction > 1))

    with np.errstate(over="ignore", invalid="ignore"):
        for power in 10.0 ** np.arange(_ARRAY_DECIMALS):
            scaled, start = exact[pending] * power, starts_px[pending]
            rounded = np.rint(scaled) / power + 0.0
            is_match = matches(start + rounded)
            # The product has a rounding error, so that rint() may choose the other neighbour of a half than round().
            is_alone = np.abs(scaled) >= _EXACT
            is_half = (np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5) <= np.abs(scaled) / _EXACT) & (power > 1)
            if is_half.any():
                neighbours = start + np.floor(scaled) / power, start + np.ceil(scaled) / power
                is_alone |= is_half & (matches(neighbours[0]) | matches(neighbours[1]))
            pixels[pending[is_match]] = rounded[is_match]
            alone += pending[is_alone].tolist()
            pending = pending[~(is_match | is_alone)]
            if not len(pending):
                break
    for row in (*alone, *pending.tolist()):
        pixels[row] = shortest_px(fractions[row], int(sizes_px[row]), float(starts_px[row]))
    return pixels


def exact_edges_px_array(edges_yxyx: "np.ndarray", sizes_px: "np.ndarray") -> "np.ndarray":
    """Return the `exact_edges_px` of each box: float64 [M, 4], x, y, width, height in pixels.

    Args:
        edges_yxyx: float32 [M, 4], ymin, xmin, ymax, xmax as fractions of height and width.
        sizes_px: int64 [M, 2], width and height of the image of each box in pixels.
    """
    import numpy as np

    edges = np.ascontiguousarray(edges_yxyx[:, [1, 0, 3, 2]])
    sizes = sizes_px.ravel()
    low = shortest_px_array(edges[:, :2].ravel(), sizes, np.zeros(len(sizes)))
    lengths = shortest_px_array(edges[:, 2:].ravel(), sizes, low)
    return np.concatenate([low.reshape(-1, 2), lengths.reshape(-1, 2)], axis=1)


def shortest_decimals(values: "np.ndarray") -> "np.ndarray":
    """Return the number with the fewest decimals for each float32, so that its float32 is the value: float64 [M].

    >>> import numpy as np
    >>> shortest_decimals(np.float32([702.1057, -0.0, 1e-30])).tolist()
    [702.1057, -0.0, 1.0000000031710769e-30]
    """
    import numpy as np

    numbers = values.astype(np.float64)
    pending = np.flatnonzero(np.abs(numbers) < _EXACT)
    with np.errstate(under="ignore"):
        for power in 10.0 ** np.arange(_ARRAY_DECIMALS):
            rounded = np.rint(numbers[pending] * power) / power
            is_match = rounded.astype(np.float32) == values[pending]
            numbers[pending[is_match]] = rounded[is_match]
            pending = pending[~is_match]
            if not len(pending):
                break
    return numbers
