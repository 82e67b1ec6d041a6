"""annotations.xml and its <meta> say what there is to read."""

import posixpath
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from operator import eq

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.transforms.annotated.read_xml import XmlError, read_elements
from recordmill.transforms.annotated.source import Source, SourceFolder
from recordmill.transforms.cvat.parse_cvat import ROOT, CvatRules, parse_cvat
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

_FILE = "annotations.xml"
_IMAGES = "images"
_FRAME = "frame_{:06d}"
_SPLIT_OF = {"training": "train", "testing": "test"} | SPLIT_OF_FOLDER


def recognise(names: Iterable[str]) -> str:
    """Return why files of these names may be of CVAT; empty if not."""
    return next((name for name in sorted(names) if posixpath.basename(name) == _FILE), "")


def cvat_source(data: str, images: tuple[str, ...], frame: str | None, has_masks: bool) -> Source:
    """Return what is read.

    Args:
        data: the XML file, or the folder or .zip that it is in.
        images: folders of images; empty for `images` beside the file, or the file's folder.
        frame: see CvatRules; None to find it by the images.

    Raises:
        ConfigError: there is no XML file, or several, or it is not CVAT's.
    """
    file = _find_file(data)
    folder, name = split_folder(file)
    splits = _splits(file)
    pictures = images or (join_path(folder, _IMAGES),)
    prefix = "" if images or not storage_for(folder).is_folder(pictures[0]) else f"{_IMAGES}/"
    frame = frame or _FRAME + _suffix(pictures[0] if images or prefix else folder)
    _check_frame(frame)
    folders = [SourceFolder(path.rstrip("/")) for path in images]
    if folder.rstrip("/") not in {each.path for each in folders}:
        folders.append(SourceFolder(folder, has_images=not images))
    return Source(
        path=data,
        kind="cvat",
        folders=tuple(folders),
        parse=partial(parse_cvat, rules=CvatRules(prefix, frame, splits, has_masks)),
        is_label=partial(eq, name),
        splits=tuple(dict.fromkeys(splits.values())),
        check=partial(_check, has_masks=has_masks),
        inputs=(file,),
    )


def _find_file(data: str) -> str:
    storage = storage_for(data)
    if data.lower().endswith(".xml"):
        if storage.size(data) is None:
            raise ConfigError(f"--data {data}: there is no such file")
        return data
    names = [name for name in storage.names(data) if name.lower().endswith(".xml")]
    found = [name for name in names if name == _FILE] or names
    if len(found) != 1:
        what = (
            f"has {', '.join(found[:5])}: give one of them"
            if found
            else "has no .xml file: give CVAT's annotations.xml"
        )
        raise ConfigError(f"--data {data} {what}")
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


def _check_frame(frame: str) -> None:
    try:
        has_number = frame.format(1) != frame.format(2)
    except (IndexError, KeyError, ValueError):
        has_number = False
    if not has_number:
        raise ConfigError(f"--frame-name {frame} has no number: it goes between braces, as in frame_{{:06d}}.png")


def _check(notes: frozenset[str], has_masks: bool) -> Iterator[str]:
    if {"polygon", "ellipse", "mask"} & notes and not has_masks:
        yield (
            "there are polygons or masks, and records have their boxes alone: --masks rle or --masks png stores masks"
        )
    if "points" in notes:
        yield "a point has no box: each has a keypoint, and a box of 1 x 1 pixel around it"
    if "gap" in notes:
        yield (
            "tracks have gaps between frames, where objects are missing: nothing is interpolated; an export by CVAT "
            "has every frame"
        )
    if fields := sorted(note for note in notes if note.startswith("<") or note == "occluded"):
        yield f"shapes have {', '.join(fields)}, which records have no key for: not written"
