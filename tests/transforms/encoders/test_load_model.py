import hashlib
import random
import threading
from collections.abc import Callable
from pathlib import Path

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf

from recordmill.schemas.errors import ConfigError, JobError
from recordmill.schemas.inputs.models import FeatureModel, ModelChoice
from recordmill.transforms.encoders.load_model import (
    application_name,
    build_model,
    forbid_downloads,
    load_expected_model,
    load_model,
)
from tests.gcs_stand_in import BUCKET
from tests.tiny_models import as_given, saved, tiny

NAMED = ModelChoice("mobilenet", "none", input_size=(32, 32))


def noise(size: tuple[int, int], number: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (number, *size, 3), np.uint8)


def functions_of(choice: ModelChoice) -> tuple[FeatureModel, Callable]:
    loaded = load_model(choice)
    return loaded.model, loaded.features


@pytest.mark.parametrize(
    ("name", "meant"),
    [("efficientnet-b0", "EfficientNetB0"), ("ResNet50", "ResNet50"), ("mobilenet_v3_small", "MobileNetV3Small")],
)
def test_spellings_of_model_names(name, meant):
    assert application_name(name) == meant


def test_features_equal_those_of_keras():
    pixels = noise((32, 32))
    loaded = load_model(NAMED)
    model = keras.applications.MobileNet(include_top=False, weights=None, input_shape=(32, 32, 3))
    model.set_weights(build_model(NAMED).get_weights())
    prepared = keras.applications.mobilenet.preprocess_input(pixels.astype(np.float32))
    np.testing.assert_allclose(loaded.features(pixels), model.predict(prepared, verbose=0), rtol=1e-3, atol=1e-4)
    assert loaded.model.layer == "conv_pw_13_relu"
    assert loaded.model.feature_shape == (1, 1, 1024)
    assert loaded.model.preprocess == "keras.applications.mobilenet.preprocess_input"


def test_random_weights_are_repeatable():
    done = threading.Event()

    def draw() -> None:
        while not done.wait(0.001):
            random.random()

    first = build_model(NAMED).get_weights()
    other = threading.Thread(target=draw)
    other.start()
    try:
        second = build_model(NAMED).get_weights()
    finally:
        done.set()
        other.join()
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))
    assert np.std(first[0]) > 0


def test_a_model_is_loaded_once(tmp_path):
    choice = ModelChoice(saved(tiny(), tmp_path / "tiny.keras"))
    loaded = load_model(choice)
    assert load_expected_model(choice, loaded.model) is load_expected_model(choice, loaded.model) is loaded


def test_file_that_has_changed_is_another_model(tmp_path):
    choice = ModelChoice(saved(tiny(), tmp_path / "tiny.keras"))
    before = load_model(choice).model
    other = tiny()
    other.set_weights([weight + 1 for weight in other.get_weights()])
    saved(other, tmp_path / "tiny.keras")
    assert load_model(choice).model != before


def test_file_gives_its_features_before_pooling(tmp_path):
    model = tiny()
    found, features = functions_of(ModelChoice(saved(model, tmp_path / "tiny.keras")))
    assert (found.layer, found.input_size, found.feature_shape) == ("patches", (16, 12), (4, 3, 5))
    assert found.preprocess == "none"  # its first layer does it
    weights = [weight.numpy().tobytes() for weight in model.get_layer("patches").weights]
    assert found.weights_sha256 == hashlib.sha256(b"".join(weights)).hexdigest()
    pixels = noise((16, 12))
    expected = keras.Model(model.inputs, model.get_layer("patches").output).predict(pixels, verbose=0)
    np.testing.assert_allclose(features(pixels), expected, rtol=1e-5, atol=1e-6)


def test_any_layer_and_its_mean(tmp_path):
    model = tiny()
    path = saved(model, tmp_path / "tiny.keras")
    pixels = noise((16, 12))
    found, head = functions_of(ModelChoice(path, layer="head"))
    assert found.feature_shape == (2,)
    np.testing.assert_allclose(head(pixels), model.predict(pixels, verbose=0), rtol=1e-5, atol=1e-6)
    patches = load_model(ModelChoice(path)).features(pixels)
    found, mean = functions_of(ModelChoice(path, pool="avg"))
    assert found.feature_shape == (5,)
    np.testing.assert_allclose(mean(pixels), np.mean(patches, axis=(1, 2)), rtol=1e-5, atol=1e-6)


def test_a_layer_that_is_a_model(tmp_path):
    image = keras.Input((16, 12, 3))
    inner = keras.Model(image, keras.layers.Conv2D(5, 4)(keras.layers.Rescaling(1 / 255)(image)), name="inner")
    outer = keras.Sequential([keras.Input((16, 12, 3)), inner, keras.layers.Flatten(), keras.layers.Dense(2)])
    path = saved(outer, tmp_path / "outer.keras")
    found, features = functions_of(ModelChoice(path))
    assert (found.layer, found.feature_shape, found.preprocess) == ("inner", (13, 9, 5), "none")
    assert load_model(ModelChoice(path, layer="inner")).model == found  # as verify --recompute names it
    pixels = noise((16, 12))
    np.testing.assert_allclose(features(pixels), inner.predict(pixels, verbose=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", ["", "patches"])
def test_output_of_model_is_before_pooling_or_chosen(tmp_path, layer):
    model = tiny()
    heads = keras.Model(model.inputs, [model.get_layer(name).output for name in ("head", "mean")])
    found = load_model(ModelChoice(saved(heads, tmp_path / "heads.keras"), layer=layer)).model
    assert (found.layer, found.feature_shape) == ("patches", (4, 3, 5))


@pytest.mark.parametrize(
    ("preprocess", "expected"),
    [
        ("none", lambda pixels: pixels),
        ("unit", lambda pixels: pixels / 255),
        ("tf", lambda pixels: pixels / 127.5 - 1),
        ("torch", lambda pixels: (pixels / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]),
        ("caffe", lambda pixels: pixels[..., ::-1] - [103.939, 116.779, 123.68]),
    ],
)
def test_pixels_are_prepared_as_asked(tmp_path, preprocess, expected):
    path = saved(as_given(), tmp_path / "same.keras")
    found, features = functions_of(ModelChoice(path, preprocess=preprocess))
    assert found.preprocess == preprocess
    pixels = noise((4, 6))
    np.testing.assert_allclose(features(pixels), expected(pixels.astype(np.float64)), rtol=1e-5, atol=1e-5)


def test_model_of_any_size_takes_one_asked_for(tmp_path):
    path = saved(tiny((None, None)), tmp_path / "tiny.keras")
    assert load_model(ModelChoice(path, input_size=(20, 8))).model.feature_shape == (5, 2, 5)
    with pytest.raises(ConfigError, match=r"any size\. Set --input-size"):
        load_model(ModelChoice(path))


def test_weights_of_file_take_place_of_model_s(tmp_path):
    path = saved(tiny(), tmp_path / "tiny.keras")
    other = tiny()
    other.set_weights([weight + 1 for weight in other.get_weights()])
    other.save_weights(tmp_path / "other.weights.h5")
    pixels = noise((16, 12))
    found, features = functions_of(ModelChoice(path, str(tmp_path / "other.weights.h5"), layer="head"))
    np.testing.assert_allclose(features(pixels), other.predict(pixels, verbose=0), rtol=1e-5, atol=1e-5)
    assert found.weights_sha256 != load_model(ModelChoice(path, layer="head")).model.weights_sha256


def uploaded(gcs, folder: Path) -> str:
    """Copy a folder to objects below its name."""
    for path in folder.rglob("*"):
        if path.is_file():
            gcs.put(f"{folder.name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return f"gs://{BUCKET}/{folder.name}"


def test_models_and_weights_of_bucket_are_files(tmp_path, gcs):
    here = tmp_path / "models"
    model = tiny()
    saved(model, here / "tiny.keras")
    model.set_weights([weight + 1 for weight in model.get_weights()])
    model.save_weights(here / "other.weights.h5")
    there = uploaded(gcs, here)
    local, remote = (ModelChoice(f"{folder}/tiny.keras") for folder in (here, there))
    assert load_model(remote).model == load_model(local).model
    local, remote = (ModelChoice(f"{folder}/tiny.keras", f"{folder}/other.weights.h5") for folder in (here, there))
    pixels = noise((16, 12))
    np.testing.assert_array_equal(load_model(remote).features(pixels), load_model(local).features(pixels))
    with pytest.raises(ConfigError, match=f"{there}/none.keras: no such file"):
        load_model(ModelChoice(f"{there}/none.keras"))


def two_inputs() -> keras.Model:
    inputs = [keras.Input((16, 12, 3)), keras.Input((16, 12, 3))]
    return keras.Model(inputs, keras.layers.Add()(inputs))


def two_outputs() -> keras.Model:
    model, image = tiny(), keras.Input((16, 12, 3))
    inner = keras.Model(model.inputs, [layer.output for layer in model.layers[:2]], name="inner")
    return keras.Model(image, keras.layers.Flatten()(inner(image)[0]))


def sequence(*layers: keras.Layer, shape: tuple[int, ...] = (16, 12, 3)) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *layers])


class Own(keras.layers.Layer):
    """Layer that nothing registers."""

    def call(self, images):
        return images


def swing(values):
    """Activation that nothing registers."""
    return 2 * values


MODELS = {
    "tiny": tiny,
    "tokens": lambda: keras.Sequential([keras.Input((16,), dtype="int32"), keras.layers.Embedding(10, 4)]),
    "grey": lambda: sequence(keras.layers.Flatten(), shape=(16, 12, 1)),
    "two inputs": two_inputs,
    "without pooling": lambda: sequence(keras.layers.Conv2D(2, 3, name="only")),
    "without rescaling": lambda: sequence(keras.layers.Conv2D(2, 3), keras.layers.Flatten()),
    "code": lambda: sequence(keras.layers.Lambda(lambda x: x, name="code"), keras.layers.Flatten()),
    "own layers": lambda: sequence(
        Own(name="first"),
        keras.Sequential([keras.layers.Conv2D(2, 3, activation=swing, name="conv"), Own(name="second")]),
        keras.layers.Flatten(),
    ),
    "two outputs": two_outputs,
    "any size": lambda: tiny((None, None)),
    "not built": lambda: keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]),
}


@pytest.mark.parametrize(
    ("model", "choice", "told"),
    [
        ("tiny", {"layer": "patch"}, "--layer patch: .* has no such layer among its 4; similar names: patches"),
        ("tiny", {"layer": "head", "pool": "avg"}, "--pool avg needs"),
        ("two outputs", {"layer": "inner"}, "--layer inner has 2 outputs"),
        ("any size", {"input_size": (3, 2)}, "does not accept images of 3x2. Use another --input-size: (?!.*\x1b)"),
        ("tiny", {"input_size": (64, 64)}, r"accepts only 16x12. Omit the flag"),
        ("tiny", {"weights": "none"}, "has its own weights"),
        ("tokens", {}, r"takes \(None, 16\) of int32, not a batch of RGB images"),
        ("grey", {}, "not a batch of RGB images"),
        ("two inputs", {}, "not a batch of RGB images"),
        (
            "code",
            {},
            r"code that is not Keras' own: lambda function \(layer code\)\. Build the model from Keras' layers",
        ),
        ("own layers", {}, r"Keras' own: Own \(layer first\), swing \(layer conv\), Own \(layer second\)\. Build"),
        ("not built", {}, "has no defined input: it was saved before it was built"),
        ("without pooling", {"preprocess": "none"}, "Name the layer of the features with --layer, for example only"),
        ("without rescaling", {}, "Set --preprocess to one of none, unit, tf, torch, caffe"),
    ],
)
def test_model_that_cannot_be_used_so(tmp_path, model, choice, told):
    with pytest.raises(ConfigError, match=told):
        load_model(ModelChoice(saved(MODELS[model](), tmp_path / "model.keras"), **choice))


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (ModelChoice("efficientnet-b9", "none"), "neither a model of keras.applications.*Did you mean EfficientNet"),
        (
            ModelChoice("mobilenet", "none", input_size=(8, 8)),
            "MobileNet of 8x8 pixels cannot be built: (?!.*--weights)",
        ),
        (ModelChoice("{folder}/none.keras"), "cannot be loaded as a .keras file"),
        (ModelChoice("{folder}/text.keras"), "cannot be loaded as a .keras file"),
        (ModelChoice("{folder}/empty"), "is not a .keras file. Save the model"),
        (ModelChoice("{folder}/tiny.h5"), "is not a .keras file. Save the model"),
        (ModelChoice("{folder}/tiny.keras", "{folder}/text.keras"), "text.keras do not fit"),
        (ModelChoice("{folder}/tiny.keras", "{folder}/less.weights.h5"), "less.weights.h5 do not fit"),
        (ModelChoice("{folder}/tiny.keras", "{folder}/wider.weights.h5"), "wider.weights.h5 do not fit"),
    ],
)
def test_files_no_model_or_none_of_its_weights(tmp_path, choice, told):
    (tmp_path / "text.keras").write_text("no model")
    (tmp_path / "empty").mkdir()
    saved(tiny(), tmp_path / "tiny.h5")
    saved(tiny(), tmp_path / "tiny.keras")
    keras.Sequential([keras.Input((16, 12, 3)), *tiny().layers[:2]]).save_weights(tmp_path / "less.weights.h5")
    wider = [keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(6, 4, strides=4), keras.layers.Flatten()]
    keras.Sequential([keras.Input((16, 12, 3)), *wider, keras.layers.Dense(2)]).save_weights(
        tmp_path / "wider.weights.h5"
    )
    filled = {name: getattr(choice, name).replace("{folder}", str(tmp_path)) for name in ("model", "weights")}
    with pytest.raises(ConfigError, match=told) as raised:
        load_model(msgspec.structs.replace(choice, **filled))
    assert "\n" not in str(raised.value)


def test_published_weights_are_local(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    with pytest.raises(
        ConfigError, match=rf"{tmp_path}/models/.*\.h5 does not exist\. Give --weights imagenet-download to let"
    ):
        load_model(ModelChoice("mobilenet-v2", input_size=(32, 32)))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "weights.h5").write_bytes(b"weights")
    home = __import__(keras.utils.get_file.__module__, fromlist=["get_file"])
    fetch, known = home.get_file, hashlib.md5(b"weights").hexdigest()
    with forbid_downloads():
        found = home.get_file("weights.h5", "http://nowhere/weights.h5", cache_subdir="models", file_hash=known)
        assert found == str(tmp_path / "models" / "weights.h5")
        with pytest.raises(ConfigError, match="its MD5 differs"):
            home.get_file("weights.h5", "http://nowhere/weights.h5", cache_subdir="models", file_hash="0" * 32)
    assert home.get_file is fetch


def test_worker_that_finds_another_model_stops_job(tmp_path):
    choice = ModelChoice(saved(tiny(), tmp_path / "tiny.keras"))
    found = load_model(choice).model
    assert load_expected_model(choice, found).model == found
    for other in ({"weights_sha256": "0"}, {"feature_shape": (1,)}, {"layers": 7}, {"input_size": (3, 3)}):
        with pytest.raises(JobError, match=next(iter(other))):
            load_expected_model(choice, msgspec.structs.replace(found, **other))
    with pytest.raises(JobError, match="cannot load the model"):
        load_expected_model(ModelChoice(str(tmp_path / "gone.keras")), found)


def test_a_model_of_uint8(tmp_path):
    image = keras.Input((4, 6, 3), dtype="uint8")
    scaled = keras.layers.Rescaling(2.0)(image)
    model = keras.Model(image, keras.layers.GlobalAveragePooling2D()(scaled))
    pixels = noise((4, 6))
    _, features = functions_of(ModelChoice(saved(model, tmp_path / "of_bytes.keras")))
    np.testing.assert_allclose(features(pixels), 2.0 * pixels)
    assert features(tf.constant(pixels)).dtype == tf.float32
