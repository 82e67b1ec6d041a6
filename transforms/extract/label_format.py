"""Types, counts and outlines that all label formats share. A format is a function of an image."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.field_features import WELL_KNOWN
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.dataset.record_view import rle_mask
from recordmill.transforms.extract.extract_files import ExtractedFile
from recordmill.transforms.extract.extract_rows import ImageEntry, InstanceRow, RunLengths

SPLITS = ("train", "val", "test")
"""Splits that readers of the formats know by name."""
BOUNDS = "boxes that differ from the bounds of their masks: a polygon has no box"
"""Note of formats with polygons as masks."""


class ExtractedObject(NamedTuple):
    """An object of a record.

    Attributes:
        row: Row of COCO's JSON.
        category: Class of the object.
        class_index: Index of the class in the data set.
        corners: x, y of the corners of an oriented box as fractions; empty for other boxes.
        fields: Open fields by path, as in the source; without missing ones.
    """

    row: InstanceRow
    category: Category
    class_index: int
    corners: tuple[float, ...] = ()
    fields: Mapping[str, Any] = MappingProxyType({})

    @property
    def edges_px(self) -> tuple[float, float, float, float]:
        """xmin, ymin, xmax, ymax in pixels. Rounding removes the error of the sum: 0.1 + 0.2 is 0.3."""
        x, y, width, height = self.row.bbox
        return x, y, round(x + width, 9), round(y + height, 9)

    @property
    def polygons(self) -> "list[Ring]":
        """Polygons of the mask as in the source, x and y in pixels; none of a mask that the source has as pixels."""
        segmentation = self.row.segmentation
        return [
            list(zip(polygon[::2], polygon[1::2], strict=True))
            for polygon in (segmentation if isinstance(segmentation, list) else ())
        ]

    @property
    def mask(self) -> np.ndarray | None:
        """Mask: uint8 [height, width]; None if the object has none, or polygons."""
        segmentation = self.row.segmentation
        return (
            rle_mask(segmentation.counts.encode(), segmentation.size[::-1])
            if isinstance(segmentation, RunLengths)
            else None
        )


@dataclass(frozen=True)
class ExtractedImage:
    """An image of a record.

    Attributes:
        name: Name of the file, below the folder of the split's images.
        maps: Number of masks of the complete image, and of panoptic PNGs.
        depth_maps: Number of depth maps, 0 or 1.
        tags: Classes of the image in addition to its objects.
        fields: Open fields of the image by path, as in the source; without missing ones.
        lost: Counts of contents that are not written, by kind.
        notes: Counts of contents that are written differently, or that some readers do not find, by kind.
    """

    image: ImageEntry
    split: str
    name: str
    objects: tuple[ExtractedObject, ...]
    captions: tuple[str, ...]
    class_name: str | None
    maps: int
    tags: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    lost: "Counter[str]" = field(default_factory=Counter)
    notes: "Counter[str]" = field(default_factory=Counter)
    depth_maps: int = 0

    @property
    def stem(self) -> str:
        """Name without its suffix."""
        return self.name.rpartition(".")[0]


class WrittenLabels(NamedTuple):
    """Labels of an image.

    Attributes:
        objects: Number of written objects.
        file: Label file of the image, if the format has one per image.
        line: Line of the image in the list of the split, if the format has such lists.
    """

    objects: int
    file: ExtractedFile | None = None
    line: str = ""


def warn_unknown_splits(splits: Iterable[str], labels: LabelMap, table: FeatureTable) -> Iterator[str]:
    """Yield a note of split names unknown to readers."""
    if unknown := sorted(set(splits) - set(SPLITS)):
        yield f"splits {', '.join(unknown)}: most readers look for {', '.join(SPLITS)}. Rename them"


class LabelFormat(NamedTuple):
    """A format that images and objects are extracted to.

    Attributes:
        images: Folder of a split's images.
        labels: Location of a split's labels: a folder, or the list of its images.
        write: Function that returns the labels of an image, and counts lost and changed contents. Like `finish` and
            `warn`, it also takes the classes of the data set and the features of its records.
        rename: Function of an image's name that returns a name that readers do not mistake.
        renamed: Note of images that `rename` gives another name.
        list_file: Path of the file with a line per image, of a split with `{split}`, else of all splits. Empty if the
            format has none.
        head: Function that returns the beginning of that file. Takes the name of the data set, the splits of the file,
            the classes, the features of records, and the lines.
        before: Function that returns the text before a line, by its number in the file from 0.
        foot: End of that file.
        finish: Function that yields files of the complete data set, by its splits.
        warn: Function that yields warnings, by splits.
        holds_classes: True if the format can store the class of an image without objects.
    """

    images: str
    labels: str
    write: Callable[[ExtractedImage, LabelMap, FeatureTable], WrittenLabels]
    list_file: str = ""
    rename: Callable[[str], str] = str
    renamed: str = ""
    finish: Callable[[Iterable[str], LabelMap, FeatureTable], Iterator[ExtractedFile]] = lambda *_: iter(())
    warn: Callable[[Iterable[str], LabelMap, FeatureTable], Iterator[str]] = warn_unknown_splits
    holds_classes: bool = False
    head: Callable[[str, Sequence[str], LabelMap, FeatureTable, Iterator[bytes]], bytes] = lambda *_: b""
    before: Callable[[int], bytes] = lambda _: b""
    foot: bytes = b""


_OBJECT_CONTENTS: dict[str, Callable[[ExtractedObject], Any]] = {
    "masks": lambda object_: object_.row.segmentation,
    "objects with keypoints": lambda object_: object_.row.num_keypoints or 0,
    "oriented boxes": lambda object_: any(object_.corners),
    "objects marked difficult or truncated": lambda object_: {"difficult", "truncated"} & object_.fields.keys(),
    "views": lambda object_: "view" in object_.fields,
    "track ids": lambda object_: "track_id" in object_.fields,
    "ids of annotations": lambda object_: True,
}
_IMAGE_CONTENTS: dict[str, Callable[[ExtractedImage], int]] = {
    "crowds": lambda image: sum(object_.row.iscrowd for object_ in image.objects),
    "captions": lambda image: len(image.captions),
    "classes of images": lambda image: image.class_name is not None,
    "tags of images": lambda image: len(image.tags),
    "masks of whole images": lambda image: image.maps,
    "depth maps": lambda image: image.depth_maps,
    "lists of absent categories": lambda image: bool(
        image.image.neg_category_ids or image.image.not_exhaustive_category_ids
    ),
    "ids of images": lambda image: 1,
}


FIELDS = "fields", "objects marked difficult or truncated", "views", "track ids"
"""Kinds of contents that are open fields."""


def count_lost(image: ExtractedImage, objects: Sequence[ExtractedObject], *held: str) -> None:
    """Count the contents of each kind that are not written. Each open field is a kind.

    Args:
        objects: Written objects.
        held: Kinds that the format can store.
    """
    counts = {what: sum(bool(is_there(object_)) for object_ in objects) for what, is_there in _OBJECT_CONTENTS.items()}
    counts |= {what: int(count(image)) for what, count in _IMAGE_CONTENTS.items()}
    if "areas" not in held:
        differ = sum(_area_differs(object_, image, held) for object_ in objects)
        counts["areas that differ from those of the shapes"] = differ
    image.lost.update({what: number for what, number in counts.items() if what not in held})
    if "fields" not in held:
        image.lost.update(f"field image.{path}" for path in image.fields)
        paths = (path for object_ in objects for path in object_.fields)
        image.lost.update(f"field {path}" for path in paths if path not in WELL_KNOWN)


def free_fields(
    fields: Mapping[str, Any], is_reserved: Callable[[str], bool], lost: "Counter[str]", prefix: str = ""
) -> dict[str, Any]:
    """Return the open fields whose paths are free, and count the others in `lost`.

    Args:
        is_reserved: Return True for a path that the format uses for another value.
        prefix: Prefix of the fields in `--fields`.
    """
    lost.update(f"field {prefix}{path}" for path in fields if is_reserved(path))
    return {path: value for path, value in fields.items() if not is_reserved(path)}


def _area_differs(object_: ExtractedObject, image: ExtractedImage, held: Sequence[str]) -> bool:
    """Return True if the area differs from that of the written shape, beyond the precision of records."""
    mask = object_.mask if "masks" in held else None
    shape = object_.row.bbox[2] * object_.row.bbox[3] if mask is None else int(np.count_nonzero(mask))
    if mask is None and "oriented boxes" in held and any(object_.corners):
        first, second, third, fourth = np.reshape(object_.corners, (4, 2))
        (across, down), (back, up) = third - first, fourth - second
        shape = float(abs(across * up - down * back)) / 2 * image.image.width * image.image.height
    if "masks" in held and object_.polygons:
        shape = sum(map(polygon_area, object_.polygons))
    return abs(object_.row.area - shape) > 1e-5 * shape


def differ_from_box(bounds_px: Sequence[float], object_: ExtractedObject) -> bool:
    """Return True if the bounds of a mask differ from the box. Those of polygons may differ by the hundredth of a pixel
    that most sources round boxes to."""
    tolerance = 0.01 if object_.polygons else 0.0
    return any(abs(one - other) > tolerance for one, other in zip(bounds_px, object_.edges_px, strict=True))


def without_crowds(image: ExtractedImage) -> list[ExtractedObject]:
    """Return the objects that are not crowds, for formats that cannot mark crowds."""
    return [object_ for object_ in image.objects if not object_.row.iscrowd]


def format_number(value: float) -> str:
    """Return a number with at most 10 digits.

    >>> format_number(12.0), format_number(0.1 + 0.2)
    ('12', '0.3')
    """
    return f"{value:.10g}"


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REPLACED = "characters of texts that XML cannot have, replaced by \ufffd"


def xml_text(value: object, notes: "Counter[str]", entities: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a text for XML, and count the characters that XML cannot have.

    Args:
        entities: Replacements of further characters.

    >>> xml_text("<b> & \x01", Counter())
    '&lt;b&gt; &amp; �'
    """
    text, number = _NOT_XML.subn("\ufffd", str(value))
    notes[_REPLACED] += number
    return escape(text, dict(entities))


Ring = list[tuple[float, float]]
"""x, y of the corners of an outline, in pixels."""


def polygon_area(ring: Ring) -> float:
    """Return the area within an outline that does not cross itself, px².

    >>> polygon_area([(0, 0), (4, 0), (4, 3)])
    6.0
    """
    return abs(sum(x * (after[1] - before[1]) for before, (x, _), after in _corners(ring))) / 2


def polygon_bounds(rings: Iterable[Ring]) -> tuple[float, float, float, float]:
    """Return xmin, ymin, xmax, ymax of outlines in pixels."""
    xs, ys = zip(*(point for ring in rings for point in ring), strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _corners(ring: Ring) -> Iterator[tuple[tuple[float, float], ...]]:
    """Yield each corner between its neighbours."""
    return zip((ring[-1], *ring[:-1]), ring, (*ring[1:], ring[0]), strict=True)


def join_rings(rings: Sequence[Ring]) -> Ring:
    """Return one ring through all rings. It goes from the first ring to each other ring and back along the same line,
    so that the line encloses nothing."""
    first, *rest = rings
    joined = list(first)
    for ring in rest:
        joined += [first[0], *ring, ring[0]]
    return [*joined, first[0]] if rest else joined


def trace_mask(mask: np.ndarray) -> tuple[list[Ring], list[Ring]]:
    """Return the outlines of a mask along the edges of its pixels, which enclose exactly the mask's pixels.

    Args:
        mask: bool or uint8 [height, width], with at least one pixel.

    Returns:
        Clockwise outline of each connected part, and counter-clockwise outline of each hole.

    >>> trace_mask(np.array([[True, True], [False, True]]))
    ([[(0, 0), (2, 0), (2, 2), (1, 2), (1, 1), (0, 1)]], [])
    """
    (top, bottom), (left_edge, right_edge) = (np.flatnonzero(mask.any(axis=axis))[[0, -1]] for axis in (1, 0))
    padded = np.pad(mask[top : bottom + 1, left_edge : right_edge + 1].astype(bool), 1)
    above_left, above_right = padded[:-1, :-1], padded[:-1, 1:]
    left, right = padded[1:, :-1], padded[1:, 1:]
    corners = (above_left ^ above_right ^ left ^ right).astype(np.int64)
    corners[(above_left == right) & (above_right == left) & (right != left)] = 2  # where two corners touch
    ys, xs = (np.repeat(axis, corners[corners > 0]) for axis in np.nonzero(corners))
    # Consecutive corners of a row are the ends of horizontal edges; those of a column, of vertical edges.
    by_column = np.lexsort((ys, xs))
    below = np.empty(len(xs), np.int64)
    below[by_column[::2]], below[by_column[1::2]] = by_column[1::2], by_column[::2]
    is_part = right[ys, xs].tolist()
    points, partner = list(zip((xs + left_edge).tolist(), (ys + top).tolist(), strict=True)), below.tolist()
    is_seen = bytearray(len(points))
    parts: list[Ring] = []
    holes: list[Ring] = []
    for start in range(0, len(points), 2):
        ring, corner = [], start
        while not is_seen[corner]:
            is_seen[corner] = is_seen[corner ^ 1] = True
            ring += [points[corner], points[corner ^ 1]]
            corner = partner[corner ^ 1]
        if ring and is_part[start]:
            parts.append(ring)
        elif ring:
            holes.append([ring[0], *ring[:0:-1]])
    return parts, holes
