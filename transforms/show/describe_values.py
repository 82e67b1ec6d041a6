"""Describe records' values as text, with integers' meanings."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from math import prod
from typing import Any

import numpy as np

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.features import CLASS_OF_ROW, Feature, FeatureTable
from recordmill.schemas.field_features import FLAT_VALUES, LENGTHS, field_columns, field_readings
from recordmill.schemas.inputs.encoders import TextForm, decode_encoder
from recordmill.schemas.inputs.labels import SEMANTIC_IGNORE, LabelMap
from recordmill.schemas.rejects import UnusableError
from recordmill.schemas.sizes import number_text, size_text
from recordmill.transforms.dataset.record_view import RecordView, attempt, grey_pixels
from recordmill.transforms.images.load_images import encoded_size
from recordmill.transforms.insight.charts import format_percent
from recordmill.transforms.records.parse_record import TypedValues, Values
from recordmill.transforms.show.find_shards import RecordFeatures, values_by_source
from recordmill.transforms.storage.resolve import join_path, storage_for

_MOST_VALUES = 24
"""Maximum count of numbers in a list. More numbers are described by their range."""

Meanings = Mapping[str, Sequence[str]]
"""Meanings of a feature's integers, classes or terms, by the feature's name."""
HEX_SHOWN = 8
MISSING = "(missing)"
"""Text of a missing value of an open field."""
_CLASS_SOURCES = ("objects.class_index", "image.class_index")
_PADDING = ("(padding)", "(unknown)")
"""Meanings of the token ids below those of terms."""


def describe_record(
    features: RecordFeatures, table: FeatureTable, meanings: Meanings
) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and text of each feature of a record, sorted by name, and of each open field.

    The type is the kind, with the names of dimensions if known. The text has all values, and may have any character.
    """
    shapes = {feature.name: feature.shape for feature in table.features}
    maps = {feature.name: feature for feature in table.features if feature.source in _DESCRIBED_MAPS}
    fields = dict(_describe_fields(features, table))
    lengths = {f"{name}{LENGTHS}" for name in fields}
    for name in sorted({*features, *fields} - lengths - {f"{name}{FLAT_VALUES}" for name in fields}):
        if name in fields:
            yield name, *fields[name]
            continue
        kind, values = features[name]
        shape = shapes.get(name, ())
        type_ = f"{kind.value} [{', '.join(shape)}]" if shape else kind.value
        text = describe_values(values, shape, meanings.get(name, ()))
        if name in maps and len(values) == 1:
            text = _describe_map(values[0], maps[name], meanings.get(name, ())) or text
        yield name, type_, text


_DESCRIBED_MAPS = ("semantic.png", "depth.png")
_MOST_CLASSES = 12


def _describe_map(png: bytes, feature: Feature, names: Sequence[str]) -> str:
    """Return the size of a map, and the classes of a semantic mask with their share of the pixels, or the depths of a
    depth map; empty if the PNG does not decode."""
    pixels = attempt(grey_pixels, png)
    if isinstance(pixels, UnusableError) or not pixels.size:
        return ""
    size = f"{pixels.shape[1]}x{pixels.shape[0]}"
    if feature.source == "semantic.png":
        values, numbers = np.unique(pixels, return_counts=True)
        counts = Counter(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
        shares = [
            f"{_value_name(value, names)} {format_percent(number / pixels.size)}"
            for value, number in counts.most_common(_MOST_CLASSES)
        ]
        return f"{size}: {', '.join(shares)}{', …' if len(counts) > _MOST_CLASSES else ''}"
    unknown = format_percent(float((pixels == 0).mean()))
    metres = pixels[pixels > 0] * (1.0 if feature.scale is None else feature.scale)
    if not len(metres):
        return f"{size}: no known depth"
    return f"{size}: {metres.min():.5g} to {metres.max():.5g} m, mean {metres.mean():.5g} m, unknown {unknown}"


def _value_name(value: int, names: Sequence[str]) -> str:
    name = names[value] if value < len(names) else ""
    return name or ("unknown" if value == SEMANTIC_IGNORE else f"value {value}")


def _describe_fields(features: RecordFeatures, table: FeatureTable) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield key, and type and text of each open field whose values fit the table."""
    record = RecordView(values_by_source(features, table))
    readings = {reading.source: reading for reading in field_readings(table)}
    keys = {feature.source: feature.name for feature in table.features}
    for column in field_columns(table):
        flat = f"{column.source}{FLAT_VALUES}"
        source = flat if flat in keys else column.source
        if source not in readings:
            continue  # a well-known field
        with suppress(KeyError, ValueError):  # a damaged record: its features are described one by one
            values = record.field(column)
            shape = readings[source].shape
            number = f"[{len(values):,}] " if shape and column.axis == "object" else ""
            shown = ", ".join(map(_describe_value, values[:_MOST_VALUES]))
            type_ = f"{column.kind.value} [{', '.join(shape)}]" if shape else column.kind.value
            yield keys[source].removesuffix(FLAT_VALUES), (type_, f"{number}{shown}")


def _describe_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_describe_value, value[:_MOST_VALUES]))}{', …' if len(value) > _MOST_VALUES else ''}]"
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else _format_number(value)


def describe_list(name: str, steps: Sequence[TypedValues | None], names: Sequence[str] = ()) -> tuple[str, str, str]:
    """Return name, type and text of a feature list of a SequenceExample, like `describe_record`."""
    present = [step for step in steps if step]
    kinds = sorted({kind.value for kind, _ in present})
    text = number_text(len(steps), "step")
    lengths = sorted(len(step[1]) if step else 0 for step in steps)
    if lengths and lengths[-1] != 1:
        text += f" of {' to '.join(dict.fromkeys(map(str, (lengths[0], lengths[-1]))))} values"
    if len(kinds) == 1:
        parts = [values for _, values in present]
        together = list(chain.from_iterable(parts)) if isinstance(parts[0], list) else np.concatenate(parts)
        text += f": {describe_values(together, names=names)}"
    return f"{name} (list)", ", ".join(kinds), text


def describe_values(values: Values, shape: tuple[str, ...] = (), names: Sequence[str] = ()) -> str:
    """Return the values of a feature as text. Several values have their shape first; many numbers have their range.

    Args:
        shape: Names of dimensions, or their sizes, if known.
        names: Meanings of integers, by their values.

    >>> describe_values(np.array([0.25, 1], np.float32)), describe_values([b"cat"]), describe_values([b"\\xff\\x00"])
    ('[2] 0.25, 1', 'cat', '2 bytes: ff 00')
    >>> describe_values(np.zeros(8, np.float32), ("N", "4")), describe_values(np.array([1]), names=("cat", "dog"))
    ('[2, 4] 0, 0, 0, 0, 0, 0, 0, 0', '1 dog')
    """
    number = _format_shape(len(values), shape) if shape or len(values) != 1 else ""
    if isinstance(values, list):
        return number + ", ".join(map(describe_bytes, values[:_MOST_VALUES]))
    if names and values.dtype == np.int64:
        named = (f"{value} {names[value]}" if 0 <= value < len(names) else str(value) for value in values.tolist())
        return number + ", ".join(islice(named, _MOST_VALUES))
    if len(values) <= _MOST_VALUES:
        return number + ", ".join(map(_format_number, values.tolist()))
    finite = values[np.isfinite(values)]
    if not len(finite):
        return f"{number}no finite values"
    odd = len(values) - len(finite)
    mean = f", mean {_format_number(finite.mean(dtype=np.float64))}" if values.dtype == np.float32 else ""
    described = f"{_format_number(finite.min())} to {_format_number(finite.max())}{mean}"
    return number + described + (f", {odd:,} not finite" if odd else "")


def _format_shape(values: int, shape: tuple[str, ...]) -> str:
    """Return the sizes of a feature's dimensions as text. The table has all sizes except the first."""
    inner_sizes = [int(size) for size in shape[1:] if size.isdecimal()]
    inner = prod(inner_sizes)
    if len(inner_sizes) < len(shape[1:]) or not inner or values % inner:
        return f"[{values:,}] "
    return f"[{', '.join(f'{size:,}' for size in (values // inner, *inner_sizes))}] "


def _format_number(value: float) -> str:
    return f"{value:.5g}" if isinstance(value, float | np.floating) else str(value)


def describe_bytes(value: bytes) -> str:
    """Return a text, two quotes for an empty one, format and sizes of an image, or size and start of other bytes."""
    try:
        header = encoded_size(value)
    except UnusableError as fault:
        return f"{size_text(len(value))}: an image that cannot be opened: {fault.detail}"
    if header:
        format_, width, height = header
        return f"{format_.upper()} {width}x{height}, {size_text(len(value))}"
    if (text := decode_if_text(value)) is not None:
        return text or '""'
    return f"{size_text(len(value))}: {value[:HEX_SHOWN].hex(' ')}{' …' if len(value) > HEX_SHOWN else ''}"


def decode_if_text(value: bytes) -> str | None:
    """Return bytes as text; None if they probably are not."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]", text) else text


def list_meanings(table: FeatureTable, labels: LabelMap) -> dict[str, Sequence[str]]:
    """Return names of classes, panoptic segments and enums, by the feature with their numbers."""
    names = tuple(category.name for category in labels.categories)
    meanings: dict[str, Sequence[str]] = {}
    for feature in table.features:
        if feature.source in _CLASS_SOURCES or feature.source.startswith(CLASS_OF_ROW):
            meanings[feature.name] = names
        elif feature.source == "segments.class_index":
            meanings[feature.name] = tuple(category.name for category in labels.segments)
        elif feature.source == "semantic.png":
            by_value = labels.semantic_names()
            meanings[feature.name] = tuple(by_value.get(value, "") for value in range(max(by_value, default=0) + 1))
        elif feature.values:
            meanings[feature.name] = feature.values
    return meanings


def read_terms(folder: str, manifest: Manifest) -> dict[str, Sequence[str]]:
    """Return the terms of encoded texts, by the feature with their indices or token ids.

    Raises:
        ConfigError: An encoder's file is invalid.
    """
    storage = storage_for(folder)
    terms: dict[str, Sequence[str]] = {}
    for info in manifest.encoders:
        path = join_path(folder, info.file)
        if storage.size(path) is None:
            continue  # numbers are shown without terms; verify reports the missing file
        vocabulary = decode_encoder(storage.read(path), path).vocabulary
        is_tokens = info.form is TextForm.TOKENS
        source = f"{info.column}.{'tokens' if is_tokens else 'index'}"
        for feature in manifest.table.features:
            if feature.source == source:
                terms[feature.name] = (*_PADDING, *vocabulary) if is_tokens else vocabulary
    return terms
