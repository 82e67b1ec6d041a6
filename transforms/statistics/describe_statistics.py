"""Counts become what statistics.json has of them."""

from collections.abc import Iterator, Mapping, Sequence
from math import floor

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.statistics import FRACTIONAL, HEAT_SIDE, SCALE, ZERO_BIN, Histogram, Statistics, edge
from recordmill.schemas.statistics_file import Bin, ClassStatistics, Distribution, SegmentStatistics, SplitStatistics


def describe_statistics(
    statistics: Statistics, labels: LabelMap, table: FeatureTable, class_counts: Sequence[int]
) -> SplitStatistics:
    """The statistics of a split.

    Args:
        class_counts: see `recordmill.schemas.manifest.SplitManifest`.
    """
    has_objects = "objects.class_index" in table.sources
    of_class, of_segment = statistics.images_of_class, statistics.images_of_segment
    return SplitStatistics(
        statistics.images,
        {name: distribution(histogram, name not in FRACTIONAL) for name, histogram in statistics.histograms.items()},
        _rows(statistics.centres) if statistics.centres else (),
        statistics.formats,
        tuple(
            ClassStatistics(category.name, number, of_class.get(index, 0) if has_objects else number)
            for index, (category, number) in enumerate(zip(labels.categories, class_counts, strict=True))
        ),
        tuple(
            SegmentStatistics(category.name, of_segment.get(index, 0)) for index, category in enumerate(labels.segments)
        ),
        statistics.examples,
        statistics.findings,
        statistics.measured,
    )


def _rows(centres: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(centres.get(row * HEAT_SIDE + column, 0) for column in range(HEAT_SIDE)) for row in range(HEAT_SIDE)
    )


def distribution(histogram: Histogram, is_whole: bool) -> Distribution:
    """A histogram of one number at least; of whole ones alone if `is_whole`."""
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


def quantiles(bins: Sequence[Bin], shares: Sequence[float]) -> Iterator[float]:
    """What so great a share of the numbers is below, as if those of a bin were evenly spread in it."""
    total = sum(each.number for each in bins)
    for share in shares:
        before = 0
        for each in bins:
            if before + each.number >= share * total:
                yield each.low + (each.high - each.low) * (share * total - before) / each.number
                break
            before += each.number
