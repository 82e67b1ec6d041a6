"""Models whose features of pictures become records."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

RANDOM, ON_DISK, FETCHED = "none", "imagenet", "imagenet-download"
"""Weights of a model of keras.applications, besides those of a file."""

Preprocessing = Literal["none", "unit", "tf", "torch", "caffe"]
PREPROCESSING: tuple[str, ...] = get_args(Preprocessing)
"""Preprocessing of pixels 0 to 255: none, division by 255, or a mode of
`keras.applications.imagenet_utils.preprocess_input`."""

TOLERANCE = 1e-3
"""How much of a feature's largest number its numbers may differ by where another processor made them, or other batches.
A number of half precision is off by as much."""
_OWN_PREPROCESSING = "keras.applications."


class ModelChoice(msgspec.Struct, frozen=True):
    """Requested model, and its settings."""

    model: str  # a name of keras.applications, or a .keras file
    weights: str = ""  # RANDOM, ON_DISK, FETCHED or a file; empty for those of the model's file
    layer: str = ""  # whose output is the feature. Empty for the last before pooling
    pool: str = "none"  # `avg` or `none`
    input_size: tuple[int, int] | None = None  # height and width; None for the model's own
    preprocess: str = ""  # one of PREPROCESSING; empty for the model's own


class FeatureModel(msgspec.Struct, frozen=True):
    """A model that was chosen, as it was found. Whoever loads the same choice must find the same."""

    layer: str  # whose output is the feature
    layers: int  # how many there are up to it
    input_size: tuple[int, int]  # height and width of its pictures
    preprocess: str  # one of PREPROCESSING, or the function of keras.applications
    feature_shape: tuple[int, ...]  # of the feature of one picture, height, width, channels for example
    weights_sha256: str  # hex digest of the weights up to the layer, in the model's order, as little-endian bytes


def recorded_model(options: Mapping[str, Any]) -> tuple[ModelChoice, FeatureModel]:
    """Return the model in the options of a manifest, with the defaults that it determined."""
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
    found = FeatureModel(
        options["layer"],
        options["layers"],
        (rows, columns),
        options["preprocess"],
        tuple(map(int, options["feature_shape"])),
        options["weights_sha256"],
    )
    return choice, found
