"""Contents of a data set that sources recognise: names of files, columns of tables, beginnings of label files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.schemas.errors import AnnotationFileError, ConfigError
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD
from recordmill.schemas.inputs.tables import RowsReading, rows_format
from recordmill.transforms.rows.find_rows import partition_texts, rows_files
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.storage.resolve import join_path, storage_for

MOST_READ, HEAD = 3, 1 << 16
"""Number of files of a kind that are read, and bytes of each."""


class Interpretation(NamedTuple):
    """A way to read a data set.

    Attributes:
        why: What shows it, for a person.
        inputs: Values of options that name the input, by name.
        rank: Only the ways of the lowest rank count: 0 for label files, then tables, then class folders.
        fault: Why the conversion would fail; raised if no other way has this rank.
    """

    why: str
    inputs: Mapping[str, Any]
    rank: int = 0
    fault: ConfigError | None = None


SOLE_RECORDS, CLASS_FOLDERS, RECORDS, UNCLEAR, ROWS = -1, 5, 6, 7, 8
"""Ranks before label files, and after tables that show their format. RECORDS: TFRecord files, which may be a copy of
the images beside them. SOLE_RECORDS: those without an image beside them, which label files beside them lack, too.
UNCLEAR: a table of labels without a usual column of them."""
LISTED = 20_000
"""Number of names of a folder that are looked at."""


LABEL_ENDINGS, TABLE_ENDINGS = (".json", ".xml"), (".csv", ".jsonl")
"""Endings of files whose beginnings are read for all formats."""


class DataContents:
    """Contents of a data set.

    Attributes:
        data: Path that the user named.
        folder: The folder, or the folder of a file.
        names: Names of files below the folder.
        given: Options that the user gave, by name.
    """

    def __init__(self, data: str, folder: str, names: Sequence[str], given: Mapping[str, Any] = {}):
        self.data, self.folder, self.names, self.given = data, folder, names, given
        self._columns: dict[str, Mapping[str, pa.Array]] = {}

    @cached_property
    def images(self) -> Sequence[str]:
        """Names of the images below the folder, also if the data set is a file in it."""
        names: Iterable[str] = self.names
        if self.folder != self.data.rstrip("/"):
            names = islice(storage_for(self.folder).walk_names(self.folder or "."), LISTED)
        return [name for name in names if is_image_name(name)]

    @property
    def tables(self) -> Iterator[tuple[int, str, Sequence[str]]]:
        """(rank, folder, names of tables) of the folder, and of the Parquet files in its folder `data`, where Hugging
        Face's data sets have them, or in folders of splits or partitions. The rank is that of a format of the tables;
        formats with one image per row come next."""
        pairs = [name.rpartition("/") for name in self.names]
        top = [name for folder, _, name in pairs if not folder and rows_format(name)]
        below = [name for folder, _, name in pairs if folder == "data" and name.endswith(".parquet")]
        if top:
            yield 1, self.folder, top
        in_splits = [
            name for name in self.names if name.endswith(".parquet") and (_is_split_folder(name) or is_partition(name))
        ]
        if below:
            yield 3, join_path(self.folder, "data"), below
        elif in_splits and not top:
            yield 3, self.folder, in_splits

    def columns(self, path: str) -> Mapping[str, pa.Array]:
        """Return the columns of the first rows of a table; none of a file that is not a table."""
        if path not in self._columns:
            try:
                (file,) = rows_files((path,))
                batch = next(read_rows(file, RowsReading()), None)
            except AnnotationFileError:
                batch = None
            self._columns[path] = batch.columns if batch else {}
        return self._columns[path]

    @cached_property
    def heads(self) -> dict[str, bytes]:
        """Beginnings of the first JSON and XML files, and of tables of the folder, by name."""
        tables = (name for name in self.names if "/" not in name and name.lower().endswith(TABLE_ENDINGS))
        return self._read_heads(_with_endings(self.names, LABEL_ENDINGS)) | self._read_heads(tables)

    def heads_with(self, endings: tuple[str, ...]) -> dict[str, bytes]:
        """Return the beginnings of the first files with other endings, by name."""
        return self._read_heads(_with_endings(self.names, endings))

    def _read_heads(self, names: Iterable[str]) -> dict[str, bytes]:
        return {name: read_beginning(join_path(self.folder, name)) for name in islice(names, MOST_READ)}


def _is_split_folder(name: str) -> bool:
    top, slash, _ = name.partition("/")
    return bool(slash) and top.lower() in SPLIT_OF_WORD


def is_partition(name: str) -> bool:
    """Return True if each folder in the path of a file names a value of a column: year=2026/kind=cat."""
    return 0 < name.count("/") == len(partition_texts(name))


def _with_endings(names: Iterable[str], endings: tuple[str, ...]) -> Iterator[str]:
    return (name for name in names if name.lower().endswith(endings))


def read_beginning(path: str) -> bytes:
    with storage_for(path).open(path) as file:
        return file.read(HEAD)
