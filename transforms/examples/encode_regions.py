"""Panoptic and stuff annotations become masks: one-channel PNGs that say of every pixel what it is."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from recordmill.schemas.annotations import PanopticAnnotation, Segment, StuffAnnotation
from recordmill.schemas.images import Picture
from recordmill.schemas.labels import SEMANTIC_IGNORE, LabelMap
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.examples.read_panoptic import PanopticMap, read_panoptic
from recordmill.transforms.masks.bitmaps import bitmap, resized
from recordmill.transforms.masks.encode_png import black_png, encode_png, grey_png

_VOID = PanopticAnnotation("", "", ())


class RegionEncoder:
    """Encodes the stuff and panoptic masks of one data set's images.

    Args:
        labels: its `segments` are the categories of stuff and of panoptic segments.
        sources: which values of `recordmill.schemas.layouts` are wanted; no other is computed.
    """

    def __init__(self, labels: LabelMap, sources: frozenset[str]):
        self._semantic = labels.semantic_by_id()
        self._label = labels.label_by_id()
        self._is_thing = {category.id: bool(category.isthing) for category in labels.segments}
        self._index = {category.id: index for index, category in enumerate(labels.segments)}
        self._sources = sources

    def of_panoptic(self, panoptic: PanopticAnnotation, picture: Picture) -> dict[str, Any]:
        """The values that come of a panoptic annotation.

        Raises:
            UnusableError: its PNG cannot be used, or its categories' labels do not fit into a category mask.
            OSError: storage fails.
        """
        if "panoptic.category_png" in self._sources:
            labels = [self._label[segment.category_id] for segment in panoptic.segments]
            beyond = [label for label in labels if not 1 <= label <= 255]
            if beyond:
                detail = f"{panoptic.file_name!r}: label {beyond[0]} is not 1 to 255, what a mask of one byte holds"
                raise UnusableError(Reason.CATEGORY_OUT_OF_RANGE, detail)
        read = read_panoptic(panoptic, *picture.frame, frozenset(self._index))
        # Boxes and areas are of the picture as it was annotated: when it is shrunk, small segments may vanish.
        measured = read.indices
        if picture.annotated_size:
            read = _shrunk(panoptic, read.indices, picture)
        return self._values(panoptic, read, measured)

    def of_void(self, width: int, height: int) -> dict[str, Any]:
        """The same for an image without a panoptic annotation: all void."""
        data = black_png(width, height) if "panoptic.png" in self._sources else b""
        void = np.zeros((height, width), np.uint8)
        return self._values(_VOID, PanopticMap(data, void), void)

    def of_stuff(
        self, regions: Iterable[tuple[StuffAnnotation, np.ndarray]], width: int, height: int
    ) -> dict[str, Any]:
        """The semantic mask of stuff annotations, each with its run lengths; where two overlap, the later counts."""
        pixels = np.full((height, width), SEMANTIC_IGNORE, np.uint8)
        found = []
        for region, runs in regions:
            pixels[bitmap(runs, width, height)] = self._semantic[region.category_id]
            found.append(self._index[region.category_id])
        return {"semantic.png": grey_png(pixels), "segments.class_index": found}

    def _values(self, panoptic: PanopticAnnotation, read: PanopticMap, measured: np.ndarray) -> dict[str, Any]:
        segments, indices = panoptic.segments, read.indices
        values: dict[str, Any] = {
            "panoptic.file_name": panoptic.file_name.encode(),
            "panoptic.png": read.data,
            "segments.class_index": [self._index[segment.category_id] for segment in segments],
            "segments.id": [segment.id for segment in segments],
            "segments.is_crowd": [int(segment.is_crowd) for segment in segments],
        }
        if "segments.area" in self._sources:
            values["segments.area"] = [_area(index, segment, measured) for index, segment in enumerate(segments, 1)]
        if "segments.bbox_yxyx" in self._sources:
            boxes = [_box(index, segment, measured) for index, segment in enumerate(segments, 1)]
            values["segments.bbox_yxyx"] = [edge for box in boxes for edge in box]
        if "semantic.png" in self._sources:
            things = (self._semantic[segment.category_id] for segment in segments)
            values["semantic.png"] = _looked_up(indices, SEMANTIC_IGNORE, things)
        if "panoptic.category_png" in self._sources:
            values["panoptic.category_png"] = _looked_up(
                indices, 0, (self._label[segment.category_id] for segment in segments)
            )
        if "panoptic.instance_png" in self._sources:
            numbers = (index * self._is_thing[segment.category_id] for index, segment in enumerate(segments, 1))
            values["panoptic.instance_png"] = _looked_up(indices, 0, numbers)
        return values


def _shrunk(panoptic: PanopticAnnotation, indices: np.ndarray, picture: Picture) -> PanopticMap:
    indices = resized(indices, picture.width, picture.height)
    ids = np.array([0, *(segment.id for segment in panoptic.segments)], "<u4")[indices]
    colours = ids.view(np.uint8).reshape(picture.height, picture.width, 4)[:, :, :3]
    return PanopticMap(encode_png(np.ascontiguousarray(colours)), indices)


def _looked_up(indices: np.ndarray, void: int, values: Iterable[int]) -> bytes:
    """A PNG of the value of each pixel's segment."""
    return grey_png(np.array([void, *values], np.uint8)[indices])


def _area(index: int, segment: Segment, indices: np.ndarray) -> int:
    """Pixels²; counted where the JSON does not say."""
    return int(np.count_nonzero(indices == index) if segment.area_px2 is None else segment.area_px2)


def _box(index: int, segment: Segment, indices: np.ndarray) -> tuple[float, float, float, float]:
    """ymin, xmin, ymax, xmax as fractions of the annotated size; measured where the JSON does not say."""
    height, width = indices.shape
    if segment.bbox_xywh_px is None:
        rows, columns = np.nonzero(indices == index)
        return (
            float(rows.min() / height),
            float(columns.min() / width),
            float((rows.max() + 1) / height),
            float((columns.max() + 1) / width),
        )
    x, y, box_width, box_height = segment.bbox_xywh_px
    return y / height, x / width, (y + box_height) / height, (x + box_width) / width
