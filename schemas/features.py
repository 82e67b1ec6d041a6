"""Feature tables: what is in a record, as data.

The encoder, the parse spec and the documentation page all come from the same table.
"""

from enum import Enum
from typing import Any

import msgspec


class Kind(str, Enum):
    """The three list types of tf.train.Feature."""

    BYTES = "bytes"
    FLOAT = "float"
    INT64 = "int64"


class Feature(msgspec.Struct, frozen=True):
    """One key of a record.

    Attributes:
        source: what value it is, whatever the layout calls it (see `schemas.layouts`).
        shape: names of the dimensions; empty for a single value. Lists that share a name have the same length.
        unit: of the values, or how they are written.
        meaning: for a person.
    """

    name: str
    source: str
    kind: Kind
    shape: tuple[str, ...]
    unit: str
    meaning: str


class FeatureTable(msgspec.Struct, frozen=True):
    """The features of one layout, ordered by name (the order they have in the serialised record)."""

    layout: str
    features: tuple[Feature, ...]

    def __post_init__(self):
        names = [feature.name for feature in self.features]
        if names != sorted(set(names)):
            raise ValueError(f"features of {self.layout} must be unique and sorted by name")

    def name_of(self, source: str) -> str | None:
        """The feature that holds `source`; None where the layout has none."""
        return next((feature.name for feature in self.features if feature.source == source), None)


def parse_spec(table: FeatureTable) -> dict[str, Any]:
    """What `tf.io.parse_single_example` and `tf.io.parse_example` need to read records of `table`.

    A single value becomes a scalar tensor, and is demanded; a list becomes a dense vector when one record is parsed
    and a ragged tensor when a batch is. Imports TensorFlow.
    """
    import tensorflow as tf

    dtypes = {Kind.BYTES: tf.string, Kind.FLOAT: tf.float32, Kind.INT64: tf.int64}
    return {
        feature.name: (
            tf.io.RaggedFeature(dtypes[feature.kind])
            if feature.shape
            else tf.io.FixedLenFeature([], dtypes[feature.kind])
        )
        for feature in table.features
    }


def markdown(table: FeatureTable) -> str:
    """The table as the documentation page shows it."""
    rows = [
        f"| {f.name} | {f.kind.value}{' [' + ', '.join(f.shape) + ']' if f.shape else ''} | {f.unit} | {f.meaning} |"
        for f in table.features
    ]
    return "\n".join(["| key | type | unit | meaning |", "|---|---|---|---|", *rows])
