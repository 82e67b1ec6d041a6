"""Images and tracks of CVAT's XML become objects, by CVAT's "XML annotation format" 1.1."""

import json
import math
import posixpath
from collections.abc import Iterator
from itertools import pairwise
from typing import IO, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.images import IMAGE_SUFFIXES, MAX_PIXELS
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.names import is_absolute
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.read_xml import Element, XmlError, read_elements, sides_px, whole_number
from recordmill.transforms.annotated.shapes import box_object, ellipse_ring, polygon_object, rectangle_ring
from recordmill.transforms.annotated.source import LabelFault, LabelledImage

ROOT = "annotations"
_EDGES = ("xtl", "ytl", "xbr", "ybr")
_MASK = ("left", "top", "width", "height")
_MOST_FRAMES = 10_000_000


class CvatRules(NamedTuple):
    """How a file is read.

    Attributes:
        prefix: what the names of images begin with in the data set.
        frame: name of the image of a frame, with its number in braces.
        splits: by the names of subsets; empty if --split decides.
        has_masks: whether polygons and masks are wanted, and not their boxes alone.
    """

    prefix: str
    frame: str
    splits: dict[str, str]
    has_masks: bool


Sides = tuple[int | None, int | None]
"""Width and height in pixels; None if they are not stated."""


class Video(NamedTuple):
    """Frames of a video, and their width and height."""

    frames: range
    sides: Sides


def parse_cvat(stream: IO[bytes], file: str, rules: CvatRules) -> Iterator[LabelledImage]:
    """Yield each image, and each shape of a track as an image of one object.

    Raises:
        ConfigError: the file ends within tracks, so that no frame has all of its objects.

    >>> from io import BytesIO
    >>> box = b"<box label='cat' xtl='1' ytl='2' xbr='4' ybr='6'/>"
    >>> xml = BytesIO(b"<annotations><image name='1.jpg'>" + box + b"<box/></image></annotations>")
    >>> image, = parse_cvat(xml, "a.xml", CvatRules("", "{}.png", {}, False))
    >>> image.sample.objects[0].box, image.faults[0].detail
    ((1.0, 2.0, 3.0, 4.0), 'a <box> without label')
    """
    video, seen, has_images, tasks = Video(range(0), (None, None)), set[int](), False, set[str]()
    try:
        for element in read_elements(stream, ROOT):
            if element.tag == "meta":
                video = video_of(element)
            elif element.tag == "image":
                has_images = True
                yield _image(element, rules)
            elif element.tag == "track":
                tasks.add(element.attributes.get("task_id", ""))
                if len(tasks) > 1:
                    raise ConfigError(
                        f"{file} has tracks of several tasks, whose frames have the same names: export each"
                    )
                yield from _track(element, rules, video, seen)
    except XmlError as error:
        if seen:
            raise ConfigError(f"{file}, line {error.line}: {error.detail}; tracks are missing from here on") from error
        yield LabelledImage(None, (LabelFault(Reason.MALFORMED_LABELS, error.detail, error.line),))
        return
    if not has_images:
        yield from (LabelledImage(_frame(number, rules, video)) for number in video.frames if number not in seen)


def video_of(meta: Element) -> Video:
    """Return the frames of a video; none of a task of images."""
    task = next((found for each in ("task", "job") if (found := meta.find(each))), Element("task", {}, 0))
    start, stop = (whole_number(task.text_of(tag)) for tag in ("start_frame", "stop_frame"))
    size = meta.find("original_size") or task.find("original_size") or Element("original_size", {}, 0)
    step = whole_number(task.text_of("frame_filter").removeprefix("step=")) or 1
    frames = range(0, 0, step)
    if task.text_of("mode") == "interpolation" and start is not None and stop is not None:
        frames = range(start, stop + 1, step)[:_MOST_FRAMES]
    return Video(frames, sides_px(size.text_of("width"), size.text_of("height")))


def _image(element: Element, rules: CvatRules) -> LabelledImage:
    attributes = element.attributes
    name, subset = attributes.get("name", ""), attributes.get("subset", "")
    if not name or (rules.splits and subset not in rules.splits):
        detail = (
            f"<image> {name!r} is of subset {subset!r}, which <subsets> lacks" if name else "an <image> without name"
        )
        return LabelledImage(None, (LabelFault(Reason.MALFORMED_IMAGE, detail, element.line),))
    if posixpath.splitext(name)[1].lower() not in IMAGE_SUFFIXES:  # a frame of a video
        name += rules.frame[rules.frame.rfind(".") :]
    sides = sides_px(attributes.get("width", ""), attributes.get("height", ""))
    objects, faults, notes, tags = [], [], set(), []
    for shape in element.children:
        try:
            label = _label(shape)
            notes |= _notes(shape)
            if shape.tag == "tag":
                tags.append(label)
            else:
                objects += shape_objects(shape, label, sides, rules.has_masks)
        except UnusableError as fault:
            faults.append(LabelFault(fault.reason, fault.detail, shape.line))
    sample = Sample(
        name if is_absolute(name) else f"{rules.prefix}{name}",
        width=sides[0],
        height=sides[1],
        objects=tuple(objects),
        split=rules.splits.get(subset, ""),
        tags=tuple(dict.fromkeys(tags)),
    )
    return LabelledImage(sample, tuple(faults), tuple(sorted(notes)))


def _track(element: Element, rules: CvatRules, video: Video, seen: set[int]) -> Iterator[LabelledImage]:
    """Yield the shapes of a track that are not outside."""
    track_id, shown = whole_number(element.attributes.get("id", "")), list[tuple[int, bool]]()
    for shape in element.children:
        number, is_outside = whole_number(shape.attributes.get("frame", "")), shape.attributes.get("outside") == "1"
        try:
            if number is None:
                raise UnusableError(Reason.MALFORMED_ANNOTATION, f"a <{shape.tag}> without a number of its frame")
            seen.add(number)
            shown.append((number, is_outside))
            objects = [] if is_outside else shape_objects(shape, _label(element), video.sides, rules.has_masks)
        except UnusableError as fault:
            yield LabelledImage(None, (LabelFault(fault.reason, fault.detail, shape.line),))
            continue
        objects = [msgspec.structs.replace(each, track_id=track_id) for each in objects]
        sample = msgspec.structs.replace(_frame(number, rules, video), objects=tuple(objects))
        yield LabelledImage(sample, (), tuple(sorted(_notes(shape))))
    if any(
        frame - before > video.frames.step and not is_outside
        for (before, is_outside), (frame, _) in pairwise(sorted(shown))
    ):
        yield LabelledImage(_frame(shown[0][0], rules, video), (), ("gap",))


def _frame(number: int, rules: CvatRules, video: Video) -> Sample:
    return Sample(f"{rules.prefix}{rules.frame.format(number)}", width=video.sides[0], height=video.sides[1])


def _label(element: Element) -> str:
    label = element.attributes.get("label", "")
    if not label:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"a <{element.tag[:20]}> without label")
    return label


def _notes(shape: Element) -> set[str]:
    """Return what records lack of a shape."""
    found = {shape.tag} & {"polygon", "ellipse", "mask", "points"}
    found |= {f"<{child.tag[:20]}>" for child in shape.children}
    return found | ({"occluded"} if shape.attributes.get("occluded") == "1" else set())


def shape_objects(shape: Element, label: str, sides: Sides, has_masks: bool) -> list[SampleObject]:
    """Return the objects of a shape: points are one each, other shapes are one.

    Raises:
        UnusableError: the shape is not read, or a number of it is none.
    """
    if shape.tag == "box":
        return [_box(shape, label, has_masks)]
    if shape.tag == "polygon":
        return [polygon_object(label, [_points(shape)], has_masks)]
    if shape.tag == "ellipse":
        x, y, wide, high = _numbers(shape, ("cx", "cy", "rx", "ry"))
        return [polygon_object(label, [ellipse_ring((x, y), (wide, high), _turn_rad(shape))], has_masks)]
    if shape.tag == "mask":
        return [_mask(shape, label, sides, has_masks)]
    if shape.tag == "points":
        return [SampleObject(label, (x - 0.5, y - 0.5, 1, 1), keypoints=(x, y, 2)) for x, y in _points(shape)]
    detail = (
        f"a <{shape.tag[:20]}> of {label!r} is not read: only boxes, polygons, ellipses, masks, points and tags are"
    )
    raise UnusableError(Reason.MALFORMED_ANNOTATION, detail)


def _numbers(shape: Element, names: tuple[str, ...]) -> list[float]:
    try:
        numbers = [float(shape.attributes.get(name, "")) for name in names]
    except ValueError as error:
        shown = ", ".join(f"{name} {shape.attributes.get(name, '')[:20]!r}" for name in names)
        raise UnusableError(Reason.MALFORMED_BOX, f"a number of a <{shape.tag}> is none: {shown}") from error
    if not all(map(math.isfinite, numbers)):
        raise UnusableError(Reason.MALFORMED_BOX, f"a number of a <{shape.tag}> is not finite")
    return numbers


def _turn_rad(shape: Element) -> float:
    """Return the rotation, clockwise."""
    return math.radians(_numbers(shape, ("rotation",))[0]) if shape.attributes.get("rotation") else 0.0


def _points(shape: Element) -> list[tuple[float, float]]:
    pairs = [pair.split(",") for pair in shape.attributes.get("points", "").split(";") if pair.strip()]
    try:
        points = [(float(x), float(y)) for x, y in pairs]
    except ValueError as error:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, f"a <{shape.tag}> has a point that is not x,y") from error
    if not points or not all(math.isfinite(number) for point in points for number in point):
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, f"a <{shape.tag}> has no points, or one that is not finite")
    return points


def _box(shape: Element, label: str, has_masks: bool) -> SampleObject:
    left, top, right, bottom = _numbers(shape, _EDGES)
    if right < left or bottom < top:
        raise UnusableError(Reason.MALFORMED_BOX, f"edges of the <box> of {label!r} are exchanged")
    if right == left or bottom == top:
        raise UnusableError(Reason.EMPTY_BOX, f"the <box> of {label!r} has no area")
    if not (turn_rad := _turn_rad(shape)):
        return box_object(label, left, top, right, bottom)
    x, y, cos, sin = (left + right) / 2, (top + bottom) / 2, math.cos(turn_rad), math.sin(turn_rad)
    offsets = [(each_x - x, each_y - y) for each_x, each_y in rectangle_ring([(left, top), (right, bottom)])]
    ring = [(x + wide * cos - high * sin, y + wide * sin + high * cos) for wide, high in offsets]
    return polygon_object(label, [ring], has_masks, corners=tuple(number for point in ring for number in point))


def _mask(shape: Element, label: str, sides: Sides, has_masks: bool) -> SampleObject:
    """Return the object of a mask: run lengths of 0 and 1 in turn, row by row, in its own box."""
    left, top, width, height = (whole_number(shape.attributes.get(name, "")) for name in _MASK)
    runs = [whole_number(run.strip()) for run in shape.attributes.get("rle", "").split(",")]
    if left is None or top is None or width is None or height is None or None in runs:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, f"a number of the <mask> of {label!r} is not 0 or more")
    lengths = np.array(runs, np.int64)
    if not 0 < width * height == lengths.sum() <= MAX_PIXELS or not lengths[1::2].any():
        detail = f"the <mask> of {label!r} has {lengths.sum():,} pixels in its runs, and a box of {width} x {height}"
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, detail)
    text = ""
    if has_masks:
        if not (sides[0] and sides[1]) or left + width > sides[0] or top + height > sides[1]:
            raise UnusableError(Reason.MASK_SIZE_MISMATCH, f"the <mask> of {label!r} is not within its <image>")
        mask = np.repeat(np.arange(len(lengths), dtype=np.uint8) % 2, lengths).reshape(height, width)
        text = json.dumps({"size": [sides[1], sides[0]], "counts": column_runs(mask, left, top, sides[0], sides[1])})
    return SampleObject(label, (left, top, width, height), segmentation=text, area_px2=float(lengths[1::2].sum()))


def column_runs(mask: np.ndarray, left: int, top: int, width: int, height: int) -> list[int]:
    """Return COCO's run lengths of an image, column by column, of a mask of a part of it.

    Args:
        mask: int [rows, columns] of 0 and 1.
        left, top: of the part.
        width, height: of the image.

    >>> column_runs(np.array([[0, 1], [1, 1]]), 1, 1, 4, 3)
    [5, 1, 1, 2, 3]
    """
    columns = np.zeros((mask.shape[1], height), mask.dtype)
    columns[:, top : top + mask.shape[0]] = mask.T
    starts = np.flatnonzero(np.diff(columns.ravel(), prepend=0, append=0)) + left * height
    return np.diff(starts[starts < width * height], prepend=0, append=width * height).tolist()
