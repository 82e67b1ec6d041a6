"""Expected number and size of the records of an image, one image at a time."""

from recordmill.schemas.features import FeatureKind, FeatureTable, Part, RecordOf
from recordmill.schemas.inputs.images import ImageTask
from recordmill.transforms.encoders.estimate_records import (
    _KEYPOINT_BYTES,
    _OBJECT_MASK_BYTES,
    _PIXELS_PER_BYTE,
    _PIXELS_PER_MASK_BYTE,
    _RLE_BYTES_PER_TEXT,
    _SCALAR_BYTES,
    _USUAL_PIXELS,
    _VALUE_BYTES,
    _value_bytes,
)
from recordmill.transforms.images.open_picture import shrunk_size
from recordmill.transforms.records.tfrecord import framed


class ScalarEstimate:
    """Estimates for records of one table; `max_side` in pixels, to which larger images and masks are shrunk."""

    def __init__(self, table: FeatureTable, max_side: int | None = None):
        self._max_side = max_side
        self._per_annotation = table.record_of is RecordOf.ANNOTATION
        self._parts = frozenset(table.parts)
        keys = sum(len(feature.name) + 12 for feature in table.features)
        self._has_image = "image.encoded" in table.sources
        self._fixed = framed(keys + _SCALAR_BYTES)
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
            total += _VALUE_BYTES[FeatureKind.INT64] * len(task.labels.caption_index)
            total += _VALUE_BYTES[FeatureKind.FLOAT] * len(task.labels.caption_value)
        return int(total + self._pixels(task) * self._of_pixel)

    def least_mask_bytes(self, task: ImageTask) -> int:
        """Size of the masks of objects as empty PNGs; 0 without PNG masks."""
        if Part.MASK_PNG not in self._parts:
            return 0
        return len(task.annotations) * self._pixels(task) // _PIXELS_PER_MASK_BYTE

    def _pixels(self, task: ImageTask) -> int:
        if not (task.width and task.height):
            return _USUAL_PIXELS
        width, height = shrunk_size(task.width, task.height, self._max_side)
        return width * height
