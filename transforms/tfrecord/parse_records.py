"""Convert the records of other tools to images with objects. An image stays a range of bytes of its file."""

import io
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from PIL import Image

from recordmill.schemas.errors import RecordError
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER, SPLIT_OF_WORD, name_id
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.sizes import number_text
from recordmill.transforms.annotated.naming import MASKS, fraction_box
from recordmill.transforms.annotated.shapes import check_fractions, mask_text
from recordmill.transforms.annotated.source import ImageParts, LabelledImage, parser, unusable_image
from recordmill.transforms.images.load_images import encoded_size
from recordmill.transforms.images.open_image import image_kind
from recordmill.transforms.records.example import cut_large_values
from recordmill.transforms.records.parse_record import TypedValues, Values, first_line, parse_example, parse_record
from recordmill.transforms.records.tfrecord import HEADER_BYTES, read_usable_records
from recordmill.transforms.tfrecord.label_map import ClassNames
from recordmill.transforms.tfrecord.record_keys import (
    AREA,
    CAPTION,
    CROWD,
    EDGES,
    FIELDS,
    GROUP,
    HEIGHT,
    ID,
    IMAGE,
    LABEL,
    MASK,
    MASK_RLE,
    NAME,
    OBJECT_ID,
    POINT_V,
    POINT_X,
    POINT_Y,
    TAG_LABEL,
    TAG_TEXT,
    TEXT,
    WIDTH,
    XYWH,
    YXYX,
    RecordKeys,
)

_WHOLE = re.compile(r"-?[1-9][0-9]{0,17}|0")
_NOT_LETTERS = re.compile(r"[^a-z]+")
_PARTS_OF_NUMBERS = frozenset(("of",))
_FOUND_BY = 64
"""Number of the first bytes of an image that are searched for in its record."""


class RecordRules(NamedTuple):
    """Meaning of the records of a data set.

    Attributes:
        classes: Names of classes that records give by number; None if records have the names.
        only_class: Class of objects without one; empty without.
        by_name: True if the names of files give the splits.
        has_masks: True if records store masks.
        has_captions: True if records store captions.
    """

    keys: RecordKeys
    classes: ClassNames | None = None
    only_class: str = ""
    by_name: bool = False
    has_masks: bool = False
    has_captions: bool = False


class RecordReader:
    """Values of a record by role, see `record_keys`."""

    def __init__(self, record: bytes, keys: RecordKeys):
        """Raises UnusableError if the record is not a tf.train.Example."""
        rest, large = cut_large_values(record)  # protobuf would copy an image
        try:
            values, steps = parse_record(bytes(rest))
            if any(name in values for name in large):  # the last one counts
                values, large = parse_example(record), {}
        except DecodeError as error:
            detail = f"it is not a tf.train.Example: {first_line(error)}"
            raise UnusableError(Reason.MALFORMED_IMAGE, detail) from error
        if steps:
            raise UnusableError(Reason.MALFORMED_IMAGE, "it is a tf.train.SequenceExample, not a tf.train.Example")
        self.values: dict[str, TypedValues] = values
        self.values |= {name: (FeatureKind.BYTES, [bytes(value)]) for name, value in large.items()}
        self._names = keys.names

    def names_of(self, role: str) -> tuple[str, ...]:
        """Return the names that the key of a role may have."""
        return self._names.get(role, ())

    def values_of(self, role: str) -> Values:
        """Return the values of a role, of any kind; [] without."""
        return self._find(role)[1]

    def _find(self, role: str) -> tuple[FeatureKind | None, Values]:
        typed = (self.values[name] for name in self.names_of(role) if name in self.values)
        return next(typed, (None, []))

    @property
    def has_boxes(self) -> bool:
        return bool(len(self.values_of(EDGES[0])) or len(self.values_of(XYWH)) or len(self.values_of(YXYX)))

    def name(self, role: str) -> str:
        """Return the name of the key of a role, for messages: the one that the record has, or the usual one."""
        names = self.names_of(role)
        return next((name for name in names if name in self.values), next(iter(names), role))

    def get(self, role: str, kind: FeatureKind | None = None) -> list[Any]:
        """Return the values of a role; [] without.

        Args:
            kind: BYTES for texts and files; None for numbers.

        Raises:
            UnusableError: They have another kind.
        """
        found_kind, values = self._find(role)
        if not len(values):
            return []
        if (found_kind is FeatureKind.BYTES) != (kind is FeatureKind.BYTES):
            wanted = "bytes" if kind is FeatureKind.BYTES else "numbers"
            detail = f"{self.name(role)} is {found_kind.value if found_kind else ''}, not {wanted}"
            raise UnusableError(Reason.MALFORMED_IMAGE, detail)
        return values if isinstance(values, list) else values.tolist()

    def whole_numbers(self, role: str) -> list[int]:
        """Return the whole numbers of a role; [] without. Some scripts write them as floats.

        Raises:
            UnusableError: They are not.
        """
        numbers = self.get(role)
        if other := next((number for number in numbers if number % 1), None):  # also NaN and infinity
            raise UnusableError(Reason.MALFORMED_IMAGE, f"{self.name(role)} has {other}, which is not a whole number")
        return list(map(int, numbers))

    def texts(self, role: str) -> list[str]:
        """Return the texts of a role; [] without.

        Raises:
            UnusableError: They are not UTF-8.
        """
        try:
            return [value.decode() for value in self.get(role, FeatureKind.BYTES)]
        except UnicodeDecodeError as error:
            raise UnusableError(Reason.MALFORMED_IMAGE, f"{self.name(role)} is not UTF-8") from error

    def words(self, role: str) -> list[str]:
        """Return the values of a role as texts, also those that are numbers."""
        kind, values = self._find(role)
        return list(map(str, values)) if kind is FeatureKind.INT64 else self.texts(role)

    @property
    def image(self) -> bytes:
        """Bytes of the image.

        Raises:
            UnusableError: The record does not have one image.
        """
        images = self.get(IMAGE, FeatureKind.BYTES)
        if len(images) != 1:
            raise UnusableError(
                Reason.MALFORMED_IMAGE, f"{self.name(IMAGE)} has {number_text(len(images), 'value')}, not one image"
            )
        return images[0]  # type: ignore[no-any-return]


def file_split(name: str) -> str:
    """Return the split in a path: the last word of the file's name that is a split, else the last folder; "" without.

    >>> file_split("coco_train.record-00000-of-00100"), file_split("voc-validation.tfrecord-00000-of-00001")
    ('train', 'val')
    >>> file_split("valid/Cats.tfrecord"), file_split("trainval.record"), file_split("coco_testdev.record")
    ('val', '', 'test')
    """
    folder, base = posixpath.split(name.lower())
    words = [word for word in _NOT_LETTERS.split(base) if word not in _PARTS_OF_NUMBERS]
    known = SPLIT_OF_WORD | {"testdev": "test"}
    splits = [known[word] for word in words if word in known]
    folders = [SPLIT_OF_FOLDER[part] for part in folder.split("/") if part in SPLIT_OF_FOLDER]
    return next(reversed(splits), next(reversed(folders), ""))


@parser
def parse_records(stream: BinaryIO, file: str, rules: RecordRules) -> Iterator[LabelledImage]:
    """Yield the image of each record of a file. The file may be damaged: records before the damage are read, and those
    after it if only the bytes of a record have a wrong checksum.

    >>> import io
    >>> from recordmill.transforms.tfrecord.record_keys import API
    >>> image, = parse_records(io.BytesIO(b"short"), "train.record", RecordRules(API))
    >>> image.faults[0].detail
    "record 0 at byte 0: the file ends 5 bytes into the record's header. Records before it that were read: 0"
    """
    number = 0
    try:
        for number, (offset, record) in enumerate(read_usable_records(stream)):
            if isinstance(record, RecordError):
                yield unusable_image(f"{record.detail}. The records after it are read", where=_place(number, offset))
                continue
            try:
                yield _read_record(record, number, offset, file, rules)
            except UnusableError as fault:
                yield unusable_image(fault.detail, where=_place(number, offset))
    except RecordError as error:
        number = error.record or 0
        detail = f"{_place(number, error.offset)}: {error.detail}. Records before it that were read: {number:,}"
        raise UnusableError(Reason.MALFORMED_LABELS, detail) from error


def _place(number: int, offset: int) -> str:
    return f"record {number} at byte {offset:,}"


def _read_record(record: bytes, number: int, offset: int, file: str, rules: RecordRules) -> LabelledImage:
    """Return the image of a record.

    Raises:
        UnusableError: It is unusable.
    """
    reader, parts = RecordReader(record, rules.keys), ImageParts()
    image = reader.image
    name, id_text = _name_image(reader, image_kind(image), number, file)
    width, height = _read_size(reader, image)
    tags, tag_ids = _read_tags(reader, rules, parts)
    only_tag = {None: tags[0]} if len(tags) == 1 else {}
    tag_by_number = only_tag | dict(zip(tag_ids, tags, strict=False))
    count = _read_objects(reader, rules, (width, height), f"record {number}", parts, tag_by_number)
    captions = tuple(reader.texts(CAPTION))
    if captions and not rules.has_captions:
        parts.notes.add(CAPTION)
        captions = ()
    sample = Sample(
        name,
        width=width if width and height else None,
        height=height if width and height else None,
        captions=captions,
        split=file_split(file) if rules.by_name else "",
        image_id=_id_of(id_text),
        tags=tags,
        fields=_image_fields(reader, rules.keys, count),
    )
    at = _find_bytes(image, record)
    # The second checksum is of all but the image: a record with both is the same record again.
    rest = record[:at] + record[at + len(image) :]
    version = f"{google_crc32c.value(image):08x}{google_crc32c.value(rest):08x}"
    place = ImageFile("", len(image), version, offset=offset + HEADER_BYTES + at)
    labelled = parts.image(sample)
    return labelled._replace(
        entry=f"record {number}",
        file=place,
        tag_ids=tag_ids,
        id_text=id_text if id_text != name and sample.image_id is not None and not _WHOLE.fullmatch(id_text) else "",
    )


def _read_size(reader: RecordReader, image: bytes) -> tuple[int, int]:
    """Return width and height of an image as its record states them, or those of its pixels without EXIF, which readers
    of TFRecord files ignore; 0, 0 of an unreadable image."""
    sides = [reader.whole_numbers(role) for role in (WIDTH, HEIGHT)]
    if all(len(side) == 1 and side[0] > 0 for side in sides):
        return sides[0][0], sides[1][0]
    try:
        _, *size = encoded_size(image) or ("", 0, 0)
    except UnusableError:
        return 0, 0
    return size[0], size[1]


def _find_bytes(data: bytes, record: bytes) -> int:
    """Return the offset of `data` in a record that contains it."""
    at = record.find(data[:_FOUND_BY])
    while not record.startswith(data, at):
        at = record.find(data[:_FOUND_BY], at + 1)
    return at


def _name_image(reader: RecordReader, kind: str, number: int, file: str) -> tuple[str, str]:
    """Return the name of an image, relative and with the suffix of an image, and the text of its id; "" without one."""
    texts, ids = reader.words(NAME), reader.words(ID)
    id_text = ids[0].strip() if len(ids) == 1 else ""
    stated = texts[0] if len(texts) == 1 else ""
    if not stated.strip() and id_text and not _WHOLE.fullmatch(id_text):
        stated = id_text
    parts = re.sub(r"^[A-Za-z]:", "", stated.strip().replace("\\", "/")).split("/")
    name = "/".join(part for part in parts if part not in ("", ".", ".."))
    name = name or f"{file}-{number:08}"
    return name if is_image_name(name) else f"{name}.{'png' if kind == 'png' else 'jpg'}", id_text


def _id_of(text: str) -> int | None:
    """Return the id of an image: its number, or the hash of its text; None without one. (The hash of the
    image's name is then its id.)"""
    if _WHOLE.fullmatch(text):
        return int(text)
    return name_id(text) if text else None


def _read_tags(reader: RecordReader, rules: RecordRules, parts: ImageParts) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the classes of an image, and their numbers if each has one."""
    texts, labels = reader.texts(TAG_TEXT), reader.whole_numbers(TAG_LABEL)
    tags: dict[str, int | None] = {}
    texts = [text for text in texts if text.strip()]
    for at in range(max(len(texts), len(labels))):
        label = labels[at] if at < len(labels) else None
        with parts.rejecting(reader.name(TAG_TEXT if texts else TAG_LABEL)):
            tags[_class_name(texts[at] if at < len(texts) else "", label, rules)] = label
    numbers = tuple(number for number in tags.values() if number is not None)
    return tuple(tags), numbers if len(numbers) == len(tags) else ()


def _class_name(text: str, label: int | None, rules: RecordRules) -> str:
    """Return the name of a class.

    Raises:
        UnusableError: The class has no name.
    """
    classes = rules.classes
    if text.strip():
        if classes and text not in classes.name_by_text:
            raise UnusableError(Reason.UNKNOWN_CATEGORY, f"class {text!r} is not in the label map or --class-names")
        return classes.name_by_text[text] if classes else text
    if classes and label is not None:
        if label not in classes.name_by_id:
            raise UnusableError(Reason.UNKNOWN_CATEGORY, f"no class has the number {label}")
        return classes.name_by_id[label]
    if not rules.only_class:
        advice = "--label-map or --class-names gives names"
        detail = "no class" if label is None else f"class {label} has no name ({advice})"
        raise UnusableError(Reason.UNKNOWN_CATEGORY, detail)
    return rules.only_class


# Long list of arguments: what the objects of a record depend on.
def _read_objects(
    reader: RecordReader,
    rules: RecordRules,
    size: tuple[int, int],
    where: str,
    parts: ImageParts,
    tag_by_number: Mapping[int | None, str],
) -> int:
    """Add the objects of a record to `parts`, and return their number, with those that are rejected.

    Args:
        size: Width and height of the image; zeros if the record does not have them.
        tag_by_number: Classes of the image by their numbers; None for its only class.

    Raises:
        UnusableError: Lists of objects differ in length.
    """
    boxes, in_pixels = _read_boxes(reader)
    if not boxes:
        return 0
    lists: dict[str, list[Any]] = {TEXT: reader.texts(TEXT)}
    lists |= {role: reader.whole_numbers(role) for role in (LABEL, OBJECT_ID)}
    lists |= {role: reader.get(role) for role in (AREA, CROWD, GROUP)}
    lists |= {role: reader.texts(role) if name == "view" else reader.get(role) for role, name in FIELDS.items()}
    lists |= {MASK_RLE: reader.texts(MASK_RLE), MASK: _split_masks(reader, len(boxes), size)}
    for role, values in lists.items():
        if values and len(values) != len(boxes):
            detail = f"{reader.name(role)} has {number_text(len(values), 'value')} of {number_text(len(boxes), 'box')}"
            raise UnusableError(Reason.MALFORMED_IMAGE, detail)
    points = _read_keypoints(reader, len(boxes))
    extra = _object_fields(reader, rules.keys, len(boxes))
    rows = {role: values for role, values in lists.items() if values}
    if not rules.has_masks and (MASK in rows or MASK_RLE in rows):
        parts.notes.add(MASKS)
    for at, box in enumerate(boxes):
        with parts.rejecting(f"object {at} of {where}"):
            row = {role: values[at] for role, values in rows.items()}
            fields = extra[at] | {name: row[role] for role, name in FIELDS.items() if role in row}
            given = _convert_object(row, box, in_pixels, size, rules, tag_by_number)
            parts.objects.append(
                msgspec.structs.replace(given, fields=fields, **_scaled_points(points, at, given.frame, size))
            )
    return len(boxes)


def _read_boxes(reader: RecordReader) -> tuple[list[tuple[float, ...]], bool]:
    """Return the boxes of a record: x, y, width, height in pixels, or left, top, right, bottom as fractions."""
    for role in (XYWH, YXYX):
        if numbers := reader.get(role):
            if len(numbers) % 4:
                detail = f"{reader.name(role)} has {number_text(len(numbers), 'number')}, not four of each box"
                raise UnusableError(Reason.MALFORMED_IMAGE, detail)
            rows = [tuple(numbers[at : at + 4]) for at in range(0, len(numbers), 4)]
            return (rows, True) if role == XYWH else ([(x, y, right, bottom) for y, x, bottom, right in rows], False)
    edges = [reader.get(role) for role in EDGES]
    if len({*map(len, edges)}) > 1:
        shown = ", ".join(f"{reader.name(role)} {len(values)}" for role, values in zip(EDGES, edges, strict=True))
        raise UnusableError(Reason.MALFORMED_IMAGE, f"edges of boxes differ in number: {shown}")
    return [*zip(*edges, strict=True)], False


# Long list of arguments: what an object depends on.
def _convert_object(
    row: Mapping[str, Any],
    box: tuple[float, ...],
    in_pixels: bool,
    size: tuple[int, int],
    rules: RecordRules,
    tag_by_number: Mapping[int | None, str],
) -> SampleObject:
    """Return an object. Its area is in pixels, so its box is, too, if the size of the image is known.

    Raises:
        UnusableError: Its box, class or mask is unusable.
    """
    label, text = row.get(LABEL), row.get(TEXT, "")
    if label in tag_by_number and not text.strip() and not (rules.classes and label is not None):
        category = tag_by_number[label]
    else:
        category = _class_name(text, label, rules)
    width, height = size
    numbers: tuple[float, ...] = box
    if not in_pixels:
        numbers = fraction_box(*box)
        if width and height:
            numbers = tuple(number * side for number, side in zip(numbers, (width, height) * 2, strict=True))
    is_px = in_pixels or bool(width and height)
    return SampleObject(
        category,
        numbers,  # type: ignore[arg-type]
        "px" if is_px else "fraction",
        segmentation=_read_mask(row, size) if rules.has_masks else "",
        is_crowd=bool(row.get(CROWD) or row.get(GROUP)),
        area_px2=float(row[AREA]) if AREA in row and is_px else None,
        category_id=label,
        id=row.get(OBJECT_ID),
    )


def _split_masks(reader: RecordReader, objects: int, size: tuple[int, int]) -> list[Any]:
    """Return the mask of each object: a PNG, or its pixels, which a record may have of all objects in one list.

    Raises:
        UnusableError: The number of pixels does not fit.
    """
    pixels = reader.values_of(MASK)
    if isinstance(pixels, list) or not len(pixels):
        return reader.get(MASK, FeatureKind.BYTES)
    width, height = size
    if len(pixels) != objects * width * height:
        expected = f"{number_text(objects, 'mask')} of {width}x{height} pixels"
        detail = f"{reader.name(MASK)} has {number_text(len(pixels), 'value')}, not {expected}"
        raise UnusableError(Reason.MALFORMED_IMAGE, detail)
    return [*pixels.reshape(objects, height, width)]


def _read_mask(row: Mapping[str, Any], size: tuple[int, int]) -> str:
    """Return COCO's segmentation of a mask as JSON; "" without a mask.

    Raises:
        UnusableError: A PNG does not decode, or the size of run lengths is unknown.
    """
    if row.get(MASK_RLE) and all(size):
        return json.dumps({"size": [size[1], size[0]], "counts": row[MASK_RLE]})
    mask = row.get(MASK, b"")
    if isinstance(mask, np.ndarray):
        return mask_text(mask > 0, 0, 0, mask.shape[1], mask.shape[0])
    if not mask:
        return ""
    try:
        with Image.open(io.BytesIO(mask), formats=("PNG",)) as image:
            pixels = np.asarray(image.convert("L" if image.mode not in ("P", "1") else None)) > 0
    except Exception as error:  # Pillow's decoders raise nearly any exception on bad bytes
        detail = f"the mask is not a PNG ({type(error).__name__})"
        raise UnusableError(Reason.MALFORMED_SEGMENTATION, detail) from error
    return mask_text(pixels, 0, 0, pixels.shape[1], pixels.shape[0])


def _read_keypoints(reader: RecordReader, objects: int) -> list[tuple[float, ...]]:
    """Return x, y as fractions and the visibility of the keypoints of each object; [] without.

    Raises:
        UnusableError: Objects do not have equal numbers of them.
    """
    xs, ys, visible = (reader.get(role) for role in (POINT_X, POINT_Y, POINT_V))
    if not xs and not ys:
        return []
    if len(xs) != len(ys) or len(xs) % objects or (visible and len(visible) != len(xs)):
        shown = ", ".join(f"{reader.name(role)} {len(reader.get(role))}" for role in (POINT_X, POINT_Y, POINT_V))
        raise UnusableError(Reason.MALFORMED_IMAGE, f"keypoints of {number_text(objects, 'object')}: {shown}")
    points: list[float] = []
    for at, (x, y) in enumerate(zip(xs, ys, strict=True)):
        is_there = x == x and y == y  # a missing point is NaN
        points += (x, y, float(visible[at]) if visible else 2.0 * bool(x or y)) if is_there else (0.0, 0.0, 0.0)
    step = 3 * len(xs) // objects
    return [tuple(points[start : start + step]) for start in range(0, len(points), step)]


def _scaled_points(
    points: Sequence[tuple[float, ...]], at: int, frame: str, size: tuple[int, int]
) -> dict[str, tuple[float, ...]]:
    """Return the keypoints of an object in the frame of its box.

    Raises:
        UnusableError: They are not fractions, or pixels are wanted of an image of unknown size.
    """
    if not points:
        return {}
    check_fractions([*points[at][::3], *points[at][1::3]])
    if frame == "fraction":
        return {"keypoints": points[at]}
    if not all(size):
        raise UnusableError(Reason.MALFORMED_KEYPOINTS, "keypoints as fractions of an image of unknown size")
    scales = (*size, 1) * (len(points[at]) // 3)
    return {"keypoints": tuple(number * scale for number, scale in zip(points[at], scales, strict=True))}


def _plain_values(typed: TypedValues) -> list[Any] | None:
    """Return the values of an open field; None for bytes that are not UTF-8."""
    kind, values = typed
    if kind is not FeatureKind.BYTES:
        return values.tolist()  # type: ignore[union-attr]
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        return None


def _image_fields(reader: RecordReader, keys: RecordKeys, objects: int) -> dict[str, Any]:
    """Return the open fields of an image."""
    fields: dict[str, Any] = {}
    for name, typed in reader.values.items():
        place = keys.field(name, objects, len(typed[1]))
        if place and not place[0] and (values := _plain_values(typed)):
            fields[place[1]] = values[0] if len(values) == 1 else values
    return fields


def _object_fields(reader: RecordReader, keys: RecordKeys, objects: int) -> list[dict[str, Any]]:
    """Return the open fields of each object."""
    rows: list[dict[str, Any]] = [{} for _ in range(objects)]
    for name, typed in reader.values.items():
        place = keys.field(name, objects, len(typed[1]))
        if place and place[0] and (values := _plain_values(typed)):
            step = len(values) // objects
            for at, row in enumerate(rows):
                row[place[1]] = values[at] if step == 1 else values[at * step : (at + 1) * step]
    return rows
