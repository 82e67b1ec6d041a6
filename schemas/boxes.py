"""Convert the 32-bit floats of records back to the decimals of the source.

A record stores `float32(x / width)`. Many numbers of pixels give the same 32 bits. The number with the fewest decimals
is returned: 12 comes back as 12, and 473.07 as 473.07. A record made from these numbers has the same bits.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_MOST_DECIMALS = 15


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
