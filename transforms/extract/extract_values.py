"""A serialised record becomes values by their source, whatever the layout calls them (`recordmill.schemas.layouts`)."""

from typing import Any

import numpy as np

from recordmill.schemas.features import FeatureTable, Kind
from recordmill.schemas.labels import LabelMap
from recordmill.transforms.records.record_values import RecordParseError, RecordParser, as_meant, length_faults


class UnusableRecordError(ValueError):
    """Why a record, or a part of one, cannot be extracted; becomes a Fault.

    Attributes:
        reason: `schema`, `object_lists`, `keypoints`, `image_undecodable`, `file_name` or `mask`.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def __reduce__(self):
        return UnusableRecordError, (self.reason, self.detail)


class RecordReader:
    """Reads records of one data set.

    Args:
        table: what is in a record.
        labels: the data set's classes.
    """

    def __init__(self, table: FeatureTable, labels: LabelMap):
        self._table = table
        self._parse = RecordParser(table)
        self._labels = labels

    def __call__(self, record: bytes) -> dict[str, Any]:
        """Bytes for a single text or file, and a flat array for all else, by source.

        Raises:
            UnusableRecordError: it does not parse, lists of one object each differ in length, or a number is not
                finite.
        """
        try:
            values = self._parse(record)
        except RecordParseError as error:
            raise UnusableRecordError("schema", str(error)) from error
        for reason, detail in length_faults(values, self._table, self._labels.keypoints):
            raise UnusableRecordError(reason, detail)
        for feature in self._table.features:
            if feature.kind is Kind.FLOAT and not np.isfinite(values[feature.source]).all():
                raise UnusableRecordError("schema", f"{feature.name} has a number that is not finite")
        return as_meant(values, self._table, self._labels)


def text(value: bytes, name: str) -> str:
    """UTF-8 bytes as text; `name` is for the message.

    Raises:
        UnusableRecordError: they are not UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnusableRecordError("schema", f"{name} is not UTF-8: {value[:80]!r}") from error
