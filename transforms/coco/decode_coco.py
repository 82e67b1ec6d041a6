"""Decode the JSON of a COCO file to typed rows."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.field_features import AXES
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.coco import AnnotationKind, FieldRows
from recordmill.schemas.inputs.fields import NO_FIELDS, NONE_SELECTED, FieldSelection
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.json_text import quote_nan, without_lone_surrogates
from recordmill.schemas.rejects import NO_ID_TEXTS, IdTexts, Reason, Rejected
from recordmill.transforms.coco.coco_rows import (
    AddressedImageRow,
    AnnotationRow,
    CaptionRow,
    CocoImageRow,
    KeypointsRow,
    MaskedKeypointsRow,
    MaskedRow,
    PanopticRow,
    RegionRow,
    RowDecoder,
    SegmentRow,
    id_number,
    polygon_bounds,
)
from recordmill.transforms.coco.file_fields import (
    FIELDS,
    LISTS,
    RAW_FILE,
    DecodedFile,
    count_entry_fields,
    count_fields,
    decode_with_fields,
    drop_fields,
    field_names,
    field_rows,
    has_data,
    required_names,
)
from recordmill.transforms.coco.pick_fields import (
    NO_PICKED,
    PickedFields,
    nested_paths,
    pick_fields,
)
from recordmill.transforms.images.decode_segmentation import run_bounds_px


class CocoRows(NamedTuple):
    """Typed rows of a block, and a reject for each row that has the wrong type.

    Attributes:
        unread: Number of rows with data in each field that the types do not have.
        fields: Names of the fields in which at least one annotation row has data.
        has_annotations: True if the file has a list of annotations. The list may be empty.
        sampled: Every n-th object row; `file_fields.field_text` has its segmentation.
        without_box: Number of object rows whose `bbox` was made from segmentations.
        rotated: Number of rows with `attributes.rotation`, which CVAT writes.
        id_texts: Ids that are strings other than decimal numbers.
        number_texts: Number of rows with a number as text.
        objects: Columns of `annotations`, see `convert_rows.convert_plain_objects`.
        image_fields, object_fields: Requested open fields of `images` and of `annotations`.
    """

    images: list[CocoImageRow]
    annotations: list[Any]
    categories: list[Category]
    rejected: list[Rejected]
    unread: FieldRows
    fields: frozenset[str]
    has_annotations: bool
    sampled: list[Any] = []
    without_box: int = 0
    rotated: int = 0
    id_texts: IdTexts = NO_ID_TEXTS
    number_texts: int = 0
    objects: dict[str, Any] | None = None
    image_fields: PickedFields = NO_PICKED
    object_fields: PickedFields = NO_PICKED


class _RowType(NamedTuple):
    """Type of the annotation rows of a kind of file.

    Attributes:
        malformed: Reject reason of a malformed row.
        text: Name of the field that must be a string.
        fills_boxes: True to make missing boxes from segmentations.
        sampled: See `CocoRows.sampled`.
        has_fields: True if its rows have open fields.
        fields: Requested open fields of image rows, and of annotation rows.
        is_quoted: True if NaN and infinity are quoted.
    """

    type: Any
    malformed: Reason = Reason.MALFORMED_ANNOTATION
    text: str = ""
    fills_boxes: bool = False
    sampled: slice = slice(0)
    has_fields: bool = False
    fields: tuple[FieldSelection, FieldSelection] = NONE_SELECTED
    is_quoted: bool = False

    def pick(self, images: Sequence[Any], annotations: Sequence[Any]) -> Iterator[PickedFields]:
        """Yield the requested open fields of image rows, and of annotation rows. See `pick_fields`."""
        for axis, rows, selection in zip(AXES, (images, annotations), self.fields, strict=True):
            if selection:
                yield pick_fields(axis, rows, selection, self.is_quoted)
            else:
                yield nested_paths(axis, rows) if self.has_fields else NO_PICKED


_ROW_TYPES = {
    AnnotationKind.INSTANCES: _RowType(AnnotationRow, has_fields=True),
    AnnotationKind.KEYPOINTS: _RowType(KeypointsRow, has_fields=True),
    AnnotationKind.CAPTIONS: _RowType(CaptionRow, Reason.MALFORMED_CAPTION, "caption"),
    AnnotationKind.STUFF: _RowType(RegionRow),
    AnnotationKind.PANOPTIC: _RowType(PanopticRow, Reason.MALFORMED_PANOPTIC, "file_name"),
    AnnotationKind.IMAGE_INFO: _RowType(msgspec.Raw),
}
_MASKED = {AnnotationRow: MaskedRow, KeypointsRow: MaskedKeypointsRow}
"""Types with the JSON text of the segmentation, by type without."""
_AS_FILE = {"": b"%b", "images": b'{"images":[%b]}', "annotations": b'{"images":[],"annotations":[%b]}'}
"""Template of a COCO file with only the rows of a block, by name of the list."""
_CATEGORY_ROW = msgspec.json.Decoder(Category, strict=False)


_ROTATION = re.compile(rb'"attributes"\s*:\s*\{[^{}]*"rotation"\s*:\s*-?[0-9.]*[1-9]')


_NULL, _NO_NUMBERS = msgspec.Raw(b"null"), msgspec.Raw(b"[]")


def _has_no_box(row: AnnotationRow) -> bool:
    return row.bbox == _NULL or row.bbox == _NO_NUMBERS


def _fill_box(raw: msgspec.Raw) -> msgspec.Raw:
    """Return the row of an object. A row without a `bbox`, or with an empty one, gets the bounds of its masks."""
    fields = FIELDS.decode(raw)
    segmentation = bytes(fields.get("segmentation", b""))
    if not segmentation or fields.get("bbox", _NULL) not in (_NULL, _NO_NUMBERS):
        return raw
    bounds = polygon_bounds(segmentation) or run_bounds_px(segmentation)
    if bounds is None:
        return raw
    left, top, right, bottom = bounds
    box = msgspec.Raw(msgspec.json.encode((left, top, right - left, bottom - top)))
    return msgspec.Raw(msgspec.json.encode({**fields, "bbox": box}))


def decode_coco(
    path: str,
    list_: str,
    text: bytes,
    kind: AnnotationKind,
    masks: bool = False,
    fills_boxes: bool = False,
    sampled: slice = slice(0),
    fields: tuple[FieldSelection, FieldSelection] = NONE_SELECTED,
) -> CocoRows:
    """Decode a block's rows, see `recordmill.transforms.coco.cut_blocks.JsonBlock`.

    Args:
        path: Path of the file, for messages.
        masks: True to keep the JSON text of the segmentation of object rows.
        fills_boxes: True to give object rows without `bbox` the bounds of their segmentations.
        sampled: Object rows to sample. Malformed rows are skipped.
        fields: Requested open fields of images, and of objects.

    Raises:
        AnnotationFileError: The text is not of a COCO file.
    """
    row = _ROW_TYPES[kind]._replace(fills_boxes=fills_boxes, sampled=sampled)
    row = row._replace(fields=fields if row.has_fields else (fields[0], NO_FIELDS))
    if masks:
        row = row._replace(type=_MASKED.get(row.type, row.type))
    data = _AS_FILE[list_] % text
    try:
        try:
            return _decode_rows(path, data, row)
        except msgspec.DecodeError:
            data = without_lone_surrogates(data)
        rows = _decode_rows(path, quote_nan(data), row._replace(is_quoted=True))
        are_quoted = _are_quoted(data, "categories", _decode_category, "name")
        for category in rows.categories:
            if category.name in _NO_TEXTS and next(are_quoted):
                raise AnnotationFileError(
                    f"{path}: the name of category {category.id} is {category.name}, not a string"
                )
        return _reject_quoted_texts(rows, data, row)
    except UnicodeDecodeError as error:
        raise AnnotationFileError(f"{path} is not UTF-8, as JSON has to be: {error.reason}") from error
    except RecursionError as error:
        raise AnnotationFileError(f"{path} nests lists or objects too deeply to be a COCO file") from error


def _decode_rows(path: str, data: bytes, row: _RowType) -> CocoRows:
    rows = None
    for image in CocoImageRow, AddressedImageRow:
        with contextlib.suppress(msgspec.ValidationError):
            file = decode_with_fields(data, image, row.type)
            rows = _collect_rows(path, file, [], row)
            rows = rows._replace(sampled=rows.annotations[row.sampled])
            break
    if rows is None or (row.fills_boxes and any(map(_has_no_box, rows.annotations))):
        rows = _decode_row_by_row(path, data, row)
    else:
        image_fields, object_fields = row.pick(file.images, file.annotations or [])
        rows = rows._replace(image_fields=image_fields, object_fields=object_fields)
    if row.type is PanopticRow and (segment_counts := count_entry_fields(data, "segments_info", SegmentRow)):
        counts = {**rows.unread.get("annotations", {}), **segment_counts}
        rows = rows._replace(unread={**rows.unread, "annotations": dict(sorted(counts.items()))})
    return rows._replace(rotated=len(_ROTATION.findall(data))) if b'"rotation"' in data else rows


def _decode_row_by_row(path: str, data: bytes, row: _RowType) -> CocoRows:
    """Decode the rows one by one. "5" and 5.0 are valid integers, as spreadsheets and JavaScript write them."""
    try:
        file = RAW_FILE.decode(data)
    except msgspec.ValidationError as error:
        raise _not_coco_error(path, data, error) from error
    images, annotations = [], []
    raw_images, raw_annotations = list[msgspec.Raw](), list[msgspec.Raw]()  # of rows that decode
    rejected = []
    texts = IdTexts({}, {})
    decode_image, decode = RowDecoder(AddressedImageRow, texts), RowDecoder(row.type, texts)
    for raw in file.images:
        try:
            images.append(decode_image(raw))
            raw_images.append(raw)
        except msgspec.ValidationError as error:
            id_ = _peek_id(raw, "id", texts.images)
            rejected.append(Rejected("image", id_, Reason.MALFORMED_IMAGE, f"image row: {error}"))
    rows = file.annotations or []
    without_box = 0
    for raw in rows:
        try:
            filled = _fill_box(raw) if row.fills_boxes else raw
            annotations.append(decode(filled))
            raw_annotations.append(raw)
            without_box += filled is not raw
        except msgspec.ValidationError as error:
            detail = f"annotation row: {error}"
            id_, image_id = _peek_id(raw, "id", texts.annotations), _peek_id(raw, "image_id", texts.images)
            rejected.append(Rejected("annotation", id_, row.malformed, detail, image_id))
    counts = count_fields([msgspec.Raw(data)]), count_fields(file.images), count_fields(rows)
    usable = annotations if file.annotations is not msgspec.UNSET else msgspec.UNSET
    decoded = _collect_rows(path, DecodedFile(images, usable, file.categories, counts), rejected, row)
    decode_sampled, sampled = RowDecoder(_MASKED.get(row.type, row.type), IdTexts({}, {})), []
    for raw in rows[row.sampled]:
        with contextlib.suppress(msgspec.DecodeError):
            sampled.append(decode_sampled(raw))
    image_fields, object_fields = row.pick(raw_images, raw_annotations)
    return decoded._replace(
        image_fields=image_fields,
        object_fields=object_fields,
        without_box=without_box,
        id_texts=texts,
        number_texts=decode_image.number_texts + decode.number_texts,
        sampled=sampled,
    )


def _collect_rows(path: str, file: DecodedFile, rejected: list[Rejected], row: _RowType) -> CocoRows:
    """Return the rows of a decoded file."""
    file_counts, image_counts, annotation_counts = file.counts
    try:
        categories = list(map(_decode_category, file.categories))
    except msgspec.ValidationError as error:
        raise _not_coco_error(path, b"", error) from error
    images = file.images
    if images and isinstance(images[0], AddressedImageRow):
        # After decoding row by row, `image_counts` already has coco_url, with the rejected rows counted.
        image_counts = {"coco_url": sum(has_data(image.coco_url) for image in images), **image_counts}
        images = [image.named() for image in images]
    unread = field_rows(
        drop_fields(file_counts, LISTS),
        drop_fields(image_counts, field_names(CocoImageRow)),
        drop_fields(annotation_counts, field_names(row.type)),
        drop_fields(count_fields(file.categories), field_names(Category)),
    )
    annotations = file.annotations or []
    fields = {name for name, number in annotation_counts.items() if number}
    if annotations:
        fields |= required_names(row.type)
    has_list = file.annotations is not msgspec.UNSET
    return CocoRows(images, annotations, categories, rejected, unread, frozenset(fields), has_list)


def _not_coco_error(path: str, data: bytes, error: msgspec.ValidationError) -> AnnotationFileError:
    if kind := describe_content(data):
        return AnnotationFileError(f"{path} is {kind}")
    return AnnotationFileError(
        f"{path} is JSON, but not a COCO file: {error}; expected an object with the lists images, annotations and "
        "categories (a category has an integer id and a name)"
    )


def _decode_category(raw: msgspec.Raw) -> Category:
    """Decode a category. An invalid value in an optional field drops only that field."""
    try:
        return _CATEGORY_ROW.decode(raw)
    except msgspec.ValidationError:
        fields = FIELDS.decode(raw)
        required = b",".join(b'"%b":%b' % (key.encode(), fields[key]) for key in ("id", "name") if key in fields)
        category = _CATEGORY_ROW.decode(b"{%b}" % required)
        for key in _OPTIONAL_FIELDS & fields.keys():
            with contextlib.suppress(msgspec.ValidationError):
                value = msgspec.json.decode(fields[key], type=_OPTIONAL_TYPES[key], strict=False)
                category = msgspec.structs.replace(category, **{key: value})
        return category


_OPTIONAL_TYPES = {field.name: field.type for field in msgspec.structs.fields(Category) if not field.required}
_OPTIONAL_FIELDS = _OPTIONAL_TYPES.keys()


def _peek_id(raw: msgspec.Raw, key: str, texts: dict[int, str]) -> int | None:
    """Return the id of a row that did not decode; None without a valid id. `texts` gets the id if it is a string."""
    try:
        value = msgspec.json.decode(raw)[key]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    if isinstance(value, str) and value:
        return id_number(value, texts)
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


_NO_TEXTS = ("NaN", "Infinity", "-Infinity")


def _are_quoted(data: bytes, list_: str, decode: Callable[[msgspec.Raw], Any], key: str) -> Iterator[bool]:
    """Yield a bool for each row with a value of _NO_TEXTS: False if it is a string in `data`, True for a bare word."""
    for word in _NO_TEXTS:  # respell the strings of `data` by an escape, to tell them from quoted words
        data = data.replace(f'"{word}"'.encode(), f'"\\u{ord(word[0]):04x}{word[1:]}"'.encode())
    for raw in getattr(RAW_FILE.decode(quote_nan(data)), list_):
        with contextlib.suppress(msgspec.ValidationError):
            if (text := getattr(decode(raw), key, None)) in _NO_TEXTS:
                yield bytes(FIELDS.decode(raw).get(key, b"")) == f'"{text}"'.encode()


def _reject_quoted_texts(rows: CocoRows, data: bytes, row_type: _RowType) -> CocoRows:
    """Reject rows whose caption or file name is the bare word NaN or Infinity. pandas writes NaN for missing values."""
    decode_image = RowDecoder(AddressedImageRow, IdTexts({}, {}))
    valid_rows: dict[str, list[Any]] = {"images": [], "annotations": []}
    picked = {"images": rows.image_fields, "annotations": rows.object_fields}
    valid_fields: dict[str, list[bytes]] = {"images": [], "annotations": []}
    rejected = list(rows.rejected)
    for list_, decode, key in (
        ("images", lambda raw: decode_image(raw).named(), "file_name"),
        ("annotations", RowDecoder(row_type.type, IdTexts({}, {})), row_type.text),
    ):
        are_quoted = _are_quoted(data, list_, decode, key)
        for row, fields in zip_longest(getattr(rows, list_), picked[list_].texts, fillvalue=b""):
            if (text := getattr(row, key, None)) not in _NO_TEXTS or not next(are_quoted):
                valid_rows[list_].append(row)
                valid_fields[list_].append(fields)
                continue
            detail = f"the {key} is {text}" + ", not a string" * (key == "file_name")
            what, reason = (
                ("image", Reason.MALFORMED_IMAGE) if list_ == "images" else ("annotation", row_type.malformed)
            )
            rejected.append(Rejected(what, getattr(row, "id", None), reason, detail, getattr(row, "image_id", None)))
    return rows._replace(
        images=valid_rows["images"],
        annotations=valid_rows["annotations"],
        rejected=rejected,
        image_fields=picked["images"]._replace(texts=valid_fields["images"]),
        object_fields=picked["annotations"]._replace(texts=valid_fields["annotations"]),
    )
