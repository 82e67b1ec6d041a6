"""The JSON of a COCO file becomes rows of the expected types.

msgspec splits the file in one pass and leaves boxes as slices of its bytes. A file in which any row is not of the
expected types is decoded again row by row, slower, so that one bad row costs itself and not the file.
"""

import codecs
import contextlib
import re
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from recordmill.schemas.annotations import Category, Int64
from recordmill.schemas.coco import AnnotationKind, SegmentId
from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.rejects import Reason, Rejected


class CocoImageRow(msgspec.Struct, gc=False):
    """A row of `images`; sizes in pixels. The two lists are LVIS's."""

    id: Int64
    file_name: str
    width: Int64 | None = None
    height: Int64 | None = None
    neg_category_ids: list[Int64] | None = None
    not_exhaustive_category_ids: list[Int64] | None = None


class AddressedImageRow(msgspec.Struct, gc=False):
    """A row of `images` that may have an address in place of a file name, as LVIS's rows do."""

    id: Int64
    file_name: str | msgspec.UnsetType = msgspec.UNSET
    width: Int64 | None = None
    height: Int64 | None = None
    neg_category_ids: list[Int64] | None = None
    not_exhaustive_category_ids: list[Int64] | None = None
    coco_url: str | None = None

    def __post_init__(self):
        if self.file_name is msgspec.UNSET and not self.coco_url:
            raise ValueError("it has neither file_name nor coco_url")

    def named(self) -> CocoImageRow:
        """The row with the file's name, if need be the one at the end of the address."""
        name = (self.coco_url or "").rpartition("/")[2] if self.file_name is msgspec.UNSET else self.file_name
        lists = self.neg_category_ids, self.not_exhaustive_category_ids
        return CocoImageRow(self.id, name, self.width, self.height, *lists)


class AnnotationRow(msgspec.Struct, gc=False):
    """A row of `annotations` with an object's box, which keeps its JSON text."""

    id: Int64
    image_id: Int64
    category_id: Int64
    bbox: msgspec.Raw
    area: float | None = None
    iscrowd: int | bool | None = 0


_NO_TEXT = msgspec.Raw(b"")


class MaskedRow(AnnotationRow, gc=False):
    """… that keeps its segmentation's text, too; other rows pass over it."""

    segmentation: msgspec.Raw = _NO_TEXT


class KeypointsRow(AnnotationRow, gc=False):
    """A row of `annotations` of a keypoints file."""

    keypoints: msgspec.Raw = _NO_TEXT


class MaskedKeypointsRow(KeypointsRow, gc=False):
    """… that keeps its segmentation's text."""

    segmentation: msgspec.Raw = _NO_TEXT


class CaptionRow(msgspec.Struct, gc=False):
    """A row of `annotations` of a captions file."""

    id: Int64
    image_id: Int64
    caption: str


class RegionRow(msgspec.Struct, gc=False):
    """A row of `annotations` of a stuff file."""

    id: Int64
    image_id: Int64
    category_id: Int64
    segmentation: msgspec.Raw


class SegmentRow(msgspec.Struct, gc=False):
    """An entry of `segments_info`."""

    id: SegmentId
    category_id: Int64
    iscrowd: int | bool | None = 0
    bbox: tuple[float, float, float, float] | None = None
    area: float | None = None


class PanopticRow(msgspec.Struct, gc=False):
    """A row of `annotations` of a panoptic file; it has no id of its own."""

    image_id: Int64
    file_name: str
    segments_info: list[SegmentRow]


Image = TypeVar("Image")
Row = TypeVar("Row")


class _TypedFile(msgspec.Struct, Generic[Image, Row]):
    images: list[Image]
    annotations: list[Row] = []
    categories: list[Category] = []


class RawFile(msgspec.Struct):
    images: list[msgspec.Raw]
    annotations: list[msgspec.Raw] = []
    categories: list[msgspec.Raw] = []


class CocoRows(NamedTuple):
    """The rows of a file that are of the expected types, and a reject for each that is not."""

    images: list[CocoImageRow]
    annotations: list[Any]
    categories: list[Category]
    rejected: list[Rejected]


class _Decoders(NamedTuple):
    """How one kind of file is read: all at once, images having names or else addresses; or annotation rows one by one,
    and what a bad one is."""

    named: msgspec.json.Decoder
    addressed: msgspec.json.Decoder
    row: msgspec.json.Decoder
    malformed: Reason


def _decoders(row: type, malformed: Reason = Reason.MALFORMED_ANNOTATION) -> _Decoders:
    # Row by row, "5" and 5.0 pass for 5, as in files written by spreadsheets and by JavaScript.
    file: Any = _TypedFile
    return _Decoders(
        msgspec.json.Decoder(file[CocoImageRow, row]),
        msgspec.json.Decoder(file[AddressedImageRow, row]),
        msgspec.json.Decoder(row, strict=False),
        malformed,
    )


_DECODERS = {
    AnnotationKind.INSTANCES: _decoders(AnnotationRow),
    AnnotationKind.KEYPOINTS: _decoders(KeypointsRow),
    AnnotationKind.CAPTIONS: _decoders(CaptionRow, Reason.MALFORMED_CAPTION),
    AnnotationKind.STUFF: _decoders(RegionRow),
    AnnotationKind.PANOPTIC: _decoders(PanopticRow, Reason.MALFORMED_PANOPTIC),
    AnnotationKind.IMAGE_INFO: _decoders(msgspec.Raw),
}
_MASKED_DECODERS = _DECODERS | {
    AnnotationKind.INSTANCES: _decoders(MaskedRow),
    AnnotationKind.KEYPOINTS: _decoders(MaskedKeypointsRow),
}
RAW_FILE = msgspec.json.Decoder(RawFile)
_IMAGE_ROW = msgspec.json.Decoder(AddressedImageRow, strict=False)
_CATEGORY_ROW = msgspec.json.Decoder(Category, strict=False)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_coco(path: str, data: bytes, kind: AnnotationKind, masks: bool = False) -> CocoRows:
    """The rows of a COCO file's bytes.

    Args:
        path: for messages.
        masks: whether object rows keep the text of their segmentation.

    Raises:
        AnnotationFileError: not JSON (the message gives line and column), or not COCO's; `path` is named.
    """
    decoders = (_MASKED_DECODERS if masks else _DECODERS)[kind]
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return _decode_rows(path, data, decoders)
    except UnicodeDecodeError as error:
        raise AnnotationFileError(_not_utf8(path, error)) from error
    except RecursionError as error:
        raise AnnotationFileError(f"{path} nests lists or objects too deeply to be a COCO file") from error
    except msgspec.DecodeError as error:
        quoted = _quote_nan(_without_lone_surrogates(data))
        if quoted == data:
            raise AnnotationFileError(_not_json(path, data, _fault_offset(error, data), error)) from error
    try:
        return _without_quoted_captions(_decode_rows(path, quoted, decoders))
    except UnicodeDecodeError as error:
        raise AnnotationFileError(_not_utf8(path, error)) from error
    except msgspec.DecodeError as error:
        offset = _unquoted_offset(data, _fault_offset(error, quoted))
        raise AnnotationFileError(_not_json(path, data, offset, error)) from error


def _decode_rows(path: str, data: bytes, decoders: _Decoders) -> CocoRows:
    with contextlib.suppress(msgspec.ValidationError):
        file = decoders.named.decode(data)
        return CocoRows(file.images, file.annotations, file.categories, [])
    with contextlib.suppress(msgspec.ValidationError):
        file = decoders.addressed.decode(data)
        return CocoRows([row.named() for row in file.images], file.annotations, file.categories, [])
    return _decode_row_by_row(path, data, decoders)


def _decode_row_by_row(path: str, data: bytes, decoders: _Decoders) -> CocoRows:
    try:
        file = RAW_FILE.decode(data)
        categories = [_category(raw) for raw in file.categories]
    except msgspec.ValidationError as error:
        raise AnnotationFileError(
            f"{path} is JSON, but not a COCO file: {error}; expected an object with the lists images, annotations and "
            "categories (a category has an integer id and a name)"
        ) from error
    rows = CocoRows([], [], categories, [])
    for raw in file.images:
        try:
            rows.images.append(_IMAGE_ROW.decode(raw).named())
        except msgspec.ValidationError as error:
            rows.rejected.append(Rejected("image", _peek(raw, "id"), Reason.MALFORMED_IMAGE, f"image row: {error}"))
    for raw in file.annotations:
        try:
            rows.annotations.append(decoders.row.decode(raw))
        except msgspec.ValidationError as error:
            detail = f"annotation row: {error}"
            rows.rejected.append(
                Rejected("annotation", _peek(raw, "id"), decoders.malformed, detail, _peek(raw, "image_id"))
            )
    return rows


def _category(raw: msgspec.Raw) -> Category:
    """A category; an odd value in a field that it can do without costs that field only."""
    try:
        return _CATEGORY_ROW.decode(raw)
    except msgspec.ValidationError:
        fields = _FIELDS.decode(raw)
        required = b",".join(b'"%b":%b' % (key.encode(), fields[key]) for key in ("id", "name") if key in fields)
        category = _CATEGORY_ROW.decode(b"{%b}" % required)
        for key in _OPTIONAL_FIELDS & fields.keys():
            with contextlib.suppress(msgspec.ValidationError):
                value = msgspec.json.decode(fields[key], type=_OPTIONAL_TYPES[key], strict=False)
                category = msgspec.structs.replace(category, **{key: value})
        return category


_OPTIONAL_TYPES = {field.name: field.type for field in msgspec.structs.fields(Category) if not field.required}
_OPTIONAL_FIELDS = _OPTIONAL_TYPES.keys()


def _peek(raw: msgspec.Raw, key: str) -> int | None:
    """An id from a row that did not decode, for the reject's line; None where there is none."""
    try:
        value = msgspec.json.decode(raw)[key]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


_ESCAPES = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.", re.DOTALL)


def _without_lone_surrogates(data: bytes) -> bytes:
    """Halves of a character, which Python's json writes though UTF-8 cannot, become the sign for an unknown one."""
    return _ESCAPES.sub(lambda match: b"\\ufffd" if match[1] else match[0], data)


_NAN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')


def _quote_nan(data: bytes) -> bytes:
    """NaN and Infinity, which Python's json writes though JSON has no such words, become strings: a row that has one
    where a number should be is then rejected, and the others are read."""
    return _NAN.sub(lambda match: match[0] if match[0].startswith(b'"') else b'"' + match[0] + b'"', data)


def _without_quoted_captions(rows: CocoRows) -> CocoRows:
    """A caption NaN, as pandas writes one that is missing, is no text, though it has become one."""
    words = ("NaN", "Infinity", "-Infinity")
    bad = [row for row in rows.annotations if getattr(row, "caption", None) in words]
    rejected = [
        Rejected("annotation", row.id, Reason.MALFORMED_CAPTION, f"the caption is {row.caption}", row.image_id)
        for row in bad
    ]
    kept = [row for row in rows.annotations if row not in bad] if bad else rows.annotations
    return rows._replace(annotations=kept, rejected=[*rows.rejected, *rejected])


def _unquoted_offset(data: bytes, quoted_offset: int) -> int:
    """The offset in `data` of an offset in `_quote_nan(data)`."""
    added = 0
    for match in _NAN.finditer(data):
        if match.start() + added >= quoted_offset:
            break
        added += 0 if match[0].startswith(b'"') else 2
    return quoted_offset - added


def _fault_offset(error: msgspec.DecodeError, data: bytes) -> int:
    offset = re.search(r"byte (\d+)", str(error))
    return int(offset[1]) if offset else len(data)


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
