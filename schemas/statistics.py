"""Statistics of a data set's records.

All numbers are integers, minima or maxima, so that the sum of parts does not depend on the
order: equal records give equal bytes of JSON on every runner.

A histogram has four bins an octave, at 1, 1.25, 1.5 and 1.75 times a power of two: 32, 40, 48, 56, 64, 80, … A bin
holds what is at least `from` and below `to`. What is 0 is in a bin from 0 to 0.
"""

from collections.abc import Mapping
from math import floor, frexp

import msgspec

HEAT_SIDE = 16
"""Rows and columns of the map of where the centres of boxes lie."""

ZERO_BIN = -4096
"""Bin of 0, below the bins of all other numbers, which are 2**-1024 or more."""
SCALE = 1 << 20
"""Sums are of numbers times this, rounded: integers add up to the same in any order."""

GALLERY: Mapping[str, int] = {"sample": 12, "crowded": 8, "small": 8, "odd": 8}
"""How many images are pointed to, by why: a fixed pseudo-random sample, those with the most objects, with the smallest
object, and those at least twice as wide as high, or as high as wide."""


FINDINGS: Mapping[str, str] = {
    "dark": "dark pictures",
    "bright": "bright pictures",
    "blank": "blank pictures",
    "blurred": "blurred pictures",
    "twelve_bits": "12-bit pictures stored in 16 bits (multiply their samples by 16)",
    "odd_aspect": "pictures of odd shape",
    "thin_boxes": "boxes less than 4 pixels wide or high",
    "repeated_boxes": "boxes that another of their class and image equals",
    "box_mask_mismatch": "boxes that are not around their mask",
}
"""Possible problems of the data; see docs/records.md."""
FINDING_EXAMPLES = 6
"""How many images are pointed to for each."""


def bin_of(number: float) -> int:
    """The bin of a number that is not negative.

    >>> [edge(bin_of(number)) for number in (0, 1, 47, 48, 0.3)]
    [0.0, 1.0, 40.0, 48.0, 0.25]
    """
    if number <= 0:
        return ZERO_BIN
    fraction, exponent = frexp(number)  # fraction of 0.5 to 1
    return 4 * (exponent - 1) + floor(8 * fraction) - 4


def edge(index: int) -> float:
    """Return the start of a bin."""
    return 0.0 if index == ZERO_BIN else 2.0 ** (index // 4) * (1 + index % 4 / 4)


FRACTIONAL = ("image_aspect", "box_side", "box_share", "box_aspect")
"""Histograms of numbers that need not be whole."""


class Histogram(msgspec.Struct, frozen=True):
    """How often which numbers were seen."""

    total: int = 0  # their sum, times SCALE
    least: float | None = None  # None of none, as `largest`
    largest: float | None = None
    bins: dict[int, int] = {}  # number in each bin that is not empty

    @property
    def count(self) -> int:
        return sum(self.bins.values())


class Example(msgspec.Struct, frozen=True, order=True):
    """Position of the records of an example image."""

    rank: int  # the smaller, the better it serves what it was chosen for
    key: int  # hash of the image's name, which decides between equal ranks
    shard: str  # file of the shard
    record: int  # index of the image's first record in the shard
    offset: int  # of that record's frame in the shard's file, uncompressed if it is compressed
    bytes: int  # of all records of the image, frames included, which follow each other


class Finding(msgspec.Struct, frozen=True):
    """One of FINDINGS."""

    number: int = 0  # of pictures, or of boxes
    examples: tuple[Example, ...] = ()  # the worst


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of some records. They can be added."""

    images: int = 0  # with a record
    histograms: dict[str, Histogram] = {}  # by name, see SplitStatistics
    centres: dict[int, int] = {}  # of boxes, by row * HEAT_SIDE + column
    formats: dict[str, int] = {}  # of pictures
    images_of_class: dict[int, int] = {}  # how many images have an object of a class, by class index
    images_of_segment: dict[int, int] = {}  # the same for the categories of stuff and of panoptic segments
    examples: dict[str, tuple[Example, ...]] = {}  # by why they were chosen, at most as many as GALLERY says
    findings: dict[str, Finding] = {}  # by name; of those of FINDINGS that were found
    measured: int = 0  # images whose pixels were looked at


class PixelMeasures(msgspec.Struct, frozen=True):
    """Measures of an image's pixels, in grey."""

    dark: int  # the level, of 0 to 255, that 5 % of the pixels are below
    bright: int  # the level that 99 % of the pixels are below
    sharpness: float  # standard deviation of edges, as a fraction of the difference of the two
    grey: bytes = b""  # HASH_SIDE rows of `recordmill.transforms.images.measure_pixels`; empty without content
    is_12_bit: bool = False  # samples of 16 bits, all below 4,096


STATISTICS = "statistics.json"
"""Statistics of all splits."""

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
    """

    name: str
    split: str
    images: int  # of the split, that have the class
    share: float  # what part of the split's images that is
    elsewhere: float  # what part of the other splits' images have the class


class SplitComparison(msgspec.Struct, frozen=True):
    """Differences between the classes of several splits."""

    one_split_only: tuple[ClassInOneSplit, ...] = ()
    drifting: tuple[ClassDrift, ...] = ()
