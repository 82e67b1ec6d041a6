"""Keras trains on our records: as the keras.io recipe "Creating TFRecords" does, and on batches of boxes."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import recordmill as package
from tests.conftest import coco_flags, write_coco
from tests.consumers.coco_truth import Truth

RECIPE_FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "path": tf.io.FixedLenFeature([], tf.string),
    "area": tf.io.FixedLenFeature([], tf.float32),
    "bbox": tf.io.VarLenFeature(tf.float32),
    "category_id": tf.io.FixedLenFeature([], tf.int64),
    "id": tf.io.FixedLenFeature([], tf.int64),
    "image_id": tf.io.FixedLenFeature([], tf.int64),
}


def recipe_files(folder: Path) -> list[str]:
    return sorted(tf.io.gfile.glob(f"{folder}/file_*.tfrec"))


def recipe_parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    """As the recipe does: PNG goes through decode_jpeg, too."""
    example = tf.io.parse_single_example(record, RECIPE_FEATURES)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    return example | {"file": example["image"], "image": image, "bbox": tf.sparse.to_dense(example["bbox"])}


def recipe_dataset(folder: Path) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(recipe_files(folder)).map(recipe_parse)


def assert_falls(losses: list[float]) -> None:
    """The median, because dropout makes a step jump now and then."""
    assert np.isfinite(losses).all()
    assert np.median(losses[-7:]) < np.mean(losses[:3]) / 2, losses


def test_every_record(truth, tmp_path, recordmill):
    outcome = recordmill("coco", *truth.flags, "--output", tmp_path, "--layout", "keras")
    assert outcome.code == 0, outcome
    seen = []
    for example in recipe_dataset(tmp_path).as_numpy_iterator():
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


@pytest.mark.parametrize(("flags", "limit"), [((), 4096), (("--examples-per-shard", 20), 20)])
def test_files_are_named_by_number_and_examples(sample, tmp_path, recordmill, flags, limit):
    """The recipe opens file_00-4096.tfrec by name, so full means full, where no image is broken."""
    truth = Truth(sample.images, sample.instances)
    whole = truth.coco.loadImgs(sorted(truth.image_ids))
    annotations = truth.coco.loadAnns(truth.coco.getAnnIds(sorted(truth.image_ids)))
    instances = write_coco(tmp_path, whole, annotations, truth.categories)
    out = tmp_path / "out"
    arguments = ["--images", sample.images, "--instances", instances, "--output", out, "--layout", "keras", *flags]
    assert recordmill("coco", *arguments).code == 0
    numbers, named, counted = [], [], []
    for file in recipe_files(out):
        number, examples = re.fullmatch(r"file_(\d\d)-(\d+)\.tfrec", Path(file).name).groups()
        numbers.append(int(number))
        named.append(int(examples))
        counted.append(sum(1 for _ in tf.data.TFRecordDataset(file)))
    assert numbers == list(range(len(numbers)))
    assert named == counted
    full, rest = divmod(len(annotations), limit)
    assert named == [limit] * full + [rest] * (rest > 0)


def test_the_recipe_s_network_learns_from_the_recipe_s_records(sample, tmp_path, recordmill):
    """EfficientNetB0 from nothing, on one annotation of each of sixteen images, until it knows them by heart."""
    assert recordmill(*coco_flags(sample, tmp_path, "--layout", "keras")).code == 0
    truth = Truth(sample.images, sample.instances)
    chosen = [ids[0] for image_id in sorted(truth.image_ids) if (ids := truth.values(image_id, "id"))][:16]

    def is_chosen(example):
        return tf.reduce_any(example["id"] == chosen)

    def prepare(example):
        return tf.image.resize(example["image"], (32, 32)), example["category_id"]

    keras.utils.set_random_seed(0)
    classes = max(truth.coco.getCatIds()) + 1
    model = keras.applications.EfficientNetB0(
        input_tensor=keras.Input((32, 32, 3), name="image"), weights=None, classes=classes
    )
    model.compile(optimizer=keras.optimizers.Adam(), loss=keras.losses.SparseCategoricalCrossentropy())
    batches = recipe_dataset(tmp_path).filter(is_chosen).map(prepare).batch(16, drop_remainder=True).cache().repeat()
    losses = model.fit(batches, epochs=24, steps_per_epoch=1, verbose=0).history["loss"]
    assert_falls(losses)


def test_a_padded_batch_of_the_detection_layout_trains_boxes_and_classes(sample, tmp_path, recordmill):
    """A toy detector with one slot an object: what matters is that a batch has the boxes and a gradient flows."""
    assert recordmill(*coco_flags(sample, tmp_path)).code == 0
    truth = Truth(sample.images, sample.instances)

    batch = next(iter(package.open(str(tmp_path))["train"].tensorflow(batch=8, resize=(64, 64))))
    slots = batch["labels"].shape[1]
    for image_id, boxes, labels in zip(*(batch[key].numpy() for key in ("image_id", "boxes", "labels")), strict=True):
        expected = truth.class_indices(int(image_id))
        assert labels.tolist() == expected + [-1] * (slots - len(expected))
        np.testing.assert_allclose(boxes[: len(expected)], truth.boxes_yxyx_frac(int(image_id)), rtol=1e-6)

    keras.utils.set_random_seed(0)
    classes = len(truth.categories)
    model = keras.Sequential(
        [
            keras.Input((64, 64, 3)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(slots * (4 + classes)),
            keras.layers.Reshape((slots, 4 + classes)),
        ]
    )
    optimizer = keras.optimizers.Adam()
    there = tf.cast(batch["labels"] >= 0, tf.float32)
    losses = []
    for _ in range(40):
        with tf.GradientTape() as tape:
            boxes, logits = tf.split(model(batch["image"], training=True), [4, classes], axis=-1)
            of_boxes = tf.reduce_sum(tf.abs(boxes - batch["boxes"]), axis=-1)
            of_classes = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(batch["labels"], 0), logits)
            loss = tf.reduce_sum(there * (of_boxes + of_classes)) / tf.reduce_sum(there)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        losses.append(float(loss))
    assert_falls(losses)
