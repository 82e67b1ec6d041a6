"""Do the classes of a data set lie in its splits as chance would have put them?"""

from collections.abc import Iterator, Mapping
from math import asin, sqrt
from statistics import NormalDist

from recordmill.schemas.statistics_file import (
    ClassDrift,
    ClassInOneSplit,
    ClassStatistics,
    SplitComparison,
    SplitStatistics,
)

_FALSE_ALARMS = 0.01
"""How often random splits of one data set may seem to drift, in any class of any split."""
_RATIO = 1.25
"""Of two shares, from which they are told apart: of a million images chance explains no difference at all."""


def compare_splits(splits: Mapping[str, SplitStatistics]) -> SplitComparison | None:
    """What is odd about the classes of several splits; None where fewer than two have any: images without annotations
    have none.

    A class drifts in a split if its images there are another part of all than in the other splits together: their
    shares differ by a quarter, and by more than chance explains. What is tested is the difference of the shares' arc
    sines, which for rare classes stays near to normal, with as many comparisons as are made (Bonferroni).
    """
    found = {name: of for name, of in sorted(splits.items()) if any(each.images for each in of.classes)}
    if len(found) < 2:
        return None
    return SplitComparison(tuple(_in_one_split(found)), tuple(_drifting(found)))


def _in_one_split(splits: Mapping[str, SplitStatistics]) -> Iterator[ClassInOneSplit]:
    """The classes that all splits but one lack, the most frequent first."""
    alone = [
        ClassInOneSplit(each.name, split, each.images)
        for of_class in _rows(splits)
        if sum(each.images > 0 for each in of_class) == 1
        for split, each in zip(splits, of_class, strict=True)
        if each.images
    ]
    return iter(sorted(alone, key=lambda each: -each.images))


def _drifting(splits: Mapping[str, SplitStatistics]) -> Iterator[ClassDrift]:
    """The worst first."""
    rows = [row for row in _rows(splits) if any(each.images for each in row)]
    compared = len(rows) * (1 if len(splits) == 2 else len(splits))  # of two, both comparisons are one
    far = NormalDist().inv_cdf(1 - _FALSE_ALARMS / 2 / compared)
    images = [of.images for of in splits.values()]
    drifting = []
    for row in rows:
        having = [each.images for each in row]
        for split, of_class, of_split, each in zip(splits, having, images, row, strict=True):
            others = sum(having) - of_class, sum(images) - of_split
            distance = abs(arc_sine_distance((of_class, of_split), others))
            share, elsewhere = of_class / of_split, others[0] / others[1]
            if distance > far and max(share, elsewhere) >= _RATIO * min(share, elsewhere):
                drifting.append((distance, ClassDrift(each.name, split, of_class, share, elsewhere)))
    return (drift for _, drift in sorted(drifting, key=lambda each: -each[0]))


def _rows(splits: Mapping[str, SplitStatistics]) -> Iterator[tuple[ClassStatistics, ...]]:
    """Each class in every split."""
    return zip(*(of.classes for of in splits.values()), strict=False)  # an edited file may have fewer


def arc_sine_distance(one: tuple[int, int], other: tuple[int, int]) -> float:
    """How far two shares are apart, in standard deviations of what chance does.

    Args:
        one, other: how many of how many.

    >>> round(arc_sine_distance((30, 100), (100, 1000)), 1), round(arc_sine_distance((2, 100), (10, 10_000)), 1)
    (5.0, 2.4)
    """
    return (_angle(*one) - _angle(*other)) / sqrt(1 / (one[1] + 0.5) + 1 / (other[1] + 0.5))


def _angle(number: int, total: int) -> float:
    """Anscombe's, whose variance hardly depends on the share. A file that was edited may count more than all."""
    return 2 * asin(sqrt((min(number, total) + 0.375) / (total + 0.75)))
