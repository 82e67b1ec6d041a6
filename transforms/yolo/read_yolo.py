"""YOLO: a text file beside each image, and data.yaml or classes.txt. Paths are resolved as in Ultralytics'
`check_det_dataset`, and lines are read by the rules of its `verify_image_label`.

Nothing is written into the folder, `download` is never run, and no `.cache` is read.
"""

import os
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, islice
from typing import Any

import yaml

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, unnamed_keypoints
from recordmill.schemas.inputs.fields import select_fields
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import read_number, whole_number
from recordmill.schemas.inputs.splits import USUAL_SPLITS
from recordmill.schemas.inputs.yaml_loader import describe_yaml_error
from recordmill.schemas.inputs.yaml_text import load_yaml
from recordmill.schemas.names import is_absolute, name_parts
from recordmill.schemas.paths import absolute_path, is_remote
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.sizes import first_texts, shorten
from recordmill.transforms.annotated.source import (
    ImageParts,
    LabelFault,
    LabelledImage,
    Source,
    SourceFolder,
    SplitList,
    parser,
)
from recordmill.transforms.annotated.yolo_lines import BOX_FIELDS, LineFormat, has_columns, keypoint_shape, parse_line
from recordmill.transforms.join.image_names import label_file, labels_folder
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for
from recordmill.transforms.yolo.yolo_options import YoloOptions

_CLASSES = ("classes.txt", "labels/classes.txt")
_YAML = (".yaml", ".yml")
_NAMES, _PLAIN = ("names", "kpt_names"), ("nc", "path", *USUAL_SPLITS, "validation")
"""Keys of data.yaml whose values are names; and those whose values are paths, or a number."""
_MOST_VALUES = 1_000_000
_PLAIN_CHARACTERS = b"0123456789. \r\n"
"""Bytes of a file of plain boxes."""
_LOOKED_AT = 20_000  # files of a folder without a description
_SHOWN = 3
_NOT_A_SCORE = "score above 1"
_UNREAD = (
    "images with boxes of six numbers, whose sixth is not read: {number} ({names}). Add --fields score, or --fields "
    "track_id"
)


def source(options: YoloOptions) -> Source:
    """Return the Source of a YOLO data set.

    Raises:
        ConfigError: The data set is not YOLO's, or a folder is missing; or YOLO has no such field.
    """
    task, images, warnings = options.task, options.images, list[str]()
    if len(images) > 1:
        raise ConfigError("--images: the paths in data.yaml begin at one folder. Give only one")
    file = _find_description(options.data)
    description = _read_description(file)
    names, shape = _names_by_index(description, file), description.get("kpt_shape")
    if not file.endswith(_YAML) and "" in names:
        index = names.index("")
        warnings.append(
            f"{file}: line {index + 1} is blank, so class {index} has no name. Write its name, or delete the line if "
            "the label files do not count it"
        )
    is_pose = task == "pose" or (task is None and shape is not None)
    keypoints, dimensions = keypoint_shape(shape, len(names), file) if is_pose else (0, 0)
    has_masks, lines = options.masks != "none", "pose" if is_pose else task or ""
    line_format = LineFormat(names, lines, keypoints, dimensions, has_masks, _box_fields(options, lines))
    root = absolute_path(images[0]) if images else _images_root(description.get("path"), file, warnings)
    folders, lists = [SourceFolder(root)], list[SplitList]()
    if file.endswith(_YAML):
        split_folders, lists = _find_splits(description, root, file, warnings)
        folders = split_folders + (folders if lists else [])
    top = _common_folder([root, *(folder.path for folder in folders)])
    usual = labels_folder(f"{root}/")
    base = (_find_labels(folders, usual, options.data, file) if images else "") or usual
    splits_by_labels = {_labels_path(f"{folder.path}/", usual, base).rstrip("/"): folder.split for folder in folders}
    image_paths = {folder.path for folder in folders}
    folders += [
        SourceFolder(path, split=split, has_images=False)
        for path, split in splits_by_labels.items()
        if path not in image_paths and storage_for(path).is_folder(path)
    ]
    used = {*(folder.split for folder in folders), *(list_.split for list_ in lists)}
    points: Any = description.get("kpt_names")
    points = points.get("0") if isinstance(points, dict) else None
    has_points = isinstance(points, list) and len(points) == keypoints
    points = tuple(map(str, points)) if has_points else unnamed_keypoints(keypoints)
    return Source(
        path=options.data,
        kind="yolo",
        folders=tuple(folder._replace(prefix=_relative_path(f"{folder.path}/", top)) for folder in folders),
        parse=partial(parse_labels, line_format=line_format),
        is_label=partial(_is_label_file, lists=frozenset(_relative_path(list_.path, top) for list_ in lists)),
        ignorable_labels=r"(.*/)?(classes\.txt|README[^/]*)",
        label_name=partial(label_name, top=top, usual=usual, base=base),
        categories=tuple(Category(index, name, keypoints=points) for index, name in enumerate(names)),
        splits=tuple(split for split in USUAL_SPLITS if split in used),
        lists=tuple(lists),
        parse_list=partial(_parse_image_list, top=top),
        check=partial(_check_lines, line_format=line_format),
        parts=(Part.KEYPOINTS,) if is_pose else (Part.ORIENTED,) if task == "obb" else (),
        inputs=(file, *(list_.path for list_ in lists)),
        warnings=tuple(warnings),
    )


def _box_fields(options: YoloOptions, task: str) -> tuple[str, ...]:
    """Return the requested fields in the order of their columns. One of several sets has those that boxes can have.

    Raises:
        ConfigError: Boxes have no such column, or lines of the task have none.
    """
    image_fields, object_fields = select_fields(options.fields)
    if options.is_part:
        return tuple(name for name in BOX_FIELDS if name in object_fields.kinds and task in ("", "detect"))
    if image_fields or object_fields.is_all or not object_fields.kinds.keys() <= {*BOX_FIELDS}:
        raise ConfigError(
            "--fields: the label files do not name their columns. Name the sixth number of a box: score or track_id, "
            "or both, if the seventh is a track_id"
        )
    if object_fields and task not in ("", "detect"):
        raise ConfigError(
            f"--fields {','.join(object_fields.kinds)}: only boxes have it, and lines are of the task {task}"
        )
    return tuple(name for name in BOX_FIELDS if name in object_fields.kinds)


def label_name(name: str, top: str, usual: str = "", base: str = "") -> str:
    """Return the name of the label file of an image. Both names are relative to the folder `top`.

    Args:
        usual: Folder where Ultralytics looks for label files.
        base: Folder that has these label files in its place.

    >>> label_name("images/a/images/1.x.jpg", "/data"), label_name("1.jpg", "/data/images")
    ('images/a/labels/1.x.txt', '/data/labels/1.txt')
    >>> label_name("train/1.jpg", "/data/images", "/data/labels/", "/other/labels/")
    '/other/labels/train/1.txt'
    """
    image = f"{top}/{name}"
    return _relative_path(f"{_labels_path(image, usual, base).rpartition('.')[0]}.txt", top)


def _labels_path(path: str, usual: str, base: str) -> str:
    """Return the path with `labels` in place of the last `images`, and with the folder `base` in place of `usual`."""
    labels = labels_folder(path)
    return base + labels.removeprefix(usual) if labels.startswith(usual) else labels


def _find_labels(folders: list[SourceFolder], usual: str, data: str, file: str) -> str:
    """Return the folder of the data set that has the label files of images elsewhere; "" if these are where Ultralytics
    looks for them, or missing.

    Args:
        folders: Folders of images.
        usual: Folder where Ultralytics looks for label files.
        file: Path of data.yaml or classes.txt.

    Raises:
        ConfigError: Several folders have as many of the label files.
    """
    paths = chain.from_iterable(_first_paths(folder.path) for folder in folders)
    expected = {label_file(path) for path in paths if is_image_name(path)}
    beside = chain.from_iterable(_first_paths(path) for path in {labels_folder(f"{f.path}/") for f in folders})
    top = absolute_path(data if storage_for(data).is_folder(data) else split_folder(file)[0])
    if not expected.isdisjoint(beside):
        return ""
    by_name: dict[str, list[str]] = {}
    for path in _first_paths(top):
        by_name.setdefault(posixpath.basename(path), []).append(path)
    counts: Counter[str] = Counter()
    for name in (path.removeprefix(usual) for path in expected):
        counts.update(
            path.removesuffix(name) for path in by_name.get(posixpath.basename(name), ()) if path.endswith(f"/{name}")
        )
    best = sorted(path for path, number in counts.items() if number == max(counts.values()))
    if len(best) > 1:
        raise ConfigError(
            f"{data}: {' and '.join(best)} have label files of the same names, so those of the images in "
            f"{folders[0].path} are unknown. Move the label files of other images to another folder"
        )
    return best[0] if best else ""


def _first_paths(folder: str) -> Iterator[str]:
    """Yield the paths of the first files below a folder."""
    storage = storage_for(folder)
    if storage.is_folder(folder):
        yield from (f"{folder.rstrip('/')}/{name}" for name in islice(storage.walk_names(folder), _LOOKED_AT))


def _relative_path(path: str, top: str) -> str:
    return path.removeprefix(f"{top}/")


def _common_folder(folders: list[str]) -> str:
    """Return the first folder if the others are below it, else the deepest folder above all of them."""
    first = folders[0]
    while not all(f"{folder}/".startswith(f"{first}/") for folder in folders):
        first = first.rpartition("/")[0]
    return first


def _is_label_file(name: str, lists: frozenset[str]) -> bool:
    return name.lower().endswith(".txt") and name not in lists


def _join_relative(folder: str, path: str) -> str:
    """Return a path relative to a folder, without `..`."""
    if is_remote(path):
        return absolute_path(path)
    scheme, separator, rest = folder.rpartition("://")
    return f"{scheme}{separator}{posixpath.normpath(posixpath.join(rest, path))}"


def _find_description(data: str) -> str:
    """Return the path of data.yaml, or of classes.txt.

    Raises:
        ConfigError: Neither file exists, or several .yaml files do.
    """
    storage = storage_for(data)
    if storage.size(data) is not None:
        return data
    yaml_names = [name for name in storage.names(data) if name.endswith(_YAML)]
    stem = posixpath.basename(data.rstrip("/")).removesuffix(".zip")
    preferred = [name for name in yaml_names if name.rpartition(".")[0] in ("data", stem)]
    if len(yaml_names) == 1 or len(preferred) == 1:
        return join_path(data, (preferred if len(preferred) == 1 else yaml_names)[0])
    if yaml_names:
        raise ConfigError(f"{data} has {', '.join(yaml_names)}. Give the one that describes the data set")
    for path in (join_path(data, name) for name in _CLASSES):
        if storage.size(path) is not None:
            return path
    names = islice(storage.walk_names(data), _LOOKED_AT)
    below = sorted(name for name in names if name.endswith(_YAML) and name.count("/") in (1, 2))
    cure = f"Give a folder that has one ({first_texts(below, _SHOWN)}), or write" if below else "Write"
    raise ConfigError(
        f"{data} has neither data.yaml nor classes.txt, so the names of the classes are unknown. {cure} them "
        f"into {join_path(data, 'classes.txt')}, one per line, in the order of their numbers in the label files"
    )


def _read_description(file: str) -> dict[str, Any]:
    """Return the keys of data.yaml, or the names in classes.txt as the key `names`: a line is a class."""
    data = storage_for(file).read(file)
    try:
        if not file.endswith(_YAML):
            text = data.decode("utf-8-sig").rstrip()
            return {"names": [line.strip() for line in re.split("\r\n?|\n", text)] if text else []}
        description = load_yaml(data, _NAMES, _PLAIN)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            describe_yaml_error(file, error) if file.endswith(_YAML) else f"{file} is not UTF-8: {error}"
        ) from error
    if not isinstance(description, dict):
        raise ConfigError(f"{file} has no keys, such as train and names")
    values, number = [description], 0
    while values:  # a few lines of aliases of aliases make gigabytes of text
        value, number = values.pop(), number + 1
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if number > _MOST_VALUES:
            raise ConfigError(
                f"{file} has more than {_MOST_VALUES:,} values, as aliases of aliases have. Remove the aliases"
            )
    return description


def _names_by_index(description: dict[str, Any], file: str) -> tuple[str, ...]:
    """Return the names of the classes by index.

    Raises:
        ConfigError: `names` are missing or invalid, or contradict `nc`.
    """
    names, number = description.get("names"), description.get("nc")
    if isinstance(names, dict):
        by_index: dict[int, Any] = {}
        for key, name in names.items():
            if (index := whole_number(key)) is None:
                raise ConfigError(f"{file}: names has an index that is not a whole number: {key!r}")
            by_index[index] = name
        if sorted(by_index) != list(range(len(names))):
            raise ConfigError(f"{file}: the indices of its {len(names)} names are not 0 to {len(names) - 1}")
        names = [by_index[index] for index in range(len(names))]
    if isinstance(number, str) and (number := whole_number(text := number)) is None:
        raise ConfigError(f"{file}: nc is not a whole number: {shorten(text, 40)!r}")
    if names is None and isinstance(number, int):
        if not 0 < number <= _MOST_VALUES:
            raise ConfigError(f"{file}: nc is {shorten(str(number), 20)}, which must be 1 to {_MOST_VALUES:,}")
        return tuple(f"class_{index}" for index in range(number))
    if not isinstance(names, list) or not names:
        raise ConfigError(f"{file} has neither names, as a list or by index, nor nc")
    if number is not None and number != len(names):
        raise ConfigError(f"{file}: nc is {number}, but names has {len(names)} entries")
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise ConfigError(
            f"{file}: names has an entry that is not a text: {wrong[0]}. Write names as `- cat`, or as `0: cat`"
        )
    return tuple(names)


def _images_root(path: Any, file: str, warnings: list[str]) -> str:
    """Return the folder that paths begin at.

    It is `path` if that exists below the folder of data.yaml, beside it, or in the current folder; else the folder of
    data.yaml.
    """
    folder = absolute_path(split_folder(file)[0])
    if file.endswith(_CLASSES[1]):
        folder = folder.rpartition("/")[0]
    if not path:
        return folder
    parents = [folder, folder.rpartition("/")[0], *([] if is_remote(folder) else [os.getcwd()])]
    candidates = (_join_relative(parent, str(path)) for parent in parents)
    root = next((candidate for candidate in candidates if storage_for(candidate).is_folder(candidate)), "")
    if not root:
        warnings.append(f"{file}: its path {path} does not exist, so paths begin at the folder of the file, {folder}")
    return root or folder


def _find_splits(
    description: dict[str, Any], root: str, file: str, warnings: list[str]
) -> tuple[list[SourceFolder], list[SplitList]]:
    """Return the folders and the lists of images of the splits.

    Raises:
        ConfigError: A folder or list is missing.
    """
    folders, lists = list[SourceFolder](), list[SplitList]()
    for split in USUAL_SPLITS:
        entries = description.get(split) or (description.get("validation") if split == "val" else None) or []
        for entry in map(str, entries if isinstance(entries, list) else [entries]):
            paths = _split_paths(root, entry)
            shown = " or ".join(paths[:1] if is_absolute(entry) else paths)
            missing = f"{file}: {split} is {entry}, but {shown} does not exist"
            path = _first_existing(path for path in paths if path not in {folder.path for folder in folders})
            is_folder = bool(path) and storage_for(path).is_folder(path)
            if path and is_absolute(entry) and path != paths[0]:  # of another machine
                warnings.append(f"{file}: {split} is {entry}, which does not exist, so {path} is read")
            if is_folder:
                folders.append(SourceFolder(path, split=split))
            elif path.endswith(".txt"):
                lists.append(SplitList(path, split))
            elif path:
                raise ConfigError(f"{file}: {split} is {entry}, which is neither a folder nor a .txt list")
            elif split == "test":
                warnings.append(f"{missing}. The split is skipped")
            else:
                raise ConfigError(f"{missing}. {_path_cure(description, root, split)}")
    if not folders and not lists:
        raise ConfigError(f"{file} does not name images: it needs one of train, val, test")
    return folders, lists


def _split_paths(root: str, entry: str) -> list[str]:
    """Return the paths that an entry of a split may mean, likeliest first. The ends of an absolute path, which another
    machine may have, are looked for below `root`.

    >>> _split_paths("/set", "../train/images"), _split_paths("/set", "/a/train")
    (['/train/images', '/set/train/images'], ['/a/train', '/set/a/train', '/set/train'])
    """
    paths, parts = [_join_relative(root, entry)], name_parts(entry)
    if is_absolute(entry):
        return paths + [_join_relative(root, "/".join(parts[at:])) for at in range(len(parts))]
    return paths + ([_join_relative(root, entry.removeprefix("../"))] if entry.startswith("../") else [])


def _first_existing(paths: Iterable[str]) -> str:
    """Return the first path of a folder or file, or ""."""
    storages = ((path, storage_for(path)) for path in paths)
    return next((path for path, storage in storages if storage.is_folder(path) or storage.size(path) is not None), "")


def _path_cure(description: dict[str, Any], root: str, split: str) -> str:
    """Return the cure of a path that does not exist: --images with a folder above or below `root` that has the paths
    of train and val, if there is one."""
    names = islice(storage_for(root).walk_names(root), _LOOKED_AT)
    below = sorted({name.partition("/")[0] for name in names if "/" in name})
    entries = [description[name] for name in ("train", "val") if description.get(name)]
    paths = [str(path) for entry in entries for path in (entry if isinstance(entry, list) else [entry])]
    for folder in filter(None, (root.rpartition("/")[0], *(join_path(root, name) for name in below))):
        candidates = {_first_existing(_split_paths(folder, path)) for path in paths}
        if "" not in candidates and len(candidates) == len(paths):
            return f"Add --images {shlex.quote(folder)}"
    return f"Correct the path, or remove {split} from the file"


def _parse_image_list(path: str, lines: Iterable[str], top: str) -> Iterator[str]:
    """Yield the names of the images in a list. Its paths are relative to its folder."""
    folder = split_folder(path)[0]
    for line in lines:
        yield _relative_path(_join_relative(folder, line.replace("\\", "/")), top)


def _check_lines(notes: frozenset[str], line_format: LineFormat) -> Iterator[str]:
    if _NOT_A_SCORE in notes:
        raise ConfigError("--fields score: a sixth number is above 1, so it is not a score. Is it a track_id?")
    notes -= {_NOT_A_SCORE}
    if not line_format.task and notes == {"nine"}:
        raise ConfigError(
            "all lines have nine columns, so they are polygons of four points or oriented boxes. Add --task segment or "
            "--task obb"
        )
    if "mixed" in notes and not line_format.task:
        yield (
            "some label files have both boxes and polygons: a line of five columns is read as a box; Ultralytics reads "
            "it as a polygon"
        )
    if {"nine", "more"} & notes and line_format.task in ("", "segment") and not line_format.has_masks:
        yield "label files have polygons, but records store only their boxes: --masks rle or --masks png stores masks"


@parser
def parse_labels(data: bytes, file: str, line_format: LineFormat) -> Iterator[LabelledImage]:
    """Yield the image of a label file.

    >>> image, = parse_labels(b"0 0.5 0.5 0.5 1\\n1 0 0 nan 1", "a.txt", LineFormat(("cat", "dog"), ""))
    >>> image.sample.objects[0].box, image.faults[0].line
    ((0.25, 0.0, 0.5, 1.0), 2)
    """
    if (objects := _plain_boxes(data, line_format)) is not None:
        yield LabelledImage(Sample("", objects=objects), (), ("box",) * bool(objects), (), _line_places(len(objects)))
        return
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        kind = describe_content(data) or f"not UTF-8 (byte {error.start:,})"
        raise UnusableError(Reason.MALFORMED_LABELS, f"it is {kind}") from error
    parts, first_lines = ImageParts(), dict[tuple[float, ...], int]()
    for number, line in enumerate(lines, 1):
        if not (tokens := line.split()):
            continue
        try:
            columns = _parse_columns(tokens)
            object_ = parse_line(columns, line_format)
            if (first := first_lines.setdefault(columns, number)) != number:
                raise UnusableError(Reason.DUPLICATE_ANNOTATION, f"it repeats line {first}")
        except UnusableError as error:
            parts.reject(error, line=number, text=line.strip())
            continue
        parts.add(object_, line=number)
        is_box = len(columns) == 5 or has_columns(columns, line_format)
        parts.notes.add("box" if is_box else "nine" if len(columns) == 9 else "more")
        if len(columns) > 5:
            parts.notes |= {_NOT_A_SCORE} if object_.fields.get("score", 0) > 1 else set()
            parts.warnings |= {_UNREAD} if len(columns) == 6 and not line_format.fields else set()
    kind = describe_content(data.partition(b"\n")[0]) if parts.faults and not parts.objects else ""
    if kind and not kind.startswith("YOLO"):  # the image is not background
        raise UnusableError(Reason.MALFORMED_LABELS, f"it is {kind}")
    parts.notes |= {"mixed"} if "box" in parts.notes and parts.notes & {"nine", "more"} else set()
    yield parts.image(Sample(""))


def _plain_boxes(data: bytes, line_format: LineFormat) -> tuple[SampleObject, ...] | None:
    """Return the objects of a file whose lines are boxes without a fault; None for any other file.

    It takes a third of the time of `parse_line`. Without signs and letters, no number is negative or NaN.
    """
    if line_format.task not in ("", "detect") or data.translate(None, _PLAIN_CHARACTERS):
        return None
    names, objects, rows = line_format.names, list[SampleObject](), list[tuple[float, ...]]()
    for line in data.splitlines():
        try:
            row = class_, x, y, width, height = tuple(map(float, line.split()))
        except ValueError:
            return None
        if class_ >= len(names) or class_ % 1 or x > 1 or y > 1 or width > 1 or height > 1:
            return None
        rows.append(row)
        index, box = int(class_), (round(x - width / 2, 12), round(y - height / 2, 12), width, height)
        objects.append(SampleObject(names[index], box, "fraction", category_id=index))
    return tuple(objects) if len(set(rows)) == len(rows) else None


def _line_places(number: int) -> tuple[LabelFault, ...]:
    """Return the places of objects in the first lines of a file."""
    return tuple(map(_line_place, range(1, number + 1)))


@lru_cache(4096)
def _line_place(line: int) -> LabelFault:
    return LabelFault(Reason.MALFORMED_ANNOTATION, "", line)


def _parse_columns(tokens: Sequence[str]) -> tuple[float, ...]:
    try:
        return tuple(map(read_number, tokens))
    except ValueError as error:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, "a column is not a number") from error
