"""Recognition of tables: those that hold images, and rows of any columns."""

import posixpath
from collections.abc import Iterator

import pyarrow as pa

from recordmill.schemas.inputs.images import LABEL_COLUMNS
from recordmill.schemas.inputs.tables import rows_format
from recordmill.transforms.rows.data_contents import ROWS, DataContents, Interpretation, is_partition
from recordmill.transforms.rows.find_rows import find_row_splits
from recordmill.transforms.storage.resolve import join_path
from recordmill.transforms.table.table_options import TableOptions

_HIDDEN = ("_", ".")
"""Beginnings of names of files that Spark writes beside rows: _SUCCESS, .part-0.parquet.crc."""


def ways(contents: DataContents, _: type[TableOptions]) -> Iterator[Interpretation]:
    """Yield the way to read tables that hold images, by splits if their names say them; last, files of rows alone."""
    is_file = contents.folder != contents.data.rstrip("/")
    rows = [name for name in contents.names if rows_format(name)]
    has_partitions = bool(rows) and all(map(is_partition, rows))
    other_names = {name for name in contents.names if not posixpath.basename(name).startswith(_HIDDEN)} - {*rows}
    if rows and (is_file or has_partitions or not any("/" in name for name in rows)) and not other_names:
        in_one = is_file or has_partitions or find_row_splits(contents.data)
        data = [contents.data] if in_one else [join_path(contents.folder, name) for name in rows]
        why = f"{len(rows)} files of rows" if len(rows) > 1 else f"{rows[0]} has rows"
        yield Interpretation(why, {"data": data}, ROWS)
    for rank, folder, names in contents.tables:
        columns = contents.columns(join_path(folder, names[0]))
        files = [name.removesuffix(".bytes") for name, array in columns.items() if pa.types.is_large_binary(array.type)]
        if not files:
            continue
        label = next((name for name in columns if name.lower() in LABEL_COLUMNS), "")
        named = {"image_column": files[0]} | ({"label": label} if label else {})
        data = [contents.data] if find_row_splits(contents.data) else [join_path(folder, name) for name in names]
        yield Interpretation(f"column {files[0]} of {names[0]} has images", {"data": data} | named, rank + 1)
