"""Find the fields of a COCO file that the row types do not have, and count the rows with data in each field.

The row types refuse unknown fields, so msgspec stops at the first row with one. The type then gets an attribute for the
field, with the text of its values, and the file is decoded again. The cost is low if all rows have the same fields,
because the first row names all of them.
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
"""Files with more field names are decoded row by row."""

_NOTHING = rb"[\s\[\]{},:0.\-]*"
_NO_DATA = re.compile(
    rb'""\Z|(?!")%b(?:(?:"[^"\\]*(?:\\.[^"\\]*)*"(?=\s*:)|""(?!\s*:)|null|false)%b)*\Z' % (_NOTHING, _NOTHING),
    re.DOTALL,
)
"""Matches brackets, zeros, null, false, empty strings and keys of objects. The match fails fast at a long string."""


class _FieldNames(NamedTuple):
    """Field names of the file object and of its rows."""

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
    """Return True if JSON text has data: a number other than 0, true, or a string that is not empty.

    >>> [has_data(msgspec.Raw(text)) for text in (b"", b"null", b"[0, 0.0]", b'{"occluded": false}', b"0.5", b'"a"')]
    [False, False, False, False, True, True]
    """
    return _NO_DATA.match(value) is None


def has_numbers(value: msgspec.Raw) -> bool:
    """Return True if a list has entries, even all 0."""
    return bytes(value) not in (b"", b"null", b"[]")


class DecodedFile(NamedTuple):
    """Lists of a file. `annotations` is UNSET if the file has no such list.

    Attributes:
        counts: Number of times that each field has data: in the file object, image rows and annotation rows.
    """

    images: list[Any]
    annotations: list[Any] | msgspec.UnsetType
    categories: list[msgspec.Raw]
    counts: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]


def decode_with_fields(data: bytes, image: type, row: Any) -> DecodedFile:
    """Decode a file with rows of types `image` and `row` (or msgspec.Raw), and count fields that the types do not have.

    Raises:
        msgspec.ValidationError: A row has the wrong type, or rows have more than _MOST_NAMES different fields.
    """
    names = _USUAL
    for _ in range(_TRIES):
        try:
            file = _decoder(image, row, names).decode(data)
        except msgspec.ValidationError as error:
            if not (unknown := _UNKNOWN.fullmatch(str(error))):
                raise
            names = _add_field_names(data, names, unknown[1], int(unknown[2] or 0))
        else:
            counts = (
                _count_data([file], _RawFile, names.file),
                _count_data(file.images, image, names.images),
                _count_data(file.annotations or [], row, names.annotations),
            )
            return DecodedFile(file.images, file.annotations, file.categories, counts)
    raise msgspec.ValidationError("its rows have different fields")


def _add_field_names(data: bytes, names: _FieldNames, list_: str | None, index: int) -> _FieldNames:
    """Add field names of the file object, of the first and last rows of its lists, and of the row `index` of `list_`,
    which has an unknown field."""
    fields = FIELDS.decode(data)
    names_by_list = {"file": fields.keys() - set(LISTS)}
    for name in LISTS[:2]:
        rows = _ROWS.decode(fields.get(name, b"[]"))
        samples = {0, len(rows) - 1, *([index] if name == list_ else [])} if rows else ()
        names_by_list[name] = {key for sample in samples for key in FIELDS.decode(rows[sample])}
    return _FieldNames(*(known | names_by_list[name] for name, known in names._asdict().items()))


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
    image, row = _extend_row_type(image, names.images), _extend_row_type(row, names.annotations)
    lists = [("images", list[image]), ("annotations", list[row] | msgspec.UnsetType, msgspec.UNSET)]  # type: ignore[valid-type]
    return msgspec.json.Decoder(_extend_row_type(_RawFile, names.file, lists))


def _extend_row_type(struct: Any, names: Iterable[str], fields: Iterable[Any] = ()) -> Any:
    """Return a subtype with further `fields`, and a raw JSON attribute for each of `names`; msgspec.Raw unchanged."""
    if struct is msgspec.Raw:
        return struct
    places = _attribute_names(struct, names)
    texts = [(place, msgspec.Raw, NO_TEXT) for place in places]
    try:
        return msgspec.defstruct(
            struct.__name__, [*fields, *texts], bases=(struct,), rename=places, forbid_unknown_fields=True, gc=False
        )
    except ValueError as error:  # a name with a quote, which a type cannot have
        raise msgspec.ValidationError(str(error)) from error


def _attribute_names(struct: Any, names: Iterable[str]) -> dict[str, str]:
    """Return the field name by attribute, of the attributes that `_extend_row_type` adds to a type."""
    return {f"field_{index}": name for index, name in enumerate(sorted(set(names) - field_names(struct)))}


def field_names(struct: Any) -> set[str]:
    """Return a row type's field names; msgspec.Raw has none."""
    return set(getattr(struct, "__struct_encode_fields__", ()))


def field_text(row: Any, name: str) -> bytes:
    """Return the JSON text of a raw field, which the row's type may have as a further one; empty without the field."""
    attributes = dict(zip(row.__struct_encode_fields__, row.__struct_fields__, strict=True))
    return getattr(row, attributes.get(name, name), b"")


def required_names(struct: Any) -> set[str]:
    """Return the names of a row type's required fields."""
    fields = msgspec.structs.fields(struct) if struct is not msgspec.Raw else ()
    return {field.encode_name for field in fields if field.required}


def _count_data(rows: list[Any], struct: Any, names: Iterable[str]) -> dict[str, int]:
    """Count the rows with data in each of the fields `names`. The rows' type is from `_extend_row_type`."""
    if struct is msgspec.Raw:
        return {}
    # map() and filter() avoid a call of a Python function for each of a million rows.
    return {
        name: list(map(_NO_DATA.match, filter(None, map(attrgetter(place), rows)))).count(None)
        for place, name in _attribute_names(struct, names).items()
    }


def count_fields(rows: Iterable[msgspec.Raw]) -> Counter[str]:
    """Count the rows with data in each field."""
    rows_by_fields: Counter[tuple[str, ...]] = Counter()  # rows have few different lists of fields
    for row in rows:
        try:
            rows_by_fields[tuple([name for name, value in FIELDS.decode(row).items() if has_data(value)])] += 1
        except (msgspec.ValidationError, UnicodeDecodeError):  # the row is not an object, or has a key that is no text
            continue
    counts: Counter[str] = Counter()
    for names, number in rows_by_fields.items():
        counts.update(dict.fromkeys(names, number))
    return counts


def count_entry_fields(data: bytes, name: str, entry: type) -> dict[str, int]:
    """Count entries with data in fields that the type `entry` does not have. The entries are those of the list `name`
    in each annotation row.

    Raises:
        msgspec.DecodeError: `data` is not JSON.
    """
    texts = [(field, msgspec.Raw, NO_TEXT) for field in sorted(field_names(entry))]
    usual = msgspec.defstruct(entry.__name__, texts, forbid_unknown_fields=True, gc=False)
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.json.decode(data, type=_list_struct("annotations", _list_struct(name, usual)))
        return {}
    counts: Counter[str] = Counter()
    row = msgspec.json.Decoder(_list_struct(name, msgspec.Raw))
    for raw in msgspec.json.decode(data, type=_list_struct("annotations", msgspec.Raw)).annotations:
        with contextlib.suppress(msgspec.ValidationError):  # the row is rejected elsewhere
            counts += count_fields(getattr(row.decode(raw), name))
    return {f"{name}.{field}": number for field, number in drop_fields(counts, field_names(entry)).items()}


def _list_struct(name: str, entry: Any) -> Any:
    return msgspec.defstruct("Object", [(name, list[entry], msgspec.field(default_factory=list))], gc=False)


def drop_fields(counts: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Return the counts without these fields."""
    return {name: counts[name] for name in counts.keys() - set(names)}


def field_rows(*counts: Mapping[str, int]) -> FieldRows:
    """Return the manifest's form of counts of the file, its images, annotations and categories: without zeros."""
    lists = {
        list_: {name: list_counts[name] for name in sorted(list_counts) if list_counts[name]}
        for list_, list_counts in zip(COUNTED, counts, strict=False)
    }
    return {list_: list_counts for list_, list_counts in lists.items() if list_counts}
