"""CVAT's XML: annotations.xml of images or of videos, by CVAT's "XML annotation format" 1.1."""

import math
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, pairwise
from operator import eq
from typing import IO, Any

import msgspec
import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.field_features import TRACK
from recordmill.schemas.inputs.boxes import LARGEST
from recordmill.schemas.inputs.images import IMAGE_SUFFIXES, MAX_PIXELS, is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import read_flag, read_number, whole_number
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.schemas.names import is_absolute
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.annotated.naming import LabelFolders, mask_notes, mask_warnings, naming_source
from recordmill.transforms.annotated.read_xml import Element, Node, read_elements
from recordmill.transforms.annotated.shapes import (
    box_object,
    ellipse_ring,
    finite_numbers,
    flatten_points,
    mask_text,
    polygon_object,
    rectangle_ring,
    sides_px,
    with_fields,
)
from recordmill.transforms.annotated.source import (
    ImageParts,
    LabelFault,
    LabelledImage,
    Source,
    SourceFolder,
    XmlError,
    field_notes,
    parser,
    unusable_image,
)
from recordmill.transforms.cvat.cvat_options import CvatOptions
from recordmill.transforms.join.label_versions import describe_versions
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

ROOT = "annotations"
_FILE = "annotations.xml"
_SPLITS_BY_SUBSET = {"training": "train", "testing": "test"} | SPLIT_OF_FOLDER
_MOST_FRAMES = 10_000_000
_MOST_SHOWN = 5
_MOST_NAMES, _MOST_PATTERNS = 1000, 5
"""Number of images whose names are compared with those of frames, and of patterns of names that are tried."""
_GEOMETRY = {"xtl", "ytl", "xbr", "ybr", "cx", "cy", "rx", "ry", "points", "rle", "rotation"}
_PLACE = {"left", "top", "width", "height", "outside"}
_ATTRIBUTE = "attribute"


Sides = tuple[int | None, int | None]
"""Width and height in pixels; None if they are not stated."""


def source(options: CvatOptions) -> Source:
    """Return the Source of an export of CVAT.

    Raises:
        ConfigError: There is no XML file, or there are several, or it is not CVAT's.
    """
    (file, warnings), images = _find_xml(options), options.images
    folder, name = split_folder(file)
    head = _read_head(file)
    subsets = _subset_names(head)
    splits = _subset_splits(subsets, file)
    below = join_path(folder, "images")
    prefix = "images/" if not images and storage_for(folder).is_folder(below) else ""
    images_folder = images[0] if images else below if prefix else folder
    frame_name = options.frame_name or "frame_{:06d}" + _frame_suffix(images_folder)
    try:
        has_number = frame_name.format(1) != frame_name.format(2)
    except (IndexError, KeyError, ValueError):
        has_number = False
    if not has_number:
        raise ConfigError(f"--frame-name {frame_name} has no number. Write the number in braces: frame_{{:06d}}.png")
    paths = {name: join_path(images_folder, name) for name in subsets}
    subset_paths = {name: path for name, path in paths.items() if storage_for(path).is_folder(path)}
    nested = {f"{name}/{name}": join_path(path, name) for name, path in subset_paths.items()}
    subset_folders = {*subset_paths, *(name for name, path in nested.items() if storage_for(path).is_folder(path))}
    if options.match == "path":
        _check_frame_name(file, head, (*subset_paths.values(), *(images or (images_folder,))), frame_name)
    folders = [SourceFolder(path.rstrip("/"), has_labels=path.rstrip("/") == folder.rstrip("/")) for path in images]
    if not any(image_folder.has_labels for image_folder in folders):
        folders.append(SourceFolder(folder, has_images=not images))
    labels = LabelFolders(tuple(folders), tuple(dict.fromkeys(splits.values())), partial(eq, name))
    has_masks = options.masks != "none"
    settings = {"has_masks": has_masks, "has_fields": bool(options.fields), "subset_folders": frozenset(subset_folders)}
    parse = partial(parse_cvat, prefix=prefix, frame_name=frame_name, splits=splits, **settings)
    return naming_source(
        options, labels, parse, check=_check_cvat_notes, inputs=(file,), warnings=warnings, text_fields=True
    )


def _find_xml(options: CvatOptions) -> tuple[str, tuple[str, ...]]:
    """Return the path of the XML file, and warnings of others that are not read.

    Raises:
        ConfigError: There is none, or there are several, none of them annotations.xml.
    """
    data, storage = options.data, storage_for(options.data)
    if data.lower().endswith(".xml"):
        if storage.size(data) is None:
            raise ConfigError(f"{data} does not exist")
        return data, ()
    names = sorted((name for name in storage.names(data) if name.lower().endswith(".xml")), key=len)
    if not names:
        raise ConfigError(f"{data} has no .xml file. Give CVAT's annotations.xml")
    paths = {name: join_path(data.rstrip("/"), name) for name in names}
    first = _FILE if _FILE in paths else names[0]
    other_names = [name for name in names if name != first]
    same_size = [name for name in other_names if storage.size(paths[name]) == storage.size(paths[first])]
    copies = [name for name in same_size if storage.checksum(paths[name]) == storage.checksum(paths[first])]
    if versions := [name for name in other_names if name not in copies] if first != _FILE else []:
        text, largest = describe_versions({name: partial(_image_names, paths[name]) for name in (first, *versions)})
        images = [word for folder in options.images for word in ("--images", folder)]
        command = shlex.join(["recordmill", "convert", paths[largest], *images, "-o", "OUT", "--format", "cvat"])
        raise ConfigError(f"{data} has several .xml files: {text}. Convert one: {command}")
    texts = (f"{name}, which has the same bytes" if name in copies else name for name in other_names)
    return paths[first], (f"{paths[first]} is read, and not {first_texts(texts, _MOST_SHOWN)}",) if other_names else ()


def _image_names(file: str) -> Iterator[str]:
    """Yield the names of images in a file; none of a file that is not CVAT's."""
    with storage_for(file).open(file) as stream, suppress(XmlError):
        yield from (item.attributes.get("name", "") for item in read_elements(stream, ROOT) if item.tag == "image")


def _read_head(file: str) -> list[Element]:
    """Return the first elements of a file: its <version>, <meta>, and first <image> or <track>.

    Raises:
        ConfigError: The file is not CVAT's.
    """
    with storage_for(file).open(file) as stream:
        try:
            return [*islice(read_elements(stream, ROOT), 3)]
        except XmlError as error:
            raise ConfigError(f"{file}, line {error.line}: {error.detail}") from error


def _subset_names(elements: Sequence[Element]) -> list[str]:
    """Return the names of the subsets of a project."""
    projects = (project for element in elements if element.tag == "meta" and (project := element.find("project")))
    names = [name.strip() for project in projects for name in project.child_text("subsets").split("\n")]
    return [name for name in names if name]


def _subset_splits(names: Iterable[str], file: str) -> dict[str, str]:
    """Return the splits of a project by its subsets; empty if it has only one subset.

    Raises:
        ConfigError: Two subsets are the same split.
    """
    splits = {name: _SPLITS_BY_SUBSET.get(name.lower(), name.lower()) for name in names}
    if len({*splits.values()}) < len(splits):
        raise ConfigError(f"{file}: two of the subsets {', '.join(splits)} are the same split. Rename one")
    return splits if len(splits) > 1 else {}


def _frame_suffix(folder: str) -> str:
    """Return the suffix of the images of frames in a folder."""
    names = (name for name in storage_for(folder).names(folder) if name.startswith("frame_") and is_image_name(name))
    return posixpath.splitext(next(names, "frame.PNG"))[1]


def _check_frame_name(file: str, head: Sequence[Element], folders: Sequence[str], frame_name: str) -> None:
    """Refuse a video whose frames are named otherwise, if a name of images fits its first and its last frame.

    Raises:
        ConfigError: `frame_name` fits neither frame, and the images of a folder have another name.
    """
    numbers = _end_frames(head, file)

    def frames_exist(folder: str, name: str) -> Iterator[bool]:
        paths = (join_path(folder, name.format(number)) for number in numbers)
        return (storage_for(path).size(path) is not None for path in paths)

    if not numbers or any(any(frames_exist(folder, frame_name)) for folder in folders):
        return
    for folder in folders:
        files = islice(
            (file.name for file in storage_for(folder).walk(folder) if is_image_name(file.name)), _MOST_NAMES
        )
        names = Counter(name for name in map(_frame_pattern, files) if name)
        for name, _ in names.most_common(_MOST_PATTERNS):
            if all(frames_exist(folder, name)):
                missing, present = frame_name.format(numbers[0]), name.format(numbers[0])
                raise ConfigError(
                    f"{file} has tracks of a video, but {folder} has no image {missing!r}. Its images are named like "
                    f"{present!r}. Add --frame-name {shlex.quote(name)}"
                )


def _end_frames(head: Sequence[Element], file: str) -> tuple[int, ...]:
    """Return the first and the last frame of a video; none without tracks."""
    track = next((element for element in head if element.tag == "track"), None)
    if track is None:
        return ()
    frames = next((video_frames(element, file)[0] for element in head if element.tag == "meta"), range(0))
    if frames:
        return frames[0], frames[-1]
    shown = (whole_number(shape.attributes.get("frame", "")) for shape in track.children)
    numbers = [number for number in shown if number is not None]
    return (min(numbers), max(numbers)) if numbers else ()


def _frame_pattern(name: str) -> str:
    """Return the name of a frame with the last number of its stem in braces; "" without a number.

    >>> _frame_pattern("cam2/img_0012.jpg"), _frame_pattern("7.jpg"), _frame_pattern("cover.jpg")
    ('cam2/img_{:04d}.jpg', '{}.jpg', '')
    """
    stem, suffix = posixpath.splitext(name)
    if not (match := re.fullmatch(r"(.*?)(\d+)(\D*)", stem, re.DOTALL)):
        return ""
    before, after = (text.replace("{", "{{").replace("}", "}}") for text in (match[1], match[3] + suffix))
    number = f"{{:0{len(match[2])}d}}" if len(match[2]) > 1 else "{}"
    return f"{before}{number}{after}"


def _check_cvat_notes(notes: frozenset[str]) -> Iterator[str]:
    yield from mask_warnings(notes)
    if "points" in notes:
        yield "points have no box: each is a keypoint, with a box of 1 x 1 pixel around it"
    if "gap" in notes:
        yield (
            "tracks have gaps between frames, where objects are missing: nothing is interpolated, because an export by "
            "CVAT has every frame"
        )


@parser
def parse_cvat(
    stream: IO[bytes],
    file: str,
    prefix: str,
    frame_name: str,
    splits: Mapping[str, str],
    has_masks: bool,
    has_fields: bool = False,
    subset_folders: frozenset[str] = frozenset(),
) -> Iterator[LabelledImage]:
    """Yield each image, and each shape of a track as an image of one object.

    Args:
        prefix: Prefix of the names of images in the data set.
        frame_name: Name of the image of a frame, with its number in braces.
        splits: Splits by the names of subsets; empty if --split decides.
        has_masks: True if records store polygons and masks, False if only their boxes.
        has_fields: True if records store open fields.
        subset_folders: Subsets that have a folder of images, as in an export of a project; and `train/train` if the
            folder of the subset train has such a folder, too.

    Raises:
        ConfigError: The file ends within tracks, so that no frame has all of its objects; or it states too many frames.

    >>> from io import BytesIO
    >>> box = b"<box label='cat' xtl='1' ytl='2' xbr='4' ybr='6'/>"
    >>> xml = BytesIO(b"<annotations><image name='1.jpg'>" + box + b"<box/></image></annotations>")
    >>> image, = parse_cvat(xml, "a.xml", "", "{}.png", {}, False)
    >>> image.sample.objects[0].box, image.faults[0].detail
    ((1.0, 2.0, 3.0, 4.0), 'a <box> without label')
    """
    frames, seen, has_images, tasks = range(0), set[int](), False, set[str]()
    sides: Sides = None, None
    frame_path = prefix + frame_name
    try:
        for element in read_elements(stream, ROOT):
            if element.tag == "meta":
                frames, sides = video_frames(element, file)
            elif element.tag == "image":
                has_images = True
                suffix = posixpath.splitext(frame_name)[1]
                below = _subset_folder(element, subset_folders)
                yield _convert_image_element(element, prefix + below, suffix, splits, has_masks, has_fields)
            elif element.tag == "track":
                tasks.add(element.attributes.get("task_id", ""))
                if len(tasks) > 1:
                    raise ConfigError(
                        f"{file} has tracks of {len(tasks):,} tasks, whose frames have the same names. Export each "
                        "task separately"
                    )
                frame_path = prefix + _subset_folder(element, subset_folders) + frame_name
                yield from _convert_track(element, frame_path, frames, sides, seen, has_masks, has_fields)
    except XmlError as error:
        if seen:
            raise ConfigError(f"{file}, line {error.line}: {error.detail}; tracks are missing from here on") from error
        raise
    if not has_images:
        yield from (LabelledImage(_frame_sample(frame_path, frame, sides)) for frame in frames if frame not in seen)


def video_frames(meta: Element, file: str) -> tuple[range, Sides]:
    """Return the numbers of the frames of a video, none for a task of images; and the size of the frames.

    Raises:
        ConfigError: The video has more than `_MOST_FRAMES`.
    """
    task = meta.find("task") or meta.find("job") or Element(Node("task"))
    texts = {tag: task.child_text(tag) for tag in ("start_frame", "stop_frame")}
    start, stop = map(whole_number, texts.values())
    size = meta.find("original_size") or task.find("original_size") or Element(Node("original_size"))
    step = whole_number(task.child_text("frame_filter").removeprefix("step=")) or 1
    frames = range(0, 0, step)
    if task.child_text("mode") == "interpolation" and all(texts.values()):
        if start is None or stop is None or (stop - start) // step >= _MOST_FRAMES:
            shown = " and ".join(f"<{tag}> {text[:20]}" for tag, text in texts.items())
            raise ConfigError(f"{file}: {shown} are not the first and last of at most {_MOST_FRAMES:,} frames")
        frames = range(start, stop + 1, step)
    return frames, sides_px(size.child_text("width"), size.child_text("height"), set())


def _subset_folder(element: Element, subset_folders: frozenset[str]) -> str:
    """Return the folder of the image, or of the frames, of an element: `train/`; empty if its name has it, unless the
    folder has such a folder, too."""
    subset, name = element.attributes.get("subset", ""), element.attributes.get("name", "")
    is_stated = name.startswith(f"{subset}/") and f"{subset}/{subset}" not in subset_folders
    return f"{subset}/" if subset in subset_folders and not is_stated else ""


def _convert_image_element(
    element: Element, prefix: str, suffix: str, splits: Mapping[str, str], has_masks: bool, has_fields: bool
) -> LabelledImage:
    """Return the image of an <image>. The `suffix` is for a frame of a video, which has none."""
    attributes = element.attributes
    name, subset = attributes.get("name", ""), attributes.get("subset", "")
    if not name or (splits and subset not in splits):
        detail = f"<image> {name!r} has the subset {subset!r}, which <subsets> lacks"
        return unusable_image(detail if name else "an <image> without name", element.line)
    if posixpath.splitext(name)[1].lower() not in IMAGE_SUFFIXES:
        name += suffix
    parts, tags, tag_fields = ImageParts(), dict[str, None](), dict[str, dict[str, str]]()
    sides = sides_px(attributes.get("width", ""), attributes.get("height", ""), parts.warnings)
    for shape in element.children:
        with parts.rejecting(line=shape.line):
            label = _read_label(shape)
            parts.notes |= _shape_notes(shape)
            if shape.tag == "tag":
                tags[label] = None
                tag_fields[label] = _child_attributes(shape)
            else:
                parts.objects += _with_fields(shape_objects(shape, label, sides, has_masks), shape, {}, has_fields)
    parts.notes |= mask_notes(parts.objects)
    name, split = name if is_absolute(name) else f"{prefix}{name}", splits.get(subset, "")
    own = {key: value for key, value in attributes.items() if value and key not in ("name", "width", "height")}
    fields: dict[str, Any] = {**own, "tags": tag_fields} if has_fields else {}
    sample = Sample(name, width=sides[0], height=sides[1], split=split, tags=tuple(tags), fields=fields)
    ids = " of task ".join(filter(None, (attributes.get("id"), attributes.get("task_id"))))
    return parts.image(sample)._replace(entry=f"<image> {ids or f'in line {element.line}'}")


# Long list of arguments: what is known of the video.
def _convert_track(
    element: Element,
    frame_path: str,
    frames: range,
    sides: Sides,
    seen: set[int],
    has_masks: bool,
    has_fields: bool,
) -> Iterator[LabelledImage]:
    """Yield the shapes of a track that are not outside."""
    track_id, positions = whole_number(element.attributes.get("id", "")), list[tuple[int, bool]]()
    for shape in element.children:
        number = whole_number(shape.attributes.get("frame", ""))
        try:
            if number is None:
                raise UnusableError(Reason.MALFORMED_ANNOTATION, f"a <{shape.tag}> without a frame number")
            seen.add(number)
            is_outside = _read_outside(shape)
            positions.append((number, is_outside))
            objects = [] if is_outside else shape_objects(shape, _read_label(element), sides, has_masks)
        except UnusableError as fault:
            yield LabelledImage(None, (LabelFault(fault.reason, fault.detail, shape.line),))
            continue
        if track_id is not None:
            objects = [with_fields(object_, {TRACK: track_id}) for object_ in objects]
        objects = _with_fields(objects, shape, element.attributes, has_fields)
        sample = msgspec.structs.replace(_frame_sample(frame_path, number, sides), objects=tuple(objects))
        place = LabelFault(Reason.MALFORMED_ANNOTATION, "", shape.line)
        notes = _shape_notes(shape) | mask_notes(objects)
        yield LabelledImage(sample, (), tuple(sorted(notes)), places=(place,) * len(objects))
    pairs = pairwise(sorted(positions))
    if any(after - before > frames.step and not is_outside for (before, is_outside), (after, _) in pairs):
        yield LabelledImage(_frame_sample(frame_path, positions[0][0], sides), (), ("gap",))


def _frame_sample(frame_path: str, number: int, sides: Sides) -> Sample:
    return Sample(frame_path.format(number), width=sides[0], height=sides[1])


def _read_label(element: Element) -> str:
    label = element.attributes.get("label", "")
    if not label:
        raise UnusableError(Reason.UNKNOWN_CATEGORY, f"a <{element.tag[:20]}> without label")
    return label


def _shape_notes(shape: Element) -> set[str]:
    """Return notes of what records do not store of a shape."""
    start = f"image.tags.{shape.attributes.get('label', '')}." if shape.tag == "tag" else "attributes."
    notes = {shape.tag} & {"points"} | field_notes(f"{start}{name}" for name in _child_attributes(shape))
    set_flags = [name for name in ("occluded", "z_order") if shape.attributes.get(name, "0") != "0"]
    return notes | field_notes([*set_flags, *({"group_id"} & {*shape.attributes})])


def _child_attributes(shape: Element) -> dict[str, str]:
    """Return the values of the <attribute> elements of a shape or tag."""
    named = [child for child in shape.children if child.tag == _ATTRIBUTE and child.text]
    return {child.attributes.get("name", ""): child.text for child in named}


def _with_fields(
    objects: list[SampleObject], shape: Element, track_attributes: Mapping[str, str], has_fields: bool
) -> list[SampleObject]:
    """Return the objects of a shape with its open fields, and those of its track."""
    if not has_fields:
        return objects
    left_out = {"label", "id", "task_id", *_GEOMETRY, *_PLACE}
    fields: dict[str, Any] = {key: value for key, value in {**track_attributes, **shape.attributes}.items() if value}
    fields = {key: value for key, value in fields.items() if key not in left_out}
    fields["attributes"] = _child_attributes(shape)
    return [with_fields(object_, fields) for object_ in objects]


def _read_outside(shape: Element) -> bool:
    try:
        return read_flag(shape.attributes.get("outside") or "0")
    except ValueError as error:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"outside of a <{shape.tag}>: {error}") from error


def shape_objects(shape: Element, label: str, sides: Sides, has_masks: bool) -> list[SampleObject]:
    """Return the objects of a shape: one per point, one for other shapes.

    Raises:
        UnusableError: The shape is not read, or one of its numbers is not a number.
    """
    if shape.tag == "box":
        return [_box_shape(shape, label, has_masks)]
    if shape.tag == "polygon":
        return [polygon_object(label, [_shape_points(shape)], has_masks)]
    if shape.tag == "ellipse":
        x, y, wide, high = _shape_numbers(shape, "cx", "cy", "rx", "ry")
        return [polygon_object(label, [ellipse_ring((x, y), (wide, high), _turn_rad(shape))], has_masks)]
    if shape.tag == "mask":
        return [_mask_shape(shape, label, sides, has_masks)]
    if shape.tag == "points":
        return [SampleObject(label, (x - 0.5, y - 0.5, 1, 1), keypoints=(x, y, 2)) for x, y in _shape_points(shape)]
    known = "only boxes, polygons, ellipses, masks, points and tags are"
    raise UnusableError(Reason.MALFORMED_ANNOTATION, f"a <{shape.tag[:20]}> of {label!r} is not read: {known}")


def _shape_numbers(shape: Element, *names: str) -> list[float]:
    return finite_numbers({name: shape.attributes.get(name, "") for name in names}, f"a <{shape.tag}>")


def _turn_rad(shape: Element) -> float:
    """Return the rotation in radians, clockwise."""
    return math.radians(_shape_numbers(shape, "rotation")[0]) if shape.attributes.get("rotation") else 0.0


def _shape_points(shape: Element) -> list[tuple[float, float]]:
    pairs = [pair.split(",") for pair in shape.attributes.get("points", "").split(";") if pair.strip()]
    try:
        points = [(read_number(x), read_number(y)) for x, y in pairs]
    except ValueError as error:
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, f"a <{shape.tag}> has a point that is not x,y") from error
    if not points or not all(abs(number) <= LARGEST for number in flatten_points(points)):
        detail = f"a <{shape.tag}> has no points, or one that is not finite, or beyond any image"
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, detail)
    return points


def _box_shape(shape: Element, label: str, has_masks: bool) -> SampleObject:
    left, top, right, bottom = _shape_numbers(shape, "xtl", "ytl", "xbr", "ybr")
    if right < left or bottom < top:
        raise UnusableError(Reason.MALFORMED_BOX, f"the edges of the <box> of {label!r} are swapped")
    if right == left or bottom == top:
        raise UnusableError(Reason.EMPTY_BOX, f"the <box> of {label!r} has no area")
    if not (turn_rad := _turn_rad(shape)):
        return box_object(label, left, top, right, bottom)
    x, y, cos, sin = (left + right) / 2, (top + bottom) / 2, math.cos(turn_rad), math.sin(turn_rad)
    offsets = [(corner_x - x, corner_y - y) for corner_x, corner_y in rectangle_ring([(left, top), (right, bottom)])]
    ring = [(x + wide * cos - high * sin, y + wide * sin + high * cos) for wide, high in offsets]
    return polygon_object(label, [ring], has_masks, corners=flatten_points(ring))


def _mask_shape(shape: Element, label: str, sides: Sides, has_masks: bool) -> SampleObject:
    """Return the object of a mask, whose `rle` has run lengths of 0 and 1 in turn, row by row, within its own box."""
    numbers = [whole_number(shape.attributes.get(name, "")) for name in ("left", "top", "width", "height")]
    runs = [whole_number(run.strip()) for run in shape.attributes.get("rle", "").split(",")]
    if None in (*numbers, *runs):
        raise UnusableError(
            Reason.MALFORMED_SEGMENTATION, f"the <mask> of {label!r} has a number that is not 0 or more"
        )
    left, top, width, height = (number or 0 for number in numbers)
    lengths, text = np.array(runs, np.int64), ""
    if not 0 < width * height == lengths.sum() <= MAX_PIXELS or not lengths[1::2].any():
        detail = f"the <mask> of {label!r} has {lengths.sum():,} pixels in its runs, but a box of {width} x {height}"
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, detail)
    if has_masks:
        image_width, image_height = (side or 0 for side in sides)
        if left + width > image_width or top + height > image_height:
            raise UnusableError(Reason.MASK_SIZE_MISMATCH, f"the <mask> of {label!r} is not within its <image>")
        mask = np.repeat(np.arange(len(lengths), dtype=np.uint8) % 2, lengths).reshape(height, width)
        text = mask_text(mask, left, top, image_width, image_height)
    return SampleObject(label, (left, top, width, height), segmentation=text, area_px2=float(lengths[1::2].sum()))
