"""Boxes from pixels to fractions of their image."""

import struct
from typing import NamedTuple

from recordmill.schemas.rejects import Reason


class FittedBox(NamedTuple):
    """Edges as fractions of width and height; `clipped` where they are not the JSON's."""

    ymin_frac: float
    xmin_frac: float
    ymax_frac: float
    xmax_frac: float
    clipped: bool


def fit_box(
    bbox_xywh_px: tuple[float, float, float, float], width: int, height: int, policy: str
) -> FittedBox | Reason:
    """Return a box within an image of `width` x `height` pixels, or why there is none.

    Args:
        policy: for a box that crosses the edge: `clip` cuts it there, `drop` rejects it, `keep` leaves it beyond 0..1.
            A box without area inside the image, or without one as 32-bit fractions, is rejected under each.
    """
    x, y, box_width, box_height = bbox_xywh_px
    xmax, ymax = x + box_width, y + box_height
    inside = max(x, 0.0), max(y, 0.0), min(xmax, float(width)), min(ymax, float(height))
    if _is_empty(inside[0], inside[2], width) or _is_empty(inside[1], inside[3], height):
        return Reason.EMPTY_BOX
    crosses = inside != (x, y, xmax, ymax)
    if crosses and policy == "drop":
        return Reason.BOX_OUTSIDE
    if crosses and policy == "clip":
        x, y, xmax, ymax = inside
    return FittedBox(y / height, x / width, ymax / height, xmax / width, crosses and policy == "clip")


_FLOAT32 = struct.Struct("<f")
_FLOAT32_STEP = 1e-7
"""More than what is between two neighbouring 32-bit floats of 0..1."""


def _is_empty(low: float, high: float, side: int) -> bool:
    """Whether nothing is between two edges in a side of the image, or between them as 32-bit fractions."""
    if high - low > side * _FLOAT32_STEP:
        return False
    return low >= high or _float32(low / side) >= _float32(high / side)


def _float32(number: float) -> float:
    (kept,) = _FLOAT32.unpack(_FLOAT32.pack(number))
    return float(kept)
