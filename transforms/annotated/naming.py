"""Functions of formats whose label files name their images: folders, names of images, JSON, boxes."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.boxes import LARGEST
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.json_text import quote_nan, repeated_key, without_lone_surrogates
from recordmill.schemas.inputs.sample import SampleObject
from recordmill.schemas.inputs.scalars import lenient_flag, strict_flag
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.schemas.names import is_absolute
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.format_options import FormatOptions
from recordmill.transforms.annotated.shapes import check_fractions
from recordmill.transforms.annotated.source import ImageParts, Parse, Source, SourceFolder
from recordmill.transforms.storage.resolve import join_path, split_folder, storage_for

_T = TypeVar("_T")
_COCO = "COCO's JSON, which --format coco reads"
_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOT_FINITE = re.compile(r"""["'][+-]?(nan|inf(inity)?)["']""", re.IGNORECASE)
_WRONG_NUMBER = re.compile(r"Expected `(?:int|float|bool)(?: \| null)?`, got `(str|float)`")
_MAX_PLAIN_BYTES = 1 << 20
"""Maximum size of a label file that is decoded as a whole."""
NUMBER_TEXTS = (
    "images whose label file has numbers or booleans as texts, which are read as their values: {number} ({names})"
)


class LabelFolders(NamedTuple):
    """Folders of label files and images.

    Attributes:
        splits: Splits of the folders; empty without folders of splits.
        is_label: Return True for the name of a label file.
    """

    folders: tuple[SourceFolder, ...]
    splits: tuple[str, ...]
    is_label: Callable[[str], bool]


def find_labels(options: FormatOptions, is_label: Callable[[str], bool]) -> LabelFolders:
    """Return the folders of a data set: that of a label file, or `data`, or the folders of splits in it.

    Raises:
        ConfigError: Label files are beside folders of splits, or two folders have the same split.
    """
    data, images, storage = options.data.rstrip("/"), options.images, storage_for(options.data)
    if storage.size(data) is not None:
        folder, name = split_folder(data)
        return one_folder(folder, (name,), images)
    splits_by_folder = split_folders(data)
    if not splits_by_folder:
        return LabelFolders(_add_image_folders([SourceFolder(data)], images), (), is_label)
    shown = ", ".join(splits_by_folder)
    if beside := next(filter(is_label, storage.names(data)), ""):
        raise ConfigError(f"{data} has {beside}, and folders of splits ({shown}). Give one of these")
    splits = tuple(dict.fromkeys(splits_by_folder.values()))
    if len(splits) < len(splits_by_folder):
        raise ConfigError(f"{data} has several folders of a split ({shown}). Give one folder")
    folders = [SourceFolder(join_path(data, name), f"{name}/", split) for name, split in splits_by_folder.items()]
    return LabelFolders(_add_image_folders(folders, images), splits, is_label)


def split_folders(data: str) -> dict[str, str]:
    """Return the splits of the folders train, val, valid and test in a folder, by their names.

    `Train` and `TRAIN` are folders of splits, too.
    """
    storage, splits = storage_for(data), dict[str, str]()
    for name in SPLIT_OF_FOLDER:
        spellings = (name, name.title(), name.upper())
        folders = (spelling for spelling in spellings if storage.is_folder(join_path(data, spelling)))
        splits |= dict.fromkeys(islice(folders, 1), SPLIT_OF_FOLDER[name])
    return splits


def _add_image_folders(labels: list[SourceFolder], images: tuple[str, ...]) -> tuple[SourceFolder, ...]:
    if not images:
        return tuple(labels)
    image_paths = {path.rstrip("/") for path in images}
    label_folders = [folder._replace(has_images=False) for folder in labels if folder.path not in image_paths]
    # A folder of images may have label files of other formats, or of an older copy of the data set.
    label_paths = {folder.path for folder in labels}
    return (*(SourceFolder(path, has_labels=path in label_paths) for path in sorted(image_paths)), *label_folders)


def one_folder(folder: str, names: Iterable[str], images: tuple[str, ...]) -> LabelFolders:
    """Return the folder of label files with these names. Images are below it, or below `images`."""
    return LabelFolders(
        _add_image_folders([SourceFolder(folder.rstrip("/"))], images), (), frozenset(names).__contains__
    )


def is_json(name: str) -> bool:
    return name.lower().endswith(".json")


def naming_source(options: FormatOptions, labels: LabelFolders, parse: Parse, **fields: Any) -> Source:
    """Return the Source of label files in these folders, with other fields of Source. They name their images, unless
    `label_name` is given."""
    inputs = () if storage_for(options.data).size(options.data) is None else (options.data,)
    folders, splits, is_label = labels
    kind = options.format_name()
    return replace(Source(options.data, kind, folders, parse, is_label, splits=splits, inputs=inputs), **fields)


def resolve_image_name(file: str, path: str) -> str:
    r"""Return the name of an image in the data set, from its path in a label file.

    Raises:
        UnusableError: The path is empty.

    >>> resolve_image_name("train/labels/1.json", "..\\images\\1.jpg"), resolve_image_name("1.json", "/data/1.jpg")
    ('train/images/1.jpg', '/data/1.jpg')
    """
    if not path:
        raise UnusableError(Reason.MALFORMED_IMAGE, "an image without a name")
    plain = posixpath.join(posixpath.dirname(file), path.replace("\\", "/"))
    return path if is_absolute(path) else posixpath.normpath(plain)


def read_label_json(stream: BinaryIO, type_: type[_T], tool: str) -> _T:
    """Return the JSON of a label file. Its parts of type `msgspec.Raw` are not decoded.

    Raises:
        UnusableError: The file is not JSON, or another tool wrote it, or one of its objects has a key twice.
    """
    return read_label_values(stream.read(), type_, tool)[0]


def read_label_values(data: bytes, type_: type[_T], tool: str, parts: ImageParts | None = None) -> tuple[_T, Any]:
    """Return the JSON of a label file, as `read_label_json`; and its plain value, None if a part is not plain JSON or
    the file is not small.

    Args:
        parts: See `decode_part`.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value = _decode_json(data, type_, parts)
    except _ERRORS as error:
        what = describe_content(data) or (_COCO if b'"categories"' in data else "")
        is_other = what and not what.startswith(tool)
        detail = f"it is not {tool}'s JSON, but {what}" if is_other else f"it is not {tool}'s JSON ({error})"
        raise UnusableError(Reason.MALFORMED_LABELS, detail) from error
    try:
        plain = msgspec.json.decode(data) if len(data) <= _MAX_PLAIN_BYTES else None
    except _ERRORS:
        plain = None
    check_keys(data, Reason.MALFORMED_LABELS, plain)
    return value, plain


def check_keys(data: bytes, reason: Reason, plain: Any = None) -> None:
    """Refuse JSON objects with a repeated key, because decoders drop its first value.

    Args:
        plain: The value of the JSON; None if unknown.

    Raises:
        UnusableError: See above.
    """
    if (key := repeated_key(data, plain)) is not None:
        raise UnusableError(reason, f"an object has the key {key!r} twice, and the first value would be dropped")


def decode_part(raw: Any, type_: type[_T], parts: ImageParts | None = None) -> _T:
    """Return a part of a label file, decoded and converted to a type.

    Args:
        parts: Parts of the image, which get a warning when a text such as "12.5" or "no" is read as its value. Without
            them, such a text is a fault.

    Raises:
        UnusableError: The part is not JSON, or has another type.
    """
    try:
        return _decode_json(raw, type_, parts)
    except _ERRORS as error:
        detail = "a text is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
            detail = f"it is not JSON ({error})"
        is_finite = not (_WRONG_NUMBER.search(detail) and _NOT_FINITE.search(_json_text(raw)))
        detail = detail if is_finite else f"a number is NaN or Infinity ({detail})"
        raise UnusableError(Reason.MALFORMED_ANNOTATION, detail) from error


def other_values(raw: Any, type_: type[msgspec.Struct], *known: str) -> dict[str, Any]:
    """Return the values of a JSON object whose keys the type does not have.

    Args:
        raw: JSON, or its value.
        known: Further keys to leave out.

    >>> class Box(msgspec.Struct):
    ...     x: float
    >>> other_values(b'{"x": 1, "score": 0.5}', Box)
    {'score': 0.5}
    """
    left_out = _keys_of(type_, known)
    if isinstance(raw, dict):
        return {key: value for key, value in raw.items() if key not in left_out}
    texts = decode_part(raw, dict[str, msgspec.Raw])  # quick, also for large values that the type has
    return {key: decode_part(text, Any) for key, text in texts.items() if key not in left_out}


@cache
def _keys_of(type_: type[msgspec.Struct], known: tuple[str, ...]) -> frozenset[str]:
    return frozenset((*type_.__struct_encode_fields__, *known))


def _decode_json(raw: Any, type_: type[_T], parts: ImageParts | None) -> _T:
    """Return the value of JSON, with texts in place of NaN and Infinity, and without lone surrogates."""
    is_json = isinstance(raw, bytes | msgspec.Raw)
    try:
        return _convert_json(raw, type_, True)
    except _ERRORS as error:
        cleaned = without_lone_surrogates(quote_nan(bytes(raw))) if is_json else raw
        if is_json and cleaned != bytes(raw):
            return _decode_json(cleaned, type_, parts)
        wrong = _WRONG_NUMBER.search(str(error))
        if not parts or not wrong or _NOT_FINITE.search(_json_text(raw)):
            raise
        value = _convert_json(raw, type_, False)
        parts.warnings |= {NUMBER_TEXTS} if wrong[1] == "str" else set()  # 640.0 is a whole number
        return value


def _convert_json(raw: Any, type_: type[_T], strict: bool) -> _T:
    flag = strict_flag if strict else lenient_flag
    if isinstance(raw, bytes | msgspec.Raw):
        return msgspec.json.decode(raw, type=type_, strict=strict, dec_hook=flag)
    return msgspec.convert(raw, type_, strict=strict, dec_hook=flag)


def _json_text(raw: Any) -> str:
    return str(bytes(raw) if isinstance(raw, msgspec.Raw) else raw)


MASKS = "polygons"
"""Note of a label file that has polygons or masks, and records do not."""


def mask_notes(objects: Iterable[SampleObject]) -> set[str]:
    """Return the note of objects whose outline is not written. Oriented boxes have corners, which are written.

    >>> mask_notes([SampleObject("cat", (0, 0, 4, 3), area_px2=6.0)])
    {'polygons'}
    """
    is_lost = (given.area_px2 is not None and not given.segmentation and not given.corners for given in objects)
    return {MASKS} if any(is_lost) else set()


def mask_warnings(notes: frozenset[str]) -> Iterator[str]:
    what = "label files have polygons or masks, and records have their boxes alone"
    yield from [f"{what}: --masks rle or --masks png stores masks"] if MASKS in notes else ()


def fraction_box(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
    """Return left, top, width and height of edges in fractions of the image size.

    Raises:
        UnusableError: The edges are outside 0..1, or not in order.

    >>> fraction_box(0.1, 0.2, 0.4, 1.0)
    (0.1, 0.2, 0.3, 0.8)
    """
    check_fractions((left, top, right, bottom), f"edges {left:g}, {top:g}, {right:g}, {bottom:g} are")
    return edges_box(left, top, right, bottom)


def edges_box(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
    """Return left, top, width and height of edges.

    Raises:
        UnusableError: The edges are not finite, beyond `LARGEST`, or not in order.
    """
    is_ordered = left <= right and top <= bottom
    if not is_ordered or not all(abs(edge) <= LARGEST for edge in (left, top, right, bottom)):
        detail = f"left {left:g}, top {top:g}, right {right:g}, bottom {bottom:g}"
        fault = "beyond any image" if is_ordered else "not in order"
        raise UnusableError(Reason.MALFORMED_BOX, f"the edges are {fault}: {detail}")
    return left, top, round(right - left, 12), round(bottom - top, 12)
