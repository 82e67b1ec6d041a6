"""Objects of images, and what tiles show of them: masks, boxes, areas, keypoints."""

from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.block import Block, Ragged, ragged_bytes, spans, take_rows
from recordmill.schemas.inputs.images import TileRules
from recordmill.schemas.rejects import Rejected, UnusableError
from recordmill.transforms.encoders.encode_objects import describe_unfit_box, fit_boxes, reject_object, scale_to_pixels
from recordmill.transforms.shape.crop_masks import MaskSpans, mask_spans
from recordmill.transforms.shape.tile_grid import TileGrid

_ROUNDING = 1e-9
"""Relative error of a share that is computed from floats."""


class ImageReject(NamedTuple):
    """Reject of an annotation of an image, by the image's index."""

    image: int
    reject: Rejected


class UsableObjects(NamedTuple):
    """Objects of N images that tiles may have.

    Attributes:
        block: The images with M usable objects, in pixels.
        masks: Masks of objects that have one with a pixel, by index of the object.
        is_clipped: bool [M], True if the box crosses the edge of its image, and is cut there.
        rejects: Rejects of other objects.
        small: int64 [N], objects below the minimum area.
    """

    block: Block
    masks: dict[int, MaskSpans]
    is_clipped: np.ndarray
    rejects: list[ImageReject]
    small: np.ndarray


def usable_objects(block: Block, sides_px: np.ndarray, box_policy: str, min_area_px2: float) -> UsableObjects:
    """Return the objects that records of the whole images would have, with their masks.

    Args:
        sides_px: int64 [N, 2], width and height of each image.
        box_policy: See `recordmill.transforms.encoders.encode_objects.fit_boxes`.
        min_area_px2: See `recordmill.transforms.encoders.encode_objects.scale_to_pixels`.
    """
    number = block.objects_per_image
    if not block.num_objects:
        return UsableObjects(block, {}, np.zeros(0, bool), [], np.zeros_like(number))
    block = scale_to_pixels(block, sides_px, min_area_px2)
    small = number - block.objects_per_image
    boxes = fit_boxes(block.boxes_xywh_px, sides_px[block.image_of_object], box_policy)
    masks, faults = _decode_masks(block, sides_px, np.flatnonzero(boxes.is_usable))
    for row in np.flatnonzero(~boxes.is_usable).tolist():
        sides = sides_px[block.image_of_object[row]].tolist()
        faults[row] = describe_unfit_box(block.boxes_xywh_px[row].tolist(), sides, bool(boxes.is_empty[row]))
    is_usable = np.ones(block.num_objects, bool)
    is_usable[list(faults)] = False
    new_row = np.cumsum(is_usable) - 1
    return UsableObjects(
        block.take_objects(is_usable),
        {int(new_row[row]): mask for row, mask in masks.items()},
        boxes.is_clipped[is_usable],
        [
            reject_in_image(block, int(block.image_of_object[row]), int(block.object_id[row]), faults[row])
            for row in sorted(faults)
        ],
        small,
    )


def _decode_masks(
    block: Block, sides_px: np.ndarray, objects: np.ndarray
) -> tuple[dict[int, MaskSpans], dict[int, UnusableError]]:
    """Return masks with a pixel, and errors of segmentations, by index of the object."""
    masks: dict[int, MaskSpans] = {}
    faults: dict[int, UnusableError] = {}
    if block.segmentation is None:
        return masks, faults
    texts, images = block.segmentation.take(objects).rows(), block.image_of_object[objects].tolist()
    for row, image, text in zip(objects.tolist(), images, texts, strict=True):
        if text:
            try:
                mask = mask_spans(text, *sides_px[image].tolist())
            except UnusableError as fault:
                faults[row] = fault
            else:
                masks |= {row: mask} if mask.pixels else {}
    return masks, faults


def reject_in_image(block: Block, image: int, object_id: int, fault: UnusableError) -> ImageReject:
    """Return the reject of an object, or of a region, of an image of a Block."""
    name = block.file_name.cut(image, image + 1).texts()[0]
    return ImageReject(image, reject_object(object_id, int(block.image_id[image]), name, fault))


class TileObjects(NamedTuple):
    """Objects in tiles, in the order of tiles, and of their image's objects.

    Attributes:
        objects, tiles: int64 [P], index of the object, and of the tile.
        boxes_xywh_px: float64 [P, 4], in the frame of the tile.
        area_px2: float64 [P].
        segmentation: JSON of the mask in the frame of the tile; empty without one.
    """

    objects: np.ndarray
    tiles: np.ndarray
    boxes_xywh_px: np.ndarray
    area_px2: np.ndarray
    segmentation: list[bytes]

    def take(self, pairs: np.ndarray) -> "TileObjects":
        """Return some pairs: int64."""
        return TileObjects(
            self.objects[pairs],
            self.tiles[pairs],
            self.boxes_xywh_px[pairs],
            self.area_px2[pairs],
            [self.segmentation[pair] for pair in pairs.tolist()],
        )


def list_touched(
    grid: TileGrid, images: np.ndarray, low_px: np.ndarray, high_px: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return each box with each tile that it touches: index of the box and index of the tile among the tiles of all
    images, int64 [P] each. Arguments are those of `TileGrid.touched`."""
    first, end = grid.touched(images, low_px, high_px)
    size = end - first
    number = size[:, 0] * size[:, 1]
    boxes = np.repeat(np.arange(len(images)), number)
    place = spans(np.zeros(len(images), np.int64), number)
    column = first[boxes, 0] + place % size[boxes, 0]
    row = first[boxes, 1] + place // size[boxes, 0]
    image = images[boxes]
    return boxes, (np.cumsum(grid.number) - grid.number)[image] + row * grid.columns[image] + column


def find_objects(
    usable: UsableObjects, grid: TileGrid, xywh_px: np.ndarray, rules: TileRules, box_policy: str
) -> TileObjects:
    """Return the objects of which tiles show enough, by tile.

    Args:
        xywh_px: int64 [T, 4], place and size of each tile.
        box_policy: With `keep`, a box that crosses the edge of its image does so in the tile at that edge.
    """
    block, images = usable.block, usable.block.image_of_object
    if not block.num_objects:
        none = np.zeros(0, np.int64)
        return TileObjects(none, none, np.zeros((0, 4)), np.zeros(0), [])
    sides = grid.sides_px[images].astype(np.float64)
    low, high = np.maximum(block.boxes_xywh_px[:, :2], 0.0), np.minimum(_high(block.boxes_xywh_px), sides)
    touched_low, touched_high = low.copy(), high.copy()
    for row, mask in usable.masks.items():
        touched_low[row], touched_high[row] = mask.bounds_px[:2], mask.bounds_px[2:]
    objects, tiles = list_touched(grid, images, touched_low, touched_high)
    place, size = (xywh_px[tiles, axes].astype(np.float64) for axes in (slice(2), slice(2, 4)))
    length = np.minimum(high[objects], place + size) - np.maximum(low[objects], place)
    visible, total = np.maximum(length, 0.0).prod(axis=1), (high - low).prod(axis=1)[objects]
    area = block.area_px2[objects] * (visible / total)
    boxes = _cut_boxes(block.boxes_xywh_px[objects], place, size, sides[objects], box_policy)
    least = rules.min_visible * (1 - _ROUNDING)
    is_kept = (visible > 0) & (visible >= least * total) & ~fit_boxes(boxes, xywh_px[tiles, 2:], "keep").is_empty
    segmentation = [b""] * len(objects)
    is_masked = np.isin(objects, np.fromiter(usable.masks, np.int64, len(usable.masks)))
    for pair in np.flatnonzero(is_masked).tolist():
        mask, tile = usable.masks[int(objects[pair])], xywh_px[tiles[pair]].tolist()
        crop = mask.crop(*tile)
        is_kept[pair] = crop.pixels > 0 and crop.pixels >= least * mask.pixels
        if is_kept[pair]:  # as text, because spans take several times the memory
            left, top, right, bottom = crop.bounds_px
            boxes[pair], area[pair] = (left, top, right - left, bottom - top), crop.pixels
            segmentation[pair] = crop.segmentation(*tile[2:])
    kept_pairs = np.flatnonzero(is_kept)
    tile_objects = TileObjects(objects, tiles, boxes, area, segmentation)
    return tile_objects.take(kept_pairs[np.argsort(tiles[kept_pairs], kind="stable")])


def _high(boxes_xywh_px: np.ndarray) -> np.ndarray:
    return boxes_xywh_px[:, :2] + boxes_xywh_px[:, 2:]


def _cut_boxes(
    boxes_xywh_px: np.ndarray, place: np.ndarray, size: np.ndarray, sides: np.ndarray, box_policy: str
) -> np.ndarray:
    """Return the part of each box in its tile, in the frame of the tile: float64 [P, 4].

    Args:
        place, size, sides: float64 [P, 2], left and top of the tile, its size, and the size of its image.
    """
    low, high = boxes_xywh_px[:, :2], _high(boxes_xywh_px)
    # A side of the tile at which the box is not cut.
    is_open_low, is_open_high = (box_policy == "keep") & (place == 0), (box_policy == "keep") & (place + size == sides)
    cut_low = np.where(is_open_low, low, np.maximum(low, place))
    cut_high = np.where(is_open_high, high, np.minimum(high, place + size))
    length = np.where((cut_low == low) & (cut_high == high), boxes_xywh_px[:, 2:], cut_high - cut_low)
    left_top = cut_low - place
    limit = np.where(is_open_high, np.inf, size)
    length = np.where(left_top + length > limit, limit - left_top, length)  # a rounding error beyond the edge
    return np.concatenate((left_top, length), axis=1)


def object_columns_of_tiles(
    block: Block, tile_objects: TileObjects, xywh_px: np.ndarray, sides_px: np.ndarray, ids: np.ndarray
) -> dict[str, Any]:
    """Return the columns of the objects of tiles.

    Args:
        block: Images with their objects, in pixels.
        xywh_px: int64 [T, 4], place and size of each tile.
        sides_px: int64 [T, 2], width and height of each tile's image.
        ids: int64 [P], new ids of the objects.
    """
    columns = {name: take_rows(column, tile_objects.objects) for name, column in block.object_columns()}
    place, size = xywh_px[tile_objects.tiles, :2], xywh_px[tile_objects.tiles, 2:]
    columns |= {
        "object_id": ids,
        "whole_object_id": block.object_id[tile_objects.objects],
        "boxes_xywh_px": tile_objects.boxes_xywh_px,
        "area_px2": tile_objects.area_px2,
    }
    if "segmentation" in columns:
        columns["segmentation"] = ragged_bytes(tile_objects.segmentation)
    if "keypoints_xyv" in columns:
        columns["keypoints_xyv"] = _tile_keypoints(columns["keypoints_xyv"], place, size, sides_px[tile_objects.tiles])
    if "corners_px" in columns:
        corners = columns["corners_px"]
        is_oriented = corners.any(axis=1, keepdims=True)
        columns["corners_px"] = np.where(is_oriented, corners - np.tile(place, 4), corners)
    return columns


def _tile_keypoints(keypoints: Ragged, place: np.ndarray, size: np.ndarray, sides: np.ndarray) -> Ragged:
    """Return keypoints in the frame of tiles. Those outside of their tile are as keypoints without a label in COCO: all
    zeros. The right and bottom edge of the image belong to the tile there.

    Args:
        keypoints: x, y, visibility of the keypoints of P objects, in pixels of their images.
        place, size, sides: int64 [P, 2], left and top of the tile, its size, and the size of its image.
    """
    points, number = keypoints.values.reshape(-1, 3).copy(), keypoints.lengths // 3
    place, size, sides = (np.repeat(column, number, axis=0) for column in (place, size, sides))
    points[:, :2] -= place
    is_inside = (points[:, :2] >= 0) & ((points[:, :2] < size) | ((points[:, :2] == size) & (place + size == sides)))
    points[~is_inside.all(axis=1) | (points[:, 2] == 0)] = 0
    return Ragged(points.ravel(), keypoints.starts)
