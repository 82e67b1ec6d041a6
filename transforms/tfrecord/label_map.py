"""Names of the classes that records give by number: label maps of the Object Detection API, TFDS's lists of names."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Category
from recordmill.transforms.annotated.class_names import check_distinct, match_names
from recordmill.transforms.storage.resolve import storage_for

_FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "recordmill.label_map"
_BACKGROUND = "background"
_STATED = r"(.+)=(\d{1,9})"
"""Name and number."""
_SLIM_LINE = re.compile(r"(\d{1,9}):(.+)")
_LABEL_MAP = re.compile(r".*\.pbtxt|(.*/)?([^/]*-)?labels?\.labels\.txt", re.IGNORECASE)
_SLIM = re.compile(r"(.*/)?labels\.txt", re.IGNORECASE)


class ClassNames(NamedTuple):
    """Classes of records.

    Attributes:
        categories: Classes by their numbers.
        name_by_id: Name of each class by its number.
        name_by_text: Name of each class by the texts that records may have for it.
    """

    categories: tuple[Category, ...]
    name_by_id: dict[int, str]
    name_by_text: dict[str, str]


def class_names(pairs: Iterable[tuple[int, str, str]]) -> ClassNames:
    """Return the ClassNames of triples: number, name, and another text that records may have for the class.

    >>> class_names([(1, "Tortoise", "/m/011k07")]).name_by_text
    {'Tortoise': 'Tortoise', '/m/011k07': 'Tortoise'}
    """
    triples = [triple for triple in pairs if triple[:2] != (0, _BACKGROUND)]
    by_text = {name: name for _, name, _ in triples}
    by_text |= {text: name for _, name, text in triples if text and text not in by_text}
    by_id = {number: name for number, name, _ in triples}
    return ClassNames(tuple(Category(number, by_id[number]) for number in sorted(by_id)), by_id, by_text)


def numbered_names(names: Sequence[str]) -> ClassNames:
    """Return the classes of `--class-names`: numbered from 0, or by the numbers in `NAME=NUMBER`.

    Raises:
        ConfigError: Some names have a number, and others do not; or two have the same.

    >>> numbered_names(["background", "cat"]).name_by_id, numbered_names(["cat=1", "dog=3"]).name_by_id
    ({1: 'cat'}, {1: 'cat', 3: 'dog'})
    """
    if stated := match_names(names, _STATED):
        check_distinct("--class-names", {"number": [int(match[2]) for match in stated]})
        return class_names((int(match[2]), match[1], "") for match in stated)
    return class_names((number, name, "") for number, name in enumerate(names))


def read_label_map(path: str) -> ClassNames:
    """Return the classes of a label map: a `.pbtxt`, or the lines of a list, of TFDS (`cat`) or slim (`0:cat`).

    Raises:
        ConfigError: It is not one, or has a number or a name twice.
        FileNotFoundError: It does not exist.
    """
    try:
        text = storage_for(path).read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a label map: it is not UTF-8 ({error})") from error
    if path.endswith(".txt"):
        lines = text.splitlines()
        return class_names(_slim_lines(lines) or ((number, name, "") for number, name in enumerate(lines)))
    return _parse_label_map(text, path)


def is_label_map(path: str) -> bool:
    """Return True for the label map of the records in its folder. A `labels.txt` must have the numbers of classes."""
    if not _SLIM.fullmatch(path):
        return bool(_LABEL_MAP.fullmatch(path))
    return bool(_slim_lines(storage_for(path).read(path).decode(errors="replace").splitlines()))


def _slim_lines(lines: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return the classes of lines as slim writes them, `0:daisy`; [] if a line has another form."""
    matches = [_SLIM_LINE.fullmatch(line) for line in lines]
    return [(int(match[1]), match[2], "") for match in matches if match] if all(matches) else []


def _parse_label_map(text: str, path: str) -> ClassNames:
    label_map = _label_map_class()()
    try:
        text_format.Parse(text, label_map, allow_unknown_extension=True, allow_unknown_field=True)
    except (text_format.ParseError, RecursionError) as error:  # the parser calls itself for each opening brace
        raise ConfigError(
            f"{path} is not a label map of the Object Detection API: {error}. It has items like "
            "item { id: 1 name: 'cat' }"
        ) from error
    triples = [(item.id, item.display_name or item.name, item.name) for item in label_map.item]
    if not triples:
        raise ConfigError(f"{path} has no item: it has items like item {{ id: 1 name: 'cat' }}")
    for number, name, _ in triples:
        if not name.strip():
            raise ConfigError(f"{path}: the item of id {number} has no name")
    check_distinct(path, {"id": [number for number, *_ in triples], "name": [name for _, name, _ in triples]})
    return class_names(triples)


@cache
def _label_map_class() -> Any:
    """Return the message StringIntLabelMap, as of object_detection/protos/string_int_label_map.proto."""
    file = descriptor_pb2.FileDescriptorProto(name="recordmill/label_map.proto", package=_PACKAGE, syntax="proto2")
    item = file.message_type.add(name="Item")
    for number, (name, type_) in enumerate(
        (("name", _FIELD.TYPE_STRING), ("id", _FIELD.TYPE_INT32), ("display_name", _FIELD.TYPE_STRING)), 1
    ):
        item.field.add(name=name, number=number, type=type_, label=_FIELD.LABEL_OPTIONAL)
    file.message_type.add(name="LabelMap").field.add(
        name="item",
        number=1,
        type=_FIELD.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.Item",
        label=_FIELD.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.LabelMap"))
