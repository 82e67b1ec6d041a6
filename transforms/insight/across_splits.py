"""Files made from all splits of a data set: statistics.json, duplicates.jsonl and problems-SPLIT.jsonl."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from math import asin, sqrt
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.manifest import Manifest, SplitManifest, encode_json
from recordmill.schemas.errors import DuplicatesError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.layouts import has_image
from recordmill.schemas.problems import (
    DUPLICATES,
    FINGERPRINTS,
    DuplicateGroup,
    Duplicates,
    Fingerprints,
    SplitProblems,
    split_fingerprints,
    split_problems,
)
from recordmill.schemas.statistics import ClassDrift, ClassInOneSplit, ClassStatistics, SplitComparison, SplitStatistics
from recordmill.transforms.dataset.dataset_folder import file_sha256, read_raw_statistics, read_split_manifests
from recordmill.transforms.insight.find_duplicates import find_duplicates
from recordmill.transforms.insight.list_problems import list_problems
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for

_FALSE_ALARMS = 0.01
"""Probability that random splits of one data set are reported to drift, in any class of any split."""
_RATIO = 1.25
"""Minimum ratio of two shares that is reported. Among a million images even tiny differences are significant."""


def compare_splits(splits: Mapping[str, SplitStatistics]) -> SplitComparison | None:
    """Return differences between the classes of several splits; None if fewer than two have classes.

    A class drifts in a split if its share of the split's images differs from its share of all other splits together: by
    a quarter, and by more than chance explains. The test compares the arc sines of the shares, whose difference is
    nearly normal even for rare classes. The threshold is corrected for the number of comparisons (Bonferroni).
    """
    found = {name: split for name, split in sorted(splits.items()) if any(each.images for each in split.classes)}
    if len(found) < 2:
        return None
    rows = list(zip(*(split.classes for split in found.values()), strict=False))  # an edited file may have fewer
    return SplitComparison(tuple(_in_one_split(list(found), rows)), tuple(_drifting(found, rows)))


_Rows = Sequence[tuple[ClassStatistics, ...]]
"""Statistics of each class, one per split."""


def _in_one_split(splits: Sequence[str], rows: _Rows) -> list[ClassInOneSplit]:
    """Return the classes of one split only, by frequency."""
    alone = [
        ClassInOneSplit(each.name, split, each.images)
        for of_class in rows
        if sum(each.images > 0 for each in of_class) == 1
        for split, each in zip(splits, of_class, strict=True)
        if each.images
    ]
    return sorted(alone, key=lambda each: -each.images)


def _drifting(splits: Mapping[str, SplitStatistics], rows: _Rows) -> Iterator[ClassDrift]:
    """Return the drifting classes, largest distance first."""
    rows = [row for row in rows if any(each.images for each in row)]
    compared = len(rows) * (1 if len(splits) == 2 else len(splits))  # two splits need only one comparison
    far = NormalDist().inv_cdf(1 - _FALSE_ALARMS / 2 / compared)
    images = [of.images for of in splits.values()]
    drifting = []
    for row in rows:
        having = [each.images for each in row]
        for split, of_class, of_split, each in zip(splits, having, images, row, strict=True):
            others = sum(having) - of_class, sum(images) - of_split
            distance = abs(arc_sine_distance((of_class, of_split), others))
            share, elsewhere = of_class / of_split, others[0] / others[1]
            if distance > far and max(share, elsewhere) >= _RATIO * min(share, elsewhere):
                drifting.append((distance, ClassDrift(each.name, split, of_class, share, elsewhere)))
    return (drift for _, drift in sorted(drifting, key=lambda each: -each[0]))


def arc_sine_distance(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Return two shares' distance in standard deviations of random samples.

    Args:
        one, other: Number of hits and total of each share.

    >>> round(arc_sine_distance((30, 100), (100, 1000)), 1), round(arc_sine_distance((2, 100), (10, 10_000)), 1)
    (5.0, 2.4)
    """
    return (_angle(*one) - _angle(*other)) / sqrt(1 / (one[1] + 0.5) + 1 / (other[1] + 0.5))


def _angle(number: int, total: int) -> float:
    """Return Anscombe's transform, whose variance hardly depends on the share. An edited file may exceed the total."""
    return 2 * asin(sqrt((min(number, total) + 0.375) / (total + 0.75)))


def folder_statistics(output: str, splits: Iterable[str]) -> bytes | None:
    """Return the content of statistics.json from the statistics of each split; None if no split has any."""
    found = read_raw_statistics(output, sorted(splits))
    comparison = compare_splits({split: known for split, (known, _) in found.items()})
    compared = {} if comparison is None else {"across_splits": comparison}
    # Copy the raw JSON of each split: decoded numbers would be encoded differently.
    return encode_json({"splits": {split: raw for split, (_, raw) in found.items()}} | compared) if found else None


_ENCODE_LINES = msgspec.json.Encoder().encode_lines
_DECODER = msgspec.json.Decoder(Fingerprints)


def fingerprints_path(output: str, split: str) -> str:
    """Return the path of the fingerprints of an incomplete split."""
    return join_path(output, f"{state_folder(split)}/{FINGERPRINTS}")


def fingerprint_line(fingerprints: Fingerprints) -> bytes:
    """Return a line of fingerprints-SPLIT.jsonl."""
    return _ENCODE_LINES([fingerprints])


@dataclass(frozen=True)
class FingerprintFile:
    """Fingerprints of the shards of a split. Each iteration reads the file again."""

    path: str

    def __iter__(self) -> Iterator[Fingerprints]:
        with storage_for(self.path).open(self.path) as file:
            yield from map(_DECODER.decode, file)


def read_fingerprints(output: str, splits: Mapping[str, SplitManifest]) -> dict[str, FingerprintFile]:
    """Return the fingerprints by split. Splits whose file is missing or changed are skipped."""
    found = {}
    for split, entry in splits.items():
        path = join_path(output, split_fingerprints(split))
        with suppress(FileNotFoundError, UnreadableFileError):
            if file_sha256(path) == entry.fingerprints_sha256:
                found[split] = FingerprintFile(path)
    return found


class FoundAcross(NamedTuple):
    """Findings of all a folder's splits, for manifest and files.

    Attributes:
        duplicates: Duplicate images.
        problems: Possible problems, by split.
        files: Contents of duplicates.jsonl and problems-SPLIT.jsonl, by name.
    """

    duplicates: Duplicates
    problems: dict[str, SplitProblems]
    files: dict[str, bytes]


def duplicates_of(output: str, manifest: Manifest) -> FoundAcross | None:
    """Compare a folder's splits; None without fingerprints."""
    fingerprints = read_fingerprints(output, manifest.splits)
    if not fingerprints:
        return None
    found = find_duplicates(fingerprints, has_classes=bool(manifest.table.class_source))
    data = _ENCODE_LINES(found.groups)
    leaks = sum(group.is_leak for group in found.groups)
    copied = {manifest.categories[index].name: number for index, number in found.copied.items()}
    duplicates = Duplicates(sha256(data).hexdigest(), len(found.groups), leaks, found.splits, copied)
    listed = list_problems(fingerprints, found, {name: split.findings for name, split in manifest.splits.items()})
    files = {split_problems(split): lines for split, (_, lines) in listed.items()}
    problems = {split: problems for split, (problems, _) in listed.items()}
    return FoundAcross(duplicates, problems, {DUPLICATES: data, **files})


def check_duplicates(
    output: str, fingerprints: Mapping[str, Iterable[Fingerprints]], table: FeatureTable, policy: str
) -> set[str]:
    """Compare a job's splits with each other, and with the splits of earlier jobs in the folder.

    Args:
        fingerprints: Fingerprints of the job's splits.
        policy: `leakage` refuses images that are in several splits, `fail` all duplicates.

    Returns:
        Names of the compared splits.

    Raises:
        DuplicatesError: The policy refuses duplicates, which are listed in the state folder of the first split; or a
            split has no fingerprints.
    """
    before = _split_entries(output)
    groups = _refused(output, before, fingerprints, table, policy)
    if not groups:
        return before.keys() | fingerprints.keys()
    path = join_path(output, f"{state_folder(min(fingerprints))}/{DUPLICATES}")
    storage_for(output).write(path, _ENCODE_LINES(groups))
    raise _error(groups, policy, f"All are in {path}. The shards are kept", "run again")


def check_complete_duplicates(output: str, splits: Iterable[str], table: FeatureTable, policy: str) -> None:
    """Check complete splits of a folder, from a rerun that writes nothing or from another job.

    Raises:
        DuplicatesError: The policy refuses duplicates, which are listed in the folder's duplicates.jsonl.
    """
    found = _split_entries(output)
    fingerprints = read_fingerprints(output, {split: found[split] for split in splits})
    if groups := _refused(output, found, fingerprints, table, policy):
        path = join_path(output, DUPLICATES)
        raise _error(
            groups, policy, f"All of the folder are in {path}. The splits are complete, and stay", "write again"
        )


def _split_entries(output: str) -> dict[str, SplitManifest]:
    return {split: manifest.splits[split] for split, manifest in read_split_manifests(output).items()}


def _refused(
    output: str,
    found: Mapping[str, SplitManifest],
    fingerprints: Mapping[str, Iterable[Fingerprints]],
    table: FeatureTable,
    policy: str,
) -> list[DuplicateGroup]:
    if not has_image(table):
        return []
    others = read_fingerprints(output, {split: found[split] for split in found.keys() - fingerprints.keys()})
    if lacking := sorted(found.keys() - fingerprints.keys() - others.keys()):
        raise DuplicatesError(
            f"--duplicates {policy}: {', '.join(lacking)} of {output} cannot be compared, as its fingerprints are "
            "missing or damaged; convert it again with --overwrite"
        )
    return [
        group
        for group in find_duplicates({**others, **fingerprints}, has_classes=bool(table.class_source)).groups
        if (policy == "fail" or group.is_leak) and any(image.split in fingerprints for image in group.images)
    ]


def _error(groups: Sequence[DuplicateGroup], policy: str, state: str, again: str) -> DuplicatesError:
    """Return the error for the groups that a policy refuses.

    Args:
        state: Path of the list of groups, and state of the shards.
        again: Command of the user once the duplicates are removed.
    """
    images, leaks = sum(len(group.images) for group in groups), sum(group.is_leak for group in groups)
    across = f", {leaks:,} of them in several splits" if leaks else ""
    pictures = "image" if len(groups) == 1 else "images"
    first = groups[0].images[0]
    other = next((image for image in groups[0].images if image.split != first.split), groups[0].images[1])
    example = " and ".join(f"{image.file_name!r} of {image.split}" for image in (first, other))
    return DuplicatesError(
        f"{images:,} images are {len(groups):,} {pictures}, exactly or nearly{across}, which --duplicates {policy} "
        f"refuses; for example {example}. {state}: leave some of the images out, or keep those of a group in one "
        f"split, and {again}; or run again with --duplicates report to accept this"
    )
