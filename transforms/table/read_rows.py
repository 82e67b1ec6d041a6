"""Files of rows become batches of columns: CSV, TSV, JSON Lines, Parquet; the first three gzip-compressed or not."""

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.tables import RowsFile, rows_format
from recordmill.transforms.storage.read_unpacked import GZIP
from recordmill.transforms.storage.resolve import archive_of, storage_for
from recordmill.transforms.table.read_csv_rows import read_csv
from recordmill.transforms.table.read_json_rows import read_json
from recordmill.transforms.table.read_parquet_rows import read_parquet
from recordmill.transforms.table.row_batch import RowBatch

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
