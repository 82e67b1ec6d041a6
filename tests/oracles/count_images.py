"""Images are counted as their records are written or read."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain

import msgspec
import numpy as np

from recordmill.schemas.statistics import (
    FINDING_EXAMPLES,
    GALLERY,
    HEAT_SIDE,
    SCALE,
    ZERO_BIN,
    Example,
    Finding,
    Histogram,
    PixelMeasures,
    Statistics,
)
from recordmill.transforms.dataset.facts import add_statistics
from recordmill.transforms.images.measure_pixels import BLANK_CONTRAST
from tests.oracles.image_facts import ImageFacts, RecordPlace

_AT_ONCE = 1024
"""Images that are counted together: numpy takes as long for one as for hundreds."""
_ODD_ASPECT = 2
_THIN = 4
"""Pixels; detectors do not learn boxes that are thinner."""
_DARK, _BRIGHT = 82, 242
"""Levels, of 255, that 99 % of a dark picture's pixels are below, and 95 % of a bright one's above: cleanvision's."""
_BLURRED = 0.15
"""Sharpness below which a picture is blurred: 0.6 % of COCO's own are; all that a Gaussian blurs whose sigma is 4 % of
the longer side, and 69 % at 2 %."""
_LEAST_ASPECT = 0.35
"""Shorter side by longer below which a picture's shape is odd: cleanvision's. None of coco_mini's 159 is below 0.47."""
_OVERLAP, _OFF = 0.8, 2
"""A box is not around its mask if intersection / union with the mask's bounds is less, and an edge is off by more
pixels. 2 of 1,350 objects of COCO's are both (0.15 %), 26 have an edge so far off, and none of its 13 crowds."""
_KEY_BYTES = 6  # which any reader of JSON takes

_NO_MASK = (np.nan,) * 4

Placed = tuple[ImageFacts, RecordPlace]


class ImageCounter:
    """Counts the images of a shard."""

    def __init__(self) -> None:
        self._pending: list[Placed] = []
        self._counted = Statistics()

    def add(self, facts: ImageFacts, place: RecordPlace) -> None:
        self._pending.append((facts, place))
        if len(self._pending) == _AT_ONCE:
            self._count()

    def statistics(self, shard: str) -> Statistics:
        """Of all images; `shard` is the name of the file that their records are in."""
        self._count()
        counted = self._counted

        def placed(examples: Iterable[Example]) -> tuple[Example, ...]:
            return tuple(msgspec.structs.replace(each, shard=shard) for each in examples)

        return msgspec.structs.replace(
            counted,
            examples={why: placed(found) for why, found in counted.examples.items()},
            findings={name: Finding(found.number, placed(found.examples)) for name, found in counted.findings.items()},
        )

    def _count(self) -> None:
        self._counted = add_statistics(self._counted, count_images(self._pending))
        self._pending = []


def count_images(images: Sequence[Placed]) -> Statistics:
    """Statistics of images, whose shard has no name yet."""
    first = [facts for facts, _ in images if not facts.is_continuation]
    boxes = _Boxes([facts for facts, _ in images])
    numbers = _of_images(first) | boxes.numbers()
    return Statistics(
        len(first),
        {name: histogram(values) for name, values in numbers.items() if len(values)},
        boxes.centres(),
        dict(Counter(facts.format for facts in first if facts.format)),
        dict(Counter(index for facts, _ in images for index in set(facts.classes))),
        dict(Counter(index for facts, _ in images for index in set(facts.segments))),
        _examples(images, boxes),
        _findings(images, boxes),
        sum(facts.measures is not None for facts in first),
    )


def histogram(numbers: np.ndarray) -> Histogram:
    """A histogram of float64 numbers that are not negative, one at least."""
    fractions, exponents = np.frexp(numbers)
    bins = np.where(numbers > 0, 4 * (exponents - 1) + np.floor(8 * fractions).astype(np.int64) - 4, ZERO_BIN)
    indices, counts = np.unique(bins, return_counts=True)
    total = sum(map(int, np.rint(numbers * SCALE).tolist()))  # int64 overflowed here
    found = dict(zip(indices.tolist(), counts.tolist(), strict=True))
    return Histogram(total, float(numbers.min()), float(numbers.max()), found)


def _of_images(images: Sequence[ImageFacts]) -> dict[str, np.ndarray]:
    sizes = [(facts.width, facts.height, facts.bytes) for facts in images if facts.width]
    width, height, size = _floats(sizes).reshape(-1, 3).T
    of_objects = [facts for facts in images if facts.boxes is not None]
    return {
        "image_width": width,
        "image_height": height,
        "image_aspect": width / height,
        "image_bytes": size,
        "objects_an_image": _floats(len(facts.boxes[0]) for facts in of_objects if facts.boxes),
        "classes_an_image": _floats(len(set(facts.classes)) for facts in of_objects),
        "captions_an_image": _floats(facts.captions for facts in images if facts.captions is not None),
    }


def _floats(numbers: Iterable) -> np.ndarray:
    return np.array(list(numbers), np.float64)


class _Boxes:
    """The boxes of some images, as arrays.

    Attributes:
        of_image: how many each has.
        sides: of each box: the square root of its area in pixels.
    """

    def __init__(self, images: Sequence[ImageFacts]):
        annotated = [facts for facts in images if facts.boxes]
        boxes = [facts.boxes for facts in images if facts.boxes]
        edges = [
            # As records have them, so that those that are read back give the same.
            np.array([value for each in boxes for value in each[edge]], np.float32).astype(np.float64)
            for edge in range(4)
        ]
        self._ymin, self._xmin, self._ymax, self._xmax = edges
        self.of_image = [len(facts.boxes[0]) if facts.boxes else 0 for facts in images]
        self._height = np.repeat(_floats(facts.height for facts in images), self.of_image)
        self._width = np.repeat(_floats(facts.width for facts in images), self.of_image)
        self.sides = np.sqrt(self._share * self._width * self._height)
        self._masks = np.array([edges for facts in annotated for edges in _mask_edges(facts)], np.float64).reshape(
            -1, 4
        )
        self._classes = _floats(index for facts in annotated for index in facts.classes)
        self._image = np.repeat(np.arange(len(images)), self.of_image)

    @property
    def _share(self) -> np.ndarray:
        return (self._ymax - self._ymin) * (self._xmax - self._xmin)

    @property
    def _sides_px(self) -> tuple[np.ndarray, np.ndarray]:
        """Width and height."""
        return (self._xmax - self._xmin) * self._width, (self._ymax - self._ymin) * self._height

    def numbers(self) -> dict[str, np.ndarray]:
        width, height = self._sides_px
        is_area = (width > 0) & (height > 0)
        return {"box_side": self.sides, "box_share": self._share, "box_aspect": width[is_area] / height[is_area]}

    def thin(self) -> np.ndarray:
        """How many boxes of each image are less than `_THIN` pixels wide or high."""
        # Rounded, as a box of 4 pixels is a little less once its edges are fractions.
        return self._number(np.minimum(*self._sides_px).round(2) < _THIN)

    def repeated(self) -> np.ndarray:
        """How many boxes of each image are equal to another of the same class."""
        all_of = np.stack([self._image, self._classes, self._ymin, self._xmin, self._ymax, self._xmax], axis=1)
        _, first = np.unique(all_of, axis=0, return_index=True)
        return self._number(~np.isin(np.arange(len(all_of)), first))

    def not_around_mask(self) -> np.ndarray:
        """How many boxes of each image have other bounds than their mask; what has no mask is none of them."""
        size = np.stack([self._height, self._width] * 2, axis=1)
        edges = np.stack([self._ymin, self._xmin, self._ymax, self._xmax], axis=1)
        boxes = np.clip(edges, 0, 1) * size  # where masks are, which end with their image
        common = _areas(np.maximum(boxes, self._masks)[:, :2], np.minimum(boxes, self._masks)[:, 2:])
        union = _areas(boxes[:, :2], boxes[:, 2:]) + _areas(self._masks[:, :2], self._masks[:, 2:]) - common
        is_off = np.abs(boxes - self._masks).max(axis=1, initial=0).round(2) > _OFF
        return self._number(is_off & (common < _OVERLAP * union))

    def _number(self, which: np.ndarray) -> np.ndarray:
        return np.bincount(self._image[which], minlength=len(self.of_image))

    def centres(self) -> dict[int, int]:
        row, column = (
            np.clip(np.floor((low + high) / 2 * HEAT_SIDE), 0, HEAT_SIDE - 1).astype(np.int64)
            for low, high in ((self._ymin, self._ymax), (self._xmin, self._xmax))
        )
        places, counts = np.unique(row * HEAT_SIDE + column, return_counts=True)
        return dict(zip(places.tolist(), counts.tolist(), strict=True))


def _mask_edges(facts: ImageFacts) -> Iterable[Sequence[float]]:
    """Of each object's mask; NaN of an object without one."""
    bounds = [None] * len(facts.classes) if facts.mask_bounds is None else facts.mask_bounds
    return (_NO_MASK if each is None else each for each in bounds)


def _areas(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Of boxes [N, 2] to [N, 2]; 0 of those that end before they begin."""
    return np.maximum(high - low, 0).prod(axis=1)


def _examples(images: Sequence[Placed], boxes: _Boxes) -> dict[str, tuple[Example, ...]]:
    """The images that serve best for each of GALLERY."""
    chosen: dict[str, list[tuple[int, int, RecordPlace]]] = {why: [] for why in GALLERY}
    ends = np.cumsum(boxes.of_image)
    for (facts, place), objects, end in zip(images, boxes.of_image, ends, strict=True):
        if facts.is_continuation or not facts.width:
            continue
        key = _key(facts)
        for why, rank in _ranks(facts, key, boxes.sides[end - objects : end]):
            chosen[why].append((rank, key, place))
    return {why: _first(GALLERY[why], found) for why, found in chosen.items() if found}


def _findings(images: Sequence[Placed], boxes: _Boxes) -> dict[str, Finding]:
    """What FINDINGS names, with the images that have the most of it."""
    numbers: Counter[str] = Counter()
    chosen: dict[str, list[tuple[int, int, RecordPlace]]] = defaultdict(list)
    counts = {
        "thin_boxes": boxes.thin(),
        "repeated_boxes": boxes.repeated(),
        "box_mask_mismatch": boxes.not_around_mask(),
    }
    for (facts, place), *of_image in zip(images, *(each.tolist() for each in counts.values()), strict=True):
        of_boxes = ((name, number, -number) for name, number in zip(counts, of_image, strict=True))
        of_picture = () if facts.is_continuation else chain(_odd_pixels(facts.measures), _odd_shape(facts))
        for name, number, rank in chain(of_boxes, ((name, 1, rank) for name, rank in of_picture)):
            if number:
                numbers[name] += number
                chosen[name].append((rank, _key(facts), place))
    return {name: Finding(numbers[name], _first(FINDING_EXAMPLES, found)) for name, found in chosen.items()}


def _odd_pixels(measures: PixelMeasures | None) -> Iterator[tuple[str, int]]:
    """What is odd about a picture, each with a number that is the smaller, the worse it is. A picture is blurred whose
    edges are weak for its contrast; of one without contrast nothing else is said."""
    if measures is None:
        return
    contrast = measures.bright - measures.dark
    if contrast < BLANK_CONTRAST:
        yield "blank", contrast
        return
    if measures.bright < _DARK:
        yield "dark", measures.bright
    if measures.dark > _BRIGHT:
        yield "bright", -measures.dark
    if measures.sharpness < _BLURRED:
        yield "blurred", round(measures.sharpness * SCALE)


def _odd_shape(facts: ImageFacts) -> Iterator[tuple[str, int]]:
    short, long = sorted((facts.width, facts.height))
    if short < _LEAST_ASPECT * long:
        yield "odd_aspect", -(long * SCALE // short)


def _key(facts: ImageFacts) -> int:
    """A number by which images of equal rank are ordered."""
    return int.from_bytes(blake2b(facts.name.encode(), digest_size=_KEY_BYTES).digest(), "big")


def _first(number: int, found: Iterable[tuple[int, int, RecordPlace]]) -> tuple[Example, ...]:
    return tuple(Example(rank, key, "", *place) for rank, key, place in heapq.nsmallest(number, found))


def _ranks(facts: ImageFacts, key: int, sides: np.ndarray) -> Iterator[tuple[str, int]]:
    yield "sample", key
    if len(sides):
        yield "crowded", -len(sides)
        yield "small", round(float(sides.min()) * SCALE)
    short, long = sorted((facts.width, facts.height))
    if long >= _ODD_ASPECT * short:
        yield "odd", -(long * SCALE // short)
