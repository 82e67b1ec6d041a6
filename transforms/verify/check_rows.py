"""Records of a table are parsed, many at once, and their values are checked."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from recordmill.schemas.checks import Check
from recordmill.schemas.encoders import EncoderInfo
from recordmill.schemas.features import CLASS_OF_ROW, ColumnType, Feature, FeatureTable, Kind, parse_spec
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import is_of_picture
from recordmill.schemas.tables import TEXT_PARTS, Column
from recordmill.transforms.records.record_values import RecordFault, RecordParseError, RecordParser, first_line
from recordmill.transforms.verify.check_records import image_faults, text_faults
from recordmill.transforms.verify.decoders import OPENERS

_Column = tuple[np.ndarray | None, np.ndarray]
"""How many values each record has, None where each has one; and the values of all records, one after the other."""


class RowChecker:
    """Checks records of one table, whose texts `encoders` has encoded. Imports TensorFlow where `check` says so."""

    def __init__(self, check: Check, table: FeatureTable, labels: LabelMap, encoders: tuple[EncoderInfo, ...] = ()):
        self._columns = [feature for feature in table.features if not is_of_picture(feature)]
        self._pictures = [feature for feature in table.features if is_of_picture(feature)]
        self._open = OPENERS[check]
        self._classes = len(labels.categories)
        self._class_names = np.array([category.name.encode() for category in labels.categories], object)
        self._encoders = {f"{encoder.column}.{part}": encoder for encoder in encoders for part in TEXT_PARTS.values()}
        self._parse = _parser_of_tensorflow(table) if check is Check.TENSORFLOW else _parser(table)

    def __call__(self, records: Sequence[bytes]) -> list[list[RecordFault]]:
        """The faults of each record."""
        try:
            parsed = self._parse(records)
        except RecordParseError as error:
            if len(records) == 1:
                return [[("schema", str(error))]]
            half = len(records) // 2  # to find those that do not parse
            return self(records[:half]) + self(records[half:])
        faults: list[list[RecordFault]] = [[] for _ in records]
        for feature in self._columns:
            for place, fault in self._faults(feature, *parsed[feature.name]):
                faults[place].append(fault)
        pictures = [parsed[feature.name][1] for feature in self._pictures]
        for place, of_row in enumerate(zip(*pictures, strict=True)):
            faults[place] += self._picture_faults(of_row)
        return faults

    def _picture_faults(self, of_row: Sequence[Any]) -> Iterator[RecordFault]:
        """What is wrong with the picture of a row, whose features these are."""
        values = {feature.source: value for feature, value in zip(self._pictures, of_row, strict=True)}
        if "image.encoded" in values:
            yield from image_faults(values, self._open)
            return
        (pixels,) = (feature for feature in self._pictures if feature.is_packed)
        height, width, channels = map(int, pixels.shape)
        said = values["image.height"], values["image.width"]
        if said != (height, width) or len(values[pixels.source]) != height * width * channels:
            found = f"{len(values[pixels.source]):,} bytes of pixels, said to be {said[1]}x{said[0]}"
            yield "image_size", f"{found}; the manifest says {width}x{height} of {channels}"

    def _faults(
        self, feature: Feature, lengths: np.ndarray | None, flat: np.ndarray
    ) -> Iterator[tuple[int, RecordFault]]:
        """Values that no row becomes."""
        if lengths is not None:
            owners = np.repeat(np.arange(len(lengths)), lengths)
            if Column.of_feature(feature).is_optional:
                for place in np.flatnonzero(lengths > 1):
                    yield int(place), ("schema", f"{feature.name} has {lengths[place]} values")
        else:
            owners = np.arange(len(flat))
        if lengths is not None and (encoder := self._encoders.get(feature.source)):
            for row, own in enumerate(np.split(flat, np.cumsum(lengths)[:-1])):
                yield from ((row, fault) for fault in text_faults({feature.source: own}, encoder))
        if feature.kind is Kind.FLOAT:
            for place in np.unique(owners[~np.isfinite(flat)]):
                yield int(place), ("not_finite", f"{feature.name} has a value that is NaN or infinite")
        if feature.column_type is ColumnType.CLASS_NAME:
            for place in np.flatnonzero(~np.isin(flat, self._class_names)):
                yield int(owners[place]), ("class", f"{feature.name} {flat[place][:80]!r} is no class of the manifest")
            return
        names = self._classes if feature.source.startswith(CLASS_OF_ROW) else len(feature.values)
        if names or feature.source.startswith(CLASS_OF_ROW):
            what = "class" if feature.source.startswith(CLASS_OF_ROW) else "enum"
            for place in np.flatnonzero((flat < 0) | (flat >= names)):
                yield int(owners[place]), (what, f"{feature.name} {flat[place]} is no index of the manifest's names")


def _parser(table: FeatureTable) -> Callable[[Sequence[bytes]], dict[str, _Column]]:
    parse = RecordParser(table)

    def parse_all(records: Sequence[bytes]) -> dict[str, _Column]:
        rows = list(map(parse, records))
        return {feature.name: _column(feature, [row[feature.source] for row in rows]) for feature in table.features}

    return parse_all


def _column(feature: Feature, values: list[Any]) -> _Column:
    if feature.is_list:
        return np.fromiter(map(len, values), np.int64, len(values)), np.concatenate(values)
    return None, np.array(values, object) if feature.kind is Kind.BYTES else np.concatenate(values)


def _parser_of_tensorflow(table: FeatureTable) -> Callable[[Sequence[bytes]], dict[str, _Column]]:
    import tensorflow as tf

    spec = parse_spec(table)
    parse = tf.function(
        lambda records: tf.io.parse_example(records, spec), input_signature=[tf.TensorSpec([None], tf.string)]
    )

    def parse_all(records: Sequence[bytes]) -> dict[str, _Column]:
        try:
            parsed = parse(tf.constant(records, tf.string))
        except tf.errors.InvalidArgumentError as error:
            raise RecordParseError(first_line(error)) from error
        return {
            feature.name: (
                (values.row_lengths().numpy(), values.flat_values.numpy())
                if feature.is_list
                else (None, values.numpy())
            )
            for feature in table.features
            for values in [parsed[feature.name]]
        }

    return parse_all
