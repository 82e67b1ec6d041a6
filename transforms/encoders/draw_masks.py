"""Masks of one image: those of its objects, of stuff, and of panoptic segments."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.annotations import StuffAnnotation
from recordmill.schemas.inputs.images import ImageTask, Picture
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import Metric, Rejected, UnusableError
from recordmill.transforms.encoders.encode_masks import RegionEncoder
from recordmill.transforms.encoders.encode_objects import fit_boxes, in_pixels
from recordmill.transforms.encoders.record_maker import check_size
from recordmill.transforms.images.decode_segmentation import compress_segmentation, decode_counts, has_several_runs
from recordmill.transforms.images.masks import bitmap, mask_bounds, mask_png, mask_rle, resized, run_lengths


class DrawnMasks(NamedTuple):
    """Masks of one image.

    Attributes:
        faults: why objects have no record, by the object's row in its image. The lists below are of the other objects
            whose box can be used.
        png, rle: serialised masks; empty lists where they are not wanted.
        bounds_px: ymin, xmin, ymax, xmax of each mask; NaN of one without a pixel.
        values: of stuff and panoptic segments, by source (see `recordmill.schemas.layouts`).
        rejected: annotations of these that are not among the values.
        counted: what is in all of it.
    """

    faults: dict[int, UnusableError]
    png: list[bytes]
    rle: list[bytes]
    bounds_px: list[list[float]]
    values: dict[str, Any]
    rejected: list[Rejected]
    counted: Counter[Metric]


class MaskDrawer:
    """Draws the masks of one data set's images; used by several threads.

    Args:
        table: the layout, with the parts that are wanted.
        box_policy, min_area_px2: see `recordmill.transforms.encoders.encode_objects`.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable, box_policy: str, min_area_px2: float = 0.0):
        self._parts = table.parts
        self._regions = RegionEncoder(labels, table.sources)
        self._box_policy = box_policy
        self._min_area_px2 = min_area_px2
        self.has_masks = Part.MASK_PNG in table.parts or Part.MASK_RLE in table.parts
        self.has_regions = Part.PANOPTIC in table.parts or Part.SEMANTIC in table.parts

    def draw(self, task: ImageTask, block: Block, row: int, picture: Picture) -> DrawnMasks | None:
        """Draw the masks of an image; None if none are wanted.

        Args:
            task: with labels; its objects are in the Block.
            block: of images; that of the task is in `row`.

        Raises:
            UnusableError: the masks are larger than a record.
            OSError: storage fails.
        """
        if not self.has_masks and not self.has_regions:
            return None
        drawn = DrawnMasks({}, [], [], [], {}, [], Counter())
        if self.has_masks:
            self._draw_objects(block.cut(row, row + 1), picture, drawn)
        if Part.PANOPTIC in self._parts:
            drawn.values.update(self._panoptic_values(task, picture, drawn))
        elif Part.SEMANTIC in self._parts:
            drawn.values.update(self._stuff_values(task, picture, drawn))
        return drawn

    def _draw_objects(self, objects: Block, picture: Picture, drawn: DrawnMasks) -> None:
        frame = np.array([picture.frame], np.int64)
        objects = in_pixels(objects, frame, self._min_area_px2)
        frames = np.tile(frame, (objects.num_objects, 1))
        is_usable = fit_boxes(objects.boxes_xywh_px, frames, self._box_policy).is_usable
        segmentation = objects.segmentation.rows() if objects.segmentation else [b""] * objects.num_objects
        masks, texts = [], []
        for row in np.flatnonzero(is_usable).tolist():
            try:
                masks.append(_counts(segmentation[row], picture))
                texts.append(segmentation[row])
            except UnusableError as fault:
                drawn.faults[row] = fault
        size, others = (picture.width, picture.height), len(picture.data)
        if Part.MASK_PNG in self._parts:
            drawn.png.extend(_within_a_record((mask_png(decode_counts(each, *size), *size) for each in masks), others))
        if Part.MASK_RLE in self._parts:
            drawn.rle.extend(_within_a_record(masks, others))
        bounds_px = mask_bounds(masks, *size)
        drawn.bounds_px.extend(bounds_px.tolist())
        drawn.counted[Metric.MASKS] = sum(
            has_pixels or (not picture.annotated_size and has_several_runs(text))
            for has_pixels, text in zip((bounds_px[:, 0] >= 0).tolist(), texts, strict=True)
        )

    def _panoptic_values(self, task: ImageTask, picture: Picture, drawn: DrawnMasks) -> dict[str, Any]:
        """The values that come of a panoptic annotation; without one, all is void."""
        for row in task.labels.panoptic:
            try:
                values = self._regions.of_panoptic(row, picture)
            except UnusableError as fault:
                drawn.rejected.append(Rejected("annotation", None, fault.reason, fault.detail, task.image_id))
            else:
                drawn.counted[Metric.PANOPTIC] += 1
                return values
        return self._regions.of_void(picture.width, picture.height)

    def _stuff_values(self, task: ImageTask, picture: Picture, drawn: DrawnMasks) -> dict[str, Any]:
        """The semantic mask of stuff annotations."""
        regions: list[tuple[StuffAnnotation, np.ndarray]] = []
        for region in task.labels.regions:
            try:
                counts = _counts(region.segmentation, picture)
                regions.append((region, decode_counts(counts, picture.width, picture.height)))
            except UnusableError as fault:
                drawn.rejected.append(Rejected("annotation", region.id, fault.reason, fault.detail, task.image_id))
        drawn.counted[Metric.REGIONS] = len(regions)
        return self._regions.of_stuff(regions, picture.width, picture.height)


def _within_a_record(masks: Iterable[bytes], before: int) -> list[bytes]:
    """The masks of an image, unless they are more bytes than a record has besides `before`."""
    kept = []
    for mask in masks:
        kept.append(mask)
        before += len(mask)
        check_size(before)
    return kept


def _counts(segmentation: bytes, picture: Picture) -> bytes:
    """Compressed counts of a mask of the record's image.

    Raises:
        UnusableError: it is no mask of the image.
    """
    counts, size = compress_segmentation(segmentation, *picture.frame), (picture.width, picture.height)
    if picture.annotated_size:
        pixels = bitmap(decode_counts(counts, *picture.frame), *picture.frame)
        counts = mask_rle(run_lengths(resized(pixels, *size)))
    return counts
