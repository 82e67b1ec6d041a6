"""Choose how columns are written, from facts of all rows."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec

from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.encoders import TextEncoder, TextForm
from recordmill.schemas.inputs.labels import (
    SAME_CLASSES,
    ExistingLabels,
    LabelMap,
    adopt_labels,
    misread_numbers,
    name_warnings,
    sorted_names,
)
from recordmill.schemas.inputs.tables import CLASS_TYPES, TEXT_PARTS, Column, RowsFile, TableSchema
from recordmill.schemas.sizes import first_texts
from recordmill.transforms.encoders.fit_encoder import encoder_warnings
from recordmill.transforms.rows.kinds import KINDS, Seen
from recordmill.transforms.rows.row_batch import format_value
from recordmill.transforms.table.convert_columns import convert_column
from recordmill.transforms.table.observe_columns import MOST_DISTINCT, MOST_NAME_BYTES, ColumnStats, TableStats

_MOST_LABEL_BYTES = 200
_SHOWN_COLUMNS = 8
_TOO_MANY = f"more than {MOST_DISTINCT:,} values, or longer ones than {MOST_NAME_BYTES:,} bytes"
_NUMBERS = {Seen.INT64, Seen.FLOAT, Seen.LARGE, Seen.NOT_FINITE}


class ColumnChoice(NamedTuple):
    """Options about columns.

    Attributes:
        columns: that are written; all where empty.
        label: column whose values are classes; empty for none.
        classes: in the order of their indices; those that are found, sorted, where empty.
        types, defaults, features: by column.
        required: columns that every row must have: key, group, split.
        texts: columns that become numbers.
        enums: names of enums, in the order of their numbers, by column; those that are found, sorted, where empty.
        images: columns of paths of images, or of bytes and paths, which are not written unless they are asked for.
        taken: names of features that columns cannot have.
        label_type: how the label is stored.
        dtypes: numeric types by column; they overrule `types` and the values.
        counts: features of texts that hold their counts as integers.
        beside: labels of the data set that the splits are added to; None without one.
    """

    columns: tuple[str, ...] = ()
    label: str = ""
    classes: tuple[str, ...] = ()
    types: Mapping[str, tuple[ColumnType, bool, tuple[int, ...]]] = {}
    defaults: Mapping[str, str] = {}
    features: Mapping[str, str] = {}
    required: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    enums: Mapping[str, tuple[str, ...]] = {}
    image_columns: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    label_type: ColumnType = ColumnType.CLASS
    dtypes: Mapping[str, ColumnType] = {}
    counts: tuple[str, ...] = ()
    beside: ExistingLabels | None = None

    @property
    def numbered(self) -> tuple[str, ...]:
        """Columns whose values are collected, to be numbered."""
        enums = (name for name, (type_, *_) in self.types.items() if type_ is ColumnType.ENUM)
        return (*filter(None, [self.label]), *(name for name in enums if not self.enums.get(name)))

    def is_written(self, column: str) -> bool:
        asked = (*self.columns, self.label, *self.texts)
        return column in asked if self.columns or column in self.image_columns else True


class ChosenSchema(NamedTuple):
    """Schema of a table, its classes, warnings, and the encoders of its texts.

    Attributes:
        borders: by class index, where splits end, of classes that are divided one by one; see `SplitShares.borders`.
        numbers: columns of numbers that rows are divided by, in which NaN is a missing value.
    """

    schema: TableSchema
    labels: LabelMap
    warnings: tuple[str, ...]
    encoders: tuple[TextEncoder, ...] = ()
    borders: Mapping[int, tuple[int, ...]] = {}
    numbers: tuple[str, ...] = ()


def choose_schema(stats: TableStats, choice: ColumnChoice, files: Iterable[RowsFile]) -> ChosenSchema:
    """Return the columns of records, with warnings.

    Raises:
        ConfigError: A requested column does not exist, or two columns would be one feature.
        CategoryError: The label column has too many values, or none.
    """
    paths = {file.number: file.path for file in files}
    if stats.first_bad and not stats.rows:
        file, row, detail = stats.first_bad
        raise ConfigError(
            f"none of {sum(stats.bad.values()):,} rows can be read; the first is {paths[file]} row {row}: {detail}"
        )
    _check_names(stats, choice, paths)
    columns: list[Column] = []
    warnings: list[str] = []
    for name, found in stats.columns.items():
        if not choice.is_written(name):
            continue
        column = _column(name, found, choice)
        is_optional = column.default is None and found.present < sum(stats.rows.values())
        if name != choice.label:
            column = msgspec.structs.replace(column, is_optional=is_optional)
        columns.append(column)
        warnings += _warnings(column, found, stats, choice, paths)
    if not columns and not choice.image_columns:
        raise ConfigError(f"{_some(paths.values())}: no rows with columns, so there is nothing to write")
    _check_features(columns, choice.taken)
    warnings += _of_rounded(columns, stats)
    warnings += _of_enums([column for column in columns if column.type is ColumnType.ENUM], choice)
    labels = _labels(stats, choice)
    warnings += _of_numbers(choice.required, stats)
    if not choice.classes:
        warnings += (*misread_numbers(labels), *name_warnings(labels))
    if choice.beside and choice.label:
        labels, absent = adopt_labels(labels, choice.beside, bool(choice.classes), SAME_CLASSES)
        warnings += [absent] if absent else []
    numbers = tuple(name for name in choice.required if stats.columns[name].seen.keys() <= _NUMBERS)
    return ChosenSchema(TableSchema(tuple(columns)), labels, tuple(warnings), numbers=numbers)


def with_texts(
    chosen: ChosenSchema,
    encoders: Iterable[TextEncoder],
    names: Mapping[str, Mapping[str, str]],
    choice: ColumnChoice,
) -> ChosenSchema:
    """Return the schema with the features of encoded texts in place of the texts.

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
        is_tokens = encoder.settings.form is TextForm.TOKENS
        for type_ in (ColumnType.TOKEN_IDS,) if is_tokens else (ColumnType.TERM_INDEX, ColumnType.TERM_VALUE):
            part = TEXT_PARTS[type_]
            name = names.get(column.name, {}).get(part, f"{column.feature}/{part}")
            type_ = ColumnType.TERM_COUNT if name in choice.counts else type_
            columns.append(Column(column.name, name, type_, is_list=True, default=column.default))
        warnings += encoder_warnings(encoder)
    _check_features(columns, choice.taken)
    if unknown := set(choice.counts) - {each.feature for each in columns if each.type is ColumnType.TERM_COUNT}:
        raise ConfigError(f"--dtype: {min(unknown)} holds no counts of terms")
    ordered = sorted(by_column.values(), key=lambda encoder: encoder.column)
    return chosen._replace(schema=TableSchema(tuple(columns)), warnings=tuple(warnings), encoders=tuple(ordered))


def _column(name: str, found: ColumnStats, choice: ColumnChoice) -> Column:
    feature, default = choice.features.get(name, name), choice.defaults.get(name)
    if name in choice.dtypes and name in (choice.label, *choice.texts):
        what = "classes: see --label-as" if name == choice.label else "texts, which become other features"
        raise ConfigError(f"--dtype {feature}: column {name} has {what}")
    if name == choice.label:
        # TFDS has a file of class names that is called as the feature.
        if len(feature.encode()) > _MOST_LABEL_BYTES or not feature.isprintable():
            raise ConfigError(
                f"--label: a file is called as the feature {format_value(feature)}, which is too long or has a control "
                "character; --rename it"
            )
        return Column(name, feature, choice.label_type, default=default)
    if name in choice.texts:
        return Column(name, feature, ColumnType.BYTES, default=default)
    type_, is_list, shape = choice.types.get(name) or (_type(found), found.lists > 0, _shape(name, found))
    type_ = choice.dtypes.get(name, type_)
    if type_ in CLASS_TYPES:
        raise ConfigError(f"--schema: column {name} holds classes; give --label {name}")
    if is_list and default is not None:
        raise ConfigError(f"--default {name}: the column holds lists, and a missing one is an empty one")
    values = _enum(name, found, choice) if type_ is ColumnType.ENUM else ()
    column = Column(name, feature, type_, is_list, default=default, values=values, shape=shape)
    if default is not None and type_ is not ColumnType.ENUM:
        _, faults = convert_column(column, None, 1, {})
        for fault in faults:
            raise ConfigError(
                f"--default: {fault.detail}, its type in records; choose another default, or set the type with --schema"
            )
    return column


def _shape(name: str, found: ColumnStats) -> tuple[int, ...]:
    """Return the shape that all values of a column have; () of a column of plain lists, or of none."""
    shape = next(iter(found.shapes), ())
    if Seen.NESTED not in found.seen and found.shapes <= {()}:
        return ()
    is_number = _type(found) is not ColumnType.BYTES
    if Seen.NESTED not in found.seen and len(found.shapes) == 1 and -1 not in shape and is_number:
        return shape
    what = "texts" if not is_number and Seen.NESTED not in found.seen else "different sizes, or other types,"
    raise ConfigError(
        f"column {name} has lists of {what} in lists, which no feature holds. Give one flat list in each row (and the "
        f"sizes as a column), leave the column out by --columns, or give it the type bytes by --schema, as JSON text"
    )


def _enum(name: str, found: ColumnStats, choice: ColumnChoice) -> tuple[str, ...]:
    """Return an enum's names in the order of numbers."""
    if names := choice.enums.get(name):
        if len(set(names)) < len(names):
            raise ConfigError(f"--schema: column {name} is an enum with a value twice")
        return names
    if found.names:
        return found.names
    if found.distinct is None:
        raise CategoryError(f"--schema: column {name} has {_TOO_MANY}, too many to be an enum")
    return tuple(sorted_names(found.distinct | {choice.defaults[name]} if name in choice.defaults else found.distinct))


def _type(found: ColumnStats) -> ColumnType:
    """Return the narrowest type that holds all values unchanged; NaN and infinity hold none."""
    looks = set(found.seen)
    if looks and looks <= {Seen.INT64, Seen.FLOAT} and found.is_whole and found.rounded:
        return ColumnType.INT64  # whole numbers that int64 holds and float32 does not
    if looks & {Seen.FLOAT, Seen.NOT_FINITE} and looks <= _NUMBERS:
        return ColumnType.FLOAT
    if looks == {Seen.DATE, Seen.TIMESTAMP}:
        return ColumnType.TIMESTAMP
    if looks == {Seen.ENUM} and found.distinct is None:
        return ColumnType.BYTES
    return next((kind.type for kind in KINDS if looks == {kind.seen}), ColumnType.BYTES)


def _warnings(
    column: Column, found: ColumnStats, stats: TableStats, choice: ColumnChoice, paths: Mapping[int, str]
) -> Iterator[str]:
    name = column.name
    if lacking := sorted(stats.rows.keys() - stats.in_files[name]):
        has = "no value" if column.default is None else "the default"
        yield f"column {name} is not in {_some([paths[file] for file in lacking])}; its rows have {has} there"
    total = sum(found.seen.values())
    if not total:
        yield f"column {name} has no value in any row; leave it out by --columns"
        return
    if found.cut:
        yield f"column {name}: {found.cut:,} of {total:,} points in time are finer than a microsecond, which is cut"
    if column.type is ColumnType.BYTES and found.images:
        yield (
            f"column {name}: {found.images:,} of {total:,} values are JPEG or PNG files, which are stored unchecked; "
            f"--image-column {name.removesuffix('.bytes')} checks them, and counts broken ones as rejects"
        )
    others = [look for look in found.seen if look not in (Seen.TEXT, Seen.BINARY)]
    if column.type is ColumnType.BYTES and others and name not in (*choice.types, *choice.texts):
        look = max(others, key=lambda each: found.seen[each])
        odd = min((other for other in found.seen if other is not look), key=lambda each: found.seen[each], default=look)
        file, row, value = found.first[odd]
        yield (
            f"column {name} is written as text, as it has {look.value} ({found.seen[look]:,}) and {odd.value} "
            f"({found.seen[odd]:,}), the first {value} in {paths[file]} row {row}; a type in --schema would reject "
            "what does not fit it"
            if odd is not look
            else f"column {name} is written as text, as it has {look.value}, the first {value}"
            f"{f', and {_TOO_MANY}' if found.distinct is None else ''}"
        )


def _of_rounded(columns: Iterable[Column], stats: TableStats) -> Iterator[str]:
    """Return a sentence for all columns of numbers that float32 does not hold."""
    found = {column.name: stats.columns[column.name] for column in columns if column.type is ColumnType.FLOAT}
    if rounded := {name: of for name, of in found.items() if of.rounded}:
        numbers = (f"{name} ({of.rounded:,} of {sum(of.seen.values()):,})" for name, of in rounded.items())
        yield (
            f"float32, which records hold, rounds numbers of {_some(numbers)}; the type bytes in --schema keeps "
            "them as text"
        )


def _of_enums(enums: Sequence[Column], choice: ColumnChoice) -> Iterator[str]:
    if inferred := [column for column in enums if column.name not in choice.types]:
        sizes = (f"{column.name} of {len(column.values):,} values" for column in inferred)
        of = first_texts(sizes, _SHOWN_COLUMNS, "; ")
        yield (
            f"enums (Parquet's dictionaries) are written as numbers, whose names are in schema.json: {of}. In "
            "CSV or JSON such columns are text; with that file as --schema they are these numbers, too"
        )


def _of_numbers(columns: Iterable[str], stats: TableStats) -> Iterator[str]:
    """Yield a sentence for each column of names that are numbers of two forms."""
    for name in dict.fromkeys(columns):
        seen = stats.columns[name].seen
        if seen.keys() >= {Seen.INT64, Seen.FLOAT}:
            yield (
                f"column {name} has {seen[Seen.INT64]:,} numbers without a fraction and {seen[Seen.FLOAT]:,} with one: "
                "as names they are text, so 1 and 1.0 are two. Write all in one form"
            )


def _check_names(stats: TableStats, choice: ColumnChoice, paths: Mapping[int, str]) -> None:
    asked = {
        "--label": (choice.label,) if choice.label else (),
        "--schema": tuple(choice.types),
        "--text-column": choice.texts,
        "--image-column": choice.image_columns if len(choice.image_columns) == 1 else (),
        "--default": tuple(choice.defaults),
        "--rename": tuple(choice.features),
        "--dtype": tuple(choice.dtypes),
        "--key, --group-column or --split-column": choice.required,
        "--columns": choice.columns,
    }
    if choice.is_written("") and "" in stats.columns:
        files = _some([paths[file] for file in sorted(stats.in_files[""])])
        raise ConfigError(f"{files}: a column has no name; give it one, or say which are wanted by --columns")
    for flag, names in asked.items():
        if missing := [name for name in names if name not in stats.columns]:
            left_out = "" if flag == "--columns" else ", or --columns leaves it out"  # what there is was not read
            there = left_out if choice.columns else f"; the columns are {_some(stats.columns)}"
            raise ConfigError(f"{flag}: no column {missing[0]!r}{there}")
    if len(choice.image_columns) > 1:
        asked["--image-column"] = (_check_files(stats, choice.image_columns[0]),)
    for name in (*choice.required, *asked["--label"], *asked["--image-column"]):
        if lacking := sorted(stats.rows.keys() - stats.in_files[name]):
            raise ConfigError(f"column {name} is not in {_some([paths[file] for file in lacking])}; every row needs it")


def file_column(columns: Container[str], column: str) -> str:
    """Return the column of an image's bytes: `column`, or the member `bytes` that Hugging Face's Image has."""
    return f"{column}.bytes" if f"{column}.bytes" in columns else column


def _check_files(stats: TableStats, column: str) -> str:
    """Return the column of the bytes of images."""
    found = file_column(stats.columns, column)
    if found not in stats.columns:
        raise ConfigError(f"--image-column: no column {column!r}; the columns are {_some(stats.columns)}")
    if odd := stats.columns[found].seen.keys() - {Seen.BINARY}:
        raise ConfigError(
            f"--image-column {column} has {min(odd).value}, and no bytes of image files: give --images, the folder "
            "that the images are in whose paths it has"
        )
    return found


def _check_features(columns: Iterable[Column], taken: tuple[str, ...]) -> None:
    by_feature: dict[str, str] = {}
    for column in columns:
        if not column.feature:
            raise ConfigError(f"column {column.name!r} would be a feature without a name; --rename it")
        if column.feature in taken:
            raise ConfigError(
                f"column {column.name!r} would be the feature {column.feature!r}, which is the image's; --rename it"
            )
        other = by_feature.setdefault(column.feature, column.name)
        if other != column.name:
            raise ConfigError(
                f"columns {other!r} and {column.name!r} would both be the feature {column.feature!r}; --rename one"
            )


def _labels(stats: TableStats, choice: ColumnChoice) -> LabelMap:
    if not choice.label:
        return LabelMap(())
    stats_of = stats.columns[choice.label]
    if stats_of.lists:
        raise CategoryError(f"column {choice.label} holds lists, and a class is one value; is it the label?")
    found = stats_of.distinct
    if found is None:
        raise CategoryError(f"column {choice.label} has {_TOO_MANY}, too many to be classes; is it the label?")
    if stats_of.seen.keys() <= _NUMBERS:
        found = {name for name in found if Decimal(name).is_finite()}  # NaN among numbers is no class
    if choice.label in choice.defaults:
        found = found | {choice.defaults[choice.label]}
    names = list(choice.classes or stats_of.names or sorted_names(name for name in found if name))
    if choice.classes and found and not found & set(names):
        raise CategoryError(
            f"--classes, or those of --encoders: no row is of {_some(names)}; column {choice.label} has "
            f"{_some(sorted(found))}"
        )
    if not names:
        raise CategoryError(f"column {choice.label} has no value in any row, so there are no classes")
    return LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))


def _some(names: Iterable[str]) -> str:
    return first_texts(names, _SHOWN_COLUMNS)
