"""Models of keras.applications and .keras files: loaded once per process, as functions from images to features.

TensorFlow is imported inside functions. Any exception of Keras becomes a ConfigError in one line.
"""

import difflib
import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from apache_beam.utils.shared import Shared

from recordmill.schemas.errors import ConfigError, JobError
from recordmill.schemas.inputs.models import FETCHED, ON_DISK, PREPROCESSING, RANDOM, FeatureModel, ModelChoice
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.storage.resolve import local_copy

_SEED = 0
"""Seed of random weights, equal in every run and process."""
_ENDING = ".keras"
_POOLING = ("GlobalAveragePooling2D", "GlobalMaxPooling2D", "Flatten")


def application_name(name: str) -> str:
    """Return the name in keras.applications; empty for a file.

    Raises:
        ConfigError: The name is neither.
    """
    from keras import applications

    if "/" in name or name.endswith(_ENDING) or os.path.exists(name):
        return ""
    known = {
        _fold_model_name(model_name): model_name
        for model_name in dir(applications)
        if callable(getattr(applications, model_name))
    }
    if official_name := known.get(_fold_model_name(name)):
        return official_name
    near = difflib.get_close_matches(_fold_model_name(name), known, 1)
    meant = f". Did you mean {known[near[0]]}?" if near else ""
    raise ConfigError(f"--model {name} is neither a model of keras.applications nor a .keras file{meant}")


def _fold_model_name(name: str) -> str:
    """Return a name in lower case, without separators, for comparisons.

    >>> _fold_model_name("efficientnet-b0") == _fold_model_name("EfficientNetB0")
    True
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def build_model(choice: ModelChoice) -> Any:
    """Return the chosen model with weights and requested input size.

    Raises:
        ConfigError: There is no such model, or its weights do not fit.
    """
    if name := application_name(choice.model):
        return _build_application(name, choice)
    model = _load_keras_file(choice)
    if choice.weights in (RANDOM, ON_DISK, FETCHED):
        raise ConfigError(
            f"--weights {choice.weights} is for models of keras.applications; {choice.model} has its own weights"
        )
    if choice.weights:
        _load_weights(model, choice.weights)
    return model


def _build_application(name: str, choice: ModelChoice) -> Any:
    size = choice.input_size or _default_size(name)
    weights = choice.weights or ON_DISK
    if weights in (FETCHED, ON_DISK):
        with forbid_downloads() if weights == ON_DISK else nullcontext():
            return _construct_application(name, size, "imagenet")
    model = _construct_application(name, size, None)
    if weights != RANDOM:
        _load_weights(model, weights)
    return model


def _default_size(name: str) -> tuple[int, int]:
    """Return the input size of keras.applications' model with top."""
    height, width = _constructor(name)(weights=None).input_shape[1:3]
    if not (height and width):
        raise ConfigError(f"--model {name} accepts images of any size. Set --input-size, for example 224x224")
    return height, width


def _construct_application(name: str, size: tuple[int, int], weights: str | None) -> Any:
    try:
        model = _constructor(name)(include_top=False, weights=weights, input_shape=(*size, 3))
    except ConfigError:
        raise
    except Exception as error:  # failed downloads, sizes that are too small …
        fault = f"--model {name} of {size[0]}x{size[1]} pixels cannot be built: {describe_keras_error(error)}"
        if weights is None:
            raise ConfigError(fault) from error
        raise ConfigError(
            f"{fault}. If its weights cannot be downloaded, give --weights FILE, or --weights {RANDOM} for random "
            "weights"
        ) from error
    if weights is None:
        _draw_weights(model)
    return model


def _draw_weights(model: Any) -> None:
    """Set random weights, equal in every process. Keras seeds its own from Python's `random`, which other threads use.
    They preserve the variance (He et al., https://arxiv.org/abs/1502.01852)."""
    for number, variable in enumerate(model.weights):
        shape = tuple(variable.shape)
        if len(shape) > 1:  # others start as constants
            inputs = math.prod(shape[:-1] if shape[-1] > 1 else shape[:-2])  # a depthwise kernel has one input channel
            drawn = np.random.default_rng((_SEED, number)).normal(0, math.sqrt(2 / inputs), shape)
            variable.assign(drawn.astype(np.float32))


def _constructor(name: str) -> Any:
    from keras import applications

    return getattr(applications, name)


@contextmanager
def forbid_downloads() -> Iterator[None]:
    """Let Keras read weights only from its local folder of models; it downloads none."""
    import keras

    home = import_module(keras.utils.get_file.__module__)
    fetch = home.get_file

    def read_local_file(fname: str, *arguments: Any, cache_subdir: str = "models", **named: Any) -> str:
        folder = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / cache_subdir
        expected = named.get("file_hash")
        if not (folder / fname).is_file():
            raise ConfigError(
                f"--weights {ON_DISK}: {folder / fname} does not exist. Give --weights {FETCHED} to let Keras "
                f"download it, --weights FILE for other weights, or --weights {RANDOM} for random weights"
            )
        data = (folder / fname).read_bytes()
        if expected and len(expected) == 32 and hashlib.md5(data, usedforsecurity=False).hexdigest() != expected:
            raise ConfigError(
                f"--weights {ON_DISK}: {folder / fname} is not the file that Keras publishes (its MD5 differs). "
                f"Delete it, and give --weights {FETCHED} to let Keras download it again"
            )
        return str(folder / fname)

    home.get_file = read_local_file  # type: ignore[attr-defined]
    try:
        yield
    finally:
        home.get_file = fetch  # type: ignore[attr-defined]


def _load_weights(model: Any, path: str) -> None:
    """Load the weights of a file. Keras raises if a layer's weights differ from the file's or are missing."""
    with local_copy(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.load_weights(file)
        except Exception as error:  # Keras and h5py raise any exception
            raise ConfigError(f"--weights {path} do not fit {model.name}: {describe_keras_error(error)}") from error


def _load_keras_file(choice: ModelChoice) -> Any:
    import keras

    if not choice.model.endswith(_ENDING):
        raise ConfigError(f"--model {choice.model} is not a .keras file. Save the model with model.save('model.keras')")
    with local_copy(choice.model) as path:
        try:
            return keras.models.load_model(path, compile=False, safe_mode=True)
        except Exception as error:  # see _load_weights
            if own := unloadable_objects(path):
                raise ConfigError(
                    f"--model {choice.model} has code that is not Keras' own: {first_texts(own, 5)}. Build the model "
                    "from Keras' layers, or save the part before that code: "
                    "keras.Model(model.inputs, model.get_layer(NAME).output).save('part.keras'). In Python, "
                    "recordmill.convert loads classes that the calling process has registered with "
                    "keras.saving.register_keras_serializable, if runner_options=[] is given"
                ) from error
            raise ConfigError(
                f"--model {choice.model} cannot be loaded as a .keras file: {describe_keras_error(error)}"
            ) from error


def unloadable_objects(path: str) -> list[str]:
    """Return the classes and functions that a .keras file names and safe mode does not load, with their layers: lambda
    functions, and what is neither Keras' own nor registered. Return [] if the file is damaged.

    Keras' error names only the first of them, behind the model's config.
    """
    try:
        with ZipFile(path) as archive:
            return list(dict.fromkeys(_unloadable_objects(json.loads(archive.read("config.json")), "")))
    except (OSError, KeyError, ValueError, RecursionError, BadZipFile):
        return []


def _unloadable_objects(node: Any, layer: str) -> Iterator[str]:
    """Yield the objects in a part of config.json, which is in the layer with this name."""
    import keras

    if isinstance(node, dict):
        config, class_name = node.get("config"), node.get("class_name")
        if isinstance(config, dict) and isinstance(config.get("name"), str):
            layer = f" (layer {config['name']})"
        is_function = class_name == "function"
        name = str(config if is_function else class_name)
        is_own = str(node.get("module")).partition(".")[0] == "keras" or hasattr(keras.activations, name)
        if class_name == "__lambda__":
            yield f"lambda function{layer}"
        elif "registered_name" in node and not is_own:
            registered_name = name if is_function else str(node["registered_name"])
            if keras.saving.get_registered_object(registered_name) is None:
                yield f"{name}{layer}"
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _unloadable_objects(part, layer)


def feature_output(model: Any, choice: ModelChoice) -> tuple[str, Any]:
    """Return the feature's layer name, and its output.

    Raises:
        ConfigError: The layer is unknown, or none was named and the model has no default.
    """
    output = model.outputs[0]  # models of keras.applications have one
    if choice.layer:
        return choice.layer, _named_output(model, choice)
    if not application_name(choice.model):
        pooling = [layer for layer in model.layers if type(layer).__name__ in _POOLING]
        if not pooling:
            raise ConfigError(
                f"--model {choice.model} has no layer of the types {', '.join(_POOLING)}, whose input would be the "
                f"features. Name the layer of the features with --layer, for example {model.layers[-1].name}"
            )
        output = pooling[-1].input
    return output._keras_history.operation.name, output


def _named_output(model: Any, choice: ModelChoice) -> Any:
    import keras

    layers = {layer.name: layer for layer in getattr(model, "operations", model.layers)}
    if choice.layer not in layers:
        near = difflib.get_close_matches(choice.layer, layers, 3) or list(layers)[-3:]
        raise ConfigError(
            f"--layer {choice.layer}: {model.name} has no such layer among its {len(layers)}; similar names: "
            f"{', '.join(near)}"
        )
    # Not `layer.output`: of a layer that is a model, that belongs to the layer's own graph.
    output = keras.Operation.output.fget(layers[choice.layer])
    if isinstance(output, list):
        raise ConfigError(f"--layer {choice.layer} has {len(output)} outputs in {choice.model}. Name another layer")
    return output


def describe_keras_error(error: Exception) -> str:
    """Return the cause of an error of Keras in one line, without the escape sequences of its bold text."""
    cause = str(error).rpartition("Exception encountered: ")[2]  # after the model's config
    return " ".join(re.sub(r"\x1b\[\d*m", "", cause).split())[:300] or type(error).__name__


_LOADED = Shared()
"""The model of this process, shared by steps and threads."""

_IMAGE_RANK = 4
_SELF_SCALING = ("Rescaling", "Normalization")


class LoadedModel:
    """Loaded model and its properties.

    Args:
        features: Function from uint8 pixels [batch, height, width, 3], RGB, to float32 [batch, *feature_shape].
    """

    def __init__(self, model: FeatureModel, features: Any):
        self.model, self.features = model, features


def load_model(choice: ModelChoice) -> LoadedModel:
    """Load the chosen model from its current files, and cache it for `load_expected_model`.

    Raises:
        ConfigError: The model cannot be loaded, does not take images, or needs options to be used.
    """
    loaded = _load_current(choice)
    shared: LoadedModel = _LOADED.acquire(lambda: loaded, tag=(choice, loaded.model))
    return shared


def load_expected_model(choice: ModelChoice, expected: FeatureModel) -> LoadedModel:
    """Return the model that `load_model` found here or in another process. It is loaded once per process.

    Raises:
        JobError: This process finds another model.
    """
    shared: LoadedModel = _LOADED.acquire(lambda: _load_expected(choice, expected), tag=(choice, expected))
    return shared


def _load_expected(choice: ModelChoice, expected: FeatureModel) -> LoadedModel:
    try:
        loaded = _load_current(choice)
    except ConfigError as error:
        raise JobError(f"a worker cannot load the model that the job was started with: {error}") from error
    for name in ("layers", "input_size", "preprocess", "feature_shape", "weights_sha256"):
        actual, wanted = getattr(loaded.model, name), getattr(expected, name)
        if actual != wanted:
            raise JobError(
                f"--model {choice.model}: {name} is {actual} here, but {wanted} where the job was started. Make sure "
                "that all workers have the same files and versions of TensorFlow and Keras"
            )
    return loaded


def _load_current(choice: ModelChoice) -> LoadedModel:
    import keras
    import tensorflow as tf

    if keras.config.backend() != "tensorflow":
        raise ConfigError(
            f"Keras uses the backend {keras.config.backend()}, but features need its backend for TensorFlow. Set "
            "KERAS_BACKEND=tensorflow"
        )
    model = build_model(choice)
    size = _input_size(model, choice)
    layer, output = feature_output(model, choice)
    name, preprocess = _preprocessing(model, choice)
    part = keras.Model(model.inputs, output)
    pixels = keras.Input((*size, 3), dtype=model.inputs[0].dtype)
    feature = _pool_output(_apply_model(part, pixels, choice), choice)
    shape = _fixed_shape(feature, choice, layer)
    whole = keras.Model(pixels, feature)

    @tf.function(input_signature=[tf.TensorSpec([None, *size, 3], tf.uint8)])
    def features(images):
        prepared = preprocess(tf.cast(images, tf.float32))
        return tf.cast(whole(tf.cast(prepared, pixels.dtype), training=False), tf.float32)

    return LoadedModel(FeatureModel(layer, len(part.layers), size, name, shape, _sha256(part.weights)), features)


def _input_size(model: Any, choice: ModelChoice) -> tuple[int, int]:
    """Return height and width of a model's input images."""
    if not getattr(model, "inputs", None):
        raise ConfigError(
            f"--model {choice.model} has no defined input: it was saved before it was built, or its own code calls "
            "its layers. Add a keras.Input"
        )
    shapes = [tuple(tensor.shape) for tensor in model.inputs]
    takes = " and ".join(f"{shape} of {tensor.dtype}" for shape, tensor in zip(shapes, model.inputs, strict=True))
    (shape, *more) = shapes
    dtype = model.inputs[0].dtype
    is_image = len(shape) == _IMAGE_RANK and shape[-1] == 3 and (dtype == "uint8" or "float" in dtype)
    if more or not is_image:
        raise ConfigError(
            f"--model {choice.model} takes {takes}, not a batch of RGB images: (None, height, width, 3) of float32 or "
            "uint8"
        )
    own, asked = shape[1:3], choice.input_size
    if asked and any(side not in (None, wanted) for side, wanted in zip(own, asked, strict=True)):
        raise ConfigError(
            f"--input-size {_format_size(asked)}: {choice.model} accepts only {_format_size(own)}. Omit the flag"
        )
    if not asked and None in own:
        raise ConfigError(f"--model {choice.model} accepts images of any size. Set --input-size, for example 224x224")
    return asked or own


def _format_size(size: tuple[int | None, int | None]) -> str:
    return "x".join(map(str, size))


def _preprocessing(model: Any, choice: ModelChoice) -> tuple[str, Callable[[Any], Any]]:
    """Return the name of the preprocessing, and its function for float32 pixels of 0 to 255."""
    from keras import applications

    if choice.preprocess in ("tf", "torch", "caffe"):
        mode = choice.preprocess
        return mode, lambda pixels: applications.imagenet_utils.preprocess_input(pixels, mode=mode)
    if choice.preprocess == "unit":
        return choice.preprocess, lambda pixels: pixels / 255.0
    if choice.preprocess:
        return choice.preprocess, lambda pixels: pixels
    if name := application_name(choice.model):
        module = str(_constructor(name).__module__).rpartition(".")[2]
        return f"keras.applications.{module}.preprocess_input", getattr(applications, module).preprocess_input
    if any(type(layer).__name__ in _SELF_SCALING for layer in _walk_layers(model)):
        return "none", lambda pixels: pixels
    raise ConfigError(
        f"--model {choice.model} has no {' or '.join(_SELF_SCALING)} layer, so its preprocessing is unknown. Set "
        f"--preprocess to one of {', '.join(PREPROCESSING)} (none: 0 to 255, unit: 0 to 1, tf: -1 to 1)"
    )


def _walk_layers(model: Any) -> Iterator[Any]:
    """Yield the layers of a model, and those of layers that are models, as a backbone is."""
    for layer in model.layers:
        yield layer
        yield from _walk_layers(layer) if hasattr(layer, "layers") else ()


def _apply_model(part: Any, pixels: Any, choice: ModelChoice) -> Any:
    """Return the output of a model for other inputs than its own, whose size may be too small for it."""
    try:
        output = part(pixels)
        if any(side is not None and side < 1 for side in output.shape):  # Keras raises from 3.13 on
            raise ValueError(f"the output is {tuple(output.shape)}")
        return output
    except ValueError as error:
        raise ConfigError(
            f"--model {choice.model} does not accept images of {_format_size(pixels.shape[1:3])}. Use another "
            f"--input-size: {describe_keras_error(error)}"
        ) from error


def _pool_output(output: Any, choice: ModelChoice) -> Any:
    import keras

    if choice.pool == "none":
        return output
    if len(output.shape) != _IMAGE_RANK:
        raise ConfigError(
            f"--pool {choice.pool} needs an output of (None, height, width, channels), but the layer's is "
            f"{output.shape}. Omit the flag, or name a layer before pooling with --layer"
        )
    return keras.layers.GlobalAveragePooling2D()(output)


def _fixed_shape(output: Any, choice: ModelChoice, layer: str) -> tuple[int, ...]:
    """Return the shape of the feature of one image."""
    shape = tuple(output.shape)[1:]
    if not shape or None in shape or "float" not in output.dtype:
        raise ConfigError(
            f"--layer {layer}: its output in {choice.model} is {tuple(output.shape)} of {output.dtype}, but features "
            "must be floats of one known shape per image. Name another layer"
        )
    return shape


def _sha256(weights: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for weight in weights:
        value = np.asarray(weight)
        digest.update(value.astype(value.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()
