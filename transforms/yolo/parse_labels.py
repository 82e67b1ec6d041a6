"""Lines of a YOLO label file become objects, by the rules of Ultralytics' `verify_image_label`."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.shapes import ring_area
from recordmill.transforms.annotated.source import LabelFault, LabelledImage

_BEYOND = 0.01
"""Coordinates may be so far beyond 0..1."""
_SHOWN = 60


class LineRules(NamedTuple):
    """Meaning of a line.

    Attributes:
        names: of the classes, by index.
        task: `detect`, `segment`, `pose` or `obb`; empty to find it by the number of columns.
        keypoints, dimensions: of the task `pose`.
        has_masks: whether polygons are wanted, and not their boxes alone.
    """

    names: tuple[str, ...]
    task: str
    keypoints: int = 0
    dimensions: int = 0
    has_masks: bool = False


def parse_labels(data: bytes, file: str, rules: LineRules) -> Iterator[LabelledImage]:
    """Yield the image of a label file.

    >>> image, = parse_labels(b"0 0.5 0.5 0.5 1\\n1 0 0 nan 1", "a.txt", LineRules(("cat", "dog"), ""))
    >>> image.sample.objects[0].box, image.faults[0].line
    ((0.25, 0.0, 0.5, 1.0), 2)
    """
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        yield LabelledImage(None, (LabelFault(Reason.MALFORMED_LABELS, f"it is not UTF-8 (byte {error.start:,})"),))
        return
    objects, faults, notes = [], [], set()
    first: dict[tuple[float, ...], int] = {}
    for number, line in enumerate(lines, 1):
        tokens = line.split()
        if not tokens:
            continue
        try:
            numbers = _numbers(tokens)
            each = parse_line(numbers, rules)
            if (before := first.setdefault(numbers, number)) != number:
                raise UnusableError(Reason.DUPLICATE_ANNOTATION, f"it says the same as line {before}")
        except UnusableError as fault:
            shown = line.strip()[:_SHOWN] + "…" * (len(line.strip()) > _SHOWN)
            faults.append(LabelFault(fault.reason, f"{fault.detail}: {shown!r}", number))
        else:
            objects.append(each)
            notes.add("box" if len(tokens) == 5 else "nine" if len(tokens) == 9 else "more")
    if "box" in notes and len(notes) > 1:
        notes.add("mixed")
    yield LabelledImage(Sample("", objects=tuple(objects)), tuple(faults), tuple(sorted(notes)))


def _numbers(tokens: Sequence[str]) -> tuple[float, ...]:
    try:
        return tuple(map(float, tokens))
    except ValueError as error:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, "a column is no number") from error


def parse_line(columns: Sequence[float], rules: LineRules) -> SampleObject:
    """
    Raises:
        UnusableError: the line is none of an object.

    >>> parse_line((0, 0.5, 0.5, 0.2, 0.4), LineRules(("cat",), "")).box
    (0.4, 0.3, 0.2, 0.4)
    """
    class_, *numbers = columns
    if fault := _column_fault(len(columns), rules):
        raise UnusableError(Reason.MALFORMED_ANNOTATION, fault)
    if class_ not in range(len(rules.names)):
        detail = f"class {class_:g} is none of 0 to {len(rules.names) - 1}"
        raise UnusableError(Reason.UNKNOWN_CATEGORY, detail)
    if len(columns) > 5 and rules.task != "pose":
        return _polygon(int(class_), numbers, rules)
    box, points = numbers[:4], numbers[4:]
    _check_fractions(box if rules.dimensions == 3 else numbers)
    if rules.dimensions == 3:
        if not all(visibility in (0, 1, 2) for visibility in points[2::3]):
            raise UnusableError(Reason.MALFORMED_KEYPOINTS, "a visibility is not 0, 1 or 2")
        _check_fractions([*points[::3], *points[1::3]])
    x, y, width, height = box
    if width < 0 or height < 0:
        raise UnusableError(Reason.MALFORMED_BOX, "width or height is negative")
    return SampleObject(
        rules.names[int(class_)],
        (round(x - width / 2, 12), round(y - height / 2, 12), width, height),
        "fraction",
        _keypoints(points, rules),
        category_id=int(class_),
    )


def _check_fractions(numbers: Sequence[float]) -> None:
    if not all(-_BEYOND <= number <= 1 + _BEYOND for number in numbers):
        is_finite = all(map(math.isfinite, numbers))
        raise UnusableError(Reason.MALFORMED_BOX, f"a number is not {'in 0..1' if is_finite else 'finite'}")


def _polygon(index: int, numbers: Sequence[float], rules: LineRules) -> SampleObject:
    """Return the object of a polygon, or of an oriented box. Its box is their bounds.

    As Ultralytics does, centre and size of the bounds are checked, and not each point: some are outside the image.
    """
    left, top = min(numbers[::2]), min(numbers[1::2])
    right, bottom = max(numbers[::2]), max(numbers[1::2])
    _check_fractions(
        [*(number - number for number in numbers), (left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
    )
    text = json.dumps([numbers]) if rules.has_masks and rules.task != "detect" else ""
    return SampleObject(
        rules.names[index],
        (left, top, right - left, bottom - top),
        "fraction",
        segmentation=text,
        area_px2=None if rules.task == "detect" else ring_area([*zip(numbers[::2], numbers[1::2], strict=True)]),
        category_id=index,
        corners=tuple(numbers) if rules.task == "obb" else (),
    )


def _column_fault(columns: int, rules: LineRules) -> str:
    """Return what is wrong with the number of columns; empty if nothing is."""
    if rules.task == "pose":
        expected = 5 + rules.keypoints * rules.dimensions
        return "" if columns == expected else f"{columns} columns, where {expected} are expected by kpt_shape"
    if rules.task == "obb":
        return "" if columns == 9 else f"{columns} columns, where an oriented box has 9"
    if columns == 6:
        return "6 columns, as predictions with a confidence have: a box has 5"
    if columns == 5 or (columns > 6 and columns % 2):
        return ""
    return f"{columns} columns, where a box has 5, and a polygon 7, 9 or more"


def _keypoints(numbers: Sequence[float], rules: LineRules) -> tuple[float, ...]:
    """Return x, y, visibility of each keypoint. Without a third column, it is visible unless x or y is negative."""
    if rules.dimensions == 3:
        return tuple(numbers)
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return tuple(number for x, y in pairs for number in ((x, y, 2.0) if x >= 0 and y >= 0 else (0.0, 0.0, 0.0)))
