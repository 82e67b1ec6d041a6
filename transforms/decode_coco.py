"""The JSON of a COCO file becomes rows of the expected types.

msgspec splits the file in one pass and leaves boxes as slices of its bytes. A file in which any row is not of the
expected types is decoded again row by row, slower, so that one bad row costs itself and not the file.
"""

import codecs
import re
from typing import NamedTuple

import msgspec

from schemas.coco import Category, Int64
from schemas.errors import AnnotationFileError
from schemas.rejects import Reason, Rejected


class ImageRow(msgspec.Struct, gc=False):
    """A row of `images`; sizes in pixels."""

    id: Int64
    file_name: str
    width: Int64 | None = None
    height: Int64 | None = None


class AnnotationRow(msgspec.Struct, gc=False):
    """A row of `annotations` with an object's box, which keeps its JSON text."""

    id: Int64
    image_id: Int64
    category_id: Int64
    bbox: msgspec.Raw
    area: float | None = None
    iscrowd: int | bool | None = 0


class _TypedFile(msgspec.Struct):
    images: list[ImageRow]
    annotations: list[AnnotationRow] = []
    categories: list[Category] = []


class RawFile(msgspec.Struct):
    images: list[msgspec.Raw]
    annotations: list[msgspec.Raw] = []
    categories: list[msgspec.Raw] = []


class CocoRows(NamedTuple):
    """The rows of a file that are of the expected types, and a reject for each that is not."""

    images: list[ImageRow]
    annotations: list[AnnotationRow]
    categories: list[Category]
    rejected: list[Rejected]


_TYPED_FILE = msgspec.json.Decoder(_TypedFile)
RAW_FILE = msgspec.json.Decoder(RawFile)
# Row by row, "5" and 5.0 pass for 5, as in files written by spreadsheets and by JavaScript.
_IMAGE_ROW = msgspec.json.Decoder(ImageRow, strict=False)
_ANNOTATION_ROW = msgspec.json.Decoder(AnnotationRow, strict=False)
_CATEGORY_ROW = msgspec.json.Decoder(Category, strict=False)


def decode_coco(path: str, data: bytes) -> CocoRows:
    """The rows of a COCO file's bytes.

    Raises:
        AnnotationFileError: not JSON (the message gives line and column), or not COCO's; `path` is named.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return _decode_rows(path, data)
    except UnicodeDecodeError as error:
        raise AnnotationFileError(_not_utf8(path, error)) from error
    except RecursionError as error:
        raise AnnotationFileError(f"{path} nests lists or objects too deeply to be a COCO file") from error
    except msgspec.DecodeError as error:
        quoted = _quote_nan(data)
        if quoted == data:
            raise AnnotationFileError(_not_json(path, data, _fault_offset(error, data), error)) from error
    try:
        return _decode_rows(path, quoted)
    except UnicodeDecodeError as error:
        raise AnnotationFileError(_not_utf8(path, error)) from error
    except msgspec.DecodeError as error:
        place = _unquoted_offset(data, _fault_offset(error, quoted))
        raise AnnotationFileError(_not_json(path, data, place, error)) from error


def _decode_rows(path: str, data: bytes) -> CocoRows:
    try:
        file = _TYPED_FILE.decode(data)
        return CocoRows(file.images, file.annotations, file.categories, [])
    except msgspec.ValidationError:
        return _decode_row_by_row(path, data)


def _decode_row_by_row(path: str, data: bytes) -> CocoRows:
    try:
        file = RAW_FILE.decode(data)
        categories = [_CATEGORY_ROW.decode(raw) for raw in file.categories]
    except msgspec.ValidationError as error:
        raise AnnotationFileError(
            f"{path} is JSON, but not a COCO file: {error}; expected an object with the lists images, annotations and "
            "categories (a category has an integer id and a name)"
        ) from error
    rows = CocoRows([], [], categories, [])
    for raw in file.images:
        try:
            rows.images.append(_IMAGE_ROW.decode(raw))
        except msgspec.ValidationError as error:
            rows.rejected.append(Rejected("image", _peek(raw, "id"), Reason.MALFORMED_IMAGE, f"image row: {error}"))
    for raw in file.annotations:
        try:
            rows.annotations.append(_ANNOTATION_ROW.decode(raw))
        except msgspec.ValidationError as error:
            detail = f"annotation row: {error}"
            rows.rejected.append(
                Rejected("annotation", _peek(raw, "id"), Reason.MALFORMED_ANNOTATION, detail, _peek(raw, "image_id"))
            )
    return rows


def _peek(raw: msgspec.Raw, key: str) -> int | None:
    """An id from a row that did not decode, for the reject's line; None where there is none."""
    try:
        value = msgspec.json.decode(raw)[key]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


_NAN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')


def _quote_nan(data: bytes) -> bytes:
    """NaN and Infinity, which Python's json writes though JSON has no such words, become strings: a row that has one
    where a number should be is then rejected, and the others are read."""
    return _NAN.sub(lambda match: match[0] if match[0].startswith(b'"') else b'"' + match[0] + b'"', data)


def _unquoted_offset(data: bytes, quoted_offset: int) -> int:
    """The place in `data` of a place in `_quote_nan(data)`."""
    added = 0
    for match in _NAN.finditer(data):
        if match.start() + added >= quoted_offset:
            break
        added += 0 if match[0].startswith(b'"') else 2
    return quoted_offset - added


def _fault_offset(error: msgspec.DecodeError, data: bytes) -> int:
    place = re.search(r"byte (\d+)", str(error))
    return int(place[1]) if place else len(data)


def _not_utf8(path: str, error: UnicodeDecodeError) -> str:
    return f"{path} is not UTF-8, as JSON has to be: {error.reason}"


def _not_json(path: str, data: bytes, offset: int, error: msgspec.DecodeError) -> str:
    if not data.strip():
        return f"{path} is empty; expected a COCO annotation file"
    line = data.count(b"\n", 0, offset) + 1
    column = offset - (data.rfind(b"\n", 0, offset) + 1) + 1
    near = data[max(0, offset - 30) : offset + 10].decode(errors="replace").replace("\n", " ")
    what = str(error).removeprefix("JSON is malformed: ").split(" (byte")[0]
    return (
        f"{path} is not JSON: {what} at line {line}, column {column} (byte {offset}), near {near!r}; expected a COCO "
        "file, one object with the lists images, annotations and categories"
    )
