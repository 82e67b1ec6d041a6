"""Read rows of CSV in batches, with Arrow's reader."""

import codecs
import csv
import io
import logging
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.file_kinds import describe_table
from recordmill.schemas.inputs.tables import NAMES_CURE, RowsReading, looks_like_row, rows_format
from recordmill.schemas.rejects import Reason
from recordmill.transforms.rows.row_batch import MOST_COLUMNS, BadRow, RowBatch, format_value

_LOGGER = logging.getLogger(__name__)

COMMENT_SKIPPED = "the first line begins with # and is skipped"
DELIMITERS = ",;\t|"
_BLOCK_BYTES = 16 << 20  # no row may be longer
_BATCH_ROWS = 1 << 16
_HEAD_STEP = 1 << 16
_MOST_HEAD = 4 << 20
_LOOKED_AT = 1000  # cells
_COMMENT_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"
_SEP = re.compile(rb"sep=([^\r\n])\r?\n?", re.IGNORECASE)


def read_csv(path: str, stream: BinaryIO, reading: RowsReading) -> Iterator[RowBatch]:
    """Yield batches of UTF-8 bytes. Empty cells are missing values, and empty lines are skipped.

    Raises:
        AnnotationFileError: there is no head, or one that names a column twice; a row is too long; a quote is not
            closed, or text follows a closing one; bytes are no text of an encoding other than UTF-8.
    """
    stream = _transcode_to_utf8(stream, reading.encoding)
    try:
        names, delimiter, rest, comment = _read_column_names(path, stream, reading)
    except UnicodeDecodeError as error:
        cure = f"If it is not in {reading.encoding}, give its --encoding, such as utf-16"
        raise AnnotationFileError(
            f"{path}: its first line cannot be read ({error}). {'Save it as UTF-8' if reading.is_label_table else cure}"
        ) from error
    _check_column_names(path, names, delimiter, reading)
    if comment and reading.is_label_table:  # other tables have warnings
        _log_comment(path, comment)
    wanted = {
        name: index for index, name in enumerate(names) if name and (not reading.columns or name in reading.columns)
    }
    strict = _StrictQuotes(stream, delimiter.encode(), rest)
    escaped = _EscapedText(strict)
    bad: list[BadRow] = []
    malformed = _Malformed(len(names), delimiter.encode(), bad)
    number, unnamed = 0, ""
    try:
        for batch in _open_csv(escaped, len(names), delimiter, malformed):
            if not number and not reading.is_label_table and looks_like_row(names, _first_rows(batch)):
                unnamed = delimiter.join(names)
            for start in range(0, len(batch), _BATCH_ROWS):
                part = batch.slice(start, _BATCH_ROWS)
                numbers = _row_numbers(number, len(part), {row.line for row in bad})
                number = int(numbers[-1])
                before = [row for row in bad if row.line < number]
                del bad[: len(before)]  # Arrow has read further, so there may be more of them
                columns = {name: escaped.restore(part.column(index)) for name, index in wanted.items()}
                yield RowBatch(columns, numbers, before, False, comment=comment, unnamed=unnamed)
        if bad or not number:
            none = dict.fromkeys(wanted, pa.array([], pa.large_binary()))
            yield RowBatch(none, np.zeros(0, np.int64), bad, False, comment=comment)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if malformed.fault:
            raise AnnotationFileError(f"{path}: {malformed.fault}") from error
        if "straddling" in str(error):
            raise AnnotationFileError(
                f"{path}: after row {number:,} a row is longer than {_BLOCK_BYTES >> 20} MB, or a quote is not closed"
            ) from error
        raise AnnotationFileError(
            f"{path}: after row {number:,}: {error}; is its encoding {reading.encoding}?"
        ) from error
    number = max(number, malformed.number)
    if strict.fault:
        raise AnnotationFileError(
            f"{path} row {number + strict.rows_after:,}: text follows a closing quote, {strict.fault}. Double a quote "
            "within a cell (a backslash before it does not escape it), or close the quote that is open"
        )
    if strict.is_open:
        raise AnnotationFileError(
            f"{path} row {number:,} has a quote that is not closed, so that all lines after it would be one cell. "
            "Close it, or double a quote within a cell"
        )


@lru_cache(maxsize=64)
def _log_comment(path: str, comment: str) -> None:
    """Warn once, also if a file is read several times."""
    _LOGGER.warning("%s: %s: %s", path, COMMENT_SKIPPED, format_value(comment))


def _first_rows(batch: pa.RecordBatch) -> list[list[str]]:
    rows = batch.slice(0, 1 + _LOOKED_AT // batch.num_columns).to_pylist()
    return [[(cell or b"").decode(errors="replace") for cell in row.values()] for row in rows]


def _transcode_to_utf8(stream: BinaryIO, encoding: str) -> BinaryIO:
    """Return the stream as UTF-8, before it is cut into lines: a line of UTF-16 does not end with the byte of a
    newline."""
    if codecs.lookup(encoding).name == "utf-8":
        return stream
    transcoded = pa.transcoding_input_stream(pa.PythonFile(stream, "r"), encoding, "utf-8")
    return io.BufferedReader(transcoded)


def _read_column_names(path: str, stream: BinaryIO, reading: RowsReading) -> tuple[list[str], str, bytes, str]:
    """Return the names of columns, the delimiter, bytes that were read beyond the first line, and the comment before
    it. The delimiter is `reading.delimiter`, that of a line `sep=;` (Excel's), or the most frequent one of DELIMITERS
    in the first line.

    Raises:
        AnnotationFileError: the first line is no CSV, or it begins with # and the next one does not name columns.
        UnicodeDecodeError: it is not UTF-8.
    """
    data, comment = _skip_comment(path, stream, reading.delimiter)
    delimiter, is_at_end = reading.delimiter, False
    while True:
        more = stream.read(_HEAD_STEP)
        is_at_end = not more
        data = (data + more).removeprefix(_BOM)
        if sep := _SEP.match(data):
            delimiter, data = delimiter or sep[1].decode(), data[sep.end() :]
        lines = data.splitlines(keepends=True)
        lines = lines if is_at_end else lines[:-1]  # the last one may go on
        if not delimiter and lines:
            delimiter = _most_frequent_delimiter(path, lines[0])
        cells = csv.reader(map(bytes.decode, lines), delimiter=delimiter or ",", strict=True)
        try:
            names = next(cells, [])
        except csv.Error as error:
            if b"\0" in lines[0]:  # Python 3.10 reads no NUL
                return ["\0"], ",", b"", ""
            if is_at_end or len(data) > _MOST_HEAD or cells.line_num < len(lines):
                raise AnnotationFileError(f"{path}: its first line does not name columns ({error})") from error
            continue
        if cells.line_num or is_at_end:
            return names, delimiter or ",", data[sum(map(len, lines[: cells.line_num])) :], comment
        if len(data) > _MOST_HEAD:
            raise AnnotationFileError(f"{path}: its first line is longer than {_MOST_HEAD >> 20} MB")


def _skip_comment(path: str, stream: BinaryIO, delimiter: str) -> tuple[bytes, str]:
    """Return the first bytes of a file without the lines before the names of columns that begin with #, and these
    lines.

    Raises:
        AnnotationFileError: The line after them has other cells than the rows.
    """
    data = stream.read(_COMMENT_BYTES).removeprefix(_BOM)
    if not data.startswith(b"#"):
        return data, ""
    lines = data.splitlines(keepends=True)
    comments = list(takewhile(lambda line: line.startswith(b"#"), lines))
    lines = lines[len(comments) : -1 if len(data) == _COMMENT_BYTES else None]  # the last one may go on
    delimiter = delimiter or _most_frequent_delimiter(path, lines[0] if lines else b"")
    rows = [row for row in _cells(lines, delimiter) if row]
    if not rows:
        return data, ""
    (last,), names = _cells(comments[-1:], delimiter), rows.pop(0)
    widths = Counter(map(len, rows))
    if len(last) == len(names) and looks_like_row(names, rows, may_be_numbers=False):
        comments.pop()  # it has the names, as numpy's savetxt writes them
    elif rows and len(names) != (width := widths.most_common(1)[0][0]):
        raise AnnotationFileError(
            f"{path}: its first line begins with #, the next has {len(names):,} cells, and the rows have {width:,}. "
            "Remove lines that begin with #, and begin with a line of the names of the columns"
        )
    comment = b"".join(comments)
    return data[len(comment) :], comment.decode(errors="replace").strip()


def _cells(lines: list[bytes], delimiter: str) -> list[list[str]]:
    return [*csv.reader([line.decode(errors="replace").replace("\0", "") for line in lines], delimiter=delimiter)]


def _most_frequent_delimiter(path: str, line: bytes) -> str:
    unquoted = re.sub(rb'"[^"]*"', b"", line)
    usual = "\t" if rows_format(path) == "tsv" else ","
    return max(usual + DELIMITERS, key=lambda character: unquoted.count(character.encode()))


def _check_column_names(path: str, names: list[str], delimiter: str, reading: RowsReading) -> None:
    if "\0" in "".join(names):
        cure = "Save it as UTF-8" if reading.is_label_table else "Try --encoding utf-16-le, or utf-16-be"
        raise AnnotationFileError(f"{path}: its first line has NUL bytes, like a file in UTF-16. {cure}")
    if what := describe_table(delimiter.join(names)):
        raise AnnotationFileError(f"{path} is not a table but {what}")
    if not any(names):
        raise AnnotationFileError(f"{path} is empty, or its first line is; it must name the columns")
    if len(names) > MOST_COLUMNS:
        raise AnnotationFileError(f"{path} has {len(names):,} columns; the limit is {MOST_COLUMNS:,}")
    wanted = [name for name in names if not reading.columns or name in reading.columns]
    if twice := [name for name, number in Counter(wanted).items() if name and number > 1]:
        cure = NAMES_CURE if looks_like_row(names) else "Rename one"
        raise AnnotationFileError(f"{path} names the column {format_value(twice[0])} twice. {cure}")
    if (
        len(names) == 1
        and not reading.is_label_table
        and (other := next((char for char in DELIMITERS if char in names[0]), ""))
    ):
        raise AnnotationFileError(
            f"{path} has one column, {format_value(names[0])}: are its cells separated by {other!r}? Add --delimiter "
            f"{'tab' if other == chr(9) else shlex.quote(other)}"
        )
    if "" in wanted and not reading.is_label_table:
        cure = NAMES_CURE if looks_like_row(names) else "Give it a name, or choose columns by --columns"
        raise AnnotationFileError(f"{path}: column {names.index('') + 1} has no name. {cure}")


class _StrictQuotes:
    """Stream of CSV that ends before a row with text after a closing quote, which Arrow would join.

    Attributes:
        is_open: True if a quoted cell continues after the bytes that were read.
        fault: Text that follows a closing quote; empty if there is none.
        rows_after: 1 if the faulty row was not handed on; 0 if its beginning was.
    """

    closed = False

    def __init__(self, stream: BinaryIO, delimiter: bytes, rest: bytes):
        self._stream = stream
        self._rest = rest
        self._ends = np.isin(np.arange(256), list(b'\r\n"' + delimiter))  # what follows a closing quote, by byte
        self._head = b"\n"  # the last byte that was checked, and quotes after it whose next byte is not known
        self.is_open, self.fault, self.rows_after = False, "", 1

    def read(self, size: int = -1) -> bytes:
        if self.fault:
            return b""
        data, self._rest = (self._rest[:size], self._rest[size:]) if self._rest else (self._stream.read(size), b"")
        handed_on = len(self._head)
        text = self._head + (data or b"\n")
        end = len(text.rstrip(b'"'))
        self._head = text[end - 1 :]
        row = self._check(text[:end])
        if not self.fault:
            return data
        self.rows_after = int(row >= handed_on)
        return data[: max(0, row - handed_on)]

    def _check(self, text: bytes) -> int:
        """Return where the row begins that has a fault; 0 if that is not in the text, or if there is none."""
        array = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(array == _QUOTE)
        opens = (np.arange(len(quotes)) + self.is_open) % 2 == 0
        fits = np.where(opens, self._ends[array[quotes - 1]], self._ends[array[np.minimum(quotes + 1, len(array) - 1)]])
        if fits.all():
            self.is_open ^= bool(len(quotes) % 2)
            return 0
        return self._check_each(text)

    def _check_each(self, text: bytes) -> int:
        """Do the same for text that has quotes within cells that are not quoted: 5" for example."""
        row, closed = 0, 0
        for run in _QUOTES.finditer(text):
            number = len(run[0])
            if not self.is_open:
                row = max(row, text.rfind(b"\n", closed, run.start()) + 1, text.rfind(b"\r", closed, run.start()) + 1)
                if not self._ends[text[run.start() - 1]]:
                    continue
                number -= 1  # the first one opens the cell
                self.is_open = True
            if number % 2:
                self.is_open = False
                closed = run.end()
                if not self._ends[text[closed]]:
                    self.fault = format_value(text[run.start() : closed + 20].decode(errors="replace"))
                    return row
        return 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


_MARK = "\ufdd0".encode()
"""Beginning of an escaped byte: a noncharacter of Unicode, then two hexadecimal digits."""
_ESCAPED_MARK = b"".join(_MARK + b"%02x" % byte for byte in _MARK)
_ESCAPED = re.compile(_MARK + b"([0-9a-f]{2})")


def _escape_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(f"{_MARK.decode()}{byte:02x}" for byte in bad), error.end


codecs.register_error("recordmill.escape", _escape_bytes)


class _EscapedText:
    """Stream of CSV in which bytes that are not UTF-8 are escaped: Arrow cannot hand over malformed rows with them."""

    closed = False

    def __init__(self, stream: _StrictQuotes):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("recordmill.escape")
        self._text = b""  # escaped, and not read yet
        self._is_at_end = self._is_used = False

    def read(self, size: int) -> bytes:
        while not self._is_at_end and len(self._text) < size:
            data = self._stream.read(size - len(self._text))
            self._is_at_end = not data
            if not data.isascii() or self._decoder.getstate()[0]:
                data = self._escape(data)
            self._text = self._text + data if self._text else data
        text, self._text = self._text[:size], self._text[size:]
        return text

    def _escape(self, data: bytes) -> bytes:
        escaped = self._decoder.decode(data.replace(_MARK, _ESCAPED_MARK), self._is_at_end).encode()
        self._is_used = self._is_used or _MARK in escaped
        return escaped

    def restore(self, array: pa.Array) -> pa.Array:
        """Return cells with their own bytes."""
        if not self._is_used:
            return array
        cells = (
            cell and _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), cell) for cell in array.to_pylist()
        )
        return pa.array(cells, array.type)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


_QUOTE = ord('"')
_QUOTES = re.compile(b'"+')


class _Malformed:
    """Handler of Arrow for rows with too few or too many cells: they are bad.

    Attributes:
        number: Number of the last bad row.
        fault: Fault of a bad row that has other rows among its lines; Arrow only prints errors that are raised here.
    """

    def __init__(self, columns: int, delimiter: bytes, bad: list[BadRow]):
        self.number, self.fault = 0, ""
        self._columns = columns
        self._delimiter = delimiter
        self._bad = bad

    def __call__(self, row: Any) -> str:
        _, *lines = row.text.encode().splitlines()
        self.number = row.number
        lost = sum(line.count(self._delimiter) == self._columns - 1 for line in lines[:-1]) if self._columns > 1 else 0
        if lost:
            self.fault = (
                f"row {row.number:,} has {row.actual_columns} cells instead of {self._columns}, and continues "
                f"over {len(lines):,} more lines, of which {lost:,} look like rows; a quote is not closed. "
                "Close it, or double a quote within a cell"
            )
            return "error"
        detail = f"{row.actual_columns} cells instead of {row.expected_columns}"
        self._bad.append(BadRow(row.number, Reason.MALFORMED_ROW, detail))
        return "skip"


def _open_csv(stream: Any, columns: int, delimiter: str, malformed: _Malformed) -> Iterator[pa.RecordBatch]:
    """Read all columns: an open quote may begin in a column that is not wanted."""
    names = list(map(str, range(columns)))
    try:
        return arrow_csv.open_csv(
            pa.PythonFile(stream, "r"),
            arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=malformed),
            arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.large_binary()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):  # there is only the head
            return iter(())
        raise


def _row_numbers(before: int, count: int, rejected: set[int]) -> np.ndarray:
    """Return the numbers of the next rows in a file, without the rows that are left out."""
    numbers = np.arange(before + 1, before + 1 + count + len(rejected))
    return numbers[~np.isin(numbers, list(rejected))][:count]
