"""Types of the rows of COCO files, and a decoder of single rows. The decoder converts string ids to numbers."""

import contextlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import Int64
from recordmill.schemas.inputs.coco import SegmentId
from recordmill.schemas.inputs.scalars import Bit, Flag, lenient_flag
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.rejects import IdTexts
from recordmill.transforms.coco.file_fields import NO_TEXT


class CocoImageRow(msgspec.Struct, gc=False):
    """A row of `images`; width and height in pixels. Only LVIS files have the two lists of category ids."""

    id: Int64
    file_name: str
    width: Int64 | None = None
    height: Int64 | None = None
    neg_category_ids: list[Int64] | None = None
    not_exhaustive_category_ids: list[Int64] | None = None


_ADDRESS = msgspec.json.Decoder(str | None)


class AddressedImageRow(CocoImageRow, gc=False):
    """A row of `images` that may have a URL in place of a file name, like the rows of LVIS."""

    file_name: str | msgspec.UnsetType = msgspec.UNSET  # type: ignore[assignment]
    coco_url: msgspec.Raw = NO_TEXT  # decoded only if the row has no file_name

    def __post_init__(self):
        if self.file_name is msgspec.UNSET and not self._address():
            raise ValueError("it has neither file_name nor coco_url")

    def _address(self) -> str | None:
        try:
            return _ADDRESS.decode(self.coco_url or b"null")
        except msgspec.ValidationError as error:
            raise ValueError(f"it has no file_name, and its coco_url is not a string ({error})") from error

    def named(self) -> CocoImageRow:
        """Return the row with a file name: `file_name`, else the last part of `coco_url`."""
        name = (self._address() or "").rpartition("/")[2] if self.file_name is msgspec.UNSET else self.file_name
        lists = self.neg_category_ids, self.not_exhaustive_category_ids
        return CocoImageRow(self.id, name, self.width, self.height, *lists)


class AnnotationRow(msgspec.Struct, gc=False):
    """A row of `annotations` with the box of an object. `bbox` is the JSON text."""

    id: Int64
    image_id: Int64
    category_id: Int64
    bbox: msgspec.Raw
    area: float | None = None
    iscrowd: Bit | bool | None = 0


class MaskedRow(AnnotationRow, gc=False):
    """AnnotationRow with the JSON text of its segmentation."""

    segmentation: msgspec.Raw = NO_TEXT


class KeypointsRow(AnnotationRow, gc=False):
    """A row of `annotations` of a keypoints file."""

    keypoints: msgspec.Raw = NO_TEXT
    num_keypoints: msgspec.Raw = NO_TEXT  # unused: records count the keypoints


class MaskedKeypointsRow(KeypointsRow, gc=False):
    """KeypointsRow with the JSON text of its segmentation."""

    segmentation: msgspec.Raw = NO_TEXT


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
    iscrowd: Bit | bool | None = 0
    bbox: tuple[float, float, float, float] | None = None
    area: float | None = None


class PanopticRow(msgspec.Struct, gc=False):
    """A row of `annotations` of a panoptic file. The row has no annotation id."""

    image_id: Int64
    file_name: str
    segments_info: list[SegmentRow]


_BOX_NUMBERS = 4  # a polygon of 4 numbers is only a box
_POLYGONS = msgspec.json.Decoder(list[list[float]])


def polygon_bounds(segmentation: bytes) -> tuple[float, float, float, float] | None:
    """Return xmin, ymin, xmax, ymax of polygons in JSON. Return None for 4 or fewer numbers, which are only a box.

    >>> polygon_bounds(b"[[1, 2, 3, 9, 4, 2]]"), polygon_bounds(b"[[1, 2, 3, 4]]"), polygon_bounds(b"{}")
    ((1.0, 2.0, 4.0, 9.0), None, None)
    """
    with contextlib.suppress(msgspec.DecodeError, ValueError):
        polygons = _POLYGONS.decode(segmentation)
        if sum(map(len, polygons)) > _BOX_NUMBERS:
            x, y = ([number for polygon in polygons for number in polygon[start::2]] for start in (0, 1))
            return min(x), min(y), max(x), max(y)
    return None


_NOT_FINITE = re.compile(rb'"(NaN|-?Infinity)"')
_DECIMAL = re.compile(r"([+-]?[0-9]{1,99})(\.0*)?")  # Python refuses int() of thousands of digits


def id_number(text: str, texts: dict[int, str]) -> int:
    """Return the int64 of a string id: the value of a decimal number, else a hash. `texts` gets the hash and string.

    >>> id_number("0998", {}), id_number("a.jpg", {})
    (998, 5996240643517367183)

    Raises:
        CollidingImagesError: `texts` has another string with the same hash.
    """
    match = _DECIMAL.fullmatch(text)
    if match and -(1 << 63) <= (number := int(match[1])) < 1 << 63:
        return number
    number = name_id(text)
    if texts.setdefault(number, text) != text:
        raise collision_error(number, text, texts[number])
    return number


class _TextSegmentRow(SegmentRow, gc=False):
    """SegmentRow whose booleans may be texts."""

    iscrowd: Flag | None = False  # type: ignore[assignment]


_TEXT_FIELDS: dict[str, tuple[Any, Any]] = {
    "iscrowd": (Flag | None, False),
    "segments_info": (list[_TextSegmentRow], msgspec.NODEFAULT),
}
"""Types and defaults of fields whose booleans may be texts."""


class RowDecoder:
    """Decoder of single rows. It converts string ids to numbers.

    Args:
        type_: Type of the rows.
        texts: Gets the ids that are not decimal numbers.

    Attributes:
        number_texts: Number of rows with a number as text, such as "640", which is read as the number.
    """

    def __init__(self, type_: Any, texts: IdTexts):
        self.number_texts = 0
        self._decode_strict = msgspec.json.Decoder(type_).decode
        fields = () if type_ is msgspec.Raw else type_.__struct_fields__
        if has_flags := [(name, *_TEXT_FIELDS[name]) for name in fields if name in _TEXT_FIELDS]:
            type_ = msgspec.defstruct(type_.__name__, has_flags, bases=(type_,))
        self._decode = _lenient_decoder(type_)
        known = {"image_id": texts.images, "id": texts.annotations if "image_id" in fields else texts.images}
        self._texts = {key: id_texts for key, id_texts in known.items() if key in fields}
        self._decode_texts = self._decode
        if self._texts:
            with_texts = msgspec.defstruct(type_.__name__, [(key, Int64 | str) for key in self._texts], bases=(type_,))
            self._decode_texts = _lenient_decoder(with_texts)
        self._has_texts = False

    def __call__(self, raw: Any) -> Any:
        """Decode a row from JSON.

        Raises:
            msgspec.ValidationError: A field has the wrong type.
            CollidingImagesError: Two string ids have the same hash.
        """
        if not self._has_texts:
            try:
                return self._decode_strict(raw)
            except msgspec.ValidationError as error:
                # 640.0 is a whole number; `quote_nan` has quoted NaN.
                has_number_text = "got `str`" in str(error) and not _NOT_FINITE.search(raw)
            with contextlib.suppress(msgspec.ValidationError):
                row = self._decode(raw)
                self.number_texts += has_number_text
                return row
        row = self._decode_texts(raw)
        for key, id_texts in self._texts.items():
            text = getattr(row, key)
            if not isinstance(text, str):
                continue
            if not text:
                return self._decode(raw)  # raises ValidationError for the empty id
            setattr(row, key, id_number(text, id_texts))
            self._has_texts = True
        return row


def _lenient_decoder(type_: Any) -> Callable[[Any], Any]:
    return msgspec.json.Decoder(type_, strict=False, dec_hook=lenient_flag).decode


def collision_error(id_: int, *texts: str) -> CollidingImagesError:
    """Return the error for two ids with the same number. At least one of the ids is a string."""
    shown = " and ".join(repr(text) if text else f"the number {id_}" for text in sorted(texts))
    return CollidingImagesError(f"the ids {shown} have the same hash, {id_}. Rename one")
