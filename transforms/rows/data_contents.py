"""Contents of a data set that sources recognise: names of files, columns of tables, beginnings of label files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.schemas.inputs.tables import RowsFile, RowsReading, rows_format
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.storage.resolve import join_path, storage_for

MOST_READ, HEAD = 3, 1 << 16
"""Number of files of a kind that are read, and bytes of each."""


class Interpretation(NamedTuple):
    """A way to read a data set.

    Attributes:
        why: What shows it, for a person.
        commands: Flags that name the input. Several commands write a split each.
        rank: Only the ways of the lowest rank count: 0 for label files, then tables, then class folders.
        fault: Why the command would fail; raised if no other way has this rank.
    """

    why: str
    commands: tuple[tuple[str, ...], ...]
    rank: int = 0
    fault: ConfigError | None = None


CLASS_FOLDERS = 5
"""Rank after those of tables."""


class Tables(NamedTuple):
    """Tables of a folder. `rank` is that of a format that has them; ways with one image per row come next."""

    rank: int
    folder: str
    names: Sequence[str]


class DataContents:
    """Contents of a data set.

    Attributes:
        data: Path that the user named.
        folder: The folder, or the folder of a file.
        names: Names of files below the folder.
    """

    def __init__(self, data: str, folder: str, names: Sequence[str]):
        self.data, self.folder, self.names = data, folder, names
        self._columns: dict[str, Mapping[str, pa.Array]] = {}

    @property
    def tables(self) -> Iterator[Tables]:
        """Tables of the folder, and Parquet files of its folder `data`, where Hugging Face's data sets have them."""
        pairs = [name.rpartition("/") for name in self.names]
        top = [name for folder, _, name in pairs if not folder and rows_format(name)]
        below = [name for folder, _, name in pairs if folder == "data" and name.endswith(".parquet")]
        found = Tables(1, self.folder, top), Tables(3, join_path(self.folder, "data"), below)
        yield from (each for each in found if each.names)

    def columns(self, path: str) -> Mapping[str, pa.Array]:
        """Return the columns of the first rows of a table; none of a file that is not a table."""
        if path not in self._columns:
            try:
                batch = next(read_rows(RowsFile(0, path, 0, ""), RowsReading()), None)
            except AnnotationFileError:
                batch = None
            self._columns[path] = batch.columns if batch else {}
        return self._columns[path]

    @cached_property
    def heads(self) -> dict[str, bytes]:
        """Beginnings of the first possible label files, and of tables of the folder, by name."""
        labels = (name for name in self.names if name.lower().endswith((".json", ".xml")))
        tables = (name for name in self.names if "/" not in name and name.lower().endswith((".csv", ".jsonl")))
        return {name: head_of(join_path(self.folder, name)) for name in (*_first(labels), *_first(tables))}

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Descriptions of label files and tables by `describe_content`, by name."""
        return {name: describe_content(head) for name, head in self.heads.items()}


def _first(names: Iterable[str]) -> Iterator[str]:
    return islice(names, MOST_READ)


def head_of(path: str) -> bytes:
    with storage_for(path).open(path) as file:
        return file.read(HEAD)
