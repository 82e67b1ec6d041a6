"""How the columns of a table are written, from what was found in all rows."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from recordmill.schemas.annotations import Category
from recordmill.schemas.encoders import TextEncoder, TextForm
from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.tables import TEXT_PARTS, Column, ColumnType, RowsFile, TableSchema
from recordmill.transforms.table.observe_columns import MOST_DISTINCT, ColumnStats, Seen, TableStats
from recordmill.transforms.table.row_batch import shown
from recordmill.transforms.text.encoder_warnings import encoder_warnings

_MOST_LABEL_BYTES = 200
_NUMBERS = {Seen.INT64, Seen.FLOAT, Seen.LARGE, Seen.NOT_FINITE}
_TYPES = (
    ({Seen.BOOL}, ColumnType.BOOL),
    ({Seen.INT64}, ColumnType.INT64),
    ({Seen.DATE}, ColumnType.DATE),
    ({Seen.DATE, Seen.TIMESTAMP}, ColumnType.TIMESTAMP),
)


class ColumnChoice(NamedTuple):
    """What the user says of columns.

    Attributes:
        columns: that are written; all where empty.
        label: column whose values are classes; empty for none.
        classes: in the order of their indices; those that are found, sorted, where empty.
        types, defaults, features: by column.
        required: columns that every row must have: key, group, split.
        texts: columns that become numbers.
    """

    columns: tuple[str, ...] = ()
    label: str = ""
    classes: tuple[str, ...] = ()
    types: Mapping[str, tuple[ColumnType, bool]] = {}
    defaults: Mapping[str, str] = {}
    features: Mapping[str, str] = {}
    required: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


class ChosenSchema(NamedTuple):
    """A table's schema, its classes, what is not likely to be meant, and what texts are encoded by."""

    schema: TableSchema
    labels: LabelMap
    warnings: tuple[str, ...]
    encoders: tuple[TextEncoder, ...] = ()


def choose_schema(stats: TableStats, choice: ColumnChoice, files: Iterable[RowsFile]) -> ChosenSchema:
    """
    Raises:
        ConfigError: a column that is asked for is not there; two columns would be one feature.
        CategoryError: the label column has too many values, or none.
    """
    paths = {file.number: file.path for file in files}
    _check_names(stats, choice, paths)
    columns: list[Column] = []
    warnings: list[str] = []
    for name, found in stats.columns.items():
        if choice.columns and name not in choice.columns:
            continue
        column = _column(name, found, choice)
        is_optional = column.default is None and (found.missing > 0 or len(stats.in_files[name]) < len(stats.rows))
        if name != choice.label:
            column = Column(column.name, column.feature, column.type, column.is_list, is_optional, column.default)
        columns.append(column)
        warnings += _warnings(column, found, stats, choice, paths)
    if not columns:
        raise ConfigError(f"{_some(paths.values())}: no rows with columns, so there is nothing to write")
    _check_features(columns)
    return ChosenSchema(TableSchema(tuple(columns)), _labels(stats, choice), tuple(warnings))


def with_texts(
    chosen: ChosenSchema, encoders: Iterable[TextEncoder], names: Mapping[str, Mapping[str, str]]
) -> ChosenSchema:
    """The schema with the features of texts as numbers in place of the texts.

    Args:
        names: of features, by column, and by what TEXT_PARTS calls them.

    Raises:
        ConfigError: two columns would be one feature.
    """
    by_column = {encoder.column: encoder for encoder in encoders}
    columns: list[Column] = []
    warnings = list(chosen.warnings)
    for column in chosen.schema.columns:
        encoder = by_column.get(column.name)
        if encoder is None:
            columns.append(column)
            continue
        for type_ in _OF_FORM[encoder.settings.form]:
            part = TEXT_PARTS[type_]
            name = names.get(column.name, {}).get(part, f"{column.feature}/{part}")
            columns.append(Column(column.name, name, type_, is_list=True, default=column.default))
        warnings += encoder_warnings(encoder)
    _check_features(columns)
    ordered = sorted(by_column.values(), key=lambda encoder: encoder.column)
    return ChosenSchema(TableSchema(tuple(columns)), chosen.labels, tuple(warnings), tuple(ordered))


_OF_FORM = {
    TextForm.COUNTS: (ColumnType.TERM_INDEX, ColumnType.TERM_VALUE),
    TextForm.TFIDF: (ColumnType.TERM_INDEX, ColumnType.TERM_VALUE),
    TextForm.TOKENS: (ColumnType.TOKEN_IDS,),
}


def _column(name: str, found: ColumnStats, choice: ColumnChoice) -> Column:
    feature = choice.features.get(name, name)
    if name == choice.label:
        _check_label(feature)
        return Column(name, feature, ColumnType.CLASS)
    if name in choice.texts:
        return Column(name, feature, ColumnType.BYTES, default=choice.defaults.get(name))
    type_, is_list = choice.types.get(name) or (_type(found), found.lists > 0)
    if type_ is ColumnType.CLASS:
        raise ConfigError(f"--schema: column {name} holds classes; give --label {name}")
    return Column(name, feature, type_, is_list, default=choice.defaults.get(name))


def _check_label(feature: str) -> None:
    """TFDS has a file of class names that is called as the feature."""
    if len(feature.encode()) > _MOST_LABEL_BYTES or not feature.isprintable():
        raise ConfigError(
            f"--label: a file is called as the feature {shown(feature)}, which is too long or has a control character; "
            "--rename it"
        )


def _type(found: ColumnStats) -> ColumnType:
    """The narrowest type that holds all values as they are; NaN and infinity are none."""
    looks = set(found.seen)
    for held, type_ in _TYPES:
        if looks and looks <= held:
            return type_
    return ColumnType.FLOAT if looks & {Seen.FLOAT, Seen.NOT_FINITE} and looks <= _NUMBERS else ColumnType.BYTES


def _warnings(
    column: Column, found: ColumnStats, stats: TableStats, choice: ColumnChoice, paths: Mapping[int, str]
) -> Iterator[str]:
    name = column.name
    if lacking := sorted(stats.rows.keys() - stats.in_files[name]):
        yield f"column {name} is not in {_some([paths[file] for file in lacking])}; its rows have no value there"
    total = sum(found.seen.values())
    if not total:
        yield f"column {name} has no value in any row; leave it out by --columns"
        return
    if column.type is ColumnType.FLOAT and found.rounded:
        yield (
            f"column {name}: {found.rounded:,} of {total:,} values lose more than a part in 10,000,000 as float32, "
            "which is what records hold"
        )
    others = found.seen.keys() - {Seen.TEXT, Seen.BINARY}
    if column.type is ColumnType.BYTES and others and name not in (*choice.types, *choice.texts):
        look = max(others, key=lambda each: found.seen[each])
        odd = min(found.seen.keys() - {look}, key=lambda each: found.seen[each], default=look)
        file, row, value = found.first[odd]
        yield (
            f"column {name} is written as text, as it has {found.seen[look]:,} {look.value} and {found.seen[odd]:,} "
            f"{odd.value}, the first {value} in {paths[file]} row {row}; a type in --schema would reject what does not "
            "fit it"
            if odd is not look
            else f"column {name} is written as text, as it has {look.value}, the first {value}"
        )


def _check_names(stats: TableStats, choice: ColumnChoice, paths: Mapping[int, str]) -> None:
    asked = {
        "--columns": choice.columns,
        "--label": (choice.label,) if choice.label else (),
        "--schema": tuple(choice.types),
        "--text-column": choice.texts,
        "--default": tuple(choice.defaults),
        "--rename": tuple(choice.features),
        "--key, --group-column or --split-column": choice.required,
    }
    for flag, names in asked.items():
        if missing := [name for name in names if name not in stats.columns]:
            raise ConfigError(f"{flag}: there is no column {missing[0]!r}; there are {_some(stats.columns)}")
    for name in (*choice.required, *asked["--label"]):
        if lacking := sorted(stats.rows.keys() - stats.in_files[name]):
            raise ConfigError(f"column {name} is not in {_some([paths[file] for file in lacking])}; every row needs it")


def _check_features(columns: Iterable[Column]) -> None:
    by_feature: dict[str, str] = {}
    for column in columns:
        other = by_feature.setdefault(column.feature, column.name)
        if other != column.name:
            raise ConfigError(
                f"columns {other!r} and {column.name!r} would both be the feature {column.feature!r}; --rename one"
            )


def _labels(stats: TableStats, choice: ColumnChoice) -> LabelMap:
    if not choice.label:
        return LabelMap(())
    found = stats.columns[choice.label].distinct
    if found is None:
        raise CategoryError(
            f"column {choice.label} has more than {MOST_DISTINCT:,} values, too many to be classes; is it the label?"
        )
    names = list(choice.classes) or sorted(name for name in found if name)
    if choice.classes and found and not found & set(names):
        raise CategoryError(f"--classes: no row is of {_some(names)}; column {choice.label} has {_some(sorted(found))}")
    if not names:
        raise CategoryError(f"column {choice.label} has no value in any row, so there are no classes")
    if not choice.classes and all(name.isascii() and name.isdecimal() and len(name) < 19 for name in names):
        names.sort(key=int)
    return LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")
