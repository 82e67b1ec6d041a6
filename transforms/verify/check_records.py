"""Parse a record of any layout, and check its values."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from recordmill.schemas.dataset.checks import Check
from recordmill.schemas.features import (
    CLASS_OF_ROW,
    ColumnType,
    Feature,
    FeatureKind,
    FeatureTable,
    RecordOf,
    parse_spec,
)
from recordmill.schemas.inputs.encoders import UNKNOWN_ID, EncoderInfo
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, LabelMap
from recordmill.schemas.inputs.tables import TEXT_PARTS, Column
from recordmill.schemas.layouts import is_image_feature
from recordmill.schemas.rejects import Reason, UnusableError
from recordmill.transforms.dataset.record_view import RecordView, attempt
from recordmill.transforms.images.load_images import inspect_image
from recordmill.transforms.images.open_image import encoded_channels
from recordmill.transforms.records.parse_record import (
    RecordFault,
    RecordParseError,
    RecordParser,
    convert_to_layout_types,
    first_line,
    length_faults,
)

Opener = Callable[[bytes, int], tuple[int, int, int]]
"""Function that returns an image's width and height in pixels, and the number of decoded channels."""


def inspect_encoded(encoded: bytes, channels: int, check: str) -> tuple[int, int, int]:
    """Check a JPEG or PNG by the rules for writing records: images that TensorFlow cannot decode are refused.

    Args:
        channels: Channels of the decoded image; 0 for those of the file.
        check: `header`, or `decode` to decode the pixels, too.

    Raises:
        UnusableError: The image is refused.
    """
    kind, width, height = inspect_image(encoded, check)
    return width, height, channels or encoded_channels(encoded, kind)


def decode_by_tensorflow(encoded: bytes, channels: int) -> tuple[int, int, int]:
    """Return the result of `inspect_encoded` with TensorFlow's pixels."""
    import tensorflow as tf

    try:
        image = tf.io.decode_image(encoded, channels=channels, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        raise UnusableError(Reason.IMAGE_UNREADABLE, first_line(error)) from error
    return image.shape[1], image.shape[0], image.shape[2]


OPENERS: Mapping[Check, Opener] = {
    Check.HASHES: partial(inspect_encoded, check="header"),
    Check.DECODE: partial(inspect_encoded, check="decode"),
    Check.TENSORFLOW: decode_by_tensorflow,
}


_Column = tuple[np.ndarray | None, np.ndarray]
"""Number of values of each record, None for single values; and the concatenated values of all records."""


class TensorFlowParser:
    """A `recordmill.transforms.records.parse_record.RecordParser` that uses TensorFlow."""

    def __init__(self, table: FeatureTable):
        self._table = table
        self._spec = parse_spec(table)

    def __call__(self, record: bytes) -> dict[str, Any]:
        import tensorflow as tf

        parsed = _parse_by_tensorflow(tf.io.parse_single_example, record, self._spec)
        return {feature.source: _flatten_tensor(parsed[feature.name]) for feature in self._table.features}

    def columns(self, records: Sequence[bytes]) -> dict[str, _Column]:
        """Return the values of several records, by name. Small records are a hundred times as fast together."""
        import tensorflow as tf

        parsed = _parse_by_tensorflow(tf.io.parse_example, records, self._spec)
        lists = {
            name: values.row_lengths().numpy() for name, values in parsed.items() if hasattr(values, "row_lengths")
        }
        return {name: (lists.get(name), _flatten_tensor(values)) for name, values in parsed.items()}


def _parse_by_tensorflow(
    parse: Callable[..., dict[str, Any]], records: bytes | Sequence[bytes], spec: dict[str, Any]
) -> dict[str, Any]:
    import tensorflow as tf

    try:
        return parse(tf.constant(records, tf.string), spec)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:  # TensorFlow's message quotes invalid bytes
        raise RecordParseError(first_line(error)) from error


def _flatten_tensor(tensor: Any) -> Any:
    value = (tensor.flat_values if hasattr(tensor, "flat_values") else tensor).numpy()
    # An array of a single text drops trailing zero bytes.
    return value if isinstance(value, bytes) else value.ravel()


class RecordChecker:
    """Checker of the records of one data set. Imports TensorFlow if `check` needs it.

    Args:
        check: Thoroughness.
        table: Features of the records.
        labels: Classes of the data set.
        boxes_inside: True if boxes must be within 0..1 (False if they were stored unchanged).
        encoders: Encoders of its texts.
    """

    def __init__(
        self,
        check: Check,
        table: FeatureTable,
        labels: LabelMap,
        boxes_inside: bool,
        encoders: tuple[EncoderInfo, ...] = (),
    ):
        self._table = table
        self._parse = TensorFlowParser(table) if check is Check.TENSORFLOW else RecordParser(table)
        self._open = OPENERS[check]
        self._labels = labels
        self._label = labels.label_by_id()
        self._boxes_inside = boxes_inside
        self._encoders = encoders

    def __call__(self, record: bytes) -> tuple[int, list[RecordFault]]:
        """Return a record's number of objects, and its faults."""
        try:
            values = convert_to_layout_types(self._parse(record), self._table, self._labels)
        except RecordParseError as error:
            return 0, [("schema", str(error))]
        faults: list[RecordFault] = []
        if "image.encoded" in values:
            faults += image_faults(values, self._open)
        if "feature.shape" in values:
            faults += _feature_faults(values, self._table)
        faults += length_faults(values, self._table, self._labels.keypoints)
        if not faults and "objects.id" in values:
            view = RecordView(values, values["image.size"])
            faults += [*self._box_faults(view), *self._class_faults(view), *_mask_faults(view, self._labels)]
        if not faults and "image.class_index" in values:
            index, name = values["image.class_index"].item(), values["image.class_name"]
            classes = self._labels.categories
            if not 0 <= index < len(classes) or classes[index].name.encode() != name:
                faults.append(("class", f"class {name[:80]!r} with class index {index} is not in the manifest"))
        if not faults:
            faults += [fault for encoder in self._encoders for fault in text_faults(values, encoder)]
        if self._table.record_of is RecordOf.ANNOTATION:
            return 1, faults
        return values["objects.id"].size if "objects.id" in values else 0, faults

    def _box_faults(self, record: RecordView) -> Iterator[RecordFault]:
        columns = dict(zip(("ymin", "xmin", "ymax", "xmax"), record.boxes_yxyx_frac.T, strict=True))
        if self._boxes_inside:
            for edge, column in columns.items():
                if not ((column >= 0) & (column <= _ONE)).all():
                    yield "box_range", f"{edge} is outside 0..1: {column.min():g} .. {column.max():g}"
        for low, high in (("xmin", "xmax"), ("ymin", "ymax")):
            if not (columns[low] <= columns[high]).all():
                yield "box_order", f"a box has {low} beyond {high}"

    def _class_faults(self, record: RecordView) -> Iterator[RecordFault]:
        values, category_ids = record.values, record.category_ids
        ids = [category.id for category in self._labels.categories]
        labels = record.column("objects.label") or map(self._label.get, category_ids)
        for index, id_, label in zip(record.column("objects.class_index"), category_ids, labels, strict=True):
            if not 0 <= index < len(ids) or ids[index] != id_:
                yield "class", f"category id {id_} with class index {index} is not in the manifest"
            elif label != self._label[id_]:
                yield "class", f"category id {id_} has the label {label}; the manifest says {self._label[id_]}"
        if "objects.category_name" in values:
            names = {category.id: category.name.encode() for category in self._labels.categories}
            for id_, name in zip(category_ids, values["objects.category_name"], strict=True):
                if names.get(id_, name) != name:
                    yield (
                        "class",
                        f"category id {id_} has the name {name[:80]!r}; the manifest says {names[id_][:80]!r}",
                    )
        for index in values.get("segments.class_index", ()):
            if not 0 <= index < len(self._labels.segments):
                yield "class", f"a segment's class index {index} is not in the manifest"


def image_faults(values: dict[str, Any], open_: Opener) -> Iterator[RecordFault]:
    """Yield the faults of an image file. Its width and height are added to `values`."""
    encoded = values["image.encoded"]
    if "image.sha256" in values and hashlib.sha256(encoded).hexdigest().encode() != values["image.sha256"]:
        yield "image_sha256", "the image's SHA-256 is not the record's"
    try:
        # If the record has the number of channels, the decoder must report the file's own.
        *size, decoded_channels = open_(encoded, 0 if "image.channels" in values else 3)
    except UnusableError as error:
        yield "image_undecodable", str(error)
        return
    width, height, channels = (
        values[source].item() if source in values else None
        for source in ("image.width", "image.height", "image.channels")
    )
    values["image.size"] = tuple(size)
    if [width, height] not in ([None, None], size):
        yield "image_size", f"the image decodes to {size[0]}x{size[1]}; the record says {width}x{height}"
    if channels not in (None, decoded_channels):
        yield "image_channels", f"the image decodes to {decoded_channels} channels; the record says {channels}"


def text_faults(values: dict[str, Any], encoder: EncoderInfo) -> Iterator[RecordFault]:
    """Yield the faults of an encoded text: an index beyond the vocabulary, or out of order; an invalid weight."""
    index, value = values.get(f"{encoder.column}.index"), values.get(f"{encoder.column}.value")
    tokens = values.get(f"{encoder.column}.tokens")
    numbers = tokens if index is None else index
    least = 0 if tokens is None else UNKNOWN_ID
    if numbers is not None and numbers.size and not (least <= numbers.min() and numbers.max() < encoder.size):
        span = f"{encoder.column}: {numbers.min()} .. {numbers.max()}"
        yield "text", f"{span} is not within the encoder's {least} .. {encoder.size - 1}"
    if index is not None and (np.diff(index) <= 0).any():
        yield "text", f"{encoder.column}: the indices of its terms do not ascend"
    if value is not None and not (np.isfinite(value) & (value > 0)).all():
        yield "text", f"{encoder.column}: a term has the weight {value.min():g}"


def _feature_faults(values: dict[str, Any], table: FeatureTable) -> Iterator[RecordFault]:
    """Yield the faults of an image's feature, without its exact values, which differ between processors."""
    shape = tuple(values["feature.shape"].tolist())
    if "feature.bytes" in values:
        numbers = np.frombuffer(values["feature.bytes"][: len(values["feature.bytes"]) // 2 * 2], "<f2")
        expected = shape
        is_whole = len(values["feature.bytes"]) == 2 * numbers.size
    else:
        numbers, is_whole = values["feature.values"], True
        (expected,) = (
            tuple(map(int, feature.shape)) for feature in table.features if feature.source == "feature.values"
        )
    if shape != expected or numbers.size != np.prod(shape) or not is_whole:
        yield "feature_shape", f"{numbers.size:,} numbers; feature/shape says {shape}, the manifest {expected}"
    if not np.isfinite(numbers).all():
        yield "feature_values", f"{np.count_nonzero(~np.isfinite(numbers)):,} numbers are NaN or infinite"


_ONE = 1 + 1e-6
"""Maximum edge inside the image: a quotient of 32-bit floats may be slightly above 1."""


_MAP_BITS = {"semantic.png": 8, "panoptic.category_png": 8, "panoptic.instance_png": 8, "depth.png": 16}
"""Bits per pixel of grey PNGs. TensorFlow decodes other bits, and palettes, to other numbers."""
_MAPS = (*_MAP_BITS, "panoptic.png")
_GREY = 0
"""Colour type of grey pixels in the header of a PNG."""
_BITS_AT, _COLOUR_AT = 24, 25
_SHOWN_VALUES = 5


def _map_faults(record: RecordView, source: str, pixels: np.ndarray, labels: LabelMap) -> Iterator[RecordFault]:
    """Yield the faults of a decoded map: another kind of PNG than readers expect, pixels without a class."""
    header, bits = record.values[source][: _COLOUR_AT + 1], _MAP_BITS.get(source)
    if bits and (header[_BITS_AT], header[_COLOUR_AT]) != (bits, _GREY):
        kind = "grey" if header[_COLOUR_AT] == _GREY else "colour or palette"
        yield "mask", f"{source} is a {kind} PNG of {header[_BITS_AT]} bits, not a grey PNG of {bits} bits"
    elif source == "semantic.png" and labels.segments:
        names = labels.semantic_names()
        unnamed = [value for value in np.unique(pixels).tolist() if value not in names and value != SEMANTIC_IGNORE]
        if unnamed:
            shown = ", ".join(map(str, unnamed[:_SHOWN_VALUES])) + (", …" if len(unnamed) > _SHOWN_VALUES else "")
            yield "mask", f"{source} has values of no class: {shown}"


def _mask_faults(record: RecordView, labels: LabelMap) -> Iterator[RecordFault]:
    """Yield the faults of masks: they have the image's size and decode; object masks have values 0 and 1."""
    masks = [(record.mask_source, mask) for mask in record.masks()]
    masks += [(source, attempt(record.map, source)) for source in _MAPS if record.values.get(source) is not None]
    width, height = record.size
    for source, pixels in masks:
        if isinstance(pixels, UnusableError):
            yield "mask", f"a mask of {source} does not decode ({pixels})"
        elif pixels.shape != (height, width):
            yield (
                "mask",
                f"a mask of {source} has {pixels.shape[1]}x{pixels.shape[0]} pixels, the image {width}x{height}",
            )
        elif source == record.mask_source and pixels.max(initial=0) > 1:
            yield "mask", f"a mask of {source} has the value {pixels.max()}, not 0 or 1"
        elif source in _MAPS:
            yield from _map_faults(record, source, pixels, labels)


class RowChecker:
    """Checker of the records of one table with texts of `encoders`. Imports TensorFlow if `check` needs it."""

    def __init__(self, check: Check, table: FeatureTable, labels: LabelMap, encoders: tuple[EncoderInfo, ...] = ()):
        self._columns = [feature for feature in table.features if not is_image_feature(feature)]
        self._image_features = [feature for feature in table.features if is_image_feature(feature)]
        self._open = OPENERS[check]
        self._class_names = np.array([category.name.encode() for category in labels.categories], object)
        self._encoders = {f"{encoder.column}.{part}": encoder for encoder in encoders for part in TEXT_PARTS.values()}
        self._parse = TensorFlowParser(table).columns if check is Check.TENSORFLOW else partial(_parse_columns, table)

    def __call__(self, records: Sequence[bytes]) -> list[list[RecordFault]]:
        """Return the faults of each record."""
        try:
            parsed = self._parse(records)
        except RecordParseError as error:
            if len(records) == 1:
                return [[("schema", str(error))]]
            half = len(records) // 2  # bisects to find those that do not parse
            return self(records[:half]) + self(records[half:])
        faults: list[list[RecordFault]] = [[] for _ in records]
        for feature in self._columns:
            for row, fault in self._faults(feature, *parsed[feature.name]):
                faults[row].append(fault)
        image_columns = [parsed[feature.name][1] for feature in self._image_features]
        for row, image_values in enumerate(zip(*image_columns, strict=True)):
            faults[row] += self._image_faults(image_values)
        return faults

    def _image_faults(self, image_values: Sequence[Any]) -> Iterator[RecordFault]:
        values = {feature.source: value for feature, value in zip(self._image_features, image_values, strict=True)}
        if "image.encoded" in values:
            yield from image_faults(values, self._open)
            return
        (pixels,) = (feature for feature in self._image_features if feature.is_packed)
        height, width, channels = map(int, pixels.shape)
        stored = values["image.height"], values["image.width"]
        if stored != (height, width) or len(values[pixels.source]) != height * width * channels:
            record_size = f"{len(values[pixels.source]):,} bytes of pixels of {stored[1]}x{stored[0]}"
            yield "image_size", f"the record has {record_size}; the manifest says {width}x{height} of {channels}"

    def _faults(
        self, feature: Feature, lengths: np.ndarray | None, flat: np.ndarray
    ) -> Iterator[tuple[int, RecordFault]]:
        """Yield the faults of values that no row can have, with the record's index."""
        if lengths is not None:
            owners = np.repeat(np.arange(len(lengths)), lengths)
            if Column.of_feature(feature).is_optional:
                for row in np.flatnonzero(lengths > 1).tolist():
                    yield row, ("schema", f"{feature.name} has {lengths[row]} values")
        else:
            owners = np.arange(len(flat))
        if lengths is not None and (encoder := self._encoders.get(feature.source)):
            for row, values in enumerate(np.split(flat, np.cumsum(lengths)[:-1])):
                yield from ((row, fault) for fault in text_faults({feature.source: values}, encoder))
        if feature.kind is FeatureKind.FLOAT:
            for row in np.unique(owners[~np.isfinite(flat)]).tolist():
                yield row, ("not_finite", f"{feature.name} has a value that is NaN or infinite")
        if feature.column_type is ColumnType.CLASS_NAME:
            for index in np.flatnonzero(~np.isin(flat, self._class_names)):
                yield (
                    int(owners[index]),
                    ("class", f"{feature.name} {flat[index][:80]!r} is not a class of the manifest"),
                )
            return
        is_class = feature.source.startswith(CLASS_OF_ROW)
        if is_class or feature.values:
            what, names = ("class", len(self._class_names)) if is_class else ("enum", len(feature.values))
            for index in np.flatnonzero((flat < 0) | (flat >= names)):
                yield (
                    int(owners[index]),
                    (what, f"{feature.name} {flat[index]} is not an index of the manifest's names"),
                )


def _parse_columns(table: FeatureTable, records: Sequence[bytes]) -> dict[str, _Column]:
    rows = list(map(RecordParser(table), records))
    return {feature.name: _join_column(feature, [row[feature.source] for row in rows]) for feature in table.features}


def _join_column(feature: Feature, values: list[Any]) -> _Column:
    if feature.is_list:
        return np.fromiter(map(len, values), np.int64, len(values)), np.concatenate(values)
    return None, np.array(values, object) if feature.kind is FeatureKind.BYTES else np.concatenate(values)
