"""What is drawn over a picture, whatever it was read from: the annotations of a record, or of an image's task. A class
has one colour, in every picture of a data set."""

import colorsys
import zlib
from typing import NamedTuple

import numpy as np

Colour = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""

_GOLDEN_ANGLE = 0.381966
"""Of a whole turn: hues that follow one another by it are as far apart as they can be, however many there are."""
_TONES = ((0.9, 1.0), (0.5, 1.0), (0.95, 0.68), (0.55, 0.8))
"""Saturation and value, in turn, as there are only some twenty hues that the eye tells apart. Four, as hues come near
again after 13, 21, 34, 55 classes."""
_BRIGHT = 0.18
"""The luminance above which black is easier to read on a colour than white."""


def class_colour(index: int) -> Colour:
    """The colour of a class by its index.

    >>> class_colour(0), class_colour(1) == class_colour(2)
    ((255, 25, 25), False)
    """
    red, green, blue = colorsys.hsv_to_rgb(index * _GOLDEN_ANGLE % 1, *_TONES[index % len(_TONES)])
    return round(255 * red), round(255 * green), round(255 * blue)


def name_colour(name: str) -> Colour:
    """The colour of a class that is known by its name alone."""
    return class_colour(zlib.crc32(name.encode()) % 4096)


def ink_on(colour: Colour) -> Colour:
    """Black or white, whichever reads better on a colour.

    >>> ink_on((255, 255, 0)), ink_on((0, 0, 160))
    ((0, 0, 0), (255, 255, 255))
    """
    red, green, blue = ((channel / 255) ** 2.2 for channel in colour)
    is_bright = 0.2126 * red + 0.7152 * green + 0.0722 * blue > _BRIGHT
    return (0, 0, 0) if is_bright else (255, 255, 255)


class Shape(NamedTuple):
    """An object, or a region of a map.

    Attributes:
        name: of its class; empty for none.
        box_yxyx_frac: ymin, xmin, ymax, xmax as fractions of the picture's height and width.
        mask: bool [height, width], of the picture's shape at any size.
        keypoints: x and y as fractions, and visibility: 0 not labelled, 1 hidden, 2 visible.
        skeleton: pairs of keypoints that a line joins, counted from 1 as COCO does.
    """

    name: str
    colour: Colour
    box_yxyx_frac: tuple[float, float, float, float] | None = None
    mask: np.ndarray | None = None
    keypoints: tuple[tuple[float, float, int], ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()
    is_crowd: bool = False


class Layer(NamedTuple):
    """What is drawn over one copy of the picture, `objects` or `panoptic` for example."""

    title: str
    shapes: tuple[Shape, ...] = ()


class Overlay(NamedTuple):
    """All that is drawn of a record.

    Attributes:
        layers: one copy of the picture each, side by side; at least one.
        lines: texts below: the file's name, the class, captions.
        faults: what cannot be drawn, and why.
    """

    layers: tuple[Layer, ...]
    lines: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
