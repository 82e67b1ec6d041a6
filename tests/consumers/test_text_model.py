"""A Keras model of two branches, pictures and sparse texts, trains on our records as they are."""

from pathlib import Path

import keras
import numpy as np
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
        pictures = tf.map_fn(picture, found["image/encoded"], fn_output_signature=tf.float32)
        classes = tf.sparse.to_dense(found["image/object/class/index"])[:, 0]
        return (pictures, found["captions"]), classes

    files = sorted(map(str, folder.glob("coco-train.tfrecord-*")))
    return tf.data.TFRecordDataset(files).repeat().batch(size, drop_remainder=True).map(parsed)


def picture(encoded: tf.Tensor) -> tf.Tensor:
    pixels = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    pixels.set_shape([None, None, 3])
    return tf.image.resize(pixels, (SIDE, SIDE)) / 255.0


def two_branches(terms: int, classes: int) -> keras.Model:
    image, text = keras.Input((SIDE, SIDE, 3)), keras.Input((terms,), sparse=True)
    seen = keras.layers.Conv2D(8, 3, 2, activation="relu")(image)
    both = keras.layers.Concatenate()([keras.layers.Flatten()(seen), keras.layers.Dense(16, activation="relu")(text)])
    return keras.Model([image, text], keras.layers.Dense(classes, activation="softmax")(both))


def test_loss_falls_on_pictures_and_sparse_texts(sample, tmp_path, recordmill):
    more = ["--captions", sample.captions, "--caption-text", "tfidf", "--ngrams", "1,2", "--num-shards", 2]
    assert recordmill(*coco_flags(sample, tmp_path, *more)).code == 0
    words = package.encoders(str(tmp_path))["captions"]
    keras.utils.set_random_seed(0)
    model = two_branches(words.size, classes=5)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    history = model.fit(batches(tmp_path, 11), steps_per_epoch=4, epochs=15, verbose=0)
    assert_falls(history.history["loss"])
    text_weights = next(layer for layer in model.layers if getattr(layer, "units", 0) == 16).kernel
    assert text_weights.shape == (words.size, 16)
    assert np.isfinite(np.asarray(text_weights)).all()
