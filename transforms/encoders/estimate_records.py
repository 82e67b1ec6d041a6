"""Estimate the number and size of an image's records before the image is read."""

from collections.abc import Sequence
from math import prod

import numpy as np

from recordmill.schemas.block import Block, Ragged, starts_of
from recordmill.schemas.features import Feature, FeatureKind, FeatureTable, Part, RecordOf
from recordmill.schemas.inputs.annotations import ImageLabels
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.records.tfrecord import framed_size

# Mean bytes of a value, with the overhead of its list: four for floats, short varints for ids, names as in COCO.
_VALUE_BYTES = {FeatureKind.FLOAT: 4, FeatureKind.INT64: 2, FeatureKind.BYTES: 9}
_SCALAR_BYTES = 80  # SHA-256, id and other short texts
_KEYPOINT_BYTES = 4 + 4 + 1 + 12  # x, y, visibility, name

# Bytes of a PNG mask, measured on COCO's instances: zeros compressed by zlib, and the object's own pixels. Compressed
# run lengths are a fraction of the polygon's text.
_PIXELS_PER_MASK_BYTE = 1011
_OBJECT_MASK_BYTES = 500
_RLE_BYTES_PER_TEXT = 0.7
# Measured on COCO's panoptic annotations.
_PIXELS_PER_BYTE = {
    "panoptic.category_png": 45,
    "panoptic.instance_png": 45,
    "panoptic.png": 21,
    "semantic.png": 45,
}
_COMPRESSED = (".png", ".gif")
"""Suffixes of masks whose files are about as large as their PNG in a record."""
_USUAL_PIXELS = 640 * 480
_PNG_BYTES_PER_JPEG_BYTE = 3.3
"""Measured on tiles of COCO's images."""


class RecordEstimate:
    """Estimates for records of one table. The part that is equal for all images is computed once.

    Args:
        max_side: Maximum side in pixels, to which larger images and their masks are shrunk.
        same_bytes: Further bytes of each record, equal for all images.
        image_format: Format of stored images, see ImageRules.
    """

    def __init__(
        self, table: FeatureTable, max_side: int | None = None, same_bytes: int = 0, image_format: str = "keep"
    ):
        self._max_side, self._image_format = max_side, image_format
        self._per_annotation = table.record_of is RecordOf.ANNOTATION
        self._parts = frozenset(table.parts)
        keys = sum(len(feature.name) + 12 for feature in table.features)
        self._has_image = "image.encoded" in table.sources
        self._fixed = framed_size(keys + _SCALAR_BYTES + same_bytes)
        self._object_bytes = sum(_value_bytes(feature) for feature in table.features if feature.shape[:1] == ("N",))
        self._bytes_per_pixel = sum(1 / _PIXELS_PER_BYTE[source] for source in table.sources & _PIXELS_PER_BYTE.keys())

    def estimate_block(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return the sizes of each image's framed records, and their numbers if nothing is rejected: int64 [N] each.

        Sizes are exact, except for the lengths of names and ids, and for masks, which are rough estimates."""
        number = block.objects_per_image
        image = (
            self._fixed
            + _letters(block.file_name)
            + (_image_bytes(block, self._image_format) if self._has_image else 0)
        )
        if self._per_annotation:
            return number * image, number
        if block.labels is not None and block.labels.values.size:
            labels = labels_of(block)
            rows = np.array([len(one.row.record) if one.row else 0 for one in labels], np.int64)
            image = image + rows + self._map_bytes(block, labels)
        sizes = image + self._object_bytes * number + (self._part_bytes(block) if self._parts else 0)
        return sizes, np.ones(len(block), np.int64)

    def _part_bytes(self, block: Block) -> np.ndarray:
        number = block.objects_per_image
        total = np.zeros(len(block))
        if Part.MASK_PNG in self._parts:
            total += _OBJECT_MASK_BYTES * number + self.least_mask_bytes(block)
        if Part.MASK_RLE in self._parts and block.segmentation is not None:
            total += _RLE_BYTES_PER_TEXT * np.diff(block.segmentation.starts[block.first_object_of_image])
        if Part.KEYPOINTS in self._parts and block.keypoints_xyv is not None:
            keypoints = starts_of(block.keypoints_xyv.lengths // 3)
            total += _KEYPOINT_BYTES * np.diff(keypoints[block.first_object_of_image])
        if Part.CAPTIONS in self._parts:
            for labels, row in zip(labels_of(block), range(len(block)), strict=True):
                total[row] += sum(len(caption.caption) + 2 for caption in labels.captions)
                total[row] += _VALUE_BYTES[FeatureKind.INT64] * len(labels.caption_index)
                total[row] += _VALUE_BYTES[FeatureKind.FLOAT] * len(labels.caption_value)
        return (total + self._pixels(block) * self._bytes_per_pixel).astype(np.int64)

    def _map_bytes(self, block: Block, labels: Sequence[ImageLabels]) -> np.ndarray:
        """Return the bytes of each image's semantic mask and depth map, less those that `_part_bytes` adds for the
        mask: int64 [N]. Depth maps are stored unchanged, and masks are encoded as PNG again."""
        files = [(row, file) for row, one in enumerate(labels) for file in one.maps if file.part in self._parts]
        file_bytes = np.zeros(len(block))
        guessed_bytes = np.zeros(len(block))
        for row, file in files:
            if file.part is Part.DEPTH or file.file_name.lower().endswith(_COMPRESSED):
                file_bytes[row] += file.file.size_bytes
                guessed_bytes[row] += file.part is Part.SEMANTIC and 1 / _PIXELS_PER_BYTE["semantic.png"]
        if not files:
            return file_bytes.astype(np.int64)
        pixels, whole = self._pixels(block), block.image_size_px if block.tile_xy_px is None else block.whole_size_px
        whole_pixels = whole.prod(axis=1)
        share = np.where(whole_pixels > 0, pixels / np.maximum(whole_pixels, 1), 1.0)
        return np.rint(file_bytes * share - guessed_bytes * pixels).astype(np.int64)

    def least_mask_bytes(self, block: Block) -> np.ndarray:
        """Return the bytes of each image's masks as PNGs if all masks are empty: int64 [N]."""
        if Part.MASK_PNG not in self._parts:
            return np.zeros(len(block), np.int64)
        return block.objects_per_image * self._pixels(block) // _PIXELS_PER_MASK_BYTE

    def _pixels(self, block: Block) -> np.ndarray:
        width, height = block.image_size_px.T
        if self._max_side is not None:
            longer = np.maximum(np.maximum(width, height), 1)
            scale = np.minimum(self._max_side / longer, 1.0)
            # Equal to `recordmill.transforms.images.open_image.shrunk_size`.
            shrunk = [np.maximum(1, np.rint(side * scale)).astype(np.int64) for side in (width, height)]
            is_larger = longer > self._max_side
            width, height = (np.where(is_larger, new, old) for new, old in zip(shrunk, (width, height), strict=True))
        return np.where((block.image_size_px > 0).all(axis=1), width * height, _USUAL_PIXELS)


def _image_bytes(block: Block, image_format: str) -> np.ndarray:
    """Return the bytes of each image: int64 [N]. The size of its file; for a tile, an estimate from its share of the
    image's pixels."""
    if block.tile_xy_px is None:
        return block.file_bytes
    pixels, whole_pixels = block.image_size_px.prod(axis=1), block.whole_size_px.prod(axis=1)
    share = np.where(whole_pixels > 0, pixels / np.maximum(whole_pixels, 1), 1.0)
    if image_format != "keep":
        are_png = np.array([name.lower().endswith(b".png") for name in block.whole_name.rows()], bool)
        is_changed = (whole_pixels > 0) & (are_png != (image_format == "png"))
        share[is_changed] *= _PNG_BYTES_PER_JPEG_BYTE if image_format == "png" else 1 / _PNG_BYTES_PER_JPEG_BYTE
    return np.rint(block.file_bytes * share).astype(np.int64)


def _letters(texts: Ragged) -> np.ndarray:
    """Return the number of characters of each text: int64. In UTF-8, every byte except 10xxxxxx starts one."""
    inner = np.concatenate(([0], np.cumsum(texts.values & 0xC0 == 0x80)))
    return texts.lengths - np.diff(inner[texts.starts])


def _value_bytes(feature: Feature) -> int:
    if feature.part in (Part.MASK_PNG, Part.MASK_RLE):
        return 0
    return prod(map(int, feature.shape[1:])) * _VALUE_BYTES[feature.kind]
