"""Observe the values of open fields, which decide how the fields are stored."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from recordmill.schemas.field_features import AXES, WELL_KNOWN, Axis
from recordmill.schemas.inputs.fields import PREFIXES, FieldSelection, columns_of_rows, known_paths, leaf_values
from recordmill.schemas.inputs.sample import Sample, SampleObject
from recordmill.schemas.sizes import shorten
from recordmill.schemas.statistics import TEXT_LENGTH
from recordmill.transforms.join.observed_labels import ObservedLabel
from recordmill.transforms.rows.observe_columns import TableStats, observe
from recordmill.transforms.rows.read_json import as_text, batches_of_columns

MOST_TEXTS = 10_000
"""Maximum number of different values of a field that a dry run counts."""


def observe_values(columns: Mapping[str, list[Any]], rows: int, is_typed: bool = True) -> TableStats:
    """Return the facts of fields. For the arguments see `observe_fields`."""
    stats = TableStats()
    for batch in batches_of_columns(columns, rows):
        if not is_typed:
            batch = batch._replace(is_typed=False, parts={})
        stats.add(observe(batch, 0))
    return stats


def observe_fields(
    axis: Axis,
    columns: Mapping[str, list[Any]],
    rows: int,
    paths: Iterable[str],
    key: int = 0,
    is_typed: bool = True,
    is_previewed: bool = False,
) -> Iterator[ObservedLabel]:
    """Yield what decides how fields are stored.

    Args:
        columns: Requested field of each image or object, by path; None for a missing value.
        rows: Number of images or objects.
        paths: Paths that there are, for messages.
        key: Number that tells the rows from others.
        is_typed: False for texts that stand for any values, as those of CSV.
        is_previewed: True to count the values, which a dry run shows.
    """
    if rows:
        yield ObservedLabel(f"{axis} fields", pack_stats(observe_values(columns, rows, is_typed)), key)
    if rows and is_previewed:
        texts = {path: _add_texts(Counter(_value_texts(values)), {}) for path, values in columns.items()}
        yield ObservedLabel(f"{axis} texts", msgspec.json.encode(texts).decode(), key)
    yield from (ObservedLabel(f"{axis} path", path) for path in paths)


def _value_texts(values: Iterable[Any]) -> Iterator[str]:
    """Yield values as text; of lists, their items."""
    for value in values:
        for item in value if isinstance(value, list) else (value,):
            if item is not None:
                yield shorten(item if isinstance(item, str) else as_text(item), TEXT_LENGTH)


def _add_texts(one: Mapping[str, int] | None, other: Mapping[str, int] | None) -> dict[str, int] | None:
    """Return the sum of numbers by text; None if there are more than MOST_TEXTS."""
    if one is None or other is None:
        return None
    sums = Counter(one)
    sums.update(other)
    return dict(sums) if len(sums) <= MOST_TEXTS else None


_PLAIN = frozenset((str, int, float, bool))
_WELL_KNOWN = frozenset(WELL_KNOWN)


class FieldPicker:
    """Picker of the requested fields of Samples, and observer of their values.

    Args:
        selections: Requested fields of images, and of objects.
        are_texts: True if texts are what they look like, as in CSV.

    Attributes:
        rows: Requested fields of each image and object so far, by path.
        paths: Paths of all their leaves.
        names: Names of the fields with values in `--fields`, requested or not.
    """

    def __init__(self, selections: tuple[FieldSelection, FieldSelection], are_texts: bool = False):
        self._are_texts = are_texts
        self._selections = dict(zip(AXES, selections, strict=True))
        self.rows: dict[Axis, list[dict[str, Any]]] = {axis: [] for axis in AXES}
        self.paths: dict[Axis, set[str]] = {axis: set() for axis in AXES}
        self.names = set[str]()
        self._leaves: dict[Axis, set[str]] = {axis: set() for axis in AXES}  # paths of `names` without a dot

    def pick(self, sample: Sample) -> Sample:
        """Return a Sample with the requested fields by path."""
        if not (sample.fields or any(self._selections.values()) or any(one.fields for one in sample.objects)):
            return sample
        objects = tuple([self._pick_of_object(one) for one in sample.objects])
        return msgspec.structs.replace(sample, fields=self._picked("image", sample.fields), objects=objects)

    def _pick_of_object(self, given: SampleObject) -> SampleObject:
        fields = given.fields
        is_noted = self._leaves["object"].issuperset(fields) and _PLAIN.issuperset(map(type, fields.values()))
        if is_noted and not self._selections["object"] and _WELL_KNOWN.issuperset(fields):
            return given  # most objects: nothing to note or to leave out
        picked = self._picked("object", fields)
        return given if picked == given.fields else msgspec.structs.replace(given, fields=picked)

    def _picked(self, axis: Axis, fields: Mapping[str, Any]) -> dict[str, Any]:
        selection = self._selections[axis]
        if not (fields or selection):
            return {}
        leaves = self._leaves[axis]
        for key, value in fields.items():
            if value and (key not in leaves or type(value) not in _PLAIN):
                paths = [path for path, leaf in leaf_values({key: value}) if leaf]
                self.names.update([f"{PREFIXES[axis]}{path}" for path in paths])
                leaves.update({key}.intersection(paths))
        well_known = {path: fields[path] for path in WELL_KNOWN if path in fields} if axis == "object" else {}
        if not selection:
            return well_known
        self.paths[axis].update(known_paths(fields))
        picked = selection.pick(fields)
        self.rows[axis].append(picked)
        return well_known | picked

    def observed(self, key: int) -> Iterator[ObservedLabel]:
        """Yield what decides how the fields are stored.

        Args:
            key: Number that tells the Samples from others.
        """
        for axis, rows in self.rows.items():
            columns = columns_of_rows(rows)
            is_previewed = self._selections[axis].is_previewed
            paths, is_typed = self.paths[axis], not self._are_texts
            yield from observe_fields(axis, columns, len(rows), paths, key, is_typed, is_previewed)


def merge_texts(packed: Iterable[str]) -> dict[str, dict[str, int] | None]:
    """Return the sum of the numbers of values by path, see `observe_fields`; None for too many different values."""
    merged: dict[str, dict[str, int] | None] = {}
    for text in packed:
        for path, counts in msgspec.json.decode(text, type=dict[str, dict[str, int] | None]).items():
            merged[path] = _add_texts(merged.get(path, {}), counts)
    return merged


def pack_stats(stats: TableStats) -> str:
    """Return facts as text."""
    return msgspec.json.encode(stats).decode()


def merge_stats(texts: Iterable[str]) -> TableStats:
    """Return the sum of facts."""
    stats = TableStats()
    for text in sorted(texts):
        stats.add(msgspec.json.decode(text, type=TableStats))
    return stats


def merge_fields(texts: Iterable[bytes]) -> tuple[bytes, int]:
    """Return the JSON of the fields of several rows of an image or object, and the number of values that are not those
    of the first row that has the field.

    >>> merge_fields([b'{"a":1}', b"", b'{"a":2,"b":3}'])
    (b'{"a":1,"b":3}', 1)
    """
    given = list(dict.fromkeys(filter(None, texts)))
    if len(given) < 2:
        return next(iter(given), b""), 0
    merged: dict[str, Any] = {}
    other_values = 0
    for row in map(msgspec.json.decode, given):
        other_values += sum(merged.setdefault(path, value) != value for path, value in row.items())
    return msgspec.json.encode(merged), other_values
