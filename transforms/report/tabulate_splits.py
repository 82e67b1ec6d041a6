"""Splits side by side: how much there is of each, and what they were made with."""

from collections import Counter
from collections.abc import Mapping, Sequence

from recordmill.schemas.features import RecordOf
from recordmill.schemas.manifest import Manifest, SplitManifest
from recordmill.schemas.statistics_file import SplitStatistics
from recordmill.transforms.metadata.fact_lines import split_lines

SplitRow = tuple[str, list[str]]
"""What values are of, and one for each split."""


def is_of_rows(manifest: Manifest) -> bool:
    """Whether records are rows of a table."""
    return manifest.table.record_of is RecordOf.ROW


def amount_rows(manifest: Manifest, statistics: Mapping[str, SplitStatistics]) -> list[SplitRow]:
    """What there is of each split, side by side."""
    of = list(manifest.splits.items())
    rows: dict[tuple[str, int], list[str]] = {}
    for column, split in enumerate(manifest.splits.values()):
        of_label = Counter[str]()
        for label, text in split_lines(manifest, split, list(manifest.splits.values())):
            if label == "classes":  # the page has a table of them
                text = f"{sum(number > 0 for number in split.class_counts):,} of {len(manifest.categories):,} with any"
            label = label or "kinds"  # which the summary prints below the annotations
            key = label, of_label[label]
            of_label[label] += 1
            rows.setdefault(key, [""] * len(of))[column] = text
    found = [statistics[name].formats if name in statistics else {} for name, _ in of]
    more: list[SplitRow] = [
        ("objects per image", [_mean(statistics.get(name), "objects_an_image") for name, _ in of]),
        ("balance of classes", [_balance(each.class_counts) for _, each in of]),
        ("formats in records", [", ".join(f"{name} {number:,}" for name, number in each.items()) for each in found]),
        ("largest shard", [_skew(each) for _, each in of]),
        ("hosts", [f"at most {len(each.shards):,} (number of shards)" for _, each in of]),
    ]
    return [(label, texts) for (label, _), texts in rows.items()] + [row for row in more if any(row[1])]


def _mean(statistics: SplitStatistics | None, name: str) -> str:
    found = statistics.histograms.get(name) if statistics else None
    return f"{found.mean:.1f}" if found else ""


def _balance(counts: Sequence[int]) -> str:
    """How much more there is of the most frequent class than of the rarest that there is."""
    found = [count for count in counts if count]
    return f"{max(found) / min(found):,.1f} to 1" if found else ""


def _skew(split: SplitManifest) -> str:
    largest = max((shard.bytes for shard in split.shards), default=0)
    return f"{largest * len(split.shards) / max(1, split.bytes):.2f} times the mean"


def value_rows(of: Mapping[str, Mapping[str, object]]) -> list[SplitRow]:
    """Names and their values in each split; one value where all splits have the same, none where none is given."""
    rows = []
    for name in sorted({name for values in of.values() for name in values}):
        values = [_value(found.get(name)) for found in of.values()]
        if any(values):
            rows.append((name, values[:1] if len(set(values)) == 1 else values))
    return rows


def _value(value: object) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
