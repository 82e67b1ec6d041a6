"""What statistics.json holds: statistics for its readers, made of those that were counted."""

import msgspec

from recordmill.schemas.statistics import Example, Finding

STATISTICS = "statistics.json"
"""Of all splits; made of the statistics of each."""

REPORT = "report.html"
"""The page about all splits."""


def split_statistics(split: str) -> str:
    """Name of the file of the statistics of one split alone.

    >>> split_statistics("train")
    'statistics-train.json'
    """
    return f"statistics-{split}.json"


class Bin(msgspec.Struct, frozen=True, rename={"low": "from", "high": "to"}):
    """How many are at least `low` and below `high`; or 0, where both are."""

    low: float
    high: float
    number: int


class Distribution(msgspec.Struct, frozen=True):
    """A histogram for readers of statistics.json. `median` and the others between are those of the bins: where the
    numbers of the bin that they fall into are taken as evenly spread."""

    count: int
    least: float
    largest: float
    mean: float
    p05: float
    median: float
    p95: float
    bins: tuple[Bin, ...]


class ClassStatistics(msgspec.Struct, frozen=True):
    """`objects` of a class in records, and how many `images` have one; both are the same where images have one class
    each."""

    name: str
    objects: int
    images: int


class SegmentStatistics(msgspec.Struct, frozen=True):
    """How many images have stuff, or a panoptic segment, of a category."""

    name: str
    images: int


class SplitStatistics(msgspec.Struct, frozen=True):
    """The statistics of a split, as statistics-SPLIT.json and `splits` of statistics.json have them.

    Attributes:
        histograms: of images `image_width`, `image_height` (pixels), `image_aspect` (width / height), `image_bytes` (of
            the encoded picture), `objects_an_image`, `classes_an_image`, `captions_an_image`; of boxes `box_side`
            (square root of the area, pixels), `box_share` (of the image's area), `box_aspect` (width / height). What no
            record has is left out.
        centres: HEAT_SIDE rows from the top, of as many numbers from the left: how many boxes have their centre there.
            Empty without boxes.
        formats: how many pictures there are of each.
        examples: see GALLERY.
        findings: see FINDINGS.
        measured: of how many images the pixels were looked at.
    """

    images: int
    histograms: dict[str, Distribution]
    centres: tuple[tuple[int, ...], ...]
    formats: dict[str, int]
    classes: tuple[ClassStatistics, ...]
    segments: tuple[SegmentStatistics, ...]
    examples: dict[str, tuple[Example, ...]]
    findings: dict[str, Finding]
    measured: int


class ClassInOneSplit(msgspec.Struct, frozen=True):
    """A class that is in one of several splits, and how many `images` there have it."""

    name: str
    split: str
    images: int


class ClassDrift(msgspec.Struct, frozen=True):
    """A class that a split has more or less of than the others, see
    `recordmill.transforms.insight.across_splits.compare_splits`.

    Attributes:
        images: of the split, that have the class.
        share: what part of the split's images that is.
        elsewhere: what part of the other splits' images have the class.
    """

    name: str
    split: str
    images: int
    share: float
    elsewhere: float


class SplitComparison(msgspec.Struct, frozen=True):
    """What is odd about the classes of several splits."""

    one_split_only: tuple[ClassInOneSplit, ...] = ()
    drifting: tuple[ClassDrift, ...] = ()
