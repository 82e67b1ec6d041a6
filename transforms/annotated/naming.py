"""Common parts of formats whose label files name their images: folders, names of images, JSON, faults."""

import math
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.json_text import quote_nan, without_lone_surrogates
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.schemas.names import is_absolute
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.format_options import NamingOptions
from recordmill.transforms.annotated.shapes import check_fractions
from recordmill.transforms.annotated.source import ImageParts, Parse, Source, SourceFolder
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

_T = TypeVar("_T")
_COCO = "COCO's JSON: recordmill coco reads it"
_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOT_FINITE = re.compile(r"""["'][+-]?(nan|inf(inity)?)["']""", re.IGNORECASE)
_WRONG_NUMBER = re.compile(r"Expected `(?:int|float)(?: \| null)?`, got `(str|float)`")
_NUMBER_TEXTS = "images whose label file has numbers as texts, which are read as numbers: {number} ({names})"


class Labels(NamedTuple):
    """Places of label files and images.

    Attributes:
        splits: of the folders; none if there is no folder of a split.
    """

    folders: tuple[SourceFolder, ...]
    splits: tuple[str, ...]
    is_label: Callable[[str], bool]


def find_labels(options: NamingOptions, is_label: Callable[[str], bool]) -> Labels:
    """Return a label file and its folder, or a folder, or the folders of splits in it: train, val or valid, test.

    Raises:
        ConfigError: label files are beside folders of splits, or two folders are of one split.
    """
    data, images, storage = options.data.rstrip("/"), options.images, storage_for(options.data)
    if storage.size(data) is not None:
        folder, name = split_folder(data)
        return one_folder(folder, (name,), images)
    found = split_folders(data)
    if not found:
        return Labels(_folders([SourceFolder(data)], images), (), is_label)
    if beside := next(filter(is_label, storage.names(data)), ""):
        raise ConfigError(f"--data {data} has {beside}, and folders of splits ({', '.join(found)}): give one of these")
    splits = tuple(dict.fromkeys(found.values()))
    if len(splits) < len(found):
        raise ConfigError(f"--data {data} has several folders of a split ({', '.join(found)}): give one folder")
    folders = [SourceFolder(join_path(data, name), f"{name}/", split) for name, split in found.items()]
    return Labels(_folders(folders, images), splits, is_label)


def split_folders(data: str) -> dict[str, str]:
    """Return the splits of the folders train, val or valid, test in a folder, by their names: `Train`, `TRAIN`, too."""
    storage, found = storage_for(data), dict[str, str]()
    for name in SPLIT_OF_FOLDER:
        spelt = (each for each in (name, name.title(), name.upper()) if storage.is_folder(join_path(data, each)))
        found |= dict.fromkeys(islice(spelt, 1), SPLIT_OF_FOLDER[name])
    return found


def _folders(labels: list[SourceFolder], images: tuple[str, ...]) -> tuple[SourceFolder, ...]:
    if not images:
        return tuple(labels)
    of_images = {path.rstrip("/") for path in images}
    beside = [folder._replace(has_images=False) for folder in labels if folder.path not in of_images]
    return (*(SourceFolder(path) for path in sorted(of_images)), *beside)


def one_folder(folder: str, names: Iterable[str], images: tuple[str, ...]) -> Labels:
    """Return label files of one folder. Images are in it, or below it, or below `images`."""
    return Labels(_folders([SourceFolder(folder.rstrip("/"))], images), (), frozenset(names).__contains__)


def is_json(name: str) -> bool:
    return name.lower().endswith(".json")


def naming_source(options: NamingOptions, labels: Labels, parse: Parse, **more: Any) -> Source:
    """Return the Source of files that name their images."""
    kind = type(options).model_fields["name"].default
    inputs = () if storage_for(options.data).size(options.data) is None else (options.data,)
    found = Source(options.data, kind, labels.folders, parse, labels.is_label, splits=labels.splits, inputs=inputs)
    return replace(found, **more)


def image_name(file: str, path: str) -> str:
    r"""Return the name of an image in the data set, by the path that a label file has.

    Raises:
        UnusableError: the path is empty.

    >>> image_name("train/labels/1.json", "..\\images\\1.jpg"), image_name("1.json", "/data/1.jpg")
    ('train/images/1.jpg', '/data/1.jpg')
    """
    if not path:
        raise UnusableError(Reason.MALFORMED_IMAGE, "no name of an image")
    plain = posixpath.join(posixpath.dirname(file), path.replace("\\", "/"))
    return path if is_absolute(path) else posixpath.normpath(plain)


def read_json(stream: BinaryIO, type_: type[_T], tool: str, found: ImageParts | None = None) -> _T:
    """Return the JSON of a label file. Its parts of type `msgspec.Raw` are not decoded.

    Args:
        found: see `decoded`.

    Raises:
        UnusableError: it is none, or of another tool.
    """
    data = stream.read().removeprefix(b"\xef\xbb\xbf")
    try:
        return _decode(data, type_, found)
    except _ERRORS as error:
        what = describe_content(data) or (_COCO if b'"categories"' in data else "")
        is_other = what and not what.startswith(tool)
        detail = f"it is not {tool}'s JSON, but {what}" if is_other else f"it is not {tool}'s JSON ({error})"
        raise UnusableError(Reason.MALFORMED_LABELS, detail) from error


def decoded(raw: Any, type_: type[_T], found: ImageParts | None = None) -> _T:
    """Return a part of a label file.

    Args:
        found: the image that the part is of. A text that is a number is read as that, with a warning of the image;
            without one, it is a fault.

    Raises:
        UnusableError: it is not of the type.
    """
    try:
        return _decode(raw, type_, found)
    except _ERRORS as error:
        detail = "a text is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        is_finite = not (_WRONG_NUMBER.search(detail) and _NOT_FINITE.search(_text(raw)))
        detail = detail if is_finite else f"a number is NaN or Infinity ({detail})"
        raise UnusableError(Reason.MALFORMED_ANNOTATION, detail) from error


def _decode(raw: Any, type_: type[_T], found: ImageParts | None) -> _T:
    """Return the value of JSON, with texts in place of NaN and Infinity, and without lone surrogates."""
    is_json = isinstance(raw, bytes | msgspec.Raw)
    try:
        return _converted(raw, type_, True)
    except _ERRORS as error:
        cleaned = without_lone_surrogates(quote_nan(bytes(raw))) if is_json else raw
        if is_json and cleaned != bytes(raw):
            return _decode(cleaned, type_, found)
        wrong = _WRONG_NUMBER.search(str(error))
        if not found or not wrong or _NOT_FINITE.search(_text(raw)):
            raise
        value = _converted(raw, type_, False)
        found.warnings |= {_NUMBER_TEXTS} if wrong[1] == "str" else set()  # 640.0 is a whole number
        return value


def _converted(raw: Any, type_: type[_T], strict: bool) -> _T:
    if isinstance(raw, bytes | msgspec.Raw):
        return msgspec.json.decode(raw, type=type_, strict=strict)
    return msgspec.convert(raw, type_, strict=strict)


def _text(raw: Any) -> str:
    return str(bytes(raw) if isinstance(raw, msgspec.Raw) else raw)


MASKS = "polygons"
"""Note of a label file that has polygons or masks, and records do not."""


def mask_warnings(notes: frozenset[str]) -> Iterator[str]:
    what = "label files have polygons or masks, and records have their boxes alone"
    yield from [f"{what}: --masks rle or --masks png stores masks"] if MASKS in notes else ()


def fraction_box(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
    """Return left, top, width and height of edges in fractions.

    Raises:
        UnusableError: they are not in 0..1, or in another order.

    >>> fraction_box(0.1, 0.2, 0.4, 1.0)
    (0.1, 0.2, 0.3, 0.8)
    """
    check_fractions((left, top, right, bottom), f"edges {left:g}, {top:g}, {right:g}, {bottom:g} are")
    return edges_box(left, top, right, bottom)


def edges_box(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
    """Return left, top, width and height of edges.

    Raises:
        UnusableError: they are not finite, or in another order.
    """
    if not (left <= right and top <= bottom and all(map(math.isfinite, (left, top, right, bottom)))):
        detail = f"left {left:g}, top {top:g}, right {right:g}, bottom {bottom:g}"
        raise UnusableError(Reason.MALFORMED_BOX, f"the edges are not in order: {detail}")
    return left, top, round(right - left, 12), round(bottom - top, 12)
