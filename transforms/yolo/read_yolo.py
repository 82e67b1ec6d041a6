"""YOLO: a text file beside each image, and data.yaml or classes.txt. Paths are resolved as Ultralytics'
`check_det_dataset` does, and lines are read by the rules of its `verify_image_label`.

Nothing is written into the folder, `download` is never run, and no `.cache` is read.
"""

import json
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import yaml

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, unnamed_keypoints
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import USUAL_SPLITS
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.shapes import check_fractions, check_ring, rectangle_ring, ring_area
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, Source, SourceFolder, SplitList, parser
from recordmill.transforms.join.image_names import label_file, labels_folder
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for
from recordmill.transforms.yolo.yolo_options import YoloOptions

_CLASSES = ("classes.txt", "labels/classes.txt")
_YAML = (".yaml", ".yml")
_MOST_VALUES = 1_000_000


class LineRules(NamedTuple):
    """Meaning of a line.

    Attributes:
        names: of the classes, by index.
        task: `detect`, `segment`, `pose` or `obb`; empty to find it by the number of columns.
        keypoints, dimensions: of the task `pose`.
        has_masks: whether polygons are wanted, and not their boxes alone.
    """

    names: tuple[str, ...]
    task: str
    keypoints: int = 0
    dimensions: int = 0
    has_masks: bool = False


def source(options: YoloOptions) -> Source:
    """Return what is read.

    Raises:
        ConfigError: it is no YOLO data set, or a folder is missing.
    """
    task, images, warnings = options.task, options.images, list[str]()
    if len(images) > 1:
        raise ConfigError("--images: the paths in data.yaml begin at one folder; give one")
    file = _find_file(options.data)
    described = _described(file)
    names, shape = _names(described, file), described.get("kpt_shape")
    if read := sorted({*names} & {"True", "False", "None"}):
        warnings.append(
            f"{file}: the names {', '.join(read)} are YAML's reading of words such as yes, no, null: quote them"
        )
    is_pose = task == "pose" or (task is None and shape is not None)
    keypoints, dimensions = _shape(shape, file) if is_pose else (0, 0)
    rules = LineRules(names, "pose" if is_pose else task or "", keypoints, dimensions, options.masks != "none")
    root = _absolute(images[0]) if images else _root(described.get("path"), file, warnings)
    folders, lists = [SourceFolder(root)], list[SplitList]()
    if file.endswith(_YAML):
        found, lists = _places(described, root, file, warnings)
        folders = found + (folders if lists else [])
    top = _top([root, *(folder.path for folder in folders)])
    beside = dict.fromkeys(labels_folder(f"{folder.path}/").rstrip("/") for folder in folders)
    labels = [path for path in beside if path not in {folder.path for folder in folders}]
    folders += [SourceFolder(path, has_images=False) for path in labels if storage_for(path).is_folder(path)]
    used = {*(folder.split for folder in folders), *(list_.split for list_ in lists)}
    points: Any = described.get("kpt_names")
    points = points.get(0) if isinstance(points, dict) else None
    has_points = isinstance(points, list) and len(points) == keypoints
    points = tuple(map(str, points)) if has_points else unnamed_keypoints(keypoints)
    return Source(
        path=options.data,
        kind="yolo",
        folders=tuple(each._replace(prefix=_within(f"{each.path}/", top)) for each in folders),
        parse=partial(parse_labels, rules=rules),
        is_label=partial(_is_label, others=frozenset(_within(list_.path, top) for list_ in lists)),
        unmissed=r"(.*/)?(classes\.txt|README[^/]*)",
        label_of=partial(label_of, top=top),
        categories=tuple(Category(index, name, keypoints=points) for index, name in enumerate(names)),
        splits=tuple(split for split in USUAL_SPLITS if split in used),
        lists=tuple(lists),
        names_of=partial(_listed_names, top=top),
        check=partial(_check, rules=rules),
        parts=(Part.KEYPOINTS,) if is_pose else (Part.ORIENTED,) if task == "obb" else (),
        inputs=(file, *(list_.path for list_ in lists)),
        warnings=tuple(warnings),
    )


def label_of(name: str, top: str) -> str:
    """Return the name of the label file of an image; both are relative to the folder `top`.

    >>> label_of("images/a/images/1.x.jpg", "/data"), label_of("1.jpg", "/data/images")
    ('images/a/labels/1.x.txt', '/data/labels/1.txt')
    """
    return _within(label_file(f"{top}/{name}"), top)


def _within(path: str, top: str) -> str:
    return path.removeprefix(f"{top}/")


def _top(folders: list[str]) -> str:
    """Return the first folder if the others are in it, else the folder that all are in."""
    first = folders[0]
    while not all(f"{folder}/".startswith(f"{first}/") for folder in folders):
        first = first.rpartition("/")[0]
    return first


def _is_label(name: str, others: frozenset[str]) -> bool:
    return name.lower().endswith(".txt") and name not in others


def _absolute(path: str) -> str:
    return path.rstrip("/") if is_remote(path) else os.path.abspath(path)


def _joined(folder: str, path: str) -> str:
    """Return a path relative to a folder, without `..`."""
    if is_remote(path):
        return _absolute(path)
    scheme, separator, rest = folder.rpartition("://")
    return f"{scheme}{separator}{posixpath.normpath(posixpath.join(rest, path))}"


def _find_file(data: str) -> str:
    """Return the path of data.yaml, or of classes.txt.

    Raises:
        ConfigError: there is none, or there are several.
    """
    storage = storage_for(data)
    if storage.size(data) is not None:
        return data
    found = [name for name in storage.names(data) if name.endswith(_YAML)]
    stem = posixpath.basename(data.rstrip("/")).removesuffix(".zip")
    preferred = [name for name in found if name.rpartition(".")[0] in ("data", stem)]
    if len(found) == 1 or len(preferred) == 1:
        return join_path(data, (preferred if len(preferred) == 1 else found)[0])
    if found:
        raise ConfigError(f"--data {data} has {', '.join(found)}: give the one of the data set")
    for path in (join_path(data, name) for name in _CLASSES):
        if storage.size(path) is not None:
            return path
    raise ConfigError(
        f"--data {data}: neither data.yaml nor classes.txt is in it, so the names of classes are not known"
    )


def _described(file: str) -> dict[str, Any]:
    """Return the keys of data.yaml; those that classes.txt stands for."""
    data = storage_for(file).read(file)
    try:
        if not file.endswith(_YAML):
            return {"names": [name for line in data.decode("utf-8-sig").splitlines() if (name := line.strip())]}
        described = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = "no YAML" if file.endswith(_YAML) else "not UTF-8"
        raise ConfigError(f"{file} is {what}: {' '.join(str(error).split())}") from error
    if not isinstance(described, dict):
        raise ConfigError(f"{file} has no keys, such as train and names")
    values, number = [described], 0
    while values:  # a few lines of aliases of aliases make gigabytes of text
        value, number = values.pop(), number + 1
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if number > _MOST_VALUES:
            raise ConfigError(f"{file} has more than {_MOST_VALUES:,} values, as aliases of aliases have; remove these")
    return described


def _names(described: dict[str, Any], file: str) -> tuple[str, ...]:
    """Return the names of the classes by index.

    Raises:
        ConfigError: `names` are none, or contradict `nc`.
    """
    names, number = described.get("names"), described.get("nc")
    if isinstance(names, dict):
        try:
            names = {int(index): name for index, name in names.items()}
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{file}: an index of names is no number ({error})") from error
        if sorted(names) != list(range(len(names))):
            raise ConfigError(f"{file}: the indices of its {len(names)} names are not 0 to {len(names) - 1}")
        names = [names[index] for index in range(len(names))]
    if names is None and isinstance(number, int):
        return tuple(f"class_{index}" for index in range(number))
    if not isinstance(names, list) or not names:
        raise ConfigError(f"{file} has neither names, as a list or by index, nor nc")
    if number is not None and number != len(names):
        raise ConfigError(f"{file}: nc is {number}, and there are {len(names)} names")
    return tuple(map(str, names))


def _shape(shape: Any, file: str) -> tuple[int, int]:
    """Return the number of keypoints and of their columns."""
    is_pair = isinstance(shape, list) and len(shape) == 2 and all(isinstance(each, int) for each in shape)
    if not is_pair or shape[0] < 1 or shape[1] not in (2, 3):
        raise ConfigError(f"{file}: kpt_shape is {shape}, and not the number of keypoints, and 2 or 3 columns of each")
    return shape[0], shape[1]


def _root(path: Any, file: str, warnings: list[str]) -> str:
    """Return the folder that paths begin at: `path` if it is there, below the folder of data.yaml, beside it, or in the
    current folder; else the folder of data.yaml."""
    folder = _absolute(split_folder(file)[0])
    if file.endswith(_CLASSES[1]):
        folder = folder.rpartition("/")[0]
    if not path:
        return folder
    parents = [folder, folder.rpartition("/")[0], *([] if is_remote(folder) else [os.getcwd()])]
    found = (_joined(parent, str(path)) for parent in parents)
    there = next((each for each in found if storage_for(each).is_folder(each)), "")
    if not there:
        warnings.append(f"{file}: its path {path} is not there, so paths begin at its own folder, {folder}")
    return there or folder


def _places(
    described: dict[str, Any], root: str, file: str, warnings: list[str]
) -> tuple[list[SourceFolder], list[SplitList]]:
    """Return the folders of images, and lists of images.

    Raises:
        ConfigError: one is missing.
    """
    folders, lists = [], []
    for split in USUAL_SPLITS:
        entries = described.get(split) or (described.get("validation") if split == "val" else None) or []
        for entry in map(str, entries if isinstance(entries, list) else [entries]):
            tried = [_joined(root, entry)]
            tried += [_joined(root, entry.removeprefix("../"))] if entry.startswith("../") else []
            is_folder = {path: storage_for(path).is_folder(path) for path in tried}
            path = next((each for each in tried if is_folder[each] or storage_for(each).size(each) is not None), "")
            missing = f"{file}: {split} is {entry}, and there is no {' or '.join(tried)}"
            if path and is_folder[path]:
                folders.append(SourceFolder(path, split=split))
            elif path.endswith(".txt"):
                lists.append(SplitList(path, split))
            elif path:
                raise ConfigError(f"{file}: {split} is {entry}, which is neither a folder nor a .txt list")
            elif split == "test":
                warnings.append(f"{missing}, so it is left out")
            else:
                raise ConfigError(f"{missing}: give --images with the folder that its paths begin at")
    if not folders and not lists:
        raise ConfigError(f"{file} names no images: none of train, val and test")
    return folders, lists


def _listed_names(path: str, lines: Iterable[str], top: str) -> Iterator[str]:
    """Yield the names of images in a list. Paths are relative to its folder."""
    folder = split_folder(path)[0]
    for line in lines:
        yield _within(_joined(folder, line.replace("\\", "/")), top)


def _check(notes: frozenset[str], rules: LineRules) -> Iterator[str]:
    if not rules.task and notes == {"nine"}:
        raise ConfigError(
            "all lines have nine columns, which are polygons of four points or oriented boxes: give --task segment or "
            "--task obb"
        )
    if "mixed" in notes and not rules.task:
        yield (
            "some label files have both boxes and polygons: a line of five columns is read as a box, where Ultralytics "
            "takes it for a polygon"
        )
    if {"nine", "more"} & notes and rules.task in ("", "segment") and not rules.has_masks:
        yield "label files have polygons, and records have their boxes alone: --masks rle or --masks png stores masks"


@parser
def parse_labels(data: bytes, file: str, rules: LineRules) -> Iterator[LabelledImage]:
    """Yield the image of a label file.

    >>> image, = parse_labels(b"0 0.5 0.5 0.5 1\\n1 0 0 nan 1", "a.txt", LineRules(("cat", "dog"), ""))
    >>> image.sample.objects[0].box, image.faults[0].line
    ((0.25, 0.0, 0.5, 1.0), 2)
    """
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        kind = describe_content(data) or f"not UTF-8 (byte {error.start:,})"
        raise UnusableError(Reason.MALFORMED_LABELS, f"it is {kind}") from error
    found, first = ImageParts(), dict[tuple[float, ...], int]()
    for number, line in enumerate(lines, 1):
        if not (tokens := line.split()):
            continue
        with found.rejecting(line=number, text=line.strip()):
            columns = _numbers(tokens)
            each = parse_line(columns, rules)
            if (before := first.setdefault(columns, number)) != number:
                raise UnusableError(Reason.DUPLICATE_ANNOTATION, f"it says the same as line {before}")
            found.objects.append(each)
            found.notes.add("box" if len(columns) == 5 else "nine" if len(columns) == 9 else "more")
    kind = describe_content(data.partition(b"\n")[0]) if found.faults and not found.objects else ""
    if kind and not kind.startswith("YOLO"):  # the image is not background
        raise UnusableError(Reason.MALFORMED_LABELS, f"it is {kind}")
    found.notes |= {"mixed"} if "box" in found.notes and len(found.notes) > 1 else set()
    yield found.image(Sample(""))


def _numbers(tokens: Sequence[str]) -> tuple[float, ...]:
    try:
        return tuple(map(float, tokens))
    except ValueError as error:
        raise UnusableError(Reason.MALFORMED_ANNOTATION, "a column is no number") from error


def parse_line(columns: Sequence[float], rules: LineRules) -> SampleObject:
    """Return the object of a line.

    Raises:
        UnusableError: The line is not an object.

    >>> parse_line((0, 0.5, 0.5, 0.2, 0.4), LineRules(("cat",), "")).box
    (0.4, 0.3, 0.2, 0.4)
    """
    class_, *numbers = columns
    if fault := _column_fault(len(columns), rules):
        raise UnusableError(Reason.MALFORMED_ANNOTATION, fault)
    if class_ not in range(len(rules.names)):
        detail = f"class {class_:g} is none of 0 to {len(rules.names) - 1}"
        raise UnusableError(Reason.UNKNOWN_CATEGORY, detail)
    if len(columns) > 5 and rules.task != "pose":
        return _polygon(int(class_), numbers, rules)
    (x, y, width, height), points = numbers[:4], numbers[4:]
    if rules.dimensions == 3 and not all(visibility in (0, 1, 2) for visibility in points[2::3]):
        raise UnusableError(Reason.MALFORMED_KEYPOINTS, "a visibility is not 0, 1 or 2")
    step = rules.dimensions or 2
    check_fractions([x, y, width, height, *points[::step], *points[1::step]])
    if width < 0 or height < 0:
        raise UnusableError(Reason.MALFORMED_BOX, "width or height is negative")
    if rules.dimensions == 2:  # a keypoint is visible unless x or y is negative
        pairs = zip(points[::2], points[1::2], strict=True)
        points = [number for x, y in pairs for number in ((x, y, 2.0) if x >= 0 and y >= 0 else (0.0, 0.0, 0.0))]
    box = round(x - width / 2, 12), round(y - height / 2, 12), width, height
    return SampleObject(rules.names[int(class_)], box, "fraction", tuple(points), category_id=int(class_))


def _polygon(index: int, numbers: Sequence[float], rules: LineRules) -> SampleObject:
    """Return the object of a polygon, or of an oriented box. Its box is their bounds."""
    ring = [*zip(numbers[::2], numbers[1::2], strict=True)]
    check_ring(ring)
    (left, top), _, (right, bottom), _ = rectangle_ring(ring)
    return SampleObject(
        rules.names[index],
        (left, top, right - left, bottom - top),
        "fraction",
        segmentation=json.dumps([numbers]) if rules.has_masks and rules.task != "detect" else "",
        area_px2=None if rules.task == "detect" else ring_area(ring),
        category_id=index,
        corners=tuple(numbers) if rules.task == "obb" else (),
    )


def _column_fault(columns: int, rules: LineRules) -> str:
    """Return what is wrong with the number of columns; empty if nothing is."""
    if rules.task == "pose":
        expected = 5 + rules.keypoints * rules.dimensions
        return "" if columns == expected else f"{columns} columns, where {expected} are expected by kpt_shape"
    if rules.task == "obb":
        return "" if columns == 9 else f"{columns} columns, where an oriented box has 9"
    if columns == 6:
        return "6 columns, as predictions with a confidence have: a box has 5"
    is_shape = columns >= 5 and columns % 2
    return "" if is_shape else f"{columns} columns, where a box has 5, and a polygon 7, 9 or more"
