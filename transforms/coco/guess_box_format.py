"""Detect boxes that are probably not xywh in pixels."""

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.errors import WrongFlagError
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.transforms.coco.coco_rows import AnnotationRow, polygon_bounds
from recordmill.transforms.coco.file_fields import text_of

Numbers = tuple[float, float, float, float]
BOX = msgspec.json.Decoder(Numbers)

LARGEST = 1e18
"""Limit in pixels, or square pixels, beyond any image. It is within float32, the type of records (up to 3.4e38)."""


def box_xywh_px(numbers: Numbers, format_: BoxFormat, width: int, height: int) -> Numbers:
    """Convert a `bbox` of another format to x, y, width, height in pixels. Width and height may be negative.

    Args:
        width, height: Size of the image, in pixels. Formats in pixels ignore it.

    >>> box_xywh_px((60, 20, 100, 50), BoxFormat.XYXY, width=0, height=0)
    (60, 20, 40, 30)
    >>> box_xywh_px((0.5, 0.5, 0.25, 0.5), BoxFormat.REL_XYWH, width=100, height=40)
    (50.0, 20.0, 25.0, 20.0)
    >>> box_xywh_px((60, 20, 40, 10), BoxFormat.CXCYWH, width=0, height=0)
    (40.0, 15.0, 40.0, 10.0)
    """
    x, y, xmax, ymax = numbers
    if format_ in (BoxFormat.CXCYWH, BoxFormat.REL_CXCYWH):
        x, y = round(x - xmax / 2, 12), round(y - ymax / 2, 12)
    if format_ not in (BoxFormat.XYXY, BoxFormat.REL_XYXY):
        # Rounding keeps 0.9 + 0.1 of a side at the edge, not one float beyond it.
        xmax, ymax = round(x + xmax, 12), round(y + ymax, 12)
    if format_.is_fraction:
        x, y, xmax, ymax = x * width, y * height, xmax * width, ymax * height
    return x, y, _length(x, xmax), _length(y, ymax)


def _length(low: float, high: float) -> float:
    """Return the largest length with `low + length` <= `high`."""
    length = high - low
    return length if low + length <= high else math.nextafter(length, -math.inf)


def box_area_px2(area: float, numbers: Numbers, format_: BoxFormat, bbox_xywh_px: Numbers) -> float:
    """Return the area of an object in pixels², for a `bbox` of another format than COCO's.

    The area of the box replaces two kinds of `area`: the product of the last two numbers of `bbox`, which a tool took
    for width and height, and, in formats of fractions, at most 1.

    >>> box_area_px2(5000, (60, 20, 100, 50), BoxFormat.XYXY, (60, 20, 40, 30))
    1200
    """
    is_fraction = format_.is_fraction and area <= 1
    if is_fraction or math.isclose(area, numbers[2] * numbers[3], rel_tol=1e-6):
        return bbox_xywh_px[2] * bbox_xywh_px[3]
    return area


_SAMPLE = 10_000
"""Number of evenly spaced rows to sample. The time is then the same for a file of any size."""
_ROW_BYTES = 60
"""Minimum size of a row. Rows with polygons are ten times as large, so that fewer rows are sampled."""
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
"""Fraction of boxes elsewhere than their polygons that is more than chance."""
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


class Guess(NamedTuple):
    """Formats that the boxes may have, and the evidence. `formats` is empty if no known format fits."""

    formats: tuple[BoxFormat, ...]
    evidence: str


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
    looks, cure = "", "convert them, or "
    if guess.formats:
        looks = f" and look like {' or '.join(_MEANINGS[format_] for format_ in guess.formats)}"
        cure = f"--bbox-format {' or '.join(format_.value for format_ in guess.formats)} reads that, "
    raise WrongFlagError(
        f"{path}: {guess.evidence}{looks}; read as COCO's x, y, width, height in pixels, all would be in wrong places: "
        f"{cure}--bbox-format xywh accepts them unchanged"
    )


def warn_of_boxes(path: str, boxes: Boxes) -> Iterator[str]:
    """Yield a warning if boxes are drawn on smaller images, or some are elsewhere than their polygons."""
    reaches = (_edges(boxes, BoxFormat.XYWH)[2:] / boxes.sizes)[:, np.isfinite(boxes.sizes[0])]
    if reaches.shape[1] >= _MANY and reaches.max() <= _HALF:
        yield (
            f"{path}: none of {reaches.shape[1]:,} boxes reaches beyond {reaches.max():.0%} of the width or height of "
            "its image, as if they had been drawn on smaller images: if so, scale the annotations"
        )
    boxes = boxes.select(np.isfinite(boxes.extents[0]) & np.all(boxes.numbers[2:] > 0, axis=0))
    number, apart = boxes.areas.size, (_overlaps(boxes, _edges(boxes, BoxFormat.XYWH)) < _APART).sum()
    if apart >= _SEVERAL and apart > number * _FEW_APART:
        yield (
            f"{path}: {apart:,} of {number:,} boxes with polygons overlap them by less than half, and are stored as "
            "they are: correct them; --masks png lists them in problems-SPLIT.jsonl, which --exclude takes"
        )


_FRACTION = rb"\s*(?:[0-9](?:\.[0-9]+)?[eE]-[0-9]+|0(?:\.[0-9]+)?|1(?:\.0+)?)\s*"
_FRACTIONS = re.compile(rb"\[" + rb",".join([_FRACTION] * 4) + rb"\]")


def fraction_boxes(rows: Iterable[AnnotationRow]) -> list[AnnotationRow]:
    """Return the rows whose `bbox` is within 0..1, and not of whole numbers. The text decides, because all rows of a
    file are looked at."""
    return [
        row for row in rows if _FRACTIONS.fullmatch(row.bbox) and any(number % 1 for number in BOX.decode(row.bbox))
    ]


_MEANINGS = {
    BoxFormat.XYXY: "x1, y1, x2, y2 in pixels",
    BoxFormat.CXCYWH: "centre x, centre y, width, height in pixels",
    BoxFormat.REL_XYXY: "x1, y1, x2, y2 as fractions of the image's sides",
    BoxFormat.REL_XYWH: "x, y, width, height as fractions of the image's sides",
    BoxFormat.REL_CXCYWH: "centre x, centre y, width, height as fractions of the image's sides",
}


class SampledBoxes(NamedTuple):
    """Columns of Boxes for a sample of rows, with image ids in place of sizes.

    Attributes:
        image_ids: int64 [N].
    """

    image_ids: np.ndarray
    numbers: np.ndarray
    areas: np.ndarray
    extents: np.ndarray

    def boxes(self, sizes: Mapping[int, tuple[int, int]]) -> Boxes:
        """Return Boxes with image sizes. `sizes` has width and height in pixels by image id."""
        unknown = (np.nan, np.nan)
        of_images = [sizes.get(image_id, unknown) for image_id in self.image_ids.tolist()]
        return Boxes(self.numbers, np.array(of_images, float).reshape(-1, 2).T, self.areas, self.extents)


def sampled_of(file_bytes: int) -> int:
    """Return the step between sampled rows of a file of this size, for about _SAMPLE rows at most."""
    return max(1, file_bytes // (_SAMPLE * _ROW_BYTES))


def sample_boxes(rows: Sequence[AnnotationRow]) -> SampledBoxes:
    """Return the boxes of rows. Malformed boxes are skipped."""
    unknown = (np.nan,) * 4
    image_ids, numbers, areas, extents = [], [], [], []
    for row in rows:
        with contextlib.suppress(msgspec.DecodeError):
            box = BOX.decode(row.bbox)
            if max(map(abs, box)) <= LARGEST:
                image_ids.append(row.image_id)
                numbers.append(box)
                areas.append(np.nan if row.area is None else row.area)
                extents.append(polygon_bounds(text_of(row, "segmentation")) or unknown)
    return SampledBoxes(
        np.array(image_ids, np.int64),
        np.array(numbers, float).reshape(-1, 4).T,
        np.array(areas, float),
        np.array(extents, float).reshape(-1, 4).T,
    )


def join_samples(samples: Sequence[SampledBoxes]) -> SampledBoxes:
    return SampledBoxes(*(np.concatenate(columns, axis=-1) for columns in zip(*samples, strict=True)))


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
    none = "" if formats else ", and fit neither as corners, nor as corner or centre and size"
    return Guess(formats, f"{within.sum():,} of {number:,} boxes have no number above 1{none}")


def _centred_within(numbers: np.ndarray) -> np.ndarray:
    """Return bool [N]: the box as cxcywh is within 0..1."""
    centre, half = numbers[:2], numbers[2:] / 2
    return np.all((centre - half >= -0.01) & (centre + half <= 1.01), axis=0)


def _guess_corners(boxes: Boxes) -> Guess | None:
    """Detect two corners instead of a corner and a size."""
    boxes = boxes.select(np.any(boxes.numbers[:2] > 1, axis=0))  # a box at 0, 0 has equal numbers in both formats
    number = boxes.areas.size
    corners, sized = boxes.numbers, _edges(boxes, BoxFormat.XYWH)
    is_ordered = np.all(corners[2:] >= corners[:2], axis=0)
    if not number or is_ordered.sum() < number * _NEARLY_ALL:
        return None
    for fits, known, what in (
        (_has_area, np.isfinite(boxes.areas), "have the `area` of (x2 - x1) * (y2 - y1)"),
        (_holds_polygons, np.isfinite(boxes.extents[0]), "end where x2 and y2 of their polygons are"),
    ):
        agree = (is_ordered & fits(boxes, corners) & ~fits(boxes, sized)).sum()
        if agree >= _FEW and agree > known.sum() * _MOST:
            return Guess((BoxFormat.XYXY,), f"{agree:,} of {number:,} boxes {what}")
    least = _MOST if _has_area(boxes, sized).sum() > number * _MOST else _MANY_ACROSS
    across = _is_across(boxes, sized).sum()
    inside = (is_ordered & ~_is_across(boxes, corners)).sum()
    if across >= max(_SEVERAL, number * least) and inside >= number * _NEARLY_ALL:
        return Guess((BoxFormat.XYXY,), f"{across:,} of {number:,} boxes reach beyond the edge of their image")
    return None


def _guess_other(boxes: Boxes) -> Guess | None:
    """Detect boxes that do not overlap their polygons."""
    boxes = boxes.select(np.isfinite(boxes.extents[0]))
    number = boxes.areas.size
    overlaps = _overlaps(boxes, _edges(boxes, BoxFormat.XYWH))
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
        "they are percentages of the image's sides": _edges(boxes, BoxFormat.XYWH) * np.tile(boxes.sizes, (2, 1)) / 100,
        "they are thousandths of the image's sides": _edges(boxes, BoxFormat.XYWH)
        * np.tile(boxes.sizes, (2, 1))
        / 1000,
    }
    for change, edges in changes.items():
        if not formats and (_overlaps(boxes, np.stack(edges)) > _TOGETHER).sum() > number * _NEARLY_ALL:
            evidence += f", and fit if {change}"
            break
    return Guess(formats, evidence)


def _matching_formats(boxes: Boxes, formats: Sequence[BoxFormat]) -> tuple[BoxFormat, ...]:
    """Return the formats in which nearly all boxes match their polygons; () if there are few polygons."""
    boxes = boxes.select(np.isfinite(boxes.extents[0]))
    number = boxes.areas.size
    fits = {format_: (_overlaps(boxes, _edges(boxes, format_)) > _TOGETHER).sum() for format_ in formats}
    return tuple(format_ for format_ in formats if number >= _SEVERAL and fits[format_] > number * _NEARLY_ALL)


def _edges(boxes: Boxes, format_: BoxFormat) -> np.ndarray:
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
    areas = [np.prod(np.maximum(of[2:] - of[:2], 0), axis=0) for of in (boxes.extents, edges)]
    union = areas[0] + areas[1] - inside
    return inside / np.where(union > 0, union, np.nan)


def _guess_across(boxes: Boxes) -> Guess | None:
    """Detect boxes that begin at their centres, with swapped axes, or of images before they were shrunk."""
    number, edges = boxes.areas.size, _edges(boxes, BoxFormat.XYWH)
    across = _is_across(boxes, edges).sum()
    if number < _ENOUGH or across < max(_SEVERAL, number * _FEW_ACROSS):
        return None
    evidence = f"{across:,} of {number:,} boxes reach beyond the edge of their image"
    centred = _edges(boxes, BoxFormat.CXCYWH)
    if not (_is_across(boxes, centred) | np.any(centred[:2] < -1, axis=0)).any():
        return Guess((BoxFormat.CXCYWH,), evidence)
    if not _is_across(boxes, edges[[1, 0, 3, 2]]).any():
        return Guess((), f"{evidence}, and none if x and y, or the images' width and height, are swapped")
    if across > number * _MOST:
        return Guess((), f"{evidence}, as if it had been made smaller after they were drawn")
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
