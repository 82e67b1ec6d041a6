"""Values of samples in COCO's terms, as containers that store values have them, and the tf.Examples made of them.

A sample is an image with its annotations, captions and fields: boxes in pixels, category ids, run lengths of masks. The
tf.Example has the same values in the layout of the data set. Both directions work on columns of many samples. Each
tf.Example is rebuilt from its sample before the sample is stored, and compared byte for byte.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from math import prod
from typing import Any

import numpy as np

from recordmill.schemas.block import Ragged, starts_of
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Feature, FeatureKind, FeatureTable
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.values import VALUE_OF
from recordmill.transforms.containers.sample_codings import FILES, Samples, codings, is_of_objects
from recordmill.transforms.records.example import (
    Column,
    ExampleWriter,
    Heads,
    Record,
    feature_payloads,
    item_values,
    read_varint,
)


class SampleCodec:
    """Converter of the records of a data set to samples, and back to the same bytes. Layouts detection and
    classification.

    Attributes:
        image_columns, object_columns: Columns of samples and of annotations, in order.
        has_objects: True if samples have annotations.
        files: Names of the files of each sample, see FILES; the image first.
    """

    def __init__(self, table: FeatureTable, labels: LabelMap):
        self._features = {feature.source: feature for feature in table.features}
        self._codings = codings(table, labels)
        self.image_columns = [column for coding in self._codings if not coding.is_object for column in coding.columns]
        self.object_columns = [column for coding in self._codings if coding.is_object for column in coding.columns]
        for columns in (self.image_columns, self.object_columns):
            keys = [column.key for column in columns]
            if clash := next((key for key in keys if keys.count(key) > 1), ""):
                raise ConfigError(f"two values of a sample have the key {clash!r}. Rename the field, or leave it out")
        self.has_objects = any(map(is_of_objects, table.features))
        self.files = [name for source, name in FILES.items() if source in self._features]
        self._keypoints = labels.keypoints
        self._splitter = _RecordSplitter(table)
        self._writer = ExampleWriter(table)

    def samples(self, records: Sequence[bytes | Record], first: int = 0) -> Samples:
        """Return the samples of serialised tf.Examples.

        Args:
            records: One or more, in one or several parts.
            first: Number of the first record, for errors.

        Raises:
            ConfigError: A record is not the tf.Example that `records` returns for its sample.
        """
        rows = []
        for number, record in enumerate(records, first):
            try:
                rows.append(self._split(record))
            except (ValueError, IndexError) as fault:
                raise unlike_error(number, str(fault)) from fault
        payloads = dict(zip(self._features, zip(*rows, strict=True), strict=True))
        try:
            samples = self._decode(payloads, len(records))
            columns = self._columns(samples)
        except (ValueError, LookupError, TypeError, OverflowError, FloatingPointError) as fault:
            if len(records) == 1:
                raise unlike_error(first, str(fault)) from fault
            for number, record in enumerate(records, first):
                self.samples([record], number)
            raise
        for source, feature in self._features.items():
            rebuilt = payloads[source] if source in FILES else feature_payloads(feature, columns[source])
            if list(rebuilt) != list(payloads[source]):
                row = next(row for row, payload in enumerate(rebuilt) if payload != payloads[source][row])
                raise unlike_error(first + row, f"the value of {feature.name} would change")
        return samples

    def _split(self, record: bytes | Record) -> list[Any]:
        if isinstance(record, bytes):
            return self._splitter.split(record)
        try:
            return self._splitter.split(*record)
        except (ValueError, IndexError):  # parts of another writer
            return self._splitter.split(b"".join(record))

    def records(self, samples: Samples) -> Iterator[bytes]:
        """Yield the serialised tf.Example of each sample.

        Raises:
            ValueError: A value cannot be that of a record.
        """
        try:
            columns = self._columns(samples)
            yield from map(b"".join, self._writer.records(columns, samples.examples))
        except (LookupError, TypeError, OverflowError, FloatingPointError) as fault:
            raise ValueError(f"a value cannot be stored ({fault})") from fault

    def _decode(self, payloads: Mapping[str, Sequence[Any]], number: int) -> Samples:
        files = {name: list(payloads[source]) for source, name in FILES.items() if source in self._features}
        samples = Samples({}, {}, np.zeros(number + 1, np.int64), files)
        for coding in self._codings:
            columns, starts = [], samples.starts
            for source in coding.sources:
                feature = self._features[source]
                column = _decode_column(feature, payloads[source])
                if is_of_objects(feature):
                    column, starts = self._flatten(feature, column)
                    if samples.objects and not np.array_equal(starts, samples.starts):
                        raise ValueError("lists with one value per object differ in length")
                    samples = samples._replace(starts=starts)
                columns.append(column)
            held = samples.objects if coding.is_object else samples.images
            keys = (column.key for column in coding.columns)
            held.update(zip(keys, coding.to_sample(columns, samples), strict=True))
        return samples

    def _flatten(self, feature: Feature, column: Any) -> tuple[Any, np.ndarray]:
        """Return the values of all objects, and the first object of each image."""
        item = self._item_size(feature)
        values: Any
        if isinstance(column, Ragged):
            values, starts = column
        else:
            values, starts = list(chain.from_iterable(column)), starts_of(np.array([*map(len, column)], np.int64))
        if len(feature.shape) > 1 or feature.shape[0] == "N*K":
            if (starts % item).any():
                raise ValueError(f"{feature.name} does not have {item} values per object")
            starts = starts // item
            if isinstance(values, list):
                values = [values[start : start + item] for start in range(0, len(values), item)]
            else:
                values = values.reshape(-1, item)
        return values, starts

    def _item_size(self, feature: Feature) -> int:
        """Return the number of values of each object."""
        if feature.shape[0] == "N*K":
            return self._keypoints
        return prod(map(int, feature.shape[1:]))

    def _columns(self, samples: Samples) -> dict[str, Column]:
        """Return the columns of the records by source."""
        columns: dict[str, Column] = {}
        for coding in self._codings:
            held = samples.objects if coding.is_object else samples.images
            record_columns = coding.to_record([held[column.key] for column in coding.columns], samples)
            for source, column in record_columns.items():
                if feature := self._features.get(source):
                    column = column if feature.kind is FeatureKind.BYTES else _with_kind(feature, column)
                    columns[source] = _group(column, samples.starts) if is_of_objects(feature) else column
        for source, name in FILES.items():
            if source in self._features:
                columns[source] = samples.files[name]
        if "image.format" in self._features:
            columns["image.format"] = [_image_format(image) for image in samples.files["image"]]
        return columns


class _RecordSplitter:
    """Splitter of the records that an ExampleWriter of `table` writes."""

    def __init__(self, table: FeatureTable):
        self._heads = [
            (Heads(feature.name, feature.kind, feature.is_list), dict[int, tuple[bytes, int]]())
            for feature in table.features
        ]
        self._names = [feature.name for feature in table.features]

    def split(self, *record: bytes) -> list[Any]:
        """Return the data of each feature: packed numbers, bytes, or items of a BytesList. Large ones are not copied.

        Args:
            record: The record, in one or several parts: a large value may be a part.

        Raises:
            ValueError: The record is not one that an ExampleWriter writes.
        """
        part, *rest = record
        size, place = read_varint(part, 1)
        if part[0] != _FIRST_BYTE or place + size != sum(map(len, record)):
            raise ValueError("it is not a serialised tf.Example")
        payloads = list[Any]()
        part_size = len(part)
        for heads, entry_of in self._heads:  # most of a writer's own time: no call for small features
            size, start = part[place + 1], place + 2
            if size > 127:
                size, start = read_varint(part, place + 1)
            end = start + size
            head, length = entry_of.get(size) or self._entry(heads, entry_of, size, end - place)
            is_part = end > part_size and end - length == part_size and bool(rest) and len(rest[0]) == length
            if not part.startswith(head, place) or (end > part_size and not is_part):
                raise ValueError(f"its feature {self._names[len(payloads)]} is missing, or written otherwise")
            if is_part:
                payloads.append(rest[0])
                part, rest, end = rest[1] if len(rest) > 1 else b"", rest[2:], 0
                part_size = len(part)
            elif length < _MOST_CACHED:
                payloads.append(part[end - length : end])
            else:
                payloads.append(memoryview(part)[end - length : end])
            place = end
        if place != part_size or rest:
            raise ValueError("it has features that the manifest does not name")
        return payloads

    @staticmethod
    def _entry(heads: Heads, entry_of: dict[int, tuple[bytes, int]], size: int, entry_size: int) -> tuple[bytes, int]:
        """Return the header of a map entry, and the length of its data. Those of small ones are kept in `entry_of`."""
        length = _payload_length(heads, entry_size)
        if size < _MOST_CACHED:
            entry_of[size] = heads[length], length
        return heads[length], length


_FIRST_BYTE = 0x0A
_MOST_CACHED = 4096


def _payload_length(heads: Heads, size: int) -> int:
    """Return the length of a feature's data, given the size of its map entry in bytes with the entry's header."""
    length = max(0, size - len(heads[0]))
    while length and len(heads[length]) + length > size:
        length -= 1
    return length


def unlike_error(first: int, fault: str, number: int = 1) -> ConfigError:
    """Return the error of a record, or of one of `number` records, that the container would not return unchanged."""
    where = f"record {first:,}" if number == 1 else f"one of the records {first:,} to {first + number - 1:,}"
    return ConfigError(
        f"{where} would not come back byte for byte: {fault}. Add --container arrayrecord, which stores "
        "records unchanged"
    )


def _image_format(image: Any) -> bytes:
    return b"png" if bytes(image[:4]) == b"\x89PNG" else b"jpeg"


def _decode_column(feature: Feature, payloads: Sequence[Any]) -> Any:
    """Return the values of a feature: an array of single numbers, a Ragged of lists of numbers, or a list."""
    if feature.kind is FeatureKind.BYTES:
        return [[*map(bytes.decode, item_values(bytes(data)))] for data in payloads] if feature.is_list else payloads
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    data = np.frombuffer(b"".join(payloads), np.uint8)
    if feature.kind is FeatureKind.FLOAT:
        if (lengths % 4).any():
            raise ValueError(f"{feature.name} has a truncated number")
        column = Ragged(data.view("<f4"), starts_of(lengths // 4))
    else:
        column = _decode_varints(data, starts_of(lengths))
    if feature.source in VALUE_OF and VALUE_OF[feature.source].kind is not feature.kind:  # --dtype
        is_whole = VALUE_OF[feature.source].kind is FeatureKind.INT64
        column = Ragged(column.values.astype(np.int64 if is_whole else np.float64), column.starts)
    if feature.shape and not feature.has_sizes:
        return column
    size = prod(map(int, feature.shape))
    if (column.lengths != size).any():
        raise ValueError(f"{feature.name} does not have {size} values")
    return column.values.reshape(-1, size) if feature.shape else column.values


def _decode_varints(data: np.ndarray, starts: np.ndarray) -> Ragged:
    """Return the int64 values of varints.

    Args:
        data: uint8, varints of all rows.
        starts: int64 [rows + 1], start of each row in bytes.

    >>> _decode_varints(np.array([1, 0xAC, 2], np.uint8), np.array([0, 1, 3])).values.tolist()
    [1, 300]
    """
    is_last = data < 128
    if is_last.all():
        return Ragged(data.astype(np.int64), starts)
    ends = np.flatnonzero(is_last) + 1
    values = np.zeros(len(ends), np.uint64)
    firsts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    for index in range(int((ends - firsts).max(initial=0))):
        rows = np.flatnonzero(ends - firsts > index)
        values[rows] |= (data[firsts[rows] + index].astype(np.uint64) & np.uint64(127)) << np.uint64(7 * index)
    number_before = np.zeros(len(data) + 1, np.int64)
    np.cumsum(is_last, out=number_before[1:])
    return Ragged(values.astype(np.int64), number_before[starts])


def _with_kind(feature: Feature, column: Any) -> Any:
    """Return a column of numbers; floats as integers if the feature has these."""
    if isinstance(column, Ragged):
        return Ragged(_with_kind(feature, column.values), column.starts)
    if feature.kind is FeatureKind.INT64 and column.dtype.kind == "f":
        with np.errstate(invalid="raise"):
            return column.astype(np.int64)
    return column


def _group(column: Any, starts: np.ndarray) -> Column:
    """Return values of objects as lists of each image."""
    if isinstance(column, Ragged):  # serialised texts
        return Ragged(column.values, column.starts[starts])
    if isinstance(column, np.ndarray):
        return Ragged(column.ravel(), starts * prod(column.shape[1:]))
    lists = [column[start:end] for start, end in pairwise(starts.tolist())]
    has_lists = bool(column) and isinstance(column[0], list)
    return [[*chain.from_iterable(texts)] for texts in lists] if has_lists else lists
