"""Take images that are written again out of the numbers of a split."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from recordmill.schemas.dataset.manifest import AnnotationCounts, ImageCounts, SplitManifest
from recordmill.schemas.rejects import Metric
from recordmill.schemas.statistics import (
    EXACT_LEVEL,
    ZERO_BIN,
    Example,
    FieldCounts,
    Finding,
    Histogram,
    Statistics,
    bin_index,
    edge,
)
from recordmill.transforms.dataset.count_fields import bin_starts
from recordmill.transforms.dataset.facts import Facts, add_facts, add_statistics

_Number = TypeVar("_Number", int, float)
_Key = TypeVar("_Key")


class Removed(NamedTuple):
    """Images of a data set that --add --sync writes again.

    Attributes:
        facts: What their records contributed to the numbers of each split. Its examples are those of the shards in
            `files` that stay, in the copies.
        files: Shards with one of the images, by split.
    """

    facts: Facts
    files: Mapping[str, Collection[str]]


NOTHING_REMOVED = Removed(Facts(), {})


def add_removed(parts: Iterable[Removed]) -> Removed:
    """Return the sum."""
    parts, files = list(parts), defaultdict[str, list[str]](list)
    for part in parts:
        for split, names in part.files.items():
            files[split] += names
    return Removed(add_facts(part.facts for part in parts), {split: sorted(names) for split, names in files.items()})


def take_out(entry: SplitManifest, statistics: Statistics, removed: Removed) -> tuple[SplitManifest, Statistics]:
    """Return the entry and the statistics of a split without the removed images, and without the shards that had one.

    What records do not tell stays: how an image was transcoded, and which boxes were clipped. Numbers of tiles count an
    object once per tile.
    """
    split, facts = entry.recipe.split, removed.facts
    number = Counter({metric: facts.counts.get((split, metric.value), 0) for metric in Metric})
    number |= _unseen_maps(entry, number)
    files = set(removed.files.get(split, ()))
    left = _less_statistics(statistics, facts.statistics.get(split, Statistics()), number[Metric.IMAGES], files)
    classes = [count - facts.classes.get((split, index), 0) for index, count in enumerate(entry.class_counts)]
    objects_an_image = left.histograms.get("objects_an_image", Histogram())
    images = _less_images(entry.images, number, objects_an_image.bins.get(ZERO_BIN, 0))
    changed = msgspec.structs.replace(
        entry,
        images=images,
        annotations=_less_annotations(entry.annotations, number),
        record_bytes=entry.record_bytes - number[Metric.RECORD_BYTES],
        shards=tuple(shard for shard in entry.shards if shard.file not in files),
        class_counts=tuple(classes),
        findings={name: finding.number for name, finding in left.findings.items()},
    )
    return changed, left


def _less_images(images: ImageCounts, number: Mapping[Metric, int], without_objects: int) -> ImageCounts:
    return msgspec.structs.replace(
        images,
        written=images.written - number[Metric.IMAGES],
        replaced=images.replaced + number[Metric.IMAGES],
        without_objects=without_objects,
        tiles=images.tiles - number[Metric.TILES],
        jpeg_tiles=max(0, images.jpeg_tiles - number[Metric.JPEG_TILES]),
    )


_MAPS = (Metric.SEMANTIC_MASKS, Metric.DEPTH_MAPS)


def _unseen_maps(entry: SplitManifest, number: Mapping[Metric, int]) -> Counter[Metric]:
    """Return the numbers of removed maps where all records have one. In a record, a map whose pixels are all unknown is
    that of an image without a map."""
    metric = Metric.TILES if entry.images.tiles else Metric.IMAGES
    records = entry.images.tiles or entry.images.written
    return Counter({name: number[metric] for name in _MAPS if getattr(entry.annotations, name.value) == records})


_ANNOTATIONS = (Metric.OBJECTS, Metric.CAPTIONS, Metric.PANOPTIC, Metric.REGIONS, *_MAPS)


def _less_annotations(annotations: AnnotationCounts, number: Mapping[Metric, int]) -> AnnotationCounts:
    """Return the counts with the same sum of all outcomes. Regions of stuff are counted by category, and several of one
    image may have one."""
    fields = {metric: "stuff" if metric is Metric.REGIONS else metric.value for metric in _ANNOTATIONS}
    gone = {field: min(number[metric], getattr(annotations, field)) for metric, field in fields.items()}
    marks = {field: getattr(annotations, field) - number[Metric(field)] for field in ("masks", "keypoints_outside")}
    return msgspec.structs.replace(
        annotations,
        replaced=annotations.replaced + sum(gone.values()),
        **{field: getattr(annotations, field) - count for field, count in gone.items()},
        **{field: max(0, count) for field, count in marks.items()},
    )


def _less_statistics(one: Statistics, other: Statistics, images: int, files: Collection[str]) -> Statistics:
    """Return `one` without `other`, with the examples of both that are not in `files`.

    Args:
        images: Number of whole images that `other` counts.
    """

    def left(examples: Collection[Example]) -> tuple[Example, ...]:
        return tuple(example for example in examples if example.shard not in files)

    numbers = Statistics(
        one.images - other.images,
        {name: histogram for name, histogram in _less_histograms(one, other) if histogram.bins},
        less_counts(one.centres, other.centres),
        _less(one.formats, other.formats),
        _less(one.images_of_class, other.images_of_class),
        _less(one.images_of_segment, other.images_of_segment),
        {why: left(examples) for why, examples in one.examples.items()},
        {
            name: Finding(number, left(finding.examples))
            for name, finding in one.findings.items()
            if (number := finding.number - other.findings.get(name, Finding()).number) > 0
        },
        max(0, one.measured - images),
        {source: less_field_counts(counts, other.fields.get(source)) for source, counts in one.fields.items()},
        None if one.pixels is None or other.pixels is None else _less(one.pixels, other.pixels),
    )
    moved = {name: Finding(0, other.findings[name].examples) for name in numbers.findings if name in other.findings}
    return add_statistics(numbers, Statistics(examples=other.examples, findings=moved))


def _less_histograms(one: Statistics, other: Statistics) -> "list[tuple[str, Histogram]]":
    return [(name, less_histogram(known, other.histograms.get(name))) for name, known in one.histograms.items()]


def less_histogram(one: Histogram, other: Histogram | None) -> Histogram:
    """Return a histogram without the numbers of another. A least or largest number whose bin is empty then becomes the
    edge of the next bin.

    >>> less_histogram(Histogram(0, 5.0, 40.0, {9: 1, 21: 2}), Histogram(0, 5.0, 5.0, {9: 1}))
    Histogram(total=0, least=40.0, largest=40.0, bins={21: 2})
    """
    if other is None:
        return one
    bins = less_counts(one.bins, other.bins)
    if not bins or one.least is None or one.largest is None:
        return Histogram()
    low, high = min(bins), max(bins)
    least = one.least if bin_index(one.least) in bins else edge(low)
    largest = one.largest if bin_index(one.largest) in bins else edge(high if high == ZERO_BIN else high + 1)
    return Histogram(one.total - other.total, least, largest, bins)


def less_field_counts(one: FieldCounts, other: FieldCounts | None) -> FieldCounts:
    """Return the counts of a field without others; the bins keep their width."""
    if other is None:
        return one
    bins = one.bins
    if other.bins:
        counts = Counter[float]()
        starts = bin_starts(np.array(list(other.bins), np.float64), one.level).tolist()
        for start, number in zip(starts, other.bins.values(), strict=True):
            counts[start] += number
        bins = less_counts(one.bins, counts)
    texts = None if one.texts is None or other.texts is None else _less(one.texts, other.texts)
    numbers = one.rows - other.rows, one.missing - other.missing, one.values - other.values
    return FieldCounts(*numbers, *_ends(one, bins), one.level, bins, texts)


def _ends(counts: FieldCounts, bins: Mapping[float, int]) -> tuple[float | None, float | None]:
    """Return the least and the largest number that is left, see `less_histogram`."""
    if not bins or counts.least is None or counts.largest is None:
        return None, None
    width = 0.0 if counts.level == EXACT_LEVEL else 2.0**counts.level
    least_bin, largest_bin = bin_starts(np.array([counts.least, counts.largest]), counts.level).tolist()
    least = counts.least if least_bin in bins else min(bins)
    return least, counts.largest if largest_bin in bins else max(bins) + width


def less_counts(one: Mapping[_Number, int], other: Mapping[_Number, int]) -> dict[_Number, int]:
    """Return the counts of bins without others. Records of layout keras have pixels, whose fractions may be in the next
    bin: a count that is not in its bin is taken from the nearest one.

    >>> less_counts({1: 2, 2: 1}, {1: 1, 3: 1})
    {1: 1}
    """
    left = Counter(one)
    left.subtract(other)
    for bin_ in sorted(bin_ for bin_, number in left.items() if number < 0):
        while left[bin_] < 0 and (filled := [other_bin for other_bin, number in left.items() if number > 0]):
            nearest = min(filled, key=lambda place: (abs(place - bin_), place))
            moved = min(left[nearest], -left[bin_])
            left[nearest] -= moved
            left[bin_] += moved
    return {bin_: number for bin_, number in sorted(left.items()) if number > 0}


def _less(one: Mapping[_Key, int], other: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: left for key, number in one.items() if (left := number - other.get(key, 0)) > 0}
