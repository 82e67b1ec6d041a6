"""The splits that a column of a table names."""

from collections.abc import Iterable

from recordmill.schemas.errors import ConfigError
from recordmill.schemas.splits import split_name_fault
from recordmill.schemas.tables import RowsFile
from recordmill.transforms.table.make_records import split_name
from recordmill.transforms.table.observe_columns import observe
from recordmill.transforms.table.read_rows import read_rows

_MOST = 20


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
            if values is None or len(found) > _MOST:
                raise ConfigError(
                    f"--split-column {column} has more than {_MOST} values, or a very long one; is it the column of "
                    "splits?"
                )
        if rows and not is_there:
            raise ConfigError(f"--split-column: {file.path} has no column {column!r}")
    if not found:
        raise ConfigError(f"--split-column {column} names no split in any row")
    for name in sorted(found):
        if fault := split_name_fault(name):
            raise ConfigError(f"--split-column {column}: a split cannot be called {name!r}, as that {fault}")
    return tuple(sorted(found))
