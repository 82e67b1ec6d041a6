"""A data set folder as a `tf.data.Dataset`, decoded and ready for a training loop.

from recordmill import dataset

for example in dataset("out", split="train"):
    example["image"], example["boxes"], example["labels"]
"""

from typing import TYPE_CHECKING, Any

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable, RecordOf, parse_spec
from recordmill.schemas.layouts import DECODED_PICTURE, is_of_picture
from recordmill.schemas.manifest import MANIFEST, Manifest, decode_manifest

if TYPE_CHECKING:
    import tensorflow as tf


def dataset(
    path: str, split: str = "train", *, shuffle_shards: bool = False, seed: int | None = None
) -> "tf.data.Dataset":  # long, by the table of what it gives
    """The examples of one split, shards read in parallel.

    Args:
        path: the folder that Recordmill wrote, local or gs://.
        shuffle_shards: visit the shards in another order each epoch; the records within a shard were shuffled when it
            was written.
        seed: of that shuffle; with one, the order of examples is deterministic.

    Returns:
        A dataset of dicts, one per record, with those of the following keys that the layout has:
            image           uint8 [height, width, 3]
            boxes           float32 [N, 4]: ymin, xmin, ymax, xmax, as fractions of height and width
            labels          int64 [N]: contiguous class index, 0 .. classes - 1
            label           int64 []: likewise, for image classification
            category_ids    int64 [N]: as in the COCO file
            annotation_ids  int64 [N]
            is_crowd        int64 [N]
            area            float32 [N], in pixels², from the COCO file; int64 in the layout tfds
            masks           uint8 [N, height, width], 0 and 1
            keypoints       float32 [N, K, 3]: x and y as fractions of width and height, visibility 0, 1 or 2
            captions        string [C]
            caption_index   int64 [T], caption_value float32 [T]: terms of the captions and their weights, see
                            `recordmill.encoders`
            caption_tokens  int64 [L]: ids of their tokens
            semantic        uint8 [height, width]: see semantic_by_id in label_map.json
            categories      uint8 [height, width]: category id of the panoptic segment, void 0; where a category id is 0
                            or less, see label_by_id in label_map.json
            instances       uint8 [height, width]: number of the panoptic segment, 0 for stuff and void
            image_id        int64 []
            file_name       string []
            feature         float32 or float16 [height, width, channels], or what else the model gives
        In the layout keras, where a record is one annotation, there is no dimension N, and `box_xywh_px`, float32 [4],
        stands in for `boxes`: x, y, width, height in pixels.
        Of a table, each feature under its own name: int64, float32 or string []; [N] where it is a list, or [0] or [1]
        where some rows have no value. Where rows name pictures, `image` besides, of the size that was asked for.

    Raises:
        ConfigError: `path` has no manifest (the data set is not complete), or no such split.
    """
    import tensorflow as tf

    manifest = _read_manifest(path)
    if split not in manifest.splits:
        raise ConfigError(f"{path} has no split {split!r}; it has {', '.join(manifest.splits)}")
    entry = manifest.splits[split]
    files = tf.data.Dataset.from_tensor_slices([tf.io.gfile.join(path, shard.file) for shard in entry.shards])
    if shuffle_shards:
        files = files.shuffle(len(entry.shards), seed=seed)
    table, keypoints = manifest.table, manifest.labels.keypoints
    sizes = entry.recipe.options.get("feature_shape")

    def parsed(record: "tf.Tensor") -> dict[str, Any]:
        example = parse_record(record, table, keypoints)
        if isinstance(sizes, list):  # of bytes, TensorFlow would not know it
            example["feature"].set_shape(list(map(int, sizes)))
        return example

    return (
        files.interleave(
            lambda file: tf.data.TFRecordDataset(file, entry.compression),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=not shuffle_shards or seed is not None,
        )
        .map(parsed, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def parse_record(record: "tf.Tensor", table: FeatureTable, keypoints: int = 0) -> dict[str, Any]:
    """Parse one serialised record (string []) of `table` into the dict that `dataset` yields; `keypoints` is K."""
    import tensorflow as tf

    parsed = tf.io.parse_single_example(record, parse_spec(table))
    if table.record_of is RecordOf.ROW:
        return _row(parsed, table)
    values = {feature.source: parsed[feature.name] for feature in table.features}
    if "objects.label" in values:  # which are the category ids, unless the record has both
        values.setdefault("objects.category_id", values["objects.label"])
    decoded = {name: values[source] for source, name in _AS_THEY_ARE.items() if source in values}
    if "image.encoded" in values:
        decoded["image"] = _picture(values["image.encoded"])
    if "image.number" in values:
        decoded["image_id"] = values["image.number"]
    else:
        decoded["image_id"] = tf.strings.to_number(values["image.id"], tf.int64)
    if "feature.bytes" in values:
        decoded["feature"] = tf.reshape(tf.io.decode_raw(values["feature.bytes"], tf.float16), values["feature.shape"])
    if "objects.bbox_yxyx" in values:
        decoded["boxes"] = tf.reshape(values["objects.bbox_yxyx"], [-1, 4])
    elif "objects.xmin" in values:
        edges = [values[f"objects.{edge}"] for edge in ("ymin", "xmin", "ymax", "xmax")]
        decoded["boxes"] = tf.stack(edges, axis=-1)
    for source, name in _MAPS.items():
        if source in values:
            decoded[name] = _grey(values[source])
    if "objects.mask_png" in values:
        decoded["masks"] = _masks(values["objects.mask_png"], tf.shape(decoded["image"])[:2])
    if "objects.keypoint_x" in values:
        visibility = tf.cast(values["objects.keypoint_visibility"], tf.float32)
        points = tf.stack([values["objects.keypoint_x"], values["objects.keypoint_y"], visibility], axis=-1)
        objects = tf.shape(values["objects.id"])[0]
        decoded["keypoints"] = tf.reshape(points, [objects, keypoints, 3])
    return decoded


def _row(parsed: dict[str, Any], table: FeatureTable) -> dict[str, Any]:
    """A row's features as they are, but for its picture."""
    import tensorflow as tf

    row = dict(parsed)
    for feature in filter(is_of_picture, table.features):
        if feature.source == "image.encoded":
            row[DECODED_PICTURE] = _picture(row.pop(feature.name))
        elif feature.is_packed:
            numbers = tf.io.decode_raw(row.pop(feature.name), tf.uint8)
            row[DECODED_PICTURE] = tf.reshape(numbers, list(map(int, feature.shape)))
    return row


def _picture(encoded: "tf.Tensor") -> "tf.Tensor":
    import tensorflow as tf

    return tf.io.decode_image(encoded, channels=3, expand_animations=False)


_AS_THEY_ARE = {
    "captions.index": "caption_index",
    "captions.text": "captions",
    "captions.tokens": "caption_tokens",
    "captions.value": "caption_value",
    "feature.values": "feature",
    "image.class_index": "label",
    "image.file_name": "file_name",
    "objects.area": "area",
    "objects.area_whole": "area",
    "objects.bbox_xywh_px": "box_xywh_px",
    "objects.category_id": "category_ids",
    "objects.class_index": "labels",
    "objects.id": "annotation_ids",
    "objects.is_crowd": "is_crowd",
}
_MAPS = {
    "panoptic.category_png": "categories",
    "panoptic.instance_png": "instances",
    "semantic.png": "semantic",
}


def _masks(pngs: "tf.Tensor", size: "tf.Tensor") -> "tf.Tensor":
    """uint8 [N, height, width], also where N is 0: from no PNG, map_fn could not infer height and width."""
    import tensorflow as tf

    drawn = tf.TensorSpec([None, None], tf.uint8)
    return tf.cond(
        tf.size(pngs) > 0,
        lambda: tf.map_fn(_grey, pngs, fn_output_signature=drawn),
        lambda: tf.zeros([0, size[0], size[1]], tf.uint8),
    )


def _grey(png: "tf.Tensor") -> "tf.Tensor":
    import tensorflow as tf

    return tf.io.decode_png(png, channels=1)[:, :, 0]


def _read_manifest(path: str) -> Manifest:
    import tensorflow as tf

    file = tf.io.gfile.join(path, MANIFEST)
    if not tf.io.gfile.exists(file):
        raise ConfigError(f"{path} has no {MANIFEST}: it is no Recordmill data set, or one that was not finished")
    with tf.io.gfile.GFile(file, "rb") as stream:
        return decode_manifest(stream.read(), file)
