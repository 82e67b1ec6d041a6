"""Boxes of other formats than COCO's become x, y, width, height in pixels."""

import math

import msgspec

from recordmill.schemas.coco import BoxFormat

Numbers = tuple[float, float, float, float]
BOX = msgspec.json.Decoder(Numbers)

LARGEST = 1e18
"""More pixels, or square pixels, than any image has; records keep 32-bit floats, which end at 3.4e38."""


def box_xywh_px(numbers: Numbers, format_: BoxFormat, width: int, height: int) -> Numbers:
    """x, y, width, height in pixels of a `bbox` of a format other than COCO's; width and height may turn out negative.

    Args:
        width, height: of the image, in pixels; they do not matter to a format of pixels.

    >>> box_xywh_px((60, 20, 100, 50), BoxFormat.XYXY, width=0, height=0)
    (60, 20, 40, 30)
    >>> box_xywh_px((0.5, 0.5, 0.25, 0.5), BoxFormat.REL_XYWH, width=100, height=40)
    (50.0, 20.0, 25.0, 20.0)
    """
    x, y, xmax, ymax = numbers
    if format_ is BoxFormat.REL_XYWH:
        # 0.9 and 0.1 of a side end at the edge, not behind it by the last bit of a float.
        xmax, ymax = round(x + xmax, 12), round(y + ymax, 12)
    if format_ is not BoxFormat.XYXY:
        x, y, xmax, ymax = x * width, y * height, xmax * width, ymax * height
    return x, y, _length(x, xmax), _length(y, ymax)


def _length(low: float, high: float) -> float:
    """What is to be added to `low` to come to `high`, and not beyond it."""
    length = high - low
    return length if low + length <= high else math.nextafter(length, -math.inf)


def box_area_px2(area: float, numbers: Numbers, format_: BoxFormat, bbox_xywh_px: Numbers) -> float:
    """The `area` of a row in pixels², where `bbox` has another format than COCO's.

    It is that of the box if it was made of the numbers of `bbox` as if they were x, y, width, height, or if it is no
    more than 1, a fraction of the image.

    >>> box_area_px2(5000, (60, 20, 100, 50), BoxFormat.XYXY, (60, 20, 40, 30))
    1200
    """
    is_fraction = format_ is not BoxFormat.XYXY and area <= 1
    if is_fraction or math.isclose(area, numbers[2] * numbers[3], rel_tol=1e-6):
        return bbox_xywh_px[2] * bbox_xywh_px[3]
    return area
