"""Keras trains a head on what `recordmill embed` writes, as the recipe of transfer learning does."""

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from PIL import Image

import recordmill as package


def draw_animals(folder: Path, number: int) -> None:
    """Cats are reddish with stripes across, dogs bluish with upright ones, of any width and place, in noise."""
    numbers = np.random.default_rng(0)
    for index in range(number):
        upright = index % 2
        phase, period = numbers.uniform(0, 9), numbers.uniform(6, 12)
        wave = np.sin((np.arange(96) + phase) * 2 * np.pi / period)
        stripes = np.broadcast_to(wave if upright else wave[:, None], (96, 96))[..., None]
        colour = numbers.uniform(90, 150, 3) + ((-40, 0, 40) if upright else (40, 0, -40))
        colours = colour + stripes * numbers.uniform(15, 40, 3) + numbers.normal(0, 8, (96, 96, 3))
        path = folder / ("Cat", "Dog")[upright] / f"{index}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(colours.clip(0, 255).astype(np.uint8)).save(path)
    (folder / "Cat" / "broken.jpg").write_bytes(b"\xff\xd8 no picture")


def test_a_dense_head_beats_chance(tmp_path, recordmill):
    draw_animals(tmp_path / "images", 240)
    model = ["--model", "efficientnet-b0", "--weights", "none", "--input-size", "96x96"]
    splits = ["--split", "train=0.7,val=0.3", "--stratify", "--max-rejects", 0.01]
    outcome = recordmill("embed", "--images", tmp_path / "images", *model, *splits, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome

    def pairs(split: str) -> tf.data.Dataset:
        return package.open(str(tmp_path / "out"))[split].tensorflow(batch=32, as_supervised=True)

    train = pairs("train").cache()
    shape = train.element_spec[0].shape[1:]
    assert tuple(shape) == (3, 3, 1280)
    keras.utils.set_random_seed(0)
    pool = keras.layers.GlobalAveragePooling2D()
    scale = keras.layers.Normalization()  # random weights give small numbers
    scale.adapt(train.map(lambda feature, _: pool(feature)))
    head = keras.Sequential([keras.Input(shape), pool, scale, keras.layers.Dense(2, activation="softmax")])
    head.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    head.fit(train, epochs=20, verbose=0)
    _, accuracy = head.evaluate(pairs("val"), verbose=0)
    assert accuracy > 0.8, accuracy
