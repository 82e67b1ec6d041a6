"""Statistics of a data set's records.

All numbers are integers, minima or maxima, so that a sum of parts does not depend on their order: equal records give
equal bytes of JSON on every runner.

A histogram has four bins per octave, at 1, 1.25, 1.5 and 1.75 times a power of two: 32, 40, 48, 56, 64, 80, … A bin
contains numbers that are at least `from` and below `to`. 0 has its own bin, from 0 to 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor, frexp

import msgspec

HEAT_SIDE = 16
"""Rows and columns of the heat map of box centres."""

ZERO_BIN = -4096
"""Bin of 0, below the bins of all other numbers, which are 2**-1024 or more."""
SCALE = 1 << 20
"""Factor of summed numbers before they are rounded: sums of integers do not depend on the order."""

GALLERY: Mapping[str, int] = {"sample": 12, "crowded": 8, "small": 8, "odd": 8}
"""Number of example images by the reason of their choice: a fixed pseudo-random sample; images with the most objects;
images with the smallest object; images at least twice as wide as high, or as high as wide."""


FINDINGS: Mapping[str, str] = {
    "dark": "dark images",
    "bright": "bright images",
    "blank": "blank images",
    "blurred": "blurred images",
    "twelve_bits": "12-bit images stored in 16 bits (multiply their samples by 16)",
    "odd_aspect": "images with an extreme aspect ratio",
    "thin_boxes": "boxes less than 4 pixels wide or high",
    "repeated_boxes": "boxes equal to another of the same class and image",
    "box_mask_mismatch": "boxes that do not enclose their mask",
}
"""Possible problems of the data; see docs/records.md."""
FINDING_EXAMPLES = 6
"""Number of example images per finding."""


COUNTED_FIELDS = 10
"""Maximum number of open fields with statistics: the first by key."""
MOST_BINS = 256
"""Maximum number of bins of an open field that are not empty. The narrowest bins that keep to it are counted."""
EXACT_LEVEL = -149
"""Level of FieldCounts whose bins are single numbers: every 32-bit float is a multiple of 2**-149."""
MOST_TEXTS = 1000
"""Maximum number of different texts of an open field that are counted."""
TEXT_LENGTH = 100
"""Maximum length of a counted text. Longer ones are cut; those with the same beginning count as one."""


def bin_index(number: float) -> int:
    """Return the bin of a number >= 0.

    >>> [edge(bin_index(number)) for number in (0, 1, 47, 48, 0.3)]
    [0.0, 1.0, 40.0, 48.0, 0.25]
    """
    if number <= 0:
        return ZERO_BIN
    fraction, exponent = frexp(number)  # fraction of 0.5 to 1
    return 4 * (exponent - 1) + floor(8 * fraction) - 4


def edge(index: int) -> float:
    """Return the start of a bin."""
    return 0.0 if index == ZERO_BIN else 2.0 ** (index // 4) * (1 + index % 4 / 4)


DEPTH = "depth_m"
"""Name of the histogram of depth maps."""
FRACTIONAL = ("image_aspect", "box_side", "box_share", "box_aspect", DEPTH)
"""Histograms of numbers that need not be integers."""


class Histogram(msgspec.Struct, frozen=True):
    """Histogram of numbers, see the module's docstring."""

    total: int = 0  # sum of the numbers, times SCALE
    least: float | None = None  # None if there are no numbers, as `largest`
    largest: float | None = None
    bins: dict[int, int] = {}  # number in each bin that is not empty

    @property
    def count(self) -> int:
        return sum(self.bins.values())


class Example(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Position of the records of an example image, which are consecutive.

    The first one is found by its number. TFRecord files also have the byte range of all of them, and other containers
    their number.
    """

    rank: int  # the smaller, the better the example
    key: int  # hash of the image's file, which decides between equal ranks, and is equal for copies
    shard: str  # file of the shard
    record: int  # index of the image's first record in the shard
    # offset of that record's frame in the shard's file, in bytes after decompression; UNSET without byte ranges
    offset: int | msgspec.UnsetType = msgspec.UNSET
    bytes: int | msgspec.UnsetType = msgspec.UNSET  # size of all records of the image with their frames
    records: int = 1  # number of records of the image; 1 with `bytes`


def different_images(examples: Iterable[Example], number: int) -> list[Example]:
    """Return the best `number` examples, at most one of each image."""
    best: dict[int, Example] = {}
    for example in sorted(examples):
        best.setdefault(example.key, example)
    return list(best.values())[:number]


class Finding(msgspec.Struct, frozen=True):
    """One of FINDINGS."""

    number: int = 0  # number of images, or of boxes
    examples: tuple[Example, ...] = ()  # the worst examples


class FieldCounts(msgspec.Struct, frozen=True):
    """Counts of the values of an open field. They can be added, see `recordmill.transforms.dataset.count_fields`.

    Attributes:
        rows: Number of images, or of objects.
        missing: Number of these without a value.
        values: Number of values; of lists, their items.
        least, largest: Of numbers; None if there are none.
        level: A bin has the width 2**level, and starts at a multiple of it; at EXACT_LEVEL each number is a bin.
        bins: Number of values by the start of their bin; empty for texts.
        texts: Number of values by text, cut to TEXT_LENGTH; None if there are more than MOST_TEXTS.
    """

    rows: int = 0
    missing: int = 0
    values: int = 0
    least: float | None = None
    largest: float | None = None
    level: int = EXACT_LEVEL
    bins: dict[float, int] = {}
    texts: dict[str, int] | None = {}


class Statistics(msgspec.Struct, frozen=True):
    """Statistics of some records. They can be added."""

    images: int = 0  # images with a record
    histograms: dict[str, Histogram] = {}  # by name, see SplitStatistics
    centres: dict[int, int] = {}  # number of box centres, by row * HEAT_SIDE + column
    formats: dict[str, int] = {}  # number of images by format
    images_of_class: dict[int, int] = {}  # number of images with an object of a class, by class index
    images_of_segment: dict[int, int] = {}  # the same for the categories of stuff and of panoptic segments
    examples: dict[str, tuple[Example, ...]] = {}  # by a key of GALLERY
    findings: dict[str, Finding] = {}  # findings by name; FINDINGS has the names
    measured: int = 0  # images whose pixels were measured
    fields: dict[str, FieldCounts] = {}  # by the source of their feature
    pixels: dict[int, int] | None = {}  # number by value in semantic masks; None if those of some images are not known


class PixelMeasures(msgspec.Struct, frozen=True):
    """Measures of an image's pixels, on a grey copy."""

    dark: int  # 5th percentile of the grey levels, 0..255
    bright: int  # 99th percentile of the grey levels, 0..255
    sharpness: float  # standard deviation of edges, divided by bright - dark
    grey: bytes = b""  # HASH_SIDE rows of `recordmill.transforms.images.measure_pixels`; empty if the image is blank
    is_12_bit: bool = False  # the samples have 16 bits, and all are below 4,096


STATISTICS = "statistics.json"
"""File of the statistics of all splits."""

REPORT = "report.html"
"""File of the report on all splits."""


def split_statistics(split: str) -> str:
    """Return the file name of a split's statistics.

    >>> split_statistics("train")
    'statistics-train.json'
    """
    return f"statistics-{split}.json"


class Bin(msgspec.Struct, frozen=True, rename={"low": "from", "high": "to"}):
    """Number of values that are at least `low` and below `high`; number of zeros if both are 0."""

    low: float
    high: float
    number: int


class Distribution(msgspec.Struct, frozen=True):
    """A histogram for readers of statistics.json. `p05`, `median` and `p95` are estimates from the bins: numbers within
    a bin are assumed to be evenly spread."""

    count: int
    least: float
    largest: float
    mean: float
    p05: float
    median: float
    p95: float
    bins: tuple[Bin, ...]


class ClassStatistics(msgspec.Struct, frozen=True):
    """Number of `objects` of a class in records, and number of `images` that have one. Both are equal if each image has
    one class."""

    name: str
    objects: int
    images: int


class SegmentStatistics(msgspec.Struct, frozen=True):
    """Number of images with stuff or segments of a category."""

    name: str
    images: int


class PixelStatistics(msgspec.Struct, frozen=True):
    """Number of `pixels` of the semantic masks with a value, and the name of its class; empty for an unnamed value."""

    name: str
    value: int
    pixels: int


class FieldStatistics(msgspec.Struct, frozen=True, omit_defaults=True):
    """Values of an open field, for readers of statistics.json.

    Attributes:
        rows: Number of images, or of objects.
        missing: Number of these without a value.
        values: Number of values; of lists, their items.
        least, largest: Of numbers.
        bins: Numbers by their size: at most MOST_BINS, all with the same width, a power of 2. `from` and `to` are equal
            if each is a single number.
        texts: Number of values by text, cut to TEXT_LENGTH.
        has_more_texts: True if there are more than MOST_TEXTS different texts, which are not counted.
    """

    rows: int
    missing: int
    values: int
    least: float | None = None
    largest: float | None = None
    bins: tuple[Bin, ...] = ()
    texts: dict[str, int] = {}
    has_more_texts: bool = False


class SplitStatistics(msgspec.Struct, frozen=True):
    """Statistics of a split, as in statistics.json.

    Attributes:
        histograms: Of images: `image_width`, `image_height` (pixels), `image_aspect` (width / height), `image_bytes`
            (of the encoded image), `objects_an_image`, `classes_an_image`, `captions_an_image`. Of boxes: `box_side`
            (square root of the area, pixels), `box_share` (of the image's area), `box_aspect` (width / height). Of
            pixels with known depth: `depth_m` (metres).
            Histograms without numbers are omitted.
        centres: Numbers of box centres: HEAT_SIDE rows from the top, each with HEAT_SIDE numbers from the left. Empty
            without boxes.
        formats: Number of images by format.
        examples: See GALLERY.
        findings: See FINDINGS.
        measured: Number of images whose pixels were measured.
        fields: The first COUNTED_FIELDS open fields by the source of their feature, as in the manifest. UNSET without
            any.
        pixels: Pixels of semantic masks by value; those of tiles, if images are cut. UNSET without semantic masks.
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
    fields: dict[str, FieldStatistics] | msgspec.UnsetType = msgspec.UNSET
    pixels: tuple[PixelStatistics, ...] | msgspec.UnsetType = msgspec.UNSET


class ClassInOneSplit(msgspec.Struct, frozen=True):
    """A class that only one of several splits has, and the number of `images` with it."""

    name: str
    split: str
    images: int


class ClassDrift(msgspec.Struct, frozen=True):
    """A class whose share in a split differs from its share in the other splits, see
    `recordmill.transforms.insight.across_splits.compare_splits`.
    """

    name: str
    split: str
    images: int  # images of the split with the class
    share: float  # fraction of the split's images with the class
    elsewhere: float  # fraction of the other splits' images with the class


class SplitComparison(msgspec.Struct, frozen=True):
    """Differences between the classes of several splits."""

    one_split_only: tuple[ClassInOneSplit, ...] = ()
    drifting: tuple[ClassDrift, ...] = ()


def quantiles(bins: Sequence[Bin], shares: Sequence[float]) -> Iterator[float]:
    """Yield the quantile of each share, interpolated within a bin."""
    total = sum(bin_.number for bin_ in bins)
    for share in shares:
        before = 0
        for bin_ in bins:
            if before + bin_.number >= share * total:
                yield bin_.low + (bin_.high - bin_.low) * (share * total - before) / bin_.number
                break
            before += bin_.number
