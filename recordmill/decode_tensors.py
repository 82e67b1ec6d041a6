"""A record becomes tensors, within TensorFlow's graph, by the table of `recordmill.schemas.readings`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.schemas.features import Form, Reading, parse_spec
from recordmill.schemas.layouts import BOX_CODINGS
from recordmill.split import Split

if TYPE_CHECKING:
    import tensorflow as tf

Example = dict[str, Any]


def decode_tensors(split: Split, record: "tf.Tensor") -> Example:
    """The values of a serialised record, as `recordmill.decode_record.RecordDecoder` gives them."""
    import tensorflow as tf

    table = split.contents.table
    parsed = tf.io.parse_single_example(record, parse_spec(table))
    values = {feature.source: parsed[feature.name] for feature in table.features}
    decoded: Example = {}
    for name, reading in split.features.items():
        if reading.form is Form.KEYPOINTS:
            decoded[name] = _keypoints(values, split.contents.labels.keypoints)
        elif reading.form in _MASKS:
            decoded[name] = _MASKS[reading.form](values[reading.source], tf.shape(decoded["image"])[:2])
        else:
            decoded[name] = _value(values, reading)
        decoded[name].set_shape([None if reading.form is Form.KEYPOINTS else size for size in reading.static_shape])
    return decoded


def _value(values: Example, reading: Reading) -> "tf.Tensor":
    import tensorflow as tf

    value = values[reading.source]
    match reading.form:
        case Form.AS_IT_IS:
            return value
        case Form.DECIMAL:
            return tf.strings.to_number(value, tf.int64)
        case Form.PICTURE:  # or a PNG. Decoded accurately, pixels are Pillow's; quickly, some differ by up to 21 of 255
            return tf.io.decode_jpeg(value, channels=3, dct_method="INTEGER_ACCURATE")
        case Form.PIXELS:
            return tf.reshape(tf.io.decode_raw(value, tf.uint8), reading.static_shape)
        case Form.GREY:
            return _grey_pixels(value)
        case Form.SEGMENT_IDS:
            pixels = tf.cast(tf.io.decode_png(value, channels=3), tf.int32)
            return tf.reduce_sum(pixels * [1, 1 << 8, 1 << 16], axis=-1)
        case Form.FLOAT16:
            return tf.reshape(tf.io.decode_raw(value, tf.float16), values["feature.shape"])
        case Form.STACKED:
            (coding,) = (coding for coding in BOX_CODINGS if reading.source in coding.sources)
            return tf.stack([values[source] for source in coding.sources], axis=-1)
    raise AssertionError(reading.form)


def _grey_pixels(png: "tf.Tensor") -> "tf.Tensor":
    import tensorflow as tf

    return tf.io.decode_png(png, channels=1)[:, :, 0]


_KEYPOINTS = ("objects.keypoint_x", "objects.keypoint_y", "objects.keypoint_visibility")


def _keypoints(values: Example, each: int) -> "tf.Tensor":
    import tensorflow as tf

    points = tf.stack([tf.cast(values[source], tf.float32) for source in _KEYPOINTS], axis=-1)
    return tf.reshape(points, [tf.shape(values["objects.id"])[0], each, 3])


def _png_masks(pngs: "tf.Tensor", size: "tf.Tensor") -> "tf.Tensor":
    """uint8 [N, height, width], also where N is 0: from no PNG, map_fn could not infer height and width."""
    import tensorflow as tf

    drawn = tf.TensorSpec([None, None], tf.uint8)
    return tf.cond(
        tf.size(pngs) > 0,
        lambda: tf.map_fn(_grey_pixels, pngs, fn_output_signature=drawn),
        lambda: tf.zeros([0, size[0], size[1]], tf.uint8),
    )


def _rle_masks(counts: "tf.Tensor", size: "tf.Tensor") -> "tf.Tensor":
    import tensorflow as tf

    def drawn(counts: Any, size: Any) -> Any:
        from recordmill.transforms.dataset.record_view import rle_mask  # and Pillow

        height, width = size.tolist()
        return np.array([rle_mask(each, (width, height)) for each in counts], np.uint8).reshape(-1, height, width)

    return tf.numpy_function(drawn, [counts, size], tf.uint8, stateful=False)


_MASKS: Mapping[Form, Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"]] = {
    Form.PNG_MASKS: _png_masks,
    Form.RLE_MASKS: _rle_masks,
}
COLOURED = {Form.PICTURE, Form.PIXELS}
OF_PIXELS = {*COLOURED, Form.GREY, Form.SEGMENT_IDS, *_MASKS}
"""What has the height and width of the record's picture."""
