"""Columns of images in records, for statistics and fingerprints."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.block import Ragged, spans, starts_of, take_rows
from recordmill.schemas.statistics import Histogram, PixelMeasures

NO_CLASS = -1


MAP_FACTS = (("pixels", "semantic.png", "semantic.pixels"), ("depth", "depth.png", "depth.metres"))
"""Columns of facts of maps: name in FactColumns, source of the map, name in
`recordmill.transforms.encoders.encode_masks.DrawnMasks.values`."""
NO_OFFSET = -1
"""Offset of records in a container without byte ranges."""


class RecordPlaces(NamedTuple):
    """Positions of the records of N images in a shard: int64 [N] each.

    Attributes:
        record: Number of the image's first record.
        records: Number of its records, which are consecutive.
        offset, bytes: Byte range of its records, see `recordmill.schemas.statistics.Example`; NO_OFFSET and 0 without.
    """

    record: np.ndarray
    records: np.ndarray
    offset: np.ndarray
    bytes: np.ndarray


class FieldItems(NamedTuple):
    """Values of an open field.

    Attributes:
        items: Values that are not missing, items of lists one by one: int64 or float32 [n], or texts as UTF-8.
        rows: Number of images, or of objects.
        missing: Number of these without a value.
    """

    items: np.ndarray | list[bytes]
    rows: int
    missing: int


class FactColumns(NamedTuple):
    """Contents of the records of N images and M objects. A column is None if the records lack it.

    Attributes:
        name: bytes [N], file name as UTF-8.
        size_px: int64 [N, 2], width and height; 0, 0 if records have no image.
        format: N texts, `jpeg`, `png` or `raw`; empty if records have no image.
        num_bytes: int64 [N], size of the encoded image.
        sha256: N hex digests of images; empty without one.
        is_continuation: bool [N], True if the image was counted already, with other objects.
        measures: Measures of N images' pixels; None for images that were not decoded.
        image_class: int64 [N], class index of an image with one class; NO_CLASS for others.
        first_object_of_image: int64 [N + 1].
        class_index: int64 [M].
        yxyx_frac: float32 [M, 4], ymin, xmin, ymax, xmax as fractions of height and width, as in records.
        mask_bounds_px: float64 [M, 4], ymin, xmin, ymax, xmax of the mask; NaN without one.
        num_captions: int64 [N].
        segments: lists of int64 [N], category indices of stuff, or of panoptic segments.
        pixels: N dicts, number of pixels of each value of the semantic mask.
        depth: N histograms of the metres of the depth map.
        object_id: int64 [M], as in the source.
        source_name, source_size_px, source_sha256, is_counted, source_labels: Only with tiles: name, size and digest of
            the image that a tile is of; True for the tile with which the image is counted; uint64 [N], label digest.
            Those of whole images are their own.
    """

    name: Ragged
    size_px: np.ndarray
    format: list[str]
    num_bytes: np.ndarray
    sha256: list[str]
    is_continuation: np.ndarray
    measures: list[PixelMeasures | None]
    image_class: np.ndarray
    first_object_of_image: Any = None
    class_index: Any = None
    yxyx_frac: Any = None
    mask_bounds_px: Any = None
    num_captions: Any = None
    segments: Any = None
    pixels: list[dict[int, int]] | None = None
    depth: list[Histogram] | None = None
    object_id: Any = None
    source_name: Any = None
    source_size_px: Any = None
    source_sha256: Any = None
    is_counted: Any = None
    source_labels: Any = None

    def without_tiles(self) -> "FactColumns":
        """Return the facts of whole images instead of those of tiles. Each image counts with one of its tiles."""
        if self.is_counted is None:
            return self
        columns = self._asdict() | {  # _replace() needs the length of the tuple
            "name": self.source_name,
            "size_px": self.source_size_px,
            "sha256": self.source_sha256,
            "is_continuation": ~self.is_counted,
        }
        return FactColumns(**columns)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.num_bytes)

    def take(self, images: np.ndarray) -> "FactColumns":
        """Return the facts of images by index: int64."""
        columns = {name: _take(getattr(self, name), images) for name in _IMAGE_COLUMNS}
        if self.first_object_of_image is not None:
            lengths = np.diff(self.first_object_of_image)[images]
            objects = spans(self.first_object_of_image[images], lengths)
            columns |= {name: _take(getattr(self, name), objects) for name in _OBJECT_COLUMNS}
            columns["first_object_of_image"] = starts_of(lengths)
        return FactColumns(**columns)


_OBJECT_COLUMNS = ("class_index", "yxyx_frac", "mask_bounds_px", "object_id")
_IMAGE_COLUMNS = tuple(name for name in FactColumns._fields if name not in (*_OBJECT_COLUMNS, "first_object_of_image"))


def _take(column: Any, rows: np.ndarray) -> Any:
    if isinstance(column, list):
        return [column[row] for row in rows.tolist()]
    return None if column is None else take_rows(column, rows)


def join_facts(parts: Sequence[FactColumns]) -> FactColumns:
    """Return all images of FactColumns of one table."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: _joined([getattr(part, name) for part in parts]) for name in FactColumns._fields}
    if columns["first_object_of_image"] is not None:
        lengths = [np.diff(part.first_object_of_image) for part in parts if part.first_object_of_image is not None]
        columns["first_object_of_image"] = starts_of(np.concatenate(lengths))
    return FactColumns(**columns)


def _joined(columns: list[Any]) -> Any:
    if columns[0] is None:
        return None
    if isinstance(columns[0], list):
        return list(chain.from_iterable(columns))
    if isinstance(columns[0], Ragged):
        values = np.concatenate([column.values for column in columns])
        return Ragged(values, starts_of(np.concatenate([column.lengths for column in columns])))
    return np.concatenate(columns)


class SortedObjects(NamedTuple):
    """Objects of FactColumns, sorted by image, class, ymin, xmin, ymax and xmax. The sort is stable.

    Attributes:
        image: int64 [M], row of the object's image.
        rows: float64 [M, 5], class index and edges.
        is_new_class: bool [M], True for the first object of its class in the image.
        is_repeated: bool [M], True if the previous object of the image has the same class and edges.
        order: int64 [M], row of each object in FactColumns.
    """

    image: np.ndarray
    rows: np.ndarray
    is_new_class: np.ndarray
    is_repeated: np.ndarray
    order: np.ndarray


def sort_objects(facts: FactColumns, edges: np.ndarray | None = None) -> SortedObjects:
    """Sort the objects of images by class and edges; the facts must have objects.

    Args:
        edges: float32 [M, 4]; by default yxyx_frac.

    >>> boxes = np.array([[0, 0, 1, 1], [0, 0, 0.5, 1], [0, 0, 1, 1]], np.float32)
    >>> facts = FactColumns(*[None] * 8, np.array([0, 2, 3]), np.array([7, 3, 3]), boxes)
    >>> sort_objects(facts).rows[:, 0].tolist()
    [3.0, 7.0, 3.0]
    """
    edges, classes = facts.yxyx_frac if edges is None else edges, facts.class_index
    image = np.repeat(np.arange(len(facts.first_object_of_image) - 1), np.diff(facts.first_object_of_image))
    order = _order(image, classes, edges)
    rows = np.column_stack((classes[order], edges[order])).astype(np.float64)
    is_new_class, is_repeated = np.ones(len(order), bool), np.zeros(len(order), bool)
    is_same = (image[1:] == image[:-1]) & (rows[1:, 0] == rows[:-1, 0])  # the sort keeps `image` unchanged
    is_new_class[1:] = ~is_same
    is_repeated[1:] = is_same & (rows[1:] == rows[:-1]).all(axis=1)
    return SortedObjects(image, rows, is_new_class, is_repeated, order)


def _order(image: np.ndarray, classes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    ymin, xmin, ymax, xmax = edges.T
    if len(image) and int(image[-1]) < 1 << 15 and int(classes.max()) < 1 << 16:
        # One key of 64 bits: floats sort like their bits, negative ones in reverse.
        bits = (ymin + np.float32(0)).view(np.int32)  # -0.0 as 0.0
        rank = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int64) + (1 << 31)
        key = (image << 48) | (classes << 32) | rank
        order = np.argsort(key, kind="stable")
        if (np.diff(key[order]) > 0).all():
            return order
    return np.lexsort((xmax, ymax, xmin, ymin, classes, image))
