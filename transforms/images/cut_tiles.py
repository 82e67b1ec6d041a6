"""Cut tiles from an image that is read, checked and decoded once."""

import hashlib
from typing import NamedTuple

import numpy as np
from PIL import Image

from recordmill.schemas.inputs.images import ImageRules, StoredImage, TileOf
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images.check_formats import check_jpeg, check_png, jpeg_frame
from recordmill.transforms.images.decode_jpeg import decode_jpeg
from recordmill.transforms.images.load_images import (
    check_end,
    check_pixel_count,
    convert_decode_errors,
    is_annotated_upright,
    is_rotated,
    open_usable_image,
    require_kind,
)
from recordmill.transforms.images.measure_pixels import measure_pixels
from recordmill.transforms.images.open_image import (
    LIES_ON_ITS_SIDE,
    TURNED_BY_PILLOW,
    TURNS,
    choose_format,
    decode_image,
    encode_pixels,
    exif_orientation,
    is_see_through,
    load_small,
    stored_size,
)

_RGB_CHANNELS = 3
_UPRIGHT = 1
_PNG_LEVEL = 3
"""Level of deflate: tiles take 0.4 of the processor time of the usual level 6, and 1.04 of the bytes."""


class WholeImage(NamedTuple):
    """Decoded image.

    Attributes:
        pixels: Stored pixels; uint8 [height, width, 3] of an RGB JPEG, because Pillow takes 4 bytes per RGB pixel.
        orientation: EXIF orientation to apply to each tile; 1 for none. To turn all pixels would take a copy.
        size: Width and height in the frame of the annotations.
        original: Format of the file.
        has_alpha: True if PNG tiles have an alpha channel: all or none, so that they have equal channels.
        sha256: Hex digest of the file.
        measures: Measures of all pixels; None if rules do not ask for them.
    """

    pixels: np.ndarray | Image.Image
    orientation: int
    size: tuple[int, int]
    original: str
    has_alpha: bool
    sha256: str
    measures: PixelMeasures | None

    def cut(self, tile: TileOf, width: int, height: int, rules: ImageRules) -> StoredImage:
        """Return the encoded tile of `width` x `height` pixels.

        Raises:
            UnusableError: The pixels cannot be stored in the format of the rules.
        """
        size = width, height
        image = self._crop(tile.x, tile.y, width, height)
        format_ = choose_format(image, self.original, self.has_alpha, size, rules)
        data = encode_pixels(image, format_, self.has_alpha, size, rules.jpeg_quality, _PNG_LEVEL)
        measures = self.measures if tile.is_first else None
        digest = hashlib.sha256(data).hexdigest()
        return StoredImage(data, format_, *size, digest, measures=measures, whole_sha256=self.sha256)

    def _crop(self, x: int, y: int, width: int, height: int) -> Image.Image:
        left, top, right, bottom = stored_box((x, y, x + width, y + height), self.size, self.orientation)
        if isinstance(self.pixels, np.ndarray):
            image = Image.fromarray(np.ascontiguousarray(self.pixels[top:bottom, left:right]))
        else:
            image = self.pixels.crop((left, top, right, bottom))
        return image.transpose(TURNS[self.orientation]) if self.orientation in TURNS else image


def stored_box(box: tuple[int, int, int, int], size: tuple[int, int], orientation: int) -> tuple[int, int, int, int]:
    """Return the place of a part of an upright image among the stored pixels: left, top, right, bottom.

    Args:
        box: Left, top, right and bottom in the upright image.
        size: Width and height of the upright image.
        orientation: EXIF orientation of the stored pixels, 1..8.

    >>> stored_box((0, 0, 10, 20), (100, 50), 6)
    (0, 90, 20, 100)
    """
    left, top, right, bottom = box
    width, height = size
    if orientation in (2, 3, 6, 7):  # the upright x axis runs against a stored axis
        left, right = width - right, width - left
    if orientation in (3, 4, 7, 8):
        top, bottom = height - bottom, height - top
    return (top, left, bottom, right) if orientation in LIES_ON_ITS_SIDE else (left, top, right, bottom)


def read_whole(data: bytes, tile: TileOf, rules: ImageRules) -> WholeImage:
    """Check and decode the file of an image of which `tile` is a part.

    Raises:
        UnusableError: The file is not an image, is damaged, or has another size.
    """
    kind = require_kind(data)
    has_measures = rules.check == "decode"
    with open_usable_image(data, kind) as image:
        check_pixel_count(image)
        expected, size = (tile.whole_width, tile.whole_height), stored_size(image)
        turns = rules.upright and is_rotated(image, data, kind) if tile.is_measured else None
        if turns is None:
            turns = is_annotated_upright(image, *expected)
        orientation = exif_orientation(image) if turns else _UPRIGHT
        size = size[::-1] if orientation in LIES_ON_ITS_SIDE else size
        if size != expected:
            detail = f"its pixels are {size[0]}x{size[1]}, and were {expected[0]}x{expected[1]} when it was listed"
            raise UnusableError(Reason.SIZE_MISMATCH, detail)
        if kind and rules.check != "none":
            check_end(data, kind)
        with convert_decode_errors():
            if kind and has_measures:
                (check_jpeg if kind == "jpeg" else check_png)(data)
            is_rgb = kind == "jpeg" and jpeg_frame(data).channels == _RGB_CHANNELS
            measures = _measure_small(image) if has_measures and kind == "jpeg" else None
            array = decode_jpeg(data) if is_rgb else None
        digest, original = hashlib.sha256(data).hexdigest(), kind or str(image.format).lower()
        if array is not None:
            return WholeImage(array, orientation, size, original, False, digest, measures)
        is_turned = image.format == TURNED_BY_PILLOW
        with convert_decode_errors(), _open_again(image, data, kind) as again:
            pixels = decode_image(again, turn=is_turned and bool(turns))
            if has_measures and measures is None:
                measures = measure_pixels(pixels, *pixels.size)
    orientation = _UPRIGHT if is_turned else orientation
    # A PNG that is stored unchanged keeps an opaque alpha channel, so its tiles do, too.
    has_alpha = is_see_through(pixels) or (kind == "png" and pixels.getbands()[-1] == "A")
    return WholeImage(pixels, orientation, size, original, has_alpha, digest, measures)


def _open_again(image: Image.Image, data: bytes, kind: str) -> Image.Image:
    """Return an opened image that is not loaded at a fraction of its size, as a JPEG may be. A PNG is not opened twice,
    because it may be large."""
    return image if kind == "png" else open_usable_image(data, kind)


def _measure_small(image: Image.Image) -> PixelMeasures:
    size = image.size
    load_small(image)
    return measure_pixels(image, *size)
