"""CVAT's XML 1.1: images/SPLIT and annotations.xml, a project whose subsets are the splits."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.field_features import FieldColumn, field_columns
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.dataset.record_view import rle_mask
from recordmill.transforms.extract.extract_rows import RunLengths
from recordmill.transforms.extract.label_format import (
    FIELDS,
    ExtractedImage,
    ExtractedObject,
    LabelFormat,
    WrittenLabels,
    count_lost,
    differ_from_box,
    format_number,
    free_fields,
    polygon_bounds,
    without_crowds,
    xml_text,
)
from recordmill.transforms.images.decode_segmentation import compress_segmentation
from recordmill.transforms.images.masks import run_lengths

_FILE = "annotations.xml"
_SHAPE_KEYS = ("occluded", "z_order", "source", "group_id")
"""Fields that are XML attributes of a shape. Others are <attribute> elements."""
_ATTRIBUTES = "attributes."
_BOUNDS = "boxes that differ from the bounds of their masks: a mask has no box"
_NO_RECTANGLE = "oriented boxes that are no rectangles, written as polygons"
_TOLERANCE = 1e-6
"""Largest error of the corners of a rotated box, as a fraction of the longer side of the image."""
_ENTITIES = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
"""Characters that end an attribute, or that parsers change."""


def write_cvat(image: ExtractedImage, labels: LabelMap, table: FeatureTable) -> WrittenLabels:
    """Return the <image> of an image, without its id. Edges and points are in pixels."""
    objects = without_crowds(image)
    shapes = [_write_shape(object_, image) for object_ in objects]
    tags = image.tags if image.class_name is None else (image.class_name,)
    fields = dict(image.fields)
    for name in tags:
        own = {path: fields.pop(path) for path in image.fields if path.startswith(_tag_prefix(name))}
        attributes = {path.removeprefix(_tag_prefix(name)): value for path, value in own.items()}
        shapes.append(_element("tag", {"label": name}, image.notes, _attribute_elements(attributes, image)))
    image.lost.update(f"field image.{path}" for path in fields)
    held = "masks", "oriented boxes", "objects with keypoints", "classes of images", "tags of images"
    count_lost(image, objects, *held, *FIELDS)
    sides = {"width": image.image.width, "height": image.image.height}
    values = {"name": image.name, "subset": image.split, **sides}
    line = _element("image", values, image.notes, "".join(shapes)).removeprefix("<image")
    return WrittenLabels(len(objects) + len(tags), None, line)


def _tag_prefix(name: str) -> str:
    """Return the beginning of the paths of a tag's fields."""
    return f"tags.{name}."


def _element(tag: str, attributes: Mapping[str, object], notes: "Counter[str]", children: str = "") -> str:
    values = "".join(f' {name}="{xml_text(value, notes, _ENTITIES)}"' for name, value in attributes.items())
    return f"<{tag}{values}>{children}</{tag}>"


def _write_shape(object_: ExtractedObject, image: ExtractedImage) -> str:
    """Return the shape of an object: a mask, a rotated box, a point, or a box."""
    tag, geometry = _mask_shape(object_, image) or _oriented_shape(object_, image) or _plain_shape(object_)
    image.lost["oriented boxes"] += tag == "mask" and any(object_.corners)
    image.lost["objects with keypoints"] += tag != "points" and bool(object_.row.num_keypoints)
    is_taken = {path.removeprefix(_ATTRIBUTES) for path in object_.fields if path.startswith(_ATTRIBUTES)}.__contains__
    own = free_fields(object_.fields, is_taken, image.lost)
    keys = {"occluded": 0, "z_order": 0} | {key: _text(own.pop(key)) for key in _SHAPE_KEYS if key in own}
    attributes = {path.removeprefix(_ATTRIBUTES): value for path, value in own.items()}
    values = {"label": object_.category.name, **keys, **geometry}
    return _element(tag, values, image.notes, _attribute_elements(attributes, image))


def _attribute_elements(attributes: Mapping[str, Any], image: ExtractedImage) -> str:
    return "".join(
        f'<attribute name="{xml_text(name, image.notes, _ENTITIES)}">'
        f"{xml_text(_text(value), image.notes, _ENTITIES)}</attribute>"
        for name, value in attributes.items()
    )


def _text(value: Any) -> str:
    """Return a field's value as text: JSON, but for texts."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_Shape = tuple[str, Mapping[str, object]]
"""Tag and geometry of a shape."""


def _mask_shape(object_: ExtractedObject, image: ExtractedImage) -> _Shape | None:
    """Return a polygon as in the source, or the run lengths of a mask within its bounds, row by row; None without a
    mask, or for that of an oriented box, which readers draw again."""
    mask, rings = object_.mask, object_.polygons
    if (mask is None and not rings) or _is_oriented_box(object_, image):
        return None
    if len(rings) == 1:
        image.notes[_BOUNDS] += differ_from_box(polygon_bounds(rings), object_)
        return "polygon", {"points": _points(rings[0])}
    if mask is None:  # a shape has one polygon
        size = image.image.width, image.image.height
        mask = rle_mask(compress_segmentation(msgspec.json.encode(object_.row.segmentation), *size), size)
    if not mask.any():
        return None
    (top, bottom), (left, right) = (np.flatnonzero(mask.any(axis=axis))[[0, -1]].tolist() for axis in (1, 0))
    image.notes[_BOUNDS] += (left, top, right + 1, bottom + 1) != object_.edges_px
    runs = run_lengths(mask[top : bottom + 1, left : right + 1].T != 0)
    sides = {"width": right + 1 - left, "height": bottom + 1 - top}
    return "mask", {"rle": ", ".join(map(str, runs.tolist())), "left": left, "top": top, **sides}


def _is_oriented_box(object_: ExtractedObject, image: ExtractedImage) -> bool:
    """Return True if the mask of an object covers its oriented box, and no other pixels."""
    segmentation = object_.row.segmentation
    if not any(object_.corners) or not segmentation:
        return False
    width, height = image.image.width, image.image.height
    ring = (np.array(object_.corners, np.float64).reshape(4, 2) * (width, height)).ravel().tolist()
    drawn = compress_segmentation(msgspec.json.encode([ring]), width, height)
    if isinstance(segmentation, RunLengths):
        return drawn == segmentation.counts.encode()
    return drawn == compress_segmentation(msgspec.json.encode(segmentation), width, height)


def _oriented_shape(object_: ExtractedObject, image: ExtractedImage) -> _Shape | None:
    """Return a box and its rotation, or a polygon for corners of no rectangle; None without corners."""
    if not any(object_.corners):
        return None
    sides = image.image.width, image.image.height
    corners = np.array(object_.corners, np.float64).reshape(4, 2) * sides
    if rectangle := _rotated_rectangle(corners, _TOLERANCE * max(sides)):
        *edges, rotation_deg = rectangle
        return "box", {**_edges(edges), "rotation": format_number(rotation_deg)}
    image.notes[_NO_RECTANGLE] += 1
    return "polygon", {"points": _points(corners.tolist())}


def _points(ring: Sequence[Sequence[float]]) -> str:
    return ";".join(f"{format_number(x)},{format_number(y)}" for x, y in ring)


def _rotated_rectangle(corners: np.ndarray, tolerance_px: float) -> tuple[float, ...] | None:
    """Return left, top, right, bottom of a rectangle before its rotation around its center, and the rotation; None if
    it is no rectangle. The rotation is in degrees, clockwise, above 0 and up to 360: 0 is a box that is not oriented.

    Args:
        corners: float64 [4, 2], x and y in pixels, in either direction.

    >>> _rotated_rectangle(np.float64([[4, 0], [4, 2], [0, 2], [0, 0]]), 0.1)
    (1.0, -1.0, 3.0, 3.0, 90.0)
    """
    center = corners.mean(axis=0)
    offsets = corners - center
    (x, y), (next_x, next_y) = offsets[1] - offsets[0], offsets[2] - offsets[1]
    if x * next_y < y * next_x:
        offsets = offsets[[0, 3, 2, 1]]
    across, down = offsets[1] - offsets[0], offsets[3] - offsets[0]
    width, height, turn_rad = math.hypot(*across), math.hypot(*down), math.atan2(across[1], across[0])
    cos, sin = math.cos(turn_rad), math.sin(turn_rad)
    plain = np.array([(-width, -height), (width, -height), (width, height), (-width, height)]) / 2
    error_px = np.abs(plain @ np.array([(cos, sin), (-sin, cos)]) - offsets).max()
    if not min(width, height) or error_px > tolerance_px:
        return None
    left, top = (center - (width / 2, height / 2)).tolist()
    return left, top, left + width, top + height, math.degrees(turn_rad) % 360 or 360.0


def _plain_shape(object_: ExtractedObject) -> _Shape:
    """Return a point for a box of one pixel around a keypoint, as points are read, or else the box."""
    xmin, ymin, xmax, ymax = object_.edges_px
    keypoints = object_.row.keypoints or ()
    center = (xmin + xmax) / 2, (ymin + ymax) / 2
    if object_.row.num_keypoints == 1 and (xmax - xmin, ymax - ymin) == (1, 1) and center == tuple(keypoints[:2]):
        return "points", {"points": ",".join(map(format_number, center))}
    return "box", _edges(object_.edges_px)


def _edges(edges: Sequence[float]) -> dict[str, str]:
    return dict(zip(("xtl", "ytl", "xbr", "ybr"), map(format_number, edges), strict=True))


def cvat_head(name: str, splits: Sequence[str], labels: LabelMap, table: FeatureTable, lines: Iterator[bytes]) -> bytes:
    """Return the beginning of the file up to its images. CVAT's import wants each class with its attributes.

    CVAT reads `subsets`, Datumaro `tasks`.
    """
    columns, names = field_columns(table), [category.name for category in labels.categories]
    classes = [
        f"        <label><name>{_plain(name)}</name>{_describe_attributes(name, columns)}</label>" for name in names
    ]
    tasks = "".join(f"<task><subset>{split}</subset></task>" for split in map(_plain, splits))
    head = (
        '<?xml version="1.0" encoding="utf-8"?>',
        "<annotations>",
        "  <version>1.1</version>",
        "  <meta>",
        "    <project>",
        f"      <name>{_plain(name)}</name>",
        f"      <tasks>{tasks}</tasks>",
        "      <labels>",
        *classes,
        "      </labels>",
        f"      <subsets>{chr(10).join(map(_plain, splits))}</subsets>",
        "    </project>",
        "  </meta>",
        "",
    )
    return "\n".join(head).encode()


def _plain(text: str) -> str:
    return xml_text(text, Counter())


def _describe_attributes(label: str, columns: Sequence[FieldColumn]) -> str:
    """Return the attributes of a class: the fields of its objects and of its tag."""
    names = {
        column.path.removeprefix(_ATTRIBUTES): column.is_bool
        for column in columns
        if column.axis == "object" and column.path not in _SHAPE_KEYS
    }
    names |= {
        column.path.removeprefix(_tag_prefix(label)): column.is_bool
        for column in columns
        if column.axis == "image" and column.path.startswith(_tag_prefix(label))
    }
    described = (
        f"<attribute><name>{_plain(name)}</name><mutable>False</mutable>"
        f"<input_type>{'checkbox' if is_bool else 'text'}</input_type>"
        "<default_value></default_value><values></values></attribute>"
        for name, is_bool in names.items()
    )
    return f"<attributes>{''.join(described)}</attributes>"


CVAT = LabelFormat(
    "images/{split}",
    _FILE,
    write_cvat,
    _FILE,
    warn=lambda *_: iter(()),
    holds_classes=True,
    head=cvat_head,
    before=lambda number: b'  <image id="%d"' % number,
    foot=b"</annotations>\n",
)
