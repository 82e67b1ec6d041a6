"""Regions of VIA's JSON files become objects: exports of annotations, and projects, of versions 1 and 2."""

import posixpath
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.names import is_absolute
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
from recordmill.transforms.annotated.shapes import ellipse_ring, polygon_object, without_area
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source, not_usable, parser
from recordmill.transforms.via.via_options import ViaOptions

_PROJECT = "_via_img_metadata"
_OTHERS = {"annotations", "shapes", "features"}
"""Keys of JSON of other tools."""
_ATTRIBUTE, _OF_FILE = "attribute ", "file_attributes"


class RegionRules(NamedTuple):
    """Rules for regions.

    Attributes:
        attribute: that has the class; empty for the only one.
        class_name: of regions without it; empty to reject them.
        has_masks: whether polygons are wanted, and not their boxes alone.
    """

    attribute: str = ""
    class_name: str = ""
    has_masks: bool = False


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
    rules = RegionRules(options.class_attribute or "", options.class_name or "", options.masks != "none")
    check = partial(_check, rules=rules)
    return naming_source(options, labels, partial(parse_regions, rules=rules), check=check)


def _check(notes: frozenset[str], rules: RegionRules) -> Iterator[str]:
    attributes = sorted(note.removeprefix(_ATTRIBUTE) for note in notes if note.startswith(_ATTRIBUTE))
    if rules.attribute and rules.attribute not in attributes:
        raise ConfigError(
            f"--class-attribute {rules.attribute}: no region has it; there are {', '.join(attributes) or 'none'}"
        )
    if not rules.attribute and len(attributes) > 1:
        raise ConfigError(f"regions have the attributes {', '.join(attributes)}: give the class's as --class-attribute")
    if others := [name for name in attributes if name != rules.attribute and len(attributes) > 1]:
        yield f"regions have the attributes {', '.join(others)}, too, and records have no key for them"
    if _OF_FILE in notes:
        yield "images have file attributes, and records have no key for them"
    yield from mask_warnings(notes)


@parser
def parse_regions(stream: BinaryIO, file: str, rules: RegionRules) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    >>> import io
    >>> shape = b'{"name": "circle", "cx": 5, "cy": 5, "r": 2}'
    >>> region = b'{"shape_attributes": ' + shape + b', "region_attributes": {"a": "cat"}}'
    >>> data = b'{"1.jpg12": {"filename": "1.jpg", "regions": [' + region + b']}}'
    >>> image, = parse_regions(io.BytesIO(data), "train/via.json", RegionRules())
    >>> image.sample.file_name, image.sample.objects[0].category, image.sample.objects[0].box
    ('train/1.jpg', 'cat', (3.0, 3.0, 4.0, 4.0))
    """
    found, folder = read_json(stream, dict[str, msgspec.Raw], "VIA"), ""
    if _PROJECT in found:
        settings = decoded(found.get("_via_settings", b"{}"), Any)
        core = settings.get("core") if isinstance(settings, dict) else None
        folder = str((core or {}).get("default_filepath") or "") if isinstance(core or {}, dict) else ""
        found = decoded(found[_PROJECT], dict[str, msgspec.Raw])
    elif found.keys() & _OTHERS:
        raise UnusableError(Reason.MALFORMED_LABELS, f"it is not VIA's JSON: its keys are {', '.join(found)}")
    for key, raw in found.items():
        try:
            image = decoded(raw, _ViaImage)
            path = (
                image.filename
                if is_absolute(image.filename)
                else image.filename and posixpath.join(folder, image.filename)
            )
            name = image_name(file, path)
        except UnusableError as fault:
            yield not_usable(fault.detail, where=repr(key))
        else:
            yield _image(image, name, rules)


def _image(image: _ViaImage, name: str, rules: RegionRules) -> LabelledImage:
    regions = image.regions if isinstance(image.regions, list) else list(image.regions.values())
    found = ImageParts()
    found.notes |= {_OF_FILE} if any(image.file_attributes.values()) else set()
    for number, raw in enumerate(regions, 1):
        with found.rejecting(f"region {number} of {image.filename}"):
            found.objects.append(_object(decoded(raw, _Region), rules, found))
    return found.image(Sample(name))


def _object(region: _Region, rules: RegionRules, found: ImageParts) -> SampleObject:
    """Return the object of a region.

    Raises:
        UnusableError: The region is not an object.
    """
    found.notes |= {f"{_ATTRIBUTE}{name}" for name, value in region.attributes.items() if value not in ("", {})}
    name = _class_name(region.attributes, rules)
    kind = region.shape.get("name")
    if kind == "rect":
        box = decoded(region.shape, _Rectangle, found)
        return SampleObject(name, (box.x, box.y, box.width, box.height))
    if kind == "polygon":
        points = decoded(region.shape, _Polygon, found)
        if len(points.xs) != len(points.ys):
            detail = f"a polygon of {len(points.xs)} x and {len(points.ys)} y"
            raise UnusableError(Reason.MALFORMED_SEGMENTATION, detail)
        ring = list(zip(points.xs, points.ys, strict=True))
    elif kind in ("circle", "ellipse"):
        each = decoded(region.shape, _Ellipse, found)
        ring = ellipse_ring((each.cx, each.cy), (each.rx or each.r, each.ry or each.r), each.theta)
    elif kind in ("point", "polyline"):
        raise without_area(kind)
    else:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"shape {kind!r} is not read")
    if not rules.has_masks:
        found.notes.add(MASKS)
    return polygon_object(name, [ring], rules.has_masks)


def _class_name(attributes: dict[str, Any], rules: RegionRules) -> str:
    """Return the class of a region: the value of an attribute, or the only option of it that is checked."""
    value = attributes.get(rules.attribute) if rules.attribute else next(filter(None, attributes.values()), None)
    if isinstance(value, dict | list):
        chosen = value if isinstance(value, list) else [name for name, is_chosen in value.items() if is_chosen]
        if len(chosen) > 1:
            detail = f"it has {len(chosen)} classes ({', '.join(map(str, chosen))})"
            raise UnusableError(Reason.UNKNOWN_CATEGORY, detail)
        value = next(iter(chosen), None)
    if value not in (None, ""):
        return str(value)
    if not rules.class_name:
        what = f"no attribute {rules.attribute}" if rules.attribute else "no attribute"
        raise UnusableError(Reason.UNKNOWN_CATEGORY, f"it has {what}, so no class; --class-name gives it one")
    return rules.class_name
