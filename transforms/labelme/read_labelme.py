"""Convert JSON files of LabelMe and X-AnyLabeling to images with objects."""

import base64
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

import msgspec
import numpy as np

from recordmill.schemas.inputs.images import MAX_PIXELS
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import Flag
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import (
    decode_part,
    find_labels,
    is_json,
    mask_notes,
    mask_warnings,
    naming_source,
    other_values,
    read_label_values,
    resolve_image_name,
)
from recordmill.transforms.annotated.shapes import (
    Point,
    box_object,
    ellipse_ring,
    flat_shape_error,
    flatten_points,
    mask_text,
    polygon_object,
    rectangle_ring,
    with_fields,
)
from recordmill.transforms.annotated.source import (
    ImageParts,
    LabelledImage,
    Source,
    parser,
    unusable_image,
)
from recordmill.transforms.images.open_image import open_image
from recordmill.transforms.labelme.labelme_options import LabelmeOptions

_POLYGONS = ("polygon", "rotation", "quadrilateral")
_NO_AREA = ("point", "line", "linestrip", "points")


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
    difficult: Flag | None = None
    mask: str | None = None


def source(options: LabelmeOptions) -> Source:
    labels = find_labels(options, is_json)
    settings = {"ignored_labels": options.ignore_labels, "has_masks": options.masks != "none"}
    return naming_source(options, labels, partial(parse_shapes, **settings), check=mask_warnings)


@parser
def parse_shapes(
    stream: BinaryIO,
    file: str,
    ignored_labels: tuple[str, ...] = (),
    has_masks: bool = False,
) -> Iterator[LabelledImage]:
    """Yield the image of a label file.

    Args:
        ignored_labels: Labels of shapes that are not objects.
        has_masks: True if records store polygons and masks, False if only their boxes.

    >>> import io, json
    >>> shapes = [
    ...     {"label": "cat", "points": [[1, 2], [4, 6]], "shape_type": "rectangle"},
    ...     {"label": "cat", "points": [[1, 2]], "shape_type": "point"},
    ... ]
    >>> data = json.dumps({"shapes": shapes, "imagePath": "..\\\\1.jpg"}).encode()
    >>> image, = parse_shapes(io.BytesIO(data), "labels/1.json")
    >>> image.sample.file_name, image.sample.objects[0].box, image.faults[0].text("1.json")
    ('1.jpg', (1.0, 2.0, 3.0, 4.0), 'shape 2 in 1.json: a point has no area')
    """
    parts, data = ImageParts(), stream.read()
    label_file, plain = read_label_values(data, _LabelmeFile, "LabelMe", parts)
    width, height = label_file.width, label_file.height
    if (width is None) != (height is None) or min(width or 1, height or 1) < 1:
        yield unusable_image(f"imageWidth is {width}, imageHeight {height}")
        return
    raw_shapes = plain["shapes"] if plain else label_file.shapes
    for numbers, shapes in _group_shapes(raw_shapes, parts).values():
        where = f"shape {numbers[0]}" if len(numbers) == 1 else f"shapes {' and '.join(map(str, numbers))}"
        try:
            if (label := shapes[0].label) in ignored_labels:
                raise UnusableError(Reason.EXCLUDED, f"label {label} (--ignore-labels)")
            object_ = _convert_shapes(shapes, label_file, has_masks)
            object_ = with_fields(object_, _shape_fields(raw_shapes[numbers[0] - 1], shapes[0]))
        except UnusableError as error:
            parts.reject(error, where)
        else:
            parts.add(object_, where)
    parts.notes |= mask_notes(parts.objects)
    flags = (label_file.flags or {}).items()
    tags = tuple(flag for flag, value in flags if flag not in ignored_labels and _is_set(value, parts))
    has_image = bytes(label_file.image_data) not in (b"null", b'""')
    name = resolve_image_name(file, label_file.image_path)
    fields = other_values(plain or data.removeprefix(b"\xef\xbb\xbf"), _LabelmeFile, "version")
    path = file if has_image else ""
    yield parts.image(Sample(name, path=path, width=width, height=height, tags=tags, fields=fields))


def _is_set(value: Any, parts: ImageParts) -> bool:
    """Return True for a flag of the image that is set. Other values than booleans are ignored."""
    try:
        return decode_part(value, Flag, parts) is True
    except UnusableError:
        return False


def _shape_fields(raw: Any, shape: _Shape) -> dict[str, Any]:
    fields = other_values(raw, _Shape)
    if shape.flags:
        fields["flags"] = shape.flags
    if shape.group_id is not None:
        fields["group_id"] = shape.group_id
    return fields


def _group_shapes(raw: list[Any], parts: ImageParts) -> dict[Any, tuple[list[int], list[_Shape]]]:
    """Return the numbers and shapes of each object: shapes with the same label and group_id are one object.

    Args:
        raw: Shapes, as JSON or its values.
    """
    groups: dict[Any, tuple[list[int], list[_Shape]]] = {}
    try:
        decoded = decode_part(raw, list[_Shape])
    except UnusableError:  # some shape
        decoded = []
    for number, raw_shape in enumerate(raw, 1):
        try:
            shape = decoded[number - 1] if decoded else decode_part(raw_shape, _Shape, parts)
        except UnusableError as error:
            parts.reject(error, f"shape {number}")
            continue
        is_part = shape.group_id is not None and shape.shape_type not in _NO_AREA
        numbers, shapes = groups.setdefault((shape.label, shape.group_id) if is_part else number, ([], []))
        numbers.append(number)
        shapes.append(shape)
    return groups


def _convert_shapes(shapes: list[_Shape], label_file: _LabelmeFile, has_masks: bool) -> SampleObject:
    """Return the object of a group of shapes.

    Raises:
        UnusableError: The shapes are not an object.
    """
    first = shapes[0]
    fields = {"difficult": True} if True in [shape.difficult for shape in shapes] else {}
    if first.shape_type == "rectangle" and len(shapes) == 1:
        corners = _shape_ring(first)
        return box_object(first.label, *corners[0], *corners[2], fields=fields)
    if any(shape.shape_type == "mask" for shape in shapes):
        return with_fields(_mask_object(shapes, label_file, has_masks), fields)
    rings = list(map(_shape_ring, shapes))
    is_turned = first.shape_type == "rotation" and len(shapes) == 1 and len(rings[0]) == 4
    turned = flatten_points(rings[0]) if is_turned else ()
    return polygon_object(first.label, rings, has_masks, fields=fields, corners=turned)


def _shape_ring(shape: _Shape) -> list[Point]:
    kind, points = shape.shape_type or "polygon", shape.points
    if kind in _POLYGONS:
        return points
    if kind in _NO_AREA:
        raise flat_shape_error(kind)
    if kind == "rectangle" and len(points) in (2, 4):
        return rectangle_ring(points)
    if kind == "circle" and len(points) == 2:
        (x, y), (edge_x, edge_y) = points
        radius = float(np.hypot(edge_x - x, edge_y - y))
        return ellipse_ring((x, y), (radius, radius))
    raise UnusableError(Reason.MALFORMED_ANNOTATION, f"shape_type {kind} of {len(points)} points is not read")


def _mask_object(shapes: list[_Shape], label_file: _LabelmeFile, has_masks: bool) -> SampleObject:
    shape = shapes[0]
    if len(shapes) > 1:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "a mask is in a group with other shapes")
    if len(shape.points) != 2 or not shape.mask:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "a mask without its two corners or its image")
    (left, top), (right, bottom) = shape.points
    try:
        image = open_image(base64.b64decode(shape.mask, validate=True), "png")
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width}x{image.height} pixels, where the limit is {MAX_PIXELS:,}")
        part = np.asarray(image.convert("L")) > 0
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        raise UnusableError(
            Reason.MALFORMED_SEGMENTATION, f"the image of a mask cannot be decoded ({error})"
        ) from error
    text = _encode_shape_mask(part, round(left), round(top), label_file) if has_masks else ""
    area_px2 = float(part.sum())
    return box_object(shape.label, left, top, right + 1, bottom + 1, segmentation=text, area_px2=area_px2)


def _encode_shape_mask(part: np.ndarray, left: int, top: int, label_file: _LabelmeFile) -> str:
    if not label_file.width or not label_file.height:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "a mask, in a file without imageWidth and imageHeight")
    height, width = part.shape
    if left < 0 or top < 0 or left + width > label_file.width or top + height > label_file.height:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "a mask that crosses the edge of its image")
    return mask_text(part, left, top, label_file.width, label_file.height)
