"""Measure an image's pixels: darkness, brightness, sharpness, and a hash."""

import math
from bisect import bisect_right
from itertools import accumulate

import numpy as np
from PIL import Image, ImageFilter

from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images.open_picture import for_jpeg, is_12_bit, load_small, open_picture

HASH_SIDE = 32
"""Sides of the grey image that is hashed, for any image."""
HASH_BITS = 64
_FREQUENCIES = 9
_SCALE = 1 << 12
_NOISE = 100 * _SCALE**2
"""Minimum of a coefficient above the median: that of a cosine of a tenth of a level. See
docs/decisions/0028-duplicates.md."""


def _lowest_frequencies() -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the coefficients of the lowest frequencies, without that of the mean."""
    pairs = [(row, column) for row in range(_FREQUENCIES) for column in range(_FREQUENCIES)][1:]
    rows, columns = zip(*sorted(pairs, key=lambda pair: (sum(pair), pair))[:HASH_BITS], strict=True)
    return np.array(rows), np.array(columns)


_ANGLES = np.pi * np.outer(np.arange(_FREQUENCIES), 2 * np.arange(HASH_SIDE) + 1) / (2 * HASH_SIDE)
_COSINES = np.rint(_SCALE * np.cos(_ANGLES))
"""Whole numbers: products and sums of them are exact, so that no processor gives another hash."""
_ROWS, _COLUMNS = _lowest_frequencies()


def perceptual_hashes(grey: np.ndarray) -> np.ndarray:
    """
    Args:
        grey: uint8 [n, HASH_SIDE, HASH_SIDE].

    Returns:
        uint64 [n]; 0 where no frequency is above noise.
    """
    found = (_COSINES @ grey.astype(np.float64) @ _COSINES.T)[:, _ROWS, _COLUMNS]
    median = np.partition(found, HASH_BITS // 2 - 1, axis=1)[:, HASH_BITS // 2 - 1]
    bits = np.packbits(found > median[:, None] + _NOISE, axis=1)
    return np.frombuffer(bits.tobytes(), ">u8").astype(np.uint64)


_SIDE = 64
"""Pixels of the longer side of what is measured, so that the picture's size makes no difference."""
_ENOUGH = 2 * _SIDE
"""Pixels of the longer side from which that is made."""
_AVERAGED = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
"""Modes whose numbers can be averaged."""
_SHARES = 0.05, 0.99
_POWERS = np.arange(256)[:, None] ** np.arange(1, 3)
"""First and second power of each level."""
BLANK_CONTRAST = 12
"""Levels, of 256, between dark and bright places of a picture without content: what differs is noise."""


def measure_file(data: bytes, format_: str) -> PixelMeasures:
    """Return the measures of a valid JPEG or PNG."""
    with open_picture(data, format_) as image:
        size = image.size
        load_small(image)
        return measure_pixels(image, *size)


def measure_pixels(image: Image.Image, width: int, height: int) -> PixelMeasures:
    """
    Args:
        image: decoded; of a JPEG perhaps at a fraction of its size, by `Image.draft`.
        width, height: of the picture, pixels.
    """
    grey = _small_grey(image, width, height)
    below = list(accumulate(grey.histogram()))  # a few hundred numbers: numpy takes longer to begin
    dark, bright = (bisect_right(below, int(share * below[-1])) for share in _SHARES)
    if bright - dark < BLANK_CONTRAST:
        return PixelMeasures(dark, bright, 0.0, is_12_bit=is_12_bit(image))
    hashed = hashable(grey)
    if min(grey.size) < 3:
        return PixelMeasures(dark, bright, 1.0, hashed, is_12_bit(image))
    # Without the border, which the filter leaves as it was.
    edges = grey.filter(ImageFilter.FIND_EDGES).crop((1, 1, grey.width - 1, grey.height - 1))
    return PixelMeasures(dark, bright, _deviation(edges) / (bright - dark), hashed, is_12_bit(image))


def hashable(grey: Image.Image) -> bytes:
    """Return the pixels that are hashed."""
    return grey.resize((HASH_SIDE, HASH_SIDE), Image.Resampling.BILINEAR).tobytes()


def _deviation(grey: Image.Image) -> float:
    """The standard deviation of levels; their sums are whole numbers, so that no processor gives another."""
    number = grey.width * grey.height
    total, squares = (np.array(grey.histogram()) @ _POWERS).tolist()
    return math.sqrt(number * squares - total * total) / number


def _small_grey(image: Image.Image, width: int, height: int) -> Image.Image:
    """The picture in grey, its longer side `_SIDE` pixels at the most."""
    scale = max(1, round(width / image.width))
    shrink = max(image.size) // _ENOUGH
    if shrink > 1 and image.mode in _AVERAGED:  # much faster than the rest
        image = image.reduce(shrink)
        scale *= shrink
    if image.mode != "L":
        image = for_jpeg(image).convert("L")
    # Not to the edge, where a draft has pixels that the picture has not.
    box = 0.0, 0.0, min(image.width, width / scale), min(image.height, height / scale)
    smaller = min(1, _SIDE / max(box))
    size = max(1, round(box[2] * smaller)), max(1, round(box[3] * smaller))
    return image.resize(size, Image.Resampling.BILINEAR, box)
