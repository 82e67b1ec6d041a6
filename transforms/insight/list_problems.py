"""Lists of possible problems of images and annotations: problems-SPLIT.jsonl, for all splits of a folder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, groupby, islice
from operator import attrgetter

import msgspec

from recordmill.schemas.problems import (
    LEAKAGE,
    MOST_PROBLEMS,
    PROBLEMS,
    CopiedImage,
    DuplicateGroup,
    DuplicateImage,
    Fingerprints,
    Likeness,
    Problem,
    ProblemLine,
    SplitProblems,
)
from recordmill.transforms.insight.find_duplicates import DuplicateFindings

_SCORE_DIGITS = 4
_HASH_BITS = 64
_ENCODE_LINES = msgspec.json.Encoder().encode_lines


def worst_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the worst MOST_PROBLEMS of each kind, sorted. An annotation that several tiles show is one problem."""
    # Rows of a table may name the same image, and then only ids differ. An image has no id.
    ordered = sorted(problems, key=lambda row: (row.kind, row.score, row.file_name, row.id is not None, row.id or 0))
    kinds = groupby(ordered, attrgetter("kind"))
    return tuple(chain.from_iterable(islice(_drop_further_tiles(group), MOST_PROBLEMS) for _, group in kinds))


def _drop_further_tiles(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the first problem of each annotation, and all problems of images."""
    listed = set()
    for problem in problems:
        annotation = problem.file_name, problem.id
        if problem.id is None or annotation not in listed:
            listed.add(annotation)
            yield problem


def kept_copy(images: Sequence[DuplicateImage]) -> DuplicateImage:
    """Return the image of a group to keep when its copies are skipped: first an image outside `train`, so that
    evaluation keeps its images, then by split and name."""
    return min(images, key=lambda image: (*copy_order(image.split, image.file_name), image))


def copy_order(split: str, file_name: str) -> tuple[bool, str, str]:
    """Return the sort key of duplicates. The first stays."""
    return split.startswith("train"), split, file_name


def list_problems(
    fingerprints: Mapping[str, Iterable[Fingerprints]],
    duplicates: DuplicateFindings,
    findings: Mapping[str, Mapping[str, int]],
) -> dict[str, tuple[SplitProblems, bytes]]:
    """Return, by split, the manifest entry of problems-SPLIT.jsonl and the content of the file.

    Args:
        fingerprints: Fingerprints of the shards of each split.
        duplicates: Duplicates of the splits.
        findings: Number of problems of images and annotations, by split and kind.
    """
    lines: dict[str, dict[str, list[ProblemLine]]] = {split: {kind: [] for kind in PROBLEMS} for split in fingerprints}
    for group in duplicates.groups:
        for line in _copy_lines(group, duplicates.hashes):
            lines[line.split][line.kind].append(line)
    by_split = {}
    for split, lines_by_kind in lines.items():
        numbers = {kind: len(copies) for kind, copies in lines_by_kind.items()} | dict(findings[split])
        for problem in worst_problems(row for shard in fingerprints[split] for row in shard.problems):
            what = "image" if problem.id is None else "annotation"
            lines_by_kind[problem.kind].append(
                ProblemLine(split, what, problem.kind, problem.score, problem.file_name, problem.id)
            )
        data = b"".join(_ENCODE_LINES(kind_lines[:MOST_PROBLEMS]) for kind_lines in lines_by_kind.values())
        numbers = {kind: number for kind, number in numbers.items() if number}
        by_split[split] = SplitProblems(sha256(data).hexdigest(), numbers), data
    return by_split


def _copy_lines(group: DuplicateGroup, hashes: Mapping[tuple[str, int], int]) -> Iterator[ProblemLine]:
    """Yield a line for each image of a group except the kept image."""
    original = kept_copy(group.images)
    copy_of = CopiedImage(original.split, original.file_name)
    for image in group.images:
        if image is not original:
            kind = LEAKAGE if image.split != original.split else f"{group.kind.value}_duplicates"
            score = 0.0
            if group.kind is Likeness.NEAR:
                one, other = (hashes[copy.shard, copy.record] for copy in (image, original))
                # An image that was not decoded has no hash.
                score = round((one ^ other).bit_count() / _HASH_BITS, _SCORE_DIGITS) if one and other else 1.0
            yield ProblemLine(
                image.split, "image", kind, score, image.file_name, copy_of=copy_of, labels=group.labels.value
            )
