"""Types and counts that formats of label files share. A format is a function from an image to its label file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.transforms.extract.extract_files import ExtractedFile
from recordmill.transforms.extract.extract_rows import ImageEntry, InstanceRow, RunLengths
from recordmill.transforms.images.decode_segmentation import decode_counts

SPLITS = ("train", "val", "test")
"""Splits that readers of the formats know by name."""


class ExtractedObject(NamedTuple):
    """An object of a record.

    Attributes:
        row: as in COCO's JSON.
        category: its class.
        class_index: position of its class among those of the data set.
        corners: x, y of the corners of an oriented box as fractions; empty without.
    """

    row: InstanceRow
    category: Category
    class_index: int
    difficult: bool = False
    truncated: bool = False
    view: str = ""
    track_id: int = -1
    corners: tuple[float, ...] = ()

    @property
    def edges_px(self) -> tuple[float, float, float, float]:
        """xmin, ymin, xmax, ymax. Rounding removes the noise of the sum: 0.1 + 0.2 is 0.3."""
        x, y, width, height = self.row.bbox
        return x, y, round(x + width, 9), round(y + height, 9)

    @property
    def has_mask(self) -> bool:
        return bool(self.row.segmentation)


class ExtractedImage(NamedTuple):
    """An image of a record.

    Attributes:
        name: of its file, below the folder of the split's images.
        maps: number of masks of the whole image, and panoptic PNGs.
        tags: number of classes of the image beside its objects.
    """

    image: ImageEntry
    split: str
    name: str
    objects: tuple[ExtractedObject, ...] = ()
    captions: tuple[str, ...] = ()
    class_name: str | None = None
    maps: int = 0
    tags: int = 0

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return self.name.rpartition(".")[0]


class LabelRules(NamedTuple):
    """Classes of the data set, and optional parts of its records."""

    categories: tuple[Category, ...]
    parts: tuple[Part, ...]

    @property
    def has_masks(self) -> bool:
        return Part.MASK_PNG in self.parts or Part.MASK_RLE in self.parts


Counts = Mapping[str, int]


class WrittenLabels(NamedTuple):
    """Labels of an image.

    Attributes:
        objects: number of objects that are written.
        file: its label file, if the format has one an image.
        line: its line in the list of the split, if the format has such lists.
        lost: number of things that are not written, by what they are.
        notes: number of things that are written otherwise than they are, or that some readers do not find.
    """

    objects: int
    file: ExtractedFile | None = None
    line: str = ""
    lost: Counts = {}
    notes: Counts = {}


class LabelFormat(NamedTuple):
    """A format that images and objects are extracted to.

    Attributes:
        images: folder of a split's images.
        labels: where a split's labels are: a folder, or the list of its images.
        write: returns the labels of an image.
        list_file: path of the list of a split's images; empty if the format has none.
        finish: yields files of the whole data set, by its splits.
        warn: yields what is likely to surprise, by splits.
        holds_classes: whether it has a place for the class of an image without objects.
    """

    images: str
    labels: str
    write: Callable[[ExtractedImage, LabelRules], WrittenLabels]
    list_file: str = ""
    finish: Callable[[Iterable[str], LabelRules], Iterator[ExtractedFile]] = lambda splits, rules: iter(())
    warn: Callable[[Iterable[str], LabelRules], Iterator[str]] = lambda splits, rules: iter(())
    holds_classes: bool = False


_OF_OBJECT: dict[str, Callable[[ExtractedObject], Any]] = {
    "masks": lambda each: each.has_mask,
    "objects with keypoints": lambda each: each.row.num_keypoints or 0,
    "oriented boxes": lambda each: any(each.corners),
    "objects marked difficult or truncated": lambda each: each.difficult or each.truncated,
    "views": lambda each: each.view,
    "track ids": lambda each: each.track_id >= 0,
    "ids of annotations": lambda each: True,
}
_OF_IMAGE: dict[str, Callable[[ExtractedImage], int]] = {
    "crowds": lambda image: sum(each.row.iscrowd for each in image.objects),
    "captions": lambda image: len(image.captions),
    "classes of images": lambda image: image.class_name is not None,
    "tags of images": lambda image: image.tags,
    "masks of whole images": lambda image: image.maps,
    "lists of absent categories": lambda image: bool(
        image.image.neg_category_ids or image.image.not_exhaustive_category_ids
    ),
    "ids of images": lambda image: 1,
}


def count_lost(image: ExtractedImage, objects: Sequence[ExtractedObject], *held: str) -> Counts:
    """Return how many things of each kind are not written.

    Args:
        objects: that are written.
        held: kinds that the format has a place for.
    """
    of_objects = {what: sum(map(bool, map(is_there, objects))) for what, is_there in _OF_OBJECT.items()}
    of_image = {what: int(count(image)) for what, count in _OF_IMAGE.items()}
    found = of_objects | of_image
    found["areas that are not those of the shapes"] = sum(
        _area_differs(each, "masks" in held, image.image) for each in objects if "areas" not in held
    )
    return {what: number for what, number in found.items() if number and what not in held}


def _area_differs(each: ExtractedObject, has_mask: bool, image: ImageEntry) -> bool:
    """Return True if the area is not that of the box, or of the mask if masks are written. Records store 32-bit
    floats."""
    shape = each.row.bbox[2] * each.row.bbox[3]
    if has_mask and isinstance(each.row.segmentation, RunLengths):
        shape = float(decode_counts(each.row.segmentation.counts.encode(), image.width, image.height)[1::2].sum())
    return abs(each.row.area - shape) > 1e-5 * shape


def without_crowds(image: ExtractedImage) -> list[ExtractedObject]:
    """Return the objects that are not crowds: in formats without a mark for them, they would be single objects."""
    return [each for each in image.objects if not each.row.iscrowd]


def other_splits(splits: Iterable[str]) -> Iterator[str]:
    """Yield a note of splits that readers do not know by name."""
    if others := sorted(set(splits) - set(SPLITS)):
        yield f"splits {', '.join(others)}: most readers look for {', '.join(SPLITS)}; rename them"


def number(value: float) -> str:
    """Return a number with at most 10 digits.

    >>> number(12.0), number(0.1 + 0.2)
    ('12', '0.3')
    """
    return f"{value:.10g}"
