"""Choose how columns are written, from facts of all rows."""

import re
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from recordmill.schemas.dataset.manifest import MappedClass
from recordmill.schemas.errors import CategoryError, ConfigError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.encoders import TextEncoder, TextForm
from recordmill.schemas.inputs.labels import (
    SAME_CLASSES,
    ExistingLabels,
    LabelMap,
    adopt_labels,
    merge_numbers,
    misread_numbers,
    name_warnings,
    number_name,
    sorted_names,
)
from recordmill.schemas.inputs.tables import CLASS_TYPES, NAMES_CURE, TEXT_PARTS, Column, RowsFile, TableSchema
from recordmill.schemas.sizes import first_texts, quote_blanks
from recordmill.transforms.encoders.fit_encoder import encoder_warnings
from recordmill.transforms.join.choose_categories import comma_fault
from recordmill.transforms.rows.choose_type import NUMBERS, narrowest_type
from recordmill.transforms.rows.convert_columns import convert_column
from recordmill.transforms.rows.kinds import Seen
from recordmill.transforms.rows.observe_columns import MOST_DISTINCT, MOST_NAME_BYTES, ColumnStats, TableStats
from recordmill.transforms.rows.read_csv import COMMENT_SKIPPED
from recordmill.transforms.rows.row_batch import format_value
from recordmill.transforms.shape.class_map import ClassMap
from recordmill.transforms.shape.finish_labels import map_by_name, select_classes
from recordmill.transforms.table.table_options import TableOptions

_MOST_LABEL_BYTES = 200
_SHOWN_COLUMNS = 8
_NOT_FINITE = re.compile("[+-]?(nan|inf|infinity)", re.IGNORECASE)
_TOO_MANY = f"more than {MOST_DISTINCT:,} values, or longer ones than {MOST_NAME_BYTES:,} bytes"


def numbered_columns(options: TableOptions, known: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the columns whose values are collected, to be numbered.

    Args:
        known: Columns of --schema by name.
    """
    enums = (name for name, column in known.items() if column.type is ColumnType.ENUM and not column.values)
    return (*filter(None, [options.label]), *enums)


class ChosenSchema(NamedTuple):
    """Schema of a table, its classes, warnings, and the encoders of its texts.

    Attributes:
        borders: Ends of splits by class index, if classes are divided one by one; see `SplitShares.borders`.
        numbers: Columns of numbers that decide the split of a row. NaN in them is a missing value.
        read_classes: Classes of rows, with their index among `labels`, or DROPPED, if a class map changes them. Rows of
            other classes are rejects.
        remaining: Rows that remain after limits, see `recordmill.transforms.shape.limit_blocks.Remaining`; None
            without limits.
    """

    schema: TableSchema
    labels: LabelMap
    warnings: tuple[str, ...]
    encoders: tuple[TextEncoder, ...] = ()
    borders: Mapping[int, tuple[int, ...]] = {}
    numbers: tuple[str, ...] = ()
    read_classes: Mapping[str, int] = {}
    remaining: Mapping[str, bytes] | None = None

    def mapped_class(self, name: str, rows: int = 0) -> MappedClass:
        """Return a class that is read, with its number of rows."""
        index = self.read_classes[name]
        return MappedClass(name, "" if index == DROPPED else self.labels.categories[index].name, images=rows)


DROPPED = -1
"""Index of a class that a class map drops."""


def choose_schema(
    stats: TableStats,
    options: TableOptions,
    known: Mapping[str, Column],
    existing: ExistingLabels | None,
    files: Iterable[RowsFile],
    class_map: ClassMap | None = None,
) -> ChosenSchema:
    """Return the columns of records, with warnings.

    Args:
        known: Columns of --schema by name. Options overrule them.
        existing: Labels of the data set that the splits are added to; None without one.
        class_map: New names of classes; None without.

    Raises:
        ConfigError: A requested column does not exist, or two columns would be one feature.
        CategoryError: The label column has too many values, or none.
    """
    paths = {file.number: file.path for file in files}
    if stats.first_bad and not stats.rows:
        file, row, detail = stats.first_bad
        raise ConfigError(
            f"none of {sum(stats.bad.values()):,} rows can be read. The first is {paths[file]} row {row}: {detail}"
        )
    _check_requested_columns(stats, options, known, paths)
    dtypes = options.column_types
    columns: list[Column] = []
    warnings = list(_first_line_warnings(stats, paths))
    for name, values in stats.columns.items():
        if not options.writes(name):
            continue
        column = _choose_column(name, values, options, known, dtypes.get(name))
        is_optional = column.default is None and values.present < sum(stats.rows.values())
        if name != options.label:
            column = msgspec.structs.replace(column, is_optional=is_optional)
        columns.append(column)
        is_type_chosen = name in known or name in options.text_column
        warnings += _column_warnings(column, values, stats, paths, is_type_chosen)
    if not columns and not options.image_columns:
        raise ConfigError(f"{_list_names(paths.values())}: no rows with columns, so there is nothing to write")
    _check_features(columns, options.image_keys)
    warnings += _rounding_warnings(columns, stats)
    warnings += _enum_warnings(
        column for column in columns if column.type is ColumnType.ENUM and column.name not in known
    )
    labels = _label_map(stats, options, known)
    read_classes: dict[str, int] = {}
    if class_map:
        labels, read_classes, map_warnings = _map_labels(labels, class_map, options)
        warnings += map_warnings
    warnings += _number_form_warnings(options.required_columns, stats)
    warnings += _equal_number_warnings(options.label, stats)
    if not options.classes:
        warnings += (*misread_numbers(labels), *name_warnings(labels))
    if existing and options.label:
        labels, absent = adopt_labels(labels, existing, bool(options.classes), SAME_CLASSES)
        warnings += [absent] if absent else []
    numbers = tuple(name for name in options.required_columns if stats.columns[name].seen.keys() <= NUMBERS)
    schema = TableSchema(tuple(columns))
    return ChosenSchema(schema, labels, tuple(warnings), numbers=numbers, read_classes=read_classes)


def _map_labels(
    labels: LabelMap, class_map: ClassMap, options: TableOptions
) -> tuple[LabelMap, dict[str, int], list[str]]:
    """Return the classes of records, `ChosenSchema.read_classes`, and warnings.

    Raises:
        CategoryError, NoSuchClassError: See `map_by_name` and `select_classes`.
    """
    mapped, mapping, warnings = map_by_name(labels, class_map)
    selected = select_classes(mapped, options)
    index = {category.name: number for number, category in enumerate(selected.categories)}
    new_names = {category.name: mapping.names.get(category.name) for category in labels.categories}
    read = {name: DROPPED if new is None else index[new] for name, new in new_names.items() if new in {None, *index}}
    return selected, read, warnings


def _first_line_warnings(stats: TableStats, paths: Mapping[int, str]) -> Iterator[str]:
    """Yield warnings about first lines of files that may have been misread."""
    for lines, what, cure in (
        (stats.comments, COMMENT_SKIPPED, ""),
        (stats.unnamed, "the first line is read as the names of the columns", f". {NAMES_CURE}"),
    ):
        if lines:
            files = _list_names(paths[file] for file in sorted(lines))
            yield f"{files}: {what}: {format_value(lines[min(lines)])}{cure}"


def with_texts(chosen: ChosenSchema, encoders: Iterable[TextEncoder], options: TableOptions) -> ChosenSchema:
    """Return the schema with the features of encoded texts in place of the texts.

    Raises:
        ConfigError: Two columns would be one feature.
    """
    by_column = {encoder.column: encoder for encoder in encoders}
    names, counts = options.text_names_by_column, options.count_features
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
            type_ = ColumnType.TERM_COUNT if name in counts else type_
            columns.append(Column(column.name, name, type_, is_list=True, default=column.default))
        warnings += encoder_warnings(encoder)
    _check_features(columns, options.image_keys)
    if unknown := set(counts) - {column.feature for column in columns if column.type is ColumnType.TERM_COUNT}:
        raise ConfigError(f"--dtype: {min(unknown)} does not store counts of terms")
    ordered = sorted(by_column.values(), key=lambda encoder: encoder.column)
    return chosen._replace(schema=TableSchema(tuple(columns)), warnings=tuple(warnings), encoders=tuple(ordered))


def _choose_column(
    name: str, stats: ColumnStats, options: TableOptions, known: Mapping[str, Column], dtype: ColumnType | None
) -> Column:
    """Return the written form of a column. Its type is `dtype`, else the type in --schema, else that of its values.

    Args:
        dtype: Type in --dtype.
    """
    given = known.get(name)
    feature = options.renamed.get(name, given.feature if given else name)
    default = _default(name, options, known)
    if dtype and name in (options.label, *options.text_column):
        what = "classes: see --label-as" if name == options.label else "texts, which become other features"
        raise ConfigError(f"--dtype {feature}: column {name} has {what}")
    if name == options.label:
        # TFDS has a file of class names that is called as the feature.
        if len(feature.encode()) > _MOST_LABEL_BYTES or not feature.isprintable():
            raise ConfigError(
                f"--label: a file has the name of the feature, {format_value(feature)}, which is too long or has a "
                "control character; --rename it"
            )
        return Column(name, feature, options.label_type, default=default)
    if name in options.text_column:
        return Column(name, feature, ColumnType.BYTES, default=default)
    type_, is_list, shape = (
        (given.type, given.is_list, given.shape)
        if given
        else (narrowest_type(stats), stats.lists > 0, _common_shape(name, stats))
    )
    type_ = dtype or type_
    if type_ in CLASS_TYPES:
        raise ConfigError(f"--schema: column {name} has classes. Add --label {shlex.quote(name)}")
    if is_list and default is not None:
        raise ConfigError(f"--default {name}: the column has lists, and a missing list is an empty one")
    values = _enum_names(name, stats, given, default) if type_ is ColumnType.ENUM else ()
    column = Column(name, feature, type_, is_list, default=default, values=values, shape=shape)
    if default is not None and type_ is not ColumnType.ENUM:
        _, faults = convert_column(column, None, 1, {})
        for fault in faults:
            raise ConfigError(f"--default: {fault.detail}. Choose another default, or set another type with --schema")
    return column


def _default(name: str, options: TableOptions, known: Mapping[str, Column]) -> str | None:
    """Return the value that replaces missing ones: that of --default, or else of --schema."""
    return options.defaults.get(name, known[name].default if name in known else None)


def _common_shape(name: str, stats: ColumnStats) -> tuple[int, ...]:
    """Return the shape that all values of a column have; () if it has plain lists, or no lists.

    Raises:
        ConfigError: Lists in lists have different sizes, or are not numbers.
    """
    shape = next(iter(stats.shapes), ())
    if Seen.NESTED not in stats.seen and stats.shapes <= {()}:
        return ()
    is_number = narrowest_type(stats) is not ColumnType.BYTES
    if Seen.NESTED not in stats.seen and len(stats.shapes) == 1 and -1 not in shape and is_number:
        return shape
    what = "texts" if not is_number and Seen.NESTED not in stats.seen else "different sizes, or other types,"
    raise ConfigError(
        f"column {name} has lists of {what} in lists, which features cannot store. Give one flat list in each row (and "
        "the sizes as a column), leave the column out by --columns, or give it the type bytes by --schema, as JSON text"
    )


def _enum_names(name: str, stats: ColumnStats, given: Column | None, default: str | None) -> tuple[str, ...]:
    """Return the names of an enum in the order of their numbers."""
    if given and given.values:
        if len(set(given.values)) < len(given.values):
            raise ConfigError(f"--schema: column {name} is an enum with a value twice")
        return given.values
    if stats.names:
        return stats.names
    if stats.distinct is None:
        raise CategoryError(f"--schema: column {name} has {_TOO_MANY}, too many to be an enum")
    return tuple(sorted_names(stats.distinct if default is None else stats.distinct | {default}))


def _column_warnings(
    column: Column, values: ColumnStats, table: TableStats, paths: Mapping[int, str], is_type_chosen: bool
) -> Iterator[str]:
    """Yield warnings about one column.

    Args:
        paths: Paths of files by number.
        is_type_chosen: True if its type does not follow from its values.
    """
    name = column.name
    if lacking := sorted(table.rows.keys() - table.in_files[name]):
        has = "no value" if column.default is None else "the default"
        yield f"column {name} is not in {_list_names([paths[file] for file in lacking])}; its rows have {has} there"
    total = sum(values.seen.values())
    if not total:
        yield f"column {name} has no value in any row. Leave it out by --columns"
        return
    if values.cut:
        yield f"column {name}: {values.cut:,} of {total:,} points in time are finer than a microsecond, which is cut"
    if column.type is ColumnType.BYTES and values.images:
        yield (
            f"column {name}: {values.images:,} of {total:,} values are JPEG or PNG files, which are stored unchecked; "
            f"--image-column {shlex.quote(name.removesuffix('.bytes'))} checks them, and counts broken ones as rejects"
        )
    typed_looks = [look for look in values.seen if look not in (Seen.TEXT, Seen.BINARY)]
    if column.type is ColumnType.BYTES and typed_looks and not is_type_chosen:
        yield _mixed_types_warning(name, values, paths, max(typed_looks, key=values.seen.__getitem__))


def _mixed_types_warning(name: str, values: ColumnStats, paths: Mapping[int, str], look: Seen) -> str:
    """Return a sentence about a column that is written as text.

    Args:
        look: Look of most of its values, except texts.
    """
    rare_look = min((other for other in values.seen if other is not look), key=values.seen.__getitem__, default=look)
    file, row, value = values.first[rare_look]
    if rare_look is look:
        limit = f", and {_TOO_MANY}" if values.distinct is None else ""
        return f"column {name} is written as text, as it has {look.value}, the first {value}{limit}"
    return (
        f"column {name} is written as text, as it has {look.value} ({values.seen[look]:,}) and {rare_look.value} "
        f"({values.seen[rare_look]:,}), the first {value} in {paths[file]} row {row}; a type in --schema would reject "
        "what does not fit it"
    )


def _rounding_warnings(columns: Iterable[Column], stats: TableStats) -> Iterator[str]:
    """Yield one warning for all columns of numbers that float32 does not hold."""
    floats = {column.name: stats.columns[column.name] for column in columns if column.type is ColumnType.FLOAT}
    if rounded := {name: values for name, values in floats.items() if values.rounded}:
        counts = (f"{name} ({values.rounded:,} of {sum(values.seen.values()):,})" for name, values in rounded.items())
        yield (
            f"float32, the type in records, rounds numbers of {_list_names(counts)}; the type bytes in --schema keeps "
            "them as text"
        )


def _enum_warnings(inferred: Iterable[Column]) -> Iterator[str]:
    """Yield one warning for all enums that --schema does not name."""
    if sizes := [f"{column.name} of {len(column.values):,} values" for column in inferred]:
        yield (
            "enums (Parquet's dictionaries) are written as numbers, whose names are in schema.json: "
            f"{first_texts(sizes, _SHOWN_COLUMNS, '; ')}. In CSV or JSON such columns are text; with that file as "
            "--schema they are these numbers, too"
        )


def _number_form_warnings(columns: Iterable[str], stats: TableStats) -> Iterator[str]:
    """Yield a warning for each column of names that are numbers of two forms."""
    for name in columns:
        seen = stats.columns[name].seen
        if seen.keys() >= {Seen.INT64, Seen.FLOAT}:
            yield (
                f"column {name} has {seen[Seen.INT64]:,} numbers without a fraction and {seen[Seen.FLOAT]:,} with one: "
                "as names they are text, so 1 and 1.0 are two. Write all in one form"
            )


def _check_requested_columns(
    stats: TableStats, options: TableOptions, known: Mapping[str, Column], paths: Mapping[int, str]
) -> None:
    """Raise ConfigError if a column that an option names does not exist, or is missing in a file that must have it."""
    image_columns = options.image_columns
    requested: dict[str, Iterable[str]] = {
        "--label": (options.label,) if options.label else (),
        "--schema": known,
        "--text-column": options.text_column,
        "--image-column": image_columns if len(image_columns) == 1 else (),
        "--default": options.defaults,
        "--rename": options.renamed,
        "--dtype": options.column_types,
        "--key, --group-column or --split-column": options.required_columns,
        "--columns": options.columns,
    }
    if options.writes("") and "" in stats.columns:
        files = _list_names([paths[file] for file in sorted(stats.in_files[""])])
        raise ConfigError(f"{files}: a column has no name. Name it, or list the columns to write with --columns")
    for flag, names in requested.items():
        if missing := [name for name in names if name not in stats.columns]:
            # With --columns, the other columns were not read.
            left_out = "" if flag == "--columns" else " among --columns"
            advice = left_out if options.columns else f". The columns are {_list_names(stats.columns)}"
            advice += f". {NAMES_CURE}" if stats.unnamed else ""
            raise ConfigError(f"{flag}: no column {missing[0]!r}{advice}")
    if len(image_columns) > 1:
        requested["--image-column"] = (_check_image_bytes(stats, image_columns[0]),)
    for name in (*options.required_columns, *requested["--label"], *requested["--image-column"]):
        if lacking := sorted(stats.rows.keys() - stats.in_files[name]):
            files = _list_names([paths[file] for file in lacking])
            raise ConfigError(f"column {name} is not in {files}. Every row needs a value")


def image_bytes_column(columns: Container[str], column: str) -> str:
    """Return the column of an image's bytes: `column`, or the member `bytes` of Hugging Face's Image."""
    return f"{column}.bytes" if f"{column}.bytes" in columns else column


def _check_image_bytes(stats: TableStats, column: str) -> str:
    """Return the column of the bytes of images.

    Raises:
        ConfigError: It does not exist, or has other values.
    """
    name = image_bytes_column(stats.columns, column)
    if name not in stats.columns:
        raise ConfigError(f"--image-column: no column {column!r}. The columns are {_list_names(stats.columns)}")
    if other_looks := stats.columns[name].seen.keys() - {Seen.BINARY}:
        raise ConfigError(
            f"--image-column {column} has {min(other_looks).value} instead of the bytes of image files. If these are "
            "paths, add --images with the folder of the images"
        )
    return name


def _check_features(columns: Iterable[Column], image_keys: tuple[str, ...]) -> None:
    by_feature: dict[str, str] = {}
    for column in columns:
        if not column.feature:
            raise ConfigError(f"column {column.name!r} would be a feature without a name; --rename it")
        if column.feature in image_keys:
            raise ConfigError(
                f"column {column.name!r} would be the feature {column.feature!r}, which is the image's; --rename it"
            )
        other = by_feature.setdefault(column.feature, column.name)
        if other != column.name:
            raise ConfigError(
                f"columns {other!r} and {column.name!r} would both be the feature {column.feature!r}; --rename one"
            )


def _label_map(stats: TableStats, options: TableOptions, known: Mapping[str, Column]) -> LabelMap:
    label = options.label
    if not label:
        return LabelMap(())
    values = stats.columns[label]
    if values.lists:
        raise CategoryError(f"column {label} has lists, and a class is one value; is it the label?")
    present = values.distinct
    if present is None:
        raise CategoryError(f"column {label} has {_TOO_MANY}, too many to be classes; is it the label?")
    default = _default(label, options, known)
    if default is not None:
        present = present | {default}
    if _has_equal_numbers(values):
        merged = merge_numbers(present)
        present = {merged.get(name, name) for name in present}
    elif values.seen.keys() == {Seen.BOOL} and len(truths := {*map(str.lower, present)}) < len(present):
        present = truths  # of CSV, where pandas writes True, and of another format
    if values.seen.keys() <= {Seen.BOOL, *NUMBERS}:  # NaN among numbers is not a class
        present = {name for name in present if not _NOT_FINITE.fullmatch(name)}
    classes = () if options.class_map else options.classes
    names = list(classes or values.names or sorted_names(name for name in present if name))
    if fault := comma_fault("--classes", classes, present):
        raise CategoryError(fault)
    if classes and present and not {*map(number_name, present)} & {*map(number_name, names)}:
        raise CategoryError(
            f"no row has a class of --classes or --encoders, which are {_list_names(names)}; column {label} has "
            f"{_list_names(sorted(present))}"
        )
    if not names:
        raise CategoryError(f"column {label} has no value in any row, so there are no classes")
    return LabelMap(tuple(Category(index, name) for index, name in enumerate(names)))


def _has_equal_numbers(values: ColumnStats) -> bool:
    """Return True if a column of classes has numbers of several forms, which are compared as numbers: 1, 1.0, true."""
    forms = {Seen.BOOL, Seen.INT64, Seen.LARGE, Seen.FLOAT}
    return values.seen.keys() <= {Seen.BOOL, *NUMBERS} and len(forms & values.seen.keys()) > 1


def _equal_number_warnings(label: str | None, stats: TableStats) -> Iterator[str]:
    """Yield a warning if classes are numbers of several forms."""
    values = stats.columns[label] if label else ColumnStats()
    if _has_equal_numbers(values) and (merged := merge_numbers(sorted(values.distinct or ()))):
        looks = " and ".join(f"{look.value} ({count:,})" for look, count in values.seen.items())
        number = next(iter(merged.values()))
        names = dict.fromkeys((number, *(name for name in merged if merged[name] == number)))
        yield f"column {label} has {looks}; equal numbers are one class, such as {' and '.join(map(repr, names))}"


def _list_names(names: Iterable[str]) -> str:
    return first_texts(quote_blanks(names), _SHOWN_COLUMNS)
