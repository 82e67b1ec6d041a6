"""What a look at the pixels tells of a picture: how dark it is, how bright, how sharp, and what to know it again by.

It is taken from the decoding that checks a picture anyway, of a JPEG at an eighth of its size.
"""

import math
from bisect import bisect_right
from itertools import accumulate

import numpy as np
from PIL import Image, ImageFilter

from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images.open_picture import load_small, open_picture
from recordmill.transforms.images.perceptual_hash import HASH_SIDE
from recordmill.transforms.images.transcode_picture import for_jpeg

_SIDE = 64
"""Pixels of the longer side of what is measured, so that the picture's size makes no difference."""
_ENOUGH = 2 * _SIDE
"""Pixels of the longer side from which that is made."""
_AVERAGED = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
"""Modes whose numbers can be averaged."""
_SHARES = 0.05, 0.99
_POWERS = np.arange(256)[:, None] ** np.arange(1, 3)
"""Of each level the first and the second."""
BLANK_CONTRAST = 12
"""Levels, of 256, between dark and bright places of a picture without content: what differs is noise."""


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
    below = list(accumulate(grey.histogram()))  # a few hundred numbers: numpy takes longer to begin
    dark, bright = (bisect_right(below, int(share * below[-1])) for share in _SHARES)
    if bright - dark < BLANK_CONTRAST:
        return PixelMeasures(dark, bright, 0.0)
    hashed = hashable(grey)
    if min(grey.size) < 3:
        return PixelMeasures(dark, bright, 1.0, hashed)
    # Without the border, which the filter leaves as it was.
    edges = grey.filter(ImageFilter.FIND_EDGES).crop((1, 1, grey.width - 1, grey.height - 1))
    return PixelMeasures(dark, bright, _deviation(edges) / (bright - dark), hashed)


def hashable(grey: Image.Image) -> bytes:
    """What `recordmill.transforms.images.perceptual_hash` takes."""
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
