"""COCO annotation files become, for each image id, what the file says of it.

A file is read whole and split by msgspec, which leaves boxes as slices of the file's bytes until their image is
yielded. A file in which any row is not of the expected types is read again row by row, slower, so that one bad row
costs itself and not the file.
"""

import codecs
import contextlib
import gc
import logging
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection

from schemas.coco import Annotation, AnnotationFile, Category, CocoImage, ImagePart, Int64
from schemas.errors import AnnotationFileError
from schemas.rejects import Reason, Rejected
from transforms import coders, progress  # noqa: F401  coders registers that of ImagePart
from transforms.outputs import FILES, REJECTED, tag_by_type
from transforms.storage import storage_for

_LOGGER = logging.getLogger(__name__)


class CocoFiles(NamedTuple):
    """What ReadCoco gives.

    Attributes:
        parts: (image id, ImagePart).
        files: AnnotationFile.
        rejected: Rejected.
    """

    parts: PCollection
    files: PCollection
    rejected: PCollection


class ReadCoco(beam.PTransform):
    """Paths of COCO object instance files become CocoFiles."""

    def expand(self, paths):
        read = paths | "ReadFile" >> beam.FlatMap(_read).with_output_types(tuple[int, ImagePart]).with_outputs(
            FILES, REJECTED, main="parts"
        )
        return CocoFiles(read.parts, read[FILES], read[REJECTED])


def _read(path: str) -> Iterator[Any]:
    progress.entered("reading annotations")
    return tag_by_type((item.image_id, item) if isinstance(item, ImagePart) else item for item in read_coco(path))


def read_coco(path: str) -> Iterator[ImagePart | AnnotationFile | Rejected]:
    """What a COCO object instance file (https://cocodataset.org/#format-data) holds.

    Yields an ImagePart for each image id its rows name, a Rejected for each row that cannot be used, and one
    AnnotationFile.

    Raises:
        AnnotationFileError: not JSON (the message gives line and column), or not COCO's.
        OSError: the file cannot be read.
    """
    _LOGGER.info("Reading %s", path)
    with _gc_paused():
        rows = _decode(path, storage_for(path).read(path))
        parts = _group(rows)
    yield from rows.rejected
    for image_id, images, annotations in parts:
        usable = []
        for row in annotations:
            annotation = _annotation(row)
            if isinstance(annotation, Rejected):
                yield annotation
            else:
                usable.append(annotation)
        yield ImagePart(image_id, path, tuple(map(_image, images)), tuple(usable))
    bad_images = sum(reject.what == "image" for reject in rows.rejected)
    yield AnnotationFile(
        path,
        len(rows.images) + bad_images,
        len(rows.annotations) + len(rows.rejected) - bad_images,
        tuple(rows.categories),
    )


# The rows as msgspec reads them. `Raw` fields keep their JSON text.


class _ImageRow(msgspec.Struct, gc=False):
    id: Int64
    file_name: str
    width: Int64 | None = None
    height: Int64 | None = None


class _AnnotationRow(msgspec.Struct, gc=False):
    id: Int64
    image_id: Int64
    category_id: Int64
    bbox: msgspec.Raw
    area: float | None = None
    iscrowd: int | bool | None = 0


class _TypedFile(msgspec.Struct):
    images: list[_ImageRow]
    annotations: list[_AnnotationRow] = []
    categories: list[Category] = []


class _RawFile(msgspec.Struct):
    images: list[msgspec.Raw]
    annotations: list[msgspec.Raw] = []
    categories: list[msgspec.Raw] = []


class _Rows(NamedTuple):
    images: list[_ImageRow]
    annotations: list[_AnnotationRow]
    categories: list[Category]
    rejected: list[Rejected]


_TYPED_FILE = msgspec.json.Decoder(_TypedFile)
_RAW_FILE = msgspec.json.Decoder(_RawFile)
# Row by row, "5" and 5.0 pass for 5, as in files written by spreadsheets and by JavaScript.
_IMAGE_ROW = msgspec.json.Decoder(_ImageRow, strict=False)
_ANNOTATION_ROW = msgspec.json.Decoder(_AnnotationRow, strict=False)
_CATEGORY_ROW = msgspec.json.Decoder(Category, strict=False)
_BOX = msgspec.json.Decoder(tuple[float, float, float, float])


def _decode(path: str, data: bytes) -> _Rows:
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return _decode_rows(path, data)
    except UnicodeDecodeError as error:
        raise AnnotationFileError(f"{path} is not UTF-8, as JSON has to be: {error.reason}") from error
    except msgspec.DecodeError as error:
        quoted = _quote_nan(data)
        if quoted == data:
            raise AnnotationFileError(_not_json(path, data, _fault_offset(error, data), error)) from error
    try:
        return _decode_rows(path, quoted)
    except msgspec.DecodeError as error:
        place = _unquoted_offset(data, _fault_offset(error, quoted))
        raise AnnotationFileError(_not_json(path, data, place, error)) from error


def _decode_rows(path: str, data: bytes) -> _Rows:
    try:
        file = _TYPED_FILE.decode(data)
        return _Rows(file.images, file.annotations, file.categories, [])
    except msgspec.ValidationError:
        return _decode_row_by_row(path, data)


def _decode_row_by_row(path: str, data: bytes) -> _Rows:
    try:
        file = _RAW_FILE.decode(data)
        categories = [_CATEGORY_ROW.decode(raw) for raw in file.categories]
    except msgspec.ValidationError as error:
        raise AnnotationFileError(
            f"{path} is JSON, but not a COCO file: {error}; expected an object with the lists images, annotations and "
            "categories (a category has an integer id and a name)"
        ) from error
    rows = _Rows([], [], categories, [])
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


def _group(rows: _Rows) -> Iterator[tuple[int, list[_ImageRow], list[_AnnotationRow]]]:
    """Rows by image id; a sort of ids costs half of what a dict of lists does."""
    image_ids = np.fromiter((row.image_id for row in rows.annotations), np.int64, len(rows.annotations))
    order = np.argsort(image_ids, kind="stable")
    image_ids = image_ids[order]
    starts = np.flatnonzero(np.diff(image_ids, prepend=image_ids[:1] - 1))
    ends = np.append(starts, len(order))[1:]
    spans = dict(zip(image_ids[starts].tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True))
    images: dict[int, list[_ImageRow]] = {}
    for row in rows.images:
        images.setdefault(row.id, []).append(row)

    def groups() -> Iterator[tuple[int, list[_ImageRow], list[_AnnotationRow]]]:
        for image_id in images.keys() | spans.keys():
            start, end = spans.get(image_id, (0, 0))
            yield image_id, images.get(image_id, []), [rows.annotations[place] for place in order[start:end].tolist()]

    return groups()


def _image(row: _ImageRow) -> CocoImage:
    # Exporters that do not know the size write 0.
    known = row.width is not None and row.height is not None and row.width > 0 and row.height > 0
    return CocoImage(row.id, row.file_name, row.width if known else None, row.height if known else None)


def _annotation(row: _AnnotationRow) -> Annotation | Rejected:
    try:
        box = _BOX.decode(row.bbox)
        fault = box_fault(box)
    except msgspec.DecodeError:
        fault = "bbox is not a list of four numbers"
    if fault:
        shown = bytes(row.bbox)[:100].decode(errors="replace")
        return Rejected("annotation", row.id, Reason.MALFORMED_BOX, f"{fault}: {shown}", row.image_id)
    area = row.area if row.area is not None else box[2] * box[3]
    if not abs(area) <= _LARGEST:
        return Rejected("annotation", row.id, Reason.MALFORMED_ANNOTATION, f"area is {area}", row.image_id)
    return Annotation(row.id, row.category_id, box, area, bool(row.iscrowd))


_LARGEST = 1e18
"""More pixels, or square pixels, than any image has; records keep 32-bit floats, which end at 3.4e38."""


def box_fault(bbox_xywh_px: tuple[float, float, float, float]) -> str:
    """What makes a box unusable whatever its image's size; empty for a good one.

    >>> box_fault((1.0, 2.0, -3.0, 4.0))
    'bbox has a negative width or height'
    """
    if not all(abs(number) <= _LARGEST for number in bbox_xywh_px):
        return "bbox has a number that is beyond any image"
    if bbox_xywh_px[2] < 0 or bbox_xywh_px[3] < 0:
        return "bbox has a negative width or height"
    return ""


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


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """The garbage collector would walk a million fresh rows again and again (a third of the time), and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
