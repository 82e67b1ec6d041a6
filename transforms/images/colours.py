"""Colours of pixels as numbers: ids of panoptic segments, classes of semantic masks."""

from collections.abc import Iterator

import numpy as np
from PIL import Image

_PIXELS_AT_ONCE = 1 << 20


def strips(width: int, height: int) -> Iterator[slice]:
    """Yield the rows of an image in strips: counts and lookups take several times the memory of the pixels."""
    rows = max(1, _PIXELS_AT_ONCE // max(1, width))
    yield from (slice(top, min(top + rows, height)) for top in range(0, height, rows))


def colour_strips(image: Image.Image) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield strips of rows, and the colours of their pixels: uint8 [rows, width, 3]."""
    for rows in strips(*image.size):
        yield rows, np.asarray(image.crop((0, rows.start, image.width, rows.stop)).convert("RGB"))


def colour_numbers(colours: np.ndarray) -> np.ndarray:
    """Return the numbers 0xRRGGBB of colours, uint8 [..., 3]: uint32 [...].

    >>> colour_numbers(np.array([[1, 2, 3]], np.uint8)).tolist() == [0x010203]
    True
    """
    four = np.zeros((*colours.shape[:-1], 4), np.uint8)
    four[..., :3] = colours[..., ::-1]
    return four.view("<u4")[..., 0]


def find_colours(image: Image.Image, table: np.ndarray) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yield strips of rows; the row of each pixel's colour in a table, -1 for other colours: int64 [rows, width]; and
    the numbers of the colours: uint32 [rows, width].

    Args:
        table: uint8 [n, 3], red, green and blue.

    >>> image = Image.new("RGB", (2, 1), (9, 0, 0))
    >>> image.putpixel((1, 0), (0, 9, 9))
    >>> ((rows, indices, _),) = find_colours(image, np.array([[0, 0, 0], [9, 0, 0]], np.uint8))
    >>> rows, indices.tolist()
    (slice(0, 1, None), [[1, -1]])
    """
    numbers = colour_numbers(table)
    order = np.argsort(numbers, kind="stable")
    ranked = numbers[order]
    for rows, colours in colour_strips(image):
        pixels = colour_numbers(colours)
        ranks = np.searchsorted(ranked, pixels).clip(max=len(ranked) - 1)
        yield rows, np.where(ranked[ranks] == pixels, order[ranks], -1), pixels
