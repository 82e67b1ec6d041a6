"""Possible problems of all splits of a folder, as lines of problems-SPLIT.jsonl."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

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
from recordmill.transforms.insight.find_duplicates import Found

SCORE_DIGITS = 4
_HASH_BITS = 64
_ENCODE_LINES = msgspec.json.Encoder().encode_lines


def worst_problems(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the worst MOST_PROBLEMS of each kind, sorted."""
    kept, seen = list[Problem](), dict[str, int]()
    for problem in sorted(problems, key=_worst_first):
        seen[problem.kind] = seen.get(problem.kind, 0) + 1
        if seen[problem.kind] <= MOST_PROBLEMS:
            kept.append(problem)
    return tuple(kept)


def _worst_first(problem: Problem) -> tuple:
    """Sort key. Rows of a table may name one image, so only the ids may differ, and an image has none."""
    return problem.kind, problem.score, problem.file_name, problem.id is not None, problem.id or 0


def kept_copy(images: Sequence[DuplicateImage]) -> DuplicateImage:
    """Return the image of a group that stays where the others are left out: one outside of `train`, so that evaluation
    keeps its images; of several the first by split and name."""
    return min(images, key=lambda image: (*copy_order(image.split, image.file_name), image))


def copy_order(split: str, file_name: str) -> tuple[bool, str, str]:
    """Sort key of images that show the same: the first stays."""
    return split.startswith("train"), split, file_name


def list_problems(
    fingerprints: Mapping[str, Iterable[Fingerprints]],
    duplicates: Found,
    findings: Mapping[str, Mapping[str, int]],
) -> dict[str, tuple[SplitProblems, bytes]]:
    """Return what the manifest says of each split's file of problems, and the lines of the file.

    Args:
        fingerprints: of each split, a shard each.
        duplicates: of these splits.
        findings: of each split, the number of problems of its images and annotations, by kind.
    """
    lines: dict[str, dict[str, list[ProblemLine]]] = {split: {kind: [] for kind in PROBLEMS} for split in fingerprints}
    for group in duplicates.groups:
        for line in _copies(group, duplicates.hashes):
            lines[line.split][line.kind].append(line)
    found = {}
    for split, of_kind in lines.items():
        numbers = {kind: len(of_kind[kind]) for kind in of_kind} | dict(findings[split])
        for each in worst_problems([each for shard in fingerprints[split] for each in shard.problems]):
            what = "image" if each.id is None else "annotation"
            of_kind[each.kind].append(ProblemLine(split, what, each.kind, each.score, each.file_name, each.id))
        data = b"".join(_ENCODE_LINES(of_kind[kind][:MOST_PROBLEMS]) for kind in of_kind)
        listed = {kind: number for kind, number in numbers.items() if number}
        found[split] = SplitProblems(sha256(data).hexdigest(), listed), data
    return found


def _copies(group: DuplicateGroup, hashes: Mapping[tuple[str, int], int]) -> Iterator[ProblemLine]:
    """Yield all images of a group but the one that stays."""
    kept = kept_copy(group.images)
    copy_of = CopiedImage(kept.split, kept.file_name)
    for image in group.images:
        if image is not kept:
            kind = LEAKAGE if image.split != kept.split else f"{group.kind.value}_duplicates"
            score = (
                0.0
                if group.kind is Likeness.EXACT
                else _distance(*(hashes[each.shard, each.record] for each in (image, kept)))
            )
            yield ProblemLine(
                image.split, "image", kind, score, image.file_name, copy_of=copy_of, labels=group.labels.value
            )


def _distance(*hashes: int) -> float:
    """Return the fraction of the bits of two hashes that differ; 1 if a picture has none, as it was not decoded."""
    return round((hashes[0] ^ hashes[1]).bit_count() / _HASH_BITS, SCORE_DIGITS) if all(hashes) else 1.0
