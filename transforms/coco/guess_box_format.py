"""Boxes that are not x, y, width, height in pixels are recognised, as far as that can be done, before they are used."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.errors import WrongFlagError
from recordmill.schemas.inputs.coco import BoxFormat
from recordmill.transforms.coco.decode_coco import AnnotationRow

Numbers = tuple[float, float, float, float]
BOX = msgspec.json.Decoder(Numbers)

LARGEST = 1e18
"""More pixels, or square pixels, than any image has; records keep 32-bit floats, which end at 3.4e38."""


def box_xywh_px(numbers: Numbers, format_: BoxFormat, width: int, height: int) -> Numbers:
    """x, y, width, height in pixels of a `bbox` of a format other than COCO's; width and height may turn out negative.

    Args:
        width, height: of the image, in pixels; they do not matter to a format of pixels.

    >>> box_xywh_px((60, 20, 100, 50), BoxFormat.XYXY, width=0, height=0)
    (60, 20, 40, 30)
    >>> box_xywh_px((0.5, 0.5, 0.25, 0.5), BoxFormat.REL_XYWH, width=100, height=40)
    (50.0, 20.0, 25.0, 20.0)
    """
    x, y, xmax, ymax = numbers
    if format_ is BoxFormat.REL_XYWH:
        # 0.9 and 0.1 of a side end at the edge, not behind it by the last bit of a float.
        xmax, ymax = round(x + xmax, 12), round(y + ymax, 12)
    if format_ is not BoxFormat.XYXY:
        x, y, xmax, ymax = x * width, y * height, xmax * width, ymax * height
    return x, y, _length(x, xmax), _length(y, ymax)


def _length(low: float, high: float) -> float:
    """What is to be added to `low` to come to `high`, and not beyond it."""
    length = high - low
    return length if low + length <= high else math.nextafter(length, -math.inf)


def box_area_px2(area: float, numbers: Numbers, format_: BoxFormat, bbox_xywh_px: Numbers) -> float:
    """The `area` of a row in pixels², where `bbox` has another format than COCO's.

    It is that of the box if it was made of the numbers of `bbox` as if they were x, y, width, height, or if it is no
    more than 1, a fraction of the image.

    >>> box_area_px2(5000, (60, 20, 100, 50), BoxFormat.XYXY, (60, 20, 40, 30))
    1200
    """
    is_fraction = format_ is not BoxFormat.XYXY and area <= 1
    if is_fraction or math.isclose(area, numbers[2] * numbers[3], rel_tol=1e-6):
        return bbox_xywh_px[2] * bbox_xywh_px[3]
    return area


_SAMPLE = 10_000
"""So many rows are looked at, evenly spaced, which takes the same time for a file of any size."""
_ROW_BYTES = 60
"""No row has fewer; with polygons it is ten times as many, and so fewer rows are looked at."""
_NEARLY_ALL = 0.98
_MOST = 0.5
_FEW = 2
"""A single area or polygon may agree by chance …"""
_SEVERAL = 3
"""… as may a box or two across the edge, which look as if they had two corners where they are large …"""
_ENOUGH = 20
"""… and of fewer boxes most may cross the edge for other reasons."""
_MANY_ACROSS = 0.2
"""Boxes that overlap the edge on purpose are fewer, where all of them look as if they had two corners."""
_SMALL_PX = 8
"""An image of no more than this may well have boxes of a pixel."""


class Boxes(NamedTuple):
    """Columns of a sample of rows.

    Attributes:
        numbers: [4, N], of `bbox`.
        sizes: [2, N], width and height of each box's image, in pixels; NaN where unknown.
        areas: [N], of the JSON; NaN where it has none.
        extents: [4, N], least x and y and largest x and y of the polygons; NaN where there are none.
    """

    numbers: np.ndarray
    sizes: np.ndarray
    areas: np.ndarray
    extents: np.ndarray

    def those(self, which: np.ndarray) -> "Boxes":
        return Boxes(*(column[..., which] for column in self))


class Guess(NamedTuple):
    """Formats that the boxes may have; none where no format that can be read fits; and what speaks for it."""

    formats: tuple[BoxFormat, ...]
    evidence: str


def check_box_format(path: str, boxes: Boxes) -> None:
    """Check that boxes may be x, y, width, height in pixels.

    Args:
        path: for the message.

    Raises:
        WrongFlagError: they look as if they were something else.
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
        f"{cure}--bbox-format xywh takes them as they are"
    )


_MEANINGS = {
    BoxFormat.XYXY: "x1, y1, x2, y2 in pixels",
    BoxFormat.REL_XYXY: "x1, y1, x2, y2 as fractions of the image's sides",
    BoxFormat.REL_XYWH: "x, y, width, height as fractions of the image's sides",
}


class SampledBoxes(NamedTuple):
    """Columns of a sample of rows, as of Boxes, and the ids of their images.

    Attributes:
        image_ids: int64 [N].
    """

    image_ids: np.ndarray
    numbers: np.ndarray
    areas: np.ndarray
    extents: np.ndarray

    def boxes(self, sizes: Mapping[int, tuple[int, int]]) -> Boxes:
        """With the width and height of images, by id, in pixels."""
        unknown = (np.nan, np.nan)
        of_images = [sizes.get(image_id, unknown) for image_id in self.image_ids.tolist()]
        return Boxes(self.numbers, np.array(of_images, float).reshape(-1, 2).T, self.areas, self.extents)


def sampled_of(file_bytes: int) -> int:
    """Every so manieth row of a file of that size is looked at: of any file, no more than _SAMPLE or so."""
    return max(1, file_bytes // (_SAMPLE * _ROW_BYTES))


def sample_boxes(rows: Sequence[AnnotationRow], first: int = 0, step: int = 1) -> SampledBoxes:
    """The boxes of every so manieth row, without those that are malformed."""
    unknown = (np.nan,) * 4
    image_ids, numbers, areas, extents = [], [], [], []
    for row in rows[first::step]:
        with contextlib.suppress(msgspec.DecodeError):
            box = BOX.decode(row.bbox)
            if max(map(abs, box)) <= LARGEST:
                image_ids.append(row.image_id)
                numbers.append(box)
                areas.append(np.nan if row.area is None else row.area)
                extents.append(_extent(getattr(row, "segmentation", b"")) or unknown)
    return SampledBoxes(
        np.array(image_ids, np.int64),
        np.array(numbers, float).reshape(-1, 4).T,
        np.array(areas, float),
        np.array(extents, float).reshape(-1, 4).T,
    )


def join_samples(samples: Sequence[SampledBoxes]) -> SampledBoxes:
    return SampledBoxes(*(np.concatenate(columns, axis=-1) for columns in zip(*samples, strict=True)))


_POLYGONS = msgspec.json.Decoder(list[list[float]])


def _extent(segmentation: bytes) -> tuple[float, ...] | None:
    with contextlib.suppress(msgspec.DecodeError, ValueError):
        polygons = _POLYGONS.decode(segmentation)
        x, y = ([number for polygon in polygons for number in polygon[start::2]] for start in (0, 1))
        return min(x), min(y), max(x), max(y)
    return None


def guess_box_format(boxes: Boxes) -> Guess | None:
    """What boxes are, where there is good evidence that they are not x, y, width, height in pixels."""
    if not boxes.numbers.size:
        return None
    boxes = boxes.those(np.all(boxes.numbers[2:] > 0, axis=0))
    return _guess_fractions(boxes) or _guess_corners(boxes) or _guess_across(boxes)


def _guess_fractions(boxes: Boxes) -> Guess | None:
    """Numbers from 0 to 1, in images that have more than a few pixels."""
    boxes = boxes.those(~np.all(boxes.sizes <= _SMALL_PX, axis=0))
    number = boxes.areas.size
    within = np.all((boxes.numbers >= -0.01) & (boxes.numbers <= 1.01), axis=0)
    if within.sum() <= number * _NEARLY_ALL or not (boxes.numbers[:, within] % 1).any():
        return None
    left, top, third, fourth = boxes.numbers
    fits = {
        BoxFormat.REL_XYXY: (third >= left) & (fourth >= top),
        BoxFormat.REL_XYWH: (left + third <= 1.01) & (top + fourth <= 1.01),
    }
    formats = tuple(format_ for format_, fitting in fits.items() if fitting.sum() > number * _NEARLY_ALL)
    centres = "" if formats else ", and fit neither as corners nor as corner and size (YOLO's count from the centre)"
    return Guess(formats, f"{within.sum():,} of {number:,} boxes have no number above 1{centres}")


def _guess_corners(boxes: Boxes) -> Guess | None:
    """Two corners in place of a corner and a size."""
    boxes = boxes.those(np.any(boxes.numbers[:2] > 1, axis=0))  # for a box at 0, 0 it is the same
    number = boxes.areas.size
    left, top, third, fourth = boxes.numbers
    corners, sized = boxes.numbers, np.stack([left, top, left + third, top + fourth])
    is_ordered = (third >= left) & (fourth >= top)
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


def _guess_across(boxes: Boxes) -> Guess | None:
    """Boxes of other images, or of these before they were shrunk."""
    left, top, third, fourth = boxes.numbers
    number = boxes.areas.size
    across = _is_across(boxes, np.stack([left, top, left + third, top + fourth])).sum()
    if number >= _ENOUGH and across > number * _MOST:
        shrunk = "as if it had been made smaller after they were drawn"
        return Guess((), f"{across:,} of {number:,} boxes reach beyond the edge of their image, {shrunk}")
    return None


def _has_area(boxes: Boxes, edges: np.ndarray) -> np.ndarray:
    """Whether the area is that between edges, but for rounding."""
    width, height = edges[2:] - edges[:2]
    return np.abs(boxes.areas - width * height) <= 0.02 * width * height + 1


def _holds_polygons(boxes: Boxes, edges: np.ndarray) -> np.ndarray:
    """Whether edges are those of the polygons, but for rounding."""
    slack = 2 + 0.02 * (boxes.extents[2:] - boxes.extents[:2]).max(axis=0)
    return np.all(np.abs(boxes.extents - edges) <= slack, axis=0)


def _is_across(boxes: Boxes, edges: np.ndarray) -> np.ndarray:
    """Whether edges lie beyond the image's right or bottom edge, by more than rounding; not so if that is unknown."""
    return np.any(edges[2:] > boxes.sizes * 1.01 + 1, axis=0)
