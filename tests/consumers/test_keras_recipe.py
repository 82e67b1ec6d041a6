"""The reader of the keras.io recipe "Creating TFRecords" reads our records; docs/training.md trains on them."""

from pathlib import Path

import pytest
import tensorflow as tf

RECIPE_FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "path": tf.io.FixedLenFeature([], tf.string),
    "area": tf.io.FixedLenFeature([], tf.float32),
    "bbox": tf.io.VarLenFeature(tf.float32),
    "category_id": tf.io.FixedLenFeature([], tf.int64),
    "id": tf.io.FixedLenFeature([], tf.int64),
    "image_id": tf.io.FixedLenFeature([], tf.int64),
}


def recipe_parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """Parse a record as the recipe does, which decodes PNGs by decode_jpeg, too."""
    example = tf.io.parse_single_example(record, RECIPE_FEATURES)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    return example | {"file": example["image"], "image": image, "bbox": tf.sparse.to_dense(example["bbox"])}


def recipe_dataset(folder: Path) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(tf.io.gfile.glob(f"{folder}/file_*.tfrec")).map(recipe_parse)


def test_every_record(truth, converted):
    seen = []
    for example in recipe_dataset(
        converted(truth, "--layout", "keras", "--examples-per-shard", 20)
    ).as_numpy_iterator():
        image_id = int(example["image_id"])
        row, path = truth.row(image_id), truth.path(image_id)
        (annotation,) = truth.coco.loadAnns(int(example["id"]))
        seen.append(annotation["id"])
        assert annotation["image_id"] == image_id
        assert example["category_id"] == annotation["category_id"]
        assert example["area"] == pytest.approx(annotation["area"], rel=1e-6)
        (edges,) = truth.boxes_xyxy_px(image_id)[truth.values(image_id, "id").index(annotation["id"]), None]
        assert example["bbox"] == pytest.approx([*edges[:2], *(edges[2:] - edges[:2])], rel=1e-6)
        assert example["path"].decode() == row["file_name"]
        assert example["file"] == path.read_bytes()
        assert example["image"].shape == (row["height"], row["width"], 3)
    assert sorted(seen) == sorted(truth.coco.getAnnIds(list(truth.image_ids)))
