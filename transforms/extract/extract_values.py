"""A serialised record becomes values by their source, whatever the layout calls them (`recordmill.schemas.layouts`);
its 32-bit floats become the decimals they were made of, and its masks COCO's compressed run lengths.

A record keeps `float32(x / width)`. Many numbers of pixels give the same 32 bits; the one with the fewest decimals is
taken, so that 12 comes back as 12 and 473.07 as 473.07, and so that a record made of it again has the same bits.
"""

from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.features import FeatureTable, Kind
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.images.load_images import brief
from recordmill.transforms.images.open_picture import open_picture
from recordmill.transforms.masks.bitmaps import run_lengths
from recordmill.transforms.masks.decode_segmentation import decode_counts
from recordmill.transforms.masks.encode_masks import mask_rle
from recordmill.transforms.records.record_values import RecordParseError, RecordParser, length_faults

_MOST_DECIMALS = 15


class UnusableRecordError(ValueError):
    """Why a record, or a part of one, cannot be extracted; becomes a Fault.

    Attributes:
        reason: `schema`, `object_lists`, `keypoints`, `image_undecodable`, `file_name` or `mask`.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def __reduce__(self):
        return UnusableRecordError, (self.reason, self.detail)


class RecordReader:
    """Reads records of one data set.

    Args:
        table: what is in a record.
        labels: the data set's classes.
    """

    def __init__(self, table: FeatureTable, labels: LabelMap):
        self._table = table
        self._parse = RecordParser(table)
        self._keypoints = labels.keypoints

    def __call__(self, record: bytes) -> dict[str, Any]:
        """Bytes for a single text or file, and a flat array for all else, by source.

        Raises:
            UnusableRecordError: it does not parse, lists of one object each differ in length, or a number is not
                finite.
        """
        try:
            values = self._parse(record)
        except RecordParseError as error:
            raise UnusableRecordError("schema", str(error)) from error
        for reason, detail in length_faults(values, self._table, self._keypoints):
            raise UnusableRecordError(reason, detail)
        for feature in self._table.features:
            if feature.kind is Kind.FLOAT and not np.isfinite(values[feature.source]).all():
                raise UnusableRecordError("schema", f"{feature.name} has a number that is not finite")
        return values


def text(value: bytes, name: str) -> str:
    """UTF-8 bytes as text; `name` is for the message.

    Raises:
        UnusableRecordError: they are not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnusableRecordError("schema", f"{name} is not UTF-8: {value[:80]!r}") from error


def shortest_px(fraction: np.float32, size_px: int, start_px: float = 0.0) -> float:
    """The number of pixels with the fewest decimals for which `float32((start_px + px) / size_px)` is `fraction`.

    Their sum is not beyond the edge, not even by a rounding error, where the fraction is not: `--boxes drop` is strict.

    >>> shortest_px(np.float32(473.07 / 640), 640), shortest_px(np.float32((473.07 + 1.5) / 640), 640, 473.07)
    (473.07, 1.5)
    """
    exact = float(fraction) * size_px - start_px
    for decimals in range(_MOST_DECIMALS):
        rounded = round(exact, decimals) + 0.0  # which makes 0.0 of -0.0
        end_px = start_px + rounded
        if np.float32(end_px / size_px) == fraction and (end_px <= size_px or fraction > 1):
            return rounded
    return exact


def shortest_decimal(value: np.float32) -> float:
    """The number with the fewest digits whose 32-bit float is `value`.

    >>> shortest_decimal(np.float32(702.1057)), float(np.float32(702.1057))
    (702.1057, 702.105712890625)
    """
    return float(str(value))


def box_px(
    edges_yxyx: tuple[np.float32, np.float32, np.float32, np.float32], width: int, height: int
) -> tuple[float, float, float, float]:
    """ymin, xmin, ymax, xmax as fractions become x, y, width, height in pixels."""
    ymin, xmin, ymax, xmax = edges_yxyx
    x, y = shortest_px(xmin, width), shortest_px(ymin, height)
    return x, y, shortest_px(xmax, width, x), shortest_px(ymax, height, y)


class RunLengths(msgspec.Struct, frozen=True):
    """COCO's compressed run lengths; size is height, width."""

    counts: str
    size: tuple[int, int]


Segmentation = RunLengths | list[list[float]]
"""`[]` is no mask."""


def mask_of_rle(counts: bytes, width: int, height: int) -> Segmentation:
    """Compressed counts as they are, once they are known to make sense; `[]` where they say that no pixel is inside.

    Raises:
        UnusableRecordError: they are no mask of an image of this size.
    """
    try:
        runs = decode_counts(counts, width, height)
    except UnusableError as error:
        raise UnusableRecordError("mask", str(error)) from error
    return RunLengths(counts.decode(), (height, width)) if runs[1::2].any() else []


def mask_of_png(png: bytes, width: int, height: int) -> Segmentation:
    """A grey PNG of the full image, inside wherever it is not 0, becomes the counts that pycocotools gives for it.

    Raises:
        UnusableRecordError: it does not decode, or is of another size.
    """
    try:
        with open_picture(png, "png") as image:
            size, mode = image.size, image.mode
            pixels = np.asarray(image) if (size, mode) == ((width, height), "L") else None
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        raise UnusableRecordError("mask", f"it does not decode as PNG ({brief(error)})") from error
    if pixels is None:
        detail = f"a PNG of {size[0]}x{size[1]}, mode {mode}; its image is {width}x{height}, and masks are grey"
        raise UnusableRecordError("mask", detail)
    if not pixels.any():
        return []
    # Not by pycocotools' encode, which writes past its memory where a few runs have 2 ** 24 pixels.
    return RunLengths(mask_rle(run_lengths(pixels != 0)).decode(), (height, width))
