"""Load Keras models of keras.applications and .keras files, up to a layer. It imports TensorFlow in functions.

An error of a choice is a ConfigError in one line, for any exception of Keras.
"""

import difflib
import hashlib
import math
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.models import FETCHED, ON_DISK, RANDOM, ModelChoice
from recordmill.transforms.storage.resolve import local_copy

_SEED = 0
"""Seed of random weights, the same in every run and process."""
_ENDING = ".keras"
_POOLING = ("GlobalAveragePooling2D", "GlobalMaxPooling2D", "Flatten")


def application(name: str) -> str:
    """The name in keras.applications that is meant; empty where a file is.

    Raises:
        ConfigError: it is neither.
    """
    from keras import applications

    if "/" in name or name.endswith(_ENDING) or os.path.exists(name):
        return ""
    known = {_plain(each): each for each in dir(applications) if callable(getattr(applications, each))}
    if found := known.get(_plain(name)):
        return found
    near = difflib.get_close_matches(_plain(name), known, 1)
    meant = f"; did you mean {known[near[0]]}?" if near else ""
    raise ConfigError(
        f"--model {name}: no model of keras.applications is called so, and no .keras file is there{meant}"
    )


def _plain(name: str) -> str:
    """Return a name in the form for comparisons.

    >>> _plain("efficientnet-b0") == _plain("EfficientNetB0")
    True
    """
    return re.sub(r"[^a-z0-9]", "", name.lower())


def build_model(choice: ModelChoice) -> Any:
    """The whole model that is chosen, with its weights and the input size that was asked for.

    Raises:
        ConfigError: there is none, or its weights do not fit.
    """
    if name := application(choice.model):
        return _of_applications(name, choice)
    model = _loaded(choice)
    if choice.weights in (RANDOM, ON_DISK, FETCHED):
        raise ConfigError(
            f"--weights {choice.weights} is of models of keras.applications, and {choice.model} has its own weights"
        )
    if choice.weights:
        _load_weights(model, choice.weights)
    return model


def _of_applications(name: str, choice: ModelChoice) -> Any:
    size = choice.input_size or _own_size(name)
    weights = choice.weights or ON_DISK
    if weights == FETCHED:
        return _constructed(name, size, "imagenet")
    if weights == ON_DISK:
        with without_network():
            return _constructed(name, size, "imagenet")
    model = _constructed(name, size, None)
    if weights != RANDOM:
        _load_weights(model, weights)
    return model


def _own_size(name: str) -> tuple[int, int]:
    """The input size that a model of keras.applications has where its top is kept."""
    height, width = _constructor(name)(weights=None).input_shape[1:3]
    if not (height and width):
        raise ConfigError(f"--model {name} takes pictures of any size: give --input-size, 224x224 for example")
    return height, width


def _constructed(name: str, size: tuple[int, int], weights: str | None) -> Any:
    try:
        model = _constructor(name)(include_top=False, weights=weights, input_shape=(*size, 3))
    except ConfigError:
        raise
    except Exception as error:  # of downloads, of sizes that are too small …
        fault = f"--model {name} of {size[0]}x{size[1]} pixels cannot be made: {brief(error)}"
        if weights is None:
            raise ConfigError(fault) from error
        raise ConfigError(
            f"{fault}; if its weights cannot be had, --weights FILE takes others, and --weights {RANDOM} random ones"
        ) from error
    if weights is None:
        _draw_weights(model)
    return model


def _draw_weights(model: Any) -> None:
    """Set random weights, the same in every process. Keras takes its own seeds from Python's `random`, which other
    threads use. They preserve the variance (He et al., https://arxiv.org/abs/1502.01852)."""
    for number, variable in enumerate(model.weights):
        shape = tuple(variable.shape)
        if len(shape) > 1:  # others are constants to begin with
            inputs = math.prod(shape[:-1] if shape[-1] > 1 else shape[:-2])  # of a depthwise kernel, one channel each
            drawn = np.random.default_rng((_SEED, number)).normal(0, math.sqrt(2 / inputs), shape)
            variable.assign(drawn.astype(np.float32))


def _constructor(name: str) -> Any:
    from keras import applications

    return getattr(applications, name)


def module_of(name: str) -> str:
    """The module of keras.applications that a model is of: it has the model's `preprocess_input`."""
    return str(_constructor(name).__module__).rpartition(".")[2]


@contextmanager
def without_network() -> Iterator[None]:
    """Keras takes weights from its folder of models or not at all, though it would fetch them."""
    import keras

    home = import_module(keras.utils.get_file.__module__)
    fetch = home.get_file

    def kept(fname: str, *arguments: Any, cache_subdir: str = "models", **named: Any) -> str:
        folder = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / cache_subdir
        expected = named.get("file_hash")
        if not (folder / fname).is_file():
            raise ConfigError(
                f"--weights {ON_DISK}: {folder / fname} is not there; --weights {FETCHED} lets Keras fetch it, "
                f"--weights FILE takes another, and --weights {RANDOM} random ones"
            )
        if expected and len(expected) == 32 and _md5(folder / fname) != expected:
            raise ConfigError(
                f"--weights {ON_DISK}: {folder / fname} is not the file that Keras publishes, its MD5 is another; "
                f"delete it, and --weights {FETCHED} lets Keras fetch it again"
            )
        return str(folder / fname)

    home.get_file = kept  # type: ignore[attr-defined]
    try:
        yield
    finally:
        home.get_file = fetch  # type: ignore[attr-defined]


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _load_weights(model: Any, path: str) -> None:
    """Keras raises where a layer has other weights than the file, or none in it."""
    with local_copy(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.load_weights(file)
        except Exception as error:  # Keras and h5py raise any exception
            raise ConfigError(f"--weights {path} do not fit {model.name}: {brief(error)}") from error


def _loaded(choice: ModelChoice) -> Any:
    import keras

    if not choice.model.endswith(_ENDING):
        raise ConfigError(f"--model {choice.model} is no .keras file; save the model by model.save('model.keras')")
    with local_copy(choice.model) as path:
        try:
            return keras.models.load_model(path, compile=False, safe_mode=True)
        except Exception as error:  # as in _load_weights
            raise ConfigError(f"--model {choice.model} is no .keras file that can be loaded: {brief(error)}") from error


def feature_output(model: Any, choice: ModelChoice) -> tuple[str, Any]:
    """The name of the layer that gives the feature, and its output.

    Raises:
        ConfigError: there is none of that name, or none was named and the model does not say.
    """
    output = model.outputs[0]  # models of applications have one
    if choice.layer:
        return choice.layer, _named_output(model, choice)
    if not application(choice.model):
        pooling = [layer for layer in model.layers if type(layer).__name__ in _POOLING]
        if not pooling:
            raise ConfigError(
                f"--model {choice.model} has none of {', '.join(_POOLING)} among its layers, before which its features "
                f"would be; name the layer that gives them by --layer, {model.layers[-1].name} for example"
            )
        output = pooling[-1].input
    return output._keras_history.operation.name, output


def _named_output(model: Any, choice: ModelChoice) -> Any:
    layers = {layer.name: layer for layer in model.layers}
    if choice.layer not in layers:
        near = difflib.get_close_matches(choice.layer, layers, 3) or list(layers)[-3:]
        raise ConfigError(
            f"--layer {choice.layer}: {model.name} has no such layer among its {len(layers)}; near to it are "
            f"{', '.join(near)}"
        )
    try:
        return layers[choice.layer].output
    except (AttributeError, ValueError) as error:  # of a layer that is called more than once, for example
        raise ConfigError(f"--layer {choice.layer} has no output in {choice.model}: {brief(error)}") from error


def brief(error: Exception) -> str:
    """Return Keras's message in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
