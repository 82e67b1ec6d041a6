"""Files made from all splits of a data set: statistics.json, duplicates.jsonl and problems-SPLIT.jsonl."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from math import asin, sqrt
from statistics import NormalDist

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
from recordmill.schemas.sizes import number_text
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
    with_classes = {name: split for name, split in sorted(splits.items()) if any(row.images for row in split.classes)}
    if len(with_classes) < 2:
        return None
    rows = _class_rows(list(with_classes.values()))
    return SplitComparison(
        tuple(_one_split_classes(list(with_classes), rows)), tuple(_drifting_classes(with_classes, rows))
    )


_Rows = Sequence[tuple[ClassStatistics, ...]]
"""Statistics of each class, one per split."""


def _class_rows(splits: Sequence[SplitStatistics]) -> _Rows:
    """Return the statistics of each class. A split that another one has outgrown has none of the further classes."""
    longest = max((split.classes for split in splits), key=len)
    absent = [ClassStatistics(row.name, 0, 0) for row in longest]
    columns = (split.classes + tuple(absent[len(split.classes) :]) for split in splits)
    return list(zip(*columns, strict=True))


def _one_split_classes(splits: Sequence[str], rows: _Rows) -> list[ClassInOneSplit]:
    """Return the classes of one split only, by frequency."""
    alone = [
        ClassInOneSplit(entry.name, split, entry.images)
        for row in rows
        if sum(entry.images > 0 for entry in row) == 1
        for split, entry in zip(splits, row, strict=True)
        if entry.images
    ]
    return sorted(alone, key=lambda entry: -entry.images)


def _drifting_classes(splits: Mapping[str, SplitStatistics], rows: _Rows) -> Iterator[ClassDrift]:
    """Return the drifting classes, largest distance first."""
    rows = [row for row in rows if any(entry.images for entry in row)]
    comparisons = len(rows) * (1 if len(splits) == 2 else len(splits))  # two splits need only one comparison
    threshold = NormalDist().inv_cdf(1 - _FALSE_ALARMS / 2 / comparisons)
    split_images = [split.images for split in splits.values()]
    drifts = []
    for row in rows:
        class_images = [entry.images for entry in row]
        for split, images, total, entry in zip(splits, class_images, split_images, row, strict=True):
            elsewhere = sum(class_images) - images, sum(split_images) - total
            distance = abs(arc_sine_distance((images, total), elsewhere))
            share, other_share = images / total, elsewhere[0] / elsewhere[1]
            if distance > threshold and max(share, other_share) >= _RATIO * min(share, other_share):
                drifts.append((distance, ClassDrift(entry.name, split, images, share, other_share)))
    return (drift for _, drift in sorted(drifts, key=lambda item: -item[0]))


def arc_sine_distance(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Return two shares' distance in standard deviations of random samples.

    Args:
        one, other: Number of hits and total of each share.

    >>> round(arc_sine_distance((30, 100), (100, 1000)), 1), round(arc_sine_distance((2, 100), (10, 10_000)), 1)
    (5.0, 2.4)
    """
    return (_arc_sine(*one) - _arc_sine(*other)) / sqrt(1 / (one[1] + 0.5) + 1 / (other[1] + 0.5))


def _arc_sine(number: int, total: int) -> float:
    """Return Anscombe's transform, whose variance hardly depends on the share. An edited file may exceed the total."""
    return 2 * asin(sqrt((min(number, total) + 0.375) / (total + 0.75)))


def folder_statistics(output: str, splits: Iterable[str]) -> bytes | None:
    """Return the content of statistics.json from the statistics of each split; None if no split has any."""
    by_split = read_raw_statistics(output, sorted(splits))
    comparison = compare_splits({split: known for split, (known, _) in by_split.items()})
    compared = {} if comparison is None else {"across_splits": comparison}
    # Copy the raw JSON of each split: decoded numbers would be encoded differently.
    return (
        encode_json({"splits": {split: raw for split, (_, raw) in by_split.items()}} | compared) if by_split else None
    )


_ENCODE_LINES = msgspec.json.Encoder().encode_lines
_DECODER = msgspec.json.Decoder(Fingerprints)


def fingerprints_path(output: str, split: str) -> str:
    """Return the path of the fingerprints of an incomplete split."""
    return join_path(output, f"{state_folder(split)}/{FINGERPRINTS}")


def fingerprint_line(fingerprints: Fingerprints) -> bytes:
    """Return a line of fingerprints-SPLIT.jsonl."""
    return _ENCODE_LINES([fingerprints])


class FingerprintFile:
    """Fingerprints of the shards of a split. Each iteration reads the file again."""

    def __init__(self, path: str):
        self._path = path

    def __iter__(self) -> Iterator[Fingerprints]:
        with storage_for(self._path).open(self._path) as file:
            yield from map(_DECODER.decode, file)


def read_fingerprints(output: str, splits: Mapping[str, SplitManifest]) -> dict[str, FingerprintFile]:
    """Return the fingerprints by split. Splits whose file is missing or changed are skipped."""
    files = {}
    for split, entry in splits.items():
        path = join_path(output, split_fingerprints(split))
        with suppress(FileNotFoundError, UnreadableFileError):
            if file_sha256(path) == entry.fingerprints_sha256:
                files[split] = FingerprintFile(path)
    return files


def compare_all_splits(
    output: str, manifest: Manifest
) -> tuple[Duplicates, dict[str, SplitProblems], dict[str, bytes]] | None:
    """Find duplicates and possible problems of all splits of a folder.

    Returns:
        Manifest entry of the duplicates; manifest entry of the problems of each split; and contents of duplicates.jsonl
        and problems-SPLIT.jsonl, by file name. None if no split has fingerprints.
    """
    fingerprints = read_fingerprints(output, manifest.splits)
    if not fingerprints:
        return None
    findings = find_duplicates(fingerprints, has_classes=bool(manifest.table.class_source))
    data = _ENCODE_LINES(findings.groups)
    leaks = sum(group.is_leak for group in findings.groups)
    copied = {manifest.categories[index].name: number for index, number in findings.copied.items()}
    numbers = len(findings.groups), leaks, findings.splits, copied, findings.conflicts
    duplicates = Duplicates(sha256(data).hexdigest(), *numbers)
    by_split = list_problems(fingerprints, findings, {name: split.findings for name, split in manifest.splits.items()})
    files = {split_problems(split): lines for split, (_, lines) in by_split.items()}
    problems = {split: problems for split, (problems, _) in by_split.items()}
    return duplicates, problems, {DUPLICATES: data, **files}


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
    earlier = _read_split_entries(output)
    groups = _list_refused_groups(output, earlier, fingerprints, table, policy)
    if not groups:
        return earlier.keys() | fingerprints.keys()
    path = join_path(output, f"{state_folder(min(fingerprints))}/{DUPLICATES}")
    storage_for(output).write(path, _ENCODE_LINES(groups))
    raise _duplicates_error(groups, policy, f"{path} lists all groups. The shards stay", "run again")


def check_complete_duplicates(output: str, splits: Iterable[str], table: FeatureTable, policy: str) -> None:
    """Check complete splits of a folder, from a rerun that writes nothing or from another job.

    Raises:
        DuplicatesError: The policy refuses duplicates, which are listed in the folder's duplicates.jsonl.
    """
    entries = _read_split_entries(output)
    fingerprints = read_fingerprints(output, {split: entries[split] for split in splits})
    if groups := _list_refused_groups(output, entries, fingerprints, table, policy):
        path = join_path(output, DUPLICATES)
        state = f"{path} lists all groups of the folder. The splits are complete, and stay"
        raise _duplicates_error(groups, policy, state, "write the splits again")


def _read_split_entries(output: str) -> dict[str, SplitManifest]:
    return {split: manifest.splits[split] for split, manifest in read_split_manifests(output).items()}


def _list_refused_groups(
    output: str,
    entries: Mapping[str, SplitManifest],
    fingerprints: Mapping[str, Iterable[Fingerprints]],
    table: FeatureTable,
    policy: str,
) -> list[DuplicateGroup]:
    if not has_image(table):
        return []
    earlier = read_fingerprints(output, {split: entries[split] for split in entries.keys() - fingerprints.keys()})
    if incomparable := sorted(entries.keys() - fingerprints.keys() - earlier.keys()):
        raise DuplicatesError(
            f"--duplicates {policy} cannot compare {', '.join(incomparable)} of {output}: the fingerprints are missing "
            "or damaged. Convert again with --overwrite."
        )
    return [
        group
        for group in find_duplicates({**earlier, **fingerprints}, has_classes=bool(table.class_source)).groups
        if (policy == "fail" or group.is_leak) and any(image.split in fingerprints for image in group.images)
    ]


def _duplicates_error(groups: Sequence[DuplicateGroup], policy: str, state: str, again: str) -> DuplicatesError:
    """Return the error for the groups that a policy refuses.

    Args:
        state: Sentences: path of the list of groups, and state of the shards.
        again: What to do once the duplicates are removed.
    """
    images, leaks = sum(len(group.images) for group in groups), sum(group.is_leak for group in groups)
    across = f" ({leaks:,} across splits)" if leaks else ""
    first = groups[0].images[0]
    other = next((image for image in groups[0].images if image.split != first.split), groups[0].images[1])
    example = " and ".join(f"{image.file_name!r} of {image.split}" for image in (first, other))
    return DuplicatesError(
        f"--duplicates {policy} refuses {images:,} images in {number_text(len(groups), 'group')} of exact or near "
        f"duplicates{across}, for example {example}. {state}. Remove copies, or keep each group in one split, and "
        f"{again}. To accept the duplicates, run again with --duplicates report."
    )
