"""Charts of the page, as inline SVG. A table next to each chart has its numbers. For screen readers a chart is one
image with a label."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, log2, log10
from typing import NamedTuple

from markupsafe import Markup, escape

from recordmill.schemas.sizes import size_text
from recordmill.schemas.statistics import FRACTIONAL, Distribution, SplitStatistics, bin_index, edge

_WIDTH, _HEIGHT = 360, 180
_LEFT, _TOP, _BOTTOM = 46, 8, 24
_ACROSS, _DOWN = _WIDTH - _LEFT, _HEIGHT - _TOP - _BOTTOM
_CHARACTER_PX = 8
_CELL_PX = 14
COLOURS = 4
"""Number of split colours, s0 to s3 in the page's style. Further splits reuse them."""

_BAR = Markup('<rect class="s{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>')
_CELL = Markup('<rect class="heat" x="{}" y="{}" width="{}" height="{}" fill-opacity="{:.2f}"><title>{}</title></rect>')
_LINE = Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>')

Show = Callable[[float], str]

_TITLES = {
    "objects_an_image": ("Objects an image", "objects"),
    "classes_an_image": ("Classes an image", "classes"),
    "captions_an_image": ("Captions an image", "captions"),
    "box_side": ("Size of boxes", "pixels, square root of the area; COCO: small below 32, medium below 96"),
    "box_share": ("Share of the image that a box covers", "box area / image area"),
    "box_aspect": ("Shape of boxes", "width / height"),
    "image_width": ("Width of images", "pixels"),
    "image_height": ("Height of images", "pixels"),
    "image_aspect": ("Shape of images", "width / height"),
    "image_bytes": ("Size of encoded images", "bytes"),
}


class Chart(NamedTuple):
    """A chart, and the table behind it.

    Attributes:
        head: Column heads of the table.
        bars: Meaning of the height of the bars.
        summary: A line for each split.
    """

    title: str
    svg: Markup
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    unit: str = ""
    bars: str = ""
    summary: Sequence[str] = ()


class ChartColumn(NamedTuple):
    """A bin: label, start, and number of values per split.

    Attributes:
        width: Width of the bin: number of integers in it, or octaves.
    """

    label: str
    begin: str
    numbers: Sequence[int]
    width: float = 1


def show_number(value: float) -> str:
    return f"{value:,.3g}" if 0 < abs(value) < 1000 else f"{value:,.0f}"


def percent(share: float) -> str:
    """Format a share with two digits, from 100% with all.

    >>> percent(1), percent(0.125), percent(0.004), percent(2.4)
    ('100%', '12%', '0.4%', '240%')
    """
    return f"{100 * share:.0f}%" if share > 0.995 else f"{100 * share:.2g}%"


_SHOW: Mapping[str, Show] = {"box_share": percent, "image_bytes": size_text}


def chart_statistics(statistics: Mapping[str, SplitStatistics]) -> tuple[list[Chart], list[str]]:
    """Return a chart of each distribution of the splits, and a sentence for each distribution of one number."""
    charts, constants = [], []
    for name, (title, unit) in _TITLES.items():
        found = [of.histograms.get(name) for of in statistics.values()]
        ends = {end for each in found if each for end in (each.least, each.largest)}
        show, is_count = _SHOW.get(name, show_number), name.endswith("_an_image")
        if len(ends) == 1:
            constants.append(f"{title}: always {show(ends.pop())} ({unit.split(',')[0]}).")
        elif ends:
            table = columns(found, name not in FRACTIONAL, show, by_octaves=not is_count)
            svg = bar_chart(table, f"{title} ({unit}), by the part of each split; the numbers are in the table below")
            rows = [(column.label, *column.numbers) for column in table]
            bars = f"height: part of the split for {f'each number of {unit}' if is_count else 'each doubling'}"
            charts.append(
                Chart(title, svg, list(statistics), rows, unit, bars, [_spread(each, show) for each in found])
            )
    return charts, constants


def _spread(found: Distribution | None, show: Show) -> str:
    if found is None:
        return "none"
    numbers = map(show, (found.median, found.p05, found.p95, found.least, found.largest))
    return "median {}, 90 % between {} and {}, least {}, largest {}".format(*numbers)


def columns(
    distributions: Sequence[Distribution | None], is_whole: bool, show: Show, by_octaves: bool = False
) -> list[ChartColumn]:
    """Return the bins from the first to the last used bin of any split.

    Args:
        is_whole: True for integers; bins without an integer are skipped.
        by_octaves: True for widths in octaves, False for widths in integers.
    """
    numbers = [{bin_index(each.low): each.number for each in found.bins} if found else {} for found in distributions]
    used = sorted({index for bins in numbers for index in bins if edge(index)})
    found = []
    if any(bin_index(0) in bins for bins in numbers):
        found.append(ChartColumn(show(0), show(0), [bins.get(bin_index(0), 0) for bins in numbers]))
    for index in range(used[0], used[-1] + 1) if used else ():
        low, high = edge(index), edge(index + 1)
        whole = ceil(high) - ceil(low)
        if whole or not is_whole:
            begin = show(ceil(low) if is_whole else low)
            label = begin if is_whole and whole == 1 else f"{begin}–{show(ceil(high) - 1 if is_whole else high)}"
            width = log2(high / low) if by_octaves else whole
            found.append(ChartColumn(label, begin, [bins.get(index, 0) for bins in numbers], width))
    return found


def bar_chart(columns: Sequence[ChartColumn], label: str) -> Markup:
    """Draw the bars of all splits side by side. A bar is the share of its split, so that splits of different sizes
    compare, divided by the width of the bin, so that wide bins do not stand out."""
    sums = [sum(each) or 1 for each in zip(*(column.numbers for column in columns), strict=True)]
    shares = [
        [number / total / column.width for number, total in zip(column.numbers, sums, strict=True)]
        for column in columns
    ]
    most = max((share for each in shares for share in each), default=0) or 1
    across = _ACROSS / len(columns)
    parts = _grid((quarter, percent(quarter * most)) for quarter in (0, 0.5, 1))
    every = max(1, ceil((max(len(column.begin) for column in columns) + 1) * _CHARACTER_PX / across))
    for index, (column, of_bin) in enumerate(zip(columns, shares, strict=True)):
        left = _LEFT + index * across
        width = 0.86 * across / len(of_bin)
        for split, share in enumerate(of_bin):
            if share:
                height = max(1.0, share / most * _DOWN)
                x, y = left + 0.07 * across + split * width, _TOP + _DOWN - height
                title = f"{column.label}: {column.numbers[split]:,}"
                parts.append(_BAR.format(split % COLOURS, x, y, max(width - 0.5, 0.5), height, title))
        if index % every == 0:
            middle, half = left + across / 2, len(column.begin) * _CHARACTER_PX / 2
            at, anchor = (_WIDTH, "end") if middle + half > _WIDTH else (middle, "middle")
            parts.append(_text(at, _HEIGHT - 8, column.begin, anchor))
    return _svg(_WIDTH, _HEIGHT, label, parts)


def long_tail(counts: Sequence[Sequence[int]], label: str) -> Markup:
    """Draw a line per split: number of objects of each class, most frequent first, on a logarithmic scale."""
    most = max((number for of_split in counts for number in of_split), default=1)
    longest = max(map(len, counts))
    top = ceil(log10(max(most, 2)))
    parts = _grid((power / top, _short(10**power)) for power in range(top + 1))
    for split, of_split in enumerate(counts):
        ranked = sorted((number for number in of_split if number), reverse=True)
        points = " ".join(
            f"{_LEFT + _ACROSS * (rank + 0.5) / longest:.1f},{_TOP + _DOWN * (1 - log10(number) / top):.1f}"
            for rank, number in enumerate(ranked)
        )
        parts.append(Markup('<polyline class="l{}" points="{}"/>').format(split % COLOURS, points))
    for rank in sorted({1, longest // 2, longest} - {0}):
        x = _LEFT + _ACROSS * (rank - 0.5) / longest
        parts.append(_text(x, _HEIGHT - 8, f"{rank:,}", "end" if rank == longest else "middle"))
    return _svg(_WIDTH, _HEIGHT, label, parts)


def _grid(ticks: Iterable[tuple[float, str]]) -> list[Markup]:
    """Draw a horizontal line for each tick: (height 0..1, label)."""
    parts = []
    for height, text in ticks:
        y = _TOP + _DOWN * (1 - height)
        parts += [_LINE.format(_LEFT, _WIDTH, y, y), _text(_LEFT - 6, y + 4, text, "end")]
    return parts


def _short(number: int) -> str:
    """Shorten a power of ten.

    >>> _short(100), _short(10_000), _short(1_000_000)
    ('100', '10k', '1M')
    """
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if number >= unit:
            return f"{number // unit}{letter}"
    return str(number)


def chart_centres(split: str, rows: Sequence[Sequence[int]]) -> Chart:
    """Return a heat map of the positions of a split's boxes in their images; `rows` are SplitStatistics.centres."""
    most = max(map(max, rows)) or 1
    parts = [
        _CELL.format(x * _CELL_PX, y * _CELL_PX, _CELL_PX, _CELL_PX, number / most, f"{number:,}")
        for y, row in enumerate(rows)
        for x, number in enumerate(row)
        if number
    ]
    label = f"Where the centres of boxes lie in the images of {split}; numbers in the table"
    svg = _svg(_CELL_PX * len(rows[0]), _CELL_PX * len(rows), label, parts, "map")
    head = [str(column) for column in range(1, len(rows[0]) + 1)]
    return Chart(split, svg, head, [(number, *row) for number, row in enumerate(rows, 1)])


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _svg(width: int, height: int, label: str, parts: Sequence[Markup], kind: str = "chart") -> Markup:
    return Markup('<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}">{}</svg>').format(
        kind, escape(label), width, height, Markup("").join(parts)
    )
