"""Chart of benchmarks/first_batch.py: first_batch.json as SVG.

python benchmarks/peers/chart_first_batch.py FILE.json FILE.svg LATENCY_MS
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

OURS, OTHERS = ("#0b5fa5", "#4a90c9", "#a3c9e8"), ("#555555", "#8c8c8c", "#c4c4c4")
"""Colours with 1, 2 and 4 workers."""
HEIGHT = 0.26


def main(source: str, target: str, latency_ms: str) -> None:
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "first batch", "font.size": 9})
    cells = json.loads(Path(source).read_text())
    names = list(dict.fromkeys(cell[0] for cell in cells))[::-1]
    panels = [
        ("local", 3, "local disk: seconds to the first batch"),
        ("bucket", 3, f"bucket, {latency_ms} ms a request: seconds"),
        ("local", 4, "local disk: memory per rank, MB"),
    ]
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 0.5 * len(names) + 1), sharey=True)
    for axis, (place, column, title) in zip(axes, panels, strict=True):
        for name in names:
            values = [cell[column] for cell in cells if cell[:2] == [name, place]]
            shades = OURS if name.startswith("Recordmill") else OTHERS
            for at, value in enumerate(values):
                y = names.index(name) + HEIGHT * ((len(values) - 1) / 2 - at)
                axis.barh(y, value, HEIGHT, color=shades[at])
                axis.text(
                    value * 1.06, y, f"{value:.2g}" if value < 100 else f"{value:,.0f}", va="center", fontsize=6.5
                )
        axis.set(xscale="log", title=title)
        axis.margins(x=0.18)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(names)), names)
    figure.text(
        0.99, 0.01, "bars from dark to light: 1, 2, 4 workers; one bar: without a DataLoader", ha="right", fontsize=8
    )
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(target, metadata={"Date": None})
    figure.savefig(Path(source).with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
