"""Lines of Ultralytics' label files, which its NDJSON has as lists: the object of the numbers of a line."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.sample import SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.sizes import shorten
from recordmill.transforms.annotated.shapes import check_fractions, check_ring, rectangle_ring, ring_area

BOX_FIELDS = ("score", "track_id")
"""Open fields of a box, in the order of their columns, after the fifth."""
MOST_CLASSES = 1_000_000
"""Maximum number of classes, and of their keypoints together."""


class LineFormat(NamedTuple):
    """Meaning of the columns of a line.

    Attributes:
        names: Names of the classes, by index.
        task: `detect`, `segment`, `pose` or `obb`; empty to choose by the number of columns.
        keypoints: Number of keypoints of the task `pose`; 0 for other tasks.
        dimensions: Columns per keypoint, 2 or 3; 0 for other tasks.
        has_masks: True if records store polygons, False if only their boxes.
        fields: Open fields of a box in the columns after the fifth.
    """

    names: tuple[str, ...]
    task: str
    keypoints: int = 0
    dimensions: int = 0
    has_masks: bool = False
    fields: tuple[str, ...] = ()


def keypoint_shape(shape: Any, classes: int, file: str) -> tuple[int, int]:
    """Return the number of keypoints, and of columns per keypoint."""
    is_pair = isinstance(shape, list) and len(shape) == 2 and all(isinstance(number, int) for number in shape)
    if not is_pair or shape[0] < 1 or shape[1] not in (2, 3):
        raise ConfigError(
            f"{file}: kpt_shape must be the number of keypoints, and 2 or 3 columns of each (got {shape})"
        )
    if shape[0] * classes > MOST_CLASSES:
        number = shorten(str(shape[0]), 20)
        raise ConfigError(
            f"{file}: kpt_shape gives {number} keypoints to each of {classes:,} classes; together the limit is "
            f"{MOST_CLASSES:,}"
        )
    return shape[0], shape[1]


def parse_line(columns: Sequence[float], line_format: LineFormat) -> SampleObject:
    """Return the object of a line.

    Raises:
        UnusableError: The line is not an object.

    >>> parse_line((0, 0.5, 0.5, 0.2, 0.4), LineFormat(("cat",), "")).box
    (0.4, 0.3, 0.2, 0.4)
    """
    class_, *numbers = columns
    if (len(columns) != 5 or line_format.task) and (fault := _column_fault(len(columns), line_format)):
        raise UnusableError(Reason.MALFORMED_ANNOTATION, fault)
    if class_ % 1 or not 0 <= class_ < len(line_format.names):  # NaN % 1 is NaN
        detail = f"class {class_:g} is not in 0 to {len(line_format.names) - 1}"
        raise UnusableError(Reason.UNKNOWN_CATEGORY, detail)
    fields: dict[str, float] = {}
    if len(columns) > 5 and has_columns(columns, line_format):
        fields = dict(zip(line_format.fields, numbers[4:], strict=False))
        if "track_id" in fields:
            fields["track_id"] = _track_number(fields["track_id"])
        columns, numbers = columns[:5], numbers[:4]
    if len(columns) > 5 and line_format.task != "pose":
        return _line_polygon(int(class_), numbers, line_format)
    (x, y, width, height), points = numbers[:4], numbers[4:]
    if line_format.dimensions == 3 and not all(visibility in (0, 1, 2) for visibility in points[2::3]):
        raise UnusableError(Reason.MALFORMED_KEYPOINTS, "a visibility is not 0, 1 or 2")
    step = line_format.dimensions or 2
    if points or not (0 <= x <= 1 and 0 <= y <= 1 and 0 <= width <= 1 and 0 <= height <= 1):
        check_fractions([x, y, width, height, *points[::step], *points[1::step]])
    if width < 0 or height < 0:
        raise UnusableError(Reason.MALFORMED_BOX, "width or height is negative")
    if line_format.dimensions == 2:  # a keypoint is visible unless x or y is negative
        pairs = zip(points[::2], points[1::2], strict=True)
        points = [number for x, y in pairs for number in ((x, y, 2.0) if x >= 0 and y >= 0 else (0.0, 0.0, 0.0))]
    box = round(x - width / 2, 12), round(y - height / 2, 12), width, height
    keypoints, index = tuple(points), int(class_)
    return SampleObject(line_format.names[index], box, "fraction", keypoints, category_id=index, fields=fields)


def has_columns(columns: Sequence[float], line_format: LineFormat) -> bool:
    """Return True for a box with further columns: six numbers, or seven if both fields are requested."""
    is_seven = len(columns) == 7 and len(line_format.fields) == len(BOX_FIELDS)
    return line_format.task in ("", "detect") and (len(columns) == 6 or is_seven)


def _track_number(number: float) -> int:
    if not (number.is_integer() and abs(number) < 1 << 63):
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"track_id {number:g} is not a whole number of 64 bits")
    return int(number)


def _line_polygon(index: int, numbers: Sequence[float], line_format: LineFormat) -> SampleObject:
    """Return the object of a polygon or an oriented box, with their bounds as its box."""
    ring = [*zip(numbers[::2], numbers[1::2], strict=True)]
    check_ring(ring)
    (left, top), _, (right, bottom), _ = rectangle_ring(ring)
    return SampleObject(
        line_format.names[index],
        (left, top, right - left, bottom - top),
        "fraction",
        segmentation=json.dumps([numbers]) if line_format.has_masks and line_format.task != "detect" else "",
        area_px2=None if line_format.task == "detect" else ring_area(ring),
        category_id=index,
        corners=tuple(numbers) if line_format.task == "obb" else (),
    )


def _column_fault(columns: int, line_format: LineFormat) -> str:
    """Return the fault of a number of columns, or ""."""
    if line_format.task == "pose":
        expected = 5 + line_format.keypoints * line_format.dimensions
        return "" if columns == expected else f"{columns} columns; kpt_shape requires {expected}"
    if line_format.task == "obb":
        return "" if columns == 9 else f"{columns} columns; an oriented box has 9"
    if columns == 6:
        return "" if line_format.task in ("", "detect") else "6 columns; a polygon has 7, 9 or more"
    is_shape = columns >= 5 and columns % 2
    return "" if is_shape else f"{columns} columns; a box has 5, a polygon 7, 9 or more"
