"""CVAT's XML: annotations.xml of images or of videos, by CVAT's "XML annotation format" 1.1."""

import math
import posixpath
from collections.abc import Iterator
from functools import partial
from itertools import islice, pairwise
from operator import eq
from typing import IO, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.images import IMAGE_SUFFIXES, MAX_PIXELS, is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.schemas.names import is_absolute
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import MASKS, Labels, mask_warnings, naming_source
from recordmill.transforms.annotated.read_xml import Element, read_elements
from recordmill.transforms.annotated.shapes import (
    box_object,
    ellipse_ring,
    finite_numbers,
    mask_text,
    polygon_object,
    rectangle_ring,
    sides_px,
    whole_number,
)
from recordmill.transforms.annotated.source import (
    ImageParts,
    LabelFault,
    LabelledImage,
    Source,
    SourceFolder,
    XmlError,
    not_usable,
    parser,
)
from recordmill.transforms.cvat.cvat_options import CvatOptions
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

ROOT = "annotations"
_FILE = "annotations.xml"
_SPLIT_OF = {"training": "train", "testing": "test"} | SPLIT_OF_FOLDER
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


class Video(NamedTuple):
    """Frames of a video, or none, and width and height in pixels of frames or of an image; None if not stated."""

    frames: range
    width: int | None = None
    height: int | None = None


def source(options: CvatOptions) -> Source:
    """Return what is read.

    Raises:
        ConfigError: there is no XML file, or several, or it is not CVAT's.
    """
    file, images = _find_file(options.data), options.images
    folder, name = split_folder(file)
    splits = _splits(file)
    below = join_path(folder, "images")
    prefix = "images/" if not images and storage_for(folder).is_folder(below) else ""
    frame = options.frame_name or "frame_{:06d}" + _suffix(images[0] if images else below if prefix else folder)
    try:
        has_number = frame.format(1) != frame.format(2)
    except (IndexError, KeyError, ValueError):
        has_number = False
    if not has_number:
        raise ConfigError(f"--frame-name {frame} has no number: it goes between braces, as in frame_{{:06d}}.png")
    folders = [SourceFolder(path.rstrip("/")) for path in images]
    if folder.rstrip("/") not in {each.path for each in folders}:
        folders.append(SourceFolder(folder, has_images=not images))
    labels = Labels(tuple(folders), tuple(dict.fromkeys(splits.values())), partial(eq, name))
    rules = CvatRules(prefix, frame, splits, options.masks != "none")
    return naming_source(options, labels, partial(parse_cvat, rules=rules), check=_check, inputs=(file,))


def _find_file(data: str) -> str:
    storage = storage_for(data)
    if data.lower().endswith(".xml"):
        if storage.size(data) is None:
            raise ConfigError(f"--data {data}: there is no such file")
        return data
    names = [name for name in storage.names(data) if name.lower().endswith(".xml")]
    found = [name for name in names if name == _FILE] or names
    if len(found) != 1:
        fault = f"{', '.join(found[:5])}: give one of them" if found else "no .xml file: give CVAT's annotations.xml"
        raise ConfigError(f"--data {data} has {fault}")
    return join_path(data.rstrip("/"), found[0])


def _splits(file: str) -> dict[str, str]:
    """Return the splits of a project by its subsets; none if it has a single one.

    Raises:
        ConfigError: the file is not CVAT's, or two subsets are one split.
    """
    with storage_for(file).open(file) as stream:
        try:
            first = [*islice(read_elements(stream, ROOT), 2)]
        except XmlError as error:
            raise ConfigError(f"{file}, line {error.line}: {error.detail}") from error
    projects = (project for each in first if each.tag == "meta" and (project := each.find("project")))
    names = [name.strip() for project in projects for name in project.text_of("subsets").split("\n")]
    splits = {name: _SPLIT_OF.get(name.lower(), name.lower()) for name in names if name}
    if len({*splits.values()}) < len(splits):
        raise ConfigError(f"{file}: two of the subsets {', '.join(splits)} are one split: rename one")
    return splits if len(splits) > 1 else {}


def _suffix(folder: str) -> str:
    """Return the suffix of the images of frames."""
    names = (name for name in storage_for(folder).names(folder) if name.startswith("frame_") and is_image_name(name))
    return posixpath.splitext(next(names, "frame.PNG"))[1]


def _check(notes: frozenset[str]) -> Iterator[str]:
    yield from mask_warnings(notes)
    if "points" in notes:
        yield "a point has no box: each has a keypoint, and a box of 1 x 1 pixel around it"
    if "gap" in notes:
        yield (
            "tracks have gaps between frames, where objects are missing: nothing is interpolated; an export by CVAT "
            "has every frame"
        )
    if fields := sorted(note for note in notes if note.startswith("<") or note == "occluded"):
        yield f"shapes have {', '.join(fields)}, which records have no key for: not written"


@parser
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
    video, seen, has_images, tasks = Video(range(0)), set[int](), False, set[str]()
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
        raise
    if not has_images:
        yield from (LabelledImage(_frame(number, rules, video)) for number in video.frames if number not in seen)


def video_of(meta: Element) -> Video:
    """Return a video's frames; none for a task of images."""
    task = next((found for each in ("task", "job") if (found := meta.find(each))), Element("task", {}, 0))
    start, stop = (whole_number(task.text_of(tag)) for tag in ("start_frame", "stop_frame"))
    size = meta.find("original_size") or task.find("original_size") or Element("original_size", {}, 0)
    step = whole_number(task.text_of("frame_filter").removeprefix("step=")) or 1
    frames = range(0, 0, step)
    if task.text_of("mode") == "interpolation" and start is not None and stop is not None:
        frames = range(start, stop + 1, step)[:_MOST_FRAMES]
    return Video(frames, *sides_px(size.text_of("width"), size.text_of("height"), set()))


def _image(element: Element, rules: CvatRules) -> LabelledImage:
    attributes = element.attributes
    name, subset = attributes.get("name", ""), attributes.get("subset", "")
    if not name or (rules.splits and subset not in rules.splits):
        lacking = f"<image> {name!r} is of subset {subset!r}, which <subsets> lacks"
        return not_usable(lacking if name else "an <image> without name", element.line)
    if posixpath.splitext(name)[1].lower() not in IMAGE_SUFFIXES:  # a frame of a video
        name += rules.frame[rules.frame.rfind(".") :]
    found, tags = ImageParts(), dict[str, None]()
    width, height = sides_px(attributes.get("width", ""), attributes.get("height", ""), found.warnings)
    for shape in element.children:
        with found.rejecting(line=shape.line):
            label = _label(shape)
            found.notes |= _notes(shape, rules)
            if shape.tag == "tag":
                tags[label] = None
            else:
                found.objects += shape_objects(shape, label, Video(range(0), width, height), rules.has_masks)
    name, split = name if is_absolute(name) else f"{rules.prefix}{name}", rules.splits.get(subset, "")
    return found.image(Sample(name, width=width, height=height, split=split, tags=tuple(tags)))


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
            objects = [] if is_outside else shape_objects(shape, _label(element), video, rules.has_masks)
        except UnusableError as fault:
            yield LabelledImage(None, (LabelFault(fault.reason, fault.detail, shape.line),))
            continue
        objects = [msgspec.structs.replace(each, track_id=track_id) for each in objects]
        sample = msgspec.structs.replace(_frame(number, rules, video), objects=tuple(objects))
        place = LabelFault(Reason.MALFORMED_ANNOTATION, "", shape.line)
        yield LabelledImage(sample, (), tuple(sorted(_notes(shape, rules))), places=(place,) * len(objects))
    frames = pairwise(sorted(shown))
    if any(after - before > video.frames.step and not is_outside for (before, is_outside), (after, _) in frames):
        yield LabelledImage(_frame(shown[0][0], rules, video), (), ("gap",))


def _frame(number: int, rules: CvatRules, video: Video) -> Sample:
    return Sample(f"{rules.prefix}{rules.frame.format(number)}", width=video.width, height=video.height)


def _label(element: Element) -> str:
    label = element.attributes.get("label", "")
    if not label:
        raise UnusableError(Reason.UNKNOWN_CATEGORY, f"a <{element.tag[:20]}> without label")
    return label


def _notes(shape: Element, rules: CvatRules) -> set[str]:
    """Return what records lack of a shape."""
    found = {f"<{child.tag[:20]}>" for child in shape.children} | {shape.tag} & {"points"}
    found |= {MASKS} if shape.tag in ("polygon", "ellipse", "mask") and not rules.has_masks else set()
    return found | ({"occluded"} if shape.attributes.get("occluded") == "1" else set())


def shape_objects(shape: Element, label: str, image: Video, has_masks: bool) -> list[SampleObject]:
    """Return the objects of a shape: points are one each, other shapes are one.

    Raises:
        UnusableError: the shape is not read, or a number of it is none.
    """
    if shape.tag == "box":
        return [_box(shape, label, has_masks)]
    if shape.tag == "polygon":
        return [polygon_object(label, [_points(shape)], has_masks)]
    if shape.tag == "ellipse":
        x, y, wide, high = _numbers(shape, "cx", "cy", "rx", "ry")
        return [polygon_object(label, [ellipse_ring((x, y), (wide, high), _turn_rad(shape))], has_masks)]
    if shape.tag == "mask":
        return [_mask(shape, label, image, has_masks)]
    if shape.tag == "points":
        return [SampleObject(label, (x - 0.5, y - 0.5, 1, 1), keypoints=(x, y, 2)) for x, y in _points(shape)]
    known = "only boxes, polygons, ellipses, masks, points and tags are"
    raise UnusableError(Reason.MALFORMED_ANNOTATION, f"a <{shape.tag[:20]}> of {label!r} is not read: {known}")


def _numbers(shape: Element, *names: str) -> list[float]:
    return finite_numbers({name: shape.attributes.get(name, "") for name in names}, f"of a <{shape.tag}>")


def _turn_rad(shape: Element) -> float:
    """Return the rotation, clockwise."""
    return math.radians(_numbers(shape, "rotation")[0]) if shape.attributes.get("rotation") else 0.0


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
    left, top, right, bottom = _numbers(shape, "xtl", "ytl", "xbr", "ybr")
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


def _mask(shape: Element, label: str, image: Video, has_masks: bool) -> SampleObject:
    """Return the object of a mask: run lengths of 0 and 1 in turn, row by row, in its own box."""
    numbers = [whole_number(shape.attributes.get(name, "")) for name in ("left", "top", "width", "height")]
    runs = [whole_number(run.strip()) for run in shape.attributes.get("rle", "").split(",")]
    if None in (*numbers, *runs):
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, f"a number of the <mask> of {label!r} is not 0 or more")
    left, top, width, height = (number or 0 for number in numbers)
    lengths, text = np.array(runs, np.int64), ""
    if not 0 < width * height == lengths.sum() <= MAX_PIXELS or not lengths[1::2].any():
        detail = f"the <mask> of {label!r} has {lengths.sum():,} pixels in its runs, and a box of {width} x {height}"
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, detail)
    if has_masks:
        if not (image.width and image.height) or left + width > image.width or top + height > image.height:
            raise UnusableError(Reason.MASK_SIZE_MISMATCH, f"the <mask> of {label!r} is not within its <image>")
        mask = np.repeat(np.arange(len(lengths), dtype=np.uint8) % 2, lengths).reshape(height, width)
        text = mask_text(mask, left, top, image.width, image.height)
    return SampleObject(label, (left, top, width, height), segmentation=text, area_px2=float(lengths[1::2].sum()))
