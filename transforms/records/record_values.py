"""What TensorFlow parses of a record, as values by what they are, whatever the layout calls them."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from recordmill.schemas.features import Feature, FeatureTable, parse_spec

RecordFault = tuple[str, str]
"""Reason and detail."""


class RecordParser:
    """Parses records of one table. Imports TensorFlow."""

    def __init__(self, table: FeatureTable):
        self._table = table
        self._spec = parse_spec(table)

    def __call__(self, record: bytes) -> dict[str, Any]:
        """Bytes for a single text or file, and a flat array for all else, by source. Where records have labels alone,
        these are the category ids.

        Raises:
            RecordParseError: it is no Example of the table.
        """
        import tensorflow as tf

        try:
            parsed = tf.io.parse_single_example(record, self._spec)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:  # TensorFlow quotes what it cannot read
            raise RecordParseError(first_line(error)) from error
        values = {feature.source: _value(parsed[feature.name]) for feature in self._table.features}
        if "objects.label" in values:
            values.setdefault("objects.category_id", values["objects.label"])
        return values


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


class RecordParseError(ValueError):
    """What TensorFlow says of a record that it cannot parse."""


def length_faults(values: dict[str, Any], table: FeatureTable, keypoints: int) -> Iterator[RecordFault]:
    """Lists of which one has another length than the others of its dimension.

    Args:
        keypoints: of each object.
    """
    by_dimension: dict[str, dict[str, float]] = {}
    for feature in table.features:
        if feature.shape and not feature.shape[0].isdecimal():
            length = values[feature.source].size / _values_each(feature)  # whole, unless the list is damaged
            by_dimension.setdefault(feature.shape[0], {})[feature.source] = length
    for lengths in by_dimension.values():
        if len(set(lengths.values())) > 1:
            yield "object_lists", f"lists of one object each differ in length: {lengths}"
    if "objects.keypoint_x" in values:
        found, objects = values["objects.keypoint_x"].size, values["objects.id"].size
        if found != objects * keypoints:
            yield "keypoints", f"{found} keypoints of {objects} objects with {keypoints} each"


def _values_each(feature: Feature) -> int:
    return int(np.prod([int(size) for size in feature.shape[1:]]))


def _value(tensor: Any) -> Any:
    value = (tensor.flat_values if hasattr(tensor, "flat_values") else tensor).numpy()
    # An array of one text would lose the zero bytes at its end.
    return value if isinstance(value, bytes) else np.ravel(value)
