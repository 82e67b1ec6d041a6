"""Class maps: files that rename, merge and drop classes by name."""

import csv
import difflib
import io
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import yaml

from recordmill.schemas.errors import AnnotationFileError, CategoryError, ConfigError, NoSuchClassError
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.yaml_loader import describe_yaml_error
from recordmill.schemas.inputs.yaml_text import load_names
from recordmill.schemas.sizes import first_texts, shorten
from recordmill.transforms.storage.resolve import check_unchanged, read_unpacked

REST = "*"
"""Name of all classes that a map does not name."""
_HEADER = ("from", "to")
_YAML = (".yaml", ".yml")
_SHOWN = 20
_UNKNOWN_SHOWN = 5
_NAME_SHOWN = 80
_CHAINED_SHOWN = 3


class ClassMap(msgspec.Struct, frozen=True):
    """New names of classes.

    Attributes:
        path: File, for messages.
        names: New name by the `class_key` of the name; empty to drop the class.
    """

    path: str
    names: dict[str, str]

    def new_name(self, name: str) -> str | None:
        """Return the new name of a class; None if the class is dropped. The map is applied once.

        >>> swap = ClassMap("map.csv", {"a": "b", "b": "a", "c": ""})
        >>> [swap.new_name(name) for name in "abcd"], ClassMap("map.csv", {"a": "a", "*": "other"}).new_name("d")
        (['b', 'a', None, 'd'], 'other')
        """
        for key in (class_key(name), REST):
            if key in self.names:
                return self.names[key] or None
        return name


def class_key(name: str) -> str:
    """Return what equal names of classes share: blanks at the ends and forms of Unicode do not matter."""
    return unicodedata.normalize("NFC", name).strip()


def read_class_map(path: str, version: str = "") -> ClassMap:
    """Read a class map: CSV with the columns from and to, whose names may be the first line; or, as .yaml or .yml, a
    mapping, or a list of {from: …, to: …}.

    Args:
        version: Version of the file when the job began; empty for any.

    Raises:
        ConfigError: The file is neither, names a class twice, or has changed. The message names the line.
        OSError: Storage fails.
    """
    where = f"--class-map {path}"
    try:
        data = read_unpacked(path)
        check_unchanged(path, version)
        pairs = [*(_yaml_pairs(where, data) if path.lower().endswith(_YAML) else _csv_pairs(where, data))]
    except (UnicodeDecodeError, AnnotationFileError) as error:
        raise ConfigError(f"{where} cannot be read as UTF-8 text: {error}") from error
    return class_map_of(where, pairs)


def class_map_of(where: str, pairs: Iterable[tuple[str, str, str]]) -> ClassMap:
    """Return a class map of (place in the file, name, new name).

    Raises:
        ConfigError: A name is empty, or given twice; or there are no names.
    """
    names: dict[str, str] = {}
    for place, given_name, new_name in pairs:
        name = class_key(given_name)
        if not name:
            raise ConfigError(f"{where}{place}: the name of the class is empty")
        if name in names:
            raise ConfigError(f"{where}{place}: class {name!r} is given twice. Give each class one new name")
        if "\0" in new_name:
            raise ConfigError(f"{where}{place}: the new name {new_name!r} has a NUL. Take it out")
        names[name] = new_name
    if not names:
        raise ConfigError(f"{where} has no classes. Leave it out if all classes stay")
    return ClassMap(where, names)


def _csv_pairs(where: str, data: bytes) -> Iterator[tuple[str, str, str]]:
    text = data.decode("utf-8-sig")
    if "\0" in text:  # csv refuses it before Python 3.11
        line = text[: text.index("\0")].count("\n") + 1
        raise ConfigError(f"{where}, line {line} has a NUL. Take it out")
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    first, second = 0, 1
    try:
        for number, row in enumerate(rows):
            cells, place = [cell.strip() for cell in row], f", line {rows.line_num}"
            titles = [cell.lower() for cell in cells]
            if number == 0 and sorted(titles) == [*_HEADER]:
                first, second = map(titles.index, _HEADER)
            elif any(cells) and len(cells) != len(_HEADER):
                raise ConfigError(
                    f"{where}{place} is not the name of a class, a comma and its new name, empty to drop the class: "
                    f"{shorten(repr(','.join(row)), _NAME_SHOWN)}. Quote a name with a comma"
                )
            elif any(cells):
                yield place, cells[first], cells[second]
    except csv.Error as error:
        raise ConfigError(f"{where}, line {rows.line_num} is not CSV: {error}") from error


def _yaml_pairs(where: str, data: bytes) -> Iterator[tuple[str, str, str]]:
    try:
        value = load_names(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(describe_yaml_error(where, error)) from error
    if isinstance(value, dict):
        value = [{"from": name, "to": new_name} for name, new_name in value.items()]
    for number, pair in enumerate(value if isinstance(value, list) else [value], 1):
        place = f", entry {number}"
        if not isinstance(pair, dict) or not {"from"} <= pair.keys() <= {*_HEADER}:
            raise ConfigError(
                f"{where}{place} is not a pair of names. Write `car: vehicle`, or a list of `{{from: car, to: bus}}`"
            )
        name, new_name = pair["from"], "" if pair.get("to") is None else pair["to"]
        if not isinstance(name, str):  # not shown: aliases of aliases may have gigabytes of text
            raise ConfigError(f"{where}{place}: the name of the class is not a text")
        if not isinstance(new_name, str):
            raise ConfigError(f"{where}{place}: the new name of {name!r} is not a text")
        yield place, name, new_name.strip()


def new_class_names(labels: LabelMap, class_map: ClassMap, is_added: bool = False) -> dict[int, str]:
    """Return the new name of each category id that stays.

    Args:
        is_added: True for images that are added to a data set, which may lack classes.

    Raises:
        NoSuchClassError: The map names classes that do not exist. The message has the nearest names.
        CategoryError: The map drops all classes.
    """
    classes = labels.all
    known = {class_key(category.name) for category in classes}
    if unknown := [name for name in class_map.names if name not in known and name != REST and not is_added]:
        first = [_describe_unknown(name, known) for name in unknown[:_UNKNOWN_SHOWN]]
        names = first_texts([*first, *unknown[_UNKNOWN_SHOWN:]], _UNKNOWN_SHOWN)
        known_classes = first_texts(sorted(known), _SHOWN) or "none"
        raise NoSuchClassError(f"{class_map.path}: no class is called {names}. The classes are {known_classes}")
    named = {category.id: class_map.new_name(category.name) for category in classes}
    stay = {id_: name for id_, name in named.items() if name is not None}
    if classes and not stay and not is_added:
        names = first_texts(sorted({category.name for category in classes}), _SHOWN)
        raise CategoryError(f"{class_map.path} drops all classes ({names}). Keep one of them")
    return stay


def _describe_unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), 1) or [
        other for other in known if other.casefold() == name.casefold()
    ]
    shown = shorten(repr(name), _NAME_SHOWN)
    return f"{shown} (did you mean {near[0]!r}?)" if near else shown


def chain_warnings(labels: LabelMap, class_map: ClassMap) -> Iterator[str]:
    """Yield a warning of each class whose new name is that of a class that itself gets another one, unless names go
    round in a circle.

    >>> from recordmill.schemas.inputs.annotations import Category
    >>> labels = LabelMap((Category(1, "a"), Category(2, "b")))
    >>> next(chain_warnings(labels, ClassMap("map.csv", {"a": "b", "b": "c"})))
    "map.csv: 'a' becomes 'b' and not 'c', as a map is applied once. To make it 'c', map it to 'c'"
    """
    new_names = {category.name: class_map.new_name(category.name) for category in labels.all}
    chains: dict[tuple[str, str | None], list[str]] = {}
    for name, new_name in new_names.items():
        last = new_names.get(new_name or "", new_name)
        if new_name not in (None, name, last) and not _is_circle(name, new_names):
            chains.setdefault((new_name or "", last), []).append(name)
    for (new_name, last), names in chains.items():
        target = "dropped" if last is None else repr(last)
        cure = "drop it, map it to nothing" if last is None else f"make it {target}, map it to {target}"
        shown = first_texts(map(repr, names), _CHAINED_SHOWN)
        yield f"{class_map.path}: {shown} becomes {new_name!r} and not {target}, as a map is applied once. To {cure}"


def _is_circle(name: str, new_names: Mapping[str, str | None]) -> bool:
    seen, other = {name}, new_names[name]
    while other is not None and other not in seen and other in new_names:
        seen.add(other)
        other = new_names[other]
    return other == name
