"""Statistics of a split from its file, so that statistics of more records can be added."""

from fractions import Fraction
from math import log2

import numpy as np
from msgspec import UNSET

from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.schemas.field_features import field_columns
from recordmill.schemas.statistics import (
    EXACT_LEVEL,
    FRACTIONAL,
    HEAT_SIDE,
    SCALE,
    Distribution,
    FieldCounts,
    FieldStatistics,
    Histogram,
    SplitStatistics,
    Statistics,
    bin_index,
)


def invert_statistics(described: SplitStatistics, table: FeatureTable) -> Statistics:
    """Return the statistics that `recordmill.transforms.insight.count_images.describe_statistics` described.

    They are equal as long as the sum of a histogram's numbers is below 2**52 for whole numbers, and below 2**32 for
    fractions. The sums of larger ones may differ in their last digits.
    """
    has_objects = "objects.class_index" in table.sources
    kinds = {column.source: column.kind for column in field_columns(table)}
    fields = described.fields or {}
    return Statistics(
        described.images,
        {name: _invert_distribution(one, name not in FRACTIONAL) for name, one in described.histograms.items()},
        {
            row * HEAT_SIDE + column: number
            for row, numbers in enumerate(described.centres)
            for column, number in enumerate(numbers)
            if number
        },
        described.formats,
        {index: row.images for index, row in enumerate(described.classes) if has_objects and row.images},
        {index: row.images for index, row in enumerate(described.segments) if row.images},
        described.examples,
        described.findings,
        described.measured,
        {source: invert_field(field, kinds[source]) for source, field in fields.items() if source in kinds},
        _invert_pixels(described, table),
    )


def _invert_pixels(described: SplitStatistics, table: FeatureTable) -> dict[int, int] | None:
    """Return pixels by value; None for semantic masks that an earlier version did not count."""
    if described.pixels is UNSET:
        return None if described.images and "semantic.png" in table.sources else {}
    return {row.value: row.pixels for row in described.pixels if row.pixels}


def _invert_distribution(described: Distribution, is_whole: bool) -> Histogram:
    unit = SCALE if is_whole else 1
    total = round(Fraction(described.mean) * described.count * SCALE / unit) * unit
    bins = {bin_index(bin_.low): bin_.number for bin_ in described.bins}
    return Histogram(total, described.least, described.largest, bins)


def invert_field(described: FieldStatistics, kind: FeatureKind) -> FieldCounts:
    """Return the counts that `recordmill.transforms.insight.count_images.describe_field` described."""

    def stored(number: float) -> float:
        return float(np.float32(number)) if kind is FeatureKind.FLOAT else float(number)

    def stored_end(number: float | None) -> float | None:
        return None if number is None else stored(number)

    widths = {bin_.high - bin_.low for bin_ in described.bins}
    level = EXACT_LEVEL if widths <= {0} else int(log2(max(widths)))
    return FieldCounts(
        described.rows,
        described.missing,
        described.values,
        stored_end(described.least),
        stored_end(described.largest),
        level,
        {stored(bin_.low) if level == EXACT_LEVEL else bin_.low: bin_.number for bin_ in described.bins},
        None if described.has_more_texts else described.texts,
    )
