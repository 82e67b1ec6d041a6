"""What is drawn over a picture, whatever it was read from: the annotations of a record, or of an image's task."""

from typing import NamedTuple

import numpy as np

from recordmill.transforms.draw.colours import Colour


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
