"""A Keras model of two branches, pictures and sparse texts, trains on our records as they are."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import recordmill as package
from tests.conftest import coco_flags
from tests.consumers.test_keras_recipe import assert_falls

SIDE = 32


def batches(folder: Path, size: int) -> tf.data.Dataset:
    """((image [B, 32, 32, 3], text [B, terms] sparse), class of the first object [B]), over and over."""
    words = package.encoders(str(folder))["captions"]
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/object/class/index": tf.io.VarLenFeature(tf.int64),
        "captions": words.spec(),
    }

    def parsed(records: tf.Tensor) -> tuple:
        found = tf.io.parse_example(records, spec)
        classes = tf.sparse.to_dense(found["image/object/class/index"])[:, 0]
        return (pictures(found["image/encoded"]), found["captions"]), classes

    files = sorted(map(str, folder.glob("coco-train.tfrecord-*")))
    return tf.data.TFRecordDataset(files).repeat().batch(size, drop_remainder=True).map(parsed)


def rows(folder: Path, size: int) -> tf.data.Dataset:
    """((image [B, 32, 32, 3], text [B, terms] sparse), class [B]) of a table's rows, over and over."""
    words = package.encoders(str(folder))["description"]
    assert words.features == {"index": "description_index", "value": "description_value"}
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "description": words.spec(),
    }

    def parsed(records: tf.Tensor) -> tuple:
        found = tf.io.parse_example(records, spec)
        return (pictures(found["image/encoded"]), found["description"]), found["label"]

    files = sorted(map(str, folder.glob("table-train.tfrecord-*")))
    return tf.data.TFRecordDataset(files).repeat().batch(size, drop_remainder=True).map(parsed)


def raw_rows(folder: Path, size: int) -> tf.data.Dataset:
    """The same of records with raw pixels, by `recordmill.open`."""
    words = package.encoders(str(folder))["description"]

    def whole(row: dict) -> tuple:
        text = tf.sparse.SparseTensor(row["description_index"][:, None], row["description_value"], [words.size])
        return (tf.cast(row["image"], tf.float32) / 255.0, text), row["label"]

    return package.open(str(folder))["train"].tensorflow().repeat().map(whole).batch(size, drop_remainder=True)


def pictures(encoded: tf.Tensor) -> tf.Tensor:
    """[B, 32, 32, 3] of files."""
    return tf.map_fn(picture, encoded, fn_output_signature=tf.float32)


def picture(encoded: tf.Tensor) -> tf.Tensor:
    pixels = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    pixels.set_shape([None, None, 3])
    return tf.image.resize(pixels, (SIDE, SIDE)) / 255.0


def two_branches(terms: int, classes: int) -> keras.Model:
    image, text = keras.Input((SIDE, SIDE, 3)), keras.Input((terms,), sparse=True)
    seen = keras.layers.Conv2D(8, 3, 2, activation="relu")(image)
    both = keras.layers.Concatenate()([keras.layers.Flatten()(seen), keras.layers.Dense(16, activation="relu")(text)])
    return keras.Model([image, text], keras.layers.Dense(classes, activation="softmax")(both))


def fit(examples: tf.data.Dataset, terms: int, classes: int) -> None:
    """Train, and see that the loss falls and the words' branch has learned."""
    keras.utils.set_random_seed(0)
    model = two_branches(terms, classes)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    history = model.fit(examples, steps_per_epoch=4, epochs=15, verbose=0)
    assert_falls(history.history["loss"])
    text_weights = next(layer for layer in model.layers if getattr(layer, "units", 0) == 16).kernel
    assert text_weights.shape == (terms, 16)
    assert np.isfinite(np.asarray(text_weights)).all()


def test_loss_falls_on_captions_of_coco(sample, tmp_path, recordmill):
    more = ["--captions", sample.captions, "--caption-text", "tfidf", "--ngrams", "1,2", "--num-shards", 2]
    assert recordmill(*coco_flags(sample, tmp_path, *more)).code == 0
    fit(batches(tmp_path, 11), package.encoders(str(tmp_path))["captions"].size, classes=5)


@pytest.mark.parametrize(("read", "more"), [(rows, []), (raw_rows, ["--raw-size", f"{SIDE}x{SIDE}"])])
def test_loss_falls_on_rows_with_pictures_and_descriptions(sample, tmp_path, recordmill, read, more):
    table = ["--rows", sample.pictures, "--images", sample.classes, "--image-column", "image", "--label", "label"]
    names = "index=description_index,value=description_value"
    texts = ["--text-column", "description", "--text", "counts", "--text-names", names]
    outcome = recordmill("table", *table, *texts, "--split", "train=0.7,val=0.3", "--output", tmp_path, *more)
    assert outcome.code == 0, outcome
    classes = json.loads((tmp_path / "encoders" / "classes.json").read_text())
    assert sorted(classes["classes"]) == sorted({path.name for path in Path(sample.classes).iterdir()})
    fit(read(tmp_path, 5), package.encoders(str(tmp_path))["description"].size, len(classes["classes"]))
