"""CSV and TSV become batches of texts, by Arrow's reader."""

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.file_kinds import describe_table
from recordmill.schemas.rejects import Reason
from recordmill.transforms.table.row_batch import BadRow, LongCells, RowBatch, shown

MOST_COLUMNS = 10_000
_BLOCK_BYTES = 16 << 20
"""What is parsed at once. No row may be longer."""
_BATCH_ROWS = 1 << 16
_MOST_HEAD = 4 << 20
_MANY_LINES = 100
"""Of a cell in a table of one column, which has no separators to tell rows by."""


def read_csv(
    path: str, stream: BinaryIO, delimiter: str, encoding: str, columns: tuple[str, ...]
) -> Iterator[RowBatch]:
    """Batches of texts; empty cells are missing values. Lines without anything are no rows.

    Raises:
        AnnotationFileError: there is no head, or one that names a column twice; a row is too long; a quote is not
            closed; bytes that are no text of an `encoding` other than UTF-8.
    """
    quoted = _QuoteCounter(_as_utf8(stream, encoding))
    names = _head(path, quoted, delimiter, encoding)
    wanted = [name for name in names if not columns or name in columns]
    bad: list[BadRow] = []
    malformed = _Malformed(len(names), delimiter.encode(), bad)
    number, escaped, last = 0, 0, None
    try:
        for batch in _open(quoted, names, delimiter, malformed) if names else ():
            for start in range(0, len(batch), _BATCH_ROWS):
                last = batch.slice(start, _BATCH_ROWS)
                numbers = _numbers(number, len(last), {row.line for row in bad})
                number = int(numbers[-1])
                before = [row for row in bad if row.line < number]
                del bad[: len(before)]  # Arrow has read further, so there may be more of them
                cells = dict(zip(names, last.columns, strict=True))
                long = partial(_long_cells, cells, delimiter.encode(), numbers)
                read = {name: cells[name] for name in wanted}
                yield _checked(RowBatch(read, numbers, before, False, {}, long, quoted.escaped - escaped))
                escaped = quoted.escaped
        if bad:
            yield RowBatch(
                {name: pa.array([], pa.large_string()) for name in wanted}, np.zeros(0, np.int64), bad, False
            )
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if malformed.fault:
            raise AnnotationFileError(f"{path}: {malformed.fault}") from error
        if "straddling" in str(error):
            raise AnnotationFileError(
                f"{path}: after row {number:,} a row is longer than {_BLOCK_BYTES >> 20} MB, or a quote is not closed"
            ) from error
        raise AnnotationFileError(f"{path}: after row {number:,}: {error}; is its encoding {encoding}?") from error
    is_long = last is not None and any(len(_lines_of(column[-1].as_py())) > 1 for column in last.columns)
    if quoted.number % 2 and (malformed.is_long if malformed.number > number else is_long):
        raise AnnotationFileError(
            f"{path}: row {max(number, malformed.number):,} has a quote that is not closed, so that all lines after it "
            "would be one cell; close it, or double a quote within a cell"
        )


def _as_utf8(stream: BinaryIO, encoding: str) -> BinaryIO:
    """As UTF-8 before lines are looked for: a line of UTF-16 does not end with the byte that is a line's end."""
    if codecs.lookup(encoding).name == "utf-8":
        return stream
    transcoded = pa.transcoding_input_stream(pa.PythonFile(stream, "r"), encoding, "utf-8")
    return io.BufferedReader(transcoded)


class _QuoteCounter:
    """A stream that counts quotes, as Arrow takes the end of a file for the end of a cell.

    Attributes:
        escaped: those after a backslash, which other programs take for a part of the cell.
    """

    closed = False

    def __init__(self, stream: BinaryIO):
        self._stream = stream
        self._last = b""
        self.number = self.escaped = 0

    def read(self, size: int = -1) -> bytes:
        return self._counted(self._stream.read(size))

    def readline(self, size: int) -> bytes:
        return self._counted(self._stream.readline(size))

    def _counted(self, data: bytes) -> bytes:
        self.number += data.count(b'"')
        self.escaped += data.count(b'\\"') + (self._last + data[:1] == b'\\"')
        self._last = data[-1:]
        return data

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


def _head(path: str, stream: _QuoteCounter, delimiter: str, encoding: str) -> list[str]:
    def lines() -> Iterator[str]:
        is_first = True
        while line := stream.readline(_MOST_HEAD):
            yield (line.removeprefix(b"\xef\xbb\xbf") if is_first else line).decode()
            is_first = False

    try:
        names = next(csv.reader(lines(), delimiter=delimiter, strict=True), [])
    except UnicodeDecodeError as error:
        raise AnnotationFileError(
            f"{path}: its first line cannot be read ({error}); is its encoding {encoding}? --encoding gives another, "
            "such as utf-16"
        ) from error
    except csv.Error as error:
        raise AnnotationFileError(f"{path}: its first line does not name columns ({error})") from error
    if "\0" in "".join(names):
        raise AnnotationFileError(
            f"{path}: its first line has NUL bytes, as that of a file in UTF-16; try --encoding utf-16-le, or utf-16-be"
        )
    if what := describe_table(delimiter.join(names)):
        raise AnnotationFileError(f"{path} is no table, but {what}")
    if not any(names):
        raise AnnotationFileError(f"{path} is empty, or its first line is; it must name the columns")
    if len(names) > MOST_COLUMNS:
        raise AnnotationFileError(f"{path} has {len(names):,} columns; at most {MOST_COLUMNS:,} are read")
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        raise AnnotationFileError(f"{path} names the column {shown(twice[0])} twice; rename one")
    if len(names) == 1 and (other := next((char for char in ",;\t|" if char in names[0]), "")):
        raise AnnotationFileError(
            f"{path} has one column, {shown(names[0])}: are its cells separated by {other!r}? In .csv they are by ',', "
            "in .tsv by tabs"
        )
    if "" in names:
        raise AnnotationFileError(f"{path}: column {names.index('') + 1} has no name; give it one")
    return names


class _Malformed:
    """What becomes of rows with too few cells, or too many: they are bad.

    Attributes:
        number: of the last of them.
        is_long: whether that goes on over several lines.
        fault: of one that has rows among its lines; Arrow would only print what is raised here.
    """

    def __init__(self, columns: int, delimiter: bytes, bad: list[BadRow]):
        self.number, self.is_long, self.fault = 0, False, ""
        self._columns = columns
        self._delimiter = delimiter
        self._bad = bad

    def __call__(self, row: Any) -> str:
        _, *lines = _lines_of(row.text.encode())
        self.number, self.is_long = row.number, bool(lines)
        lost = sum(line.count(self._delimiter) == self._columns - 1 for line in lines[:-1]) if self._columns > 1 else 0
        if lost:
            self.fault = (
                f"row {row.number:,} has {row.actual_columns} cells where there are {self._columns} columns, and goes "
                f"on over {len(lines):,} more lines, of which {lost:,} look like rows; a quote there is not closed: "
                "close it, or double a quote within a cell"
            )
            return "error"
        found = f"{row.actual_columns} cells where there are {row.expected_columns} columns"
        self._bad.append(BadRow(row.number, Reason.MALFORMED_ROW, found))
        return "skip"


def _open(stream: _QuoteCounter, names: list[str], delimiter: str, malformed: _Malformed) -> Iterator[pa.RecordBatch]:
    """All columns: an open quote may begin in one that is not wanted."""
    try:
        return arrow_csv.open_csv(
            pa.PythonFile(stream, "r"),
            arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=malformed),
            arrow_csv.ConvertOptions(
                check_utf8=False, column_types=dict.fromkeys(names, pa.large_binary()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):  # there is only the head
            return iter(())
        raise


def _numbers(before: int, count: int, left_out: set[int]) -> np.ndarray:
    """The numbers of the next rows, in a file of which some are left out."""
    if not left_out:
        return np.arange(before + 1, before + 1 + count)
    found: list[int] = []
    while len(found) < count:
        before += 1
        if before not in left_out:
            found.append(before)
    return np.array(found, np.int64)


def _checked(batch: RowBatch) -> RowBatch:
    """A batch of bytes as one of texts; rows that are none are bad."""
    try:
        columns = {name: array.cast(pa.large_string()) for name, array in batch.columns.items()}
        return batch._replace(columns=columns)
    except pa.ArrowInvalid:
        pass
    is_good = np.ones(len(batch.lines), bool)
    bad = []
    for name, array in batch.columns.items():
        for place, cell in enumerate(array):
            try:
                cell.as_py().decode()
            except UnicodeDecodeError:
                if is_good[place]:
                    detail = f"column {name} is no UTF-8: {shown(cell.as_py())}; give --encoding, latin-1 for example"
                    bad.append(BadRow(int(batch.lines[place]), Reason.NOT_TEXT, detail))
                is_good[place] = False
    columns = {name: array.filter(pa.array(is_good)).cast(pa.large_string()) for name, array in batch.columns.items()}
    return batch._replace(columns=columns, lines=batch.lines[is_good], bad=batch.bad + bad)


def _long_cells(columns: Mapping[str, pa.Array], delimiter: bytes, lines: np.ndarray) -> LongCells:
    """The cells of several lines in rows with these numbers. Their lines look like rows where all have the separators
    that rows would have there: of a quote that is not closed, up to the next one. Such a file is CSV all the same
    (RFC 4180, section 2.6), and nobody but its author knows which was meant.

    Args:
        columns: all that the file has, in order; large_binary [rows] each.
        lines: int64 [rows]: see RowBatch.
    """
    found = LongCells()
    for before, (name, cells) in enumerate(columns.items()):
        is_long = pc.or_(pc.match_substring(cells, b"\n"), pc.match_substring(cells, b"\r"))
        places = pc.indices_nonzero(is_long)
        like = [
            (place, len(after))
            for place, text in zip(places.to_pylist(), cells.take(places).to_pylist(), strict=True)
            if _looks_like_rows(after := _lines_of(text)[1:], before, len(columns) - 1, delimiter)
        ]
        first = (int(lines[like[0][0]]), name) if like else None
        found = found.add(LongCells(len(places), len(like), sum(number for _, number in like), first))
    return found


def _lines_of(text: bytes) -> list[bytes]:
    """Its lines, whichever of CRLF, LF and CR ends them."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _looks_like_rows(after: Sequence[bytes], before: int, between: int, delimiter: bytes) -> bool:
    """Whether the lines of a cell after its first are rows: all but the last have the separators of a row, `between`,
    and the last, which the cell ends in, those `before` its column."""
    if not between:
        return len(after) >= _MANY_LINES
    separators = [line.count(delimiter) for line in after]
    return any(separators) and separators == [between] * (len(after) - 1) + [before]
