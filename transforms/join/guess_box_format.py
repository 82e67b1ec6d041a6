"""Detect boxes that are probably not xywh in pixels."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from recordmill.schemas.errors import WrongFlagError
from recordmill.schemas.inputs.coco import BoxFormat

_NEARLY_ALL = 0.98
_MOST = 0.5
_FEW = 2
"""Minimum number of areas or polygons that agree: a single one may agree by chance."""
_SEVERAL = 3
"""Minimum number of boxes across the edge: large boxes across the edge look like two corners."""
_ENOUGH = 20
"""Minimum number of boxes: most of fewer boxes may cross the edge for other reasons."""
_FEW_ACROSS = 0.05
_MANY_ACROSS = 0.2
"""Fraction of boxes across the edge that is more than intended, if all boxes look like two corners."""
_APART, _TOGETHER = 0.5, 0.7
"""Intersection over union of a box and its polygons' bounds. It is at least 0.7 for each of 21,820 objects of eight
real files."""
_FEW_APART = 0.01
"""Fraction of boxes apart from their polygons that is more than chance."""
_MANY, _HALF = 100, 0.55
"""Number of boxes of which one is usually beyond this fraction of the width or height."""
_SMALL_PX = 8
"""Images with sides up to this may have boxes of one pixel."""


class Boxes(NamedTuple):
    """Columns of a sample of rows.

    Attributes:
        numbers: float64 [4, N], numbers of `bbox`.
        sizes: float64 [2, N], width and height of each box's image, in pixels; NaN if unknown.
        areas: float64 [N], `area` of the row; NaN if it has none.
        extents: float64 [4, N], xmin, ymin, xmax, ymax of the polygons; NaN without polygons.
    """

    numbers: np.ndarray
    sizes: np.ndarray
    areas: np.ndarray
    extents: np.ndarray

    def select(self, which: np.ndarray) -> "Boxes":
        return Boxes(*(column[..., which] for column in self))


Guess = tuple[tuple[BoxFormat, ...], str]
"""Formats that boxes may have, and the evidence. There are no formats if no known one fits."""


def check_box_format(path: str, boxes: Boxes) -> None:
    """Check that boxes may be xywh in pixels.

    Args:
        path: Path of the file, for the message.

    Raises:
        WrongFlagError: The boxes look like another format.
    """
    guess = guess_box_format(boxes)
    if not guess:
        return
    formats, evidence = guess
    looks, fix = "", "convert them, or "
    if formats:
        looks = f" and look like {' or '.join(_MEANINGS[format_] for format_ in formats)}"
        fix = f"--bbox-format {' or '.join(format_.value for format_ in formats)} reads that format, "
    raise WrongFlagError(
        f"{path}: {evidence}{looks}; as COCO's x, y, width, height in pixels, all would be in the wrong place: "
        f"{fix}--bbox-format xywh accepts the boxes as they are"
    )


def box_warnings(path: str, boxes: Boxes) -> Iterator[str]:
    """Yield a warning if boxes seem to be drawn on smaller images, and one if boxes do not overlap their polygons."""
    reaches = (_box_edges(boxes, BoxFormat.XYWH)[2:] / boxes.sizes)[:, np.isfinite(boxes.sizes[0])]
    if reaches.shape[1] >= _MANY and reaches.max() <= _HALF:
        yield (
            f"{path}: none of {reaches.shape[1]:,} boxes reaches beyond {reaches.max():.0%} of the width or height of "
            "its image, as if they had been drawn on smaller images: if so, scale the annotations"
        )
    boxes = boxes.select(np.isfinite(boxes.extents[0]) & np.all(boxes.numbers[2:] > 0, axis=0))
    number, apart = boxes.areas.size, (_overlaps(boxes, _box_edges(boxes, BoxFormat.XYWH)) < _APART).sum()
    if apart >= _SEVERAL and apart > number * _FEW_APART:
        yield (
            f"{path}: {apart:,} of {number:,} boxes with polygons overlap them by less than half, and are stored "
            "unchanged: correct them; --masks png lists them in problems-SPLIT.jsonl, which --exclude reads"
        )


_MEANINGS = {
    BoxFormat.XYXY: "x1, y1, x2, y2 in pixels",
    BoxFormat.CXCYWH: "centre x, centre y, width, height in pixels",
    BoxFormat.REL_XYXY: "x1, y1, x2, y2 as fractions of the image's sides",
    BoxFormat.REL_XYWH: "x, y, width, height as fractions of the image's sides",
    BoxFormat.REL_CXCYWH: "centre x, centre y, width, height as fractions of the image's sides",
}


def guess_box_format(boxes: Boxes) -> Guess | None:
    """Return the probable format of boxes; None without good evidence against x, y, width, height in pixels."""
    if not boxes.numbers.size:
        return None
    boxes = boxes.select(np.all(boxes.numbers[2:] > 0, axis=0))
    return _guess_fractions(boxes) or _guess_corners(boxes) or _guess_other(boxes) or _guess_across(boxes)


def _guess_fractions(boxes: Boxes) -> Guess | None:
    """Detect fractions: 0 to 1 in images above _SMALL_PX."""
    boxes = boxes.select(~np.all(boxes.sizes <= _SMALL_PX, axis=0))
    number = boxes.areas.size
    within = np.all((boxes.numbers >= -0.01) & (boxes.numbers <= 1.01), axis=0)
    if within.sum() <= number * _NEARLY_ALL or not (boxes.numbers[:, within] % 1).any():
        return None
    left, top, third, fourth = boxes.numbers
    fits = {
        BoxFormat.REL_XYXY: (third >= left) & (fourth >= top),
        BoxFormat.REL_XYWH: (left + third <= 1.01) & (top + fourth <= 1.01),
        BoxFormat.REL_CXCYWH: _centred_within(boxes.numbers),
    }
    formats = tuple(format_ for format_, fitting in fits.items() if fitting.sum() > number * _NEARLY_ALL)
    formats = _matching_formats(boxes, formats) or formats
    misfit = "" if formats else ", and fit neither as corners, nor as corner or centre and size"
    return formats, f"{within.sum():,} of {number:,} boxes have no number above 1{misfit}"


def _centred_within(numbers: np.ndarray) -> np.ndarray:
    """Return bool [N]: the box as cxcywh is within 0..1."""
    centre, half = numbers[:2], numbers[2:] / 2
    return np.all((centre - half >= -0.01) & (centre + half <= 1.01), axis=0)


def _guess_corners(boxes: Boxes) -> Guess | None:
    """Detect two corners instead of a corner and a size."""
    boxes = boxes.select(np.any(boxes.numbers[:2] > 1, axis=0))  # a box at 0, 0 has equal numbers in both formats
    number = boxes.areas.size
    corners, sized = boxes.numbers, _box_edges(boxes, BoxFormat.XYWH)
    is_ordered = np.all(corners[2:] >= corners[:2], axis=0)
    if not number or is_ordered.sum() < number * _NEARLY_ALL:
        return None
    for fits, is_known, relation in (
        (_has_area, np.isfinite(boxes.areas), "have the `area` of (x2 - x1) * (y2 - y1)"),
        (_holds_polygons, np.isfinite(boxes.extents[0]), "end where x2 and y2 of their polygons are"),
    ):
        agree = (is_ordered & fits(boxes, corners) & ~fits(boxes, sized)).sum()
        if agree >= _FEW and agree > is_known.sum() * _MOST:
            return (BoxFormat.XYXY,), f"{agree:,} of {number:,} boxes {relation}"
    least = _MOST if _has_area(boxes, sized).sum() > number * _MOST else _MANY_ACROSS
    across = _is_across(boxes, sized).sum()
    inside = (is_ordered & ~_is_across(boxes, corners)).sum()
    if across >= max(_SEVERAL, number * least) and inside >= number * _NEARLY_ALL:
        return (BoxFormat.XYXY,), f"{across:,} of {number:,} boxes reach beyond the edge of their image"
    return None


def _guess_other(boxes: Boxes) -> Guess | None:
    """Detect boxes that do not overlap their polygons."""
    boxes = boxes.select(np.isfinite(boxes.extents[0]))
    number = boxes.areas.size
    overlaps = _overlaps(boxes, _box_edges(boxes, BoxFormat.XYWH))
    apart = (overlaps < _APART).sum()
    if apart < _SEVERAL or apart <= number * _MOST:
        return None
    evidence = f"{apart:,} of {number:,} boxes with polygons overlap them by less than half"
    formats = _matching_formats(boxes, tuple(_MEANINGS))
    left, top, width, height = boxes.numbers
    right, bottom = boxes.sizes[0] - left, boxes.sizes[1] - top
    changes = {
        "they are mirrored from left to right": [right - width, top, right, top + height],
        "they are mirrored from top to bottom": [left, bottom - height, left + width, bottom],
        "x and y are swapped": [top, left, top + height, left + width],
        "they are y1, x1, y2, x2": [top, left, height, width],
        "they are percentages of the image's sides": _box_edges(boxes, BoxFormat.XYWH)
        * np.tile(boxes.sizes, (2, 1))
        / 100,
        "they are thousandths of the image's sides": _box_edges(boxes, BoxFormat.XYWH)
        * np.tile(boxes.sizes, (2, 1))
        / 1000,
    }
    for change, edges in changes.items():
        if not formats and (_overlaps(boxes, np.stack(edges)) > _TOGETHER).sum() > number * _NEARLY_ALL:
            evidence += f", and fit if {change}"
            break
    return formats, evidence


def _matching_formats(boxes: Boxes, formats: Sequence[BoxFormat]) -> tuple[BoxFormat, ...]:
    """Return the formats in which nearly all boxes match their polygons; () if there are few polygons."""
    boxes = boxes.select(np.isfinite(boxes.extents[0]))
    number = boxes.areas.size
    fits = {format_: (_overlaps(boxes, _box_edges(boxes, format_)) > _TOGETHER).sum() for format_ in formats}
    return tuple(format_ for format_ in formats if number >= _SEVERAL and fits[format_] > number * _NEARLY_ALL)


def _box_edges(boxes: Boxes, format_: BoxFormat) -> np.ndarray:
    """Return xmin, ymin, xmax, ymax of boxes in pixels: [4, N]. NaN if the format needs an unknown image size."""
    first, second = boxes.numbers[:2], boxes.numbers[2:]
    if format_ in (BoxFormat.XYWH, BoxFormat.REL_XYWH):
        second = first + second
    elif format_ in (BoxFormat.CXCYWH, BoxFormat.REL_CXCYWH):
        first, second = first - second / 2, first + second / 2
    scale = boxes.sizes if format_.is_fraction else 1.0
    return np.concatenate([first * scale, second * scale])


def _overlaps(boxes: Boxes, edges: np.ndarray) -> np.ndarray:
    """Return the intersection over union of edges and the polygons' bounds: [N], 0..1. NaN if either is unknown."""
    low, high = np.maximum(boxes.extents[:2], edges[:2]), np.minimum(boxes.extents[2:], edges[2:])
    inside = np.prod(np.maximum(high - low, 0), axis=0)
    areas = [np.prod(np.maximum(bounds[2:] - bounds[:2], 0), axis=0) for bounds in (boxes.extents, edges)]
    union = areas[0] + areas[1] - inside
    return inside / np.where(union > 0, union, np.nan)


def _guess_across(boxes: Boxes) -> Guess | None:
    """Detect boxes that begin at their centres, with swapped axes, or of images before they were shrunk."""
    number, edges = boxes.areas.size, _box_edges(boxes, BoxFormat.XYWH)
    across = _is_across(boxes, edges).sum()
    if number < _ENOUGH or across < max(_SEVERAL, number * _FEW_ACROSS):
        return None
    evidence = f"{across:,} of {number:,} boxes reach beyond the edge of their image"
    centred = _box_edges(boxes, BoxFormat.CXCYWH)
    if not (_is_across(boxes, centred) | np.any(centred[:2] < -1, axis=0)).any():
        return (BoxFormat.CXCYWH,), evidence
    if not _is_across(boxes, edges[[1, 0, 3, 2]]).any():
        return (), f"{evidence}, and none if x and y, or the images' width and height, are swapped"
    if across > number * _MOST:
        return (), f"{evidence}, as if the images had been shrunk after the boxes were drawn"
    return None


def _has_area(boxes: Boxes, edges: np.ndarray) -> np.ndarray:
    """Return bool [N]: `area` fits the edges, up to rounding."""
    width, height = edges[2:] - edges[:2]
    return np.abs(boxes.areas - width * height) <= 0.02 * width * height + 1


def _holds_polygons(boxes: Boxes, edges: np.ndarray) -> np.ndarray:
    """Return bool [N]: the edges are the bounds of the polygons, up to rounding."""
    slack = 2 + 0.02 * (boxes.extents[2:] - boxes.extents[:2]).max(axis=0)
    return np.all(np.abs(boxes.extents - edges) <= slack, axis=0)


def _is_across(boxes: Boxes, edges: np.ndarray) -> np.ndarray:
    """Return bool [N]: the box crosses the right or bottom edge by more than rounding. False if the size is unknown."""
    return np.any(edges[2:] > boxes.sizes * 1.01 + 1, axis=0)
