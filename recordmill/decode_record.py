"""A record's bytes become numpy arrays, without TensorFlow, by the table of `recordmill.schemas.readings`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from PIL import Image

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
                decoded[name] = _FORMS[reading.form](values, reading)
        return decoded


def _as_it_is(values: Values, reading: Reading) -> Any:
    value = values[reading.source]
    if isinstance(value, bytes):
        return value
    if not reading.shape:
        return value[0]
    return np.array(value).reshape([-1 if size is None else size for size in reading.static_shape])


def _decimal(values: Values, reading: Reading) -> np.int64:
    return np.int64(int(values[reading.source]))


def _picture(values: Values, reading: Reading) -> np.ndarray:
    return np.array(for_jpeg(open_record_picture(values[reading.source])).convert("RGB"))


def _pixels(values: Values, reading: Reading) -> np.ndarray:
    return np.frombuffer(bytearray(values[reading.source]), np.uint8).reshape([int(size) for size in reading.shape])


def _grey(values: Values, reading: Reading) -> np.ndarray:
    return _grey_pixels(open_record_picture(values[reading.source]))


def _grey_pixels(image: Image.Image) -> np.ndarray:
    return np.array(image if image.mode == "L" else image.convert("L"))


def _segment_ids(values: Values, reading: Reading) -> np.ndarray:
    """int32 [height, width]; nothing but 0 where the image has no panoptic PNG."""
    pixels = np.asarray(open_record_picture(values[reading.source]).convert("RGB")).astype(np.int32)
    return pixels[..., 0] | pixels[..., 1] << 8 | pixels[..., 2] << 16


def _float16(values: Values, reading: Reading) -> np.ndarray:
    return np.frombuffer(bytearray(values[reading.source]), "<f2").reshape(values["feature.shape"])


def _edges(values: Values, reading: Reading) -> np.ndarray:
    return np.stack([values[f"objects.{edge}"] for edge in EDGES], axis=-1)


def _keypoints(values: Values, each: int) -> np.ndarray:
    """float32 [N, K, 3], also where K is 0."""
    points = [np.asarray(values[source], np.float32) for source in KEYPOINTS]
    return np.stack(points, axis=-1).reshape(len(values["objects.id"]), each, 3)


def _png_masks(pngs: Iterable[bytes], width: int, height: int) -> np.ndarray:
    return _stacked([_grey_pixels(open_record_picture(png)) for png in pngs], width, height)


def rle_masks(counts: Iterable[bytes], width: int, height: int) -> np.ndarray:
    """uint8 [N, height, width] of COCO's compressed counts."""
    return _stacked([bitmap(decode_counts(each, width, height), width, height) for each in counts], width, height)


def _stacked(masks: list[np.ndarray], width: int, height: int) -> np.ndarray:
    return np.array(masks, np.uint8).reshape(len(masks), height, width)


EDGES = ("ymin", "xmin", "ymax", "xmax")
"""The order in which readers give them."""
KEYPOINTS = ("objects.keypoint_x", "objects.keypoint_y", "objects.keypoint_visibility")
"""Likewise."""

_FORMS: dict[Form, Callable[[Values, Reading], Any]] = {
    Form.AS_IT_IS: _as_it_is,
    Form.DECIMAL: _decimal,
    Form.EDGES: _edges,
    Form.FLOAT16: _float16,
    Form.GREY: _grey,
    Form.PICTURE: _picture,
    Form.PIXELS: _pixels,
    Form.SEGMENT_IDS: _segment_ids,
}
_MASKS: dict[Form, Callable[[Iterable[bytes], int, int], np.ndarray]] = {
    Form.PNG_MASKS: _png_masks,
    Form.RLE_MASKS: rle_masks,
}
