"""Choose how open fields are stored, from the values of all images and objects."""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import ColumnType, FeatureKind, FeatureTable
from recordmill.schemas.field_features import (
    AXES,
    RAGGED,
    WELL_KNOWN,
    Axis,
    FieldColumn,
    add_fields,
    field_columns,
    is_field,
)
from recordmill.schemas.inputs.fields import (
    ALL,
    MOST_FIELDS,
    OBJECTS,
    FieldChoice,
    FieldSelection,
    fields_flag,
)
from recordmill.schemas.inputs.labels import ExistingLabels
from recordmill.schemas.layouts import requested_fields
from recordmill.schemas.sizes import first_texts, number_text, shorten
from recordmill.transforms.join.field_values import MOST_TEXTS, merge_stats, merge_texts
from recordmill.transforms.join.observed_labels import ObservedLabel
from recordmill.transforms.rows.choose_type import narrowest_type
from recordmill.transforms.rows.kinds import Seen
from recordmill.transforms.rows.observe_columns import ColumnStats, TableStats

_KINDS = {"int": FeatureKind.INT64, "float": FeatureKind.FLOAT, "text": FeatureKind.BYTES}
_KIND_OF_TYPE = {
    ColumnType.INT64: FeatureKind.INT64,
    ColumnType.BOOL: FeatureKind.INT64,
    ColumnType.FLOAT: FeatureKind.FLOAT,
}
_SHOWN = 5
_TEXTS_SHOWN, _MOST_CHARACTERS = 10, 40


class FieldRequest(NamedTuple):
    """Requested open fields.

    Attributes:
        image_fields: Fields of images.
        object_fields: Fields of objects.
        names: Other keys by the fields' usual ones, those of `--rename`.
        existing: Data set that gets more splits. Its fields, their kinds and keys stay.
        is_usual: True if the fields are requested by no option.
        is_part: True for one of several sets, which may lack fields that another one has.
        is_added: True for images that are added to a data set, which has chosen the kinds.
    """

    image_fields: FieldSelection
    object_fields: FieldSelection
    names: Mapping[str, str]
    existing: ExistingLabels | None
    is_usual: bool = False
    is_part: bool = False
    is_added: bool = False


class RequestedFields(NamedTuple):
    """Features of records with the requested open fields.

    Attributes:
        previews: Values of each field as text, by its name in `--fields`; empty unless it is a dry run.
    """

    table: FeatureTable
    warnings: list[str]
    previews: dict[str, str]


def add_requested_fields(
    table: FeatureTable, request: FieldRequest, labels: Iterable[ObservedLabel]
) -> RequestedFields:
    """Return the features of records with open fields.

    Args:
        labels: What `observe_fields` has yielded of all images and objects.

    Raises:
        ConfigError: A requested field is unknown or cannot be stored, or the data set has others.
    """
    labels = list(labels)
    columns: list[FieldColumn] = []
    warnings: list[str] = []
    previews: dict[str, str] = {}
    lacking: list[tuple[str, str]] = []
    existing = (request.existing and request.existing.table) or None
    existing_columns = field_columns(existing) if existing else ()
    is_all = False
    for axis, selection in zip(AXES, request[:2], strict=True):
        if selection:
            stats = merge_stats(label.name for label in labels if label.kind == f"{axis} fields")
            paths = [label.name for label in labels if label.kind == f"{axis} path"]
            known = [column.path for column in existing_columns if column.axis == axis]
            if request.is_part:
                names = {path: kind for path, kind in selection.kinds.items() if _is_present(path, stats)}
                absent = [path for path in selection.kinds if path not in names]
                lacking += [(path, _absence(axis, path, sorted({*paths}))) for path in absent]
                selection = selection._replace(kinds=names)
            for path in WELL_KNOWN if selection.is_all and axis == "object" else ():
                if request.is_usual or f"objects.{path}" in table.sources:  # the layout has it
                    stats.columns.pop(path, None)
            own, own_warnings = choose_fields(axis, selection, stats, paths, known, request.is_added)
            is_all |= selection.is_all
            columns += own
            warnings += own_warnings
            if selection.is_previewed:
                texts = merge_texts(label.name for label in labels if label.kind == f"{axis} texts")
                previews |= {column.shown: _preview(column, stats, texts) for column in own}
    added, faults = add_fields(table, columns, request.names, request.is_part)
    added = msgspec.structs.replace(added, lacking=tuple(lacking))
    if faults and not is_all:
        raise ConfigError(f"--fields: {faults[0]}")
    warnings += [f"--fields {ALL} leaves a field out: {fault}" for fault in faults]
    if is_all and not (columns or request.is_usual):
        warnings.append(f"--fields {ALL}: the data has no field that records do not store")
    if request.existing:
        added = adopt_fields(added, request.existing)
    return RequestedFields(added, warnings, previews)


def adopt_fields(table: FeatureTable, existing: ExistingLabels) -> FeatureTable:
    """Return the features of records with the kinds and keys that the fields have in the data set.

    Raises:
        ConfigError: The data set has other fields.
    """
    if existing.table is None:
        return table
    _check_existing(requested_fields(table), requested_fields(existing.table), existing.where)
    features = {feature.name: feature for feature in table.features if not is_field(feature.source)}
    features |= {feature.name: feature for feature in existing.table.features if is_field(feature.source)}
    return msgspec.structs.replace(table, features=tuple(features[name] for name in sorted(features)))


def _is_present(path: str, stats: TableStats) -> bool:
    return path in stats.columns and stats.columns[path].present > 0


def _check_existing(ours: Iterable[FieldColumn], theirs: Iterable[FieldColumn], where: str) -> None:
    """Refuse fields that differ from those of the data set that gets more splits.

    Raises:
        ConfigError: They differ.
    """
    requested, present = ({column.shown for column in part} for part in (ours, theirs))
    if requested != present:
        shown = [first_texts(sorted(part), _SHOWN) or "no field" for part in (present, requested)]
        raise ConfigError(
            f"{where} has {shown[0]}, and --fields gives {shown[1]}. All splits of a data set have the same fields. "
            "Give the same --fields, or another output"
        )


def choose_fields(
    axis: Axis,
    selection: FieldSelection,
    stats: TableStats,
    paths: Iterable[str],
    existing: Iterable[str] = (),
    is_added: bool = False,
) -> tuple[list[FieldColumn], list[str]]:
    """Return the stored fields of an axis, and warnings.

    Args:
        stats: Facts of the values of all rows.
        paths: Paths of all leaves.
        existing: Paths of the fields of the data set that gets more splits, whose images may lack them.
        is_added: True to leave out warnings about kinds, which the data set has chosen.

    Raises:
        ConfigError: No row has a requested field, or all leaves are too many.
    """
    known = sorted(set(paths))
    names = [*selection.kinds] if not selection.is_all else sorted({*stats.columns, *existing})
    if selection.is_all and len(names) > MOST_FIELDS:
        raise ConfigError(
            f"--fields all: there are {len(names):,} fields of {'images' if axis == 'image' else 'objects'}, more than "
            f"{MOST_FIELDS}: {first_texts(names, _SHOWN)}. Name the fields that records need"
        )
    columns: list[FieldColumn] = []
    warnings: list[str] = []
    rows = sum(stats.rows.values())
    for name in names:
        values = stats.columns.get(name, ColumnStats())
        if not _is_present(name, stats) and name not in existing:
            shown = f"image.{name}" if axis == "image" else name
            raise ConfigError(f"--fields {shown}: {_absence(axis, name, known)}")
        column = _choose_column(axis, name, values, selection.kinds.get(name, ""))
        columns.append(column)
        warnings += [*([] if is_added else _kind_warnings(column, values)), *_field_warnings(column, values, rows)]
    return columns, warnings


def _absence(axis: Axis, path: str, known: Sequence[str]) -> str:
    """Return why no row has a requested field."""
    prefix = "image." if axis == "image" else ""
    if f"{path}{OBJECTS}" in known:
        return "its values are lists of objects, which are no field. Leave it out"
    known = [name for name in known if not name.endswith(OBJECTS)]
    if below := [f"{prefix}{name}" for name in known if name.startswith(f"{path}.")]:
        return f"it has several values. Name those that records need: {first_texts(below, _SHOWN)}"
    name, _, kind = path.rpartition(":")
    if name in known and kind in _KINDS:
        return f"names of a list are literal. Give kinds by a mapping: {{{name!r}: {kind!r}}}"
    near = difflib.get_close_matches(path, known, 1)
    hint = f"Did you mean {prefix}{near[0]}?" if near else ""
    what = "images" if axis == "image" else "objects"
    fields = first_texts([f"{prefix}{name}" for name in known], _SHOWN)
    hint = hint or (f"They have {fields}" if known else f"{what.capitalize()} of this data set have no fields")
    return f"no {what[:-1]} has this field. {hint}"


def _choose_column(axis: Axis, path: str, values: ColumnStats, kind: str) -> FieldColumn:
    type_ = narrowest_type(values)
    stored, is_bool = _KINDS.get(kind) or _KIND_OF_TYPE.get(type_, FeatureKind.BYTES), type_ is ColumnType.BOOL
    is_bool &= stored is FeatureKind.INT64
    if not values.lists:
        return FieldColumn(axis, path, stored, is_bool=is_bool)
    if Seen.NESTED in values.seen or values.shapes - {()} or values.lists < values.present:
        return FieldColumn(axis, path, FeatureKind.BYTES)  # as JSON text
    (length, *other_lengths) = values.lengths
    return FieldColumn(axis, path, stored, RAGGED if other_lengths or not length else length, is_bool)


def _kind_warnings(column: FieldColumn, values: ColumnStats) -> Iterator[str]:
    """Yield a warning if a field is stored as text."""
    shown = column.shown
    if len(values.seen) > 1 and column.kind is FeatureKind.BYTES:
        looks = ", ".join(f"{look.value} ({number:,})" for look, number in sorted(values.seen.items()))
        yield f"field {shown} is stored as text, as it has {looks}"
    elif column.kind is FeatureKind.BYTES and not column.size and values.lists:
        what = "lists in lists" if values.shapes - {()} or Seen.NESTED in values.seen else "lists and other values"
        yield f"field {shown} is stored as JSON text, as it has {what}"


def _field_warnings(column: FieldColumn, values: ColumnStats, rows: int) -> Iterator[str]:
    """Yield warnings about the values of a field."""
    shown = column.shown
    if column.kind is FeatureKind.INT64 and column.missing == "-1" and values.minus_ones:
        yield (
            f"field {shown}: -1 occurs {number_text(values.minus_ones, 'time')}, and stands for a missing value; with "
            f"{fields_flag([str(FieldChoice(shown, 'float'))], 1)}, NaN does"
        )
    if values.present < rows:
        what, stored = "images" if column.axis == "image" else "objects", column.missing or "empty text"
        yield f"field {shown}: {rows - values.present:,} of {rows:,} {what} have no value; {stored} is stored there"


def _preview(column: FieldColumn, stats: TableStats, texts: Mapping[str, Mapping[str, int] | None]) -> str:
    """Return the values of a field as text: the most frequent texts, or the least and the greatest number."""
    values, rows = stats.columns.get(column.path, ColumnStats()), sum(stats.rows.values())
    counts = texts.get(column.path, {})
    if counts and column.is_bool:  # CSV has TRUE and True
        counts = sum((Counter({text.lower(): number}) for text, number in counts.items()), Counter[str]())
    if column.kind is not FeatureKind.BYTES and not column.is_bool:
        shown = "" if values.least is None else f"{values.least} to {values.greatest}"
    elif counts is None:
        shown = f"more than {MOST_TEXTS:,} different values"
    else:
        first = sorted(counts, key=lambda text: (-counts[text], text))[:_TEXTS_SHOWN]
        more = len(counts) - len(first)
        shown = ", ".join(f"{shorten(text, _MOST_CHARACTERS)} ({counts[text]:,})" for text in first)
        shown += f" and {more:,} more" if more else ""
    what = "images" if column.axis == "image" else "objects"
    lacking = f"{rows - values.present:,} of {rows:,} {what} have none"
    return f"{shown}; {lacking}" if shown else lacking
