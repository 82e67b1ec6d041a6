"""The folder says what there is to read: Annotations, JPEGImages and ImageSets, or XML files beside images."""

import posixpath
from collections.abc import Iterable, Iterator
from functools import partial

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.transforms.annotated.source import Source, SourceFolder, SplitList
from recordmill.transforms.storage.resolve import join_path, storage_for
from recordmill.transforms.voc.parse_voc import parse_voc

_ANNOTATIONS = ("Annotations", "annotations")
_IMAGES = ("JPEGImages", "images", "Images")
_LISTS = ("ImageSets/Main", "ImageSets/Layout", "ImageSets/Segmentation", "ImageSets")
_LAYOUT = "ImageSets/Layout"
_MASKS = ("SegmentationObject", "SegmentationClass")
_SPLIT_OF = {"trainval": "trainval"} | SPLIT_OF_FOLDER
_YEARS = tuple(f"VOC{year}" for year in range(2005, 2013))

Folders = tuple[str, str]
"""Beginnings of the names of images, and of their XML files: `JPEGImages/` and `Annotations/`; both empty if the files
are side by side."""


def recognise(names: Iterable[str]) -> str:
    """Return why files of these names may be a data set of Pascal VOC; empty if not."""
    found = next((name for name in sorted(names) if _is_xml(name) and not name.endswith("annotations.xml")), "")
    return f"label files such as {found}" if found else ""


def voc_source(data: str, images: tuple[str, ...], origin: int) -> Source:
    """Return what is read.

    Args:
        data: folder or .zip of the data set.
        images: folders of images; empty for those in `data`.
        origin: what the first pixel is called, 0 or 1.

    Raises:
        ConfigError: it has no XML files, or it has several data sets.
    """
    root = _root(data)
    whole = _folders_of(root)
    by_split: dict[str, list[tuple[str, Folders]]] = {}
    for name, split in _SPLIT_OF.items():
        if whole is None and (found := _folders_of(join_path(root, name))) is not None:
            by_split.setdefault(split, []).append((name, found))
    if whole is None and not by_split:
        raise ConfigError(f"--data {data} has no .xml files: neither in it, nor in Annotations, train, val or test")
    folders, pairs = list[SourceFolder](), list[Folders]()
    for split, name, (pictures, annotations) in _places(whole, by_split):
        for path in images or (join_path(root, f"{name}{pictures}"),):
            folders.append(SourceFolder(path.rstrip("/"), "" if images else f"{name}{pictures}", split))
        if images or annotations:
            labels = f"{name}{annotations}"
            folders.append(SourceFolder(join_path(root, labels).rstrip("/"), labels, has_images=False))
        pairs.append(("" if images else f"{name}{pictures}", f"{name}{annotations}"))
    if images and len(pairs) > 1:
        raise ConfigError(f"--images: {data} has images in its folders {' and '.join(sorted(by_split))}; leave it out")
    lists = _lists(root) if whole is not None else []
    used = {*by_split, *(list_.split for list_ in lists)}
    return Source(
        path=data,
        kind="voc",
        folders=tuple(folders),
        parse=partial(parse_voc, origin=origin),
        is_label=_is_xml,
        label_of=partial(label_of, pairs=tuple(pairs)),
        splits=tuple(split for split in dict.fromkeys(_SPLIT_OF.values()) if split in used),
        lists=tuple(lists),
        names_of=partial(_listed_names, images=pairs[0][0]),
        check=partial(_check, origin=origin),
        parts=(Part.FLAGS,),
        inputs=tuple(list_.path for list_ in lists),
        warnings=tuple(_mask_warnings(root)),
    )


def label_of(name: str, pairs: tuple[Folders, ...]) -> str:
    """Return the name of the XML file of an image.

    >>> label_of("JPEGImages/a.b.jpg", (("JPEGImages/", "Annotations/"),))
    'Annotations/a.b.xml'
    """
    images, annotations = next((pair for pair in pairs if name.startswith(pair[0])), pairs[0])
    return f"{annotations}{posixpath.splitext(name.removeprefix(images))[0]}.xml"


def _is_xml(name: str) -> bool:
    return name.lower().endswith(".xml")


def _root(data: str) -> str:
    """Return the folder that has Annotations: `data`, or the folder of a year in it.

    Raises:
        ConfigError: `data` is a file, or there are several.
    """
    storage = storage_for(data)
    if storage.size(data) is not None and not data.endswith(".zip"):
        raise ConfigError(f"--data {data} is a file: give the folder that has Annotations")
    tried = [f"{folder}{year}" for folder in ("", "VOCdevkit/") for year in _YEARS]
    found = [name for name in tried if storage.is_folder(join_path(data, name))]
    if len(found) > 1:
        raise ConfigError(f"--data {data} has {', '.join(found)}: give one of them")
    return join_path(data, found[0]) if found else data.rstrip("/")


def _folders_of(folder: str) -> Folders | None:
    """Return the folders of images and XML files in a folder; None if it has none."""
    storage = storage_for(folder)
    images, annotations = (
        next((f"{name}/" for name in names if storage.is_folder(join_path(folder, name))), "")
        for names in (_IMAGES, _ANNOTATIONS)
    )
    if annotations:
        return images, annotations
    return ("", "") if any(map(_is_xml, storage.names(folder))) else None


def _places(
    whole: Folders | None, by_split: dict[str, list[tuple[str, Folders]]]
) -> Iterator[tuple[str, str, Folders]]:
    """Yield a split, the beginning of names, and the folders there."""
    if whole is not None:
        yield "", "", whole
    for split, found in by_split.items():
        for name, folders in found:
            yield split, f"{name}/", folders


def _lists(root: str) -> list[SplitList]:
    """Return the lists of splits in the first folder that has some. Lists of one class, `cat_train.txt`, are skipped;
    `trainval` is skipped if both of its parts are there."""
    for folder in (join_path(root, name) for name in _LISTS):
        names = [name for name in storage_for(folder).names(folder) if name.endswith(".txt")]
        splits = {name: _SPLIT_OF[name[:-4]] for name in names if name[:-4] in _SPLIT_OF}
        if {"train", "val"} <= {*splits.values()}:
            splits.pop("trainval.txt", None)
        elif "trainval.txt" in splits:
            splits = {name: split for name, split in splits.items() if split not in ("train", "val")}
        if not splits and len(names) == 1:
            splits = {names[0]: "train"}
        if splits:
            return [SplitList(join_path(folder, name), split) for name, split in splits.items()]
    return []


def _listed_names(path: str, lines: Iterable[str], images: str) -> Iterator[str]:
    """Yield the names of images in a list, with a suffix: the list has none. In ImageSets/Layout, the number of an
    object follows."""
    names = (line.split()[0] for line in lines) if _LAYOUT in path else iter(lines)
    return (
        f"{images}{name}" if name.lower().endswith((".jpg", ".jpeg", ".png")) else f"{images}{name}.jpg"
        for name in names
    )


def _mask_warnings(root: str) -> Iterator[str]:
    for name in _MASKS:
        folder = join_path(root, name)
        if number := sum(each.endswith(".png") for each in storage_for(folder).names(folder)):
            yield f"{name} has {number:,} images with masks, which are not read: records have the boxes alone"


def _check(notes: frozenset[str], origin: int) -> Iterator[str]:
    """Yield what the boxes say of the first pixel, and fields that are not written.

    Raises:
        ConfigError: boxes are fractions.
    """
    if "fractions" in notes and "pixels" not in notes:
        raise ConfigError(
            "boxes of all label files are in 0..1, as fractions are; Pascal VOC has pixels: multiply them"
        )
    if "fractions" in notes:
        yield "boxes of some label files are in 0..1, as fractions are, and are read as pixels"
    yield from _origin_warnings(_numbers(notes, "xmin"), _numbers(notes, "xmax"), origin)
    if fields := sorted(note for note in notes if note.startswith("<")):
        yield f"objects have {', '.join(fields)}, which records have no key for: not written"


def _numbers(notes: frozenset[str], name: str) -> list[int]:
    return [int(note.split()[1]) for note in notes if note.startswith(f"{name} ")]


def _origin_warnings(xmin: list[int], beyond: list[int], origin: int) -> Iterator[str]:
    if not xmin:
        return
    least, greatest = min(xmin), max(beyond, default=None)
    found = f"the least xmin is {least}" + ("" if greatest is None else f" and the greatest xmax - width {greatest}")
    if origin == 0 and least >= 1 and (greatest is None or greatest >= 0):
        yield f"{found}, as where the first pixel is 1: --voc-origin 1 moves the boxes' left and top edges by a pixel"
    elif origin == 1 and least < 1:
        yield f"{found}, so the first pixel is 0, and --voc-origin 1 is wrong by a pixel: leave it out"
