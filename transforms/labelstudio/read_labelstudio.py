"""Convert tasks of Label Studio's JSON to images. Coordinates are percent; rotation is about the top left corner."""

import math
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
from msgspec.structs import replace

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.boxes import LARGEST
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import Flag
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import (
    LabelFolders,
    decode_part,
    find_labels,
    fraction_box,
    is_json,
    mask_notes,
    mask_warnings,
    naming_source,
    read_label_json,
)
from recordmill.transforms.annotated.shapes import (
    Point,
    check_ring,
    ellipse_ring,
    flat_shape_error,
    flatten_points,
    polygon_object,
)
from recordmill.transforms.annotated.source import (
    ImageParts,
    LabelFault,
    LabelledImage,
    Source,
    parser,
    unusable_image,
)
from recordmill.transforms.labelstudio.labelstudio_options import LabelstudioOptions
from recordmill.transforms.storage.resolve import storage_for

_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")
_MAX_NAMES = 1000
"""Number of images whose names are searched for the code of an upload."""
_LABEL_KEYS = ("rectanglelabels", "polygonlabels", "ellipselabels", "keypointlabels", "brushlabels", "labels")
_SHAPES = ("rectangle", "polygon", "ellipse", "keypoint", "brush")
_SEVERAL, _PREDICTIONS = "several annotations", "predictions"
_UNREAD = "results of type {kind} are not read: {{number}}"
_SKIPPED = "tasks that were skipped: {{number}}; {action} ({{names}})"
_NOT_ANNOTATED = "tasks that are not annotated: {{number}}; {action} ({{names}})"
_ACTIONS = {
    False: "their images are left out, and --unfinished background writes them",
    True: "their images are written without objects, as background",
}
"""Action on the image of an unfinished task: left out, or written."""
_VALUES = {kind: kind for kind in ("choices", "number", "rating", "datetime", "taxonomy")} | {"textarea": "text"}
"""Keys of `value` by types of results that are open fields, named by their `from_name`."""
_PERCENT, _FRACTIONS = "coordinates beyond 1", "coordinates within 0..1"
_PIXELS, _NO_PIXELS = "whole numbers in a small image", "other numbers"


class _TaskAnnotation(msgspec.Struct):
    result: list[msgspec.Raw] = []
    was_cancelled: Flag = False  # type: ignore[assignment]
    lead_time: Any = None


class _Task(msgspec.Struct):
    data: dict[str, Any]
    annotations: list[_TaskAnnotation] | None = None
    completions: list[_TaskAnnotation] | None = None
    predictions: msgspec.Raw = msgspec.Raw(b"[]")

    @property
    def rows(self) -> list[_TaskAnnotation]:
        return self.annotations if self.annotations is not None else self.completions or []


class _Result(msgspec.Struct):
    type: str
    value: dict[str, Any] = {}
    id: str | int = ""
    from_name: Any = None
    score: Any = None
    meta: Any = None
    original_width: int | None = None
    original_height: int | None = None
    image_rotation: float | None = None

    @property
    def kind(self) -> str:
        """Kind of the shape, such as `rectangle`, or "" for any kind; for another result, its type."""
        kind = self.type.removesuffix("labels")
        return kind if kind in ("", *_SHAPES) else self.type

    @property
    def is_shape(self) -> bool:
        return self.kind in ("", *_SHAPES)

    @property
    def field(self) -> dict[str, Any]:
        """Open field of a result that is not a shape, by name; empty for a shape."""
        value = self.value.get(_VALUES.get(self.type, ""))
        return {} if value is None else {str(self.from_name or self.type): value}


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
    if options.upload_prefix is None and not _has_upload_codes(labels):
        drops_code = True
        warnings = ["no image has the code of an upload in its name, so codes are dropped (--upload-prefix keep)"]
    choice, has_masks = options.of_several or "", options.masks != "none"
    settings = {"drops_code": drops_code, "has_masks": has_masks, "is_background": options.unfinished == "background"}
    parse = partial(parse_tasks, image_key=options.image_key or "", choice=choice, **settings)
    return naming_source(options, labels, parse, check=partial(_check_tasks, choice=choice, warnings=warnings))


def _is_export(name: str) -> bool:
    return is_json(name) and not name.endswith("-info.json")


def _has_upload_codes(labels: LabelFolders) -> bool:
    """Return True if one of the first images has the code of an upload in its name."""
    folders = [folder.path for folder in labels.folders if folder.has_images]
    files = (posixpath.basename(file.name) for path in folders for file in storage_for(path).walk(path))
    return any(map(_UPLOADED.match, islice(filter(is_image_name, files), _MAX_NAMES)))


def _check_tasks(notes: frozenset[str], choice: str, warnings: list[str]) -> Iterator[str]:
    if _SEVERAL in notes and not choice:
        raise ConfigError("tasks have several annotations. Add --of-several first, last or all")
    if _FRACTIONS in notes and _PERCENT not in notes:
        raise ConfigError(
            "all coordinates are within 0..1, as if they were fractions; Label Studio has percent. Multiply them by 100"
        )
    if _PIXELS in notes and _NO_PIXELS not in notes:
        yield (
            "all coordinates are whole numbers, and no task states an image larger than 100 x 100, so they may be "
            "pixels. They are read as percent, as Label Studio writes them. Check some (recordmill show)"
        )
    if "code" in notes:
        yield from warnings
    if _PREDICTIONS in notes:
        yield "tasks have predictions, which are not read"
    yield from mask_warnings(notes)


@parser
def parse_tasks(
    stream: BinaryIO,
    file: str,
    image_key: str = "",
    choice: str = "",
    drops_code: bool = False,
    has_masks: bool = False,
    is_background: bool = False,
) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    Args:
        image_key: Key of `data` with the image; empty to find it.
        choice: `first`, `last` or `all` annotations of a task; empty if tasks should have only one.
        drops_code: True to drop the code of an upload from names.
        has_masks: True if records store polygons, False if only their boxes.
        is_background: True to write images of unfinished tasks without objects, False to leave them out.

    >>> import io
    >>> value = b'{"x": 25, "y": 50, "width": 10, "height": 20, "rotation": 0, "rectanglelabels": ["Cat"]}'
    >>> result = b'[{"type": "rectanglelabels", "original_width": 40, "original_height": 30, "value": ' + value + b'}]'
    >>> data = b'[{"data": {"image": "/data/upload/1/1.jpg"}, "annotations": [{"result": ' + result + b'}]}]'
    >>> image, = parse_tasks(io.BytesIO(data), "a.json")
    >>> image.sample.file_name, image.sample.width, image.sample.objects[0].box
    ('/data/upload/1/1.jpg', 40, (0.25, 0.5, 0.1, 0.2))
    """
    for number, raw in enumerate(read_label_json(stream, list[msgspec.Raw], "Label Studio"), 1):
        parts = ImageParts()
        try:
            task = decode_part(raw, _Task, parts)
            name = _task_image_name(task.data, image_key, drops_code)
        except UnusableError as fault:
            yield unusable_image(fault.detail, where=f"task {number}")
        else:
            parts.notes |= {"code"} if drops_code else set()
            image = _convert_task(task, name, f"task {number}", choice, has_masks, parts)
            if unfinished := _unfinished_text(task, is_background):
                image = image._replace(warnings=(*image.warnings, unfinished), is_omitted=not is_background)
            yield image._replace(entry=f"task {number}")


def _unfinished_text(task: _Task, is_background: bool) -> str:
    """Return the warning of a task without a submitted annotation; "" for other tasks."""
    if any(not row.was_cancelled for row in task.rows):
        return ""
    return (_SKIPPED if task.rows else _NOT_ANNOTATED).format(action=_ACTIONS[is_background])


def _task_image_name(data: dict[str, Any], image_key: str, drops_code: bool) -> str:
    """Return the file name of a task's image.

    Raises:
        UnusableError: No key of `data`, or several, name an image.
    """
    texts = {key: _url_path(value) for key, value in data.items() if isinstance(value, str)}
    paths = {key: path for key, path in texts.items() if is_image_name(path)}
    key = image_key or ("image" if "image" in paths else next(iter(paths), ""))
    if len(paths) > 1 and key != "image" and not image_key:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"data has several images ({', '.join(paths)}). Add --image-key")
    if key not in paths:
        raise UnusableError(Reason.MALFORMED_IMAGE, f"data has no image{f' {key}' if key else ''}")
    folder, base = posixpath.split(paths[key])
    return posixpath.join(folder, _UPLOADED.sub("", base, count=1) if drops_code else base)


def _url_path(url: str) -> str:
    """Return the path in the URL of an image, whose end `--match suffix` compares with files.

    >>> _url_path("/data/local-files/?d=a%20b/1.jpg"), _url_path("s3://bucket/a/1.jpg"), _url_path("/upload/x%23.jpg")
    ('a b/1.jpg', 's3://bucket/a/1.jpg', '/upload/x#.jpg')
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if local := parse_qs(parts.query).get("d"):
        return local[0]
    start = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
    return f"{start}{unquote(parts.path)}"


# Long list of arguments: those of parse_tasks.
def _convert_task(
    task: _Task, name: str, task_name: str, choice: str, has_masks: bool, parts: ImageParts
) -> LabelledImage:
    parts.notes |= {_PREDICTIONS} if bytes(task.predictions) not in (b"[]", b"null") else set()
    rows = [row for row in task.rows if not row.was_cancelled]
    parts.notes |= {_SEVERAL} if len(rows) > 1 else set()
    chosen = {"first": rows[:1], "last": rows[-1:]}.get(choice, rows)
    sizes: set[tuple[int, int]] = set()
    tags: list[str] = []
    results: list[tuple[int, _Result]] = []
    for number, raw in enumerate((raw for row in chosen for raw in row.result), 1):
        with parts.rejecting(f"result {number} of {task_name}"):
            results.append((number, decode_part(raw, _Result, parts)))
    # A shape and its labels may be two results with the same id, which its fields have, too.
    labelled = {result.id for _, result in results if result.id and _result_labels(result)}
    shapes = {result.id for _, result in results if result.id and result.is_shape}
    region_fields: dict[str | int, dict[str, Any]] = {}
    image_fields: dict[str, Any] = {}
    unread: list[str] = []
    for _, result in results:
        if result.field and result.id in shapes:
            region_fields.setdefault(result.id, {}).update(result.field)
    for number, result in results:
        if result.id in shapes and (result.field or (result.id in labelled and not _result_labels(result))):
            unread += [] if result.field or result.is_shape else [result.type]
            continue
        choices = result.value.get("choices")
        if result.type == "choices" and isinstance(choices, list) and "x" not in result.value:
            tags += [choice for choice in choices if isinstance(choice, str)]
            continue
        if not result.is_shape:
            is_field = bool(result.field) and "x" not in result.value
            image_fields |= result.field if is_field else {}
            unread += [] if is_field else [result.type]
            continue
        with parts.rejecting(f"result {number} of {task_name}"):
            objects = _convert_result(result, has_masks, parts)
            fields = {"score": result.score, "meta": result.meta} | region_fields.get(result.id, {})
            parts.objects += (replace(object_, fields=fields) for object_ in objects)
            if result.original_width and result.original_height:
                sizes.add((result.original_width, result.original_height))
    parts.notes |= mask_notes(parts.objects)
    if len(sizes) > 1:
        detail = f"its results state {' and '.join(f'{width}x{height}' for width, height in sorted(sizes))}"
        return LabelledImage(None, (LabelFault(Reason.SIZE_MISMATCH, detail, where=task_name),))
    width, height = sizes.pop() if sizes else (None, None)
    times = [row.lead_time for row in chosen if row.lead_time is not None]
    fields = {"lead_time": next(iter(times), None), "data": _other_data(task.data), **image_fields}
    image = parts.image(Sample(name, width=width, height=height, tags=tuple(tags), fields=fields))
    return image._replace(warnings=(*image.warnings, *(_UNREAD.format(kind=kind) for kind in unread)))


def _other_data(data: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a task's `data` that do not name an image."""
    is_path = {key for key, value in data.items() if isinstance(value, str) and is_image_name(_url_path(value))}
    return {key: value for key, value in data.items() if key not in is_path}


def _convert_result(result: _Result, has_masks: bool, parts: ImageParts) -> Iterator[SampleObject]:
    """Yield an object for each label of a result.

    Raises:
        UnusableError: The result is not an object.
    """
    kind = result.kind
    if not result.value:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"a result of type {result.type} without a value")
    labels: Any = _result_labels(result)
    if not labels or not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UnusableError(Reason.UNKNOWN_CATEGORY, f"a {kind} without a label")
    if result.image_rotation:
        raise UnusableError(Reason.MALFORMED_BOX, f"the image was turned by {result.image_rotation:g} degrees")
    value = decode_part({key: item for key, item in result.value.items() if key not in _LABEL_KEYS}, _Value, parts)
    numbers = (value.x, value.y, value.width, value.height, *flatten_points(value.points))
    parts.notes.add(_PERCENT if max(numbers) > 1 else _FRACTIONS)
    is_small = max(result.original_width or 0, result.original_height or 0) < 100
    parts.notes.add(_PIXELS if is_small and not any(number % 1 for number in numbers) else _NO_PIXELS)
    ring = _result_ring(kind, value, result)
    if value.points:  # rotated shapes may cross the edge of the image
        check_ring(ring)
    edges = [round(percent / 100, 12) for percent in (value.x, value.y, value.x + value.width, value.y + value.height)]
    box = (0.0, 0.0, 0.0, 0.0) if ring else fraction_box(edges[0], edges[1], edges[2], edges[3])
    for label in labels:
        if ring:
            corners = flatten_points(ring) if kind in ("", "rectangle") and len(ring) == 4 else ()
            yield polygon_object(label, [ring], has_masks, frame="fraction", corners=corners)
        else:
            yield SampleObject(label, box, "fraction")


def _result_labels(result: _Result) -> Any:
    return next((result.value[key] for key in _LABEL_KEYS if result.value.get(key)), None)


def _result_ring(kind: str, value: _Value, result: _Result) -> list[Point]:
    """Return the points of a shape in fractions of the image size; empty for an upright box.

    Raises:
        UnusableError: The shape has no area, or is rotated in an image of unknown size.
    """
    x, y, turn_rad = value.x, value.y, math.radians(value.rotation)
    wide, high = result.original_width or 0, result.original_height or 0
    if kind == "keypoint":
        raise flat_shape_error(kind)
    if kind == "brush":
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, "masks of brushes are not read")
    if turn_rad and not (wide and high):
        raise UnusableError(Reason.MALFORMED_BOX, "a rotation without original_width and original_height")
    if turn_rad and max(wide, high) > LARGEST:
        raise UnusableError(Reason.MALFORMED_BOX, "a rotation in an image of a size that is beyond any image")
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
