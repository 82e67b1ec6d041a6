"""Masks of one image: masks of its objects, of stuff, and of panoptic segments; and the maps that lie beside it.

Panoptic and stuff annotations become one-channel PNGs with a value per pixel."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from recordmill.schemas.block import Block
from recordmill.schemas.features import FeatureTable, Part
from recordmill.schemas.inputs.annotations import PanopticAnnotation, Segment, StuffAnnotation
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.images import ImageTask, StoredImage
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, LabelMap
from recordmill.schemas.rejects import Metric, Reason, Rejected, UnusableError
from recordmill.transforms.encoders.encode_maps import MapEncoder, ReadMap, fetch_map
from recordmill.transforms.encoders.encode_objects import fit_boxes, scale_to_pixels
from recordmill.transforms.encoders.record_maker import check_size
from recordmill.transforms.images.check_formats import check_png
from recordmill.transforms.images.colours import colour_strips, find_colours
from recordmill.transforms.images.decode_segmentation import compress_segmentation, decode_counts, has_several_runs
from recordmill.transforms.images.load_images import DECODING, describe_pillow_error
from recordmill.transforms.images.masks import (
    bitmap,
    black_png,
    encode_png,
    grey_png,
    mask_bounds,
    mask_png,
    mask_rle,
    resize_nearest,
    run_lengths,
)
from recordmill.transforms.images.open_image import open_image
from recordmill.transforms.insight.count_maps import count_values

MAX_SEGMENTS = 255
"""Number of values of a byte, without 0 for void."""


def read_panoptic(
    panoptic: PanopticAnnotation, width: int, height: int, category_ids: frozenset[int]
) -> tuple[bytes, np.ndarray]:
    """Read the PNG of an image of `width` x `height` pixels, and compare its segments with those of its row.

    Args:
        category_ids: Category ids of all segments, to recognise panopticapi's two-channel format.

    Returns:
        The PNG, without dropped segments, and uint8 [height, width]: 1 + index of the pixel's segment in
        `segments_info`; 0 for void.

    Raises:
        UnusableError: The PNG is missing, broken or has another size, or its segments differ from those of the row.
        OSError: Storage fails.
    """
    data = _fetch_panoptic(panoptic)
    with DECODING.part(width * height):
        indices = read_segment_indices(panoptic, data, width, height, category_ids)
        return _encode_segment_ids(panoptic, indices) if panoptic.void_ids else data, indices


def _fetch_panoptic(panoptic: PanopticAnnotation) -> bytes:
    if len(panoptic.segments) > MAX_SEGMENTS:
        detail = f"{len(panoptic.segments)} segments; a mask of one byte can store {MAX_SEGMENTS}"
        raise UnusableError(Reason.TOO_MANY_SEGMENTS, _name_file(panoptic, detail))
    try:
        return fetch_map(panoptic.file, "no such file under --panoptic-masks")
    except UnusableError as fault:
        raise UnusableError(fault.reason, _name_file(panoptic, fault.detail)) from fault


def read_segment_indices(
    panoptic: PanopticAnnotation, data: bytes, width: int, height: int, category_ids: frozenset[int]
) -> np.ndarray:
    """Return the second result of `read_panoptic`, given the bytes of the PNG, without the budget for decoded images.

    At most 6 bytes per pixel are in memory.
    """
    colours = _decode_panoptic_png(panoptic, data, width, height)
    segment_ids = [segment.id for segment in panoptic.segments]
    indices, counts, unknown = _segment_indices(colours, segment_ids, panoptic.void_ids)
    if fault := _find_segment_fault(panoptic, counts, unknown):
        if not counts[1:].any() and _is_two_channel(colours, category_ids):
            detail = (
                "its pixels are (category, instance), panopticapi's two-channel format. Convert it with panopticapi's "
                "converters/2channels2panoptic_coco_format.py, which also writes the JSON that goes with it"
            )
            raise UnusableError(Reason.TWO_CHANNEL_PANOPTIC, _name_file(panoptic, detail))
        raise UnusableError(Reason.SEGMENT_MISMATCH, _name_file(panoptic, fault))
    return indices


def _name_file(panoptic: PanopticAnnotation, detail: str) -> str:
    return f"{panoptic.file_name!r}: {detail}"


def _decode_panoptic_png(panoptic: PanopticAnnotation, data: bytes, width: int, height: int) -> Image.Image:
    """Return the decoded PNG, of a mode that converts to RGB."""
    try:
        with open_image(data, "png") as image:
            size, mode = image.size, image.mode
            if size == (width, height) and mode in ("RGB", "RGBA", "P"):
                check_png(data)
                image.load()
                return image
    except Exception as error:  # Pillow's decoders raise nearly anything on bytes made to break them
        detail = f"it does not decode as PNG ({describe_pillow_error(error)})"
        raise UnusableError(Reason.MASK_UNREADABLE, _name_file(panoptic, detail)) from error
    if size != (width, height):
        detail = f"it is {size[0]}x{size[1]}, its image is {width}x{height}"
        raise UnusableError(Reason.MASK_SIZE_MISMATCH, _name_file(panoptic, detail))
    detail = f"a PNG of mode {mode}; segment ids are written as RGB"
    raise UnusableError(Reason.MASK_UNREADABLE, _name_file(panoptic, detail))


def _segment_indices(
    colours: Image.Image, segment_ids: Sequence[int], void_ids: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Find the segment of each pixel.

    Returns:
        uint8 [height, width]: 1 + index of the pixel's id in `segment_ids`, 0 for id 0, `void_ids` and other ids; int64
        [1 + segments], number of pixels by value; number of pixels with other ids.
    """
    table = _id_colours(np.array([0, *segment_ids, *void_ids], "<u4"))
    indices = np.empty(colours.size[::-1], np.uint8)
    counts, unknown = np.zeros(1 + len(segment_ids), np.int64), 0
    for rows, values, _ in find_colours(colours, table):
        values[values > len(segment_ids)] = 0
        is_known = values >= 0
        unknown += int(np.count_nonzero(~is_known))
        counts += np.bincount(values[is_known], minlength=len(counts))
        indices[rows] = values * is_known
    return indices, counts, unknown


def _find_segment_fault(panoptic: PanopticAnnotation, counts: np.ndarray, unknown: int) -> str:
    """Return how PNG and row differ; empty if they agree. See `_segment_indices` for the numbers of pixels."""
    if unknown:
        return f"{unknown:,} of its pixels belong to segments that segments_info does not list"
    absent = [segment.id for segment, pixels in zip(panoptic.segments, counts[1:].tolist(), strict=True) if not pixels]
    return f"segments {', '.join(map(str, absent[:5]))} have no pixels in it" if absent else ""


def _is_two_channel(colours: Image.Image, category_ids: frozenset[int]) -> bool:
    """Return True if red is always a category id and green an instance number. Segment ids below 256 have no green."""
    reds: set[int] = set()
    has_green = False
    for _, part in colour_strips(colours):
        if part[:, :, 2].any():
            return False
        has_green = has_green or bool(part[:, :, 1].any())
        reds.update(np.unique(part[:, :, 0]).tolist())
    return has_green and all(red in category_ids for red in reds if red)


_VOID = PanopticAnnotation(File(""), "", ())


class RegionEncoder:
    """Encoder of a data set's stuff and panoptic masks.

    Args:
        labels: Label map; its `segments` are the categories of stuff and of panoptic segments.
        sources: Requested values of `recordmill.schemas.layouts`; others are not computed.
    """

    def __init__(self, labels: LabelMap, sources: frozenset[str]):
        self._semantic = labels.semantic_by_id()
        self._label = labels.label_by_id()
        self._is_thing = {category.id: bool(category.isthing) for category in labels.segments}
        self._index = {category.id: index for index, category in enumerate(labels.segments)}
        self._sources = sources

    def encode_panoptic(self, panoptic: PanopticAnnotation, image: StoredImage) -> dict[str, Any]:
        """Return the values of a panoptic annotation, by source.

        Raises:
            UnusableError: The PNG is unusable, or labels of its categories do not fit into a category mask.
            OSError: Storage fails.
        """
        self._check_labels(panoptic)
        png, measured = read_panoptic(panoptic, *image.frame, frozenset(self._index))
        # Boxes and areas are measured at the annotated size, because small segments may vanish in a shrunk image.
        indices = measured
        if image.annotated_size:
            indices = resize_nearest(measured, image.width, image.height)
            png = _encode_segment_ids(panoptic, indices)
        return self._values(panoptic, png, indices, measured)

    def _check_labels(self, panoptic: PanopticAnnotation) -> None:
        """Raise UnusableError if a label does not fit into the category mask."""
        if "panoptic.category_png" not in self._sources:
            return
        labels = [self._label[segment.category_id] for segment in panoptic.segments]
        if beyond := [label for label in labels if not 1 <= label <= 255]:
            detail = (
                f"{panoptic.file_name!r}: label {beyond[0]} is not in 1..255, so a mask of one byte cannot store it"
            )
            raise UnusableError(Reason.CATEGORY_OUT_OF_RANGE, detail)

    def read_map(self, panoptic: PanopticAnnotation, width: int, height: int) -> np.ndarray:
        """Return the second result of `read_panoptic`, for the tiles of an image; errors are those of
        `encode_panoptic`. The caller holds the image's part of the budget for decoded images."""
        self._check_labels(panoptic)
        return read_segment_indices(panoptic, _fetch_panoptic(panoptic), width, height, frozenset(self._index))

    def encode_part(self, panoptic: PanopticAnnotation, indices: np.ndarray, name: str) -> dict[str, Any]:
        """Return the values of a part of a panoptic annotation, by source. Boxes and areas are those of the part.

        Args:
            panoptic: Annotation of the whole image.
            indices: Part of the result of `read_map`.
            name: File name of the tile.
        """
        present = np.flatnonzero(np.bincount(indices.ravel(), minlength=len(panoptic.segments) + 1)[1:])
        numbers = np.zeros(len(panoptic.segments) + 1, np.uint8)
        numbers[1 + present] = np.arange(1, len(present) + 1)
        segments = (panoptic.segments[index] for index in present.tolist())
        part = PanopticAnnotation(
            panoptic.file,
            f"{name.rpartition('.')[0] or name}.png",
            tuple(Segment(segment.id, segment.category_id, segment.is_crowd) for segment in segments),
        )
        own_indices = numbers[indices]
        png = _encode_segment_ids(part, own_indices) if "panoptic.png" in self._sources else b""
        return self._values(part, png, own_indices, own_indices)

    def encode_void(self, width: int, height: int) -> dict[str, Any]:
        """Return the all-void values of an image without panoptic annotation."""
        png = black_png(width, height) if "panoptic.png" in self._sources else b""
        void = np.zeros((height, width), np.uint8)
        return self._values(_VOID, png, void, void)

    def encode_stuff(
        self, regions: Iterable[tuple[StuffAnnotation, np.ndarray]], width: int, height: int
    ) -> dict[str, Any]:
        """Return the semantic mask of stuff annotations with run lengths. Later annotations cover earlier ones."""
        pixels = np.full((height, width), SEMANTIC_IGNORE, np.uint8)
        class_indices = []
        for region, runs in regions:
            pixels[bitmap(runs, width, height)] = self._semantic[region.category_id]
            class_indices.append(self._index[region.category_id])
        return {**semantic_values(pixels), "segments.class_index": class_indices}

    def _values(
        self, panoptic: PanopticAnnotation, png: bytes, indices: np.ndarray, measured: np.ndarray
    ) -> dict[str, Any]:
        segments = panoptic.segments
        values: dict[str, Any] = {
            "panoptic.file_name": panoptic.file_name.encode(),
            "panoptic.png": png,
            "segments.class_index": [self._index[segment.category_id] for segment in segments],
            "segments.id": [segment.id for segment in segments],
            "segments.is_crowd": [int(segment.is_crowd) for segment in segments],
        }
        if "segments.area" in self._sources:
            values["segments.area"] = [
                _segment_area_px2(index, segment, measured) for index, segment in enumerate(segments, 1)
            ]
        if "segments.bbox_yxyx" in self._sources:
            boxes = [_segment_box_yxyx_frac(index, segment, measured) for index, segment in enumerate(segments, 1)]
            values["segments.bbox_yxyx"] = [edge for box in boxes for edge in box]
        if "semantic.png" in self._sources:
            things = [self._semantic[segment.category_id] for segment in segments]
            values |= semantic_values(np.array([SEMANTIC_IGNORE, *things], np.uint8)[indices])
        if "panoptic.category_png" in self._sources:
            values["panoptic.category_png"] = _encode_lookup(
                indices, 0, (self._label[segment.category_id] for segment in segments)
            )
        if "panoptic.instance_png" in self._sources:
            numbers = (index * self._is_thing[segment.category_id] for index, segment in enumerate(segments, 1))
            values["panoptic.instance_png"] = _encode_lookup(indices, 0, numbers)
        return values


def semantic_values(pixels: np.ndarray) -> dict[str, Any]:
    """Return the PNG of a semantic mask, uint8 [height, width], and its number of pixels of each value."""
    return {"semantic.png": grey_png(pixels), "semantic.pixels": count_values(pixels)}


def _encode_segment_ids(panoptic: PanopticAnnotation, indices: np.ndarray) -> bytes:
    """Return the panoptic PNG of the indices of segments."""
    ids = np.array([0, *(segment.id for segment in panoptic.segments)], "<u4")[indices]
    return encode_png(np.ascontiguousarray(_id_colours(ids)))


def _id_colours(ids: np.ndarray) -> np.ndarray:
    """Return the colours of segment ids R + 256 G + 65536 B, little-endian uint32 [...]: uint8 [..., 3]."""
    return ids.view(np.uint8).reshape(*ids.shape, 4)[..., :3]


def _encode_lookup(indices: np.ndarray, void: int, values: Iterable[int]) -> bytes:
    """Return a grey PNG of the values of the segments."""
    return grey_png(np.array([void, *values], np.uint8)[indices])


def _segment_area_px2(index: int, segment: Segment, indices: np.ndarray) -> int:
    """Return the area in pixels²; measured if JSON has none."""
    return int(np.count_nonzero(indices == index) if segment.area_px2 is None else segment.area_px2)


def _segment_box_yxyx_frac(index: int, segment: Segment, indices: np.ndarray) -> tuple[float, float, float, float]:
    """Return ymin, xmin, ymax, xmax as fractions of the annotated size, measured if the JSON has no box."""
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


class WholeMaps(NamedTuple):
    """Maps of a whole image, which the masks of its tiles are cut from.

    Attributes:
        panoptic: Result of `RegionEncoder.read_map`, or its fault; None without one.
        maps: Result of `MapEncoder.read`.
    """

    panoptic: "np.ndarray | UnusableError | None"
    maps: dict[Part, ReadMap]


class DrawnMasks(NamedTuple):
    """Masks of one image.

    Attributes:
        faults: Reject reasons of objects, by the object's row in its image. The lists below have the other objects with
            a usable box.
        png, rle: Serialised masks; empty lists if not requested.
        bounds_px: ymin, xmin, ymax, xmax of each mask; NaN for a mask without a pixel.
        values: Values of stuff and panoptic segments, by source (see `recordmill.schemas.layouts`), and facts of maps:
            `semantic.pixels` and `depth.metres`, see `recordmill.transforms.blocks.image_facts`.
        rejected: Rejected stuff and panoptic annotations.
        counted: Counts of all masks.
    """

    faults: dict[int, UnusableError]
    png: list[bytes]
    rle: list[bytes]
    bounds_px: list[list[float]]
    values: dict[str, Any]
    rejected: list[Rejected]
    counted: Counter[Metric]


class MaskDrawer:
    """Renderer of the masks of a data set's images. Thread-safe.

    Args:
        table: The layout, with the requested parts.
        box_policy, min_area_px2: See `recordmill.transforms.encoders.encode_objects`.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable, box_policy: str, min_area_px2: float = 0.0):
        self._parts = table.parts
        self._regions = RegionEncoder(labels, table.sources)
        self._maps = MapEncoder(labels, table)
        self._has_pixel_ids = labels.has_pixel_ids
        self._box_policy = box_policy
        self._min_area_px2 = min_area_px2
        self.has_masks = table.has_masks
        self.has_regions = Part.PANOPTIC in table.parts or Part.SEMANTIC in table.parts

    def read_maps(self, task: ImageTask) -> WholeMaps:
        """Return the maps of the image that a tile is of. The caller holds the image's part of the budget for decoded
        images.

        Raises:
            UnusableError: A semantic mask or depth map is unusable.
            OSError: Storage fails.
        """
        assert task.tile
        size = task.tile.whole_width, task.tile.whole_height
        maps = self._maps.read(task.labels.maps, *size)
        panoptic: np.ndarray | UnusableError | None = None
        for row in task.labels.panoptic if Part.PANOPTIC in self._parts else ():
            try:
                panoptic = self._regions.read_map(row, *size)
            except UnusableError as fault:
                panoptic = fault
        return WholeMaps(panoptic, maps)

    def encode_maps(self, task: ImageTask, image: StoredImage, whole: WholeMaps | None) -> dict[str, Any]:
        """Return the values of the semantic mask and depth map of an image, by source; none if not requested.

        Args:
            whole: Result of `read_maps`, if the image is a tile that was cut from its whole image.

        Raises:
            UnusableError: A map is unusable, see `MapEncoder.read`.
            OSError: Storage fails.
        """
        if not self._maps.parts:
            return {}
        if whole and task.tile:
            return self._maps.encode(whole.maps, image, (task.tile.x, task.tile.y))
        width, height = image.frame
        with DECODING.part(width * height):
            return self._maps.encode(self._maps.read(task.labels.maps, width, height), image, None)

    def draw(
        self,
        task: ImageTask,
        block: Block,
        row: int,
        image: StoredImage,
        whole: WholeMaps | None = None,
        maps: dict[str, Any] | None = None,
    ) -> DrawnMasks | None:
        """Draw the masks of an image; None if not requested.

        Args:
            task: Image with labels; its objects are in the Block.
            block: Images; the task's image is in `row`.
            whole: Result of `read_maps`, if the image is a tile that was cut from its whole image.
            maps: Result of `encode_maps`.

        Raises:
            UnusableError: The masks are larger than a record.
            OSError: Storage fails.
        """
        if not self.has_masks and not self.has_regions and not maps:
            return None
        drawn = DrawnMasks({}, [], [], [], {}, [], Counter())
        if maps:
            check_size(len(image.data) + sum(len(value) for value in maps.values() if isinstance(value, bytes)))
            drawn.values.update(maps)
            self._count_maps(task, drawn.counted)
        if self.has_masks:
            self._draw_objects(block.cut(row, row + 1), image, drawn)
        if Part.PANOPTIC in self._parts:
            if image.whole_sha256:
                drawn.values.update(self._part_values(task, image, whole and whole.panoptic, drawn))
            else:
                drawn.values.update(self._panoptic_values(task, image, drawn))
        elif Part.SEMANTIC in self._parts and not self._has_pixel_ids:
            drawn.values.update(self._stuff_values(task, image, drawn))
        return drawn

    def _count_maps(self, task: ImageTask, counted: Counter[Metric]) -> None:
        metrics = {Part.SEMANTIC: Metric.SEMANTIC_MASKS, Part.DEPTH: Metric.DEPTH_MAPS}
        for file in task.labels.maps:
            counted[metrics[file.part]] += 1
            counted[Metric.TILE_COPIES] += bool(task.tile and not task.tile.is_first)

    def _draw_objects(self, objects: Block, image: StoredImage, drawn: DrawnMasks) -> None:
        frame = np.array([image.frame], np.int64)
        objects = scale_to_pixels(objects, frame, self._min_area_px2)
        frames = np.tile(frame, (objects.num_objects, 1))
        is_usable = fit_boxes(objects.boxes_xywh_px, frames, self._box_policy).is_usable
        segmentation = objects.segmentation.rows() if objects.segmentation else [b""] * objects.num_objects
        masks, texts = [], []
        for row in np.flatnonzero(is_usable).tolist():
            try:
                masks.append(_compress_mask(segmentation[row], image))
                texts.append(segmentation[row])
            except UnusableError as fault:
                drawn.faults[row] = fault
        size, image_bytes = (image.width, image.height), len(image.data)
        if Part.MASK_PNG in self._parts:
            drawn.png.extend(
                _check_total_size((mask_png(decode_counts(mask, *size), *size) for mask in masks), image_bytes)
            )
        if Part.MASK_RLE in self._parts:
            drawn.rle.extend(_check_total_size(masks, image_bytes))
        bounds_px = mask_bounds(masks, *size)
        drawn.bounds_px.extend(bounds_px.tolist())
        drawn.counted[Metric.MASKS] = sum(
            has_pixels or (not image.annotated_size and has_several_runs(text))
            for has_pixels, text in zip((bounds_px[:, 0] >= 0).tolist(), texts, strict=True)
        )

    def _panoptic_values(self, task: ImageTask, image: StoredImage, drawn: DrawnMasks) -> dict[str, Any]:
        """Return a panoptic annotation's values; all void without one."""
        for row in task.labels.panoptic:
            try:
                values = self._regions.encode_panoptic(row, image)
            except UnusableError as fault:
                drawn.rejected.append(_reject_row(task, None, fault))
            else:
                drawn.counted[Metric.PANOPTIC] += 1
                return values
        return self._regions.encode_void(image.width, image.height)

    def _part_values(
        self, task: ImageTask, image: StoredImage, whole_map: "np.ndarray | UnusableError | None", drawn: DrawnMasks
    ) -> dict[str, Any]:
        """Return the values of a panoptic annotation in a tile. Its reject is that of the first tile."""
        if task.tile is None or whole_map is None or isinstance(whole_map, UnusableError):
            if isinstance(whole_map, UnusableError) and task.counts_image:
                drawn.rejected.append(_reject_row(task, None, whole_map))
            return self._regions.encode_void(image.width, image.height)
        drawn.counted[Metric.PANOPTIC] += 1
        drawn.counted[Metric.TILE_COPIES] += not task.tile.is_first
        x, y = task.tile.x, task.tile.y
        indices = whole_map[y : y + image.height, x : x + image.width]
        return self._regions.encode_part(task.labels.panoptic[0], indices, task.file_name)

    def _stuff_values(self, task: ImageTask, image: StoredImage, drawn: DrawnMasks) -> dict[str, Any]:
        regions: list[tuple[StuffAnnotation, np.ndarray]] = []
        for region in task.labels.regions:
            try:
                counts = _compress_mask(region.segmentation, image)
                regions.append((region, decode_counts(counts, image.width, image.height)))
            except UnusableError as fault:
                drawn.rejected.append(_reject_row(task, region.id, fault))
        drawn.counted[Metric.REGIONS] = len(regions)
        return self._regions.encode_stuff(regions, image.width, image.height)


def _reject_row(task: ImageTask, id_: int | None, fault: UnusableError) -> Rejected:
    """Return the reject of a stuff or panoptic annotation."""
    return Rejected("annotation", id_, fault.reason, fault.detail, task.source_id).named(task.source_name)


def _check_total_size(masks: Iterable[bytes], before: int) -> list[bytes]:
    """Return the masks. Raise UnusableError if they and `before` other bytes exceed the size of a record."""
    record_masks = []
    for mask in masks:
        record_masks.append(mask)
        before += len(mask)
        check_size(before)
    return record_masks


def _compress_mask(segmentation: bytes, image: StoredImage) -> bytes:
    """Return the compressed run lengths of a mask at the size of the record's image.

    Raises:
        UnusableError: The segmentation is not a mask of the image.
    """
    counts, size = compress_segmentation(segmentation, *image.frame), (image.width, image.height)
    if image.annotated_size:
        pixels = bitmap(decode_counts(counts, *image.frame), *image.frame)
        counts = mask_rle(run_lengths(resize_nearest(pixels, *size)))
    return counts
