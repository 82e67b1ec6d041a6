"""JSON files of LabelMe and X-AnyLabeling become objects."""

import base64
import binascii
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import (
    MASKS,
    decoded,
    find_labels,
    image_name,
    is_json,
    mask_warnings,
    naming_source,
    read_json,
)
from recordmill.transforms.annotated.shapes import (
    Point,
    box_object,
    ellipse_ring,
    mask_text,
    polygon_object,
    rectangle_ring,
    without_area,
)
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source, not_usable, parser
from recordmill.transforms.images.open_image import open_image
from recordmill.transforms.labelme.labelme_options import LabelmeOptions

_POLYGONS = ("polygon", "rotation", "quadrilateral")
_NO_AREA = ("point", "line", "linestrip", "points")
_FLAGS = "flags"


class ShapeRules(NamedTuple):
    """Rules for shapes that are objects.

    Attributes:
        ignored: labels of shapes that are no objects.
        has_masks: whether polygons are wanted, and not their boxes alone.
    """

    ignored: tuple[str, ...] = ()
    has_masks: bool = False


class _LabelmeFile(msgspec.Struct):
    shapes: list[msgspec.Raw]
    image_path: str = msgspec.field(name="imagePath")
    image_data: msgspec.Raw = msgspec.field(name="imageData", default=msgspec.Raw(b"null"))
    height: int | None = msgspec.field(name="imageHeight", default=None)
    width: int | None = msgspec.field(name="imageWidth", default=None)
    flags: dict[str, Any] | None = None


class _Shape(msgspec.Struct):
    label: str
    points: list[Point]
    shape_type: str | None = None
    group_id: int | str | None = None
    flags: dict[str, Any] | None = None
    difficult: bool | None = None
    mask: str | None = None


def source(options: LabelmeOptions) -> Source:
    labels = find_labels(options, is_json)
    rules = ShapeRules(options.ignore_labels, options.masks != "none")
    return naming_source(options, labels, partial(parse_shapes, rules=rules), check=_check)


def _check(notes: frozenset[str]) -> Iterator[str]:
    yield from mask_warnings(notes)
    if _FLAGS in notes:
        yield "label files have flags of shapes, and records have no key for them"


@parser
def parse_shapes(stream: BinaryIO, file: str, rules: ShapeRules) -> Iterator[LabelledImage]:
    """Yield the image of a label file.

    >>> import io, json
    >>> shapes = [
    ...     {"label": "cat", "points": [[1, 2], [4, 6]], "shape_type": "rectangle"},
    ...     {"label": "cat", "points": [[1, 2]], "shape_type": "point"},
    ... ]
    >>> data = json.dumps({"shapes": shapes, "imagePath": "..\\\\1.jpg"}).encode()
    >>> image, = parse_shapes(io.BytesIO(data), "labels/1.json", ShapeRules())
    >>> image.sample.file_name, image.sample.objects[0].box, image.faults[0].text("1.json")
    ('1.jpg', (1.0, 2.0, 3.0, 4.0), 'shape 2 in 1.json: a point has no area')
    """
    parts = ImageParts()
    found = read_json(stream, _LabelmeFile, "LabelMe", parts)
    if (found.width is None) != (found.height is None) or min(found.width or 1, found.height or 1) < 1:
        yield not_usable(f"imageWidth is {found.width}, imageHeight {found.height}")
        return
    for numbers, group in _groups(found.shapes, parts).values():
        with parts.rejecting(f"shape{'s' * (len(numbers) > 1)} {' and '.join(map(str, numbers))}"):
            parts.objects.append(_object(group, rules, found, parts.notes))
    tags = tuple(flag for flag, is_set in (found.flags or {}).items() if is_set is True and flag not in rules.ignored)
    is_held = bytes(found.image_data) not in (b"null", b'""')
    sample = Sample(
        image_name(file, found.image_path),
        path=file if is_held else "",
        width=found.width,
        height=found.height,
        tags=tags,
    )
    yield parts.image(sample)


def _groups(raw: list[msgspec.Raw], parts: ImageParts) -> dict[Any, tuple[list[int], list[_Shape]]]:
    """Return the shapes of each object with their numbers: those of one label and one group_id are one object."""
    groups: dict[Any, tuple[list[int], list[_Shape]]] = {}
    for number, each in enumerate(raw, 1):
        with parts.rejecting(f"shape {number}"):
            shape = decoded(each, _Shape, parts)
            is_part = shape.group_id is not None and shape.shape_type not in _NO_AREA
            numbers, group = groups.setdefault((shape.label, shape.group_id) if is_part else number, ([], []))
            numbers.append(number)
            group.append(shape)
    return groups


def _object(group: list[_Shape], rules: ShapeRules, file: _LabelmeFile, notes: set[str]) -> SampleObject:
    """Return the object of a group of shapes.

    Raises:
        UnusableError: The shapes are not an object.
    """
    first = group[0]
    if first.label in rules.ignored:
        raise UnusableError(Reason.EXCLUDED, f"label {first.label} (--ignore-labels)")
    notes |= {_FLAGS} if any(any((shape.flags or {}).values()) for shape in group) else set()
    difficult = any(shape.difficult for shape in group)
    is_box = first.shape_type == "rectangle" and len(group) == 1
    if not is_box and not rules.has_masks:
        notes.add(MASKS)
    if any(shape.shape_type == "mask" for shape in group):
        return _mask_object(group, rules, file, difficult)
    rings = list(map(_ring, group))
    if is_box:
        return box_object(first.label, *rings[0][0], *rings[0][2], difficult=difficult)
    is_turned = first.shape_type == "rotation" and len(group) == 1 and len(rings[0]) == 4
    corners = tuple(number for point in rings[0] for number in point) if is_turned else ()
    return polygon_object(first.label, rings, rules.has_masks, difficult=difficult, corners=corners)


def _ring(shape: _Shape) -> list[Point]:
    kind, points = shape.shape_type or "polygon", shape.points
    if kind in _POLYGONS:
        return points
    if kind in _NO_AREA:
        raise without_area(kind)
    if kind == "rectangle" and len(points) in (2, 4):
        return rectangle_ring(points)
    if kind == "circle" and len(points) == 2:
        (x, y), (edge_x, edge_y) = points
        radius = float(np.hypot(edge_x - x, edge_y - y))
        return ellipse_ring((x, y), (radius, radius))
    raise UnusableError(Reason.MALFORMED_ANNOTATION, f"shape_type {kind} of {len(points)} points is not read")


def _mask_object(group: list[_Shape], rules: ShapeRules, file: _LabelmeFile, difficult: bool) -> SampleObject:
    shape = group[0]
    if len(group) > 1:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "a mask is in a group with other shapes")
    if len(shape.points) != 2 or not shape.mask:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "a mask without its two corners, or without its image")
    (left, top), (right, bottom) = shape.points
    try:
        part = np.asarray(open_image(base64.b64decode(shape.mask, validate=True), "png").convert("L")) > 0
    except (binascii.Error, ValueError, OSError, SyntaxError) as error:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, f"the image of a mask does not decode ({error})") from error
    text = _mask_text(part, round(left), round(top), file) if rules.has_masks else ""
    more = {"area_px2": float(part.sum()), "difficult": difficult}
    return box_object(shape.label, left, top, right + 1, bottom + 1, segmentation=text, **more)


def _mask_text(part: np.ndarray, left: int, top: int, file: _LabelmeFile) -> str:
    if not file.width or not file.height:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "a mask, in a file without imageWidth and imageHeight")
    height, width = part.shape
    if left < 0 or top < 0 or left + width > file.width or top + height > file.height:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "a mask that crosses the edge of its image")
    return mask_text(part, left, top, file.width, file.height)
