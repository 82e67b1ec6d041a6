"""What a look at the pixels tells of a picture: a perceptual hash, how bright it is, how sharp.

It is taken from the decoding that checks a picture anyway, of a JPEG at an eighth of its size.
"""

import numpy as np
from PIL import Image, ImageFilter

from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images.open_picture import load_small, open_picture
from recordmill.transforms.images.transcode_picture import for_jpeg

HASH_BITS = 64
_HASH_SIDE = 32
"""The hash is of so many rows and columns, whatever the picture's size."""
_FREQUENCIES = 9
_SIDE = 64
"""Pixels of the longer side of what is measured, so that the picture's size makes no difference."""
_ENOUGH = 2 * _SIDE
"""Pixels of the longer side from which that is made."""
_AVERAGED = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
"""Modes whose numbers can be averaged."""
BLANK_CONTRAST = 12
"""Levels, of 256, between dark and bright places of a picture without content: what differs is noise."""


def _cosines() -> np.ndarray:
    positions, frequencies = np.arange(_HASH_SIDE), np.arange(_FREQUENCIES)
    return np.cos(np.pi * np.outer(frequencies, 2 * positions + 1) / (2 * _HASH_SIDE))


def _lowest_frequencies() -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the coefficients of the lowest frequencies, without that of the mean."""
    pairs = [(row, column) for row in range(_FREQUENCIES) for column in range(_FREQUENCIES)][1:]
    rows, columns = zip(*sorted(pairs, key=lambda pair: (sum(pair), pair))[:HASH_BITS], strict=True)
    return np.array(rows), np.array(columns)


_COSINES = _cosines()
_ROWS, _COLUMNS = _lowest_frequencies()


def measure_file(data: bytes, format_: str) -> PixelMeasures:
    """Of a JPEG or PNG that is whole."""
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
    ordered = np.sort(_levels(grey), axis=None)
    dark, bright = (int(ordered[int(share * ordered.size)]) for share in (0.05, 0.99))
    if bright - dark < BLANK_CONTRAST:
        return PixelMeasures(None, dark, bright, 0.0)
    edges = _levels(grey.filter(ImageFilter.FIND_EDGES))[1:-1, 1:-1]  # which leaves the border as it was
    sharpness = float(edges.std()) / (bright - dark) if edges.size else 1.0
    return PixelMeasures(_perceptual_hash(grey), dark, bright, sharpness)


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


def _perceptual_hash(grey: Image.Image) -> int:
    """Whether each of the lowest frequencies is above their median, the lowest first: of two pictures that differ in
    size and compression alone, few bits differ."""
    pixels = _levels(grey.resize((_HASH_SIDE, _HASH_SIDE), Image.Resampling.BILINEAR)).astype(np.float64)
    # Rounded, so that a tie is one on every processor.
    found = (_COSINES @ pixels @ _COSINES.T)[_ROWS, _COLUMNS].round(3)
    return int.from_bytes(np.packbits(found > np.sort(found)[HASH_BITS // 2 - 1]).tobytes(), "big")


def _levels(grey: Image.Image) -> np.ndarray:
    return np.frombuffer(grey.tobytes(), np.uint8).reshape(grey.height, grey.width)
