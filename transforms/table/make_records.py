"""A batch of rows becomes records, each with its split and its place in the order; rows that do not fit are rejects."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.schemas.encoders import TextEncoder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.limits import MAX_RECORD_BYTES
from recordmill.schemas.rejects import Reason
from recordmill.schemas.splits import RowSplits, split_name_fault
from recordmill.schemas.tables import TEXT_PARTS, Column, ColumnType, RowsFile, TableSchema
from recordmill.transforms.folder.read_labels import picture_name
from recordmill.transforms.table.convert_columns import Fault, convert_column
from recordmill.transforms.table.convert_texts import convert_texts
from recordmill.transforms.table.encode_rows import encode_rows
from recordmill.transforms.table.observe_columns import class_name, observe
from recordmill.transforms.table.read_rows import read_rows
from recordmill.transforms.table.row_batch import BadRow, RowBatch, python_values, shown
from recordmill.transforms.table.spill_file import Records, record_orders
from recordmill.transforms.text.encode_texts import TextVectorizer

_MOST_SPLITS = 20


class BatchRecords(NamedTuple):
    """What a batch gives.

    Attributes:
        by_split: records in the rows' order.
        classes: by split, how many records there are of each class index.
        bad: the rows that are left out.
        texts: by split and column, what TextCounts has.
    """

    by_split: dict[str, Records]
    classes: dict[str, dict[int, int]]
    bad: list[BadRow]
    texts: dict[str, dict[str, np.ndarray]] = {}


class GoodRows(NamedTuple):
    """The rows of a batch that become records.

    Attributes:
        places: int64 [rows]: in the batch.
        records: of each, a binary array.
        classes: class index of each; None without classes.
        texts: by column, what TextCounts has of each.
        bad: the others.
    """

    places: np.ndarray
    records: pa.Array
    classes: np.ndarray | None
    texts: dict[str, np.ndarray]
    bad: list[BadRow]


class RecordMaker:
    """Makes records of one table.

    Args:
        seed: orders them.
        encoders: of its texts.
        borders: see ChosenSchema.
    """

    def __init__(
        self,
        schema: TableSchema,
        labels: LabelMap,
        splits: RowSplits,
        seed: int,
        encoders: Sequence[TextEncoder] = (),
        borders: Mapping[int, tuple[int, ...]] = {},
    ):
        self._schema = schema
        classes = [category.name for category in labels.categories]
        self._indices = {
            column.name: {name: index for index, name in enumerate(column.values or classes)}
            for column in schema.columns
            if column.values or column.type is ColumnType.CLASS
        }
        self._splits = splits
        self._borders = borders
        self._seed = seed
        self._texts_of: dict[str, list[Column]] = {}  # what each column of texts becomes
        for column in schema.columns:
            if column.type in TEXT_PARTS:
                self._texts_of.setdefault(column.name, []).append(column)
        self._vectorizers = {encoder.column: TextVectorizer(encoder) for encoder in encoders}

    def class_units(self, batch: RowBatch) -> dict[int, np.ndarray]:
        """Units of the rows that become records, by class index: int64 [N, 2], see `class_borders`."""
        good = self.good_rows(batch)
        identities = self.identities(batch, good)
        of_text = bool(self._splits.key)
        units = np.ones((len(identities), 2), np.int64)
        units[:, 0] = [self._splits.shares.position(_name(each, of_text)) for each in identities]
        classes = np.zeros(0, np.int64) if good.classes is None else good.classes
        return {int(index): units[classes == index] for index in np.unique(classes)}

    def good_rows(self, batch: RowBatch, found: Iterable[Fault] = ()) -> GoodRows:
        """`found` is what is wrong with some rows besides."""
        rows = len(batch.lines)
        all_faults = list(found)
        features, label = [], None
        for column in self._schema.columns:
            if column.type in TEXT_PARTS:
                continue
            array = batch.columns.get(column.name)
            converted = convert_column(column, array, rows, batch.is_typed, self._indices.get(column.name, {}))
            features.append(converted.feature)
            all_faults += converted.faults
            if column.type is ColumnType.CLASS:
                label = converted.feature
        counts = {}
        for name, columns in self._texts_of.items():
            texts = convert_texts(columns, batch.columns.get(name), rows, batch.is_typed, self._vectorizers[name])
            features += texts.features
            counts[name] = texts.counts
            all_faults += texts.faults
        records = encode_rows(features, rows)
        all_faults += (*self._identity_faults(batch), *_too_large(records))
        faults = {fault.place: fault for fault in reversed(all_faults)}  # the first of each row
        good = np.setdiff1d(np.arange(rows), np.fromiter(faults, np.int64, len(faults)))
        # A row without a value has no label, so that there are fewer labels than rows; such a row is a fault.
        indices = None if label is None else _spread(label.values, label.absent, rows)[good]
        records = records.take(pa.array(good)) if faults else records
        bad = [BadRow(int(batch.lines[place]), fault.reason, fault.detail) for place, fault in sorted(faults.items())]
        of_good = {name: of_rows[good] for name, of_rows in counts.items()}
        return GoodRows(good, records, indices, of_good, batch.bad + bad)

    def splits_of(self, batch: RowBatch) -> np.ndarray:
        """Each row's split, as its index in the names of splits; -1 of a row that has none. Of several, rows have
        to be divided by a column."""
        rows = len(batch.lines)
        bad = {fault.place for fault in self._identity_faults(batch)}
        classes = None
        if self._splits.stratified:
            (column,) = (column for column in self._schema.columns if column.name == self._splits.stratified)
            array, indices = batch.columns.get(column.name), self._indices[column.name]
            label, faults = convert_column(column, array, rows, batch.is_typed, indices)
            bad |= {fault.place for fault in faults}
            classes = _spread(label.values, label.absent, rows)
        good = np.array([place for place in range(rows) if place not in bad], np.int64)
        identities = self._texts(batch, self._splits.key, good) if self._splits.key else []
        found = np.full(rows, -1)
        found[good] = self._split_names(batch, good, identities, None if classes is None else classes[good])
        return found

    def identities(self, batch: RowBatch, good: GoodRows) -> list[bytes]:
        """What each row is known by."""
        key = self._splits.key
        return self._texts(batch, key, good.places) if key else good.records.to_pylist()

    def __call__(self, batch: RowBatch) -> BatchRecords:
        good = self.good_rows(batch)
        splits, records, indices = self._splits, good.records, good.classes
        identities = self.identities(batch, good)
        orders, lines = record_orders(self._seed, identities), batch.lines[good.places]
        names = self.split_names(batch, good, identities)
        by_split, classes, texts = {}, {}, {}
        for number, split in enumerate(splits.names):
            places = np.flatnonzero(names == number) if len(splits.names) > 1 else slice(None)
            of_split = records if isinstance(places, slice) else records.take(pa.array(places))
            by_split[split] = Records(orders[places], lines[places], of_split)
            found = np.bincount(indices[places]) if indices is not None else np.zeros(0, np.int64)
            classes[split] = {index: int(found[index]) for index in np.flatnonzero(found).tolist()}
            texts[split] = {name: of_rows[places].sum(axis=0) for name, of_rows in good.texts.items()}
        return BatchRecords(by_split, classes, good.bad, texts)

    def split_names(self, batch: RowBatch, good: GoodRows, identities: list[bytes]) -> np.ndarray:
        """Each row's split, as its index in the names of splits."""
        return self._split_names(batch, good.places, identities, good.classes)

    def _split_names(
        self, batch: RowBatch, good: np.ndarray, identities: list[bytes], classes: np.ndarray | None
    ) -> np.ndarray:
        """Each row's split, as its index in the names of splits."""
        splits = self._splits
        if len(splits.names) == 1:
            return np.zeros(len(good), np.int64)
        if splits.column:
            index = {name: number for number, name in enumerate(splits.names)}
            found = self._texts(batch, splits.column, good)
            return np.array([index[split_name(name.decode())] for name in found], np.int64)
        of = self._texts(batch, splits.group, good) if splits.group else identities
        by_share = {name: splits.names.index(name) for name in splits.shares.names}
        is_text, usual = bool(splits.key or splits.group), splits.shares.borders
        of_class = classes.tolist() if splits.stratified and classes is not None else [-1] * len(of)
        known: dict[tuple[bytes, int], int] = {}
        for each in zip(of, of_class, strict=True):
            if each not in known:
                position = splits.shares.position(_name(each[0], is_text))
                known[each] = by_share[splits.shares.split_at(position, self._borders.get(each[1], usual))]
        return np.array([known[each] for each in zip(of, of_class, strict=True)], np.int64)

    def _texts(self, batch: RowBatch, column: str, good: np.ndarray) -> list[bytes]:
        """A column's values as texts; every row of `good` has one."""
        if not len(good):  # the batch may not even have the column
            return []
        values = [class_name(value) for value in python_values(batch.columns[column].take(pa.array(good)))]
        if column == self._splits.key and self._splits.images:
            values = [picture_name(value, self._splits.images) for value in values]
        return [value.encode() for value in values]

    def _identity_faults(self, batch: RowBatch) -> Iterator[Fault]:
        """Rows without what they are divided by."""
        for column in self._splits.columns:
            for place, value in enumerate(batch.values(column)):
                if value is None or value == "":
                    yield Fault(place, Reason.MISSING_VALUE, f"column {column} has no value")
                elif column == self._splits.column and split_name(class_name(value)) not in self._splits.names:
                    detail = f"column {column}: {shown(value)} is none of the splits {', '.join(self._splits.names)}"
                    yield Fault(place, Reason.UNKNOWN_CLASS, detail)


def split_name(value: str) -> str:
    """A split as a table names it: in lower case.

    >>> split_name(" Train")
    'train'
    """
    return value.strip().lower()


def named_splits(files: Iterable[RowsFile], column: str, encoding: str) -> tuple[str, ...]:
    """The splits that `column` names in any row, sorted.

    Raises:
        ConfigError: a file has no such column; its values are no names of splits, or too many.
    """
    found: set[str] = set()
    for file in files:
        rows, is_there = 0, False
        for batch in read_rows(file, (column,), encoding):
            rows += len(batch.lines)
            if column not in batch.columns:  # of JSON Lines, where no row of the batch has a value
                continue
            is_there = True
            values = observe(batch, file.number, (column,)).columns[column].distinct
            found |= {split_name(value) for value in values or () if value}
            if values is None or len(found) > _MOST_SPLITS:
                raise ConfigError(
                    f"--split-column {column} has more than {_MOST_SPLITS} values, or a very long one; is it the "
                    "column of splits?"
                )
        if rows and not is_there:
            raise ConfigError(f"--split-column: {file.path} has no column {column!r}")
    if not found:
        raise ConfigError(f"--split-column {column} names no split in any row")
    for name in sorted(found):
        if fault := split_name_fault(name):
            raise ConfigError(f"--split-column {column}: a split cannot be called {name!r}, as that {fault}")
    return tuple(sorted(found))


def _name(identity: bytes, is_text: bool) -> str:
    """What the hash of a row's split is made of; of a record, its digest, as it may be megabytes."""
    return identity.decode() if is_text else blake2b(identity, digest_size=16).hexdigest()


def _spread(values: np.ndarray, absent: np.ndarray | None, rows: int) -> np.ndarray:
    if absent is None:
        return values
    spread = np.zeros(rows, values.dtype)
    spread[~absent] = values
    return spread


def _too_large(records: pa.LargeBinaryArray) -> Iterator[Fault]:
    sizes = np.diff(np.frombuffer(records.buffers()[1], np.int64, len(records) + 1, records.offset * 8))
    for place in np.flatnonzero(sizes > MAX_RECORD_BYTES).tolist():
        text = f"its record would be {int(sizes[place]):,} bytes; at most {MAX_RECORD_BYTES:,} are read"
        yield Fault(place, Reason.RECORD_TOO_LARGE, text)
