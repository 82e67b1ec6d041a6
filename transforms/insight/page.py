"""Contents of report.html, from manifest, statistics and images."""

import base64
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from recordmill.schemas.dataset.manifest import Manifest, SplitManifest
from recordmill.schemas.features import RecordOf
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE
from recordmill.schemas.layouts import has_image, requested_fields
from recordmill.schemas.problems import ANNOTATION_FINDINGS, DuplicateGroup
from recordmill.schemas.rejects import MOST_LISTED
from recordmill.schemas.sizes import number_text, size_text
from recordmill.schemas.statistics import (
    DEPTH,
    FINDINGS,
    Distribution,
    Finding,
    SegmentStatistics,
    SplitComparison,
    SplitStatistics,
)
from recordmill.transforms.dataset.fact_lines import class_gaps, count_conflicts, partial_drifts, split_lines
from recordmill.transforms.insight.across_splits import compare_splits
from recordmill.transforms.insight.charts import (
    chart_centres,
    chart_statistics,
    format_number,
    format_percent,
    long_tail,
)
from recordmill.transforms.insight.field_charts import chart_fields
from recordmill.transforms.insight.read_examples import Thumbnail, duplicate_rows, duplicate_titles

_EVALUATION = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")
_CLASSES_SHOWN = 12
_PIXEL_CLASSES_SHOWN = 40
_GAPS_SHOWN = 10
_FEW_CLASSES = 10
"""Up to this number of classes the table needs no chart."""
_EXAMPLES_OF_REASON = 3
_WHY = {
    "sample": ("At random", "the same in each run"),
    "crowded": ("Most crowded", "images with the most objects"),
    "small": ("Smallest objects", "images with the smallest boxes"),
    "odd": ("Extreme aspect ratios", "one side at least twice as long as the other"),
}
_FINDING_TITLES = {name: title[0].upper() + title[1:] for name, title in FINDINGS.items()}

_REORDERING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""Bidirectional classes of invisible characters."""

SplitRow = tuple[str, list[str]]
"""Row of a table: a label, and a value per split."""


def render_page(
    manifest: Manifest,
    statistics: Mapping[str, SplitStatistics],
    thumbnails: Sequence[Thumbnail] = (),
    duplicates: Sequence[DuplicateGroup] = (),
) -> bytes:
    """Return the page as UTF-8. Equal arguments give equal bytes.

    Args:
        statistics: Statistics by split. A split whose file is missing or damaged has none.
        thumbnails: Images of examples and duplicates.
        duplicates: First groups of duplicates, to show with thumbnails.
    """
    splits = {name: manifest.splits[name] for name in order_splits(manifest)}
    manifest = msgspec.structs.replace(manifest, splits=splits)
    statistics = {name: statistics[name] for name in splits if name in statistics}
    comparison = compare_splits(statistics) or SplitComparison()
    classes = _class_rows(manifest, statistics)
    without_any = [row["name"] for row in classes if not row["sum"]]
    charts, constants = chart_statistics(statistics)
    text = _template().render(
        manifest=manifest,
        splits=list(splits),
        unit="rows" if manifest.table.record_of is RecordOf.ROW else "images",
        total=sum(split.bytes for split in splits.values()),
        images=sum(split.images.written for split in splits.values()),
        tiles=sum(split.images.tiles for split in splits.values()),
        objects=sum(split.annotations.objects for split in splits.values()),
        comparison=amount_rows(manifest, statistics),
        options=value_rows({name: split.recipe.options for name, split in splits.items()}),
        programs=value_rows({name: split.made_by for name, split in splits.items()}),
        unknown=[name for name, split in splits.items() if _lacks_statistics(split, statistics.get(name))],
        classes=classes,
        shown=min(_CLASSES_SHOWN, max(1, len(classes) - len(without_any))),
        class_charts=_class_charts(manifest),
        checks=check_data(manifest, statistics, comparison),
        charts=charts,
        constants=constants,
        fields=(fields := chart_fields(manifest.table, {name: statistics.get(name) for name in splits})),
        more_fields=len(requested_fields(manifest.table)) - len(fields) if fields else 0,
        heat=[chart_centres(name, split.centres) for name, split in statistics.items() if split.centres],
        segments=_segment_rows(statistics),
        pixels=_pixel_rows([statistics.get(name) for name in splits]),
        pixels_shown=_PIXEL_CLASSES_SHOWN,
        rejected=_reject_rows(manifest),
        rejects=sum(split.rejects for split in splits.values()),
        listed=sum(split.listed_rejects for split in splits.values()),
        most_listed=MOST_LISTED,
        sample_images=_list_figures({"sample": _WHY["sample"]}, thumbnails),
        more_images=_list_figures({why: _WHY[why] for why in _WHY if why != "sample"}, thumbnails),
        findings=_finding_rows([statistics[name].findings if name in statistics else {} for name in splits]),
        gaps_shown=_GAPS_SHOWN,
        without_any=without_any,
        absent=[(gap.name, ", ".join(gap.absent_from), gap.number) for gap in class_gaps(manifest)],
        drifting=[
            (drift.name, drift.split, drift.images, f"{drift.share:.2%}", f"{drift.elsewhere:.2%}")
            for drift in partial_drifts(comparison)
        ],
        finding_images=_list_figures({name: (title, "") for name, title in _FINDING_TITLES.items()}, thumbnails),
        duplicates=duplicate_rows(manifest),
        leaks=manifest.duplicates.leaks if manifest.duplicates else 0,
        conflicts=count_conflicts(manifest),
        copied=manifest.duplicates.copied_classes if manifest.duplicates else {},
        duplicate_images=_list_figures(duplicate_titles(duplicates), thumbnails),
        measured=sum(split.measured for split in statistics.values()),
        has_images=has_image(manifest.table),
        features=[
            (feature.name, feature.kind.value, " × ".join(feature.shape), feature.unit) for feature in manifest.features
        ],
    )
    return text.encode(errors="backslashreplace")


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
    environment.filters |= {"number": format_number, "size": size_text, "plain": _escape_controls}
    return environment.get_template("page.html")


def _escape_controls(text: object) -> str:
    """Escape control characters, which HTML does not allow, and those that change the order of letters: a name with
    one would be read as another name. Joiners, as in Persian words and emoji, stay."""
    return "".join(letter.encode("unicode_escape").decode() if _is_control(letter) else letter for letter in str(text))


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cc", "Cs") or unicodedata.bidirectional(letter) in _REORDERING


def order_splits(manifest: Manifest) -> list[str]:
    """Return the names of the splits in the order of `--split`. Splits of separate jobs follow in the usual order,
    training first."""
    options = (str(split.recipe.options.get("split", "")) for split in manifest.splits.values())
    given = [part.partition("=")[0] for text in options if "=" in text for part in text.split(",")]

    def rank(name: str) -> tuple[int, int, str]:
        if name in given:
            return 0, given.index(name), name
        return 1, _EVALUATION.index(name) if name in _EVALUATION else len(_EVALUATION), name

    return sorted(manifest.splits, key=rank)


def _lacks_statistics(split: SplitManifest, statistics: SplitStatistics | None) -> bool:
    is_lost = split.images.written and not (statistics and statistics.images)
    return bool(is_lost) or split.recipe.options.get("writer") == "beam"


class DataCheck(NamedTuple):
    """A question about the data with its answer.

    Attributes:
        number: Number of images, annotations or classes; None if not checked.
        detail: Parts of the number, or the reason for no check.
        anchor: Section of the page.
    """

    title: str
    number: int | None
    detail: str
    anchor: str


def check_data(
    manifest: Manifest, statistics: Mapping[str, SplitStatistics], comparison: SplitComparison
) -> list[DataCheck]:
    """Return leakage, conflicting labels, duplicates, rejects, class gaps, suspicious boxes and images of a data
    set."""
    splits, problems = list(manifest.splits.values()), "possible-problems"
    checks = []
    if not has_image(manifest.table):
        pass
    elif duplicates := manifest.duplicates:
        split_duplicates = duplicates.splits.values()
        leaked, exact, near = (
            sum(getattr(numbers, name) for numbers in split_duplicates) for name in ("leaked", "exact", "near")
        )
        where = "images that are also in another split" if len(splits) > 1 else "one split only"
        parts = {
            "exact": exact,
            "near": near,
            "other labels": sum(numbers.labels_differ for numbers in split_duplicates),
        }
        section = "duplicates" if exact + near else problems
        checks.append(DataCheck("Leakage", leaked, where, section))
        conflicting, distinct = count_conflicts(manifest) or (0, 0)
        copies = f"exact copies with different labels, of {number_text(distinct, 'distinct image')}"
        checks.append(
            DataCheck("Conflicting labels", None, "not counted", section)
            if duplicates.conflicts is msgspec.UNSET
            else DataCheck("Conflicting labels", conflicting, copies if conflicting else "none found", section)
        )
        checks.append(DataCheck("Duplicates", exact + near, _format_counts(parts), section))
    else:
        titles = "Leakage", "Conflicting labels", "Duplicates"
        checks += [DataCheck(title, None, "not checked", problems) for title in titles]
    reasons = Counter[str]()
    for split in splits:
        reasons.update(split.images.rejected)
        reasons.update(split.annotations.rejected)
    checks.append(DataCheck("Rejects", reasons.total(), _format_counts(dict(reasons.most_common())), "rejects"))
    if manifest.categories:
        gaps = {
            "absent from a split": len(class_gaps(manifest)),
            "different share": len(partial_drifts(comparison)),
            "unused": sum(not any(counts) for counts in zip(*(split.class_counts for split in splits), strict=True)),
        }
        checks.append(DataCheck("Class gaps", sum(gaps.values()), _format_counts(gaps), "class-gaps"))
    box_findings, image_findings = (
        {
            name.replace("_", " "): sum(split.findings.get(name, 0) for split in splits)
            for name in FINDINGS
            if (name in ANNOTATION_FINDINGS) == is_of_boxes
        }
        for is_of_boxes in (True, False)
    )
    if any(split.annotations.objects for split in splits):
        checks.append(DataCheck("Suspicious boxes", sum(box_findings.values()), _format_counts(box_findings), problems))
    if has_image(manifest.table):
        is_measured = any(split.measured for split in statistics.values())
        number = sum(image_findings.values()) if is_measured else None
        detail = _format_counts(image_findings) if is_measured else "pixels were not checked"
        checks.append(DataCheck("Suspicious images", number, detail, problems))
    return checks


def _format_counts(numbers: Mapping[str, int]) -> str:
    """
    >>> _format_counts({"exact": 1200, "near": 0, "other labels": 3}), _format_counts({"exact": 0})
    ('1,200 exact, 3 other labels', 'none found')
    """
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number) or "none found"


def amount_rows(manifest: Manifest, statistics: Mapping[str, SplitStatistics]) -> list[SplitRow]:
    """Return an overview of each split, side by side."""
    splits = list(manifest.splits.values())
    rows: dict[tuple[str, int], list[str]] = {}
    for column, split in enumerate(splits):
        label_counts = Counter[str]()
        for label, text in split_lines(manifest, split, splits):
            if label == "classes":  # the page has a table of them
                text = f"{sum(number > 0 for number in split.class_counts):,} of {len(manifest.categories):,} used"
            label = label or "kinds"  # the summary prints this line without a label
            key = label, label_counts[label]
            label_counts[label] += 1
            rows.setdefault(key, [""] * len(splits))[column] = text
    by_split = [statistics.get(name) for name in manifest.splits]
    objects = [split.histograms.get("objects_an_image") if split else None for split in by_split]
    formats = [split.formats if split else {} for split in by_split]
    depths = [split.histograms.get(DEPTH) if split else None for split in by_split]
    unit = "tile" if any(split.images.tiles for split in splits) else "image"
    more: list[SplitRow] = [
        (f"objects per {unit}", [f"{histogram.mean:.1f}" if histogram else "" for histogram in objects]),
        ("class balance", [_format_class_balance(split.class_counts) for split in splits]),
        (
            "formats in records",
            [", ".join(f"{name} {number:,}" for name, number in counts.items()) for counts in formats],
        ),
        ("depth", [_format_depth(histogram) for histogram in depths]),
        ("largest shard", [_format_skew(split) for split in splits]),
        ("hosts", [f"at most {len(split.shards):,} (number of shards)" for split in splits]),
    ]
    return [(label, texts) for (label, _), texts in rows.items()] + [row for row in more if any(row[1])]


def _format_class_balance(counts: Sequence[int]) -> str:
    """Return the ratio of the most frequent class to the rarest class with a count above 0."""
    present = [count for count in counts if count]
    return f"{max(present) / min(present):,.1f} to 1" if present else ""


def _format_depth(histogram: Distribution | None) -> str:
    if histogram is None or not histogram.count:
        return ""
    return f"{histogram.least:.4g} to {histogram.largest:.4g} m, mean {histogram.mean:.4g} m"


def _format_skew(split: SplitManifest) -> str:
    largest = max((shard.bytes for shard in split.shards), default=0)
    return f"{largest * len(split.shards) / max(1, split.bytes):.2f} times the mean"


def value_rows(by_split: Mapping[str, Mapping[str, object]]) -> list[SplitRow]:
    """Return a row per name with its value in each split; one value if all are equal. Empty rows are skipped."""
    rows = []
    for name in sorted({name for values in by_split.values() for name in values}):
        values = [_format_option(options.get(name)) for options in by_split.values()]
        if any(values):
            rows.append((name, values[:1] if len(set(values)) == 1 else values))
    return rows


def _format_option(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _class_rows(manifest: Manifest, statistics: Mapping[str, SplitStatistics]) -> list[dict[str, Any]]:
    """Return the classes by frequency, with numbers in each split."""
    counts = [split.class_counts for split in manifest.splits.values()]
    images = [
        [row.images for row in statistics[name].classes] if name in statistics else [] for name in manifest.splits
    ]
    totals = [sum(numbers) or 1 for numbers in counts]
    shares = [[number / total for number in numbers] for numbers, total in zip(counts, totals, strict=True)]
    most = max(chain.from_iterable(shares), default=0) or 1
    rows = [
        {
            "name": category.name,
            "sum": sum(numbers[index] for numbers in counts),
            "counts": [numbers[index] for numbers in counts],
            "images": [numbers[index] if index < len(numbers) else 0 if numbers else None for numbers in images],
            "widths": [round(100 * split_shares[index] / most, 2) for split_shares in shares],
        }
        for index, category in enumerate(manifest.categories)
        if all(index < len(numbers) for numbers in counts)
    ]
    return sorted(rows, key=lambda row: -row["sum"])


def _class_charts(manifest: Manifest) -> list[Markup]:
    counts = [split.class_counts for split in manifest.splits.values()]
    if len(manifest.categories) <= _FEW_CLASSES or not any(map(any, counts)):
        return []
    return [
        long_tail(counts, f"Number of objects or images per class, of {len(manifest.categories):,} classes, by rank")
    ]


def _segment_rows(statistics: Mapping[str, SplitStatistics]) -> list[tuple[object, ...]]:
    """Return the number of images per split of each category of segments, most frequent first."""
    names = [row.name for row in max((split.segments for split in statistics.values()), key=len, default=())]
    absent = [SegmentStatistics(name, 0) for name in names]
    columns = (split.segments + tuple(absent[len(split.segments) :]) for split in statistics.values())
    rows = [(name, *(entry.images for entry in row)) for name, *row in zip(names, *columns, strict=True)]
    return sorted((row for row in rows if any(row[1:])), key=lambda row: -sum(row[1:]))


def _pixel_rows(splits: Sequence[SplitStatistics | None]) -> list[dict[str, Any]]:
    """Return the number of pixels per split of each class of semantic masks, most frequent first, unknown last."""
    counts = [
        {row.value: row.pixels for row in split.pixels} if split and split.pixels is not msgspec.UNSET else {}
        for split in splits
    ]
    names = {row.value: row.name for split in splits if split for row in split.pixels or ()}
    totals = [sum(numbers.values()) for numbers in counts]
    shares = [
        {value: number / (total or 1) for value, number in numbers.items()}
        for numbers, total in zip(counts, totals, strict=True)
    ]
    most = max((share for split_shares in shares for share in split_shares.values()), default=0) or 1
    rows = [
        {
            "name": name or f"value {value}",
            "counts": [numbers.get(value) for numbers in counts],
            "shares": [format_percent(split_shares[value]) if value in split_shares else "" for split_shares in shares],
            "widths": [round(100 * split_shares.get(value, 0) / most, 2) for split_shares in shares],
        }
        for value, name in sorted(
            names.items(), key=lambda item: (item[0] == SEMANTIC_IGNORE, -sum(n.get(item[0], 0) for n in counts))
        )
    ]
    return rows if any(totals) else []


def _reject_rows(manifest: Manifest) -> list[tuple[str, str, list[int], list[str]]]:
    """Return rejects: unit ("image", "row", "annotation"), reason, numbers per split, and examples."""
    is_of_rows = manifest.table.record_of is RecordOf.ROW
    rejects = [reject for name in sorted(manifest.splits) for reject in manifest.splits[name].first_rejects]
    rows = []
    for what in ("image", "annotation"):
        unit = "row" if what == "image" and is_of_rows else what
        counts = [getattr(split, f"{what}s").rejected for split in manifest.splits.values()]
        for reason in sorted(set[str]().union(*counts)):
            examples = [
                reject.detail
                for reject in rejects
                if reject.reason == reason and (reject.what == "annotation") == (what == "annotation")
            ]
            rows.append((unit, reason, [numbers.get(reason, 0) for numbers in counts], examples[:_EXAMPLES_OF_REASON]))
    return rows


def _finding_rows(splits: Sequence[Mapping[str, Finding]]) -> list[tuple[str, list[int]]]:
    rows = [
        (title, [findings[name].number if name in findings else 0 for findings in splits])
        for name, title in _FINDING_TITLES.items()
    ]
    return [(title, numbers) for title, numbers in rows if any(numbers)]


def _list_figures(
    titles: Mapping[str, tuple[str, str]], thumbnails: Sequence[Thumbnail]
) -> list[tuple[str, str, list[dict[str, Any]]]]:
    galleries = []
    for why, (title, meaning) in titles.items():
        figures = [
            thumbnail._asdict()
            | {
                "data": base64.b64encode(thumbnail.jpeg).decode(),
                "name": "".join(thumbnail.texts[:1]),
                "more": thumbnail.texts[1:3],
            }
            for thumbnail in thumbnails
            if thumbnail.why == why
        ]
        if figures:
            galleries.append((title, meaning, figures))
    return galleries
