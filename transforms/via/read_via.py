"""Convert VIA's JSON files, exports of annotations and projects of versions 1 and 2, to images with objects."""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.fields import leaf_values
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import Flag
from recordmill.schemas.names import is_absolute
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import (
    decode_part,
    find_labels,
    is_json,
    mask_notes,
    mask_warnings,
    naming_source,
    read_label_json,
    resolve_image_name,
)
from recordmill.transforms.annotated.shapes import ellipse_ring, flat_shape_error, polygon_object
from recordmill.transforms.annotated.source import (
    ImageParts,
    LabelledImage,
    Source,
    field_notes,
    parser,
    unusable_image,
)
from recordmill.transforms.via.via_options import ViaOptions

_PROJECT, _ATTRIBUTES = "_via_img_metadata", "_via_attributes"
_FOREIGN_KEYS = {"annotations", "shapes", "features"}
"""Keys in the JSON of other tools."""
_ATTRIBUTE, _FILE_ATTRIBUTES, _REGION_ATTRIBUTES = "attribute ", "file_attributes", "region_attributes"


class _ViaImage(msgspec.Struct):
    filename: str
    regions: list[msgspec.Raw] | dict[str, msgspec.Raw]
    file_attributes: dict[str, Any] = {}


class _Region(msgspec.Struct):
    shape: dict[str, Any] = msgspec.field(name="shape_attributes")
    attributes: dict[str, Any] = msgspec.field(name="region_attributes", default_factory=dict)


class _Rectangle(msgspec.Struct):
    x: float
    y: float
    width: float
    height: float


class _Ellipse(msgspec.Struct):
    cx: float
    cy: float
    r: float = 0.0
    rx: float = 0.0
    ry: float = 0.0
    theta: float = 0.0


class _Polygon(msgspec.Struct):
    xs: list[float] = msgspec.field(name="all_points_x")
    ys: list[float] = msgspec.field(name="all_points_y")


def source(options: ViaOptions) -> Source:
    labels = find_labels(options, is_json)
    attribute, class_name, has_masks = options.class_attribute or "", options.class_name or "", options.masks != "none"
    settings = {"has_masks": has_masks, "has_fields": bool(options.fields)}
    parse = partial(parse_regions, class_attribute=attribute, class_name=class_name, **settings)
    check, paths = partial(_check_via_notes, class_attribute=attribute), (f"{_FILE_ATTRIBUTES}.",)
    return naming_source(options, labels, parse, check=check, image_fields=paths, text_fields=True)


def _check_via_notes(notes: frozenset[str], class_attribute: str) -> Iterator[str]:
    attributes = sorted(note.removeprefix(_ATTRIBUTE) for note in notes if note.startswith(_ATTRIBUTE))
    if class_attribute and class_attribute not in attributes:
        raise ConfigError(
            f"--class-attribute {class_attribute} is not an attribute of any region; "
            f"the attributes are {', '.join(attributes) or 'none'}"
        )
    if not class_attribute and len(attributes) > 1:
        raise ConfigError(
            f"regions have the attributes {', '.join(attributes)}. Add --class-attribute with the one of the class"
        )
    yield from mask_warnings(notes)


@parser
def parse_regions(
    stream: BinaryIO,
    file: str,
    class_attribute: str = "",
    class_name: str = "",
    has_masks: bool = False,
    has_fields: bool = False,
) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    Args:
        class_attribute: Attribute of regions with the class; empty for their only attribute.
        class_name: Class of regions without the attribute; empty to reject them.
        has_masks: True if records store polygons, False if only their boxes.
        has_fields: True if records store open fields.

    >>> import io
    >>> shape = b'{"name": "circle", "cx": 5, "cy": 5, "r": 2}'
    >>> region = b'{"shape_attributes": ' + shape + b', "region_attributes": {"a": "cat"}}'
    >>> data = b'{"1.jpg12": {"filename": "1.jpg", "regions": [' + region + b']}}'
    >>> image, = parse_regions(io.BytesIO(data), "train/via.json")
    >>> image.sample.file_name, image.sample.objects[0].category, image.sample.objects[0].box
    ('train/1.jpg', 'cat', (3.0, 3.0, 4.0, 4.0))
    """
    images, folder = read_label_json(stream, dict[str, msgspec.Raw], "VIA"), ""
    options = _option_texts(decode_part(images.get(_ATTRIBUTES, b"{}"), Any)) if _PROJECT in images else {}
    class_of = partial(_region_class, class_attribute=class_attribute, class_name=class_name, options=options)
    if _PROJECT in images:
        settings = decode_part(images.get("_via_settings", b"{}"), Any)
        core = settings.get("core") if isinstance(settings, dict) else None
        folder = str((core or {}).get("default_filepath") or "") if isinstance(core or {}, dict) else ""
        images = decode_part(images[_PROJECT], dict[str, msgspec.Raw])
    elif images.keys() & _FOREIGN_KEYS:
        raise UnusableError(Reason.MALFORMED_LABELS, f"it is not VIA's JSON: its keys are {', '.join(images)}")
    for key, raw in images.items():
        try:
            image = decode_part(raw, _ViaImage)
            path = (
                image.filename
                if is_absolute(image.filename)
                else image.filename and posixpath.join(folder, image.filename)
            )
            name = resolve_image_name(file, path)
        except UnusableError as fault:
            yield unusable_image(fault.detail, where=repr(key))
        else:
            via_image = _convert_via_image(image, name, class_of, class_attribute, has_masks, has_fields)
            yield via_image._replace(entry=f"the entry {key!r}")


def _option_texts(attributes: Any) -> dict[str, dict[str, str]]:
    """Return the texts of the options of each attribute of regions, by id. VIA's export to COCO has them as categories.
    An option whose text is empty, or not unique, is left out: its id is its name.

    >>> _option_texts({"region": {"kind": {"options": {"1": "cat", "2": "dog", "3": "", "4": "fly", "5": "fly"}}}})
    {'kind': {'1': 'cat', '2': 'dog'}}
    """
    regions = attributes.get("region") if isinstance(attributes, dict) else None
    texts: dict[str, dict[str, str]] = {}
    for name, attribute in regions.items() if isinstance(regions, dict) else ():
        options = attribute.get("options") if isinstance(attribute, dict) else None
        if isinstance(options, dict):
            numbers = Counter(map(str, options.values()))
            texts[name] = {id_: text for id_, text in options.items() if text and numbers[str(text)] == 1}
    return texts


def _convert_via_image(
    image: _ViaImage,
    name: str,
    class_of: Callable[[dict[str, Any], ImageParts], str],
    class_attribute: str,
    has_masks: bool,
    has_fields: bool,
) -> LabelledImage:
    regions = image.regions if isinstance(image.regions, list) else list(image.regions.values())
    parts = ImageParts()
    file_fields = {key: value for key, value in image.file_attributes.items() if value not in ("", {})}
    parts.notes |= field_notes(f"{_FILE_ATTRIBUTES}.{path}" for path, _ in leaf_values(file_fields))
    for number, raw in enumerate(regions, 1):
        with parts.rejecting(f"region {number} of {image.filename}"):
            region = decode_part(raw, _Region)
            given = {key: value for key, value in region.attributes.items() if value not in ("", {})}
            parts.notes |= {f"{_ATTRIBUTE}{key}" for key in given}
            category = class_of(region.attributes, parts)
            # Without --class-attribute, the only attribute is the class.
            given = {key: value for key, value in given.items() if class_attribute not in ("", key)}
            parts.notes |= field_notes(f"{_REGION_ATTRIBUTES}.{path}" for path, _ in leaf_values(given))
            object_ = _convert_region(region.shape, category, has_masks, parts)
            parts.objects.append(replace(object_, fields={_REGION_ATTRIBUTES: given}) if has_fields else object_)
    parts.notes |= mask_notes(parts.objects)
    return parts.image(Sample(name, fields={_FILE_ATTRIBUTES: file_fields} if has_fields else {}))


def _convert_region(shape: dict[str, Any], category: str, has_masks: bool, parts: ImageParts) -> SampleObject:
    """Return the object of a region's shape.

    Raises:
        UnusableError: The shape is not an object.
    """
    kind = shape.get("name")
    if kind == "rect":
        box = decode_part(shape, _Rectangle, parts)
        return SampleObject(category, (box.x, box.y, box.width, box.height))
    if kind == "polygon":
        points = decode_part(shape, _Polygon, parts)
        if len(points.xs) != len(points.ys):
            detail = f"a polygon has {len(points.xs)} x and {len(points.ys)} y"
            raise UnusableError(Reason.MALFORMED_SEGMENTATION, detail)
        ring = list(zip(points.xs, points.ys, strict=True))
    elif kind in ("circle", "ellipse"):
        ellipse = decode_part(shape, _Ellipse, parts)
        radii = ellipse.rx or ellipse.r, ellipse.ry or ellipse.r
        ring = ellipse_ring((ellipse.cx, ellipse.cy), radii, ellipse.theta)
    elif kind in ("point", "polyline"):
        raise flat_shape_error(kind)
    else:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"shape {kind!r} is not read")
    return polygon_object(category, [ring], has_masks)


def _region_class(
    attributes: dict[str, Any],
    parts: ImageParts,
    class_attribute: str,
    class_name: str,
    options: Mapping[str, Mapping[str, str]],
) -> str:
    """Return the class of a region: the value of the attribute, or its only checked option. The text of an option
    replaces its id."""
    attribute = class_attribute or next((name for name, value in attributes.items() if value), "")
    value = attributes.get(attribute)
    if isinstance(value, dict | list):
        flags = {} if isinstance(value, list) else decode_part(value, dict[str, Flag | None], parts)
        chosen = value if isinstance(value, list) else [name for name, is_chosen in flags.items() if is_chosen]
        if len(chosen) > 1:
            detail = f"it has {len(chosen)} classes ({', '.join(map(str, chosen))})"
            raise UnusableError(Reason.UNKNOWN_CATEGORY, detail)
        value = next(iter(chosen), None)
    if value not in (None, ""):
        return str(options.get(attribute, {}).get(str(value), value))
    if not class_name:
        what = f"no attribute {class_attribute}" if class_attribute else "no attribute"
        raise UnusableError(Reason.UNKNOWN_CATEGORY, f"it has {what}, so no class; --class-name gives it one")
    return class_name
