"""Boxes and keypoints as sources state them."""

import math

import msgspec

from recordmill.schemas.inputs.coco import BoxFormat

Numbers = tuple[float, float, float, float]


BOX = msgspec.json.Decoder(Numbers)
LARGEST = 1e18
"""Limit in pixels, or square pixels, beyond any image. It is within float32, the type of records (up to 3.4e38)."""


def box_xywh_px(numbers: Numbers, format_: BoxFormat, width: int, height: int) -> Numbers:
    """Convert a `bbox` of another format to x, y, width, height in pixels. Width and height may be negative.

    Args:
        width, height: Size of the image, in pixels. Formats in pixels ignore it.

    >>> box_xywh_px((60, 20, 100, 50), BoxFormat.XYXY, width=0, height=0)
    (60, 20, 40, 30)
    >>> box_xywh_px((0.5, 0.5, 0.25, 0.5), BoxFormat.REL_XYWH, width=100, height=40)
    (50.0, 20.0, 25.0, 20.0)
    >>> box_xywh_px((60, 20, 40, 10), BoxFormat.CXCYWH, width=0, height=0)
    (40.0, 15.0, 40.0, 10.0)
    """
    x, y, xmax, ymax = numbers
    if format_ in (BoxFormat.CXCYWH, BoxFormat.REL_CXCYWH):
        x, y = round(x - xmax / 2, 12), round(y - ymax / 2, 12)
    if format_ not in (BoxFormat.XYXY, BoxFormat.REL_XYXY):
        # Rounding keeps 0.9 + 0.1 of a side at the edge, not one float beyond it.
        xmax, ymax = round(x + xmax, 12), round(y + ymax, 12)
    if format_.is_fraction:
        x, y, xmax, ymax = x * width, y * height, xmax * width, ymax * height
    return x, y, _length(x, xmax), _length(y, ymax)


def _length(low: float, high: float) -> float:
    """Return the largest length with `low + length` <= `high`."""
    length = high - low
    return length if low + length <= high else math.nextafter(length, -math.inf)


def box_area_px2(area: float, numbers: Numbers, format_: BoxFormat, bbox_xywh_px: Numbers) -> float:
    """Return the area of an object in pixels², for a `bbox` of another format than COCO's.

    The area of the box replaces two kinds of `area`: the product of the last two numbers of `bbox`, which a tool took
    for width and height, and, in formats of fractions, at most 1.

    >>> box_area_px2(5000, (60, 20, 100, 50), BoxFormat.XYXY, (60, 20, 40, 30))
    1200
    """
    is_fraction = format_.is_fraction and area <= 1
    if is_fraction or math.isclose(area, numbers[2] * numbers[3], rel_tol=1e-6):
        return bbox_xywh_px[2] * bbox_xywh_px[3]
    return area


def keypoints_fault(numbers: tuple[float, ...], expected: int) -> str:
    """Return the fault of the x, y, visibility triples of `expected` keypoints; "" if they are valid.

    >>> keypoints_fault((4.0, 5.0, 2.0), 1), keypoints_fault((4.0, 5.0, 3.0), 1)
    ('', 'a visibility is not 0, 1 or 2')
    """
    if len(numbers) not in (0, 3 * expected):
        return f"{len(numbers)} numbers instead of {3 * expected}"
    if not all(abs(number) <= LARGEST for number in numbers):
        return "a number is beyond any image"
    if not all(visibility in (0, 1, 2) for visibility in numbers[2::3]):
        return "a visibility is not 0, 1 or 2"
    return ""


def box_fault(bbox_xywh_px: tuple[float, float, float, float]) -> str:
    """Return the fault of a box, without regard to the image size; "" if the box is valid.

    >>> box_fault((1.0, 2.0, -3.0, 4.0))
    'bbox has a negative width or height'
    """
    x, y, width, height = bbox_xywh_px
    # Written out for speed: this runs for every box. NaN fails each comparison.
    if -LARGEST <= x <= LARGEST and -LARGEST <= y <= LARGEST and 0 <= width <= LARGEST and 0 <= height <= LARGEST:
        return ""
    if abs(x) <= LARGEST and abs(y) <= LARGEST and abs(width) <= LARGEST and abs(height) <= LARGEST:
        return "bbox has a negative width or height"
    return "bbox has a number that is beyond any image"
