"""How many records an image will give, and of what size, before it has been read."""

import numpy as np

from recordmill.schemas.block import Block, Ragged, starts_of
from recordmill.schemas.features import Feature, FeatureTable, Kind, Part, RecordOf
from recordmill.schemas.images import ImageTask
from recordmill.schemas.tfrecord import FRAME_BYTES
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.images.transcode_picture import shrunk_size

# Mean bytes of a value: floats are four, ids and labels short varints, names as in COCO, each with its list's overhead.
_VALUE_BYTES = {Kind.FLOAT: 4, Kind.INT64: 2, Kind.BYTES: 9}
_SCALAR_BYTES = 80  # SHA-256, id and the other short texts
_KEYPOINT_BYTES = 4 + 4 + 1 + 12  # x, y, visibility, name

# Of a mask as PNG: what zlib makes of zeros, and what an object has besides, measured on COCO's instances; compressed
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
_USUAL_PIXELS = 640 * 480


class RecordEstimate:
    """Estimates for records of one table; what does not depend on the image is summed up once.

    Args:
        max_side: pixels, to which larger images and their masks are shrunk.
        same_bytes: what a record has that is as large for every image.
    """

    def __init__(self, table: FeatureTable, max_side: int | None = None, same_bytes: int = 0):
        self._max_side = max_side
        self._per_annotation = table.record_of is RecordOf.ANNOTATION
        self._parts = frozenset(table.parts)
        keys = sum(len(feature.name) + 12 for feature in table.features)
        self._has_image = "image.encoded" in table.sources
        self._fixed = keys + _SCALAR_BYTES + FRAME_BYTES + same_bytes
        self._of_object = sum(_value_bytes(feature) for feature in table.features if feature.shape[:1] == ("N",))
        self._of_pixel = sum(1 / _PIXELS_PER_BYTE[source] for source in table.sources & _PIXELS_PER_BYTE.keys())

    def examples(self, task: ImageTask) -> int:
        """How many records the task gives, if nothing of it is rejected."""
        return len(task.annotations) if self._per_annotation else 1

    def bytes(self, task: ImageTask) -> int:
        """Size of the task's framed records: right but for what varies in names and ids, and for masks, which are
        guessed at."""
        image = self._fixed + len(task.file_name) + (task.ref.size_bytes if self._has_image else 0)
        if self._per_annotation:
            return len(task.annotations) * image
        if task.labels.row:
            image += len(task.labels.row.record)
        return image + self._of_object * len(task.annotations) + (self._of_parts(task) if self._parts else 0)

    def of_block(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Sizes of the framed records of each image, and their number: int64 [N] each."""
        number = block.objects_per_image
        image = self._fixed + _letters(block.file_name) + (block.file_bytes if self._has_image else 0)
        if self._per_annotation:
            return number * image, number
        if block.labels is not None:
            rows = (labels.row for labels in labels_of(block))
            image = image + np.array([len(row.record) if row else 0 for row in rows], np.int64)
        sizes = image + self._of_object * number + (self._parts_of_block(block) if self._parts else 0)
        return sizes, np.ones(len(block), np.int64)

    def _parts_of_block(self, block: Block) -> np.ndarray:
        number = block.objects_per_image
        total = np.zeros(len(block))
        if Part.MASK_PNG in self._parts:
            total += _OBJECT_MASK_BYTES * number + self.least_mask_bytes_of_block(block)
        if Part.MASK_RLE in self._parts and block.segmentation is not None:
            total += _RLE_BYTES_PER_TEXT * np.diff(block.segmentation.starts[block.first_object_of_image])
        if Part.KEYPOINTS in self._parts and block.keypoints_xyv is not None:
            keypoints = starts_of(block.keypoints_xyv.lengths // 3)
            total += _KEYPOINT_BYTES * np.diff(keypoints[block.first_object_of_image])
        if Part.CAPTIONS in self._parts:
            for labels, row in zip(labels_of(block), range(len(block)), strict=True):
                total[row] += sum(len(caption.caption) + 2 for caption in labels.captions)
                total[row] += _VALUE_BYTES[Kind.INT64] * len(labels.caption_index)
                total[row] += _VALUE_BYTES[Kind.FLOAT] * len(labels.caption_value)
        return (total + self._pixels_of_block(block) * self._of_pixel).astype(np.int64)

    def least_mask_bytes_of_block(self, block: Block) -> np.ndarray:
        """Bytes that the masks of each image take as PNGs, if they are empty: int64 [N]."""
        if Part.MASK_PNG not in self._parts:
            return np.zeros(len(block), np.int64)
        return block.objects_per_image * self._pixels_of_block(block) // _PIXELS_PER_MASK_BYTE

    def _pixels_of_block(self, block: Block) -> np.ndarray:
        width, height = block.image_size_px.T
        if self._max_side is not None:
            longer = np.maximum(np.maximum(width, height), 1)
            scale = np.minimum(self._max_side / longer, 1.0)
            shrunk = [np.maximum(1, np.rint(side * scale)).astype(np.int64) for side in (width, height)]
            is_larger = longer > self._max_side
            width, height = (np.where(is_larger, new, old) for new, old in zip(shrunk, (width, height), strict=True))
        return np.where((block.image_size_px > 0).all(axis=1), width * height, _USUAL_PIXELS)

    def _of_parts(self, task: ImageTask) -> int:
        total = 0.0
        if Part.MASK_PNG in self._parts:
            total += _OBJECT_MASK_BYTES * len(task.annotations) + self.least_mask_bytes(task)
        if Part.MASK_RLE in self._parts:
            total += _RLE_BYTES_PER_TEXT * sum(len(annotation.segmentation) for annotation in task.annotations)
        if Part.KEYPOINTS in self._parts:
            total += _KEYPOINT_BYTES * sum(len(annotation.keypoints_xyv) // 3 for annotation in task.annotations)
        if Part.CAPTIONS in self._parts:
            total += sum(len(caption.caption) + 2 for caption in task.labels.captions)
            total += _VALUE_BYTES[Kind.INT64] * len(task.labels.caption_index)
            total += _VALUE_BYTES[Kind.FLOAT] * len(task.labels.caption_value)
        return int(total + self._pixels(task) * self._of_pixel)

    def least_mask_bytes(self, task: ImageTask) -> int:
        """What the masks of objects take as PNGs, if they are empty; 0 where they are not wanted so."""
        if Part.MASK_PNG not in self._parts:
            return 0
        return len(task.annotations) * self._pixels(task) // _PIXELS_PER_MASK_BYTE

    def _pixels(self, task: ImageTask) -> int:
        if not (task.width and task.height):
            return _USUAL_PIXELS
        width, height = shrunk_size(task.width, task.height, self._max_side)
        return width * height


def _letters(texts: Ragged) -> np.ndarray:
    """Number of characters of each text: int64. Every byte of UTF-8 begins one, but for 10xxxxxx."""
    inner = np.concatenate(([0], np.cumsum(texts.values & 0xC0 == 0x80)))
    return texts.lengths - np.diff(inner[texts.starts])


def _value_bytes(feature: Feature) -> int:
    if feature.part in (Part.MASK_PNG, Part.MASK_RLE):
        return 0
    values = 1
    for size in feature.shape[1:]:
        values *= int(size)
    return values * _VALUE_BYTES[feature.kind]
