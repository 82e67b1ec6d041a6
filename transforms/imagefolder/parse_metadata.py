"""Convert rows of a metadata file to images with annotations."""

import math
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from recordmill.schemas.inputs.annotations import Int64
from recordmill.schemas.inputs.boxes import box_xywh_px
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.schemas.inputs.json_text import quote_nan
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.scalars import Flag, whole_number
from recordmill.schemas.inputs.tables import RowsReading, rows_format
from recordmill.schemas.names import name_parts
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import decode_part
from recordmill.transforms.annotated.shapes import sides_px
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, field_notes, parser, unusable_image
from recordmill.transforms.rows.kinds import Seen
from recordmill.transforms.rows.read_rows import read_stream
from recordmill.transforms.rows.row_batch import RowBatch, format_value

FILE_NAME, IMAGE_ID, OBJECTS = "file_name", "image_id", "objects"
CAPTIONS = ("text", "caption", "captions")
BOXES = ("bbox", "bboxes", "box", "boxes")
CLASSES = ("category", "categories", "category_id", "category_ids", "label", "labels", "class", "classes", "class_id")
AREA, _CROWD, _ID = ("area", "areas"), ("iscrowd", "is_crowd"), ("id", "ids")
_READ = {*BOXES, *CLASSES, *AREA, *_CROWD, *_ID}
_BOX_COLUMN, _CLASS_COLUMN, *_OTHER_COLUMNS = (
    f"{OBJECTS}.{key}" for key in ("bbox", "category", "area", "iscrowd", "id")
)
_TYPES = frozenset((list,)), frozenset((str,)), frozenset((float,)), frozenset((int, bool)), frozenset((int,))
_PLAIN_TYPES = dict(zip((_BOX_COLUMN, _CLASS_COLUMN, *_OTHER_COLUMNS), _TYPES, strict=True))
"""Types of the values of plain columns."""
_SIZE = ("width", "height")
NUMBERED = "numbered"
"""Note: some object has a number as its class."""


class MetadataFormat(NamedTuple):
    """Meaning of the columns of a row.

    Attributes:
        class_names: Names of the classes that are given by number.
        box_format: Format of all boxes.
        captions: Columns of captions.
        splits: Splits by the first folder of an image's name; empty if names have no split.
        is_beside: True if `file_name` begins at the folder of the metadata file.
        image_column: Column of the images' bytes, instead of `file_name`. An image is then named after the file, with
            its row: `train-00000-of-00001/17-cat.jpg`.
        has_fields: True if records store open fields.
    """

    class_names: tuple[str, ...] = ()
    box_format: BoxFormat = BoxFormat.XYWH
    captions: tuple[str, ...] = ()
    splits: Mapping[str, str] = {}
    is_beside: bool = True
    image_column: str = ""
    has_fields: bool = False


@parser
def parse_metadata(stream: BinaryIO, file: str, row_format: MetadataFormat) -> Iterator[LabelledImage]:
    """Yield the image of each row.

    >>> from io import BytesIO
    >>> row = b'{"file_name": "1.jpg", "objects": {"bbox": [[1, 2, 3, 4], [5, 6]], "category": ["cat", "cat"]}}'
    >>> image, = parse_metadata(BytesIO(row), "train/metadata.jsonl", MetadataFormat())
    >>> image.sample.file_name, image.sample.objects[0].box, image.faults[0].line
    ('train/1.jpg', (1.0, 2.0, 3.0, 4.0), 1)
    """
    head = 1 if rows_format(file) in ("csv", "tsv") else 0
    for batch in read_stream(file, stream, RowsReading(is_label_table=True)):
        for row in batch.bad:
            yield unusable_image(row.detail, row.line + head)
        further = unread_columns(batch, row_format)
        notes = tuple(field_notes(further))
        names = [name for name in further if not name.startswith(f"{OBJECTS}.")] if row_format.has_fields else []
        names += [IMAGE_ID] if row_format.has_fields and IMAGE_ID in batch.columns else []
        for line, row_values in metadata_rows(batch):
            image = _convert_metadata_row(row_values, file, line + head, row_format, notes)
            if names and image.sample:
                fields = {name: row_values[name] for name in names if row_values[name] not in (None, "")}
                image = image._replace(sample=replace(image.sample, fields=msgspec.to_builtins(fields)))
            yield image
            notes = ()


def metadata_rows(batch: RowBatch) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the values of each row."""
    columns = {name: batch.values(name) for name in batch.columns}
    for name in (f"{OBJECTS}.{key}" for key in CLASSES):
        if name in batch.parts:  # numbers and names are both texts
            columns[name] = list(map(_numbers_or_names, columns[name]))
    for name in (f"{OBJECTS}.{key}" for key in (*AREA, *_CROWD, *_ID)):
        if name in batch.parts and not {part.look for part in batch.parts[name]} & {Seen.TEXT, Seen.NESTED}:
            columns[name] = list(map(_json_values, columns[name]))
    for index, line in enumerate(batch.lines.tolist()):
        yield line, {name: values[index] for name, values in columns.items()}


def _numbers_or_names(texts: Any) -> Any:
    if not isinstance(texts, list):
        return texts
    return [int(text) if isinstance(text, str) and _CLASS_NUMBER.fullmatch(text) else text for text in texts]


_CLASS_NUMBER = re.compile(r"\d{1,10}")
_NOT_FINITE = ("nan", "inf", "-inf")


def _json_values(texts: Any) -> Any:
    """Return the numbers and booleans of a column that has both, or numbers of several types: its values are texts."""
    if not isinstance(texts, list):
        return texts
    return [
        text if text is None else float(text) if text in _NOT_FINITE else msgspec.json.decode(text) for text in texts
    ]


def find_image_column(columns: Mapping[str, Any]) -> str:
    """Return the name of the column of images, bytes or a struct with `bytes` and `path`; "" without one."""
    names = [name.removesuffix(".bytes") for name, array in columns.items() if pa.types.is_large_binary(array.type)]
    return "image" if "image" in names else next(iter(names), "")


def unread_columns(batch: RowBatch, row_format: MetadataFormat) -> list[str]:
    """Return the columns with values that records do not store, except `image_id`: image ids come from names."""
    image_column = row_format.image_column
    known = {FILE_NAME, IMAGE_ID, OBJECTS, *row_format.captions, *(_SIZE if has_objects(batch.columns) else ())}
    known |= {image_column, f"{image_column}.bytes", f"{image_column}.path"}
    known |= {f"{OBJECTS}.{key}" for key in _READ}
    return [name for name, array in batch.columns.items() if name not in known and array.null_count < len(array)]


def has_objects(columns: Mapping[str, Any]) -> bool:
    return any(name == OBJECTS or name.startswith(f"{OBJECTS}.") for name in columns)


def _convert_metadata_row(
    row: dict[str, Any], file: str, line: int, row_format: MetadataFormat, notes: tuple[str, ...]
) -> LabelledImage:
    image_column, splits = row_format.image_column, row_format.splits
    name, data = _held_image(row, file, line, image_column) if image_column else (row.get(FILE_NAME), b"")
    if not isinstance(name, str) or not name.strip():
        what = f"bytes in the column {image_column}" if image_column else FILE_NAME
        return unusable_image(f"the row has no {what}", line)._replace(notes=notes)
    name = posixpath.join(posixpath.dirname(file), name.strip()) if row_format.is_beside else name.strip()
    split = splits.get(name.partition("/")[0], "")
    if splits and not split:
        detail = f"{format_value(name)} is not in one of the folders {', '.join(splits)}"
        return unusable_image(detail, line)._replace(notes=notes)
    parts = ImageParts()
    if (plain := _plain_objects(row, row_format)) is None:
        _add_objects(row, line, row_format, parts)
    for number, object_ in enumerate(plain or ()):
        parts.add(object_, f"object {number}", line)
    parts.notes |= {*notes}
    width, height = stated_size(row, parts.warnings)
    values = [value for column in row_format.captions for value in _as_list(row.get(column))]
    texts = tuple(str(value) for value in values if value is not None and str(value).strip())
    return parts.image(Sample(name, data=data, width=width, height=height, captions=texts, split=split))


def _plain_objects(row: Mapping[str, Any], row_format: MetadataFormat) -> list[SampleObject] | None:
    """Return the objects of a row whose columns are lists of plain values; None for any other row.

    It takes a third of the time of `_convert_metadata_object`.
    """
    prefix = f"{OBJECTS}."
    lists: dict[str, Any] = {
        name: cells for name, cells in row.items() if cells is not None and name.startswith(prefix)
    }
    boxes, classes = (lists.get(name, []) for name in (_BOX_COLUMN, _CLASS_COLUMN))
    is_plain = (
        boxes and classes and type(boxes) is list and lists.keys() <= _PLAIN_TYPES.keys() and row.get(OBJECTS) is None
    )
    if not is_plain or row_format.box_format is not BoxFormat.XYWH or row_format.class_names:
        return None
    for name, cells in lists.items():
        if type(cells) is not list or len(cells) != len(boxes) or not _PLAIN_TYPES[name].issuperset(map(type, cells)):
            return None
    areas, crowds, ids = (lists.get(name) or [None] * len(boxes) for name in _OTHER_COLUMNS)
    if {*map(len, boxes)} != {4} or not {None, 0, 1}.issuperset(crowds):
        return None
    numbers = [*chain.from_iterable(boxes)]
    try:
        if not _NUMBERS.issuperset(map(type, numbers)) or not all(map(math.isfinite, numbers)):
            return None
    except OverflowError:  # an integer beyond all floats
        return None
    if ids[0] is not None and not (min(ids) in _INT64 and max(ids) in _INT64):
        return None
    edges = iter(map(float, numbers))
    xywh = zip(edges, edges, edges, edges, strict=True)
    return [
        SampleObject(class_, box, is_crowd=bool(crowd), area_px2=area, id=id_)
        for class_, box, area, crowd, id_ in zip(classes, xywh, areas, crowds, ids, strict=True)
    ]


def _add_objects(row: Mapping[str, Any], line: int, row_format: MetadataFormat, parts: ImageParts) -> None:
    objects = list[dict[str, Any]]()
    with parts.rejecting(line=line):
        objects = row_objects(row)
    further = set[str]().union(*objects) - _READ
    parts.notes |= field_notes(f"{OBJECTS}.{key}" for key in further)
    for number, entry in enumerate(objects):
        try:
            object_ = _convert_metadata_object(entry, row_format, parts)
        except UnusableError as error:
            parts.reject(error, f"object {number}", line)
            continue
        if row_format.has_fields:
            own = {key: value for key, value in entry.items() if key in further}
            object_ = replace(object_, fields=msgspec.to_builtins(own))
        parts.add(object_, f"object {number}", line)


def _held_image(row: Mapping[str, Any], file: str, line: int, column: str) -> tuple[str, bytes]:
    """Return the name and the bytes of the image of a row; the name is "" without bytes."""
    data, path = image_bytes(row, column), row.get(f"{column}.path")
    suffix = f"-{name_parts(path)[-1]}" if path and isinstance(path, str) else ""
    return f"{shard_name(file)}/{line}{suffix}" if data else "", data


def image_bytes(row: Mapping[str, Any], column: str) -> bytes:
    return row.get(f"{column}.bytes") or row.get(column) or b""


def shard_name(file: str) -> str:
    return posixpath.basename(file).removesuffix(".parquet")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def stated_size(row: Mapping[str, Any], warnings: set[str]) -> tuple[int | None, int | None]:
    """Return width and height in pixels that a row with objects states. See `sides_px`."""
    width, height = ("" if row.get(name) is None else str(row[name]) for name in _SIZE)  # in CSV, all are texts
    return sides_px(width, height, warnings) if has_objects(row) else (None, None)


def row_objects(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a row, as dicts of values.

    Raises:
        UnusableError: `objects` are neither lists of equal lengths nor a list of objects.

    >>> row_objects({"objects.bbox": [[1, 2, 3, 4]], "objects.category": [0]})
    [{'bbox': [1, 2, 3, 4], 'category': 0}]
    """
    value = row.get(OBJECTS)
    if isinstance(value, str):  # in CSV
        value = _decode_cell(value) if value.strip() else None
    if isinstance(value, list):
        objects = [_decode_cell(entry) if isinstance(entry, str) else entry for entry in value]
        if not all(isinstance(entry, dict) for entry in objects):
            raise UnusableError(
                Reason.MALFORMED_ANNOTATION, f"objects are not a list of JSON objects: {format_value(value)}"
            )
        return objects
    if value is None:
        prefix = f"{OBJECTS}."
        value = {name.removeprefix(prefix): cell for name, cell in row.items() if name.startswith(prefix)}
    lists = {key: cells for key, cells in value.items() if cells is not None} if isinstance(value, dict) else {}
    lengths = {key: len(cells) if isinstance(cells, list) else -1 for key, cells in lists.items()}
    numbers = {lengths[key] for key in lists if key in _READ}
    if not isinstance(value, dict) or len(numbers) > 1 or -1 in numbers:
        detail = f"objects are neither lists of one length nor a list of objects: {format_value(value)}"
        raise UnusableError(Reason.MALFORMED_ANNOTATION, detail)
    lists = {key: cells for key, cells in lists.items() if lengths[key] in numbers}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _decode_cell(text: str) -> Any:
    try:
        return msgspec.json.decode(quote_nan(text.encode()) if "NaN" in text or "Infinity" in text else text)
    except (msgspec.DecodeError, RecursionError) as error:
        detail = f"objects are not JSON ({error}): {format_value(text)}"
        raise UnusableError(Reason.MALFORMED_ANNOTATION, detail) from error


def first_value(entry: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the value of the first key in an object that is not null; None without one."""
    for key in keys:  # quicker than a generator: each object has six such values
        if (value := entry.get(key)) is not None:
            return value
    return None


def is_numbered(entry: Mapping[str, Any]) -> bool:
    """Return True if an object gives its class by number."""
    return isinstance(first_value(entry, CLASSES), int | float)


_INT64 = range(-(1 << 63), 1 << 63)
_NUMBERS = frozenset((int, float))


def read_value(entry: Mapping[str, Any], keys: Sequence[str], type_: Any, parts: ImageParts) -> Any:
    """Return a number or a boolean of an object; None without one. Tools write NaN for a missing id.

    Args:
        keys: Keys of the value. The first one with a value is read.
        parts: See `decode_part`.

    Raises:
        UnusableError: The value has another type.
    """
    value = first_value(entry, keys)
    if value is None or (type_ is not float and (value != value or value == "NaN")):
        return None
    if type(value) is type_ or (type_ is Int64 and type(value) is int and value in _INT64):
        return value
    if type_ is Flag and type(value) is int and value in (0, 1):
        return bool(value)
    try:
        return decode_part(value, type_, parts)
    except UnusableError as fault:
        raise UnusableError(fault.reason, f"{keys[0]} {format_value(value)}: {fault.detail}") from fault


def read_box(entry: Mapping[str, Any], parts: ImageParts) -> tuple[float, float, float, float]:
    """Return the four numbers of the box of an object.

    Args:
        parts: See `decode_part`.

    Raises:
        UnusableError: The box is not four finite numbers.
    """
    box = first_value(entry, BOXES)
    if isinstance(box, str):  # the column has another type in another row
        box = _decode_cell(box)
    try:
        if type(box) is list and len(box) == 4 and _NUMBERS.issuperset(map(type, box)):
            numbers = float(box[0]), float(box[1]), float(box[2]), float(box[3])  # quicker than a conversion by type
        else:
            numbers = decode_part(box, tuple[float, float, float, float], parts)
    except UnusableError as fault:
        raise UnusableError(Reason.MALFORMED_BOX, f"the bbox is not four numbers: {format_value(box)}") from fault
    except OverflowError:  # an integer beyond all floats
        numbers = (math.inf,) * 4
    if not all(map(math.isfinite, numbers)):
        raise UnusableError(Reason.MALFORMED_BOX, f"the bbox has a number that is not finite: {format_value(box)}")
    return numbers


def _convert_metadata_object(entry: Mapping[str, Any], row_format: MetadataFormat, parts: ImageParts) -> SampleObject:
    """Return the object of an entry of `objects`.

    Raises:
        UnusableError: The box or the class is unusable.
    """
    numbers, format_ = read_box(entry, parts), row_format.box_format
    if format_ not in (BoxFormat.XYWH, BoxFormat.REL_XYWH):
        numbers = box_xywh_px(numbers, BoxFormat(format_.value.removeprefix("rel-")), 0, 0)
    area = read_value(entry, AREA, float, parts)
    class_ = first_value(entry, CLASSES)
    category, index = _find_class(class_, row_format.class_names)
    object_ = SampleObject(
        category,
        numbers,
        "fraction" if format_ is not BoxFormat.XYWH and format_.is_fraction else "px",
        is_crowd=read_value(entry, _CROWD, Flag, parts) or False,
        area_px2=area if format_ is BoxFormat.XYWH else None,
        category_id=index,
        id=read_value(entry, _ID, Int64, parts),
    )
    if isinstance(class_, int | float) and not row_format.class_names:
        parts.notes.add(NUMBERED)
    return object_


def _find_class(value: Any, names: Sequence[str]) -> tuple[str, int | None]:
    """Return the name of a class, and its index in `names`, None without `names`. A number is an index. A text is a
    name; digits are an index if no name is digits."""
    if value is None and len(names) == 1:
        return names[0], 0
    if value is None or not names:
        return "" if value is None else str(value), None
    index: int | None = None
    if isinstance(value, int | float):
        index = int(value) if value == value // 1 else None  # 1.0 instead of 1 if other rows lack the class
    elif (text := str(value).strip()) in names:
        index = names.index(text)
    elif not any(map(str.isdecimal, names)):
        index = whole_number(text)
    if index is None or not 0 <= index < len(names):
        detail = f"class {format_value(value)} is not one of the {len(names)} --class-names, which are numbered from 0"
        raise UnusableError(Reason.UNKNOWN_CATEGORY, detail)
    return names[index], index
