"""Splits side by side: how much there is of each, and what they were made with."""

from collections.abc import Mapping, Sequence

from recordmill.schemas.features import RecordOf
from recordmill.schemas.manifest import Manifest, SplitManifest
from recordmill.schemas.sizes import number_text, size_text
from recordmill.schemas.statistics_file import SplitStatistics

_HOSTS = 10
"""Shards for each host that reads, as TensorFlow's guide to TFRecords advises."""

SplitRow = tuple[str, list[str]]
"""What values are of, and one for each split."""


def is_of_rows(manifest: Manifest) -> bool:
    """Whether records are rows of a table."""
    return manifest.table.record_of is RecordOf.ROW


def amount_rows(manifest: Manifest, statistics: Mapping[str, SplitStatistics]) -> list[SplitRow]:
    """What there is of each split, side by side."""
    of = list(manifest.splits.items())
    rows: list[SplitRow] = [
        (f"{'Rows' if is_of_rows(manifest) else 'Images'} written", [f"{each.images.written:,}" for _, each in of]),
        ("Read", [f"{each.images.rows:,}" for _, each in of]),
        ("Rejected", [f"{sum(each.images.rejected.values()):,}" for _, each in of]),
    ]
    if any(each.annotations.rows for _, each in of):
        rows += [
            ("Objects", [f"{each.annotations.objects:,}" for _, each in of]),
            ("Objects an image", [_mean(statistics.get(name), "objects_an_image") for name, _ in of]),
            ("Captions", [f"{each.annotations.captions:,}" for _, each in of]),
            ("Annotations rejected", [f"{sum(each.annotations.rejected.values()):,}" for _, each in of]),
            ("Annotations filtered", [f"{sum(each.annotations.filtered.values()):,}" for _, each in of]),
            ("Boxes clipped", [f"{each.annotations.boxes_clipped:,}" for _, each in of]),
        ]
    if manifest.categories:
        with_any = [sum(number > 0 for number in each.class_counts) for _, each in of]
        rows.append(("Classes with any", [f"{number:,} of {len(manifest.categories):,}" for number in with_any]))
        rows.append(("Balance of classes", [_balance(each.class_counts) for _, each in of]))
    if any(each.images.rewritten for _, each in of):
        rows.append(("Pictures transcoded", [_transcoded(each) for _, each in of]))
    found = [statistics[name].formats if name in statistics else {} for name, _ in of]
    formats = [", ".join(f"{name} {number:,}" for name, number in of_split.items()) for of_split in found]
    if any(formats):
        rows.append(("Formats in records", formats))
    rows += [
        ("Shards", [f"{len(each.shards):,}" for _, each in of]),
        ("Size", [size_text(each.bytes) for _, each in of]),
        ("Size of a shard", [_shard_sizes(each) for _, each in of]),
        ("Largest shard", [_skew(each) for _, each in of]),
        ("Good for", [_hosts(len(each.shards)) for _, each in of]),
    ]
    return [(name, values) for name, values in rows if any(value not in ("0", "") for value in values)]


def _mean(statistics: SplitStatistics | None, name: str) -> str:
    found = statistics.histograms.get(name) if statistics else None
    return f"{found.mean:.1f}" if found else ""


def _balance(counts: Sequence[int]) -> str:
    """How much more there is of the most frequent class than of the rarest that there is."""
    found = [count for count in counts if count]
    return f"{max(found) / min(found):,.1f} to 1" if found else ""


def _transcoded(split: SplitManifest) -> str:
    rewritten = split.images.rewritten
    if rewritten is None:
        return "0"
    kinds = {"turned upright": rewritten.turned, "made smaller": rewritten.shrunk}
    more = "".join(f", {number:,} {what}" for what, number in kinds.items() if number)
    formats = ", ".join(f"{name} {number:,}" for name, number in rewritten.by_format.items())
    return f"{sum(rewritten.by_format.values()):,}: {formats}{more}"


def _shard_sizes(split: SplitManifest) -> str:
    sizes = sorted(shard.bytes for shard in split.shards) or [0]
    return size_text(sizes[0]) if sizes[0] == sizes[-1] else f"{size_text(sizes[0])} to {size_text(sizes[-1])}"


def _skew(split: SplitManifest) -> str:
    largest = max((shard.bytes for shard in split.shards), default=0)
    return f"{largest * len(split.shards) / max(1, split.bytes):.2f} times the mean"


def _hosts(shards: int) -> str:
    """How many hosts may read a split at once."""
    many = shards // _HOSTS
    each = f"; {_HOSTS} shards each for {many:,}" if many else ""
    return f"up to {number_text(shards, 'host')}{each}"


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
