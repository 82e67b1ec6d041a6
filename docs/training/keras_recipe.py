"""Train EfficientNetB0 from scratch, as the Keras recipe "Creating TFRecords" does.

docs/training.md has the commands that write its data set.
"""

import json

import keras
import tensorflow as tf

SIZE, BATCH, STEPS = 224, 32, 50

features = {"image": tf.io.FixedLenFeature([], tf.string), "category_id": tf.io.FixedLenFeature([], tf.int64)}


def parse(record):
    example = tf.io.parse_single_example(record, features)
    return tf.io.decode_jpeg(example["image"], channels=3), example["category_id"]


def prepare(image, category_id):
    return tf.image.resize(image, (SIZE, SIZE)), category_id


examples = tf.data.TFRecordDataset(tf.io.gfile.glob("recipe/file_*.tfrec")).map(parse)
picture, category_id = next(iter(examples))
keras.utils.array_to_img(picture).save(f"category {category_id}.png")  # one image, to look at

with open("recipe/manifest.json") as manifest:
    classes = json.load(manifest)["num_classes"]  # the largest category id, + 1
model = keras.applications.EfficientNetB0(input_tensor=keras.Input((SIZE, SIZE, 3)), weights=None, classes=classes)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
batches = examples.map(prepare).shuffle(10 * BATCH).batch(BATCH).repeat().prefetch(tf.data.AUTOTUNE)
history = model.fit(batches, epochs=1, steps_per_epoch=STEPS)
