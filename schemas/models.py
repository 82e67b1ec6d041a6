"""Models whose features of pictures become records."""

import msgspec

RANDOM, ON_DISK, FETCHED = "none", "imagenet", "imagenet-download"
"""Weights of a model of keras.applications, besides those of a file."""

PREPROCESSING = ("none", "unit", "tf", "torch", "caffe")
"""What is done with pixels of 0 to 255 before a model sees them: nothing, division by 255, or a mode of
`keras.applications.imagenet_utils.preprocess_input`."""


class ModelChoice(msgspec.Struct, frozen=True):
    """Which model is asked for, and what of it.

    Attributes:
        model: a name of keras.applications, a .keras or .h5 file, or the folder of a SavedModel.
        weights: RANDOM, ON_DISK, FETCHED or a file; empty for those of the model's file.
        layer: whose output is the feature; of a SavedModel, the name of an output. Empty for the last before pooling.
        pool: `avg` or `none`.
        input_size: height and width; None for the model's own.
        preprocess: one of PREPROCESSING; empty for the model's own.
    """

    model: str
    weights: str = ""
    layer: str = ""
    pool: str = "none"
    input_size: tuple[int, int] | None = None
    preprocess: str = ""


class FeatureModel(msgspec.Struct, frozen=True):
    """A model that was chosen, as it was found. Whoever loads the same choice must find the same.

    Attributes:
        layer: whose output is the feature.
        layers: how many there are up to it.
        input_size: height and width of its pictures.
        preprocess: one of PREPROCESSING, or the function of keras.applications.
        feature_shape: of the feature of one picture, height, width, channels for example.
        weights_sha256: hex digest of the weights up to the layer, in the model's order, as little-endian bytes.
    """

    layer: str
    layers: int
    input_size: tuple[int, int]
    preprocess: str
    feature_shape: tuple[int, ...]
    weights_sha256: str
