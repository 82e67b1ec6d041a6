"""Possible problems of a data set: images and annotations that a person should look at, or leave out.

Copies of images are found by fingerprints of pictures.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from recordmill.schemas.statistics import FINDINGS

if TYPE_CHECKING:
    import numpy as np

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
    """A possible problem of an image or an annotation, as a shard's fingerprints list it."""

    kind: str  # of PROBLEMS
    score: float  # 0 is the worst; docs/records.md says what each kind's is
    file_name: str  # of the image
    id: int | None = None  # of the annotation; None for a problem of the image


class CopiedImage(msgspec.Struct, frozen=True):
    """An image by its split and name."""

    split: str
    file_name: str


class ProblemLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of problems-SPLIT.jsonl."""

    split: str
    what: str  # `image` or `annotation`
    kind: str
    score: float
    file_name: str
    id: int | None = None  # of the annotation
    copy_of: CopiedImage | None = None  # the image of a group of copies that is not listed, and so stays with --exclude
    labels: str = "same"  # `differ` if images of the group have other labels than others


class SplitProblems(msgspec.Struct, frozen=True):
    """Entry of a file of problems in the manifest."""

    sha256: str  # hex digest of the file
    numbers: dict[str, int]  # how many were found, by kind. The file lists at most MOST_PROBLEMS of a kind

    @property
    def left_out(self) -> int:
        """Number of problems that the file does not list."""
        return sum(max(0, number - MOST_PROBLEMS) for number in self.numbers.values())


DUPLICATES = "duplicates.jsonl"
"""In a data set's folder: a DuplicateGroup a line, those that are in several splits first."""

FINGERPRINTS = "fingerprints.jsonl"
"""In the folder of a split's state: what becomes `split_fingerprints`."""

NO_HASH = 0
"""Hash of an image that was not decoded, or is blank."""

FINGERPRINT = [
    ("picture", "<u8", 2),
    ("hash", "<u8"),
    ("labels", "<u8"),
    ("offset", "<u8"),
    ("bytes", "<u8"),
    ("record", "<u4"),
    ("form", "u1", 17),
]
"""A dtype, of an image: the first 16 bytes of the SHA-256 of its picture; its perceptual hash; its labels; the place of
its records, as `recordmill.schemas.statistics.Example` has it; and of what form the picture is: mean levels of grey of
4 x 4 parts, by rows, and 128 + 80 times the binary logarithm of width / height, as far as that fits.

The upper half of `labels` stands for the image's class, or for the classes of its objects; the lower half for where
the objects are: see `recordmill.transforms.insight.fingerprint_images`."""


FINGERPRINT_VERSION = 1
"""Version of how fingerprints are made of pictures and labels."""


def split_fingerprints(split: str) -> str:
    """Name of the file of the fingerprints of one split, a Fingerprints a line.

    >>> split_fingerprints("train")
    'fingerprints-train.jsonl'
    """
    return f"fingerprints-{split}.jsonl"


class Fingerprints(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fingerprints of the images of a shard, in the order of their records."""

    shard: str  # file of the shard
    names: msgspec.Raw  # JSON list of the images' file names; decoded of few
    rows: bytes  # of FINGERPRINT, as many as names; bytes, in base64 as JSON
    version: int  # FINGERPRINT_VERSION
    # of these images and their annotations, see `recordmill.schemas.problems.MOST_PROBLEMS`.
    problems: tuple[Problem, ...] = ()

    @property
    def array(self) -> "np.ndarray":
        import numpy as np  # not with each manifest

        return np.frombuffer(self.rows, FINGERPRINT)


class Likeness(Enum):
    """EXACT: the bytes of all pictures of a group are the same. NEAR: each looks like another of the group."""

    EXACT = "exact"
    NEAR = "near"


class Agreement(Enum):
    """Whether the images of a group have the same labels: classes and boxes of EXACT copies, classes of NEAR ones."""

    SAME = "same"
    DIFFER = "differ"


class DuplicateImage(msgspec.Struct, frozen=True, order=True):
    """An image of a group, and where its records are, as `recordmill.schemas.statistics.Example` has it."""

    split: str
    file_name: str
    shard: str
    record: int
    offset: int
    bytes: int


class DuplicateGroup(msgspec.Struct, frozen=True):
    """Two images or more that show the same; a line of DUPLICATES."""

    kind: Likeness
    labels: Agreement
    images: tuple[DuplicateImage, ...]

    @property
    def is_leak(self) -> bool:
        """Whether its images are in several splits."""
        return len({image.split for image in self.images}) > 1


class SplitDuplicates(msgspec.Struct, frozen=True):
    """Numbers of images of a split."""

    exact: int = 0  # have the bytes of another image, in any split
    near: int = 0  # have none, but look like another
    leaked: int = 0  # are, exactly or nearly, in another split, too
    labels_differ: int = 0  # are in a group with other labels


class Duplicates(msgspec.Struct, frozen=True):
    """Duplicates in a folder, for its manifest."""

    sha256: str  # hex digest of DUPLICATES
    groups: int
    leaks: int  # groups that are in several splits
    splits: Mapping[str, SplitDuplicates]  # those that were compared; others have no fingerprints
    # of classes most of whose pictures are copies of other classes' pictures, how many are.
    copied_classes: Mapping[str, int] = {}
