"""Charts of the page, as inline SVG. A table next to each chart has its numbers. For screen readers a chart is one
image with a label."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, log10
from typing import NamedTuple

from markupsafe import Markup, escape

from recordmill.schemas.sizes import size_text
from recordmill.schemas.statistics import DEPTH, FRACTIONAL, Distribution, SplitStatistics, bin_index, edge

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

NumberFormat = Callable[[float], str]

_TITLES = {
    "objects_an_image": ("Objects per image", "objects"),
    "classes_an_image": ("Classes per image", "classes"),
    "captions_an_image": ("Captions per image", "captions"),
    "box_side": ("Size of boxes", "pixels, square root of the area; COCO: small below 32, medium below 96"),
    "box_share": ("Share of the image covered by a box", "box area / image area"),
    "box_aspect": ("Aspect ratio of boxes", "width / height"),
    "image_width": ("Width of images", "pixels"),
    "image_height": ("Height of images", "pixels"),
    "image_aspect": ("Aspect ratio of images", "width / height"),
    "image_bytes": ("Size of encoded images", "bytes"),
    DEPTH: ("Depth of pixels", "metres"),
}


class Chart(NamedTuple):
    """A chart, and the table behind it.

    Attributes:
        head: Column heads of the table.
        summary: A line for each split.
    """

    title: str
    svg: Markup
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    unit: str = ""
    summary: Sequence[str] = ()


class ChartBin(NamedTuple):
    """A bin of a chart: label, start, and number of values per split."""

    label: str
    begin: str
    numbers: Sequence[int]


def format_number(value: float) -> str:
    return f"{value:,.3g}" if 0 < abs(value) < 1000 else f"{value:,.0f}"


def format_percent(share: float) -> str:
    """Format a share with two digits, from 100% with all.

    >>> [format_percent(share) for share in (1, 0.125, 0.004, 2.4)]
    ['100%', '12%', '0.4%', '240%']
    """
    return f"{100 * share:.0f}%" if share > 0.995 else f"{100 * share:.2g}%"


_NUMBER_FORMATS: Mapping[str, NumberFormat] = {"box_share": format_percent, "image_bytes": size_text}


def chart_statistics(statistics: Mapping[str, SplitStatistics]) -> tuple[list[Chart], list[str]]:
    """Return a chart of each distribution of the splits, and a sentence for each distribution of one number."""
    charts, constants = [], []
    for name, (title, unit) in _TITLES.items():
        distributions = [split.histograms.get(name) for split in statistics.values()]
        ends = {
            end for distribution in distributions if distribution for end in (distribution.least, distribution.largest)
        }
        show = _NUMBER_FORMATS.get(name, format_number)
        if len(ends) == 1:
            constants.append(f"{title}: always {show(ends.pop())} ({unit.split(',')[0]}).")
        elif ends:
            bins = chart_bins(distributions, name not in FRACTIONAL, show)
            svg = bar_chart(bins, f"{title} ({unit}), as shares of each split; the table below has the numbers")
            rows = [(bin_.label, *bin_.numbers) for bin_ in bins]
            spreads = [_describe_spread(distribution, show) for distribution in distributions]
            charts.append(Chart(title, svg, list(statistics), rows, unit, spreads))
    return charts, constants


def _describe_spread(distribution: Distribution | None, show: NumberFormat) -> str:
    if distribution is None:
        return "none"
    numbers = map(
        show, (distribution.median, distribution.p05, distribution.p95, distribution.least, distribution.largest)
    )
    return "median {}, 90 % between {} and {}, least {}, largest {}".format(*numbers)


def chart_bins(distributions: Sequence[Distribution | None], is_whole: bool, show: NumberFormat) -> list[ChartBin]:
    """Return the bins from the first to the last used bin of any split.

    Args:
        is_whole: True for integers; bins without an integer are skipped.
    """
    numbers = [
        {bin_index(bin_.low): bin_.number for bin_ in distribution.bins} if distribution else {}
        for distribution in distributions
    ]
    used = sorted({index for bins in numbers for index in bins if edge(index)})
    chart = []
    if any(bin_index(0) in bins for bins in numbers):
        chart.append(ChartBin(show(0), show(0), [bins.get(bin_index(0), 0) for bins in numbers]))
    for index in range(used[0], used[-1] + 1) if used else ():
        low, high = edge(index), edge(index + 1)
        whole = ceil(high) - ceil(low)
        if whole or not is_whole:
            begin = show(ceil(low) if is_whole else low)
            label = begin if is_whole and whole == 1 else f"{begin}–{show(ceil(high) - 1 if is_whole else high)}"
            chart.append(ChartBin(label, begin, [bins.get(index, 0) for bins in numbers]))
    return chart


def bar_chart(bins: Sequence[ChartBin], label: str) -> Markup:
    """Draw the bars of all splits side by side. A bar is a bin's share of the values of its split, so that splits of
    different sizes compare."""
    totals = [sum(numbers) or 1 for numbers in zip(*(bin_.numbers for bin_ in bins), strict=True)]
    shares = [[number / total for number, total in zip(bin_.numbers, totals, strict=True)] for bin_ in bins]
    most = max((share for bin_shares in shares for share in bin_shares), default=0) or 1
    across = _ACROSS / len(bins)
    parts = _draw_grid((quarter, format_percent(quarter * most)) for quarter in (0, 0.5, 1))
    every = max(1, ceil((max(len(bin_.begin) for bin_ in bins) + 1) * _CHARACTER_PX / across))
    for index, (bin_, bin_shares) in enumerate(zip(bins, shares, strict=True)):
        left = _LEFT + index * across
        width = 0.86 * across / len(bin_shares)
        for split, share in enumerate(bin_shares):
            if share:
                height = max(1.0, share / most * _DOWN)
                x, y = left + 0.07 * across + split * width, _TOP + _DOWN - height
                title = f"{bin_.label}: {bin_.numbers[split]:,}"
                parts.append(_BAR.format(split % COLOURS, x, y, max(width - 0.5, 0.5), height, title))
        if index % every == 0:
            middle, half = left + across / 2, len(bin_.begin) * _CHARACTER_PX / 2
            at, anchor = (_WIDTH, "end") if middle + half > _WIDTH else (middle, "middle")
            parts.append(_text_element(at, _HEIGHT - 8, bin_.begin, anchor))
    return _svg_element(_WIDTH, _HEIGHT, label, parts)


def long_tail(counts: Sequence[Sequence[int]], label: str) -> Markup:
    """Draw a line per split: number of objects of each class, most frequent first, on a logarithmic scale."""
    most = max((count for class_counts in counts for count in class_counts), default=1)
    longest = max(map(len, counts))
    top = ceil(log10(max(most, 2)))
    parts = _draw_grid((power / top, _format_power(10**power)) for power in range(top + 1))
    for split, class_counts in enumerate(counts):
        ranked = sorted((count for count in class_counts if count), reverse=True)
        points = " ".join(
            f"{_LEFT + _ACROSS * (rank + 0.5) / longest:.1f},{_TOP + _DOWN * (1 - log10(count) / top):.1f}"
            for rank, count in enumerate(ranked)
        )
        parts.append(Markup('<polyline class="l{}" points="{}"/>').format(split % COLOURS, points))
    for rank in sorted({1, longest // 2, longest} - {0}):
        x = _LEFT + _ACROSS * (rank - 0.5) / longest
        parts.append(_text_element(x, _HEIGHT - 8, f"{rank:,}", "end" if rank == longest else "middle"))
    return _svg_element(_WIDTH, _HEIGHT, label, parts)


def _draw_grid(ticks: Iterable[tuple[float, str]]) -> list[Markup]:
    """Draw a horizontal line for each tick: (height 0..1, label)."""
    parts = []
    for height, text in ticks:
        y = _TOP + _DOWN * (1 - height)
        parts += [_LINE.format(_LEFT, _WIDTH, y, y), _text_element(_LEFT - 6, y + 4, text, "end")]
    return parts


def _format_power(number: int) -> str:
    """Shorten a power of ten.

    >>> _format_power(100), _format_power(10_000), _format_power(1_000_000)
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
    label = f"Positions of the centres of boxes in the images of {split}; the table has the numbers"
    svg = _svg_element(_CELL_PX * len(rows[0]), _CELL_PX * len(rows), label, parts, "map")
    head = [str(column) for column in range(1, len(rows[0]) + 1)]
    return Chart(split, svg, head, [(number, *row) for number, row in enumerate(rows, 1)])


def _text_element(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _svg_element(width: int, height: int, label: str, parts: Sequence[Markup], kind: str = "chart") -> Markup:
    return Markup('<svg class="{}" role="img" aria-label="{}" viewBox="0 0 {} {}">{}</svg>').format(
        kind, escape(label), width, height, Markup("").join(parts)
    )
