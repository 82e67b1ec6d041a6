"""Facts of a table's columns, merged over all rows: they decide how each column is written."""

from collections.abc import Iterable, Iterator
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.rows.convert_columns import cast_values
from recordmill.transforms.rows.kinds import KINDS, Seen
from recordmill.transforms.rows.row_batch import (
    IMAGE_STARTS,
    ColumnPart,
    RowBatch,
    flatten_lists,
    format_name,
    format_value,
    is_list,
    python_values,
)

MOST_DISTINCT = 100_000
"""Maximum number of classes, or of values of an enum, in a column."""
MOST_NAME_BYTES = 1000
"""Maximum bytes of the name of a class, or of a value of an enum."""


class ColumnStats(msgspec.Struct):
    """Facts of a column's values.

    Attributes:
        seen: Number of values by their look; of lists, their items.
        first: An example of each look, with its place: (number of the file, line, value).
        present: Rows with a value. Batches of JSON Lines lack columns that none of their rows has.
        lists: Rows with a list.
        lengths: Lengths of lists; two at most.
        shapes: Sizes of lists in lists, see `flatten_lists`; two at most.
        rounded: Values that float32 does not equal.
        least, greatest: Of numbers that fit int64, or are finite.
        minus_ones: Numbers that are -1.
        cut: Points in time that are finer than a microsecond.
        images: Values that start as a JPEG or PNG file.
        is_whole: True if all numbers are whole, and floats are below 2**53.
        names: Names that its numbers stand for, see RowBatch; None if they are plain numbers.
        distinct: Values of an enum, or of a column whose values are to be numbered; None if there are more than
            MOST_DISTINCT, or longer ones than MOST_NAME_BYTES.
    """

    seen: dict[Seen, int] = {}
    first: dict[Seen, tuple[int, int, str]] = {}
    present: int = 0
    lists: int = 0
    lengths: set[int] = msgspec.field(default_factory=set)
    shapes: set[tuple[int, ...]] = msgspec.field(default_factory=set)
    rounded: int = 0
    least: int | float | None = None
    greatest: int | float | None = None
    minus_ones: int = 0
    cut: int = 0
    images: int = 0
    is_whole: bool = True
    names: tuple[str, ...] | None = None
    distinct: set[str] | None = msgspec.field(default_factory=set)

    def add(self, other: "ColumnStats") -> None:
        for look, number in other.seen.items():
            self.seen[look] = self.seen.get(look, 0) + number
        for look, example in other.first.items():
            self.first[look] = min(self.first.get(look, example), example)
        self.present += other.present
        self.lists += other.lists
        self.lengths = set(sorted(self.lengths | other.lengths)[:2])
        self.shapes = set(sorted(self.shapes | other.shapes)[:2])
        self.rounded += other.rounded
        self.least = min((end for end in (self.least, other.least) if end is not None), default=None)
        self.greatest = max((end for end in (self.greatest, other.greatest) if end is not None), default=None)
        self.minus_ones += other.minus_ones
        self.cut += other.cut
        self.images += other.images
        self.is_whole &= other.is_whole
        # A longer list of classes may have grown at its end.
        self.names = max((self.names, other.names), key=lambda names: len(names or ()))
        if self.distinct is None or other.distinct is None or len(self.distinct | other.distinct) > MOST_DISTINCT:
            self.distinct = None
        else:
            self.distinct |= other.distinct


class TableStats(msgspec.Struct):
    """Facts of a table's rows.

    Attributes:
        rows: Number of readable rows by the number of their file; without files that have none.
        bad: Number of unreadable rows by the number of their file.
        first_bad: First unreadable row: (number of the file, line, detail).
        columns: Facts by column, in the order in which columns appear.
        in_files: Numbers of the files that have each column.
        comments, unnamed: See RowBatch, by the number of the file.
    """

    rows: dict[int, int] = {}
    bad: dict[int, int] = {}
    first_bad: tuple[int, int, str] | None = None
    columns: dict[str, ColumnStats] = {}
    in_files: dict[str, set[int]] = {}
    comments: dict[int, str] = {}
    unnamed: dict[int, str] = {}

    def add(self, other: "TableStats") -> None:
        for counts, more in ((self.rows, other.rows), (self.bad, other.bad)):
            for file, number in more.items():
                counts[file] = counts.get(file, 0) + number
        self.comments |= other.comments
        self.unnamed |= other.unnamed
        self.first_bad = min(filter(None, (self.first_bad, other.first_bad)), default=None)
        for name, stats in other.columns.items():
            self.columns.setdefault(name, ColumnStats()).add(stats)
        for name, files in other.in_files.items():
            self.in_files.setdefault(name, set()).update(files)


def observe(batch: RowBatch, file: int, distinct: Iterable[str] = ()) -> TableStats:
    """Return a batch's facts; `file` is the file's number.

    Args:
        distinct: Columns whose distinct values are collected.
    """
    rows = len(batch.lines)
    stats = TableStats({file: rows} if rows else {}, {file: len(batch.bad)})
    stats.comments = {file: batch.comment} if batch.comment else {}
    stats.unnamed = {file: batch.unnamed} if batch.unnamed else {}
    if batch.bad:
        first = batch.bad[0]
        stats.first_bad = file, first.line, first.detail
    for name, array in batch.columns.items() if rows else ():
        column = ColumnStats(present=rows - array.null_count, cut=batch.cut.get(name, 0), names=batch.names.get(name))
        stats.columns[name] = column
        stats.in_files[name] = {file}
        places = np.arange(rows)
        if is_list(array.type):
            column.lists = column.present
            is_list_of_row = array.is_valid().to_numpy(zero_copy_only=False)
            array, counts, shape = flatten_lists(array)
            column.lengths = set(np.unique(counts[is_list_of_row])[:2].tolist())
            column.shapes = {shape} if column.lists else set()
            places = np.repeat(places, counts)
        if name in distinct or pa.types.is_dictionary(array.type):
            column.distinct = _distinct(array)
        look = next((kind.seen for kind in KINDS if kind.is_of(array.type)), Seen.OTHER)
        whole = ColumnPart(look, places[array.is_valid().to_numpy(zero_copy_only=False)], array.drop_null())
        is_text = whole.look is Seen.TEXT and not batch.is_typed
        for part in _text_parts(whole) if is_text else batch.parts.get(name, (whole,)):
            _observe_part(part.look, part.values, batch.lines[part.places], file, column)
    return stats


def _distinct(values: pa.Array) -> set[str] | None:
    if pa.types.is_nested(values.type):
        return set()
    distinct = pc.unique(values.drop_null())
    if len(distinct) > MOST_DISTINCT:
        return None
    names = set(map(format_name, python_values(distinct)))
    return None if any(len(name.encode()) > MOST_NAME_BYTES for name in names) else names


def _text_parts(cells: ColumnPart) -> Iterator[ColumnPart]:
    """Yield the cells of CSV by what they look like."""
    _, places, texts = cells
    for kind in KINDS:
        if not kind.text or not len(texts):
            continue
        is_match = pc.match_substring_regex(texts, kind.text).to_numpy(zero_copy_only=False)
        if is_match.any():
            yield ColumnPart(kind.seen, places[is_match], _chosen(texts, is_match))
            texts, places = _chosen(texts, ~is_match), places[~is_match]
    yield ColumnPart(Seen.TEXT, places, texts)


def _chosen(values: pa.Array, is_chosen: np.ndarray) -> pa.Array:
    return values if is_chosen.all() else values.filter(pa.array(is_chosen))


_BEYOND = {Seen.INT64: Seen.LARGE, Seen.FLOAT: Seen.NOT_FINITE, Seen.DATE: Seen.TEXT}
"""Kinds of values that look like the key and do not fit its type: 2**63, 1e999, 2026-02-30."""


def _observe_part(look: Seen, values: pa.Array, lines: np.ndarray, file: int, column: ColumnStats) -> None:
    if look in _BEYOND and len(values) and not pa.types.is_date(values.type):
        cast = cast_values(values, next(kind.arrow for kind in KINDS if kind.seen is look))
        fits = (pc.is_finite(cast) if look is Seen.FLOAT else cast.is_valid()).to_numpy(zero_copy_only=False)
        if look is not Seen.DATE:
            _count_rounded(values, cast, column)
            _note_ends(cast.filter(pa.array(fits)), column)
        _observe_part(_BEYOND[look], values.filter(pa.array(~fits)), lines[~fits], file, column)
        values, lines = _chosen(values, fits), lines[fits]
    elif look is Seen.LARGE:
        with np.errstate(over="ignore"):
            column.rounded += sum(int(value) != float(np.float32(float(value))) for value in values.to_pylist())
    elif look is Seen.BINARY:
        column.images += sum(pc.sum(pc.starts_with(values, start)).as_py() or 0 for start in IMAGE_STARTS)
    if len(values):
        column.seen[look] = column.seen.get(look, 0) + len(values)
        column.first.setdefault(look, (file, int(lines[0]), format_value(values[0])))


def _note_ends(numbers: pa.Array, column: ColumnStats) -> None:
    """Note the least and the greatest number, and those that are -1."""
    if len(numbers):
        ends = pc.min_max(numbers).as_py()
        minus_ones = pc.sum(pc.equal(numbers, pa.scalar(-1, numbers.type))).as_py() if ends["min"] < 0 else 0
        column.add(ColumnStats(least=ends["min"], greatest=ends["max"], minus_ones=minus_ones))


_MOST_EXACT_SINGLE = 1 << 24
_MOST_EXACT = 1 << 53  # beyond it, a float64 may be another whole number than the one in the file


_SURE_DIGITS = 15  # two numbers of at most 15 digits are never the same float64


def _count_rounded(values: pa.Array, cast: pa.Array, column: ColumnStats) -> None:
    """Count the numbers that float32 does not equal, and note whether all are whole.

    Args:
        cast: `values` as int64 or float64.
    """
    if pa.types.is_integer(cast.type):
        whole = cast.drop_null().to_numpy(zero_copy_only=False)
        single = whole.astype(np.float32).astype(np.float64)
        if len(whole) and np.abs(single).max() >= _MOST_EXACT_SINGLE:
            with np.errstate(invalid="ignore"):  # 2**63 is beyond int64
                column.rounded += int(((single.astype(np.int64) != whole) | (single == 2.0**63)).sum())
        return
    numbers = cast.to_numpy(zero_copy_only=False)
    is_finite = np.isfinite(numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        is_equal = numbers.astype(np.float32).astype(np.float64) == numbers
        is_whole = (np.trunc(numbers) == numbers) & (np.abs(numbers) < _MOST_EXACT)
    is_exact = _is_exact(values, numbers, (is_equal | is_whole) & is_finite)
    column.rounded += int((is_finite & ~(is_equal & is_exact)).sum())
    column.is_whole &= bool((is_whole & is_exact)[is_finite].all())


def _is_exact(values: pa.Array, numbers: np.ndarray, is_asked: np.ndarray) -> np.ndarray:
    """Return False for decimals and texts that are another number than their float64: 0.500000000000000000001."""
    is_exact = np.ones(len(numbers), bool)
    if not pa.types.is_floating(values.type):
        texts = values.cast(pa.large_string())
        asked = np.flatnonzero(is_asked & (pc.binary_length(texts).to_numpy() > _SURE_DIGITS))
        texts = texts.take(pa.array(asked))
        is_other = pc.not_equal(texts, pa.array(numbers[asked]).cast(texts.type)).to_numpy(zero_copy_only=False)
        for place, text in zip(asked[is_other].tolist(), _chosen(texts, is_other).to_pylist(), strict=True):
            number = float(numbers[place])
            is_exact[place] = Decimal(text) in (Decimal(repr(number)), Decimal(number))
    return is_exact
