"""Charts as SVG that stands in the page. The numbers behind each are in a table beside it; to a screen reader a chart
is one image, with a label that says what it shows."""

from collections.abc import Callable, Sequence
from math import ceil, log2, log10
from typing import NamedTuple

from markupsafe import Markup, escape

from recordmill.schemas.statistics import Distribution, bin_of, edge

_WIDTH, _HEIGHT = 360, 180
_LEFT, _TOP, _BOTTOM = 46, 8, 24
_CHARACTER_PX = 8
COLOURS = 4
"""Colours of splits, s0 to s3 in the page's style; further splits begin again."""

_BAR = Markup('<rect class="s{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>')
_CELL = Markup('<rect class="heat" x="{}" y="{}" width="{}" height="{}" fill-opacity="{:.2f}"><title>{}</title></rect>')
_LINE = Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')

Show = Callable[[float], str]


class ChartColumn(NamedTuple):
    """A bin: what it holds, what it begins with, and how many of it each split has.

    Attributes:
        width: of whole numbers how many it holds, of others octaves.
    """

    label: str
    begin: str
    numbers: Sequence[int]
    width: float = 1


def columns(
    distributions: Sequence[Distribution | None], is_whole: bool, show: Show, by_octaves: bool = False
) -> list[ChartColumn]:
    """The bins from the first to the last that any split has something in. Of whole numbers, those that hold one.

    Args:
        by_octaves: whether the width of a bin is in octaves; else it is how many whole numbers it holds.
    """
    numbers = [{bin_of(each.low): each.number for each in found.bins} if found else {} for found in distributions]
    used = sorted({index for of in numbers for index in of if edge(index)})
    zero = [bin_of(0)] if any(bin_of(0) in of for of in numbers) else []
    bins = [*zero, *(range(used[0], used[-1] + 1) if used else ())]
    return [
        ChartColumn(
            bin_label(index, is_whole, show),
            show(_begin(index, is_whole)),
            [of.get(index, 0) for of in numbers],
            _width(index, by_octaves),
        )
        for index in bins
        if not is_whole or index in zero or ceil(edge(index)) < edge(index + 1)
    ]


def _width(index: int, by_octaves: bool) -> float:
    if index == bin_of(0):
        return 1
    return log2(edge(index + 1) / edge(index)) if by_octaves else ceil(edge(index + 1)) - ceil(edge(index))


def _begin(index: int, is_whole: bool) -> float:
    return ceil(edge(index)) if is_whole else edge(index)


def bin_label(index: int, is_whole: bool, show: Show) -> str:
    """Return the label of a bin.

    >>> bin_label(bin_of(8), True, str), bin_label(bin_of(3), True, str), bin_label(bin_of(0), True, str)
    ('8–9', '3', '0')
    >>> bin_label(bin_of(0.25), False, str)
    '0.25–0.3125'
    """
    first, last = _begin(index, is_whole), ceil(edge(index + 1)) - 1 if is_whole else edge(index + 1)
    return show(first) if first == last or index == bin_of(0) else f"{show(first)}–{show(last)}"


def bar_chart(columns: Sequence[ChartColumn], label: str) -> Markup:
    """Bars of each split side by side, as parts of all that the split has, so that splits of different sizes compare;
    divided by the width of the bin, so that wide bins do not stand out."""
    sums = [sum(each) or 1 for each in zip(*(column.numbers for column in columns), strict=True)]
    shares = [
        [number / total / column.width for number, total in zip(column.numbers, sums, strict=True)]
        for column in columns
    ]
    most = max((share for each in shares for share in each), default=0) or 1
    across, down = (_WIDTH - _LEFT) / len(columns), _HEIGHT - _TOP - _BOTTOM
    parts = [_grid(most, down)]
    every = max(1, ceil((max(len(column.begin) for column in columns) + 1) * _CHARACTER_PX / across))
    for index, (column, of_bin) in enumerate(zip(columns, shares, strict=True)):
        left = _LEFT + index * across
        width = 0.86 * across / len(of_bin)
        for split, share in enumerate(of_bin):
            if share:
                height = max(1.0, share / most * down)
                x, y = left + 0.07 * across + split * width, _TOP + down - height
                title = f"{column.label}: {column.numbers[split]:,}"
                parts.append(_BAR.format(split % COLOURS, x, y, max(width - 0.5, 0.5), height, title))
        if index % every == 0:
            middle, half = left + across / 2, len(column.begin) * _CHARACTER_PX / 2
            at, anchor = (_WIDTH, "end") if middle + half > _WIDTH else (middle, "middle")
            parts.append(_text(at, _HEIGHT - 8, column.begin, anchor))
    return _svg(_WIDTH, _HEIGHT, label, parts)


def _grid(most: float, down: float) -> Markup:
    lines = []
    for quarter in (0, 0.5, 1):
        y = _TOP + down * (1 - quarter)
        lines.append(_LINE.format(_LEFT, _WIDTH, y, y))
        lines.append(_text(_LEFT - 6, y + 4, percent(quarter * most), "end"))
    return Markup("").join(lines)


def percent(share: float) -> str:
    """Return two digits, or all digits from a hundred on.

    >>> percent(1), percent(0.125), percent(0.004), percent(2.4)
    ('100%', '12%', '0.4%', '240%')
    """
    return f"{100 * share:.0f}%" if share > 0.995 else f"{100 * share:.2g}%"


def long_tail(counts: Sequence[Sequence[int]], label: str) -> Markup:
    """How many there are of each class, most frequent first, in each split: both on a scale of powers of ten."""
    most = max((number for of_split in counts for number in of_split), default=1)
    longest = max(map(len, counts))
    top, down, across = ceil(log10(max(most, 2))), _HEIGHT - _TOP - _BOTTOM, _WIDTH - _LEFT
    parts = []
    for power in range(top + 1):
        y = _TOP + down * (1 - power / top)
        parts.append(_LINE.format(_LEFT, _WIDTH, y, y))
        parts.append(_text(_LEFT - 6, y + 4, _short(10**power), "end"))
    for split, of_split in enumerate(counts):
        ranked = sorted((number for number in of_split if number), reverse=True)
        points = " ".join(
            f"{_LEFT + across * (rank + 0.5) / longest:.1f},{_TOP + down * (1 - log10(number) / top):.1f}"
            for rank, number in enumerate(ranked)
        )
        parts.append(Markup('<polyline class="l{}" points="{}"/>').format(split % COLOURS, points))
    for rank in sorted({1, longest // 2, longest} - {0}):
        x = _LEFT + across * (rank - 0.5) / longest
        parts.append(_text(x, _HEIGHT - 8, f"{rank:,}", "end" if rank == longest else "middle"))
    return _svg(_WIDTH, _HEIGHT, label, parts)


def _short(number: int) -> str:
    """A power of ten in few letters.

    >>> _short(100), _short(10_000), _short(1_000_000)
    ('100', '10k', '1M')
    """
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if number >= unit:
            return f"{number // unit}{letter}"
    return str(number)


def heat_map(rows: Sequence[Sequence[int]], label: str) -> Markup:
    """Return a heat map of positions in an image."""
    most = max(max(row) for row in rows) or 1
    side = 14
    parts = [
        _CELL.format(x * side, y * side, side, side, number / most, f"{number:,}")
        for y, row in enumerate(rows)
        for x, number in enumerate(row)
        if number
    ]
    return _svg(side * len(rows[0]), side * len(rows), label, parts, "map")


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _svg(width: int, height: int, label: str, parts: Sequence[Markup], kind: str = "chart") -> Markup:
    return Markup('<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}">{}</svg>').format(
        kind, escape(label), width, height, Markup("").join(parts)
    )
