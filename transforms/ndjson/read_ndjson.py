"""Convert the lines of Ultralytics' NDJSON, the export of its platform, to images with objects.

Numbers of an object are those of a line of YOLO's label files, as `convert_ndjson_to_yolo` of Ultralytics writes them.
"""

import os
import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, unnamed_keypoints
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import whole_number
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER, USUAL_SPLITS
from recordmill.schemas.names import name_parts
from recordmill.schemas.paths import is_remote
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.sizes import first_texts, shorten
from recordmill.transforms.annotated.naming import (
    LabelFolders,
    check_keys,
    decode_part,
    mask_notes,
    mask_warnings,
    naming_source,
    one_folder,
    other_values,
    resolve_image_name,
)
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source, parser, unusable_image
from recordmill.transforms.annotated.yolo_lines import MOST_CLASSES, LineFormat, keypoint_shape, parse_line
from recordmill.transforms.ndjson.ndjson_options import NdjsonOptions
from recordmill.transforms.storage.resolve import find_archive, join_path, split_folder, storage_for

_TASKS = {"boxes": "detect", "bboxes": "detect", "segments": "segment", "pose": "pose", "obb": "obb"}
"""Task of the lists of objects in `annotations`."""
_CLASSES = "classification"
_KEYS = {"detect": "boxes", "segment": "segments", "semantic": "segments", "pose": "pose", "obb": "obb"}
_KEYS |= {"classify": _CLASSES}
"""Key of `annotations` of the tasks in the first line."""
_NUMBERS = {
    "detect": "a box has 5: the class, x and y of the centre, the width and the height",
    "segment": "a polygon has 7, 9 or more: the class, and x and y of each point",
    "obb": "an oriented box has 9: the class, and x and y of each corner",
    "pose": "a pose has {}: the class, the box, and {} for each of {} keypoints",
}
_LISTED = 20_000
_SUFFIXES = (".ndjson", ".ndjson.gz")  # the error of a packed file has the cure
_MOST_POSES = 50
"""Number of poses that the shape of keypoints follows from, as in Ultralytics."""
_SHOWN = 3
_UNREAD = "images whose annotations have {key}, which is not read: {{number}} ({{names}})"


_FETCH = (
    """jq -r 'select(.type == "image" and (.file | startswith("/") or contains("..") | not)) | """
    r""""url = \(.url | @json)", "output = \(.file | @json)"' {files} | curl --create-dirs -fsSLZ -K -"""
)
"""Command that fetches the images of files into the current folder."""


class _Header(msgspec.Struct):
    """The line of the data set."""

    class_names: dict[str, str] | list[str] | None = None
    task: str = "detect"
    kpt_shape: Any = None
    kpt_names: Any = None
    path: str | None = None


class _Line(msgspec.Struct):
    """The line of an image."""

    type: str = ""
    file: str = ""
    url: str | None = None
    width: int | None = None
    height: int | None = None
    split: str | None = None
    annotations: dict[str, msgspec.Raw] | None = None


class _Glance(msgspec.Struct):
    """Keys of a line that are read before the job."""

    type: str = ""
    file: Any = None
    split: Any = None
    url: Any = None
    annotations: msgspec.Raw = msgspec.Raw(b"{}")


class _Poses(msgspec.Struct):
    pose: list[list[float]] = []


_ANY = frozenset[str]([""])
"""Stands for the names of image files that are too many to compare."""


class FileSummary(NamedTuple):
    """Contents of a file that are known before the job.

    Attributes:
        names: Names of the classes, by index.
        gaps: Indices without a name in `class_names`.
        keypoints, dimensions: Number of keypoints, and of numbers of each; 0 without keypoints.
        points: Names of the keypoints of each class.
        path: Folder that has `images/SPLIT/`, relative to that of the file; empty if `file` is the path of an image.
        splits: Splits of the lines.
        has_urls: True if a line has the URL of its image.
        has_files: True if the image of a line may be a known file.
    """

    task: str
    names: tuple[str, ...]
    gaps: tuple[int, ...]
    keypoints: int
    dimensions: int
    points: tuple[tuple[str, ...], ...]
    path: str
    splits: frozenset[str] = frozenset()
    has_urls: bool = False
    has_files: bool = False


_OF_LINES: dict[str, Any] = {"splits": frozenset(), "has_urls": False, "has_files": False}
"""Values that files of one data set may differ in."""


class LineRules(NamedTuple):
    """Meaning of the lines of a file.

    Attributes:
        key: List of objects in `annotations` that the task of the data set has.
        objects: Meaning of the numbers of an object, without the task.
        path: See FileSummary.
        has_splits: True if lines name their splits.
    """

    key: str
    objects: LineFormat
    path: str = ""
    has_splits: bool = False


def source(options: NdjsonOptions) -> Source:
    """Return the Source of NDJSON files. Each file is read once before the job, for its splits.

    Raises:
        ConfigError: DATA has no such file; the line of the data set is missing, or cannot be used; files differ in it;
            or all images have to be fetched first.
    """
    folder, names = _find_files(options.data)
    paths = [join_path(folder, name) for name in names]
    labels = one_folder(folder, names, options.images)
    images = _image_names(labels)
    summaries = {path: _summarise(path, images) for path in paths}
    (first, summary), *other_summaries = summaries.items()
    for path, other in other_summaries:
        if other._replace(**_OF_LINES) != summary._replace(**_OF_LINES):
            raise ConfigError(f"{first} and {path} differ in task, class_names, kpt_shape or path. Give one of them")
    stated = {SPLIT_OF_FOLDER.get(split) for one in summaries.values() for split in one.splits}
    if any(one.has_urls for one in summaries.values()) and not any(one.has_files for one in summaries.values()):
        raise ConfigError(_fetch_text(labels, paths))
    line_format = LineFormat(summary.names, "", summary.keypoints, summary.dimensions, options.masks != "none")
    rules = LineRules(_KEYS[summary.task], line_format, summary.path, bool(stated - {None}))
    gaps = first_texts([f"{index} (class{index})" for index in summary.gaps], _SHOWN)
    warnings = [f"{first}: class_names lacks indices, which get Ultralytics' names: {gaps}"] if gaps else []
    return naming_source(
        options,
        labels,
        partial(parse_lines, rules=rules),
        categories=tuple(
            Category(index, name, keypoints=points)
            for index, (name, points) in enumerate(zip(summary.names, summary.points, strict=True))
        ),
        splits=tuple(split for split in USUAL_SPLITS if split in stated),
        check=mask_warnings,
        parts=(Part.KEYPOINTS,) if summary.keypoints else (Part.ORIENTED,) if summary.task == "obb" else (),
        inputs=tuple(paths),
        warnings=tuple(warnings),
    )


def _find_files(data: str) -> tuple[str, list[str]]:
    """Return the folder of the data set, and the names of its files.

    Raises:
        ConfigError: There is none.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not storage.is_folder(data):
        folder, name = split_folder(data)
        return folder, [name]
    listed = [name for name in islice(storage.walk_names(data), _LISTED) if name.lower().endswith(_SUFFIXES)]
    names = listed or [name for name in storage.names(data) if name.lower().endswith(NdjsonOptions.endings)]
    if files := sorted(name for name in names if name.endswith(".gz") or _is_ndjson(join_path(data, name))):
        return data, files
    raise ConfigError(f"{data} has no .ndjson file of Ultralytics' platform. Give the file")


def _is_ndjson(path: str) -> bool:
    with storage_for(path).open(path) as file:
        return NdjsonOptions.recognise_content(file.read(1 << 16))


def _image_names(labels: LabelFolders) -> frozenset[str]:
    """Return the names of the image files, without their folders; empty if there are too many to compare."""
    folders = [folder.path for folder in labels.folders if folder.has_images]
    names = [name for path in folders for name in islice(storage_for(path).walk_names(path), _LISTED)]
    return frozenset(name_parts(name)[-1] for name in names if is_image_name(name)) if len(names) < _LISTED else _ANY


def _summarise(path: str, images: frozenset[str]) -> FileSummary:
    """Read a file once.

    Args:
        images: See `_image_names`.

    Raises:
        ConfigError: Its first line is not that of a data set, or cannot be used; or there are several such lines.
    """
    header, splits, poses, has_urls, has_files = None, set[str](), list[list[float]](), False, images is _ANY
    with storage_for(path).open(path) as file:
        for number, text in enumerate(file, 1):
            if not (text := text.removeprefix(b"\xef\xbb\xbf").strip()):
                continue
            line = _glance(text)
            if header is None:
                header = _read_header(text, line.type, f"{path}, line {number}")
            elif line.type == "dataset":
                raise ConfigError(
                    f'{path}, line {number}: a second line of the type "dataset". Write a file for each data set'
                )
            splits |= {line.split} if isinstance(line.split, str) else set()
            has_urls = has_urls or bool(_web_url(line.url) and line.type == "image")
            has_files = has_files or (isinstance(line.file, str) and name_parts(line.file)[-1] in images)
            if header.task == "pose" and header.kpt_shape is None and len(poses) < _MOST_POSES:
                poses += _poses(line.annotations)
    if header is None:
        raise ConfigError(f"{path} is empty")
    return _header_summary(header, poses, f"{path}, line 1")._replace(
        splits=frozenset(splits), has_urls=has_urls, has_files=has_files
    )


def _header_summary(header: _Header, poses: Sequence[Sequence[float]], where: str) -> FileSummary:
    """Return the contents of the line of a data set.

    Args:
        poses: First poses, if the shape of keypoints follows from them.

    Raises:
        ConfigError: One of its values cannot be used.
    """
    names, gaps = _class_names(header.class_names, where)
    keypoints, dimensions = _keypoint_shape(header, poses, len(names), where)
    points = tuple(_keypoint_names(header.kpt_names, index, keypoints) for index in range(len(names)))
    return FileSummary(header.task, names, gaps, keypoints, dimensions, points, header.path or "")


def _glance(text: bytes) -> _Glance:
    """Return what is read of a line before the job; nothing of a damaged line, which becomes a reject."""
    try:
        return decode_part(text, _Glance)
    except UnusableError:
        return _Glance()


def _web_url(url: Any) -> str:
    return url if isinstance(url, str) and url.startswith(("http://", "https://")) else ""


def _read_header(text: bytes, type_: str, where: str) -> _Header:
    """Return the line of a data set.

    Raises:
        ConfigError: It is another line, or one of its values has another type; or its task is not read.
    """
    if type_ != "dataset":
        if what := describe_content(text):
            raise ConfigError(f"{where}: it is {what}")
        raise ConfigError(
            f'{where}: not {{"type": "dataset", "class_names": …}}, with which Ultralytics\' NDJSON begins'
        )
    try:
        check_keys(text, Reason.MALFORMED_LABELS)
        header = decode_part(text, _Header)
    except UnusableError as fault:
        raise ConfigError(f"{where}: {fault.detail}") from fault
    if header.task not in _KEYS:
        raise ConfigError(
            f"{where}: the task is {shorten(header.task, 40)!r}, which is not read. It must be one of "
            f"{', '.join(sorted(_KEYS))}"
        )
    return header


def _class_names(
    given: Mapping[str, str] | Sequence[str] | None, where: str
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of the classes by index, and the indices without a name. As in Ultralytics, 3 becomes class3.

    Raises:
        ConfigError: There are no names, or an index is not usable.
    """
    if not given:
        raise ConfigError(
            f'{where}: no class_names. Add the names of the classes, "class_names": {{"0": "cat", "1": "dog"}}'
        )
    by_index: dict[int, str] = {}
    for key, name in given.items() if isinstance(given, Mapping) else enumerate(given):
        index = whole_number(str(key))
        if index is None or index >= MOST_CLASSES:
            raise ConfigError(
                f"{where}: class_names has an index that is not a whole number below {MOST_CLASSES:,}: {key!r}"
            )
        by_index[index] = name
    indices = range(max(by_index) + 1)
    names = tuple(by_index.get(index, f"class{index}") for index in indices)
    return names, tuple(index for index in indices if index not in by_index)


def _poses(annotations: msgspec.Raw) -> list[list[float]]:
    try:
        return decode_part(annotations, _Poses).pose
    except UnusableError:
        return []


def _keypoint_shape(header: _Header, poses: Sequence[Sequence[float]], classes: int, where: str) -> tuple[int, int]:
    """Return the number of keypoints, and of numbers of each; 0, 0 for a task without keypoints.

    Without `kpt_shape`, the first poses decide as in Ultralytics: 3 numbers if each third one is a visibility, else 2
    if their number is not a multiple of 3.

    Raises:
        ConfigError: `kpt_shape` cannot be used, or does not follow from the poses.
    """
    if header.task != "pose":
        return 0, 0
    if header.kpt_shape is not None:
        return keypoint_shape(header.kpt_shape, classes, where)
    lengths = {len(pose) - 5 for pose in poses}
    length = lengths.pop() if len(lengths) == 1 else 0
    has_visibility = all(number in (0, 1, 2) for pose in poses for number in pose[7::3])
    dimensions = 3 if length % 3 == 0 and has_visibility else 2 if length % 2 == 0 and length % 3 else 0
    if length < 1 or not dimensions:
        raise ConfigError(
            f'{where}: no kpt_shape, and it does not follow from the poses. Add "kpt_shape": [17, 3], the number of '
            "keypoints and 2 or 3 numbers of each"
        )
    return keypoint_shape([length // dimensions, dimensions], classes, where)


def _keypoint_names(names: Any, index: int, keypoints: int) -> tuple[str, ...]:
    """Return the names of the keypoints of a class; numbers if `kpt_names` has none that fit."""
    given = names.get(str(index)) if isinstance(names, dict) else None
    if isinstance(given, list) and len(given) == keypoints:
        return tuple(map(str, given))
    return unnamed_keypoints(keypoints)


def _fetch_text(labels: LabelFolders, paths: Sequence[str]) -> str:
    """Return the error of files that have only the URLs of their images, with the command that fetches them."""
    target = next(folder.path for folder in labels.folders if folder.has_images)
    is_local = not any(is_remote(path) or find_archive(path) for path in (target, *paths))
    command = _FETCH.format(files=shlex.join(map(os.path.abspath, paths)))
    fetch = f": (cd {shlex.quote(target)} && {command})" if is_local else ""
    return (
        f"{target} has none of the images of {', '.join(paths)}, which has their URLs. Fetch them into that "
        f"folder{fetch}"
    )


@parser
def parse_lines(stream: BinaryIO, file: str, rules: LineRules) -> Iterator[LabelledImage]:
    """Yield the images of a file.

    >>> import io
    >>> line = b'{"type": "image", "file": "1.jpg", "annotations": {"boxes": [[0, 0.5, 0.5, 0.5, 1]]}}'
    >>> image, = parse_lines(io.BytesIO(line), "a.ndjson", LineRules("boxes", LineFormat(("cat",), "")))
    >>> image.sample.file_name, image.sample.objects[0].box
    ('1.jpg', (0.25, 0.0, 0.5, 1.0))
    """
    for number, text in enumerate(stream, 1):
        if not (text := text.removeprefix(b"\xef\xbb\xbf").strip()):
            continue
        parts = ImageParts()
        try:
            check_keys(text, Reason.MALFORMED_IMAGE)
            line = decode_part(text, _Line, parts)
            if line.type == "dataset":
                continue
            sample = _read_image(line, file, rules)
            _read_annotations(line.annotations or {}, rules, number, parts)
        except UnusableError as fault:
            yield unusable_image(fault.detail, number)
            continue
        tags = _read_tags(line.annotations or {}, rules.objects.names, number, parts)
        parts.notes |= mask_notes(parts.objects)
        sample = msgspec.structs.replace(sample, tags=tags, fields=other_values(text, _Line))
        yield parts.image(sample)._replace(entry=f"line {number}", url=_web_url(line.url))


def _read_image(line: _Line, file: str, rules: LineRules) -> Sample:
    """Return the image of a line without its annotations.

    Raises:
        UnusableError: It has no name, or another line has a split and it has none.
    """
    if line.type != "image":
        raise UnusableError(Reason.MALFORMED_IMAGE, f"its type is {shorten(line.type, 40)!r}, not image")
    if not line.file:
        raise UnusableError(Reason.MALFORMED_IMAGE, "it has no file")
    split = _split_of(line.split, rules.has_splits)
    stated = posixpath.join(rules.path, "images", line.split or "", line.file) if rules.path else line.file
    sides = (line.width, line.height) if line.width and line.height else (None, None)
    return Sample(resolve_image_name(file, stated), width=sides[0], height=sides[1], split=split)


def _split_of(split: str | None, has_splits: bool) -> str:
    """Return the split of a line; "" if no line has one.

    Raises:
        UnusableError: The line has no usual split, but other lines have.
    """
    if not has_splits:
        return ""
    if not split:
        raise UnusableError(Reason.MALFORMED_IMAGE, "it has no split, but other lines have, so its split is unknown")
    if split not in SPLIT_OF_FOLDER:
        raise UnusableError(
            Reason.MALFORMED_IMAGE, f"its split {shorten(split, 40)!r} is not {', '.join(USUAL_SPLITS)}"
        )
    return SPLIT_OF_FOLDER[split]


def _read_annotations(annotations: Mapping[str, msgspec.Raw], rules: LineRules, number: int, parts: ImageParts) -> None:
    """Add the objects of a line to `parts`. As in Ultralytics, one list of objects is read: that of the task if there
    is one, else the first. A warning has the others.

    Raises:
        UnusableError: The value of the list is not a list.
    """
    lists = [key for key, raw in annotations.items() if key != _CLASSES and bytes(raw) not in (b"[]", b"null")]
    known = [key for key in lists if key in _TASKS]
    key = rules.key if rules.key in known else next(iter(known), "")
    parts.warnings |= {_UNREAD.format(key=_quoted(other)) for other in lists if other != key}
    line_format, first_rows = rules.objects._replace(task=_TASKS.get(key, "")), dict[tuple[float, ...], int]()
    for at, raw in enumerate(_rows(annotations[key]) if key else ()):
        with parts.rejecting(f"{key}[{at}]", number):
            row = tuple(raw if isinstance(raw, list) else decode_part(raw, list[float], parts))
            object_ = _convert_row(row, line_format)
            if (first := first_rows.setdefault(row, at)) != at:
                raise UnusableError(Reason.DUPLICATE_ANNOTATION, f"it repeats {key}[{first}]")
            parts.objects.append(object_)


def _quoted(key: str) -> str:
    """Return a key for a text that is a format string."""
    return repr(shorten(key, 40)).replace("{", "{{").replace("}", "}}")


def _rows(raw: msgspec.Raw) -> Sequence[list[float] | msgspec.Raw]:
    """Return the numbers of each object; as JSON if one of them has other values.

    Raises:
        UnusableError: It is not a list.
    """
    try:
        return decode_part(raw, list[list[float]])
    except UnusableError:
        return decode_part(raw, list[msgspec.Raw])


def _convert_row(row: tuple[float, ...], line_format: LineFormat) -> SampleObject:
    """Return the object of its numbers.

    Raises:
        UnusableError: They are not an object.
    """
    task, points, dimensions = line_format.task, line_format.keypoints, line_format.dimensions
    if task == "pose" and not points:
        raise UnusableError(Reason.MALFORMED_KEYPOINTS, "a pose, but the task of the data set is not pose")
    expected = {"detect": 5, "obb": 9, "pose": 5 + points * dimensions}.get(task, 0)
    if len(row) != expected if expected else len(row) < 7 or len(row) % 2 == 0:
        what = _NUMBERS[task].format(expected, dimensions, points)
        raise UnusableError(Reason.MALFORMED_ANNOTATION, f"{len(row)} numbers, but {what}")
    return parse_line(row, line_format)


def _read_tags(
    annotations: Mapping[str, msgspec.Raw], names: Sequence[str], number: int, parts: ImageParts
) -> tuple[str, ...]:
    """Return the names of the classes of an image."""
    tags: dict[str, None] = {}
    raw = annotations.get(_CLASSES, msgspec.Raw(b"null"))
    with parts.rejecting(_CLASSES, number):
        for index in decode_part(raw, list[int], parts) if bytes(raw) != b"null" else ():
            if not 0 <= index < len(names):
                raise UnusableError(Reason.UNKNOWN_CATEGORY, f"class {index} is not in 0 to {len(names) - 1}")
            tags[names[index]] = None
    return tuple(tags)
