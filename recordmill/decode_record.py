"""A record's bytes become numpy arrays, without TensorFlow, by the table of `recordmill.schemas.readings`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from recordmill.schemas.errors import RecordError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.readings import Form, Reading
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.draw.open_record_picture import open_record_picture
from recordmill.transforms.images.transcode_picture import for_jpeg
from recordmill.transforms.masks.bitmaps import bitmap
from recordmill.transforms.masks.decode_segmentation import decode_counts
from recordmill.transforms.records.record_values import RecordParser

Values = Mapping[str, Any]
"""Of a record, by source, as `RecordParser` gives them."""


class RecordDecoder:
    """Decodes the records of one data set.

    Args:
        table: what is in the records.
        readings: what is given of them, see `recordmill.schemas.readings.readings_of`.
        keypoints: of each object.
    """

    def __init__(self, table: FeatureTable, readings: Mapping[str, Reading], keypoints: int):
        self._parse = RecordParser(table)
        self._readings = readings
        self._keypoints = keypoints

    def __call__(self, record: bytes) -> dict[str, Any]:
        """The values of a record by name.

        Raises:
            RecordError: it is no record of the table, or a picture or mask in it cannot be decoded.
        """
        try:
            return self._decoded(self._parse(record))
        except (UnusableError, ValueError) as error:  # the latter of lists that do not go together, too
            raise RecordError(f"cannot be decoded: {error}") from error

    def _decoded(self, values: Values) -> dict[str, Any]:
        decoded: dict[str, Any] = {}
        for name, reading in self._readings.items():
            if reading.form is Form.KEYPOINTS:
                decoded[name] = _keypoints(values, self._keypoints)
            elif reading.form in _MASKS:
                height, width = decoded["image"].shape[:2]
                decoded[name] = _MASKS[reading.form](values[reading.source], width, height)
            else:
                decoded[name] = _value(values, reading)
        return decoded


def _value(values: Values, reading: Reading) -> Any:
    value = values[reading.source]
    match reading.form:
        case Form.AS_IT_IS:
            if isinstance(value, bytes):
                return value
            if not reading.shape:
                return value[0]
            return np.array(value).reshape([-1 if size is None else size for size in reading.static_shape])
        case Form.DECIMAL:
            return np.int64(int(value))
        case Form.PICTURE:
            return np.array(for_jpeg(open_record_picture(value)).convert("RGB"))
        case Form.PIXELS:
            return np.frombuffer(bytearray(value), np.uint8).reshape([int(size) for size in reading.shape])
        case Form.GREY:
            return _grey_pixels(value)
        case Form.SEGMENT_IDS:  # nothing but 0 where the image has no panoptic PNG
            pixels = np.asarray(open_record_picture(value).convert("RGB")).astype(np.int32)
            return pixels[..., 0] | pixels[..., 1] << 8 | pixels[..., 2] << 16
        case Form.FLOAT16:
            return np.frombuffer(bytearray(value), "<f2").reshape(values["feature.shape"])
        case Form.EDGES:
            return np.stack([values[f"objects.{edge}"] for edge in EDGES], axis=-1)
    raise AssertionError(reading.form)


def _grey_pixels(png: bytes) -> np.ndarray:
    image = open_record_picture(png)
    return np.array(image if image.mode == "L" else image.convert("L"))


def _keypoints(values: Values, each: int) -> np.ndarray:
    """float32 [N, K, 3], also where K is 0."""
    points = [np.asarray(values[source], np.float32) for source in KEYPOINTS]
    return np.stack(points, axis=-1).reshape(len(values["objects.id"]), each, 3)


def _png_masks(pngs: Iterable[bytes], width: int, height: int) -> np.ndarray:
    return _stacked(list(map(_grey_pixels, pngs)), width, height)


def rle_masks(counts: Iterable[bytes], width: int, height: int) -> np.ndarray:
    """uint8 [N, height, width] of COCO's compressed counts."""
    return _stacked([bitmap(decode_counts(each, width, height), width, height) for each in counts], width, height)


def _stacked(masks: list[np.ndarray], width: int, height: int) -> np.ndarray:
    return np.array(masks, np.uint8).reshape(len(masks), height, width)


EDGES = ("ymin", "xmin", "ymax", "xmax")
"""The order in which readers give them."""
KEYPOINTS = ("objects.keypoint_x", "objects.keypoint_y", "objects.keypoint_visibility")
"""Likewise."""

_MASKS: dict[Form, Callable[[Iterable[bytes], int, int], np.ndarray]] = {
    Form.PNG_MASKS: _png_masks,
    Form.RLE_MASKS: rle_masks,
}
