"""Readers of the same images, boxes and labels by other tools: generators for benchmarks/read_images.py.

Each opens what benchmarks/peers/write_*.py wrote, yields None, and then a tuple of NumPy arrays for each image: image,
boxes and labels, or boxes and labels alone with `keys` of these. `order` has the numbers of the records to read, where
the tool reads them by number; None is the order of the files. The settings are the fastest here of those that the
tool's documentation shows.
"""

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

EDGES = "ymin", "xmin", "ymax", "xmax"
Arrays = Iterator[tuple[np.ndarray, ...] | None]
Order = Sequence[int] | None


def webdataset_by_pillow(folder: Path, keys: Sequence[str], order: Order) -> Arrays:
    return _webdataset(folder, keys, "rgb8")


def webdataset_by_simplejpeg(folder: Path, keys: Sequence[str], order: Order) -> Arrays:
    import simplejpeg
    from webdataset import handle_extension

    return _webdataset(folder, keys, handle_extension("jpg", simplejpeg.decode_jpeg))


def _webdataset(folder: Path, keys: Sequence[str], decoder: str | Callable[..., Any]) -> Arrays:
    from webdataset import WebDataset

    shards = WebDataset(_files(folder / "webdataset"), shardshuffle=False)
    examples = shards.decode(decoder) if "image" in keys else shards.decode(only=["json"])
    yield None
    for example in examples:
        labels = np.array(example["json"]["bbox"], np.float32), np.array(example["json"]["label"])
        yield (example["jpg"], *labels) if "image" in keys else labels


def parquet(folder: Path, keys: Sequence[str], order: Order) -> Arrays:
    """Rows of a memory-mapped Arrow file, which load_dataset makes of the Parquet files once."""
    from datasets import Image as ImageFeature
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    files = _files(folder / "parquet")
    rows = load_dataset("parquet", data_files=files, split="train", cache_dir=str(folder / "arrow"))
    rows = rows.cast_column("image", ImageFeature()) if "image" in keys else rows.remove_columns("image")
    yield None
    for row in rows if order is None else (rows[number] for number in order):
        labels = np.array(row["objects"]["bbox"], np.float32), np.array(row["objects"]["label"])
        yield (np.asarray(row["image"]), *labels) if "image" in keys else labels


def array_record(folder: Path, keys: Sequence[str], order: Order) -> Arrays:
    from array_record.python.array_record_data_source import ArrayRecordDataSource
    from tfrecord import example_pb2

    source = ArrayRecordDataSource(_files(folder / "array_record"))
    yield None
    for number in range(len(source)) if order is None else order:
        values = example_pb2.Example.FromString(source[number]).features.feature
        boxes = [np.array(values[f"image/object/bbox/{edge}"].float_list.value, np.float32) for edge in EDGES]
        labels = np.stack(boxes, axis=-1), np.array(values["image/object/class/label"].int64_list.value)
        if "image" in keys:
            file = BytesIO(values["image/encoded"].bytes_list.value[0])
            yield np.asarray(Image.open(file).convert("RGB")), *labels
        else:
            yield labels


def tf_data(folder: Path, keys: Sequence[str], order: Order) -> Arrays:
    """Our shards by TensorFlow. One thread each, which is faster on one core."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    boxes = [f"image/object/bbox/{edge}" for edge in EDGES]
    label = "image/object/class/index"
    spec: dict[str, Any] = {box: tf.io.RaggedFeature(tf.float32) for box in boxes}
    spec[label] = tf.io.RaggedFeature(tf.int64)
    if "image" in keys:
        spec["image/encoded"] = tf.io.FixedLenFeature([], tf.string)

    def parse(record: Any) -> Any:
        values = tf.io.parse_single_example(record, spec)
        labels = tf.stack([values[box] for box in boxes], axis=-1), values[label]
        return (tf.io.decode_jpeg(values["image/encoded"], channels=3), *labels) if "image" in keys else labels

    examples = tf.data.TFRecordDataset(_files(folder / "ours", "*.tfrecord-*")).map(parse).as_numpy_iterator()
    yield None
    yield from examples


def coco_detection(folder: Path, keys: Sequence[str], order: Order) -> Arrays:
    from torchvision.datasets import CocoDetection

    images = CocoDetection(str(folder / "images"), str(folder / "instances.json"))
    yield None
    for number in range(len(images)) if order is None else order:
        image, rows = images[number]
        yield np.asarray(image), np.array([row["bbox"] for row in rows], np.float32), category_ids(rows)


def category_ids(rows: list[dict[str, Any]]) -> np.ndarray:
    return np.array([row["category_id"] for row in rows])


def _files(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(map(str, folder.glob(pattern)))
