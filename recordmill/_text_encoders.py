"""Encoders of a data set's texts, for its readers.

from recordmill import encoders

words = encoders("out")["captions"]
spec = {"image/encoded": tf.io.FixedLenFeature([], tf.string), "captions": words.spec()}
tf.io.parse_example(records, spec)["captions"]  # a tf.SparseTensor [batch, words.size]
"""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.encoders import TextEncoder, TextForm, decode_encoder
from recordmill.transforms.dataset.dataset_folder import require_manifest
from recordmill.transforms.storage.resolve import join_path, storage_for


class Encoder(msgspec.Struct, frozen=True):
    """Encoding of the texts of one column.

    Attributes:
        features: Names of the features: `index` and `value`, or `tokens`.
        fitted: Vocabulary, idf and settings.
    """

    features: Mapping[str, str]
    fitted: TextEncoder

    @property
    def size(self) -> int:
        """Length of a text's vector; of tokens, largest id + 1."""
        return self.fitted.size

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Terms by index. The id of a token is its index + 2; 1 is an unknown token, 0 padding."""
        return self.fitted.vocabulary

    @property
    def idf(self) -> tuple[float, ...]:
        """Weights of the terms; empty unless the texts are stored as tf-idf."""
        return self.fitted.idf

    def spec(self) -> Any:
        """Return the feature for `tf.io.parse_example`: a tf.io.SparseFeature, parsed to a tf.SparseTensor float32
        [batch, size]; for tokens a tf.io.RaggedFeature. It imports TensorFlow."""
        import tensorflow as tf

        if self.fitted.settings.form is TextForm.TOKENS:
            return tf.io.RaggedFeature(tf.int64, self.features["tokens"], row_splits_dtype=tf.int64)
        return tf.io.SparseFeature(
            self.features["index"], self.features["value"], tf.float32, self.size, already_sorted=True
        )


def encoders(path: str | os.PathLike[str]) -> dict[str, Encoder]:
    """Return the encoders of a data set by column (`captions` for COCO); empty if its texts are stored as bytes.

    Args:
        path: Folder of the data set, local or in a bucket.

    Raises:
        ConfigError: `path` has no manifest, or an encoder is missing or was changed.
    """
    path = os.fspath(path)
    storage = storage_for(path)
    manifest = require_manifest(path)
    encoders_by_column = {}
    for info in manifest.encoders:
        name = join_path(path, info.file)
        if storage.size(name) is None:
            raise ConfigError(
                f"{name} is missing, and the indices of {info.column} mean nothing without it. Copy it, too"
            )
        fitted = decode_encoder(storage.read(name), name)
        if fitted.info != info:
            raise ConfigError(
                f"{name} was changed after it was written, so indices may mean other terms. Run recordmill verify"
            )
        start = f"{info.column}."
        features = {
            feature.source.removeprefix(start): feature.name
            for feature in manifest.table.features
            if feature.source in (f"{start}index", f"{start}value", f"{start}tokens")
        }
        encoders_by_column[info.column] = Encoder(features, fitted)
    return encoders_by_column
