"""Contents of report.html, from manifest, statistics, rejects and images."""

import base64
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from recordmill.schemas.dataset.manifest import Manifest, SplitManifest
from recordmill.schemas.features import RecordOf
from recordmill.schemas.layouts import has_picture
from recordmill.schemas.problems import DuplicateGroup
from recordmill.schemas.rejects import MOST_LISTED, RejectLine
from recordmill.schemas.sizes import size_text
from recordmill.schemas.statistics import FINDINGS, FRACTIONAL, Distribution, SplitComparison, SplitStatistics
from recordmill.transforms.dataset.fact_lines import split_lines
from recordmill.transforms.insight.across_splits import compare_splits
from recordmill.transforms.insight.charts import Show, bar_chart, columns, heat_map, long_tail, percent
from recordmill.transforms.insight.check_data import check_data, order_splits
from recordmill.transforms.insight.read_examples import Thumbnail, duplicate_rows, duplicate_titles

SplitRow = tuple[str, list[str]]
"""Row of a table: a label, and a value per split."""


def is_of_rows(manifest: Manifest) -> bool:
    """Whether records are rows of a table."""
    return manifest.table.record_of is RecordOf.ROW


def amount_rows(manifest: Manifest, statistics: Mapping[str, SplitStatistics]) -> list[SplitRow]:
    """Return an overview of each split, side by side."""
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


_CLASSES_SHOWN = 12
_GAPS_SHOWN = 5
_FEW_CLASSES = 10
"""Whose counts are seen in the table as well."""
_EXAMPLES_OF_REASON = 3

_TITLES = {
    "objects_an_image": ("Objects an image", "objects"),
    "classes_an_image": ("Classes an image", "classes"),
    "captions_an_image": ("Captions an image", "captions"),
    "box_side": ("Size of boxes", "pixels, square root of the area; COCO: small below 32, medium below 96"),
    "box_share": ("Share of the image that a box covers", "box area / image area"),
    "box_aspect": ("Shape of boxes", "width / height"),
    "image_width": ("Width of pictures", "pixels"),
    "image_height": ("Height of pictures", "pixels"),
    "image_aspect": ("Shape of pictures", "width / height"),
    "image_bytes": ("Size of encoded pictures", "bytes"),
}
_WHY = {
    "sample": ("At random", "the same at every run"),
    "crowded": ("Most crowded", "the most objects"),
    "small": ("Smallest objects", "the smallest box"),
    "odd": ("Odd shapes", "at least twice as wide as high, or as high as wide"),
}

_FOUND = {name: what[0].upper() + what[1:] for name, what in FINDINGS.items()}


class PageParts(NamedTuple):
    """Inputs of a page.

    Attributes:
        statistics: by split; a split whose file is missing or damaged has none.
        rejects: a few of each split.
        duplicates: the first of them, of which pictures are shown.
    """

    manifest: Manifest
    statistics: Mapping[str, SplitStatistics]
    rejects: Mapping[str, Sequence[RejectLine]]
    pictures: Sequence[Thumbnail]
    duplicates: Sequence[DuplicateGroup] = ()


class Chart(NamedTuple):
    """A chart, and the table behind it.

    Attributes:
        bars: what their height is.
        summary: a line for each split.
        head: of the table's columns.
    """

    title: str
    unit: str
    bars: str
    svg: Markup
    summary: Sequence[str]
    head: Sequence[str]
    rows: Sequence[Sequence[object]]


def render_page(parts: PageParts) -> bytes:
    """The page as UTF-8. Equal parts give equal bytes."""
    splits = order_splits(parts.manifest)
    manifest = msgspec.structs.replace(parts.manifest, splits={name: parts.manifest.splits[name] for name in splits})
    parts = parts._replace(manifest=manifest)
    known = [split for split in splits if split in parts.statistics]
    comparison = compare_splits(parts.statistics) or SplitComparison()
    text = _template().render(
        manifest=manifest,
        splits=splits,
        unit="rows" if is_of_rows(manifest) else "images",
        total=sum(split.bytes for split in manifest.splits.values()),
        images=sum(split.images.written for split in manifest.splits.values()),
        objects=sum(split.annotations.objects for split in manifest.splits.values()),
        comparison=amount_rows(manifest, parts.statistics),
        options=value_rows({name: split.recipe.options for name, split in manifest.splits.items()}),
        programs=value_rows({name: split.made_by for name, split in manifest.splits.items()}),
        unknown=_without_statistics(parts),
        classes=_classes(manifest, parts.statistics),
        class_charts=_class_charts(manifest, parts.statistics),
        checks=check_data(manifest, parts.statistics, comparison),
        charts=_charts(known, parts.statistics),
        constants=_constants(known, parts.statistics),
        heat=[_heat(split, parts.statistics[split]) for split in known if parts.statistics[split].centres],
        segments=_segments(known, parts.statistics),
        rejected=_rejected(manifest, parts.rejects),
        rejects=sum(split.rejects for split in manifest.splits.values()),
        listed=sum(split.listed_rejects for split in manifest.splits.values()),
        most_listed=MOST_LISTED,
        pictures=_gallery({"sample": _WHY["sample"]}, parts.pictures),
        more_pictures=_gallery({why: _WHY[why] for why in _WHY if why != "sample"}, parts.pictures),
        findings=_findings(parts.statistics, splits),
        gaps_shown=_GAPS_SHOWN,
        without_any=_without_any(manifest),
        in_one_split=[(each.name, each.split, each.images) for each in comparison.one_split_only],
        drifting=[
            (each.name, each.split, each.images, f"{each.share:.2%}", f"{each.elsewhere:.2%}")
            for each in comparison.drifting
        ],
        finding_pictures=_gallery({name: (title, "") for name, title in _FOUND.items()}, parts.pictures),
        duplicates=duplicate_rows(manifest),
        leaks=manifest.duplicates.leaks if manifest.duplicates else 0,
        copied=manifest.duplicates.copied_classes if manifest.duplicates else {},
        duplicate_pictures=_gallery(duplicate_titles(parts.duplicates), parts.pictures),
        measured=sum(of.measured for of in parts.statistics.values()),
        has_pictures=has_picture(manifest.table),
        features=[(each.name, each.kind.value, " × ".join(each.shape), each.unit) for each in manifest.features],
        shown=_shown(manifest),
    )
    return text.encode(errors="backslashreplace")


def _without_statistics(parts: PageParts) -> list[str]:
    return [
        name
        for name, split in parts.manifest.splits.items()
        if (split.images.written and not (name in parts.statistics and parts.statistics[name].images))
        or split.recipe.options.get("writer") == "beam"
    ]


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("recordmill.transforms.insight", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "size": size_text, "plain": _plain}
    return environment.get_template("page.html")


def _number(value: float) -> str:
    return f"{value:,.3g}" if 0 < abs(value) < 1000 else f"{value:,.0f}"


_SHOW: Mapping[str, Show] = {"box_share": percent, "image_bytes": size_text}


def _plain(text: object) -> str:
    """A text without control characters, which HTML does not have."""
    return "".join("\ufffd" if unicodedata.category(letter) in ("Cc", "Cs") else letter for letter in str(text))


def _shown(manifest: Manifest) -> int:
    """How many classes are not folded away: those that there are any of, up to a number that is looked through."""
    counts = zip(*(split.class_counts for split in manifest.splits.values()), strict=True)
    return min(_CLASSES_SHOWN, max(1, sum(any(of_class) for of_class in counts)))


def _classes(manifest: Manifest, statistics: Mapping[str, SplitStatistics]) -> list[dict[str, Any]]:
    """Classes by how many there are of them in all splits, each with what every split has."""
    counts = [split.class_counts for split in manifest.splits.values()]
    images = [
        [each.images for each in statistics[name].classes] if name in statistics else [] for name in manifest.splits
    ]
    total = [sum(of) or 1 for of in counts]
    most = max((number / all_ for of, all_ in zip(counts, total, strict=True) for number in of), default=0) or 1
    rows = [
        {
            "name": category.name,
            "sum": sum(of[index] for of in counts),
            "counts": [of[index] for of in counts],
            "images": [of[index] if index < len(of) else None for of in images],
            "widths": [round(100 * of[index] / all_ / most, 2) for of, all_ in zip(counts, total, strict=True)],
        }
        for index, category in enumerate(manifest.categories)
        if all(index < len(of) for of in counts)
    ]
    return sorted(rows, key=lambda row: -row["sum"])


def _without_any(manifest: Manifest) -> list[str]:
    counts = zip(*(split.class_counts for split in manifest.splits.values()), strict=True)
    return [category.name for category, of in zip(manifest.categories, counts, strict=False) if not any(of)]


def _class_charts(manifest: Manifest, statistics: Mapping[str, SplitStatistics]) -> list[Markup]:
    counts = [split.class_counts for split in manifest.splits.values()]
    if len(manifest.categories) <= _FEW_CLASSES or not any(map(any, counts)):
        return []
    return [long_tail(counts, f"How many there are of each of {len(manifest.categories):,} classes, by rank")]


def _charts(splits: Sequence[str], statistics: Mapping[str, SplitStatistics]) -> list[Chart]:
    charts = []
    for name, (title, unit) in _TITLES.items():
        found = [statistics[split].histograms.get(name) for split in splits]
        if not any(found) or _constant(found) is not None:
            continue
        show, is_count = _SHOW.get(name, _number), name.endswith("_an_image")
        table = columns(found, name not in FRACTIONAL, show, by_octaves=not is_count)
        svg = bar_chart(table, f"{title} ({unit}), by the part of each split; the numbers are in the table below")
        rows = [(column.label, *column.numbers) for column in table]
        bars = f"height: part of the split for {f'each number of {unit}' if is_count else 'each doubling'}"
        charts.append(Chart(title, unit, bars, svg, [_spread(each, show) for each in found], splits, rows))
    return charts


def _constant(found: Sequence[Distribution | None]) -> float | None:
    """The number that all images or boxes of all splits have; None if they differ."""
    ends = {end for each in found if each for end in (each.least, each.largest)}
    return ends.pop() if len(ends) == 1 else None


def _constants(splits: Sequence[str], statistics: Mapping[str, SplitStatistics]) -> list[str]:
    """A sentence for each distribution of one number."""
    sentences = []
    for name, (title, unit) in _TITLES.items():
        number = _constant([statistics[split].histograms.get(name) for split in splits])
        if number is not None:
            sentences.append(f"{title}: always {_SHOW.get(name, _number)(number)} ({unit.split(',')[0]}).")
    return sentences


def _spread(found: Distribution | None, show: Show) -> str:
    if found is None:
        return "none"
    numbers = map(show, (found.median, found.p05, found.p95, found.least, found.largest))
    return "median {}, 90 % between {} and {}, least {}, largest {}".format(*numbers)


def _heat(split: str, statistics: SplitStatistics) -> Chart:
    svg = heat_map(statistics.centres, f"Where the centres of boxes lie in the images of {split}; numbers in the table")
    rows = [(index + 1, *row) for index, row in enumerate(statistics.centres)]
    return Chart(split, "", "", svg, (), [str(column + 1) for column in range(len(statistics.centres[0]))], rows)


def _segments(splits: Sequence[str], statistics: Mapping[str, SplitStatistics]) -> list[tuple[object, ...]]:
    """Images of each category of stuff and segments, the most frequent first."""
    of = [statistics[split].segments for split in splits]
    rows = [(each[0].name, [found.images for found in each]) for each in zip(*of, strict=False)]
    ordered = sorted((row for row in rows if any(row[1])), key=lambda row: -sum(row[1]))
    return [(name, *numbers) for name, numbers in ordered]


def _rejected(
    manifest: Manifest, rejects: Mapping[str, Sequence[RejectLine]]
) -> list[tuple[str, str, list[int], list[str]]]:
    """Return rejects: of what, reason, numbers per split, and examples."""
    rows = []
    of = {
        name: {"image": split.images.rejected, "annotation": split.annotations.rejected}
        for name, split in manifest.splits.items()
    }
    for what in ("image", "annotation"):
        for reason in sorted({reason for found in of.values() for reason in found[what]}):
            examples = [
                each.detail
                for found in rejects.values()
                for each in found
                if each.reason == reason and (each.what == "annotation") == (what == "annotation")
            ]
            unit = "row" if what == "image" and is_of_rows(manifest) else what
            counts = [found[what].get(reason, 0) for found in of.values()]
            rows.append((unit, reason, counts, examples[:_EXAMPLES_OF_REASON]))
    return rows


def _findings(statistics: Mapping[str, SplitStatistics], splits: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return possible problems with their numbers per split."""
    of = [statistics[split].findings if split in statistics else {} for split in splits]
    rows = [(title, [found[name].number if name in found else 0 for found in of]) for name, title in _FOUND.items()]
    return [(title, numbers) for title, numbers in rows if any(numbers)]


def _gallery(
    titles: Mapping[str, tuple[str, str]], pictures: Sequence[Thumbnail]
) -> list[tuple[str, str, list[dict[str, Any]]]]:
    found = {why: [_figure(each) for each in pictures if each.why == why] for why in titles}
    return [(*titles[why], figures) for why, figures in found.items() if figures]


def _figure(picture: Thumbnail) -> dict[str, Any]:
    return {
        **picture._asdict(),
        "data": base64.b64encode(picture.jpeg).decode(),
        "name": picture.texts[0] if picture.texts else "",
        "more": picture.texts[1:3],
    }
