"""Choice of open fields: values of images or objects that a source has and no layout knows."""

import csv
import io
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.field_features import Axis
from recordmill.schemas.sizes import first_texts

MOST_FIELDS = 200
ALL, NONE = "all", "none"
KINDS = ("int", "float", "text")
_IMAGE, _OBJECTS = "image.", "objects."
PREFIXES: dict[Axis, str] = {"image": _IMAGE, "object": _OBJECTS}
"""Beginning of the name of any field in `--fields`, by axis."""
_SHOWN = 5


class FieldChoice(NamedTuple):
    """A requested field.

    Attributes:
        path: Path in the words of the source: `score`, `attributes.occluded`, `image.date_captured`.
        kind: `int`, `float` or `text`; empty to decide it by all values.
    """

    path: str
    kind: str = ""

    def __str__(self) -> str:
        """Return the item of `--fields`, quoted as in CSV if its path has a comma, a colon or a quote.

        >>> str(FieldChoice("a:b", "int")), str(FieldChoice("score"))
        ('"a:b":int', 'score')
        """
        path = quote_item(self.path, ',:"')
        return f"{path}:{self.kind}" if self.kind else path


def quote_item(text: str, marks: str = ',"') -> str:
    """Return an item of a comma-separated list, quoted as in CSV if it has one of `marks`, or blanks at its ends."""
    is_plain = text == text.strip() and not any(mark in text for mark in marks)
    return text if is_plain else '"' + text.replace('"', '""') + '"'


def field_choices(value: Any) -> Any:
    """Return fields as texts, one each: from the text of the command line; from a list of paths, which are literal; or
    from a mapping of paths to kinds.

    >>> field_choices("score:float,attributes.occluded")
    ('score:float', 'attributes.occluded')
    >>> field_choices(["score", "a,b"]), field_choices({"score": "float", "a,b": None})
    (('score', '"a,b"'), ('score:float', '"a,b"'))
    """
    if isinstance(value, Mapping):
        choices = [FieldChoice(str(path), str(kind or "")) for path, kind in value.items()]
    elif isinstance(value, list):
        choices = [FieldChoice(str(path)) for path in value]
    elif isinstance(value, str | tuple):  # a tuple is what this function has returned
        choices = list(parse_fields(value if isinstance(value, str) else ",".join(value)))
    else:
        return value
    for choice in choices:
        if choice.kind not in ("", *KINDS):
            raise ValueError(f"kind {choice.kind!r} must be one of {', '.join(KINDS)}")
        if not choice.path:
            raise ValueError("a path is missing")
    paths = [choice.path for choice in choices]
    if repeated := sorted({path for path in paths if paths.count(path) > 1}):
        raise ValueError(f"{repeated[0]} is named twice")
    if len(paths) > 1 and (lone := [word for word in (ALL, NONE) if word in paths]):
        raise ValueError(f"{lone[0]} stands alone")
    return tuple(map(str, choices))


def config_fields(choices: Iterable[str]) -> list[str] | dict[str, str | None]:
    """Return fields as YAML has them.

    >>> config_fields(['"a,b"', "score"]), config_fields(["score:float", "age"])
    (['a,b', 'score'], {'score': 'float', 'age': None})
    """
    fields = list(parse_fields(",".join(choices)))
    has_kinds = any(choice.kind for choice in fields)
    return {path: kind or None for path, kind in fields} if has_kinds else [choice.path for choice in fields]


def parse_fields(text: str) -> Iterator[FieldChoice]:
    """Yield the fields of a comma-separated text.

    >>> list(parse_fields('score:int,"a,b":text,"c:d"'))
    [FieldChoice(path='score', kind='int'), FieldChoice(path='a,b', kind='text'), FieldChoice(path='c:d', kind='')]
    """
    for item in _split_quoted(text, ","):
        if item.strip():
            path, *kinds = _split_quoted(item.strip(), ":")
            quoted = path.startswith('"')
            plain = next(csv.reader(io.StringIO(path)))[0] if quoted else path
            yield FieldChoice(plain, ":".join(kinds))


def _split_quoted(text: str, mark: str) -> list[str]:
    """Split a text at a mark that is not within quotes."""
    parts, is_quoted = [""], False
    for char in text:
        is_quoted ^= char == '"'
        if char == mark and not is_quoted:
            parts.append("")
        else:
            parts[-1] += char
    return parts


Fields = Annotated[tuple[str, ...], BeforeValidator(field_choices)]


class FieldSelection(NamedTuple):
    """Requested fields of one axis, images or objects.

    Attributes:
        kinds: Kind of each field by its path without prefix, see FieldChoice.
        is_all: True if all leaves are requested.
        is_previewed: True if the most frequent values are counted, for a dry run.
    """

    kinds: Mapping[str, str]
    is_all: bool = False
    is_previewed: bool = False

    def __bool__(self) -> bool:
        return self.is_all or bool(self.kinds)

    def pick(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the requested values of an image or object, by path. Values that are missing, null or no leaves are
        left out.

        >>> FieldSelection({"a.b": "", "c": "", "d": ""}).pick({"a": {"b": 1}, "c": None, "d": {"e": 2}})
        {'a.b': 1}
        """
        paths = dict.fromkeys(path for path, _ in leaf_values(values)) if self.is_all else self.kinds
        leaves = ((path, _at(values, path)) for path in paths)
        return {path: value for path, value in leaves if value is not None and is_leaf(value)}

    def pick_columns(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Return the column of each requested path that some row has, with None where `pick` leaves a value out.

        Args:
            columns: Values of each row by key.

        Raises:
            ConfigError: See `columns_of_rows`.

        >>> FieldSelection({"a.b": "", "c": ""}).pick_columns({"a": [{"b": 1}, None], "c": [{}, {"d": 1}]})
        {'a.b': [1, None]}
        """
        picked = {path: self._pick_column(columns, path) for path in self.kinds}
        if self.is_all or None in picked.values():  # all leaves, or several keys with a beginning of the path
            keys = list(columns)
            return columns_of_rows(
                [self.pick(dict(zip(keys, row, strict=True))) for row in zip(*columns.values(), strict=True)]
            )
        return {path: column for path, column in picked.items() if column and {*map(type, column)} != {type(None)}}

    def _pick_column(self, columns: Mapping[str, Sequence[Any]], path: str) -> list[Any] | None:
        """Return the column of a path; None if each row has to be searched."""
        keys = [key for key in columns if path == key or path.startswith(f"{key}.")]
        if len(keys) > 1:
            return None
        if not keys:
            return []
        values, rest = columns[keys[0]], path[len(keys[0]) + 1 :]
        if rest:
            values = [_at(value, rest) if type(value) is dict else None for value in values]
        is_plain = not {dict, list} & set(map(type, values))
        return list(values) if is_plain else [value if is_leaf(value) else None for value in values]


NO_FIELDS = FieldSelection({})
NONE_SELECTED = NO_FIELDS, NO_FIELDS
"""Fields of images and objects, if none is requested."""


def select_fields(
    choices: Iterable[str], image_paths: Iterable[str] = (), is_previewed: bool = False
) -> tuple[FieldSelection, FieldSelection]:
    """Return the fields of images, and those of objects.

    Args:
        choices: Values of `--fields`.
        image_paths: Beginnings of paths without a prefix that are fields of the image in this source.
        is_previewed: See FieldSelection.

    >>> [selection.kinds for selection in select_fields(["date", "objects.score"], [""])]
    [{'date': ''}, {'score': ''}]
    """
    parsed = [choice for text in choices for choice in parse_fields(text) if choice.path != NONE]
    if [choice.path for choice in parsed] == [ALL]:
        return FieldSelection({}, True, is_previewed), FieldSelection({}, True, is_previewed)
    of_image: dict[str, str] = {}
    of_object: dict[str, str] = {}
    for name, kind in parsed:
        axis, path = split_name(name, image_paths)
        (of_image if axis == "image" else of_object)[path] = kind
    return FieldSelection(of_image, False, is_previewed), FieldSelection(of_object, False, is_previewed)


def split_name(name: str, image_paths: Iterable[str] = ()) -> tuple[Axis, str]:
    """Return the axis of a field and its path without prefix, by its name in `--fields`. See `select_fields`."""
    if not name.startswith(_OBJECTS) and name.startswith((_IMAGE, *image_paths)):
        return "image", name.removeprefix(_IMAGE)
    return "object", name.removeprefix(_OBJECTS)


def shortest_name(axis: Axis, path: str, image_paths: Iterable[str] = ()) -> str:
    """Return the item of `--fields` for a field, without a prefix if it needs none.

    >>> shortest_name("object", "score"), shortest_name("object", "all"), shortest_name("image", "a,b", [""])
    ('score', 'objects.all', '"a,b"')
    """
    is_plain = path not in (ALL, NONE) and split_name(path, image_paths) == (axis, path)
    return str(FieldChoice(path if is_plain else f"{PREFIXES[axis]}{path}"))


def fields_flag(names: Iterable[str], most: int) -> str:
    """Return `--fields` with the first names, quoted for a shell, and the number of further names. A name that is not
    printable is left out, because nobody could type it.

    >>> fields_flag(["a b", "score", "x"], 2), fields_flag(["score"], 2), fields_flag(["\\0"], 2)
    ("--fields 'a b,score' (1 more)", '--fields score', '')
    """
    typed = [name for name in names if name.isprintable()]
    more = f" ({len(typed) - most:,} more)" if len(typed) > most else ""
    return f"--fields {shlex.quote(','.join(typed[:most]))}{more}" if typed else ""


def columns_of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the column of each path of rows; None for missing values.

    Raises:
        ConfigError: There are more than MOST_FIELDS paths.
    """
    paths = dict.fromkeys(path for row in rows for path in row)
    check_number(paths)
    return {path: [row.get(path) for row in rows] for path in paths}


def check_number(paths: Collection[str]) -> None:
    """Refuse more than MOST_FIELDS paths.

    Raises:
        ConfigError: There are more.
    """
    if len(paths) > MOST_FIELDS:
        raise ConfigError(
            f"--fields: at least {len(paths):,} fields, more than {MOST_FIELDS}: {first_texts([*paths], _SHOWN)}. Name "
            "the fields to store. The keys of a map that differ between rows are not fields"
        )


def _at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path of keys with dots between them; None if there is none."""
    if values.get(path) is not None:
        return values[path]
    if "." not in path:
        return None
    for end in (place for place, char in enumerate(path) if char == "."):
        inner = values.get(path[:end])
        if isinstance(inner, Mapping) and (value := _at(inner, path[end + 1 :])) is not None:
            return value
    return None


def leaf_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each leaf. Lists of mappings are no leaves."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaf_values(value, f"{prefix}{key}.")
        elif is_leaf(value):
            yield f"{prefix}{key}", value


OBJECTS = "[]"
"""End of the paths of lists with mappings, in messages."""


def known_paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the path of each leaf that is not null, and of each list with mappings.

    >>> list(known_paths({"a": {"b": 1, "c": None}, "d": [{"e": 1}]}))
    ['a.b', 'd[]']
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from known_paths(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}{'' if is_leaf(value) else OBJECTS}"


def is_leaf(value: Any) -> bool:
    """Return True for a value that is neither a mapping nor a list with mappings."""
    if isinstance(value, list):
        return not any(isinstance(item, Mapping) for item in value)
    return not isinstance(value, Mapping)
