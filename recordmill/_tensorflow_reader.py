"""tf.data.Dataset of a split. TensorFlow's graph decodes the records."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recordmill._decoding import COLOURED, IMAGE_SIZED, Decoding, box_axes
from recordmill._split_records import SplitPiece, SplitRecords
from recordmill.schemas.containers import TFRECORD
from recordmill.schemas.errors import ConfigError, missing_extra
from recordmill.schemas.features import CLASS_OF_ROW, Form, Reading, RecordOf, parse_spec
from recordmill.schemas.field_features import is_field, lengths_source
from recordmill.schemas.layouts import BOX_CODINGS

if TYPE_CHECKING:
    import tensorflow as tf

Example = dict[str, Any]


def decode_tensors(split: SplitRecords, record: "tf.Tensor") -> Example:
    """Return the values of a serialised record, those of `recordmill._decode_record.RecordDecoder`."""
    import tensorflow as tf

    table = split._contents.table
    parsed = tf.io.parse_single_example(record, parse_spec(table))
    values = {feature.source: parsed[feature.name] for feature in table.features}
    decoded: Example = {}
    for name, reading in split.features.items():
        if reading.form is Form.KEYPOINTS:
            decoded[name] = _stack_keypoints(values, split._contents.labels.keypoints)
        elif reading.form in _MASKS:
            image = decoded["image"] if "image" in decoded else _decode_jpeg(values["image.encoded"])
            decoded[name] = _MASKS[reading.form](values[reading.source], tf.shape(image)[:2])
        else:
            decoded[name] = _convert_value(values, reading)
        if reading.form is Form.RAGGED:
            continue
        decoded[name].set_shape([None if reading.form is Form.KEYPOINTS else size for size in reading.static_shape])
    return decoded


def _convert_value(values: Example, reading: Reading) -> "tf.Tensor":
    import tensorflow as tf

    value = values[reading.source]
    match reading.form:
        case Form.AS_IT_IS:
            return value
        case Form.RAGGED:
            return tf.RaggedTensor.from_row_lengths(value, values[lengths_source(reading.source)])
        case Form.DECIMAL:
            return tf.strings.to_number(value, tf.int64)
        case Form.IMAGE:
            return _decode_jpeg(value)
        case Form.PIXELS:
            return tf.reshape(tf.io.decode_raw(value, tf.uint8), reading.static_shape)
        case Form.GREY:
            return _grey_pixels(value)
        case Form.DEPTH:
            units = tf.io.decode_png(value, channels=1, dtype=tf.uint16)[:, :, 0]
            return tf.cast(units, tf.float32) * tf.constant(reading.scale, tf.float32)
        case Form.SEGMENT_IDS:
            pixels = tf.cast(tf.io.decode_png(value, channels=3), tf.int32)
            return tf.reduce_sum(pixels * [1, 1 << 8, 1 << 16], axis=-1)
        case Form.FLOAT16:
            return tf.reshape(tf.io.decode_raw(value, tf.float16), values["feature.shape"])
        case Form.STACKED:
            (coding,) = (coding for coding in BOX_CODINGS if reading.source in coding.sources)
            return tf.stack([values[source] for source in coding.sources], axis=-1)
    raise AssertionError(reading.form)


def _decode_jpeg(data: "tf.Tensor") -> "tf.Tensor":
    """Return the pixels of a JPEG or PNG: uint8 [height, width, 3]. `INTEGER_ACCURATE` gives Pillow's pixels; by
    default, some differ by up to 21 of 255."""
    import tensorflow as tf

    return tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")


def _grey_pixels(png: "tf.Tensor") -> "tf.Tensor":
    import tensorflow as tf

    return tf.io.decode_png(png, channels=1)[:, :, 0]


_KEYPOINTS = ("objects.keypoint_x", "objects.keypoint_y", "objects.keypoint_visibility")


def _stack_keypoints(values: Example, num_keypoints: int) -> "tf.Tensor":
    import tensorflow as tf

    points = tf.stack([tf.cast(values[source], tf.float32) for source in _KEYPOINTS], axis=-1)
    return tf.reshape(points, [tf.shape(values["objects.id"])[0], num_keypoints, 3])


def _png_masks(pngs: "tf.Tensor", size: "tf.Tensor") -> "tf.Tensor":
    """Return masks, uint8 [N, height, width]. map_fn cannot infer height and width if N is 0."""
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
        from recordmill.transforms.dataset.record_view import rle_mask  # imports Pillow

        height, width = size.tolist()
        return np.array([rle_mask(rle, (width, height)) for rle in counts], np.uint8).reshape(-1, height, width)

    return tf.numpy_function(drawn, [counts, size], tf.uint8, stateful=False)


_MASKS: Mapping[Form, Callable[["tf.Tensor", "tf.Tensor"], "tf.Tensor"]] = {
    Form.PNG_MASKS: _png_masks,
    Form.RLE_MASKS: _rle_masks,
}


_CONCURRENT_CHECKS = 16
"""Number of shards that are checked together. In a bucket, each is a request."""
_INTERLEAVED = 16
"""Number of shards that a shuffled order interleaves. It is fixed, because the order depends on it."""
_BUFFER_BYTES = 1 << 28
"""Maximum size of the buffer of shuffled records, before they are decoded."""
_BUFFER_RECORDS = 1 << 14
_READ_BYTES = 8 << 20


class Steps(NamedTuple):
    """Arguments of `recordmill._data_set.Split.tensorflow`."""

    batch: int | None
    shuffle: bool
    seed: int | None
    shard: tuple[int, int] | None
    resize: tuple[int, int] | None
    pad: int | None
    ragged: bool
    drop_remainder: bool
    as_supervised: bool


def tensorflow_dataset(split: SplitRecords, steps: Steps) -> "tf.data.Dataset":
    """Return the tf.data.Dataset of a split.

    Raises:
        ConfigError: The arguments contradict the split, or TensorFlow is not installed.
    """
    try:
        import tensorflow as tf
    except ModuleNotFoundError as error:
        raise missing_extra("Split.tensorflow", "tensorflow") from error

    index, hosts = steps.shard or (0, 1)
    least = len(split) // max(hosts, 1)  # minimum number of records of a host
    _check_arguments(split, steps, least)
    pieces = split._pieces(index, hosts)
    with ThreadPoolExecutor(_CONCURRENT_CHECKS) as pool:  # TensorFlow cannot detect a replaced file
        list(pool.map(lambda piece: split._files.files[piece.number].check(), pieces))
    data = _read_pieces(split, pieces, steps)
    data = data.apply(tf.data.experimental.assert_cardinality(sum(piece.records for piece in pieces)))
    decode = tf.autograph.experimental.do_not_convert(partial(decode_tensors, split))  # it cannot convert `match`
    data = data.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    if steps.resize:
        data = data.map(partial(_resize_images, split.features, steps.resize), num_parallel_calls=tf.data.AUTOTUNE)
    if steps.batch:
        data = _batch_examples(data, split.features, steps)
        if steps.drop_remainder:  # equal for all hosts: one with one more batch would wait for ever
            data = data.take(least // steps.batch)
    if steps.as_supervised:
        data = data.map(partial(_split_label, *_supervised_names(split)))
    return data.prefetch(tf.data.AUTOTUNE)


def _check_arguments(split: SplitRecords, steps: Steps, least: int) -> None:
    """Raise ConfigError if arguments contradict themselves or the data set."""
    index, hosts = steps.shard or (0, 1)
    forms = {reading.form for reading in split.features.values()}
    faults = {
        f"shard=({index}, {hosts}): the index is 0 to hosts - 1": not 0 <= index < hosts,
        f"batch={steps.batch}. Give 1 or more": steps.batch is not None and steps.batch < 1,
        "pad, ragged and drop_remainder need batch": steps.batch is None
        and (steps.pad is not None or steps.ragged or steps.drop_remainder),
        "pad and ragged: a ragged batch is not padded. Give one of them": steps.pad is not None and steps.ragged,
        f"seed={steps.seed}: seed needs shuffle=True": steps.seed is not None and not steps.shuffle,
        "batch: images of different sizes do not form a batch. Give resize=(height, width), or ragged=True": bool(
            steps.batch and not steps.resize and not steps.ragged and forms & (IMAGE_SIZED - {Form.PIXELS})
        ),
        f"drop_remainder: a host has {least:,} records, less than one batch of {steps.batch}": bool(
            steps.drop_remainder and steps.batch and least < steps.batch
        ),
    }
    wrong = list(Decoding(resize=steps.resize, pad=steps.pad).faults(split.features))
    if wrong := wrong + [fault for fault, is_so in faults.items() if is_so]:
        raise ConfigError(f"{split.folder}, split {split.name}: {'; '.join(wrong)}")
    split._check_pad(steps.pad)


def _read_pieces(split: SplitRecords, pieces: list[SplitPiece], steps: Steps) -> "tf.data.Dataset":
    """Return serialised records: string []."""
    import tensorflow as tf

    def generate(number: np.integer, first: np.integer, end: np.integer) -> Iterator[bytes]:
        return map(bytes, split._piece_records(SplitPiece(int(number), int(first), int(end))))

    def read(path: "tf.Tensor", *piece: "tf.Tensor") -> "tf.data.Dataset":
        if split.container != TFRECORD:  # which TensorFlow does not read
            return tf.data.Dataset.from_generator(generate, args=piece, output_signature=tf.TensorSpec([], tf.string))
        _, first, end = piece
        return tf.data.TFRecordDataset(path, split.compression, _READ_BYTES).skip(first).take(end - first)

    if any(piece.repeats is not None for piece in pieces):
        read = _repeating(read, pieces)
    paths = tf.constant([split._files.files[piece.number].path for piece in pieces], tf.string)
    numbers = (
        tf.constant(column, tf.int64) for column in np.array([piece[:3] for piece in pieces], np.int64).reshape(-1, 3).T
    )
    files = tf.data.Dataset.from_tensor_slices((paths, *numbers))
    if not steps.shuffle:
        return files.flat_map(read)
    is_fixed = steps.seed is not None
    records = sum(piece.records for piece in pieces)
    shard_infos = [split.shards[piece.number] for piece in pieces]  # complete shards; pieces may be parts
    bytes_each = max(1, sum(info.bytes for info in shard_infos) // max(1, sum(info.examples for info in shard_infos)))
    buffer = max(1, min(_BUFFER_RECORDS, _BUFFER_BYTES // bytes_each, records))
    return (
        files.shuffle(max(1, len(pieces)), steps.seed)
        .interleave(read, cycle_length=_INTERLEAVED, num_parallel_calls=tf.data.AUTOTUNE, deterministic=is_fixed)
        .shuffle(buffer, steps.seed)
    )


def _repeating(read: Callable[..., "tf.data.Dataset"], pieces: Sequence[SplitPiece]) -> Callable[..., Any]:
    """Return the function that reads a piece with the repetitions of its records."""
    import tensorflow as tf

    lengths = np.zeros(max(piece.number for piece in pieces) + 1, np.int64)  # records by shard
    lengths[[piece.number for piece in pieces]] = [piece.end - piece.first for piece in pieces]
    ends = tf.constant(np.cumsum(lengths), tf.int64)
    repeats = tf.constant(np.concatenate([piece.repeats for piece in pieces]), tf.int64)

    def read_repeated(path: "tf.Tensor", number: "tf.Tensor", first: "tf.Tensor", end: "tf.Tensor") -> Any:
        times = tf.data.Dataset.from_tensor_slices(repeats[ends[number] - (end - first) : ends[number]])
        records = tf.data.Dataset.zip((read(path, number, first, end), times))
        return records.flat_map(lambda record, number: tf.data.Dataset.from_tensors(record).repeat(number))

    return read_repeated


def _resize_images(readings: Mapping[str, Reading], size: tuple[int, int], example: Example) -> Example:
    import tensorflow as tf

    resized = dict(example)
    for name, reading in readings.items():
        if reading.form in COLOURED:
            resized[name] = tf.cast(tf.round(tf.image.resize(example[name], size)), tf.uint8)
        elif reading.form in IMAGE_SIZED:
            resized[name] = tf.image.resize(example[name][..., None], size, "nearest")[..., 0]
        elif axes := box_axes(reading):
            old = tf.shape(example["image"])[:2]
            height, width = tf.unstack(tf.cast(size, tf.float32) / tf.cast(old, tf.float32))
            resized[name] = example[name] * tf.stack([width if axis == "x" else height for axis in axes])
    return resized


def _batch_examples(data: "tf.data.Dataset", readings: Mapping[str, Reading], steps: Steps) -> "tf.data.Dataset":
    import tensorflow as tf

    if steps.ragged:
        return data.ragged_batch(steps.batch, steps.drop_remainder)
    if ragged := {name: reading for name, reading in readings.items() if reading.form is Form.RAGGED}:
        data = data.map(partial(_pad_lists, ragged), num_parallel_calls=tf.data.AUTOTUNE)
    shapes = {
        name: [steps.pad if size is None else size for size in spec.shape] for name, spec in data.element_spec.items()
    }
    paddings = {name: _padding(readings[name], spec.dtype) for name, spec in data.element_spec.items()}
    return data.padded_batch(steps.batch, shapes, paddings, steps.drop_remainder)


def _pad_lists(readings: Mapping[str, Reading], example: Example) -> Example:
    padded = dict(example)
    for name, reading in readings.items():
        padded[name] = example[name].to_tensor(_padding(reading, example[name].dtype))
    return padded


def _padding(reading: Reading, dtype: "tf.DType") -> "tf.Tensor":
    import tensorflow as tf

    return tf.constant("" if dtype == tf.string else reading.padding, dtype)


def _split_label(inputs: str, label: str, example: Example) -> tuple[Any, "tf.Tensor"]:
    if inputs:
        return example[inputs], example[label]
    return {name: value for name, value in example.items() if name != label}, example[label]


def _supervised_names(split: SplitRecords) -> tuple[str, str]:
    """Return the names of the input and of the label. An empty input stands for all other values.

    Raises:
        ConfigError: The records do not have one label each.
    """
    features = split.features
    if split._contents.table.record_of is RecordOf.ROW:
        labels = [name for name, reading in features.items() if reading.source.startswith(CLASS_OF_ROW)]
        inputs = ""
    else:
        names = [name for name in ("label", "labels") if name in features and not is_field(features[name].source)]
        labels = [name for name in names if not features[name].shape]
        inputs = "image" if "image" in features else "feature"
    if not labels or (inputs and inputs not in features):
        raise ConfigError(
            f"{split.folder}, split {split.name}: as_supervised needs an image or feature and one label per "
            f"record, and the records have {', '.join(features)}. Choose inputs and targets by map"
        )
    return inputs, labels[0]
