"""Is the data good? Counts of what is wrong or suspicious, as the page shows them first."""

from collections.abc import Mapping
from typing import NamedTuple

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.layouts import has_picture
from recordmill.schemas.problems import OF_ANNOTATIONS
from recordmill.schemas.statistics import FINDINGS, SplitComparison, SplitStatistics

_EVALUATION = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")


class DataCheck(NamedTuple):
    """A question about the data with its answer.

    Attributes:
        number: Number of images, annotations or classes; None if nobody looked.
        detail: What was counted, or why nobody looked.
        anchor: Section of the page.
    """

    title: str
    number: int | None
    detail: str
    anchor: str


def check_data(
    manifest: Manifest, statistics: Mapping[str, SplitStatistics], comparison: SplitComparison
) -> list[DataCheck]:
    """Return leakage, duplicates, rejects, class gaps, suspicious boxes and images of a data set."""
    splits = list(manifest.splits.values())
    checks = []
    if not has_picture(manifest.table):
        pass
    elif found := manifest.duplicates:
        leaked = sum(each.leaked for each in found.splits.values())
        exact, near = (sum(getattr(each, name) for each in found.splits.values()) for name in ("exact", "near"))
        differ = sum(each.labels_differ for each in found.splits.values())
        numbers = {"exact": exact, "near": near, "other labels": differ}
        where = "images that another split has" if len(splits) > 1 else "one split only"
        section = "duplicates" if exact + near else "possible-problems"
        checks += [
            DataCheck("Leakage", leaked, where, section),
            DataCheck("Duplicates", exact + near, _parts(numbers), section),
        ]
    else:
        checks += [DataCheck(title, None, "not looked for", "possible-problems") for title in ("Leakage", "Duplicates")]
    reasons: dict[str, int] = {}
    for split in splits:
        for reason, number in (*split.images.rejected.items(), *split.annotations.rejected.items()):
            reasons[reason] = reasons.get(reason, 0) + number
    checks.append(DataCheck("Rejects", sum(reasons.values()), _parts(_largest_first(reasons)), "rejects"))
    if manifest.categories:
        rows = zip(*(split.class_counts for split in splits), strict=True)
        empty = sum(not any(of_class) for of_class in rows)
        gaps = {
            "in one split only": len(comparison.one_split_only),
            "other share": len(comparison.drifting),
            "without any": empty,
        }
        checks.append(DataCheck("Class gaps", sum(gaps.values()), _parts(gaps), "class-gaps"))
    of_kind = {name: sum(split.findings.get(name, 0) for split in splits) for name in FINDINGS}
    boxes = {name.replace("_", " "): of_kind[name] for name in OF_ANNOTATIONS}
    pictures = {name.replace("_", " "): of_kind[name] for name in FINDINGS if name not in OF_ANNOTATIONS}
    if any(split.annotations.objects for split in splits):
        checks.append(DataCheck("Suspicious boxes", sum(boxes.values()), _parts(boxes), "possible-problems"))
    if not has_picture(manifest.table):
        return checks
    if any(each.measured for each in statistics.values()):
        checks.append(DataCheck("Suspicious images", sum(pictures.values()), _parts(pictures), "possible-problems"))
    else:
        checks.append(DataCheck("Suspicious images", None, "pixels were not looked at", "possible-problems"))
    return checks


def _largest_first(numbers: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(numbers.items(), key=lambda each: -each[1]))


def _parts(numbers: Mapping[str, int]) -> str:
    """
    >>> _parts({"exact": 1200, "near": 0, "other labels": 3}), _parts({"exact": 0})
    ('1,200 exact, 3 other labels', 'none found')
    """
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number) or "none found"


def order_splits(manifest: Manifest) -> list[str]:
    """Return the names of the splits in the order that `--split` gave; those of several jobs in the usual order,
    training first.

    >>> from types import SimpleNamespace as Of
    >>> of = {name: Of(recipe=Of(options={"split": name})) for name in ("test", "train", "val")}
    >>> order_splits(Of(splits=of))
    ['train', 'val', 'test']
    """
    options = (str(split.recipe.options.get("split", "")) for split in manifest.splits.values())
    given = [part.partition("=")[0] for text in options if "=" in text for part in text.split(",")]

    def rank(name: str) -> tuple[int, int, str]:
        if name in given:
            return 0, given.index(name), name
        return 1, _EVALUATION.index(name) if name in _EVALUATION else len(_EVALUATION), name

    return sorted(manifest.splits, key=rank)
