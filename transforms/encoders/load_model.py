"""A model, once a process, as a function from pictures to features."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from apache_beam.utils.shared import Shared

from recordmill.schemas.errors import ConfigError, JobError
from recordmill.schemas.inputs.models import PREPROCESSING, FeatureModel, ModelChoice
from recordmill.transforms.encoders.build_model import application, brief, build_model, feature_output, module_of

_LOADED = Shared()
"""The model of this process, whichever step or thread asks for it."""

_PICTURE_RANK = 4
_SELF_SCALING = ("Rescaling", "Normalization")


class LoadedModel(NamedTuple):
    """A model and what was found of it.

    Attributes:
        features: of uint8 pixels [batch, height, width, 3], RGB, float32 [batch, *feature_shape].
    """

    found: FeatureModel
    features: Any


class _Kept:
    """Object that Shared can hold: it needs weak references."""

    def __init__(self, loaded: LoadedModel):
        self.loaded = loaded


def load_model(choice: ModelChoice) -> LoadedModel:
    """The model that is chosen, as its files are now, for `load_same` to find.

    Raises:
        ConfigError: it cannot be loaded, takes no pictures, or says too little of itself.
    """
    loaded = _load(choice)
    return _shared(choice, loaded.found, lambda: loaded)


def load_same(choice: ModelChoice, found: FeatureModel) -> LoadedModel:
    """The model that `load_model` found, here or in another process; loaded once a process.

    Raises:
        JobError: this process finds another model.
    """
    return _shared(choice, found, lambda: _load_same(choice, found))


def _shared(choice: ModelChoice, found: FeatureModel, load: Callable[[], LoadedModel]) -> LoadedModel:
    kept: _Kept = _LOADED.acquire(lambda: _Kept(load()), tag=(choice, found))
    return kept.loaded


def _load_same(choice: ModelChoice, found: FeatureModel) -> LoadedModel:
    try:
        loaded = _load(choice)
    except ConfigError as error:
        raise JobError(f"a worker cannot load the model that the job was started with: {error}") from error
    for name in ("layers", "input_size", "preprocess", "feature_shape", "weights_sha256"):
        here, there = getattr(loaded.found, name), getattr(found, name)
        if here != there:
            raise JobError(
                f"--model {choice.model} has another {name} here, {here}, than where the job was started, {there}; "
                "see that all workers have the same files and versions of TensorFlow and Keras"
            )
    return loaded


def _load(choice: ModelChoice) -> LoadedModel:
    import keras
    import tensorflow as tf

    if keras.config.backend() != "tensorflow":
        raise ConfigError(
            f"Keras runs on {keras.config.backend()} here, and features are made by its backend for TensorFlow: set "
            "KERAS_BACKEND=tensorflow"
        )
    model = build_model(choice)
    size = _input_size(model, choice)
    layer, output = feature_output(model, choice)
    name, preprocess = _preprocessing(model, choice)
    part = _up_to(model, layer, output, choice)
    pixels = keras.Input((*size, 3), dtype=model.inputs[0].dtype)
    feature = _pooled(part(pixels), choice)
    shape = _fixed_shape(feature, choice, layer)
    whole = keras.Model(pixels, feature)

    @tf.function(input_signature=[tf.TensorSpec([None, *size, 3], tf.uint8)])
    def features(pictures):
        prepared = preprocess(tf.cast(pictures, tf.float32))
        return tf.cast(whole(tf.cast(prepared, pixels.dtype), training=False), tf.float32)

    return LoadedModel(FeatureModel(layer, len(part.layers), size, name, shape, _sha256(part.weights)), features)


def _input_size(model: Any, choice: ModelChoice) -> tuple[int, int]:
    """Height and width of the pictures that a model takes."""
    if not getattr(model, "inputs", None):
        raise ConfigError(
            f"--model {choice.model} does not say what it takes: it was saved before it was built, or its layers are "
            "called by its own code; give it a keras.Input"
        )
    shapes = [tuple(tensor.shape) for tensor in model.inputs]
    takes = " and ".join(f"{shape} of {tensor.dtype}" for shape, tensor in zip(shapes, model.inputs, strict=True))
    (shape, *more) = shapes
    dtype = model.inputs[0].dtype
    is_picture = len(shape) == _PICTURE_RANK and shape[-1] == 3 and (dtype == "uint8" or "float" in dtype)
    if more or not is_picture:
        raise ConfigError(
            f"--model {choice.model} takes {takes}, which is no batch of RGB pictures, (None, height, width, 3) of "
            "float32 or uint8"
        )
    own, asked = shape[1:3], choice.input_size
    if asked and any(side not in (None, wanted) for side, wanted in zip(own, asked, strict=True)):
        raise ConfigError(f"--input-size {_size(asked)}: {choice.model} takes {_size(own)} only; leave the flag out")
    if not asked and None in own:
        raise ConfigError(f"--model {choice.model} takes pictures of any size: give --input-size, 224x224 for example")
    return asked or own


def _size(size: tuple[int | None, int | None]) -> str:
    return "x".join(map(str, size))


def _preprocessing(model: Any, choice: ModelChoice) -> tuple[str, Callable[[Any], Any]]:
    """Its name, and what is done with float32 pixels of 0 to 255."""
    from keras import applications

    if choice.preprocess in ("tf", "torch", "caffe"):
        mode = choice.preprocess
        return mode, lambda pixels: applications.imagenet_utils.preprocess_input(pixels, mode=mode)
    if choice.preprocess == "unit":
        return choice.preprocess, lambda pixels: pixels / 255.0
    if choice.preprocess:
        return choice.preprocess, lambda pixels: pixels
    if name := application(choice.model):
        module = module_of(name)
        return f"keras.applications.{module}.preprocess_input", getattr(applications, module).preprocess_input
    if any(type(layer).__name__ in _SELF_SCALING for layer in model.layers):
        return "none", lambda pixels: pixels
    raise ConfigError(
        f"--model {choice.model} has no {' or '.join(_SELF_SCALING)} layer, so it does not say how it wants its "
        f"pixels: give --preprocess, one of {', '.join(PREPROCESSING)} (none: 0 to 255, unit: 0 to 1, tf: -1 to 1)"
    )


def _up_to(model: Any, layer: str, output: Any, choice: ModelChoice) -> Any:
    import keras

    try:
        return keras.Model(model.inputs, output)
    except ValueError as error:  # of a layer within a layer, for example
        raise ConfigError(
            f"--layer {layer}: {choice.model} cannot be cut there ({brief(error)}); name another, or save that "
            "part as a separate model"
        ) from error


def _pooled(output: Any, choice: ModelChoice) -> Any:
    import keras

    if choice.pool == "none":
        return output
    if len(output.shape) != _PICTURE_RANK:
        raise ConfigError(
            f"--pool {choice.pool} takes (None, height, width, channels), and the layer's is {output.shape}; "
            "leave it out, or name a layer before pooling by --layer"
        )
    return keras.layers.GlobalAveragePooling2D()(output)


def _fixed_shape(output: Any, choice: ModelChoice, layer: str) -> tuple[int, ...]:
    """The shape of one picture's feature."""
    shape = tuple(output.shape)[1:]
    if not shape or None in shape or "float" not in output.dtype:
        raise ConfigError(
            f"--layer {layer}: its output of {choice.model} is {tuple(output.shape)} of {output.dtype}, and features "
            "are floats of one known shape a picture; name another"
        )
    return shape


def _sha256(weights: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for weight in weights:
        value = np.asarray(weight)
        digest.update(value.astype(value.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()
