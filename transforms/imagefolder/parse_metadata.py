"""Convert rows of a metadata file to images with annotations."""

import math
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa

from recordmill.schemas.inputs.boxes import box_xywh_px
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.schemas.inputs.json_text import quote_nan
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.tables import RowsReading, rows_format
from recordmill.schemas.names import name_parts
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.annotated.naming import decoded
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, not_usable, parser
from recordmill.transforms.rows.read_rows import read_stream
from recordmill.transforms.rows.row_batch import RowBatch, format_value

FILE_NAME, IMAGE_ID, OBJECTS = "file_name", "image_id", "objects"
CAPTIONS = ("text", "caption", "captions")
BOXES = ("bbox", "bboxes", "box", "boxes")
CLASSES = ("category", "categories", "category_id", "category_ids", "label", "labels", "class", "classes", "class_id")
_AREA, _CROWD, _ID = ("area", "areas"), ("iscrowd", "is_crowd"), ("id", "ids")
_READ = {*BOXES, *CLASSES, *_AREA, *_CROWD, *_ID}
_SIZE = ("width", "height")
NUMBERED, UNREAD = "numbered", "unread "
"""Notes of a file: some object has a number as its class; records have no feature for the column that follows."""


class RowRules(NamedTuple):
    """Rules for reading a row.

    Attributes:
        class_names: of classes that are given by number.
        box_format: of all boxes.
        captions: columns that are captions.
        splits: names of splits by the first folder of an image's name; empty if that says no split.
        is_beside: whether `file_name` begins at the folder of the metadata file.
        image: column of the images' bytes, in place of `file_name`. The names of images are those of the file, with
            the row: `train-00000-of-00001/17-cat.jpg`.
    """

    class_names: tuple[str, ...] = ()
    box_format: BoxFormat = BoxFormat.XYWH
    captions: tuple[str, ...] = ()
    splits: Mapping[str, str] = {}
    is_beside: bool = True
    picture: str = ""


@parser
def parse_metadata(stream: BinaryIO, file: str, rules: RowRules) -> Iterator[LabelledImage]:
    """Yield the image of each row.

    >>> from io import BytesIO
    >>> row = b'{"file_name": "1.jpg", "objects": {"bbox": [[1, 2, 3, 4], [5, 6]], "category": ["cat", "cat"]}}'
    >>> image, = parse_metadata(BytesIO(row), "train/metadata.jsonl", RowRules())
    >>> image.sample.file_name, image.sample.objects[0].box, image.faults[0].line
    ('train/1.jpg', (1.0, 2.0, 3.0, 4.0), 1)
    """
    head = 1 if rows_format(file) in ("csv", "tsv") else 0
    for batch in read_stream(file, stream, RowsReading(is_label_table=True)):
        for row in batch.bad:
            yield not_usable(row.detail, row.line + head)
        unread = tuple(f"{UNREAD}{name}" for name in unread_columns(batch, rules))
        for line, row_values in rows_of(batch):
            yield _image(row_values, file, line + head, rules, unread)
            unread = ()


def rows_of(batch: RowBatch) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the values of each row."""
    columns = {name: batch.values(name) for name in batch.columns}
    for name in (f"{OBJECTS}.{key}" for key in CLASSES):
        if name in batch.parts:  # numbers and names, all as texts
            columns[name] = list(map(_numbers_or_names, columns[name]))
    for place, line in enumerate(batch.lines.tolist()):
        yield line, {name: values[place] for name, values in columns.items()}


def _numbers_or_names(texts: Any) -> Any:
    if not isinstance(texts, list):
        return texts
    return [int(text) if isinstance(text, str) and text.isdecimal() else text for text in texts]


def image_column(columns: Mapping[str, Any]) -> str:
    """Return the column of images, which is bytes, or a struct with `bytes` and `path`; empty without one."""
    found = [name.removesuffix(".bytes") for name, array in columns.items() if pa.types.is_large_binary(array.type)]
    return "image" if "image" in found else next(iter(found), "")


def unread_columns(batch: RowBatch, rules: RowRules) -> list[str]:
    """Return the columns that have values and are not written. Records make their ids: `image_id` is no loss."""
    known = {FILE_NAME, IMAGE_ID, OBJECTS, *rules.captions, *(_SIZE if has_objects(batch.columns) else ())}
    known |= {rules.picture, f"{rules.picture}.bytes", f"{rules.picture}.path"}
    known |= {f"{OBJECTS}.{key}" for key in _READ}
    return [name for name, array in batch.columns.items() if name not in known and array.null_count < len(array)]


def has_objects(columns: Mapping[str, Any]) -> bool:
    return any(name == OBJECTS or name.startswith(f"{OBJECTS}.") for name in columns)


def _image(row: dict[str, Any], file: str, line: int, rules: RowRules, notes: tuple[str, ...]) -> LabelledImage:
    name, data = _picture(row, file, line, rules.picture) if rules.picture else (row.get(FILE_NAME), b"")
    if not isinstance(name, str) or not name.strip():
        what = f"bytes in the column {rules.picture}" if rules.picture else FILE_NAME
        return not_usable(f"the row has no {what}", line)._replace(notes=notes)
    name = posixpath.join(posixpath.dirname(file), name.strip()) if rules.is_beside else name.strip()
    split = rules.splits.get(name.partition("/")[0], "")
    if rules.splits and not split:
        detail = f"{format_value(name)} is in none of the folders {', '.join(rules.splits)}"
        return not_usable(detail, line)._replace(notes=notes)
    found, objects = ImageParts(), list[dict[str, Any]]()
    with found.rejecting(line=line):
        objects = objects_of(row)
    found.notes |= {*notes, *(f"{UNREAD}{OBJECTS}.{key}" for each in objects for key in each if key not in _READ)}
    for number, each in enumerate(objects):
        with found.rejecting(f"object {number}", line):
            found.objects.append(_object(each, rules, found))
            found.notes |= {NUMBERED} if is_numbered(each) and not rules.class_names else set()
    width, height = size_of(row) or (None, None)
    values = [value for column in rules.captions for value in _listed(row.get(column))]
    texts = tuple(str(value) for value in values if value is not None and str(value).strip())
    return found.image(Sample(name, data=data, width=width, height=height, captions=texts, split=split))


def _picture(row: Mapping[str, Any], file: str, line: int, column: str) -> tuple[str, bytes]:
    """Return the name of the image of a row, and its bytes; an empty name without bytes."""
    data, path = image_bytes(row, column), row.get(f"{column}.path")
    own = f"-{name_parts(path)[-1]}" if path else ""
    return f"{shard_name(file)}/{line}{own}" if data else "", data


def image_bytes(row: Mapping[str, Any], column: str) -> bytes:
    return row.get(f"{column}.bytes") or row.get(column) or b""


def shard_name(file: str) -> str:
    return posixpath.basename(file).removesuffix(".parquet")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def size_of(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return width and height, of a row with objects."""
    texts = [str(row.get(name)) for name in _SIZE]  # of CSV, all values are texts
    if not has_objects(row) or not all(map(str.isdecimal, texts)):
        return None
    width, height = map(int, texts)
    return (width, height) if width and height else None


def objects_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row's objects, by the keys of values.

    Raises:
        UnusableError: they are neither lists of equal lengths nor a list of objects.

    >>> objects_of({"objects.bbox": [[1, 2, 3, 4]], "objects.category": [0]})
    [{'bbox': [1, 2, 3, 4], 'category': 0}]
    """
    whole = row.get(OBJECTS)
    if isinstance(whole, str):  # of CSV
        whole = _decoded(whole) if whole.strip() else None
    if isinstance(whole, list):
        found = [_decoded(each) if isinstance(each, str) else each for each in whole]
        if not all(isinstance(each, dict) for each in found):
            raise UnusableError(
                Reason.MALFORMED_ANNOTATION, f"objects are no list of JSON objects: {format_value(whole)}"
            )
        return found
    if whole is None:
        prefix = f"{OBJECTS}."
        whole = {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
    lists = {key: value for key, value in whole.items() if value is not None} if isinstance(whole, dict) else {}
    lengths = {key: len(value) if isinstance(value, list) else -1 for key, value in lists.items()}
    numbers = {lengths[key] for key in lists if key in _READ}
    if not isinstance(whole, dict) or len(numbers) > 1 or -1 in numbers:
        detail = f"objects are neither lists of one length nor a list of objects: {format_value(whole)}"
        raise UnusableError(Reason.MALFORMED_ANNOTATION, detail)
    lists = {key: value for key, value in lists.items() if lengths[key] in numbers}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(quote_nan(text.encode()) if "NaN" in text or "Infinity" in text else text)
    except (msgspec.DecodeError, RecursionError) as error:
        detail = f"objects are no JSON ({error}): {format_value(text)}"
        raise UnusableError(Reason.MALFORMED_ANNOTATION, detail) from error


def value_of(each: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Return the value of the first key that there is."""
    return next((each[key] for key in keys if each.get(key) is not None), None)


def is_numbered(each: Mapping[str, Any]) -> bool:
    """Return True if an object's class is a number."""
    return isinstance(value_of(each, CLASSES), int | float)


def box_of(each: Mapping[str, Any], found: ImageParts) -> tuple[float, float, float, float]:
    """Return the four numbers of a box.

    Args:
        found: see `decoded`.

    Raises:
        UnusableError: they are none.
    """
    box = value_of(each, BOXES)
    if isinstance(box, str):  # a column that has another type in another row
        box = _decoded(box)
    try:
        numbers = decoded(box, tuple[float, float, float, float], found)
    except UnusableError as fault:
        raise UnusableError(Reason.MALFORMED_BOX, f"the bbox is not four numbers: {format_value(box)}") from fault
    if not all(map(math.isfinite, numbers)):
        raise UnusableError(Reason.MALFORMED_BOX, f"a number of the bbox is not finite: {format_value(box)}")
    return numbers


def _object(each: Mapping[str, Any], rules: RowRules, found: ImageParts) -> SampleObject:
    """Return the object of an entry of `objects`.

    Raises:
        UnusableError: The box or the class is unusable.
    """
    numbers, format_ = box_of(each, found), rules.box_format
    if format_ not in (BoxFormat.XYWH, BoxFormat.REL_XYWH):
        numbers = box_xywh_px(numbers, BoxFormat(format_.value.removeprefix("rel-")), 0, 0)
    area, id_ = value_of(each, _AREA), value_of(each, _ID)
    category, index = _class(value_of(each, CLASSES), rules.class_names)
    return SampleObject(
        category,
        numbers,
        "fraction" if format_.is_fraction else "px",
        is_crowd=bool(value_of(each, _CROWD)),
        area_px2=float(area) if isinstance(area, int | float) and format_ is BoxFormat.XYWH else None,
        category_id=index,
        id=id_ if isinstance(id_, int) else None,
    )


def _class(value: Any, names: Sequence[str]) -> tuple[str, int | None]:
    """Return a class's name, and its index among given names."""
    if value is None and len(names) == 1:
        return names[0], 0
    if value is None or not names:
        return "" if value is None else str(value), None
    text = f"{value:g}" if isinstance(value, float) else str(value).strip()  # 1.0 for 1 where others are missing
    index = names.index(text) if text in names else int(text) if text.isdecimal() else -1
    if not 0 <= index < len(names):
        detail = f"class {format_value(value)} is none of the {len(names)} of --class-names, which are numbered from 0"
        raise UnusableError(Reason.UNKNOWN_CATEGORY, detail)
    return names[index], index
