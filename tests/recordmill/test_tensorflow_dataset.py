"""The tf.data reader gives what a training loop takes."""

import numpy as np
import pytest
import tensorflow as tf
from pycocotools.coco import COCO

from recordmill.schemas.errors import ConfigError
from recordmill.tensorflow_dataset import dataset
from tests.conftest import rejects_of


@pytest.mark.parametrize("flags", [(), ("--gzip",)])
def test_images_boxes_and_labels(sample, tmp_path, flags, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3, *flags)
    coco = COCO(sample.instances)
    category_ids = sorted(coco.getCatIds())
    seen = set()
    for example in dataset(str(tmp_path)):
        row = coco.loadImgs(int(example["image_id"]))[0]
        seen.add(row["id"])
        annotations = sorted(coco.loadAnns(coco.getAnnIds(row["id"])), key=lambda ann: ann["id"])
        assert example["image"].dtype == tf.uint8
        assert example["image"].shape == (row["height"], row["width"], 3)
        boxes = np.array([ann["bbox"] for ann in annotations], np.float32).reshape(-1, 4)
        x, y, width, height = boxes.T
        expected = np.stack([y, x, y + height, x + width], -1) / ([row["height"], row["width"]] * 2)
        assert example["boxes"].shape == (len(annotations), 4)
        np.testing.assert_allclose(example["boxes"], expected, atol=1e-6)
        labels = [category_ids.index(ann["category_id"]) for ann in annotations]
        assert example["labels"].numpy().tolist() == labels
        assert example["category_ids"].numpy().tolist() == [ann["category_id"] for ann in annotations]
        assert example["file_name"].numpy().decode() == row["file_name"]
    assert seen == set(coco.getImgIds()) - {reject["id"] for reject in rejects_of(tmp_path)}


def test_a_training_step_on_a_batch(tmp_path, copy_converted):
    """Boxes of many images in one batch, padded, and a gradient that flows."""
    copy_converted(tmp_path, "--num-shards", 3)

    def fixed(example):
        return tf.image.resize(example["image"], (32, 32)) / 255.0, tf.shape(example["boxes"])[0]

    images, counts = next(iter(dataset(str(tmp_path)).map(fixed).batch(16)))
    weights = tf.Variable(tf.zeros((32 * 32 * 3, 1)))
    losses = []
    for _ in range(20):
        with tf.GradientTape() as tape:
            predicted = tf.squeeze(tf.reshape(images, (16, -1)) @ weights, -1)
            loss = tf.reduce_mean((predicted - tf.cast(counts, tf.float32)) ** 2)
        weights.assign_sub(1e-4 * tape.gradient(loss, weights))
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 2


def test_shuffled_shards_give_the_same_examples(tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    plain = [int(example["image_id"]) for example in dataset(str(tmp_path))]
    shuffled = [int(example["image_id"]) for example in dataset(str(tmp_path), shuffle_shards=True, seed=1)]
    assert shuffled != plain
    assert sorted(shuffled) == sorted(plain)


def test_a_split_that_is_not_there(tmp_path, copy_converted):
    copy_converted(tmp_path, "--num-shards", 3)
    with pytest.raises(ConfigError, match="no split 'test'; it has train"):
        dataset(str(tmp_path), "test")


def test_a_data_set_that_is_not_finished(tmp_path):
    with pytest.raises(ConfigError, match=r"has no manifest\.json"):
        dataset(str(tmp_path))
