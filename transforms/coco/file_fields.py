"""Fields of a COCO file that its rows have no place for: which there are, and how many rows have data in them.

A row type that refuses unknown fields stops msgspec at the first row that has one. It is then given a place in the
type, which keeps the text of its values, and the file is decoded again. This costs little where all rows have the same
fields: they are known from the first row.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.inputs.coco import FieldRows

NO_TEXT = msgspec.Raw(b"")
LISTS = ("images", "annotations", "categories")
COUNTED = ("file", *LISTS)
"""Keys of FieldRows."""
FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ROWS = msgspec.json.Decoder(list[msgspec.Raw])
_UNKNOWN = re.compile(r"Object contains unknown field `.*?`(?: - at `\$\.(images|annotations)\[(\d+)\]`)?", re.DOTALL)
_TRIES = 8
_MOST_NAMES = 64
"""Files whose rows have other fields each are decoded row by row."""

_NOTHING = rb"[\s\[\]{},:0.\-]*"
_NO_DATA = re.compile(
    rb'""\Z|(?!")%b(?:(?:"[^"\\]*(?:\\.[^"\\]*)*"(?=\s*:)|""(?!\s*:)|null|false)%b)*\Z' % (_NOTHING, _NOTHING),
    re.DOTALL,
)
"""Brackets, zeros, null, false, empty strings and the keys of objects. A text that is long ends it at once."""


class _FieldNames(NamedTuple):
    """Names of fields, of the file itself and of its rows."""

    file: frozenset[str]
    images: frozenset[str]
    annotations: frozenset[str]


_USUAL = _FieldNames(
    frozenset({"info", "licenses"}),
    frozenset({"license", "coco_url", "flickr_url", "date_captured"}),
    frozenset({"segmentation", "area", "iscrowd", "bbox"}),
)
"""Fields of COCO's own files."""


def has_data(value: msgspec.Raw) -> bool:
    """Whether a piece of JSON says anything: it is not empty, and not all null, false or zero.

    >>> [has_data(msgspec.Raw(text)) for text in (b"", b"null", b"[0, 0.0]", b'{"occluded": false}', b"0.5", b'"a"')]
    [False, False, False, False, True, True]
    """
    return _NO_DATA.match(value) is None


def has_numbers(value: msgspec.Raw) -> bool:
    """Whether a list has entries, if only zeros."""
    return bytes(value) not in (b"", b"null", b"[]")


class DecodedFile(NamedTuple):
    """The lists of a file, `annotations` UNSET where it has no such list.

    Attributes:
        counts: how often fields have data, in the file itself, image rows and annotation rows.
    """

    images: list[Any]
    annotations: list[Any] | msgspec.UnsetType
    categories: list[msgspec.Raw]
    counts: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]


def decode_with_fields(data: bytes, image: type, row: Any) -> DecodedFile:
    """A file whose image rows are of the type `image`, and annotation rows of the type `row`, or msgspec.Raw. What it
    counts are fields that these do not have.

    Raises:
        msgspec.ValidationError: a row is not of its type, or there are more fields than types are made for.
    """
    names = _USUAL
    for _ in range(_TRIES):
        try:
            file = _decoder(image, row, names).decode(data)
        except msgspec.ValidationError as error:
            if not (unknown := _UNKNOWN.fullmatch(str(error))):
                raise
            names = _with_names_of(data, names, unknown[1], int(unknown[2] or 0))
        else:
            counts = (
                _count([file], _RawFile, names.file),
                _count(file.images, image, names.images),
                _count(file.annotations or [], row, names.annotations),
            )
            return DecodedFile(file.images, file.annotations, file.categories, counts)
    raise msgspec.ValidationError("its rows have different fields")


def _with_names_of(data: bytes, names: _FieldNames, list_: str | None, index: int) -> _FieldNames:
    """`names` and those of the file, of the first and last rows of its lists, and of the row of a list that is known to
    have one more."""
    fields = FIELDS.decode(data)
    found = {"file": fields.keys() - set(LISTS)}
    for name in LISTS[:2]:
        rows = _ROWS.decode(fields.get(name, b"[]"))
        looked_at = {0, len(rows) - 1, *([index] if name == list_ else [])} if rows else ()
        found[name] = {key for each in looked_at for key in FIELDS.decode(rows[each])}
    return _FieldNames(*(known | found[name] for name, known in names._asdict().items()))


class _RawFile(msgspec.Struct):
    """COCO file with any kind of rows."""

    images: list[msgspec.Raw]
    annotations: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET
    categories: list[msgspec.Raw] = []


RAW_FILE = msgspec.json.Decoder(_RawFile)


@lru_cache(maxsize=32)
def _decoder(image: type, row: Any, names: _FieldNames) -> msgspec.json.Decoder:
    if max(map(len, names)) > _MOST_NAMES:
        raise msgspec.ValidationError("its rows have too many fields")
    image, row = _with_places(image, names.images), _with_places(row, names.annotations)
    lists = [("images", list[image]), ("annotations", list[row] | msgspec.UnsetType, msgspec.UNSET)]  # type: ignore[valid-type]
    return msgspec.json.Decoder(_with_places(_RawFile, names.file, lists))


def _with_places(struct: Any, names: Iterable[str], fields: Iterable[Any] = ()) -> Any:
    """Return the type with other `fields`, and a raw text for each of `names`; msgspec.Raw unchanged."""
    if struct is msgspec.Raw:
        return struct
    places = _places(struct, names)
    texts = [(place, msgspec.Raw, NO_TEXT) for place in places]
    try:
        return msgspec.defstruct(
            struct.__name__, [*fields, *texts], bases=(struct,), rename=places, forbid_unknown_fields=True, gc=False
        )
    except ValueError as error:  # a name with a quote, which a type cannot have
        raise msgspec.ValidationError(str(error)) from error


def _places(struct: Any, names: Iterable[str]) -> dict[str, str]:
    """Attribute and name of each field that a type is given."""
    return {f"field_{index}": name for index, name in enumerate(sorted(set(names) - field_names(struct)))}


def field_names(struct: Any) -> set[str]:
    """Names of the fields that a row type has; of msgspec.Raw none."""
    return set(getattr(struct, "__struct_encode_fields__", ()))


def required_names(struct: Any) -> set[str]:
    """Return the required fields of a type's rows."""
    fields = msgspec.structs.fields(struct) if struct is not msgspec.Raw else ()
    return {field.encode_name for field in fields if field.required}


def _count(rows: list[Any], struct: Any, names: Iterable[str]) -> dict[str, int]:
    """How many rows of the type with places for `names` have data in them."""
    if struct is msgspec.Raw:
        return {}
    # No call of a Python function for each of a million rows.
    return {
        name: list(map(_NO_DATA.match, map(attrgetter(place), rows))).count(None)
        for place, name in _places(struct, names).items()
    }


def count_fields(rows: Iterable[msgspec.Raw]) -> Counter[str]:
    """Count the rows with data in each field."""
    counts: Counter[str] = Counter()
    for row in rows:
        with contextlib.suppress(msgspec.ValidationError):  # no object
            counts.update(name for name, value in FIELDS.decode(row).items() if has_data(value))
    return counts


def count_entry_fields(data: bytes, name: str, entry: type) -> dict[str, int]:
    """How many entries of the lists that annotation rows have in the field `name` have data in fields that the type
    `entry` does not have.

    Raises:
        msgspec.DecodeError: it is not JSON.
    """
    texts = [(field, msgspec.Raw, NO_TEXT) for field in sorted(field_names(entry))]
    usual = msgspec.defstruct(entry.__name__, texts, forbid_unknown_fields=True, gc=False)
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.json.decode(data, type=_with_list("annotations", _with_list(name, usual)))
        return {}
    counts: Counter[str] = Counter()
    row = msgspec.json.Decoder(_with_list(name, msgspec.Raw))
    for raw in msgspec.json.decode(data, type=_with_list("annotations", msgspec.Raw)).annotations:
        with contextlib.suppress(msgspec.ValidationError):  # its reject says so
            counts += count_fields(getattr(row.decode(raw), name))
    return {f"{name}.{field}": number for field, number in without(counts, field_names(entry)).items()}


def _with_list(name: str, entry: Any) -> Any:
    return msgspec.defstruct("Object", [(name, list[entry], msgspec.field(default_factory=list))], gc=False)


def without(counts: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Counts of other fields than these."""
    return {name: counts[name] for name in counts.keys() - set(names)}


def field_rows(*counts: Mapping[str, int]) -> FieldRows:
    """Counts of the file, its images, annotations and categories as they stand in the manifest: without zeros."""
    lists = {
        list_: {name: of_list[name] for name in sorted(of_list) if of_list[name]}
        for list_, of_list in zip(COUNTED, counts, strict=False)
    }
    return {list_: of_list for list_, of_list in lists.items() if of_list}
