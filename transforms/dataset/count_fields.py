"""Counts of the values of open fields, whose sums do not depend on the order."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from recordmill.schemas.sizes import shorten
from recordmill.schemas.statistics import EXACT_LEVEL, MOST_BINS, MOST_TEXTS, TEXT_LENGTH, FieldCounts
from recordmill.transforms.blocks.image_facts import FieldItems

_LARGEST = float(np.finfo(np.float32).max)
_WIDEST_LEVEL = 128
"""Level with at most two bins: one of negative numbers, one of others."""


def count_items(parts: Sequence[FieldItems]) -> FieldCounts:
    """Return the counts of a field's values.

    >>> count_items([FieldItems(np.array([3, 3, 5]), 4, 1)]).bins
    {3.0: 2, 5.0: 1}
    >>> count_items([FieldItems([b"red", b"red"], 2, 0)]).texts
    {'red': 2}
    """
    numbers = [part.items for part in parts if isinstance(part.items, np.ndarray)]
    texts = [text for part in parts if isinstance(part.items, list) for text in part.items]
    rows, missing = sum(part.rows for part in parts), sum(part.missing for part in parts)
    joined = np.concatenate(numbers) if numbers else np.zeros(0)
    if not len(joined):
        return FieldCounts(rows, missing, len(texts), texts=count_texts(Counter(texts)))
    # 64 bits hold every float32 exactly. Whole numbers beyond 2**53 are rounded, and infinity is the largest float32.
    values, counts = np.unique(np.clip(joined.astype(np.float64), -_LARGEST, _LARGEST) + 0.0, return_counts=True)
    least, largest = float(values[0]), float(values[-1])
    return FieldCounts(rows, missing, len(joined), least, largest, *_fit_bins(values, counts, EXACT_LEVEL))


def count_texts(counts: Mapping[bytes, int]) -> dict[str, int] | None:
    """Return the number of values by text, see `FieldCounts`."""
    cut: Counter[str] = Counter()
    for text, number in counts.items():
        cut[shorten(text[: 4 * TEXT_LENGTH + 4].decode(errors="replace"), TEXT_LENGTH)] += number
        if len(cut) > MOST_TEXTS:
            return None
    return dict(sorted(cut.items()))


def add_field_counts(one: FieldCounts, other: FieldCounts) -> FieldCounts:
    """Return the sum, which does not depend on the order."""
    bins = Counter(one.bins) + Counter(other.bins)
    level = max(one.level, other.level)
    if bins:
        starts = np.array(sorted(bins))
        level, bins_of_level = _fit_bins(starts, np.array([bins[start] for start in starts.tolist()]), level)
    texts = None
    if one.texts is not None and other.texts is not None:
        sums = Counter(one.texts) + Counter(other.texts)
        texts = dict(sorted(sums.items())) if len(sums) <= MOST_TEXTS else None
    return FieldCounts(
        one.rows + other.rows,
        one.missing + other.missing,
        one.values + other.values,
        min((part.least for part in (one, other) if part.least is not None), default=None),
        max((part.largest for part in (one, other) if part.largest is not None), default=None),
        level,
        bins_of_level if bins else {},
        texts,
    )


def _fit_bins(starts: np.ndarray, counts: np.ndarray, level: int) -> tuple[int, dict[float, int]]:
    """Return the lowest level, from `level` on, that has at most MOST_BINS bins, and its bins.

    Bins of a level are whole bins of lower levels, so the result is that of counting all numbers at once.

    Args:
        starts: float64 [n], sorted: numbers, or starts of bins of lower levels.
        counts: int64 [n].
    """
    if len(np.unique(bin_starts(starts, level))) > MOST_BINS:
        low, high = level, _WIDEST_LEVEL  # too narrow, and wide enough
        while high - low > 1:
            middle = (low + high) // 2
            if len(np.unique(bin_starts(starts, middle))) > MOST_BINS:
                low = middle
            else:
                high = middle
        level = high
    edges, places = np.unique(bin_starts(starts, level), return_inverse=True)
    sums = np.zeros(len(edges), np.int64)
    np.add.at(sums, places, counts)
    return level, dict(zip(edges.tolist(), sums.tolist(), strict=True))


def bin_starts(numbers: np.ndarray, level: int) -> np.ndarray:
    """Return the start of the bin of each number.

    Args:
        numbers: float64 [n].
        level: See `FieldCounts`.

    >>> bin_starts(np.array([-0.5, 0.75, 5]), 1)
    array([-2.,  0.,  4.])
    """
    return np.ldexp(np.floor(np.ldexp(numbers, -level)), level) + 0.0
