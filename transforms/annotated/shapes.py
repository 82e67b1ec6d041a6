"""Convert shapes of labelling tools to objects: bounds, and polygons if records have masks."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.inputs.boxes import LARGEST
from recordmill.schemas.inputs.images import MAX_PIXELS
from recordmill.schemas.inputs.sample import SampleObject
from recordmill.schemas.inputs.scalars import read_number, whole_number
from recordmill.schemas.rejects import Reason, UnusableError

Point = tuple[float, float]
_ELLIPSE_POINTS = 64
_BEYOND = 0.01
"""Tolerance of fractions outside 0..1."""


def box_object(category: str, left: float, top: float, right: float, bottom: float, **fields: Any) -> SampleObject:
    """
    >>> box_object("cat", 1, 2, 4, 6).box
    (1, 2, 3, 4)
    """
    return SampleObject(category, (left, top, right - left, bottom - top), **fields)


def with_fields(object_: SampleObject, fields: Mapping[str, Any]) -> SampleObject:
    """Return the object with further open fields."""
    return msgspec.structs.replace(object_, fields={**object_.fields, **fields}) if fields else object_


def rectangle_ring(points: Sequence[Point]) -> list[Point]:
    """Return the corners of the bounds of points."""
    xs, ys = zip(*points, strict=True)
    left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def polygon_object(category: str, rings: Sequence[Sequence[Point]], has_masks: bool, **fields: Any) -> SampleObject:
    """Return an object of one or several polygons.

    Raises:
        UnusableError: A polygon has fewer than three points, or a number that is not finite or beyond `LARGEST`.

    >>> triangle = polygon_object("cat", [[(1, 2), (4, 2), (4, 6)]], True)
    >>> triangle.box, triangle.area_px2, triangle.segmentation
    ((1, 2, 3, 4), 6.0, '[[1, 2, 4, 2, 4, 6]]')
    """
    for ring in rings:
        if len(ring) < 3:
            raise UnusableError(Reason.MALFORMED_SEGMENTATION, f"a polygon has {len(ring)} points; it needs at least 3")
        if not all(abs(number) <= LARGEST for number in flatten_points(ring)):
            raise UnusableError(
                Reason.MALFORMED_SEGMENTATION, "a polygon has a number that is not finite, or beyond any image"
            )
    corners = rectangle_ring([point for ring in rings for point in ring])
    text = json.dumps(list(map(flatten_points, rings))) if has_masks else ""
    area = sum(map(ring_area, rings))  # as COCO's, whether parts overlap or not
    return box_object(category, *corners[0], *corners[2], segmentation=text, area_px2=area, **fields)


def flatten_points(points: Iterable[Point]) -> tuple[float, ...]:
    """
    >>> flatten_points([(1, 2), (3, 4)])
    (1, 2, 3, 4)
    """
    return tuple(number for point in points for number in point)


def ring_area(ring: Sequence[Point]) -> float:
    """Return the area within a polygon.

    >>> ring_area([(0, 0), (1, 0), (1, 1)])
    0.5
    """
    following = [*ring[1:], ring[0]]
    return abs(sum(x * next_y - y * next_x for (x, y), (next_x, next_y) in zip(ring, following, strict=True))) / 2


def mask_text(mask: np.ndarray, left: int, top: int, width: int, height: int) -> str:
    """Return COCO's run lengths of an image as JSON, from the mask of a part of it. See `column_runs`.

    Raises:
        UnusableError: The stated size is more than `MAX_PIXELS`.
    """
    if width * height > MAX_PIXELS:
        detail = f"a mask in an image of {width}x{height} pixels, where the limit is {MAX_PIXELS:,}"
        raise UnusableError(Reason.MASK_SIZE_MISMATCH, detail)
    return json.dumps({"size": [height, width], "counts": column_runs(mask, left, top, width, height)})


def column_runs(mask: np.ndarray, left: int, top: int, width: int, height: int) -> list[int]:
    """Return COCO's run lengths of an image, column by column, from the mask of a part of it.

    Args:
        mask: int or bool [rows, columns] of 0 and 1.
        left, top: First column and row of the part in the image.
        width, height: Size of the image in pixels.

    >>> column_runs(np.array([[0, 1], [1, 1]]), 1, 1, 4, 3)
    [5, 1, 1, 2, 3]
    """
    # A row of zeros ends the runs of each column of a part that does not reach the bottom of the image.
    rows = mask.shape[0] + (mask.shape[0] < height)
    columns = np.zeros((mask.shape[1], rows), np.int8)
    columns[:, : mask.shape[0]] = mask.T
    column, row = np.divmod(np.flatnonzero(np.diff(columns.ravel(), prepend=0, append=0)), rows)
    starts = (left + column) * height + top + row
    return np.diff(starts[starts < width * height], prepend=0, append=width * height).tolist()


def finite_numbers(texts: Mapping[str, str], owner: str) -> list[float]:
    """Return the numbers of texts, which are keyed by their names.

    Raises:
        UnusableError: A text is not a number, or not finite, or beyond `LARGEST`. The detail names the `owner`.

    >>> finite_numbers({"x": "1.5"}, "a <box>")
    [1.5]
    """
    try:
        numbers = list(map(read_number, texts.values()))
    except ValueError as error:
        fault = f"{owner} has a text that is not a number: {show_texts(texts)}"
        raise UnusableError(Reason.MALFORMED_BOX, fault) from error
    if False not in [abs(number) <= LARGEST for number in numbers]:  # False for NaN, too
        return numbers
    fault = "beyond any image" if all(map(math.isfinite, numbers)) else "not finite"
    raise UnusableError(Reason.MALFORMED_BOX, f"{owner} has a number that is {fault}: {show_texts(texts)}")


def show_texts(texts: Mapping[str, str]) -> str:
    """Return texts with their names, for a message."""
    return ", ".join(f"{name} {text[:20]!r}" for name, text in texts.items())


def sides_px(width: str, height: str, warnings: set[str]) -> tuple[int | None, int | None]:
    """Return width and height in pixels. Both are None if one is missing or 0, as some tools write it.

    Args:
        warnings: Warnings of the image; one is added for a text that is not a whole number.

    >>> sides_px("40", "30", set()), sides_px("40", "0", set())
    ((40, 30), (None, None))
    """
    sides = whole_number(width), whole_number(height)
    if None in sides and (width.strip() or height.strip()):
        warnings.add(_ODD_SIZE)
    return sides if all(sides) else (None, None)


_ODD_SIZE = "images whose size in the label file is not two whole numbers, and is not compared: {number} ({names})"


def check_fractions(numbers: Iterable[float], what: str = "a number is") -> None:
    """Refuse numbers that are not fractions.

    Raises:
        UnusableError: A number is not finite, or beyond 0..1 by more than `_BEYOND`.
    """
    numbers = list(numbers)
    # min and max of numbers with NaN depend on the order; a sum with NaN is NaN.
    if numbers and not (min(numbers) >= -_BEYOND and max(numbers) <= 1 + _BEYOND and math.isfinite(sum(numbers))):
        is_finite = all(map(math.isfinite, numbers))
        raise UnusableError(Reason.MALFORMED_BOX, f"{what} not {'in 0..1' if is_finite else 'finite'}")


def check_ring(ring: Sequence[Point]) -> None:
    """Refuse a polygon in fractions whose bounds have a centre or a size outside 0..1.

    As in Ultralytics, points are not checked: some are outside the image.

    Raises:
        UnusableError: See `check_fractions`.
    """
    (left, top), _, (right, bottom), _ = rectangle_ring(ring)
    sizes = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
    numbers = flatten_points(ring)
    check_fractions(sizes if all(map(math.isfinite, numbers)) else numbers)


def ellipse_ring(center: Point, radii: Point, turn_rad: float = 0.0) -> list[Point]:
    """Return points of an ellipse, among them its leftmost, highest, rightmost and lowest ones.

    >>> [(round(x), round(y)) for x, y in ellipse_ring((5, 5), (2, 1))[::16]]
    [(7, 5), (5, 6), (3, 5), (5, 4)]
    """
    (x, y), (wide, high) = center, radii
    cos, sin = math.cos(turn_rad), math.sin(turn_rad)
    angles = [2 * math.pi * step / _ELLIPSE_POINTS for step in range(_ELLIPSE_POINTS)]
    if turn_rad:
        extremes = math.atan2(-high * sin, wide * cos), math.atan2(high * cos, wide * sin)
        angles = sorted(
            {*angles, *(angle % (2 * math.pi) for extreme in extremes for angle in (extreme, extreme + math.pi))}
        )
    return [
        (
            x + wide * math.cos(angle) * cos - high * math.sin(angle) * sin,
            y + wide * math.cos(angle) * sin + high * math.sin(angle) * cos,
        )
        for angle in angles
    ]


def flat_shape_error(shape: str) -> UnusableError:
    """Return the error for a shape without an area, which is not an object."""
    return UnusableError(Reason.EMPTY_BOX, f"a {shape} has no area")
