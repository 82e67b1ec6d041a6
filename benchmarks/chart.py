"""A chart of horizontal bars, as SVG."""

from collections.abc import Mapping
from html import escape
from pathlib import Path

WIDTH, NAMES, BARS, ROW, PAD = 900, 330, 440, 26, 24
"""Pixels: the chart, its columns of names and of bars, the height of a row, and the margin."""

_OURS, _PEERS, _INK, _PALE = "#2f6fb0", "#aab4be", "#1b1f24", "#57606a"
_STYLE = 'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="14"'


def draw_bars(path: Path, title: str, note: str, groups: Mapping[str, Mapping[str, float]], text: str) -> None:
    """Write a chart with a group of bars below each heading.

    Args:
        title: Text above the chart.
        note: Text below it: what was measured, and when.
        groups: By heading, the bars' names and lengths. All groups have one scale. The colour of names that begin with
            "Recordmill" differs from that of the others.
        text: Text beside a bar, a format of its length: "{:.2f}".
    """
    scale = BARS / max(max(bars.values()) for bars in groups.values())
    parts = [_text(PAD, 34, title, _INK, 'font-size="17" font-weight="600"')]
    top = 48
    for heading, bars in groups.items():
        parts.append(_text(PAD, top + 24, heading, _INK, 'font-weight="600"'))
        top += 36
        for name, length in bars.items():
            is_ours = name.startswith("Recordmill")
            parts.append(_text(NAMES, top + 16, name, _INK if is_ours else _PALE, 'text-anchor="end"'))
            width = f'width="{length * scale:.1f}" height="{ROW - 8}"'
            parts.append(f'<rect x="{NAMES + 10}" y="{top + 2}" {width} fill="{_OURS if is_ours else _PEERS}"/>')
            parts.append(_text(NAMES + 16 + length * scale, top + 16, text.format(length), _INK))
            top += ROW
    parts.append(_text(PAD, top + 28, note, _PALE, 'font-size="12"'))
    size = f'viewBox="0 0 {WIDTH} {top + 44}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_STYLE}>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        *parts,
        "</svg>",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _text(x: float, y: float, text: str, colour: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" fill="{colour}" {style}>{escape(text)}</text>'
