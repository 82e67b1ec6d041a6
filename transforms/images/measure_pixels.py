"""Measure an image's pixels: darkness, brightness, sharpness, and a hash."""

import math
from bisect import bisect_right
from itertools import accumulate

import numpy as np
from PIL import Image, ImageFilter

from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images.open_image import convert_for_jpeg, is_12_bit, load_small, open_image

HASH_SIDE = 32
"""Side in pixels of the square grey image that is hashed."""
HASH_BITS = 64
_FREQUENCIES = 9
_SCALE = 1 << 12
_NOISE = 100 * _SCALE**2
"""Minimum of a coefficient above the median: a cosine with an amplitude of a tenth of a level. See
docs/decisions/0028-duplicates.md."""


def _lowest_frequencies() -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the HASH_BITS coefficients with the lowest frequencies, without the mean."""
    pairs = [(row, column) for row in range(_FREQUENCIES) for column in range(_FREQUENCIES)][1:]
    rows, columns = zip(*sorted(pairs, key=lambda pair: (sum(pair), pair))[:HASH_BITS], strict=True)
    return np.array(rows), np.array(columns)


_ANGLES = np.pi * np.outer(np.arange(_FREQUENCIES), 2 * np.arange(HASH_SIDE) + 1) / (2 * HASH_SIDE)
_COSINES = np.rint(_SCALE * np.cos(_ANGLES))
"""Integers, whose products and sums are exact, so that hashes are equal on all processors."""
_ROWS, _COLUMNS = _lowest_frequencies()


def perceptual_hashes(grey: np.ndarray) -> np.ndarray:
    """Return the perceptual hashes of grey images.

    Args:
        grey: uint8 [n, HASH_SIDE, HASH_SIDE].

    Returns:
        uint64 [n]; 0 if no frequency is above noise.
    """
    coefficients = (_COSINES @ grey.astype(np.float64) @ _COSINES.T)[:, _ROWS, _COLUMNS]
    median = np.partition(coefficients, HASH_BITS // 2 - 1, axis=1)[:, HASH_BITS // 2 - 1]
    bits = np.packbits(coefficients > median[:, None] + _NOISE, axis=1)
    return np.frombuffer(bits.tobytes(), ">u8").astype(np.uint64)


_SIDE = 64
"""Longer side in pixels of the measured image, so that measures do not depend on the image size."""
_ENOUGH = 2 * _SIDE
"""Minimum of the longer side in pixels after the first, fast reduction."""
_AVERAGED = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
"""Modes of Pillow whose values can be averaged."""
_SHARES = 0.05, 0.99
_POWERS = np.arange(256)[:, None] ** np.arange(1, 3)
"""First and second power of each grey level."""
BLANK_CONTRAST = 12
"""Minimum contrast (bright - dark, grey levels). Differences in an image with less contrast are noise."""


def measure_file(data: bytes, format_: str) -> PixelMeasures:
    """Return the measures of a valid JPEG or PNG."""
    with open_image(data, format_) as image:
        size = image.size
        load_small(image)
        return measure_pixels(image, *size)


def measure_pixels(image: Image.Image, width: int, height: int) -> PixelMeasures:
    """Return the measures of a decoded image.

    Args:
        image: Decoded image. A JPEG may have a fraction of its size, by `Image.draft`.
        width, height: Size of the original image in pixels.
    """
    grey = _small_grey(image, width, height)
    below = list(accumulate(grey.histogram()))  # faster than NumPy for 256 numbers
    dark, bright = (bisect_right(below, int(share * below[-1])) for share in _SHARES)
    if bright - dark < BLANK_CONTRAST:
        return PixelMeasures(dark, bright, 0.0, is_12_bit=is_12_bit(image))
    hashed = resize_for_hash(grey)
    if min(grey.size) < 3:
        return PixelMeasures(dark, bright, 1.0, hashed, is_12_bit(image))
    # Crop the border, which the filter does not change.
    edges = grey.filter(ImageFilter.FIND_EDGES).crop((1, 1, grey.width - 1, grey.height - 1))
    return PixelMeasures(dark, bright, _deviation(edges) / (bright - dark), hashed, is_12_bit(image))


def resize_for_hash(grey: Image.Image) -> bytes:
    """Return the pixels to hash: uint8 [HASH_SIDE, HASH_SIDE], row-major."""
    return grey.resize((HASH_SIDE, HASH_SIDE), Image.Resampling.BILINEAR).tobytes()


def _deviation(grey: Image.Image) -> float:
    """Return the standard deviation of grey levels. Sums are integers, so that all processors give the same result."""
    number = grey.width * grey.height
    total, squares = (np.array(grey.histogram()) @ _POWERS).tolist()
    return math.sqrt(number * squares - total * total) / number


def _small_grey(image: Image.Image, width: int, height: int) -> Image.Image:
    """Return a grey copy of an image, with a longer side of at most `_SIDE` pixels."""
    scale = max(1, round(width / image.width))
    shrink = max(image.size) // _ENOUGH
    if shrink > 1 and image.mode in _AVERAGED:  # reduce() is much faster than resize()
        image = image.reduce(shrink)
        scale *= shrink
    if image.mode != "L":
        image = convert_for_jpeg(image).convert("L")
    # Exclude the right and bottom edge of a draft, which may have pixels beyond the image.
    box = 0.0, 0.0, min(image.width, width / scale), min(image.height, height / scale)
    smaller = min(1, _SIDE / max(box))
    size = max(1, round(box[2] * smaller)), max(1, round(box[3] * smaller))
    return image.resize(size, Image.Resampling.BILINEAR, box)
