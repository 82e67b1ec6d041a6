"""Convert batches of rows to records, each with its split. Rows with a fault are rejects."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import ColumnType
from recordmill.schemas.inputs.images import MAX_RECORD_BYTES
from recordmill.schemas.inputs.splits import split_name_fault
from recordmill.schemas.inputs.tables import CLASS_TYPES, TEXT_PARTS, Column, RowsFile, RowsReading
from recordmill.schemas.names import name_fault, name_key
from recordmill.schemas.rejects import Reason
from recordmill.transforms.encoders.fit_encoder import TextVectorizer
from recordmill.transforms.join.image_names import path_below, path_key
from recordmill.transforms.rows.convert_columns import ValueFault, convert_column, without_nan
from recordmill.transforms.rows.observe_columns import TableStats, observe
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.rows.row_batch import BadRow, RowBatch, format_name, format_value
from recordmill.transforms.table.choose_schema import DROPPED, ChosenSchema, image_bytes_column
from recordmill.transforms.table.convert_texts import convert_texts
from recordmill.transforms.table.encode_records import encode_records
from recordmill.transforms.table.table_options import TableOptions

_MOST_SPLITS = 20
ALL_ROWS = -1
"""Class index of all rows, if classes are not divided one by one."""


class MadeRows(NamedTuple):
    """Records of a batch of rows, in its order.

    Attributes:
        lines: int64 [rows]: See RowBatch.
        records: Binary array of serialized Examples.
        identities: Bytes that identify each row: its key, its image or its record.
        groups: Values of --group-column; empty without.
        classes: int64 [rows]: Class indices; None without classes.
        positions: uint64 [rows]: See `SplitShares.position`; None if rows are not divided by shares.
        strata: int64 [rows]: Index of the class that a row is divided with; ALL_ROWS if all are divided together.
        split: int64 [rows]: Index in the names of splits.
        texts: int64 [rows, 4] by column: Numbers of TextCounts.
        names: Names of images, if rows have images.
        files: Bytes of images, if rows have them.
        bad: Rows without a record.
        read_classes: int64 [splits, classes]: Number of rows by split and class of `ChosenSchema.read_classes`; with
            rows of dropped classes, which have no record.
    """

    lines: np.ndarray
    records: pa.Array
    identities: list[bytes]
    groups: list[bytes]
    classes: np.ndarray | None
    positions: np.ndarray | None
    strata: np.ndarray
    split: np.ndarray
    texts: dict[str, np.ndarray]
    names: list[str]
    files: list[bytes]
    bad: list[BadRow]
    read_classes: np.ndarray

    def take(self, rows: np.ndarray) -> "MadeRows":
        """Return rows by index: int64."""
        return self._replace(
            lines=self.lines[rows],
            records=self.records.take(pa.array(rows)),
            identities=[self.identities[row] for row in rows.tolist()],
            groups=[self.groups[row] for row in rows.tolist()] if self.groups else [],
            classes=None if self.classes is None else self.classes[rows],
            positions=None if self.positions is None else self.positions[rows],
            strata=self.strata[rows],
            split=self.split[rows],
            texts={column: numbers[rows] for column, numbers in self.texts.items()},
            names=[self.names[row] for row in rows.tolist()] if self.names else [],
            files=[self.files[row] for row in rows.tolist()] if self.files else [],
        )


class RowEncoder:
    """Converter of rows to records of one table."""

    def __init__(
        self, chosen: ChosenSchema, options: TableOptions, splits: tuple[str, ...], ignores_images: bool = False
    ):
        """Read options once, not for each batch.

        Args:
            splits: Names of the splits. An unreadable row counts for the first.
            ignores_images: True to divide rows without their images.
        """
        self._schema = chosen.schema
        classes = [category.name for category in chosen.labels.categories]
        self._new_index = np.array([*chosen.read_classes.values()], np.int64)  # of each class that is read
        self._indices = {
            column.name: {
                name: index for index, name in enumerate(column.values or tuple(chosen.read_classes) or classes)
            }
            for column in chosen.schema.columns
            if column.values or column.type in CLASS_TYPES
        }
        self._class_names = pa.array([name.encode() for name in classes], pa.large_binary())
        self._options, self._splits = options, splits
        self._shares, self._key, self._required = options.shares, options.row_key, options.required_columns
        self._image_column = "" if ignores_images else options.image_column or ""
        self._has_image_bytes = options.has_image_bytes and not ignores_images
        self._numbers = chosen.numbers
        self._borders = chosen.borders
        self._text_parts: dict[str, list[Column]] = {}  # columns of the features of each column of texts
        for column in chosen.schema.columns:
            if column.type in TEXT_PARTS:
                self._text_parts.setdefault(column.name, []).append(column)
        self._vectorizers = {encoder.column: TextVectorizer(encoder) for encoder in chosen.encoders}

    def __call__(self, batch: RowBatch) -> MadeRows:
        rows = len(batch.lines)
        all_faults = list(self._image_faults(batch))
        features, label, read_classes = [], None, None
        for column in self._schema.columns:
            if column.type in TEXT_PARTS:
                continue
            array = batch.columns.get(column.name)
            feature, column_faults = convert_column(column, array, rows, self._indices.get(column.name, {}))
            all_faults += column_faults
            if column.type in CLASS_TYPES:
                if len(self._new_index):
                    read_classes, new_classes = feature.values, self._new_index[feature.values]
                    feature = feature._replace(values=np.maximum(new_classes, 0))  # rows of DROPPED have no record
                label = feature
            if column.type is ColumnType.CLASS_NAME:
                feature = feature._replace(values=self._class_names.take(pa.array(feature.values)))
            features.append(feature)
        counts = {}
        for name, columns in self._text_parts.items():
            text_features, text_faults, counts[name] = convert_texts(
                columns, batch.columns.get(name), rows, self._vectorizers[name]
            )
            features += text_features
            all_faults += text_faults
        records = encode_records(features, rows)
        all_faults += (*self._identity_faults(batch), *_size_faults(records))
        faults = {fault.place: fault for fault in reversed(all_faults)}  # first fault of each row
        bad = [BadRow(int(batch.lines[place]), fault.reason, fault.detail) for place, fault in sorted(faults.items())]
        is_good = np.ones(rows, bool)
        is_good[list(faults)] = False
        # A row without a value has no label, so there may be fewer labels than rows. Such a row is a reject.
        is_labelled = None if label is None else is_good if label.absent is None else is_good[~label.absent]
        classes = label and label.values[is_labelled]
        if read_classes is not None:
            read_classes = read_classes[is_labelled]
        records = records.filter(pa.array(is_good)) if faults else records
        made = self._divide_records(
            batch._replace(parts={}).without(bad),
            records,
            classes,
            {name: row_counts[is_good] for name, row_counts in counts.items()},
        )
        return made if read_classes is None else self._without_dropped(made, read_classes)

    def _without_dropped(self, made: MadeRows, read_classes: np.ndarray) -> MadeRows:
        """Return the rows whose class is not dropped, and the numbers of all classes.

        Args:
            read_classes: int64 [rows]: Index of each row's class among those that are read.
        """
        numbers = np.zeros((len(self._splits), len(self._new_index)), np.int64)
        np.add.at(numbers, (made.split, read_classes), 1)
        stays = np.flatnonzero(self._new_index[read_classes] != DROPPED)
        return (made if len(stays) == len(made.lines) else made.take(stays))._replace(read_classes=numbers)

    def _divide_records(
        self, good: RowBatch, records: pa.Array, classes: np.ndarray | None, texts: dict[str, np.ndarray]
    ) -> MadeRows:
        """Return records with the identity, split and image of their rows."""
        names: list[str] = []
        files: list[bytes] = []
        if self._has_image_bytes:
            files = good.values(image_bytes_column(good.columns, self._image_column))
            names = list(map(_name_image, good.values(f"{self._image_column}.path"), files))
        elif self._image_column:
            names = [path_key(path, self._options.images) for path in good.values(self._image_column)]
        if self._key:
            identities = self._values_as_bytes(good, self._key)
        elif self._has_image_bytes:
            identities = [content_name(content).encode() for content in files]
        else:
            identities = records.to_pylist()
        is_ranked = self._options.split_by == "rank"
        strata = np.full(len(records), ALL_ROWS) if classes is None or is_ranked else classes
        group_column = self._options.group_column
        groups = self._values_as_bytes(good, group_column) if group_column else []
        positions, split = self._divide_rows(good, groups or identities, strata)
        return MadeRows(
            good.lines, records, identities, groups, classes, positions, strata, split, texts, names, files, good.bad,
            np.zeros((len(self._splits), 0), np.int64),
        )  # fmt: skip

    def _divide_rows(
        self, good: RowBatch, groups: list[bytes], strata: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Return the positions and splits of rows, see MadeRows.

        Args:
            groups: Value of each row that decides its split.
        """
        split_column = self._options.split_column
        if len(self._splits) == 1:
            return None, np.zeros(len(groups), np.int64)
        if split_column:
            index = {name: number for number, name in enumerate(self._splits)}
            values = self._values_as_bytes(good, split_column)
            return None, np.array([index[split_name(value.decode())] for value in values], np.int64)
        is_text = bool(self._key or self._options.group_column)
        position = {group: self._shares.position(hash_input(group, is_text)) for group in set(groups)}
        positions = np.array([position[group] for group in groups], np.uint64)
        numbers = np.searchsorted(np.array(self._shares.borders, np.uint64), positions, side="right")
        for class_index, borders in self._borders.items():
            rows = strata == class_index
            numbers[rows] = np.searchsorted(np.array(borders, np.uint64), positions[rows], side="right")
        return positions, np.array([self._splits.index(name) for name in self._shares.names])[numbers]

    def _values_as_bytes(self, batch: RowBatch, column: str) -> list[bytes]:
        """Return the values of a column as UTF-8. No value is missing. All spellings of an image path are one key."""
        values = [format_name(value) for value in batch.values(column)]
        if column == self._key and not self._options.key:
            values = [path_key(value, self._options.images) for value in values]
        return [value.encode() for value in values]

    def _image_faults(self, batch: RowBatch) -> Iterator[ValueFault]:
        """Yield faults of rows that have no image, or an unusable path."""
        column, rows = self._image_column, len(batch.lines)
        if self._has_image_bytes:
            column = image_bytes_column(batch.columns, column)
            contents = batch.columns.get(column, pa.nulls(rows, pa.large_binary()))
            lengths = pc.fill_null(pc.binary_length(contents), 0).to_numpy(zero_copy_only=False)
            for place in np.flatnonzero(lengths == 0).tolist():
                yield ValueFault(place, Reason.MISSING_VALUE, f"column {column} has no value")
            return
        for place, path in enumerate(batch.values(column) if column else ()):
            if path is None or path == "":
                yield ValueFault(place, Reason.MISSING_VALUE, f"column {column} has no value")
            elif not isinstance(path, str):
                detail = f"column {column}: {format_value(path)} is not the path of an image"
                yield ValueFault(place, Reason.OTHER_TYPE, detail)
            elif fault := name_fault(path_below(path.strip(), self._options.images)):
                detail = f"column {column}: the path {format_value(path)} {fault}"
                yield ValueFault(place, Reason.UNSAFE_FILE_NAME, detail)

    def _identity_faults(self, batch: RowBatch) -> Iterator[ValueFault]:
        """Yield faults of rows that lack a value that decides their split."""
        names = {column: without_nan(batch.columns[column]) for column in self._numbers if column in batch.columns}
        batch = batch._replace(columns={**batch.columns, **names})
        split_column = self._options.split_column
        for column in self._required:
            for place, value in enumerate(batch.values(column)):
                if value is None or value == "":
                    yield ValueFault(place, Reason.MISSING_VALUE, f"column {column} has no value")
                elif column == split_column and split_name(format_name(value)) not in self._splits:
                    detail = f"{format_value(value)} is not one of the splits {', '.join(self._splits)}"
                    yield ValueFault(place, Reason.UNKNOWN_CLASS, f"column {column}: {detail}")


def content_name(content: bytes) -> str:
    """Return a name for an image without one. It depends only on the bytes of the image."""
    return blake2b(content, digest_size=16).hexdigest()


def _name_image(path: Any, content: bytes) -> str:
    """Return the name of an image whose row has its bytes: its `path`, if that is a usable name."""
    is_name = isinstance(path, str) and path and not name_fault(path)
    return name_key(path) if is_name else content_name(content)


def split_name(value: str) -> str:
    """Return the name of a split in lower case.

    >>> split_name(" Train")
    'train'
    """
    return value.strip().lower()


def list_splits(files: Iterable[RowsFile], column: str, reading: RowsReading) -> tuple[str, ...]:
    """Return the splits that `column` names in any row, sorted.

    Raises:
        ConfigError: A file lacks the column, or it has values that cannot name splits, or too many.
    """
    stats = TableStats()
    for file in files:
        for batch in read_rows(file, reading._replace(columns=(column,))):
            stats.add(observe(batch, file.number, (column,)))
        if stats.rows.get(file.number) and file.number not in stats.in_files.get(column, ()):
            raise ConfigError(f"--split-column: {file.path} has no column {column!r}")
    values = stats.columns[column].distinct if column in stats.columns else set()
    splits = {split_name(value) for value in values or () if value}
    if values is None or len(splits) > _MOST_SPLITS:
        raise ConfigError(
            f"--split-column {column} has more than {_MOST_SPLITS} values, or a very long one; is it the column of "
            "splits?"
        )
    if not splits:
        raise ConfigError(f"--split-column {column} has no value in any row")
    for name in sorted(splits):
        if fault := split_name_fault(name):
            raise ConfigError(f"--split-column {column}: a split cannot have the name {name!r}: it {fault}")
    return tuple(sorted(splits))


def hash_input(identity: bytes, is_text: bool) -> str:
    """Return the input of the hash that decides a row's split: a text, or the digest of a record, which may have
    megabytes."""
    return identity.decode() if is_text else blake2b(identity, digest_size=16).hexdigest()


def _size_faults(records: pa.LargeBinaryArray) -> Iterator[ValueFault]:
    sizes = np.diff(np.frombuffer(records.buffers()[1], np.int64, len(records) + 1, records.offset * 8))
    for place in np.flatnonzero(sizes > MAX_RECORD_BYTES).tolist():
        text = f"its record would have {int(sizes[place]):,} bytes; the limit is {MAX_RECORD_BYTES:,}"
        yield ValueFault(place, Reason.RECORD_TOO_LARGE, text)
