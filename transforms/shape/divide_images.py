"""Divide the images of a Block into tiles: a record each, with what the tile shows of the image's annotations."""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.block import Block, ragged_texts, spans, starts_of, take_rows
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import ImageLabels, StuffAnnotation
from recordmill.schemas.inputs.images import TileRules
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.blocks.image_tasks import image_paths, label_column, labels_of
from recordmill.transforms.insight.fingerprint_images import digest_labels
from recordmill.transforms.shape.crop_masks import MaskSpans, mask_spans
from recordmill.transforms.shape.tile_grid import TileGrid, tile_grid
from recordmill.transforms.shape.tile_objects import (
    ImageReject,
    TileObjects,
    UsableObjects,
    find_objects,
    list_touched,
    object_columns_of_tiles,
    reject_in_image,
    usable_objects,
)

_HASHES = 1 << 63
"""Number of values of `name_id`."""


class TileCounts(NamedTuple):
    """Numbers of each image: int64 [N].

    Attributes:
        empty: Tiles without objects that are dropped.
        narrow: Tiles that are narrow, see `TileGrid.is_narrow`.
        unseen: Objects, regions and captions that no tile has.
        copies: Further tiles with an object, region or caption that is in another tile.
        small: Objects below the minimum area.
        clipped: Objects in tiles whose box was clipped at the edge of the image.
        keypoints_outside: Visible keypoints outside of the image.
    """

    empty: np.ndarray
    narrow: np.ndarray
    unseen: np.ndarray
    copies: np.ndarray
    small: np.ndarray
    clipped: np.ndarray
    keypoints_outside: np.ndarray


class Tiles(NamedTuple):
    """Tiles of N images.

    Attributes:
        block: Tiles that are kept, in order, without the column `image_data`.
        images: int64 [T], index of each tile's image.
        rejects: Rejects of annotations.
    """

    block: Block
    images: np.ndarray
    rejects: list[ImageReject]
    counts: TileCounts


class _Regions(NamedTuple):
    """Stuff regions of N images in tiles.

    Attributes:
        by_tile: Regions of each tile that has one, by index of the tile.
        unseen, copies: int64 [N], see TileCounts.
        rejects: Rejects of regions without a mask.
    """

    by_tile: dict[int, list[StuffAnnotation]]
    unseen: np.ndarray
    copies: np.ndarray
    rejects: list[ImageReject]


def divide_images(
    block: Block,
    rules: TileRules,
    box_policy: str = "clip",
    min_area_px2: float = 0.0,
    class_ids: np.ndarray | None = None,
) -> Tiles:
    """Divide each image of a complete Block into tiles.

    Args:
        block: Images of known size, `image_size_px`, in the frame of their annotations.
        box_policy: See `recordmill.transforms.encoders.encode_objects.fit_boxes`.
        min_area_px2: See `recordmill.transforms.encoders.encode_objects.scale_to_pixels`.
        class_ids: See `recordmill.transforms.insight.fingerprint_images.digest_labels`; None if they are not known, so
            that tiles have no digests. If there are none, captions are the labels of images.
    """
    sides_px, grid = block.image_size_px, tile_grid(block.image_size_px, rules)
    images = np.repeat(np.arange(len(block)), grid.number)
    xywh = grid.xywh_px(images, spans(np.zeros(len(block), np.int64), grid.number))
    usable = usable_objects(block, sides_px, box_policy, min_area_px2)
    tile_objects = find_objects(usable, grid, xywh, rules, box_policy)
    labels = labels_of(block) if block.labels is not None or block.class_name is not None else []
    regions = _find_regions(block, labels, grid, xywh)
    is_filled = _are_labelled(labels, len(block), class_ids is None or len(class_ids) > 0)[images]
    is_filled[tile_objects.tiles] = is_filled[list(regions.by_tile)] = True
    names = _TileNames(block, images, xywh)
    is_kept = is_filled | names.are_chosen(~is_filled, rules.keep_empty)
    kept_tiles = np.flatnonzero(is_kept)
    columns = _image_columns(block, images[kept_tiles], xywh[kept_tiles], names.texts(kept_tiles))
    if block.labels is not None:
        columns["labels"] = _tile_labels(labels, images, kept_tiles, regions)
    if block.first_object_of_image is not None:
        columns["first_object_of_image"] = starts_of(np.bincount(tile_objects.tiles, minlength=len(images))[kept_tiles])
        columns |= dict(usable.block.object_columns())
    if usable.block.num_objects:
        ids = _new_object_ids(names.texts(tile_objects.tiles), usable.block.object_id[tile_objects.objects])
        columns |= object_columns_of_tiles(usable.block, tile_objects, xywh, sides_px[images], ids)
        if class_ids is not None:
            columns["whole_labels"] = digest_labels(usable.block, class_ids)[images[kept_tiles]]
    unseen, copies = _count_unseen(usable, tile_objects, images)
    unseen_captions, caption_copies = _count_captions(labels, images[kept_tiles], len(block))
    counts = TileCounts(
        np.bincount(images[~is_kept], minlength=len(block)),
        np.bincount(images[is_kept & grid.is_narrow(images, xywh)], minlength=len(block)),
        unseen + regions.unseen + unseen_captions,
        copies + regions.copies + caption_copies,
        usable.small,
        *_count_edges(usable, tile_objects, sides_px),
    )
    return Tiles(Block(**columns), images[kept_tiles], usable.rejects + regions.rejects, counts)


def _new_object_ids(names: list[str], object_ids: np.ndarray) -> np.ndarray:
    """Return the ids of objects in tiles, by the names of the tiles: int64 [P]."""
    pairs = zip(names, object_ids.tolist(), strict=True)
    return np.array([object_id_in_tile(name, object_id) for name, object_id in pairs], np.int64)


def _count_captions(labels: list[ImageLabels], images: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `unseen` and `copies` of TileCounts for captions, and `unseen` for maps. Copies of maps are counted when
    they are written.

    Args:
        images: int64 [T], index of the image of each tile that is kept.
        number: Number of images.
    """
    captions, maps = (
        np.array([len(getattr(image_labels, name)) for image_labels in labels] or [0] * number, np.int64)
        for name in ("captions", "maps")
    )
    tiles = np.bincount(images, minlength=number)
    return (captions + maps) * (tiles == 0), captions * np.maximum(tiles - 1, 0)


def _count_unseen(
    usable: UsableObjects, tile_objects: TileObjects, images: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `unseen` and `copies` of TileCounts for objects.

    Args:
        images: int64 [T], index of each tile's image.
    """
    owner, number = usable.block.image_of_object, len(usable.block)
    is_seen = np.bincount(tile_objects.objects, minlength=len(owner)) > 0
    unseen, seen = (np.bincount(owner[objects], minlength=number) for objects in (~is_seen, is_seen))
    return unseen, np.bincount(images[tile_objects.tiles], minlength=number) - seen


def _count_edges(
    usable: UsableObjects, tile_objects: TileObjects, sides_px: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `clipped` and `keypoints_outside` of TileCounts."""
    block, owner = usable.block, usable.block.image_of_object
    is_seen = np.bincount(tile_objects.objects, minlength=len(owner)) > 0
    clipped = np.bincount(owner[is_seen & usable.is_clipped], minlength=len(block))
    if block.keypoints_xyv is None:
        return clipped, np.zeros_like(clipped)
    points = block.keypoints_xyv.values.reshape(-1, 3)
    owner = np.repeat(owner, block.keypoints_xyv.lengths // 3)
    is_outside = ((points[:, :2] < 0) | (points[:, :2] > sides_px[owner])).any(axis=1) & (points[:, 2] == 2)
    return clipped, np.bincount(owner[is_outside], minlength=len(block))


def _are_labelled(labels: list[ImageLabels], number: int, has_objects: bool) -> np.ndarray:
    """Return True for images of which all tiles have labels: bool [number]. Captions and depth maps are labels if the
    job has no classes of objects."""
    are_labelled = np.zeros(number, bool)
    for image, one in enumerate(labels):
        has_captions = bool(one.captions) and not has_objects
        has_maps = any(not has_objects or file.part is Part.SEMANTIC for file in one.maps)
        are_labelled[image] = has_captions or has_maps or one.class_name is not None or bool(one.panoptic or one.tags)
    return are_labelled


def _find_regions(block: Block, labels: list[ImageLabels], grid: TileGrid, xywh_px: np.ndarray) -> _Regions:
    """Return the stuff regions of each tile: those that have a pixel in it."""
    none = np.zeros(len(block), np.int64)
    tile_regions = _Regions({}, none, none.copy(), [])
    masks: list[tuple[int, StuffAnnotation, MaskSpans]] = []
    for image, image_labels in enumerate(labels):
        for region in image_labels.regions:
            try:
                mask = mask_spans(region.segmentation, *grid.sides_px[image].tolist())
            except UnusableError as fault:
                tile_regions.rejects.append(reject_in_image(block, image, region.id, fault))
            else:
                tile_regions.unseen[image] += not mask.pixels
                masks += [(image, region, mask)] if mask.pixels else []
    if not masks:
        return tile_regions
    images = np.array([image for image, _, _ in masks])
    bounds = np.array([mask.bounds_px for _, _, mask in masks], np.float64)
    tile_regions.copies[:] = -np.bincount(images, minlength=len(block))
    touched = list_touched(grid, images, bounds[:, :2], bounds[:, 2:])
    for number, tile in zip(*(column.tolist() for column in touched), strict=True):
        image, region, mask = masks[number]
        place = xywh_px[tile].tolist()
        crop = mask.crop(*place)
        if crop.pixels:
            region = msgspec.structs.replace(region, segmentation=crop.segmentation(*place[2:]))
            tile_regions.by_tile.setdefault(tile, []).append(region)
            tile_regions.copies[image] += 1
    return tile_regions


class _TileNames:
    """File names of T tiles, `STEM_X_Y.EXT`, made when they are used."""

    def __init__(self, block: Block, images: np.ndarray, xywh_px: np.ndarray):
        self._parts = list(map(split_suffix, block.file_name.texts()))
        self._images, self._xy = images, xywh_px[:, :2]

    def texts(self, tiles: np.ndarray) -> list[str]:
        """Return the names of some tiles: int64."""
        rows = zip(self._images[tiles].tolist(), self._xy[tiles].tolist(), strict=True)
        return [f"{self._parts[image][0]}_{x}_{y}{self._parts[image][1]}" for image, (x, y) in rows]

    def are_chosen(self, is_empty: np.ndarray, share: float) -> np.ndarray:
        """Return True for empty tiles that are kept, by a hash of their names: bool [T]."""
        if share in (0.0, 1.0):
            return is_empty & (share == 1.0)
        are_chosen = np.zeros(len(is_empty), bool)
        rows = np.flatnonzero(is_empty)
        are_chosen[rows] = [name_id(f"empty {name}") < share * _HASHES for name in self.texts(rows)]
        return are_chosen


def object_id_in_tile(name: str, object_id: int) -> int:
    """Return the id of an object in a tile, by the name of the tile."""
    return name_id(f"{name} {object_id}")


def split_suffix(name: str) -> tuple[str, str]:
    """Return the parts of a name of an image, between which its tiles have their places.

    >>> split_suffix("a.b/c.d.jpg"), split_suffix("a.b/c"), split_suffix(".jpg")
    (('a.b/c.d', '.jpg'), ('a.b/c', ''), ('.jpg', ''))
    """
    folder, slash, file = name.rpartition("/")
    dot = file.rfind(".")
    stem, suffix = (file[:dot], file[dot:]) if dot > 0 else (file, "")
    return f"{folder}{slash}{stem}", suffix


def _image_columns(block: Block, images: np.ndarray, xywh_px: np.ndarray, names: list[str]) -> dict[str, Any]:
    """Return the columns of tiles, without their labels and objects.

    Args:
        images: int64 [T], index of each tile's image.
        xywh_px: int64 [T, 4], place and size of each tile.
        names: T names.
    """
    is_first = np.ones(len(images), bool)
    is_first[1:] = images[1:] != images[:-1]
    paths = ragged_texts(image_paths(block))
    shared = block.replace(image_data=None, labels=None)
    columns = {name: take_rows(column, images) for name, column in shared.image_columns()}
    return columns | {
        "image_id": np.array(list(map(name_id, names)), np.int64),
        "file_name": ragged_texts(names),
        "image_size_px": xywh_px[:, 2:],
        "tile_xy_px": xywh_px[:, :2],
        "whole_size_px": block.image_size_px[images],
        "whole_name": block.file_name.take(images),
        "whole_id": block.image_id[images],
        "is_first_tile": is_first,
        "file_folder": paths.take(images),
    }


def _tile_labels(labels: list[ImageLabels], images: np.ndarray, tiles: np.ndarray, regions: _Regions) -> Any:
    """Return the column `labels` of tiles.

    Args:
        images: int64 [T], index of each tile's image, also of tiles that are not kept.
        tiles: int64, indices of the tiles that are kept.
    """
    return label_column(
        [
            msgspec.structs.replace(labels[image], regions=tuple(regions.by_tile.get(tile, ())))
            if labels[image].regions
            else labels[image]
            for tile, image in zip(tiles.tolist(), images[tiles].tolist(), strict=True)
        ]
    )
