"""data.yaml, or classes.txt, says what there is to read. Paths are resolved as Ultralytics' `check_det_dataset` does.

Nothing is written into the folder, `download` is never run, and no `.cache` is read.
"""

import os
import posixpath
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import yaml

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category, unnamed_keypoints
from recordmill.schemas.inputs.splits import USUAL_SPLITS
from recordmill.transforms.annotated.source import Source, SourceFolder, SplitList
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for
from recordmill.transforms.yolo.parse_labels import LineRules, parse_labels

_IMAGES, _LABELS = "/images/", "/labels/"
_CLASSES = ("classes.txt", "labels/classes.txt")
_YAML = (".yaml", ".yml")


def recognise(names: Iterable[str]) -> str:
    """Return why files of these names may be a YOLO data set; empty if not."""
    names = sorted(names)
    if "data.yaml" in names:
        return "data.yaml"
    found = next((name for name in names if name.endswith(".txt") and _LABELS in f"/{name}"), "")
    return f"label files such as {found}" if found else ""


def yolo_source(data: str, images: tuple[str, ...], task: str | None, has_masks: bool) -> Source:
    """Return what is read.

    Args:
        data: data.yaml, or the folder or .zip of the data set.
        images: folder that the paths in data.yaml begin at; empty for its `path`.
        task: None to find it in data.yaml and by the lines.

    Raises:
        ConfigError: it is no YOLO data set, or a folder is missing.
    """
    if len(images) > 1:
        raise ConfigError("--images: the paths in data.yaml begin at one folder; give one")
    file, warnings = _find_file(data), list[str]()
    described = _read_yaml(file) if file.endswith(_YAML) else {"names": _read_classes(file)}
    names, shape = _names(described, file), described.get("kpt_shape")
    is_pose = task == "pose" or (task is None and shape is not None)
    keypoints, dimensions = _shape(shape, file) if is_pose else (0, 0)
    rules = LineRules(names, "pose" if is_pose else task or "", keypoints, dimensions, has_masks)
    root = _absolute(images[0]) if images else _root(described.get("path"), file, warnings)
    if file.endswith(_YAML):
        folders, lists = _places(described, root, file, warnings)
    else:
        folders, lists = [SourceFolder(root)], []
    if lists:
        folders.append(SourceFolder(root))
    top = _top([root, *(folder.path for folder in folders)])
    beside = dict.fromkeys(_labels_beside(f"{folder.path}/").rstrip("/") for folder in folders)
    labels = [path for path in beside if path not in {folder.path for folder in folders}]
    folders += [SourceFolder(path, has_images=False) for path in labels if storage_for(path).is_folder(path)]
    used = {*(folder.split for folder in folders), *(split for _, split in lists)}
    listed = frozenset(_within(path, top) for path, _ in lists)
    points = _keypoint_names(described.get("kpt_names"), keypoints)
    return Source(
        path=data,
        kind="yolo",
        folders=tuple(folder._replace(prefix=_prefix(folder.path, top)) for folder in folders),
        parse=partial(parse_labels, rules=rules),
        is_label=partial(_is_label, others=listed),
        label_of=partial(label_of, top=top),
        categories=tuple(Category(index, name, keypoints=points) for index, name in enumerate(names)),
        splits=tuple(split for split in USUAL_SPLITS if split in used),
        lists=tuple(lists),
        names_of=partial(_listed_names, top=top),
        check=partial(_check, rules=rules),
        parts=(Part.KEYPOINTS,) if is_pose else (Part.ORIENTED,) if task == "obb" else (),
        inputs=(file, *(path for path, _ in lists)),
        warnings=tuple(warnings),
    )


def label_of(name: str, top: str) -> str:
    """Return the name of the label file of an image; both are relative to the folder `top`.

    >>> label_of("images/a/images/1.x.jpg", "/data"), label_of("1.jpg", "/data/images")
    ('images/a/labels/1.x.txt', '/data/labels/1.txt')
    """
    return _within(label_file(f"{top}/{name}"), top)


def label_file(image: str) -> str:
    """Return the path of an image's label file, where Ultralytics looks for it.

    >>> label_file("/images/train/images/1.x.jpg")
    '/images/train/labels/1.x.txt'
    """
    return f"{_labels_beside(image).rpartition('.')[0]}.txt"


def _labels_beside(path: str) -> str:
    """Return the path with `labels` in place of the last `images` among its folders."""
    return _LABELS.join(path.rsplit(_IMAGES, 1))


def _within(path: str, top: str) -> str:
    return path.removeprefix(f"{top}/")


def _prefix(folder: str, top: str) -> str:
    return "" if folder == top else f"{_within(folder, top)}/"


def _top(folders: list[str]) -> str:
    """Return the first folder if the others are in it, else the folder that all are in."""
    first = folders[0]
    while not all(f"{folder}/".startswith(f"{first}/") for folder in folders):
        first = first.rpartition("/")[0]
    return first


def _is_label(name: str, others: frozenset[str]) -> bool:
    base = posixpath.basename(name)
    return base.endswith(".txt") and base != "classes.txt" and not base.startswith("README") and name not in others


def _absolute(path: str) -> str:
    return path.rstrip("/") if is_remote(path) else os.path.abspath(path)


def _joined(folder: str, path: str) -> str:
    """Return a path that is relative to a folder, without `..`."""
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


def _read_yaml(file: str) -> dict[str, Any]:
    try:
        described = yaml.safe_load(storage_for(file).read(file))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(described, dict):
        raise ConfigError(f"{file} has no keys, such as train and names")
    return described


def _read_classes(file: str) -> list[str]:
    try:
        lines = storage_for(file).read(file).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 ({error})") from error
    return [line.strip() for line in lines if line.strip()]


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


def _keypoint_names(names: Any, number: int) -> tuple[str, ...]:
    found = names.get(0) if isinstance(names, dict) else None
    return tuple(map(str, found)) if isinstance(found, list) and len(found) == number else unnamed_keypoints(number)


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
