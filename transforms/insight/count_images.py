"""Statistics of images, counted while records are written or read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import repeat
from math import floor
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.boxes import shortest_decimal
from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.schemas.field_features import field_columns
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, LabelMap
from recordmill.schemas.problems import Problem
from recordmill.schemas.statistics import (
    DEPTH,
    EXACT_LEVEL,
    FINDING_EXAMPLES,
    FRACTIONAL,
    GALLERY,
    HEAT_SIDE,
    SCALE,
    ZERO_BIN,
    Bin,
    ClassStatistics,
    Distribution,
    Example,
    FieldCounts,
    FieldStatistics,
    Finding,
    Histogram,
    PixelStatistics,
    SegmentStatistics,
    SplitStatistics,
    Statistics,
    edge,
    quantiles,
)
from recordmill.transforms.blocks.image_facts import NO_OFFSET, FactColumns, FieldItems, RecordPlaces, SortedObjects
from recordmill.transforms.dataset.count_fields import count_items
from recordmill.transforms.dataset.facts import add_histograms, add_statistics
from recordmill.transforms.images.measure_pixels import BLANK_CONTRAST

_ODD_ASPECT = 2
_THIN = 4
"""Minimum side of a box in pixels. Detectors do not learn thinner boxes."""
_DARK, _BRIGHT = 82, 242
"""Grey levels, 0..255. 99 % of the pixels of a dark image are below _DARK, 95 % of those of a bright image are above
_BRIGHT. Both are the limits of cleanvision."""
_BLURRED = 0.15
"""Minimum sharpness of images that are not blurred. 0.6 % of COCO's images are below it; after a Gaussian blur with a
sigma of 4 % of the longer side all are, at 2 % 69 % are."""
_LEAST_ASPECT = 0.35
"""Limit of cleanvision for shorter / longer side of an image. The minimum of coco_mini's 159 images is 0.47."""
_OVERLAP, _OFF = 0.8, 2
"""A box does not fit its mask if its intersection over union with the mask's bounds is less than _OVERLAP, and an edge
is off by more than _OFF pixels. Of COCO's 1,350 objects 2 meet both conditions (0.15 %), 26 the second, no crowd."""
_KEY_BYTES = 6  # exact in every JSON reader: below 2**53

_EXACT = 1 << 62
"""Limit of int64 arithmetic. Larger sums, or products with SCALE, use Python's integers."""


class ProblemRows(NamedTuple):
    """Images or boxes with one possible problem.

    Attributes:
        kind: One of FINDINGS.
        images: int64 [n]. Rows of the images; for boxes, the image of each.
        ranks: int64 [n]. The lowest is the worst.
        scores: float64 [n]. From 0 (worst) to 1.
        boxes: int64 [n]. Rows of the boxes; None if the images themselves are odd.
    """

    kind: str
    images: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray
    boxes: np.ndarray | None = None


class ImageCounter:
    """Counter of the images of a shard.

    Attributes:
        problems: Possible problems of the images and their boxes.
    """

    def __init__(self) -> None:
        self._counted = Statistics()
        self.problems: list[Problem] = []

    def add(
        self,
        facts: FactColumns,
        places: RecordPlaces,
        objects: SortedObjects | None,
        fields: Mapping[str, Sequence[FieldItems]] = MappingProxyType({}),
    ) -> None:
        """Count images.

        Args:
            objects: Their sorted objects; None if records have no objects.
            fields: Values of their open fields, by the source of their feature.
        """
        boxes = None if objects is None else BoxColumns(facts, objects)
        source = facts.without_tiles()
        groups = [*(boxes.find_problems() if boxes else ()), *find_odd_images(source)]
        counted = _count_images(facts, places, objects, boxes, groups)
        field_counts = {source: count_items(items) for source, items in fields.items()}
        self._counted = add_statistics(self._counted, msgspec.structs.replace(counted, fields=field_counts))
        self.problems += _list_image_problems(source, groups)

    def statistics(self, shard: str) -> Statistics:
        """Return the statistics of all counted images. `shard` is the name of their shard."""
        counted = self._counted

        def set_shard(examples: Iterable[Example]) -> tuple[Example, ...]:
            return tuple(msgspec.structs.replace(example, shard=shard) for example in examples)

        return msgspec.structs.replace(
            counted,
            examples={why: set_shard(examples) for why, examples in counted.examples.items()},
            findings={
                name: Finding(finding.number, set_shard(finding.examples)) for name, finding in counted.findings.items()
            },
        )


def _count_images(
    facts: FactColumns,
    places: RecordPlaces,
    objects: SortedObjects | None,
    boxes: "BoxColumns | None",
    groups: Iterable[ProblemRows],
) -> Statistics:
    """Return the statistics of images, without the name of the shard. NumPy is as fast for hundreds of images as for
    one."""
    first = np.flatnonzero(~facts.is_continuation)
    numbers = _image_numbers(facts, first, objects) | (boxes.numbers() if boxes else {})
    histograms = {name: histogram(values) for name, values in numbers.items() if len(values)}
    if depth := [facts.depth[image] for image in first.tolist()] if facts.depth else []:
        histograms[DEPTH] = reduce(add_histograms, depth)
    formats = Counter(facts.format[image] for image in first.tolist() if facts.format[image])
    chooser = _ExampleChooser(facts, places)
    return Statistics(
        len(first),
        histograms,
        boxes.centres() if boxes else {},
        dict(formats),
        {} if objects is None else _count_numbers(objects.rows[objects.is_new_class, 0].astype(np.int64)),
        _count_segment_images(facts),
        _choose_gallery(facts, boxes, chooser),
        {group.kind: _make_finding(group, chooser) for group in groups},
        sum(facts.measures[image] is not None for image in first.tolist()),
        pixels=dict(sorted(_count_pixels(facts, first).items())),
    )


def _count_pixels(facts: FactColumns, images: np.ndarray) -> Counter[int]:
    """Return the number of pixels of each value of the semantic masks of images."""
    counts = Counter[int]()
    pixels = facts.pixels or []
    for image in images.tolist() if pixels else ():
        counts.update(pixels[image])
    return counts


def histogram(numbers: np.ndarray) -> Histogram:
    """Return the histogram of float64 [n], n > 0, of numbers >= 0."""
    return Histogram(
        scaled_sum(numbers), float(numbers.min()), float(numbers.max()), _count_numbers(bin_numbers(numbers))
    )


def bin_numbers(numbers: np.ndarray) -> np.ndarray:
    """Return the bin of each number >= 0, see `recordmill.schemas.statistics.bin_index`: int64 [n]."""
    fractions, exponents = np.frexp(numbers)
    return np.where(numbers > 0, 4 * (exponents - 1) + np.floor(8 * fractions).astype(np.int64) - 4, ZERO_BIN)


def scaled_sum(numbers: np.ndarray) -> int:
    """Return the exact sum of float64 numbers, each multiplied by SCALE and rounded.

    >>> scaled_sum(np.array([0.5, 1e30])) == SCALE // 2 + int(1e30) * SCALE
    True
    """
    scaled = np.rint(numbers * SCALE)
    if len(scaled) and float(scaled.max()) * len(scaled) >= _EXACT:
        return sum(map(int, scaled.tolist()))
    return int(scaled.astype(np.int64).sum())


def _count_numbers(numbers: np.ndarray) -> dict[int, int]:
    """Return the count of each number of an int64 array."""
    values, counts = np.unique(numbers, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _count_segment_images(facts: FactColumns) -> dict[int, int]:
    if facts.segments is None:
        return {}
    image = np.repeat(np.arange(len(facts)), facts.segments.lengths)
    return _count_numbers(np.unique(np.column_stack((image, facts.segments.values)), axis=0)[:, 1])


def _image_numbers(facts: FactColumns, first: np.ndarray, objects: SortedObjects | None) -> dict[str, np.ndarray]:
    """Return the values of histograms with one value per image, for the images `first` that start here."""
    has_size = first[facts.size_px[first, 0] > 0]
    width, height = facts.size_px[has_size].astype(np.float64).T
    numbers = {
        "image_width": width,
        "image_height": height,
        "image_aspect": width / height,
        "image_bytes": facts.num_bytes[has_size].astype(np.float64),
    }
    if objects is not None:
        classes = np.bincount(objects.image[objects.is_new_class], minlength=len(facts))
        numbers["objects_an_image"] = np.diff(facts.first_object_of_image)[first].astype(np.float64)
        numbers["classes_an_image"] = classes[first].astype(np.float64)
    if facts.num_captions is not None:
        numbers["captions_an_image"] = facts.num_captions[first].astype(np.float64)
    return numbers


class BoxColumns:
    """Boxes of N images, as arrays.

    Attributes:
        image: int64 [M], row of each box's image.
        box_counts: int64 [N], number of boxes of each image.
        sides: float64 [M], square root of the area of each box, in pixels.
    """

    def __init__(self, facts: FactColumns, objects: SortedObjects):
        self._objects = objects
        self._ymin, self._xmin, self._ymax, self._xmax = facts.yxyx_frac.T.astype(np.float64)
        self._masks = facts.mask_bounds_px
        self.image = objects.image  # sorting objects within their image keeps it
        self.box_counts = np.diff(facts.first_object_of_image)
        self._width, self._height = facts.size_px[objects.image].T.astype(np.float64)
        self._share = (self._ymax - self._ymin) * (self._xmax - self._xmin)
        self._width_px = (self._xmax - self._xmin) * self._width
        self._height_px = (self._ymax - self._ymin) * self._height
        self.sides = np.sqrt(self._share * self._width * self._height)

    def numbers(self) -> dict[str, np.ndarray]:
        is_area = (self._width_px > 0) & (self._height_px > 0)
        aspect = self._width_px[is_area] / self._height_px[is_area]
        return {"box_side": self.sides, "box_share": self._share, "box_aspect": aspect}

    def find_problems(self) -> Iterator[ProblemRows]:
        """Yield each kind of FINDINGS about boxes that occurs."""
        # Rounded, because the edges of a box of 4 pixels, as fractions, may be a little less apart.
        side_px = np.minimum(self._width_px, self._height_px).round(2)
        thin = np.flatnonzero(side_px < _THIN)
        repeated = self._objects.order[self._objects.is_repeated]
        kinds = [
            ("thin_boxes", thin, np.maximum(side_px[thin], 0) / _THIN),
            ("repeated_boxes", repeated, np.zeros(len(repeated))),
        ]
        if self._masks is not None:
            kinds.append(("box_mask_mismatch", *self._find_mask_mismatches(self._masks)))
        for kind, rows, scores in kinds:
            if len(rows):
                images = self.image[rows]
                yield ProblemRows(kind, images, -np.bincount(images)[images], scores, rows)

    def _find_mask_mismatches(self, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of boxes that do not fit their mask, and intersection / union. Skip objects without mask."""
        size = np.stack([self._height, self._width] * 2, axis=1)
        edges = np.stack([self._ymin, self._xmin, self._ymax, self._xmax], axis=1)
        boxes = np.clip(edges, 0, 1) * size  # clipped to the image, like masks
        common = _areas(np.maximum(boxes, masks)[:, :2], np.minimum(boxes, masks)[:, 2:])
        union = _areas(boxes[:, :2], boxes[:, 2:]) + _areas(masks[:, :2], masks[:, 2:]) - common
        is_off = np.abs(boxes - masks).max(axis=1, initial=0).round(2) > _OFF
        rows = np.flatnonzero(is_off & (common < _OVERLAP * union))
        return rows, common[rows] / union[rows]

    def centres(self) -> dict[int, int]:
        row, column = (
            np.clip(np.floor((low + high) / 2 * HEAT_SIDE), 0, HEAT_SIDE - 1).astype(np.int64)
            for low, high in ((self._ymin, self._ymax), (self._xmin, self._xmax))
        )
        return _count_numbers(row * HEAT_SIDE + column)

    def smallest(self, images: np.ndarray) -> np.ndarray:
        """Return the smallest `sides` of each image, times SCALE: int64, or Python's integers. Images need boxes."""
        first = (np.cumsum(self.box_counts) - self.box_counts)[images]
        scaled = np.rint(np.minimum.reduceat(self.sides, first) * SCALE)
        return scaled.astype(np.int64) if float(scaled.max()) < _EXACT else np.array(list(map(int, scaled)), object)


def _areas(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the areas of boxes from corners [N, 2] to corners [N, 2]; 0 for boxes that end before their start."""
    return np.maximum(high - low, 0).prod(axis=1)


class _ExampleChooser:
    """Chooser of Examples by rank.

    Attributes:
        key: int64 [N], hash of the image's file: tie-breaker of images with equal rank, and equal for copies.
    """

    def __init__(self, facts: FactColumns, places: RecordPlaces):
        self.key = np.array([int(sha256[: 2 * _KEY_BYTES] or "0", 16) for sha256 in facts.sha256], np.int64)
        self._places = places

    def first(self, number: int, images: np.ndarray, ranks: np.ndarray) -> tuple[Example, ...]:
        """Return Examples of different images with the `number` lowest ranks.

        Args:
            images: int64 [n], rows.
            ranks: int64 [n] or Python's integers, rank of each image.
        """
        _, order = np.unique(ranks, return_inverse=True)  # lexsort does not sort objects
        ordered = np.lexsort((self._places.record[images], self.key[images], order))
        _, first = np.unique(self.key[images][ordered], return_index=True)  # of each image among its copies
        chosen = ordered[np.sort(first)[:number]]
        columns = (self.key, *self._places)
        places = (column[images[chosen]].tolist() for column in columns)
        return tuple(
            Example(rank, key, "", record, records=records)
            if offset == NO_OFFSET
            else Example(rank, key, "", record, offset, size)
            for rank, key, record, records, offset, size in zip(ranks[chosen].tolist(), *places, strict=True)
        )


def _choose_gallery(
    facts: FactColumns, boxes: BoxColumns | None, chooser: _ExampleChooser
) -> dict[str, tuple[Example, ...]]:
    """Return the best images for each row of GALLERY."""
    short, long = _image_sides(facts)
    is_counted = ~facts.is_continuation & (facts.size_px[:, 0] > 0)
    sample = np.flatnonzero(is_counted)
    odd = np.flatnonzero(is_counted & (long >= _ODD_ASPECT * short))
    ranks = {"sample": (sample, chooser.key[sample]), "odd": (odd, _elongation(short[odd], long[odd]))}
    if boxes:
        annotated = np.flatnonzero(is_counted & (boxes.box_counts > 0))
        ranks["crowded"] = annotated, -boxes.box_counts[annotated]
        if len(annotated):
            with_boxes = np.flatnonzero(boxes.box_counts)
            small = boxes.smallest(with_boxes)
            ranks["small"] = annotated, small[np.searchsorted(with_boxes, annotated)]
    return {why: chooser.first(GALLERY[why], *ranked) for why, ranked in ranks.items() if len(ranked[0])}


def _image_sides(facts: FactColumns) -> tuple[np.ndarray, np.ndarray]:
    """Return each image's shorter and longer side in pixels."""
    return facts.size_px.min(axis=1), facts.size_px.max(axis=1)


def _elongation(short: np.ndarray, long: np.ndarray) -> np.ndarray:
    """Return ranks: the more elongated an image, the lower."""
    return -(long * SCALE // short)


def _make_finding(group: ProblemRows, chooser: _ExampleChooser) -> Finding:
    images, first = np.unique(group.images, return_index=True)
    return Finding(len(group.images), chooser.first(FINDING_EXAMPLES, images, group.ranks[first]))


def find_odd_images(facts: FactColumns) -> Iterator[ProblemRows]:
    """Yield each kind of FINDINGS about images that occurs. A score is the measure divided by its limit.

    An image is blurred if its edges are weak for its contrast. A blank image is reported only as blank, and by its
    shape. A 12-bit image, which is black in 8 bits, is reported only as such, and by its shape.
    """
    is_first = ~facts.is_continuation
    images = np.array([row for row in np.flatnonzero(is_first).tolist() if facts.measures[row] is not None], np.int64)
    measures = [image for row in images.tolist() if (image := facts.measures[row])]
    dark, bright = np.array([(image.dark, image.bright) for image in measures], np.int64).reshape(-1, 2).T
    sharpness = np.array([image.sharpness for image in measures], np.float64)
    blur = np.rint(sharpness * SCALE).astype(np.int64)
    contrast = bright - dark
    is_12_bit = np.array([image.is_12_bit for image in measures], bool)
    is_empty = is_12_bit | (contrast < BLANK_CONTRAST)
    for name, is_odd, ranks, scores in (
        ("blank", is_empty & ~is_12_bit, contrast, contrast / BLANK_CONTRAST),
        ("dark", ~is_empty & (bright < _DARK), bright, bright / _DARK),
        ("bright", ~is_empty & (dark > _BRIGHT), -dark, (255 - dark) / (255 - _BRIGHT)),
        ("blurred", ~is_empty & (sharpness < _BLURRED), blur, blur / SCALE / _BLURRED),
        ("twelve_bits", is_12_bit, bright, bright / 16),
    ):
        if is_odd.any():
            yield ProblemRows(name, images[is_odd], ranks[is_odd], scores[is_odd])
    short, long = _image_sides(facts)
    odd = np.flatnonzero(is_first & (short < _LEAST_ASPECT * long))
    if len(odd):
        elongation = _elongation(short[odd], long[odd])
        yield ProblemRows("odd_aspect", odd, elongation, -SCALE / elongation / _LEAST_ASPECT)


def describe_statistics(
    statistics: Statistics, labels: LabelMap, table: FeatureTable, class_counts: Sequence[int]
) -> SplitStatistics:
    """Return a split's statistics in the form of its file.

    Args:
        class_counts: See `recordmill.schemas.dataset.manifest.SplitManifest`.
    """
    has_objects = "objects.class_index" in table.sources
    class_images, segment_images = statistics.images_of_class, statistics.images_of_segment
    return SplitStatistics(
        statistics.images,
        {name: distribution(histogram, name not in FRACTIONAL) for name, histogram in statistics.histograms.items()},
        _centre_rows(statistics.centres),
        statistics.formats,
        tuple(
            ClassStatistics(category.name, number, class_images.get(index, 0) if has_objects else number)
            for index, (category, number) in enumerate(zip(labels.categories, class_counts, strict=True))
        ),
        tuple(
            SegmentStatistics(category.name, segment_images.get(index, 0))
            for index, category in enumerate(labels.segments)
        ),
        statistics.examples,
        statistics.findings,
        statistics.measured,
        _describe_fields(statistics.fields, table) or msgspec.UNSET,
        tuple(_describe_pixels(statistics.pixels, labels)) if statistics.pixels else msgspec.UNSET,
    )


def _describe_pixels(counts: Mapping[int, int], labels: LabelMap) -> Iterator[PixelStatistics]:
    """Yield each value of the classes, and each value of pixels, ascending."""
    names = labels.semantic_names()
    for value in sorted({*names, *counts} - {SEMANTIC_IGNORE}):
        yield PixelStatistics(names.get(value, ""), value, counts.get(value, 0))
    yield PixelStatistics("unknown", SEMANTIC_IGNORE, counts.get(SEMANTIC_IGNORE, 0))


def _describe_fields(counts: Mapping[str, FieldCounts], table: FeatureTable) -> dict[str, FieldStatistics]:
    columns = {column.source: column for column in field_columns(table)}
    return {source: describe_field(counts[source], columns[source].kind) for source in columns if source in counts}


def describe_field(counts: FieldCounts, kind: FeatureKind) -> FieldStatistics:
    """Return a field's statistics in the form of the file."""
    is_exact, width = counts.level == EXACT_LEVEL, 2.0**counts.level

    def shown(number: float) -> float:
        return shortest_decimal(np.float32(number)) if kind is FeatureKind.FLOAT else number

    bins = tuple(
        Bin(shown(start), shown(start), number) if is_exact else Bin(start, start + width, number)
        for start, number in sorted(counts.bins.items())
    )
    least, largest = (None if end is None else shown(end) for end in (counts.least, counts.largest))
    return FieldStatistics(
        counts.rows, counts.missing, counts.values, least, largest, bins, counts.texts or {}, counts.texts is None
    )


def _centre_rows(centres: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    side = range(HEAT_SIDE)
    return tuple(tuple(centres.get(row * HEAT_SIDE + column, 0) for column in side) for row in side if centres)


def distribution(histogram: Histogram, is_whole: bool) -> Distribution:
    """Describe a histogram, which must not be empty. `is_whole` means that all its numbers are integers."""
    bins = tuple(
        Bin(edge(index), 0.0 if index == ZERO_BIN else edge(index + 1), number)
        for index, number in sorted(histogram.bins.items())
    )
    least, largest = histogram.least or 0.0, histogram.largest or 0.0
    mean = histogram.total / (SCALE * histogram.count)
    p05, median, p95 = (
        min(max(floor(value) if is_whole else value, least), largest) for value in quantiles(bins, (0.05, 0.5, 0.95))
    )
    return Distribution(histogram.count, least, largest, mean, p05, median, p95, bins)


_SCORE_DIGITS = 4


def _list_image_problems(facts: FactColumns, groups: Iterable[ProblemRows]) -> Iterator[Problem]:
    for group in groups:
        ids: Iterable[int | None] = repeat(None)
        if group.boxes is not None:
            if facts.object_id is None:
                continue
            ids = facts.object_id[group.boxes].tolist()
        for name, score, id_ in zip(facts.name.take(group.images).texts(), group.scores.tolist(), ids, strict=False):
            yield Problem(group.kind, round(score, _SCORE_DIGITS), name, id_)
