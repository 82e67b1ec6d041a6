"""Parquet files become batches of columns."""

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.schemas.errors import AnnotationFileError
from recordmill.transforms.table.row_batch import RowBatch


def read_parquet(path: str, stream: BinaryIO, columns: tuple[str, ...], batch_rows: int) -> Iterator[RowBatch]:
    """Batches of values, read a row group's piece at a time; the members of structs become columns with dots in their
    names.

    Raises:
        AnnotationFileError: it is no Parquet file, or is cut short or damaged.
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
            arrays = {name: _one_array(table.column(name)) for name in names}
            yield RowBatch(arrays, np.arange(first, first + len(batch)), [], is_typed=True)
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


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
