"""Decode records to NumPy arrays, without TensorFlow."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from recordmill._decoding import Decoding, box_axes, pad_value, resize_value
from recordmill.schemas.errors import RecordError
from recordmill.schemas.features import FeatureTable, Form, Reading
from recordmill.schemas.field_features import lengths_source, split_lists
from recordmill.schemas.rejects import UnusableError
from recordmill.transforms.dataset.record_view import RecordView, grey_pixels, segment_ids
from recordmill.transforms.images.load_images import decode_rgb, open_usable_image, require_kind
from recordmill.transforms.images.open_image import stored_size
from recordmill.transforms.records.example import Buffer
from recordmill.transforms.records.parse_record import RecordParser, RecordValues

_AS_STORED = Decoding()
_OBJECT_MASKS = (Form.PNG_MASKS, Form.RLE_MASKS)


class RecordDecoder:
    """Decoder of the records of a data set.

    Args:
        table: Features of the records.
        readings: Values to decode, see `recordmill._split_records.table_readings`.
        keypoints: Number of keypoints per object.
        decoding: Sizes of the values.
    """

    def __init__(
        self, table: FeatureTable, readings: Mapping[str, Reading], keypoints: int, decoding: Decoding = _AS_STORED
    ):
        self._parse = RecordParser(table)
        self._readings = readings
        self._keypoints = keypoints
        self._decoding = decoding
        self._min_size = decoding.resize if decoding.draft and decoding.resize else (0, 0)
        has_masks = any(reading.form in _OBJECT_MASKS for reading in readings.values())
        has_boxes_px = any(map(box_axes, readings.values()))
        self._needs_image_size = has_masks or (decoding.resize is not None and has_boxes_px)

    def __call__(self, record: Buffer) -> dict[str, Any]:
        """Return the values of a record by name. They share no memory with it.

        Raises:
            RecordError: It is not a record of the table, or an image or mask cannot be decoded.
            ConfigError: A list is longer than `pad`.
        """
        try:
            values = self._parse.lazy(record)
            # By header: a draft does not have the stored size.
            image_size_px = _read_image_size(values["image.encoded"]) if self._needs_image_size else (1, 1)
            return self._sized(self._decoded(values, image_size_px), image_size_px)
        except (UnusableError, ValueError) as error:  # ValueError: lists of different lengths
            raise RecordError(f"cannot be decoded: {error}") from error

    def _decoded(self, values: RecordValues, image_size_px: tuple[int, int]) -> dict[str, Any]:
        record = RecordView(values)
        width, height = image_size_px
        decoded: dict[str, Any] = {}
        for name, reading in self._readings.items():
            if reading.form is Form.IMAGE:
                decoded[name] = decode_rgb(values.buffer(reading.source), self._min_size)
            elif reading.form is Form.KEYPOINTS:
                decoded[name] = record.keypoints(len(values["objects.id"]), self._keypoints)
            elif reading.form in _OBJECT_MASKS:
                masks = list(RecordView(values, image_size_px).masks())
                if faults := [mask for mask in masks if isinstance(mask, UnusableError)]:
                    raise faults[0]
                decoded[name] = np.array(masks, np.uint8).reshape(len(masks), height, width)
            else:
                decoded[name] = _decode_value(record, reading)
        return decoded

    def _sized(self, decoded: dict[str, Any], image_size_px: tuple[int, int]) -> dict[str, Any]:
        """Return the decoded values, resized and padded."""
        width, height = image_size_px
        size, pad = self._decoding.resize, self._decoding.pad
        for name, reading in self._readings.items():
            if size is not None:
                decoded[name] = resize_value(decoded[name], reading, (height, width), size)
            if pad is not None:
                decoded[name] = pad_value(name, decoded[name], reading, pad)
        return decoded


def _decode_value(record: RecordView, reading: Reading) -> Any:
    value = record.values[reading.source]
    match reading.form:
        case Form.AS_IT_IS:
            if isinstance(value, bytes):
                return value
            if not reading.shape:
                return value[0]
            return np.array(value).reshape([-1 if size is None else size for size in reading.static_shape])
        case Form.RAGGED:
            lengths = record.values[lengths_source(reading.source)].tolist()
            lists = np.empty(len(lengths), object)
            lists[:] = list(map(np.array, split_lists(value, lengths)))
            return lists
        case Form.DECIMAL:
            return np.int64(record.decimal(reading.source))
        case Form.PIXELS:
            return np.frombuffer(bytearray(value), np.uint8).reshape([int(size) for size in reading.shape])
        case Form.GREY:
            return grey_pixels(value)
        case Form.DEPTH:
            return grey_pixels(value).astype(np.float32) * np.float32(reading.scale)
        case Form.SEGMENT_IDS:  # all 0 if the image has no panoptic PNG
            return segment_ids(value)
        case Form.FLOAT16:
            return np.frombuffer(bytearray(value), "<f2").reshape(record.values["feature.shape"])
        case Form.STACKED:
            return record.boxes_coded
    raise AssertionError(reading.form)


def _read_image_size(data: bytes) -> tuple[int, int]:
    """Return width and height of an encoded image, by header."""
    with open_usable_image(data, require_kind(data)) as image:
        return stored_size(image)
