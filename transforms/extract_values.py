"""A serialised record becomes values, by what they are whatever the layout calls them (see `schemas.layouts`)."""

from typing import Any

import numpy as np

from schemas.features import Feature, FeatureTable, Kind, parse_spec
from schemas.labels import LabelMap


class UnusableRecordError(ValueError):
    """Why a record, or a part of one, cannot be extracted; becomes a Fault.

    Attributes:
        reason: `schema`, `object_lists`, `image_undecodable`, `file_name` or `mask`.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def __reduce__(self):
        return UnusableRecordError, (self.reason, self.detail)


class RecordReader:
    """Reads records of one data set. Imports TensorFlow.

    Args:
        table: what is in a record.
        labels: the data set's classes.
    """

    def __init__(self, table: FeatureTable, labels: LabelMap):
        self._table = table
        self._spec = parse_spec(table)
        self._keypoints = labels.keypoints

    def __call__(self, record: bytes) -> dict[str, Any]:
        """Bytes for a single text or file, and a flat array for all else, by source.

        Raises:
            UnusableRecordError: it does not parse, lists of one object each differ in length, or a number is not
                finite.
        """
        import tensorflow as tf

        try:
            parsed = tf.io.parse_single_example(record, self._spec)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:  # TensorFlow quotes what it cannot read
            raise UnusableRecordError("schema", str(error).splitlines()[0]) from error
        values = {feature.source: _value(parsed[feature.name]) for feature in self._table.features}
        self._check_lengths(values)
        for feature in self._table.features:
            if feature.kind is Kind.FLOAT and not np.isfinite(values[feature.source]).all():
                raise UnusableRecordError("schema", f"{feature.name} has a number that is not finite")
        return values

    def _check_lengths(self, values: dict[str, Any]) -> None:
        by_dimension: dict[str, dict[str, float]] = {}
        for feature in self._table.features:
            if feature.shape and not feature.shape[0].isdecimal():
                length = values[feature.source].size / _values_each(feature)
                by_dimension.setdefault(feature.shape[0], {})[feature.name] = length
        for lengths in by_dimension.values():
            if len(set(lengths.values())) > 1:
                raise UnusableRecordError("object_lists", f"lists of one object each differ in length: {lengths}")
        if "objects.keypoint_x" in values:
            found, objects = values["objects.keypoint_x"].size, values["objects.id"].size
            if found != objects * self._keypoints:
                detail = f"{found} keypoints of {objects} objects with {self._keypoints} each"
                raise UnusableRecordError("object_lists", detail)


def _values_each(feature: Feature) -> int:
    return int(np.prod([int(size) for size in feature.shape[1:]]))


def _value(tensor: Any) -> Any:
    value = (tensor.flat_values if hasattr(tensor, "flat_values") else tensor).numpy()
    # An array of one text would lose the zero bytes at its end.
    return value if isinstance(value, bytes) else np.ravel(value)


def text(value: bytes, name: str) -> str:
    """UTF-8 bytes as text; `name` is for the message.

    Raises:
        UnusableRecordError: they are not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnusableRecordError("schema", f"{name} is not UTF-8: {value[:80]!r}") from error
