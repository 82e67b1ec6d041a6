"""Read tables of image paths and labels as image rows. A table is CSV, its first line names the columns."""

import csv
import io
import logging
import os
import posixpath
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import BinaryIO, NamedTuple, TextIO

import msgspec
import numpy as np

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.file_kinds import describe_table
from recordmill.schemas.inputs.images import LABEL_COLUMNS, PATH_COLUMNS, SPLIT_COLUMNS, LabelColumns
from recordmill.schemas.inputs.splits import Division, split_name_fault
from recordmill.schemas.names import has_control_character, name_fault, name_key
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.folder.choose_classes import named_rows
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.read_unpacked import GZIP, read_unpacked, unpacked
from recordmill.transforms.storage.resolve import storage_for

_LOGGER = logging.getLogger(__name__)

_DELIMITERS = ",;\t"
_MAX_FIELD = 1 << 20
_MAX_LINE = 1 << 20
_LINES_AT_ONCE = 10_000


class LabelTable(msgspec.Struct, frozen=True):
    """Table to read.

    Attributes:
        folders: the image folders; paths in the table are relative to them, or full and begin with one of them.
    """

    path: str
    columns: LabelColumns
    folders: tuple[str, ...]


class LabelRow(NamedTuple):
    """Row of a table.

    Attributes:
        line: that it begins on, counted from 1.
        split: in lower case; None where the table has no such column.
        fault: why the row cannot be used; empty for a good one.
    """

    line: int
    path: str
    label: str
    split: str | None
    fault: str


def read_labels(table: LabelTable, division: Division, splits: tuple[str, ...], facts: FactsBuilder) -> Iterator[Block]:
    """Yield the image rows of a table, each with its split.

    Args:
        division: gives each image its split if the table does not.
        splits: of the job; a rejected line that gives none of them is counted in the first.

    Raises:
        AnnotationFileError: see `label_rows`.
    """
    progress.set_step("reading labels")
    _LOGGER.info("Reading %s", table.path)
    rows = label_rows(table.path, table.columns)
    while lines := list(islice(rows, _LINES_AT_ONCE)):
        found = [_labelled(row, table, division, splits, facts) for row in lines]
        usable = [each for each in found if each]
        yield named_rows(Block(file_name=ragged_texts([name for name, _, _ in usable]))).having(
            split=np.array([splits.index(split) for _, split, _ in usable], np.int64),
            class_name=ragged_texts([label for _, _, label in usable]),
        )


def _labelled(
    row: LabelRow, table: LabelTable, division: Division, splits: tuple[str, ...], facts: FactsBuilder
) -> tuple[str, str, str] | None:
    """Return name, split and label of a row; None if it is rejected."""
    path = path_below(row.path, table.folders)
    name = name_key(path)
    split = row.split if row.split is not None else division.split_of(name)
    if fault := _fault(row, path, division):
        reason, detail = fault
        reject = Rejected("image", None, reason, f"{posixpath.basename(table.path)} line {row.line}: {detail}")
        split = split if split in splits else splits[0]
        facts.reject(split, reject)
        return None
    return name, split, row.label


def _fault(row: LabelRow, path: str, division: Division) -> tuple[Reason, str] | None:
    """Return the reason why the row of the image at `path` below the images cannot be used."""
    if row.fault:
        return Reason.MALFORMED_IMAGE, row.fault
    if unsafe := name_fault(path):
        return Reason.UNSAFE_FILE_NAME, f"the path {row.path!r} {unsafe}"
    if row.split is None and (fault := division.fault(name_key(path))):
        return Reason.NO_GROUP, f"the path {row.path!r} {fault}"
    return None


def picture_name(path: str, folders: tuple[str, ...]) -> str:
    """Return the `recordmill.schemas.names.name_key` of the file that a table's path names, relative to its folder."""
    return name_key(path_below(path.strip(), folders))


def path_below(path: str, folders: tuple[str, ...]) -> str:
    """Return a path relative to its folder of images; unchanged if it is relative, or in no such folder."""
    if not path.startswith("/") and "://" not in path:
        return path
    whole = _whole(path)
    return next(
        (whole[len(folder) :] for folder in _whole_folders(folders, os.getcwd()) if whole.startswith(folder)), path
    )


@lru_cache
def _whole_folders(folders: tuple[str, ...], _: str) -> list[str]:
    """Return folders, the innermost first; relative ones are below the working folder, the second parameter."""
    return sorted((f"{_whole(folder)}/" for folder in folders), key=len, reverse=True)


def _whole(path: str) -> str:
    """Return the one spelling of a path, from its root; the text before `://` is unchanged."""
    scheme, separator, rest = path.rpartition("://")
    return scheme + separator + posixpath.normpath(rest) if separator else os.path.abspath(path)


def table_splits(path: str, columns: LabelColumns) -> tuple[str, ...] | None:
    """Return the splits that a table gives, sorted; None if it has no column of them.

    Raises:
        AnnotationFileError: see `label_rows`.
    """
    with _text(path) as text:
        has_splits = _read_header(path, text, columns).indices.split is not None
    if not has_splits:
        return None
    return tuple(sorted({row.split or "" for row in label_rows(path, columns) if not row.fault}))


def label_rows(path: str, columns: LabelColumns) -> Iterator[LabelRow]:
    """Yield the lines of a table. Names of splits are lower case, so that TRAIN and train are one.

    Raises:
        AnnotationFileError: it is not UTF-8, not CSV, or a column is missing.
    """
    with _text(path) as text:
        header = _read_header(path, text, columns)
        rows = csv.reader(text, delimiter=header.delimiter, strict=True)
        csv.field_size_limit(_MAX_FIELD)
        line = 2
        try:
            for fields in rows:
                if any(map(str.strip, fields)):
                    yield _row(line, fields, header.indices)
                line = rows.line_num + 2  # the header is not the reader's; a row begins where the last one ended
        except csv.Error as error:
            raise AnnotationFileError(f"{path} line {line} cannot be read as CSV ({error}){_CURE}") from error


@contextmanager
def _text(path: str) -> Iterator[TextIO]:
    """Open the text of a table.

    Raises:
        AnnotationFileError: on reading, it is not UTF-8.
    """
    with io.TextIOWrapper(_open(path), encoding="utf-8-sig", newline="") as text:
        try:
            yield text
        except UnicodeDecodeError as error:  # which counts from the beginning of a block
            raise AnnotationFileError(
                f"{path} is not UTF-8 ({_decoding_fault(path) or error.reason}); save it as UTF-8"
            ) from error


def _open(path: str) -> BinaryIO:
    file = storage_for(path).open(path)
    is_packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    if not is_packed:
        return file
    with file:
        return io.BytesIO(unpacked(path, file.read()))


def _decoding_fault(path: str) -> str:
    data = read_unpacked(path)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"{error.reason} in line {data.count(10, 0, error.start) + 1}, at byte {error.start}"
    return ""


class _ColumnIndices(NamedTuple):
    path: int
    label: int
    split: int | None


class _Header(NamedTuple):
    delimiter: str
    indices: _ColumnIndices


_CURE = "; is a quote not closed, or something behind one? Close it, or double a quote within a field"


def _read_header(path: str, text: TextIO, columns: LabelColumns) -> _Header:
    first = text.readline(_MAX_LINE)
    if what := describe_table(first):
        raise AnnotationFileError(f"{path} is {what}")
    delimiter = max(_DELIMITERS, key=first.count)
    try:
        names = next(csv.reader([first], delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise AnnotationFileError(f"{path} line 1 cannot be read as CSV ({error}){_CURE}") from error
    return _Header(delimiter, _places(path, [name.strip() for name in names], columns))


def _places(path: str, names: list[str], columns: LabelColumns) -> _ColumnIndices:
    def missing(what: str, expected: str) -> AnnotationFileError:
        there = ", ".join(map(repr, names)) or "none"
        return AnnotationFileError(
            f"{path} has no column {expected}; its first line has {there}: name the column with --{what}-column"
        )

    def index(what: str, wanted: str | None, usual: tuple[str, ...]) -> int | None:
        if wanted and wanted not in names:
            raise missing(what, f"called {wanted!r}")
        if wanted:
            return names.index(wanted)
        lower = [name.lower() for name in names]
        return next((lower.index(name) for name in usual if name in lower), None)

    path_index = index("path", columns.path, PATH_COLUMNS)
    label_index = index("label", columns.label, LABEL_COLUMNS)
    split_index = index("split", columns.split, SPLIT_COLUMNS)
    for chosen in (path_index, label_index, split_index):
        if chosen is not None and names.count(names[chosen]) > 1:
            raise AnnotationFileError(f"{path} has two columns {names[chosen]!r}; rename one")
    if path_index is None:
        raise missing("path", f"of paths ({', '.join(PATH_COLUMNS)})")
    if label_index is None:
        raise missing("label", f"of labels ({', '.join(LABEL_COLUMNS)})")
    return _ColumnIndices(path_index, label_index, split_index)


def _row(line: int, fields: list[str], indices: _ColumnIndices) -> LabelRow:
    def field(index: int) -> str:
        return fields[index].strip() if index < len(fields) else ""

    path, label = field(indices.path), unicodedata.normalize("NFC", field(indices.label))
    split = None if indices.split is None else field(indices.split).lower()
    fault = ""
    if not path:
        fault = "it has no path"
    elif not label:
        fault = f"{path!r} has no label"
    elif has_control_character(label):
        fault = f"{path!r} has a label with a control character, {label[:80]!r}"
    elif split is not None and (wrong := split_name_fault(split)):
        fault = f"{path!r} is of split {split!r}, which {wrong}" if split else f"{path!r} has no split"
    return LabelRow(line, path, label, split, fault)
