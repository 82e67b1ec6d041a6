"""Convert batches of rows to records, each with its split. Rows that do not fit are rejects."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.images import MAX_RECORD_BYTES
from recordmill.schemas.inputs.splits import RowSplits, split_name_fault
from recordmill.schemas.inputs.tables import CLASS_TYPES, TEXT_PARTS, Column, RowsFile, RowsReading
from recordmill.schemas.names import name_fault, name_key
from recordmill.schemas.rejects import Reason
from recordmill.transforms.encoders.fit_encoder import TextVectorizer
from recordmill.transforms.join.image_names import path_below, path_key
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.rows.row_batch import BadRow, RowBatch, format_name, format_value
from recordmill.transforms.table.choose_schema import ChosenSchema, file_column
from recordmill.transforms.table.convert_columns import (
    ValueFault,
    convert_column,
    convert_texts,
    encode_rows,
    without_nan,
)
from recordmill.transforms.table.observe_columns import TableStats, observe

_MOST_SPLITS = 20
ALL_ROWS = -1
"""Class index of all rows, if classes are not divided one by one."""


class RowsRecipe(NamedTuple):
    """Rules for records of rows.

    Attributes:
        output: folder of the data set; empty in a dry run.
        reading: of files.
        image_column: of the paths of images, or of their bytes; empty if rows have none.
        images: folders that the paths are below; none if the column has bytes.
    """

    output: str
    splits: RowSplits
    seed: int
    reading: RowsReading
    image_column: str = ""
    images: tuple[str, ...] = ()

    @property
    def holds_files(self) -> bool:
        """True if rows have the bytes of images."""
        return bool(self.image_column) and not self.images


class MadeRows(NamedTuple):
    """Rows of a batch that become records, in its order.

    Attributes:
        lines: int64 [rows]: see RowBatch.
        records: of each, a binary array.
        identities: what each row is known by.
        classes: class index of each; None without classes.
        positions: uint64 [rows]: see `SplitShares.position`; None if rows are not divided by shares.
        strata: int64 [rows]: index of the class that each is divided with; ALL_ROWS if all are divided together.
        split: int64 [rows]: index in the names of splits.
        texts: by column, what TextCounts has of each.
        names: of images, if rows name some.
        files: bytes of images, if rows have them.
        bad: the other rows.
    """

    lines: np.ndarray
    records: pa.Array
    identities: list[bytes]
    classes: np.ndarray | None
    positions: np.ndarray | None
    strata: np.ndarray
    split: np.ndarray
    texts: dict[str, np.ndarray]
    names: list[str]
    files: list[bytes]
    bad: list[BadRow]


class RowEncoder:
    """Converter of rows to records of one table."""

    def __init__(self, chosen: ChosenSchema, recipe: RowsRecipe):
        self._schema = chosen.schema
        classes = [category.name for category in chosen.labels.categories]
        self._indices = {
            column.name: {name: index for index, name in enumerate(column.values or classes)}
            for column in chosen.schema.columns
            if column.values or column.type in CLASS_TYPES
        }
        self._class_names = pa.array([name.encode() for name in classes], pa.large_binary())
        self._recipe = recipe
        self._splits = recipe.splits
        self._numbers = chosen.numbers
        self._borders = chosen.borders
        self._texts_of: dict[str, list[Column]] = {}  # what each column of texts becomes
        for column in chosen.schema.columns:
            if column.type in TEXT_PARTS:
                self._texts_of.setdefault(column.name, []).append(column)
        self._vectorizers = {encoder.column: TextVectorizer(encoder) for encoder in chosen.encoders}

    def __call__(self, batch: RowBatch) -> MadeRows:
        rows = len(batch.lines)
        all_faults = list(_path_faults(batch, self._recipe))
        features, label = [], None
        for column in self._schema.columns:
            if column.type in TEXT_PARTS:
                continue
            array = batch.columns.get(column.name)
            feature, column_faults = convert_column(column, array, rows, self._indices.get(column.name, {}))
            all_faults += column_faults
            if column.type in CLASS_TYPES:
                label = feature
            if column.type is ColumnType.CLASS_NAME:
                feature = feature._replace(values=self._class_names.take(pa.array(feature.values)))
            features.append(feature)
        counts = {}
        for name, columns in self._texts_of.items():
            text_features, text_faults, counts[name] = convert_texts(
                columns, batch.columns.get(name), rows, self._vectorizers[name]
            )
            features += text_features
            all_faults += text_faults
        records = encode_rows(features, rows)
        all_faults += (*self._identity_faults(batch), *_too_large(records))
        faults = {fault.place: fault for fault in reversed(all_faults)}  # the first of each row
        bad = [BadRow(int(batch.lines[place]), fault.reason, fault.detail) for place, fault in sorted(faults.items())]
        is_good = np.ones(rows, bool)
        is_good[list(faults)] = False
        # A row without a value has no label, so that there are fewer labels than rows; such a row is a fault.
        classes = label and label.values[is_good if label.absent is None else is_good[~label.absent]]
        records = records.filter(pa.array(is_good)) if faults else records
        return self._made(
            batch._replace(parts={}).without(bad),
            records,
            classes,
            {name: of_rows[is_good] for name, of_rows in counts.items()},
        )

    def _made(
        self, good: RowBatch, records: pa.Array, classes: np.ndarray | None, texts: dict[str, np.ndarray]
    ) -> MadeRows:
        recipe, splits = self._recipe, self._recipe.splits
        names: list[str] = []
        files: list[bytes] = []
        if recipe.holds_files:
            files = good.values(file_column(good.columns, recipe.image_column))
            names = list(map(_file_name, good.values(f"{recipe.image_column}.path"), files))
        elif recipe.images:
            names = [path_key(path, recipe.images) for path in good.values(recipe.image_column)]
        if splits.key:
            identities = self._texts(good, splits.key)
        elif recipe.holds_files:
            identities = [content_name(content).encode() for content in files]
        else:
            identities = records.to_pylist()
        strata = np.full(len(records), ALL_ROWS) if classes is None or splits.is_ranked else classes
        positions, split = self._divided(good, identities, strata)
        return MadeRows(
            good.lines, records, identities, classes, positions, strata, split, texts, names, files, good.bad
        )

    def _divided(
        self, good: RowBatch, identities: list[bytes], strata: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Return positions and split of each row, see MadeRows."""
        splits, shares = self._recipe.splits, self._recipe.splits.shares
        if len(splits.names) == 1:
            return None, np.zeros(len(identities), np.int64)
        if splits.column:
            index = {name: number for number, name in enumerate(splits.names)}
            found = self._texts(good, splits.column)
            return None, np.array([index[split_name(name.decode())] for name in found], np.int64)
        of = self._texts(good, splits.group) if splits.group else identities
        is_text = bool(splits.key or splits.group)
        position = {each: shares.position(_name(each, is_text)) for each in set(of)}
        positions = np.array([position[each] for each in of], np.uint64)
        numbers = np.searchsorted(np.array(shares.borders, np.uint64), positions, side="right")
        for class_index, borders in self._borders.items():
            rows = strata == class_index
            numbers[rows] = np.searchsorted(np.array(borders, np.uint64), positions[rows], side="right")
        return positions, np.array([splits.names.index(name) for name in shares.names])[numbers]

    def _texts(self, batch: RowBatch, column: str) -> list[bytes]:
        """Return the values of a column, as UTF-8. None of them is missing."""
        values = [format_name(value) for value in batch.values(column)]
        if column == self._splits.key and self._splits.images:
            values = [path_key(value, self._splits.images) for value in values]
        return [value.encode() for value in values]

    def _identity_faults(self, batch: RowBatch) -> Iterator[ValueFault]:
        """Rows without what they are divided by."""
        names = {column: without_nan(batch.columns[column]) for column in self._numbers if column in batch.columns}
        batch = batch._replace(columns={**batch.columns, **names})
        for column in self._splits.columns:
            for place, value in enumerate(batch.values(column)):
                if value is None or value == "":
                    yield ValueFault(place, Reason.MISSING_VALUE, f"column {column} has no value")
                elif column == self._splits.column and split_name(format_name(value)) not in self._splits.names:
                    detail = f"{format_value(value)} is not one of the splits {', '.join(self._splits.names)}"
                    yield ValueFault(place, Reason.UNKNOWN_CLASS, f"column {column}: {detail}")


def content_name(content: bytes) -> str:
    """Return a name for the image of a file without one, which depends on its bytes only."""
    return blake2b(content, digest_size=16).hexdigest()


def _file_name(path: Any, content: bytes) -> str:
    """Return the name of an image whose row has its bytes: its `path`, if that can be one."""
    is_name = isinstance(path, str) and path and not name_fault(path)
    return name_key(path) if is_name else content_name(content)


def _path_faults(batch: RowBatch, recipe: RowsRecipe) -> Iterator[ValueFault]:
    """Yield faults of rows that lead to no image file."""
    column = recipe.image_column
    if recipe.holds_files:
        column = file_column(batch.columns, column)
        values = batch.columns.get(column, pa.nulls(len(batch.lines), pa.large_binary()))
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        for place in np.flatnonzero(lengths == 0).tolist():
            yield ValueFault(place, Reason.MISSING_VALUE, f"column {column} has no value")
        return
    for place, path in enumerate(batch.values(column) if column else ()):
        if path is None or path == "":
            yield ValueFault(place, Reason.MISSING_VALUE, f"column {column} has no value")
        elif not isinstance(path, str):
            yield ValueFault(
                place, Reason.OTHER_TYPE, f"column {column}: {format_value(path)} is not the path of an image"
            )
        elif fault := name_fault(path_below(path.strip(), recipe.images)):
            yield ValueFault(place, Reason.UNSAFE_FILE_NAME, f"column {column}: the path {format_value(path)} {fault}")


def split_name(value: str) -> str:
    """Return the name of a split in lower case.

    >>> split_name(" Train")
    'train'
    """
    return value.strip().lower()


def named_splits(files: Iterable[RowsFile], column: str, reading: RowsReading) -> tuple[str, ...]:
    """Return the splits that `column` names in any row, sorted.

    Raises:
        ConfigError: a file has no such column; its values are no names of splits, or too many.
    """
    stats = TableStats()
    for file in files:
        for batch in read_rows(file, reading._replace(columns=(column,))):
            stats.add(observe(batch, file.number, (column,)))
        if stats.rows.get(file.number) and file.number not in stats.in_files.get(column, ()):
            raise ConfigError(f"--split-column: {file.path} has no column {column!r}")
    values = stats.columns[column].distinct if column in stats.columns else set()
    found = {split_name(value) for value in values or () if value}
    if values is None or len(found) > _MOST_SPLITS:
        raise ConfigError(
            f"--split-column {column} has more than {_MOST_SPLITS} values, or a very long one; is it the column of "
            "splits?"
        )
    if not found:
        raise ConfigError(f"--split-column {column} names no split in any row")
    for name in sorted(found):
        if fault := split_name_fault(name):
            raise ConfigError(f"--split-column {column}: a split cannot be called {name!r}, as that {fault}")
    return tuple(sorted(found))


def _name(identity: bytes, is_text: bool) -> str:
    """Input of the hash that decides a row's split; of a record its digest, as it may have megabytes."""
    return identity.decode() if is_text else blake2b(identity, digest_size=16).hexdigest()


def _too_large(records: pa.LargeBinaryArray) -> Iterator[ValueFault]:
    sizes = np.diff(np.frombuffer(records.buffers()[1], np.int64, len(records) + 1, records.offset * 8))
    for place in np.flatnonzero(sizes > MAX_RECORD_BYTES).tolist():
        text = f"its record would be {int(sizes[place]):,} bytes; at most {MAX_RECORD_BYTES:,} are read"
        yield ValueFault(place, Reason.RECORD_TOO_LARGE, text)
