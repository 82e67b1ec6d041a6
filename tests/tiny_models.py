"""Keras models that are small enough to be drawn in a test."""

from pathlib import Path

import keras


def tiny(size: tuple[int | None, int | None] = (16, 12)) -> keras.Model:
    """Model whose features, [4, 3, 5], differ between the classes of drawn images."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((*size, 3), name="picture"),
            keras.layers.Rescaling(1 / 255, name="scale"),
            keras.layers.Conv2D(5, 4, strides=4, name="patches"),
            keras.layers.GlobalAveragePooling2D(name="mean"),
            keras.layers.Dense(2, name="head"),
        ]
    )


def as_given(dtype: str = "float32") -> keras.Model:
    """Gives what it is given."""
    picture = keras.Input((4, 6, 3), dtype=dtype)
    same = keras.layers.Activation("linear", name="same")(picture)
    return keras.Model(picture, keras.layers.GlobalAveragePooling2D()(same))


def saved(model: keras.Model, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(path)
    return str(path)
