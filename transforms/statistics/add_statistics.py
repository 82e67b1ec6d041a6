"""Statistics of parts become those of the whole."""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from recordmill.schemas.statistics import FINDING_EXAMPLES, GALLERY, Example, Finding, Histogram, Statistics


def add_statistics(one: Statistics, other: Statistics) -> Statistics:
    """The same whatever the order that parts are added in."""
    return Statistics(
        one.images + other.images,
        {
            name: _add_histograms(one.histograms.get(name, Histogram()), other.histograms.get(name, Histogram()))
            for name in sorted(one.histograms.keys() | other.histograms.keys())
        },
        _add(one.centres, other.centres),
        _add(one.formats, other.formats),
        _add(one.images_of_class, other.images_of_class),
        _add(one.images_of_segment, other.images_of_segment),
        {
            why: _best(GALLERY[why], one.examples.get(why, ()), other.examples.get(why, ()))
            for why in sorted(one.examples.keys() | other.examples.keys())
        },
        {
            name: Finding(mine.number + others.number, _best(FINDING_EXAMPLES, mine.examples, others.examples))
            for name in sorted(one.findings.keys() | other.findings.keys())
            for mine, others in [(one.findings.get(name, Finding()), other.findings.get(name, Finding()))]
        },
        one.measured + other.measured,
    )


def _add_histograms(one: Histogram, other: Histogram) -> Histogram:
    least = [each.least for each in (one, other) if each.least is not None]
    largest = [each.largest for each in (one, other) if each.largest is not None]
    return Histogram(
        one.total + other.total, min(least, default=None), max(largest, default=None), _add(one.bins, other.bins)
    )


def _add(one: Mapping, other: Mapping) -> dict:
    """Counts, sorted by what is counted."""
    return dict(sorted((Counter(one) + Counter(other)).items()))


def _best(number: int, *examples: Iterable[Example]) -> tuple[Example, ...]:
    return tuple(heapq.nsmallest(number, chain.from_iterable(examples)))
