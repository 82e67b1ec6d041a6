"""Files of rows become batches of columns: CSV, TSV, JSON Lines, Parquet; the first three gzip-compressed or not."""

import gzip
import io
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.tables import RowsFile, rows_format
from recordmill.schemas.rejects import Reason
from recordmill.transforms.storage.read_unpacked import GZIP
from recordmill.transforms.storage.resolve import archive_of, storage_for
from recordmill.transforms.table.read_csv_rows import read_csv
from recordmill.transforms.table.read_json_rows import read_json
from recordmill.transforms.table.row_batch import BadRow, RowBatch, shown


def read_parquet(path: str, stream: BinaryIO, columns: tuple[str, ...], batch_rows: int) -> Iterator[RowBatch]:
    """Batches of values, read a row group's piece at a time; the members of structs become columns with dots in their
    names.

    Raises:
        AnnotationFileError: it is no Parquet file, or is cut short or damaged, or names a column twice.
    """
    try:
        file = pq.ParquetFile(stream)
        wanted = _wanted(file.schema_arrow, columns)
        first = 1
        for batch in file.iter_batches(batch_rows, columns=wanted):
            table = pa.Table.from_batches([batch])
            while any(pa.types.is_struct(field.type) for field in table.schema):
                table = table.flatten()
            names = [name for name in table.column_names if not columns or name in columns]
            if twice := [name for name, number in Counter(names).items() if number > 1]:
                raise AnnotationFileError(f"{path} names the column {shown(twice[0])} twice; rename one")
            arrays = {name: _plain(table.column(name)) for name in names}
            yield _checked(RowBatch(arrays, np.arange(first, first + len(batch)), [], is_typed=True))
            first += len(batch)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and error.errno is not None:
            raise  # of the storage
        raise AnnotationFileError(f"{path} is no Parquet file, or was cut short: {error}") from error


def _wanted(schema: pa.Schema, columns: tuple[str, ...]) -> list[str] | None:
    """The columns of the file that hold `columns`; None for all."""
    if not columns:
        return None
    return [name for name in schema.names if any(c == name or c.startswith(f"{name}.") for c in columns)]


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    plain = _plain_type(array.type)
    return array if plain == array.type else array.cast(plain, safe=False)


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """Points in time in microseconds, as Python has no finer ones; and lists of one length as any others."""
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp("us", type_.tz)
    if pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(_plain_type(type_.value_type))
    return type_


def _checked(batch: RowBatch) -> RowBatch:
    """A batch without the rows that have a text that is no UTF-8, for which nobody looked."""
    bad: dict[int, BadRow] = {}
    for name, array in batch.columns.items():
        try:
            array.validate(full=True)
            continue
        except pa.ArrowInvalid:
            pass
        for place, value in enumerate(array):
            try:
                value.as_py()
            except UnicodeDecodeError as error:
                detail = f"column {name} is no UTF-8 ({error}); write it as UTF-8, or as binary"
                bad.setdefault(place, BadRow(int(batch.lines[place]), Reason.NOT_TEXT, detail))
    if not bad:
        return batch
    good = np.setdiff1d(np.arange(len(batch.lines)), list(bad))
    columns = {name: array.take(pa.array(good)) for name, array in batch.columns.items()}
    return RowBatch(columns, batch.lines[good], [bad[place] for place in sorted(bad)], batch.is_typed)


_BATCH_ROWS = 8192


def read_rows(file: RowsFile, columns: tuple[str, ...] = (), encoding: str = "utf-8") -> Iterator[RowBatch]:
    """The rows of a file, in their order, in batches of bounded size.

    Args:
        columns: the only ones that are wanted; all where empty.
        encoding: of CSV and TSV.

    Raises:
        AnnotationFileError: it is no file of its kind, or is cut short or damaged; or it is not the one that was found
            when the job began, as it is read twice.
        OSError: see `Storage.open`.
    """
    yield from _read(file, columns, encoding)
    found = storage_for(file.path).stat(file.path)
    if file.version and (found is None or found.version != file.version):
        raise AnnotationFileError(f"{file.path} was changed while the job read it; run again")


def _read(file: RowsFile, columns: tuple[str, ...], encoding: str) -> Iterator[RowBatch]:
    of_format = rows_format(file.path)
    with storage_for(file.path).open(file.path) as stream:
        if of_format == "parquet":
            # Columns are far apart in it, and to go back in a member of an archive is to unpack it again.
            whole = io.BytesIO(stream.read()) if archive_of(file.path) else stream
            yield from read_parquet(file.path, whole, columns, _BATCH_ROWS)
            return
        unpacked = _unpacked(stream)
        try:
            if of_format == "json":
                yield from read_json(file.path, unpacked, columns, _BATCH_ROWS)
            else:
                delimiter = "\t" if of_format == "tsv" else ","
                yield from read_csv(file.path, unpacked, delimiter, encoding, columns)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise AnnotationFileError(f"{file.path} is damaged or was cut short ({error}); fetch it again") from error


def _unpacked(stream: Any) -> BinaryIO:
    buffered = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
    if buffered.peek(len(GZIP))[: len(GZIP)] == GZIP:
        return gzip.GzipFile(fileobj=buffered)  # type: ignore[return-value]
    return buffered
