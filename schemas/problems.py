"""Possible problems of a data set: images and annotations that a person should look at, or leave out."""

from collections.abc import Mapping

import msgspec

from recordmill.schemas.statistics import FINDINGS

OF_ANNOTATIONS = ("thin_boxes", "repeated_boxes", "box_mask_mismatch")
"""Kinds of FINDINGS that are found in annotations; the others are found in images."""
LEAKAGE = "leakage"
COPIES: Mapping[str, str] = {
    LEAKAGE: "images that another split has",
    "exact_duplicates": "exact copies of another image of the split",
    "near_duplicates": "near copies of another image of the split",
}
"""Kinds of images that show what another image shows. The image of a group that is kept has no problem."""
PROBLEMS: Mapping[str, str] = {**COPIES, **FINDINGS}

MOST_PROBLEMS = 100_000
"""Lines of a kind in problems-SPLIT.jsonl, at most, the worst first. Counts have no bound."""


def split_problems(split: str) -> str:
    """Name of the file of the possible problems of one split, a ProblemLine a line."""
    return f"problems-{split}.jsonl"


class Problem(msgspec.Struct, frozen=True, array_like=True):
    """A possible problem of an image or an annotation, as a shard's fingerprints list it.

    Attributes:
        kind: Of PROBLEMS.
        score: 0 is the worst; docs/records.md says what each kind's is.
        file_name: Of the image.
        id: Of the annotation; None for a problem of the image.
    """

    kind: str
    score: float
    file_name: str
    id: int | None = None


class CopiedImage(msgspec.Struct, frozen=True):
    """An image by its split and name."""

    split: str
    file_name: str


class ProblemLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of problems-SPLIT.jsonl.

    Attributes:
        what: `image` or `annotation`.
        id: Of the annotation.
        copy_of: The image of a group of copies that is not listed, and so stays with --exclude.
        labels: `differ` if images of the group have other labels than others.
    """

    split: str
    what: str
    kind: str
    score: float
    file_name: str
    id: int | None = None
    copy_of: CopiedImage | None = None
    labels: str = "same"


class SplitProblems(msgspec.Struct, frozen=True):
    """Entry of a file of problems in the manifest.

    Attributes:
        sha256: Hex digest of the file.
        numbers: How many were found, by kind. The file lists at most MOST_PROBLEMS of a kind.
    """

    sha256: str
    numbers: dict[str, int]

    @property
    def left_out(self) -> int:
        """Number of problems that the file does not list."""
        return sum(max(0, number - MOST_PROBLEMS) for number in self.numbers.values())
