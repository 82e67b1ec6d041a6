"""A data set folder as a `tf.data.Dataset`, decoded and ready for a training loop.

from schemas.dataset import dataset

for example in dataset("out", split="train"):
    example["image"], example["boxes"], example["labels"]
"""

from typing import TYPE_CHECKING, Any

from schemas.errors import ConfigError
from schemas.features import FeatureTable, parse_spec
from schemas.layouts import LAYOUTS
from schemas.manifest import MANIFEST, Manifest, decode_manifest

if TYPE_CHECKING:
    import tensorflow as tf

_BOX_EDGES = ("objects.ymin", "objects.xmin", "objects.ymax", "objects.xmax")


def dataset(
    path: str, split: str = "train", *, shuffle_shards: bool = False, seed: int | None = None
) -> "tf.data.Dataset":
    """The examples of one split, shards read in parallel.

    Args:
        path: the folder that Recordmill wrote, local or gs://.
        shuffle_shards: visit the shards in another order each epoch, by `seed`; the records within are in random
            order already.

    Returns:
        A dataset of dicts:
            image           uint8 [height, width, 3]
            boxes           float32 [N, 4]: ymin, xmin, ymax, xmax, as fractions of height and width
            labels          int64 [N]: contiguous class index, 0 .. classes - 1
            category_ids    int64 [N]: as in the COCO file
            is_crowd        int64 [N]
            area            float32 [N], pixels² by the COCO file
            image_id        int64 []
            file_name       string []

    Raises:
        ConfigError: no manifest there (the data set is not complete), or no such split.
    """
    import tensorflow as tf

    manifest = _read_manifest(path)
    if split not in manifest.splits:
        raise ConfigError(f"{path} has no split {split!r}; it has {', '.join(manifest.splits)}")
    entry = manifest.splits[split]
    files = tf.data.Dataset.from_tensor_slices([tf.io.gfile.join(path, shard.file) for shard in entry.shards])
    if shuffle_shards:
        files = files.shuffle(len(entry.shards), seed=seed)
    table = LAYOUTS[manifest.layout]
    return (
        files.interleave(
            lambda file: tf.data.TFRecordDataset(file, entry.compression),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=not shuffle_shards or seed is not None,
        )
        .map(lambda record: parse_record(record, table), num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def parse_record(record: "tf.Tensor", table: FeatureTable) -> dict[str, Any]:
    """One serialised record of `table` as the dict that `dataset` yields."""
    import tensorflow as tf

    parsed = tf.io.parse_single_example(record, parse_spec(table))

    def value(source: str) -> "tf.Tensor":
        return parsed[table.name_of(source)]

    return {
        "image": tf.io.decode_image(value("image.encoded"), channels=3, expand_animations=False),
        "boxes": tf.stack([value(edge) for edge in _BOX_EDGES], axis=-1),
        "labels": value("objects.class_index"),
        "category_ids": value("objects.category_id"),
        "is_crowd": value("objects.is_crowd"),
        "area": value("objects.area"),
        "image_id": tf.strings.to_number(value("image.id"), tf.int64),
        "file_name": value("image.file_name"),
    }


def _read_manifest(path: str) -> Manifest:
    import tensorflow as tf

    file = tf.io.gfile.join(path, MANIFEST)
    if not tf.io.gfile.exists(file):
        raise ConfigError(f"{path} has no {MANIFEST}: it is no Recordmill data set, or one that was not finished")
    with tf.io.gfile.GFile(file, "rb") as stream:
        return decode_manifest(stream.read(), file)
