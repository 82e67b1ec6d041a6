"""Tasks of Label Studio's JSON become images: percent of width and height, turned about the top left corner."""

import math
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import (
    MASKS,
    Labels,
    decoded,
    find_labels,
    fraction_box,
    is_json,
    mask_warnings,
    naming_source,
    read_json,
)
from recordmill.transforms.annotated.shapes import Point, check_ring, ellipse_ring, polygon_object, without_area
from recordmill.transforms.annotated.source import ImageParts, LabelFault, LabelledImage, Source, not_usable, parser
from recordmill.transforms.labelstudio.labelstudio_options import LabelstudioOptions
from recordmill.transforms.storage.resolve import storage_for

_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")
_LOOKED_AT = 1000
"""Images whose names are looked at for the code of an upload."""
_OF_SHAPES = ("rectanglelabels", "polygonlabels", "ellipselabels", "keypointlabels", "brushlabels", "labels")
_SHAPES = ("rectangle", "polygon", "ellipse", "keypoint", "brush")
_SEVERAL, _PREDICTIONS = "several annotations", "predictions"
_OTHERS = "others "
_PERCENT, _FRACTIONS = "coordinates beyond 1", "coordinates within 0..1"
_PIXELS, _NO_PIXELS = "whole numbers in a small image", "other numbers"


class TaskRules(NamedTuple):
    """Rules for tasks.

    Attributes:
        image_key: of `data`; empty to find it.
        of_several: `first`, `last` or `all` annotations of a task; empty if there should be one.
        drops_code: True to drop the code of an upload from names.
        has_masks: whether polygons are wanted, and not their boxes alone.
    """

    image_key: str = ""
    of_several: str = ""
    drops_code: bool = False
    has_masks: bool = False


class _TaskAnnotation(msgspec.Struct):
    result: list[msgspec.Raw] = []
    was_cancelled: bool = False


class _Task(msgspec.Struct):
    data: dict[str, Any]
    annotations: list[_TaskAnnotation] | None = None
    completions: list[_TaskAnnotation] | None = None
    predictions: msgspec.Raw = msgspec.Raw(b"[]")


class _Result(msgspec.Struct):
    type: str
    value: dict[str, Any]
    id: str | int = ""
    original_width: int | None = None
    original_height: int | None = None
    image_rotation: float | None = None


class _Value(msgspec.Struct):
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    rotation: float = 0.0
    radii_x: float = msgspec.field(name="radiusX", default=0.0)
    radii_y: float = msgspec.field(name="radiusY", default=0.0)
    points: list[Point] = []


def source(options: LabelstudioOptions) -> Source:
    labels = find_labels(options, _is_export)
    drops_code, warnings = options.upload_prefix == "drop", []
    if options.upload_prefix is None and not _has_codes(labels):
        drops_code = True
        warnings = ["no image has the code of an upload in its name, so codes are dropped (--upload-prefix keep)"]
    masks = options.masks != "none"
    rules = TaskRules(options.image_key or "", options.of_several or "", drops_code, masks)
    parse, check = partial(parse_tasks, rules=rules), partial(_check, rules=rules, warnings=warnings)
    return naming_source(options, labels, parse, check=check)


def _is_export(name: str) -> bool:
    return is_json(name) and not name.endswith("-info.json")


def _has_codes(labels: Labels) -> bool:
    """Return True if an image, of the first ones, has the code of an upload in its name."""
    folders = [folder.path for folder in labels.folders if folder.has_images]
    files = (posixpath.basename(file.name) for path in folders for file in storage_for(path).walk(path))
    return any(map(_UPLOADED.match, islice(filter(is_image_name, files), _LOOKED_AT)))


def _check(notes: frozenset[str], rules: TaskRules, warnings: list[str]) -> Iterator[str]:
    if _SEVERAL in notes and not rules.of_several:
        raise ConfigError("tasks have several annotations: give --of-several first, last or all")
    if _FRACTIONS in notes and _PERCENT not in notes:
        raise ConfigError(
            "all coordinates are within 0..1, as fractions are, and Label Studio has percent: multiply them by 100"
        )
    if _PIXELS in notes and _NO_PIXELS not in notes:
        yield (
            "all coordinates are whole numbers, and no image is stated to be larger than 100 x 100, so they may be "
            "pixels; Label Studio has percent, and they are read as that: look at some (recordmill show)"
        )
    if "code" in notes:
        yield from warnings
    if _PREDICTIONS in notes:
        yield "tasks have predictions, which are not read"
    if others := sorted(note.removeprefix(_OTHERS) for note in notes if note.startswith(_OTHERS)):
        yield f"tasks have results of type {', '.join(others)}, and records have no key for them"
    yield from mask_warnings(notes)


@parser
def parse_tasks(stream: BinaryIO, file: str, rules: TaskRules) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    >>> import io
    >>> value = b'{"x": 25, "y": 50, "width": 10, "height": 20, "rotation": 0, "rectanglelabels": ["Cat"]}'
    >>> result = b'[{"type": "rectanglelabels", "original_width": 40, "original_height": 30, "value": ' + value + b'}]'
    >>> data = b'[{"data": {"image": "/data/upload/1/1.jpg"}, "annotations": [{"result": ' + result + b'}]}]'
    >>> image, = parse_tasks(io.BytesIO(data), "a.json", TaskRules())
    >>> image.sample.file_name, image.sample.width, image.sample.objects[0].box
    ('/data/upload/1/1.jpg', 40, (0.25, 0.5, 0.1, 0.2))
    """
    for number, raw in enumerate(read_json(stream, list[msgspec.Raw], "Label Studio"), 1):
        try:
            task = decoded(raw, _Task)
            name = _image_name(task.data, rules)
        except UnusableError as fault:
            yield not_usable(fault.detail, where=f"task {number}")
        else:
            yield _image(task, name, f"task {number}", rules)


def _image_name(data: dict[str, Any], rules: TaskRules) -> str:
    """Return the file name of a task's image.

    Raises:
        UnusableError: No key of `data`, or several, name an image.
    """
    named = {key: path for key, value in data.items() if isinstance(value, str) and is_image_name(path := _path(value))}
    key = rules.image_key or ("image" if "image" in named else next(iter(named), ""))
    if len(named) > 1 and key != "image" and not rules.image_key:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"data has several images ({', '.join(named)}): give --image-key")
    if key not in named:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"data has no image{f' {key}' if key else ''}")
    folder, base = posixpath.split(named[key])
    return posixpath.join(folder, _UPLOADED.sub("", base, count=1) if rules.drops_code else base)


def _path(url: str) -> str:
    """Return the path of an image, of which `--match suffix` finds the file.

    >>> _path("/data/local-files/?d=a%20b/1.jpg"), _path("s3://bucket/a/1.jpg"), _path("/data/upload/1/x%23.jpg")
    ('a b/1.jpg', 's3://bucket/a/1.jpg', '/data/upload/1/x#.jpg')
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if local := parse_qs(parts.query).get("d"):
        return local[0]
    start = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
    return f"{start}{unquote(parts.path)}"


def _image(task: _Task, name: str, shown: str, rules: TaskRules) -> LabelledImage:
    found = ImageParts()
    found.notes |= {"code"} if rules.drops_code else set()
    found.notes |= {_PREDICTIONS} if bytes(task.predictions) not in (b"[]", b"null") else set()
    rows = task.annotations if task.annotations is not None else task.completions or []
    rows = [each for each in rows if not each.was_cancelled]
    found.notes |= {_SEVERAL} if len(rows) > 1 else set()
    chosen = {"first": rows[:1], "last": rows[-1:]}.get(rules.of_several, rows)
    sizes: set[tuple[int, int]] = set()
    tags: list[str] = []
    results: list[tuple[int, _Result]] = []
    for number, raw in enumerate((raw for row in chosen for raw in row.result), 1):
        with found.rejecting(f"result {number} of {shown}"):
            results.append((number, decoded(raw, _Result, found)))
    labelled = {result.id for _, result in results if _labels(result)}  # a shape, and its labels, may be two results
    for number, result in results:
        if result.id and result.id in labelled and not _labels(result):
            continue
        choices = result.value.get("choices")
        if result.type == "choices" and isinstance(choices, list) and "x" not in result.value:
            tags += [choice for choice in choices if isinstance(choice, str)]
            continue
        with found.rejecting(f"result {number} of {shown}"):
            found.objects += _objects(result, rules, found)
            if result.original_width and result.original_height:
                sizes.add((result.original_width, result.original_height))
    if len(sizes) > 1:
        detail = f"its results say {' and '.join(f'{width}x{height}' for width, height in sorted(sizes))}"
        return LabelledImage(None, (LabelFault(Reason.SIZE_MISMATCH, detail, where=shown),))
    width, height = sizes.pop() if sizes else (None, None)
    return found.image(Sample(name, width=width, height=height, tags=tuple(tags)))


def _objects(result: _Result, rules: TaskRules, found: ImageParts) -> Iterator[SampleObject]:
    """Yield an object for each label of a result.

    Raises:
        UnusableError: the result is no object.
    """
    kind = result.type.removesuffix("labels")
    if kind and kind not in _SHAPES:
        found.notes.add(f"{_OTHERS}{result.type}")
        return
    labels: Any = _labels(result)
    if not labels or not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UnusableError(Reason.UNKNOWN_CATEGORY, f"a {kind} without a label")
    if result.image_rotation:
        raise UnusableError(Reason.MALFORMED_BOX, f"the image was turned by {result.image_rotation:g} degrees")
    value = decoded({key: each for key, each in result.value.items() if key not in _OF_SHAPES}, _Value, found)
    numbers = (value.x, value.y, value.width, value.height, *(number for point in value.points for number in point))
    found.notes.add(_PERCENT if max(numbers) > 1 else _FRACTIONS)
    is_small = max(result.original_width or 0, result.original_height or 0) < 100
    found.notes.add(_PIXELS if is_small and not any(number % 1 for number in numbers) else _NO_PIXELS)
    ring = _ring(kind, value, result)
    if value.points:  # turned shapes may end outside of the image
        check_ring(ring)
    if ring and not rules.has_masks:
        found.notes.add(MASKS)
    edges = [round(each / 100, 12) for each in (value.x, value.y, value.x + value.width, value.y + value.height)]
    box = (0.0, 0.0, 0.0, 0.0) if ring else fraction_box(edges[0], edges[1], edges[2], edges[3])
    for label in labels:
        if ring:
            corners = tuple(number for point in ring for number in point) if kind in ("", "rectangle") else ()
            more = {"corners": corners if len(corners) == 8 else ()}
            yield polygon_object(label, [ring], rules.has_masks, frame="fraction", **more)
        else:
            yield SampleObject(label, box, "fraction")


def _labels(result: _Result) -> Any:
    return next((result.value[key] for key in _OF_SHAPES if result.value.get(key)), None)


def _ring(kind: str, value: _Value, result: _Result) -> list[Point]:
    """Return a shape's points in fractions; none if upright.

    Raises:
        UnusableError: the shape has no area, or is turned in an image of unknown size.
    """
    x, y, turn_rad = value.x, value.y, math.radians(value.rotation)
    wide, high = result.original_width or 0, result.original_height or 0
    if kind == "keypoint":
        raise without_area(kind)
    if kind == "brush":
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "masks of brushes are not read")
    if turn_rad and not (wide and high):
        raise UnusableError(Reason.MALFORMED_BOX, "a rotation, without original_width and original_height")
    if kind == "polygon" or value.points:
        points = value.points
    elif kind == "ellipse" or value.radii_x:
        points = ellipse_ring((x, y), (value.radii_x, value.radii_y))
    elif turn_rad:
        right, bottom = x + value.width, y + value.height
        points = [(x, y), (right, y), (right, bottom), (x, bottom)]
    else:
        return []
    if turn_rad:
        cos, sin = math.cos(turn_rad), math.sin(turn_rad)
        offsets = [((px - x) * wide, (py - y) * high) for px, py in points]
        points = [(x + (dx * cos - dy * sin) / wide, y + (dx * sin + dy * cos) / high) for dx, dy in offsets]
    return [(round(px / 100, 12), round(py / 100, 12)) for px, py in points]
