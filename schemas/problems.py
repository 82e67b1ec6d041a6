"""Possible problems of a data set: images and annotations to review or skip.

Duplicate images are found by fingerprints.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from recordmill.schemas.statistics import FINDINGS

if TYPE_CHECKING:
    import numpy as np

ANNOTATION_FINDINGS = ("thin_boxes", "repeated_boxes", "box_mask_mismatch")
"""Kinds of FINDINGS of annotations. The other FINDINGS are of images."""
LEAKAGE = "leakage"
COPIES: Mapping[str, str] = {
    LEAKAGE: "images that another split has",
    "exact_duplicates": "exact copies of another image of the split",
    "near_duplicates": "near copies of another image of the split",
}
"""Kinds of problems of duplicate images. The image of a group that is kept is not a problem."""
PROBLEMS: Mapping[str, str] = {**COPIES, **FINDINGS}

MOST_PROBLEMS = 100_000
"""Maximum number of lines per kind in problems-SPLIT.jsonl, worst first. Counts are not limited."""


def split_problems(split: str) -> str:
    """Return the name of the file of a split's possible problems. Each line is a ProblemLine."""
    return f"problems-{split}.jsonl"


class Problem(msgspec.Struct, frozen=True, array_like=True):
    """A possible problem of an image or an annotation, as listed with the fingerprints of a shard."""

    kind: str  # a key of PROBLEMS
    score: float  # 0 is the worst; docs/records.md defines the score of each kind
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
    copy_of: CopiedImage | None = None  # image of the group of copies that is not listed, and that --exclude keeps
    labels: str = "same"  # `differ` if images of the group have different labels


class SplitProblems(msgspec.Struct, frozen=True):
    """Entry of a file of problems in the manifest."""

    sha256: str  # hex digest of the file
    numbers: dict[str, int]  # number found, by kind; the file lists at most MOST_PROBLEMS per kind

    @property
    def left_out(self) -> int:
        """Number of problems that the file does not list."""
        return sum(max(0, number - MOST_PROBLEMS) for number in self.numbers.values())


DUPLICATES = "duplicates.jsonl"
"""File in the folder of a data set: one DuplicateGroup per line. Groups in several splits come first."""

FINGERPRINTS = "fingerprints.jsonl"
"""File in a state folder that becomes `split_fingerprints`."""

NO_HASH = 0
"""Hash of an image that was not decoded, or is blank."""

FINGERPRINT = [
    ("digest", "<u8", 2),
    ("hash", "<u8"),
    ("labels", "<u8"),
    ("offset", "<u8"),
    ("bytes", "<u8"),
    ("record", "<u4"),
    ("form", "u1", 17),
]
"""NumPy dtype of the fingerprint of an image: first 16 bytes of the SHA-256 of its file; perceptual hash; labels;
position of its records, as in `recordmill.schemas.statistics.Example`, with `offset` NO_FINGERPRINT_OFFSET and their
number as `bytes` if the container has no byte ranges; coarse form: mean grey levels of 4 x 4 parts, row by row, and
128 + 80 * log2(width / height), clipped to a byte.

The upper half of `labels` is a hash of the image's class, or of the classes of its objects. The lower half is a hash of
the positions of its objects, see `recordmill.transforms.insight.fingerprint_images`."""


NO_FINGERPRINT_OFFSET = (1 << 64) - 1
"""`offset` in FINGERPRINT without a byte range. `bytes` is the number of records then."""

FINGERPRINT_VERSION = 2
"""Version of the algorithm that computes fingerprints from images and labels."""


def split_fingerprints(split: str) -> str:
    """Return the name of the file of a split's fingerprints. Each line is a Fingerprints.

    >>> split_fingerprints("train")
    'fingerprints-train.jsonl'
    """
    return f"fingerprints-{split}.jsonl"


class Fingerprints(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fingerprints of the images of a shard, in the order of their records."""

    shard: str  # file of the shard
    names: msgspec.Raw  # JSON list of the images' file names; decoded only if needed
    rows: bytes  # an array of FINGERPRINT, as long as names; base64 in JSON
    version: int  # FINGERPRINT_VERSION
    # problems of the images and their annotations, at most MOST_PROBLEMS per kind.
    problems: tuple[Problem, ...] = ()

    @property
    def array(self) -> "np.ndarray":
        import numpy as np  # slow to import; manifests do not need it

        return np.frombuffer(self.rows, FINGERPRINT)


class Likeness(Enum):
    """EXACT: the bytes of all images of a group are the same. NEAR: each looks like another of the group."""

    EXACT = "exact"
    NEAR = "near"


class Agreement(Enum):
    """SAME if all images of a group have equal labels: classes and boxes of EXACT copies, classes of NEAR ones."""

    SAME = "same"
    DIFFER = "differ"


class DuplicateImage(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """An image of a group, and the position of its records, as in `recordmill.schemas.statistics.Example`."""

    split: str
    file_name: str
    shard: str
    record: int
    offset: int | msgspec.UnsetType = msgspec.UNSET
    bytes: int | msgspec.UnsetType = msgspec.UNSET
    records: int = 1


class DuplicateGroup(msgspec.Struct, frozen=True):
    """Group of duplicate images; a line of DUPLICATES."""

    kind: Likeness
    labels: Agreement
    images: tuple[DuplicateImage, ...]

    @property
    def is_leak(self) -> bool:
        """True if images of the group are in several splits."""
        return len({image.split for image in self.images}) > 1


class SplitDuplicates(msgspec.Struct, frozen=True):
    """Numbers of duplicate images in a split."""

    exact: int = 0  # images with the bytes of another image, in any split
    near: int = 0  # other images that look like another image
    leaked: int = 0  # images with an exact or near duplicate in another split
    labels_differ: int = 0  # images in a group with different labels
    # images with the bytes of another image, in any split, that has other labels; UNSET in older data sets
    conflicting: int | msgspec.UnsetType = msgspec.UNSET


class Duplicates(msgspec.Struct, frozen=True):
    """Duplicates of a data set, for its manifest."""

    sha256: str  # hex digest of DUPLICATES
    groups: int
    leaks: int  # groups that are in several splits
    splits: Mapping[str, SplitDuplicates]  # splits that were compared; other splits have no fingerprints
    # number of copies by class, for classes whose images are mostly copies of other classes' images.
    copied_classes: Mapping[str, int] = {}
    conflicts: int | msgspec.UnsetType = msgspec.UNSET  # different images among the conflicting ones; UNSET as these
