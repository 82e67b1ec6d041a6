"""Charts and tables of open fields for the page."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log2, log10
from typing import NamedTuple

from recordmill.schemas.features import FeatureKind, FeatureTable
from recordmill.schemas.field_features import FieldColumn
from recordmill.schemas.layouts import requested_fields
from recordmill.schemas.sizes import number_text, shorten
from recordmill.schemas.statistics import EXACT_LEVEL, MOST_TEXTS, FieldStatistics, SplitStatistics, quantiles
from recordmill.transforms.insight.charts import Chart, ChartBin, bar_chart

_TEXTS_SHOWN, _MOST_CHARACTERS = 10, 60
_FEW_VALUES, _MOST_CHART_BINS = 24, 32
_TAIL = 0.01
"""Share of the values of a split at each end that may lie outside of the axis, in one bin."""
_PLAIN = 1e12
"""Limit of whole numbers that are shown with all digits."""


class FrequentText(NamedTuple):
    """A text of a field.

    Attributes:
        counts: Number in each split; None if its texts are not counted.
        widths: Length of the bar of each split, 0 to 100.
    """

    name: str
    counts: Sequence[int | None]
    widths: Sequence[float]


class FieldFigure(NamedTuple):
    """Values of a field: a chart of numbers, or the most frequent texts.

    Attributes:
        lines: A line for each split.
    """

    title: str
    axis: str
    lines: Sequence[str]
    chart: Chart | None
    texts: Sequence[FrequentText]


def chart_fields(table: FeatureTable, statistics: Mapping[str, SplitStatistics | None]) -> list[FieldFigure]:
    """Return a figure of each open field with statistics.

    Args:
        statistics: Statistics by split, in the order of the page; None for a split without.
    """
    figures = []
    for column in requested_fields(table):
        splits = [((split and split.fields) or {}).get(column.source) for split in statistics.values()]
        if not any(splits):
            continue
        chart, rows = None, list[FrequentText]()
        if column.kind is FeatureKind.BYTES or column.is_bool:
            rows = text_rows([_texts(split, column) for split in splits])
        elif bins := number_bins([split.bins if split else () for split in splits], column.kind is FeatureKind.INT64):
            label = "Values of a field, as shares of each split; the table below has the numbers"
            numbers = [(bin_.label, *bin_.numbers) for bin_ in bins]
            chart = Chart(column.shown, bar_chart(bins, label), list(statistics), numbers)
        axis = f"{'lists of ' if column.size else ''}{column.axis}s"
        figures.append(FieldFigure(column.shown, axis, [_describe(split, column) for split in splits], chart, rows))
    return figures


def _texts(split: FieldStatistics | None, column: FieldColumn) -> Mapping[str, int] | None:
    """Return the number of values by text; None if texts are not counted."""
    if split is None:
        return {}
    if column.is_bool:
        return {{0: "false", 1: "true"}.get(int(bin_.low), f"{bin_.low:g}"): bin_.number for bin_ in split.bins}
    return None if split.has_more_texts else split.texts


def _describe(split: FieldStatistics | None, column: FieldColumn) -> str:
    if split is None:
        return "no statistics"
    parts = [number_text(split.values, "value")] if column.size else []
    if split.has_more_texts:
        parts.append(f"more than {MOST_TEXTS:,} different texts, which are not counted")
    elif split.texts:
        parts.append(number_text(len(split.texts), "different text"))
    elif split.bins and not column.is_bool:
        (median,) = quantiles(split.bins, [0.5])
        median = float(floor(median)) if column.kind is FeatureKind.INT64 else median
        ends = [end for end in (median, split.least, split.largest) if end is not None]
        parts.append("median {}, least {}, largest {}".format(*map(_format_value, ends)))
    return "; ".join([*parts, f"{split.missing:,} of {split.rows:,} missing"])


def text_rows(splits: Sequence[Mapping[str, int] | None]) -> list[FrequentText]:
    """Return the most frequent texts of all splits.

    Args:
        splits: Number of values of each split by text; None if its texts are not counted.
    """
    sums = sum((Counter(split or {}) for split in splits), Counter[str]())
    chosen = sorted(sums, key=lambda text: (-sums[text], text))[:_TEXTS_SHOWN]
    totals = [sum((split or {}).values()) or 1 for split in splits]
    shares = {
        text: [(split or {}).get(text, 0) / total for split, total in zip(splits, totals, strict=True)]
        for text in chosen
    }
    most = max((max(text_shares) for text_shares in shares.values()), default=0) or 1
    return [
        FrequentText(
            shorten(text, _MOST_CHARACTERS),
            [None if split is None else split.get(text, 0) for split in splits],
            [round(100 * share / most, 2) for share in shares[text]],
        )
        for text in chosen
    ]


def number_bins(splits: Sequence[Sequence], is_whole: bool) -> list[ChartBin]:
    """Return the bins of a chart, which all splits share: each value if they are few, else bins of one width. The first
    and the last may have all values beyond the axis.

    Args:
        splits: Bins of each split, see FieldStatistics.
        is_whole: True for integers.
    """
    present = [bins for bins in splits if bins]
    if not present:
        return []
    values = sorted({bin_.low for bins in present for bin_ in bins})
    widest = max(bin_.high - bin_.low for bins in present for bin_ in bins)
    if not widest and len(values) <= _FEW_VALUES:
        counts = [{bin_.low: bin_.number for bin_ in bins} for bins in splits]
        return [
            ChartBin(_format_value(value), _format_value(value), [numbers.get(value, 0) for numbers in counts])
            for value in values
        ]
    ends = [end for bins in present for end in quantiles(bins, (_TAIL, 1 - _TAIL))]
    low, high = min(ends), max(ends)
    if low == high:
        low, high = values[0], values[-1]
    level = int(log2(widest)) if widest else 0 if is_whole else EXACT_LEVEL
    while floor(high / 2.0**level) - floor(low / 2.0**level) >= _MOST_CHART_BINS:
        level += 1
    width = 2.0**level
    first, last = floor(low / width), floor(high / width)
    numbers = [Counter[int]() for _ in splits]
    for counted, bins in zip(numbers, splits, strict=True):
        for bin_ in bins:
            counted[min(max(floor(bin_.low / width), first - 1), last + 1)] += bin_.number
    shown = _edge_format(width)
    chart = []
    for index in range(first - 1, last + 2):
        begin, end = shown(index * width), shown((index + 1) * width - (1 if is_whole else 0))
        label = begin if begin == end else f"{begin} to {end}"
        if index < first:
            begin, label = f"< {shown(first * width)}", f"below {shown(first * width)}"
        elif index > last:
            begin, label = f"≥ {begin}", f"from {begin}"
        counts_of_bin = [counted[index] for counted in numbers]
        if first <= index <= last or any(counts_of_bin):
            chart.append(ChartBin(label, begin, counts_of_bin))
    return chart


def _edge_format(width: float) -> Callable[[float], str]:
    """Return a format of numbers that tells multiples of `width` apart.

    >>> _edge_format(0.03125)(0.3125), _edge_format(4)(2016), _edge_format(2.0**90)(2.0**92)
    ('0.31', '2016', '5e+27')
    """
    decimals = ceil(-log10(width))

    def show(value: float) -> str:
        if abs(value) >= _PLAIN or decimals > 6:
            digits = floor(log10(abs(value))) + decimals + 1 if value else 1
            return f"{value:.{max(digits, 1)}g}"
        return f"{value:.{max(decimals, 0)}f}" if abs(value) < 10_000 else f"{value:,.{max(decimals, 0)}f}"

    return show


def _format_value(value: float) -> str:
    """
    >>> _format_value(2016.0), _format_value(0.1234567), _format_value(123456.0), _format_value(1e30)
    ('2016', '0.123457', '123,456', '1e+30')
    """
    if value.is_integer() and abs(value) < _PLAIN:
        return f"{value:.0f}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:.6g}"
