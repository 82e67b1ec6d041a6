"""Models that compute image features for records."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

RANDOM, ON_DISK, FETCHED = "none", "imagenet", "imagenet-download"
"""Weights of a model of keras.applications that are not in a file of the user."""

Preprocessing = Literal["none", "unit", "tf", "torch", "caffe"]
PREPROCESSING: tuple[str, ...] = get_args(Preprocessing)
"""Preprocessing of pixels 0 to 255: none, division by 255, or a mode of
`keras.applications.imagenet_utils.preprocess_input`."""

TOLERANCE = 1e-3
"""Relative tolerance of a feature, as a fraction of its largest number: other processors and other batches give
slightly different numbers. Rounding to half precision is as large."""
_OWN_PREPROCESSING = "keras.applications."


class ModelChoice(msgspec.Struct, frozen=True):
    """Requested model, and its settings."""

    model: str  # a name of keras.applications, or a .keras file
    weights: str = ""  # RANDOM, ON_DISK, FETCHED or a file; empty for the weights in the model's file
    layer: str = ""  # layer whose output is the feature; empty for the last layer before pooling
    pool: str = "none"  # `avg` or `none`
    input_size: tuple[int, int] | None = None  # height and width; None for the model's default
    preprocess: str = ""  # one of PREPROCESSING; empty for the model's default


class FeatureModel(msgspec.Struct, frozen=True):
    """Properties of a chosen model. Every process that loads the same choice must find the same properties."""

    layer: str  # layer whose output is the feature
    layers: int  # number of layers up to that layer
    input_size: tuple[int, int]  # height and width of input images
    preprocess: str  # one of PREPROCESSING, or the function of keras.applications
    feature_shape: tuple[int, ...]  # shape of the feature of one image, height, width, channels for example
    weights_sha256: str  # hex digest of the weights up to the layer, in the model's order, as little-endian bytes


def recorded_model(options: Mapping[str, Any]) -> tuple[ModelChoice, FeatureModel]:
    """Return the model in the options of a manifest, and the properties that were recorded for it."""
    rows, columns = map(int, options["input_size"].split("x"))
    own = options["preprocess"].startswith(_OWN_PREPROCESSING)
    choice = ModelChoice(
        options["model"],
        "" if options["weights"] == options["model"] else options["weights"],
        options["layer"],
        options["pool"],
        (rows, columns),
        "" if own else options["preprocess"],
    )
    model = FeatureModel(
        options["layer"],
        options["layers"],
        (rows, columns),
        options["preprocess"],
        tuple(map(int, options["feature_shape"])),
        options["weights_sha256"],
    )
    return choice, model
