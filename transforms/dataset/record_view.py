"""View of a parsed record of any layout: boxes, classes, masks, keypoints, maps, image."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
from PIL import Image

from recordmill.schemas.block import ragged_bytes
from recordmill.schemas.features import CLASS_OF_ROW
from recordmill.schemas.field_features import FieldColumn, field_values
from recordmill.schemas.layouts import box_coding
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.blocks.image_facts import NO_CLASS, FactColumns
from recordmill.transforms.images.decode_segmentation import decode_counts
from recordmill.transforms.images.load_images import open_record_image
from recordmill.transforms.images.masks import bitmap

_INTEGER = re.compile(rb"-?[0-9]{1,19}")
_RAW_MODES = ("L", "P", "I;16")
"""Modes of PNGs with numbers as pixels."""


class RecordView:
    """Values of a record, independent of its layout.

    Args:
        values: Values by source (`recordmill.schemas.layouts`), as from `RecordParser`. Any value may be missing.
        size: Width and height of the image in pixels, for boxes in pixels and for run lengths.
    """

    def __init__(self, values: Mapping[str, Any], size: tuple[int, int] = (0, 0)):
        self.values = values
        self.size = size
        self._coding = box_coding(values)

    @cached_property
    def _boxes(self) -> np.ndarray:
        """Boxes in the coding of the layout: float32 [N, 4]. Lists are cut to the shortest."""
        if self._coding is None:
            return np.empty((0, 4), np.float32)
        columns = [np.ravel(self.values[source]) for source in self._coding.sources]
        if len(columns) == 1:
            return columns[0][: len(columns[0]) // 4 * 4].reshape(-1, 4)
        shortest = min(map(len, columns))
        return np.column_stack([column[:shortest] for column in columns])

    @property
    def boxes_coded(self) -> np.ndarray:
        """Copy of the boxes in the coding of the layout: float32 [N, 4]."""
        return self._boxes.copy()

    @property
    def boxes_yxyx_frac(self) -> np.ndarray:
        """Boxes as ymin, xmin, ymax, xmax in fractions of height and width: float64 [N, 4]."""
        boxes = self._boxes.astype(np.float64)
        return self._coding.fractions(boxes, *self.size) if self._coding else boxes

    def boxes_xywh_px(self) -> Iterator[tuple[float, ...]]:
        """Yield x, y, width and height of each box in pixels, with the fewest decimals that give the record's
        floats."""
        if self._coding:
            yield from (self._coding.exact_px(box, *self.size) for box in self._boxes)

    @property
    def category_ids(self) -> list[int]:
        """Category ids of objects, or labels without ids."""
        return self.column("objects.category_id") or self.column("objects.label")

    @property
    def image_class(self) -> int | None:
        """Class index of an image or row with one class."""
        row_sources = (source for source in self.values if source.startswith(CLASS_OF_ROW))
        indices = self.column(next(row_sources, "image.class_index"))
        return indices[0] if indices else None

    @property
    def image_id(self) -> int:
        """Id of the image. Raises ValueError if the record's id is not an integer."""
        if "image.number" in self.values:
            return self.column("image.number")[0]
        return self.decimal("image.id")

    def decimal(self, source: str) -> int:
        """Return an id that is stored as decimal text. Raises ValueError if it is not an integer."""
        text = self.values[source]
        if not _INTEGER.fullmatch(text):  # int() accepts 1_0 as 10
            raise ValueError(f"the image id {text[:40]!r} is not an integer")
        return int(text)

    def column(self, source: str) -> list[Any]:
        """Return the values of a feature as a list; empty if the record lacks it."""
        values = self.values.get(source)
        if values is None:
            return []
        return values if isinstance(values, list) else np.atleast_1d(values).tolist()

    def field(self, column: FieldColumn) -> list[Any]:
        """Return the value of a field of each object, or of the image, as in the source; None where it is missing.

        Raises:
            ValueError: The lengths of lists do not fit their values.
        """
        return field_values(column, self.values)

    @property
    def mask_source(self) -> str:
        """Source of the masks of objects; empty without masks."""
        return next((source for source in ("objects.mask_png", "objects.mask_rle") if source in self.values), "")

    def masks(self) -> Iterator[np.ndarray | UnusableError]:
        """Yield the mask of each object, uint8 [height, width], 0 outside the object; or its error."""
        decode = grey_pixels if self.mask_source == "objects.mask_png" else partial(rle_mask, size=self.size)
        return (attempt(decode, data) for data in self.values.get(self.mask_source, ()))

    def keypoints(self, objects: int, per_object: int) -> np.ndarray:
        """Return x, y (fractions) and visibility: float32 [objects, each, 3].

        Raises:
            ValueError: The number of keypoints differs.
        """
        x, y = (np.ravel(self.values.get(f"objects.keypoint_{axis}", ())) for axis in "xy")
        visibility = np.ravel(self.values.get("objects.keypoint_visibility", np.full(len(x), 2)))
        return np.stack([x, y, visibility], axis=-1).astype(np.float32).reshape(objects, per_object, 3)

    def map(self, source: str) -> np.ndarray | None:
        """Return labels, or ids of COCO's panoptic PNG, int [height, width]; None without a PNG.

        Raises:
            UnusableError: The PNG does not decode.
        """
        png = self.values.get(source)
        if png is None:
            return None
        return segment_ids(png) if source == "panoptic.png" else grey_pixels(png).astype(np.int64)

    def decode_image(self, raw_shape: tuple[int, ...] = ()) -> Image.Image | None:
        """Return the decoded image; None if the record has none.

        Args:
            raw_shape: Height, width and channels, if records store raw pixels.

        Raises:
            UnusableError: See `open_record_image`.
        """
        if data := self.values.get("image.encoded"):
            return open_record_image(data)
        if (pixels := self.values.get("image.pixels")) and raw_shape:
            if len(pixels) != prod(raw_shape):
                wanted = f"{' x '.join(map(str, raw_shape))} are {prod(raw_shape):,}"
                raise UnusableError(Reason.SIZE_MISMATCH, f"{len(pixels):,} bytes of pixels, but {wanted}")
            return Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(raw_shape))
        return None

    def facts(self, measures: PixelMeasures | None = None) -> FactColumns:
        """Return the statistics' columns for an image without objects."""
        values, data = self.values, self.values.get("image.encoded", b"")
        digest = values.get("image.sha256", b"").decode() or (hashlib.sha256(data).hexdigest() if data else "")
        return FactColumns(
            name=ragged_bytes([values["image.file_name"]]),
            size_px=np.array([[values.get("image.width", 0), values.get("image.height", 0)]], np.int64),
            format=[values.get("image.format", b"").decode()],
            num_bytes=np.array([len(data)], np.int64),
            sha256=[digest],
            is_continuation=np.zeros(1, bool),
            measures=[measures],
            image_class=np.array([NO_CLASS if self.image_class is None else self.image_class], np.int64),
        )


def grey_pixels(png: bytes) -> np.ndarray:
    """Return a PNG's pixel values: uint8 or uint16 [height, width]."""
    image = open_record_image(png)
    return np.array(image if image.mode in _RAW_MODES else image.convert("L"))


def segment_ids(png: bytes) -> np.ndarray:
    """Return the ids of COCO's panoptic PNG, int32 [height, width]: red + 256 green + 65536 blue."""
    pixels = np.asarray(open_record_image(png).convert("RGB")).astype(np.int32)
    return pixels[..., 0] | pixels[..., 1] << 8 | pixels[..., 2] << 16


def rle_mask(counts: bytes, size: tuple[int, int]) -> np.ndarray:
    """Return the mask of COCO's compressed run lengths: uint8 [height, width]. `size` is width, height."""
    return bitmap(decode_counts(counts, *size), *size).view(np.uint8)


def attempt(decode: Callable[..., Any], *what: Any) -> Any:
    """Return the result of `decode`, or its UnusableError."""
    try:
        return decode(*what)
    except UnusableError as fault:
        return fault
