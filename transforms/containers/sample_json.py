"""JSON of samples: a row of COCO's images with its annotations."""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from math import nan
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.block import Ragged, starts_of
from recordmill.schemas.boxes import shortest_decimals
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.field_features import RAGGED
from recordmill.transforms.containers.sample_codings import SampleColumn, Samples
from recordmill.transforms.containers.sample_values import SampleCodec

ANNOTATIONS = "annotations"


class SampleMask(msgspec.Struct, frozen=True):
    """COCO's compressed run lengths; size is height, width."""

    size: tuple[int, int]
    counts: str


_TYPES: dict[str, Any] = {"bool": bool, "int64": int, "text": str, "rle": SampleMask}


class SampleJson:
    """Converter between samples and their JSON. All samples have the same keys, with values of the same types.

    Args:
        omitted: Keys of samples that the JSON does not have.
    """

    def __init__(self, codec: SampleCodec, omitted: Sequence[str] = ()):
        self._columns = [column for column in codec.image_columns if column.key not in omitted]
        self._object_columns = codec.object_columns
        self._annotation = _struct("Annotation", self._object_columns)
        rows: list[tuple[str, Any]] = [(ANNOTATIONS, list[self._annotation])] if codec.has_objects else []  # type: ignore
        self._sample = _struct("Sample", self._columns, rows)
        self._decoder = msgspec.json.Decoder(list[self._sample])  # type: ignore[name-defined]
        self._has_objects = codec.has_objects

    def encode(self, samples: Samples) -> list[bytes]:
        """Return the JSON of each sample.

        Raises:
            ConfigError: A number is infinite: JSON has no such numbers.
        """
        rows = [_plain_rows(column, samples.images[column.key], samples) for column in self._columns]
        if self._has_objects:
            objects = [_plain_rows(column, samples.objects[column.key], samples) for column in self._object_columns]
            annotations = [*map(self._annotation, *objects)] if objects else []
            rows.append([annotations[start:end] for start, end in pairwise(samples.starts.tolist())])
        encode = msgspec.json.Encoder().encode
        return [encode(self._sample(*values)) for values in zip(*rows, strict=True)]

    def decode(self, texts: Sequence[bytes], images: dict[str, Any], files: dict[str, list[Any]]) -> Samples:
        """Return samples.

        Args:
            images: Columns of omitted keys.
            files: Files of the samples, see Samples.

        Raises:
            ValueError: A text is not the JSON of a sample.
        """
        structs = self._decoder.decode(b"[%b]" % b",".join(texts))
        if len(structs) != len(texts):
            raise ValueError("a text has several values")
        rows = [*zip(*map(msgspec.structs.astuple, structs), strict=True)]
        image_columns = dict(zip((column.key for column in self._columns), rows, strict=False))
        starts, objects = np.zeros(len(texts) + 1, np.int64), {}
        if self._has_objects:
            starts = starts_of(np.array([*map(len, rows[-1])], np.int64))
            values = [*zip(*map(msgspec.structs.astuple, chain.from_iterable(rows[-1])), strict=True)]
            objects = dict(zip((column.key for column in self._object_columns), values, strict=False))
        try:
            samples = Samples(
                {column.key: _column(column, image_columns.get(column.key, ())) for column in self._columns} | images,
                {column.key: _column(column, objects.get(column.key, ())) for column in self._object_columns},
                starts,
                files,
            )
        except (OverflowError, FloatingPointError) as fault:
            raise ValueError(str(fault)) from fault
        for column in self._object_columns:
            if column.type == "rle" and objects:
                sizes = [run_lengths.size[::-1] for run_lengths in objects[column.key]]
                if not np.array_equal(sizes, samples.size_of_object):
                    raise ValueError(f"the size of a {column.key} is not the image's")
        return samples


def _struct(name: str, columns: Sequence[SampleColumn], rows: Sequence[tuple[str, Any]] = ()) -> Any:
    """Return a class with the keys of columns, which need not be identifiers."""
    fields = [*((column.key, _type(column)) for column in columns), *rows]
    names = [f"f{number}" for number in range(len(fields))]
    types = [(name, type_) for name, (_, type_) in zip(names, fields, strict=True)]
    rename = {name: key for name, (key, _) in zip(names, fields, strict=True)}
    return msgspec.defstruct(name, types, rename=rename, gc=False, namespace={"__module__": __name__})


def _type(column: SampleColumn) -> Any:
    type_ = _TYPES.get(column.type, float)
    if not column.size:
        return type_ if column.missing is None else type_ | None
    items = type_ | None if column.type in ("float32", "bool") else type_
    return list[items] if column.missing is None else list[items] | None  # type: ignore[valid-type]


def _plain_rows(column: SampleColumn, values: Any, samples: Samples) -> Sequence[Any]:
    """Return the value of each row for JSON. NaN becomes null when it is encoded."""
    if column.type == "rle":
        sizes = samples.size_of_object.tolist()
        return [SampleMask((height, width), text) for (width, height), text in zip(sizes, values, strict=True)]
    if column.type == "text":
        if column.missing is None:
            return values
        return [None if not (any(text) if column.size else text) else text for text in values]
    numbers = values.values if isinstance(values, Ragged) else values
    if column.type == "float32":
        numbers = shortest_decimals(numbers)
    if numbers.dtype.kind == "f" and np.isinf(numbers).any():
        raise ConfigError(
            f"a value of {column.key} is infinite, and JSON has no such number. Add --container arrayrecord, which "
            "stores records unchanged"
        )
    plain = numbers.tolist()
    if column.type == "bool":
        flags = [None if number < 0 else number > 0 for number in numbers.ravel().tolist()]
        is_rows = column.size > 0
        plain = (
            [flags[start : start + column.size] for start in range(0, len(flags), column.size)] if is_rows else flags
        )
    if isinstance(values, Ragged):
        return [plain[start:end] for start, end in pairwise(values.starts.tolist())]
    if column.missing is None or (column.type in ("float32", "bool") and not column.size):
        return plain
    is_missing = np.isnan(numbers) if column.type == "float32" else numbers == column.missing
    whole = is_missing.reshape(len(numbers), column.size or 1).all(axis=1).tolist()
    return [None if missing else value for value, missing in zip(plain, whole, strict=True)]


def _column(column: SampleColumn, rows: Sequence[Any]) -> Any:
    """Return the column of values of JSON."""
    if column.type == "rle":
        return [row.counts for row in rows]
    fill = {"bool": -1, "float32": nan}.get(column.type, column.missing)
    if column.size != RAGGED and column.missing is not None:
        filled = [fill] * column.size if column.size else fill
        rows = [filled if row is None else row for row in rows]
    if column.size > 0 and any(len(row) != column.size for row in rows):
        raise ValueError(f"{column.key} does not have {column.size} values")
    if column.type == "text":
        return list(rows)
    dtype = np.int64 if column.type in ("bool", "int64") else np.float64
    flat: Iterable[Any] = chain.from_iterable(rows) if column.size else rows
    if column.type in ("bool", "float32"):
        flat = (fill if value is None else value for value in flat)
    numbers = np.array([*flat], dtype)
    if column.type == "float32":
        with np.errstate(over="raise", under="ignore"):
            numbers = numbers.astype(np.float32)
    if column.size == RAGGED:
        return Ragged(numbers, starts_of(np.array([*map(len, rows)], np.int64)))
    return numbers.reshape(-1, column.size) if column.size else numbers
