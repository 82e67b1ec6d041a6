"""How many records an image will give, and of what size, before it has been read."""

from recordmill.schemas.features import Feature, FeatureTable, Kind, Part, RecordOf
from recordmill.schemas.images import ImageTask
from recordmill.schemas.tfrecord import FRAME_BYTES
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


def _value_bytes(feature: Feature) -> int:
    if feature.part in (Part.MASK_PNG, Part.MASK_RLE):
        return 0
    values = 1
    for size in feature.shape[1:]:
        values *= int(size)
    return values * _VALUE_BYTES[feature.kind]
