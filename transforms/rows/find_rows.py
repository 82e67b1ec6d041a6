"""Files of rows that a pattern matches."""

import posixpath
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from recordmill.schemas.inputs.images import is_system_file
from recordmill.schemas.inputs.splits import SPLIT_OF_WORD, USUAL_SPLITS, split_of_file
from recordmill.schemas.inputs.tables import ENDINGS, RowsFile, rows_format
from recordmill.transforms.storage.resolve import join_path, match_files, storage_for


def find_rows(*patterns: str) -> tuple[str, ...]:
    """Return the files that match, sorted. A path without wild cards matches itself, a folder the files of rows in it.

    Raises:
        ConfigError: A pattern matches nothing.
    """
    return tuple(sorted(path for pattern in patterns for path in _match_rows(pattern)))


def _match_rows(pattern: str) -> Iterable[str]:
    storage = storage_for(pattern)
    if not storage.is_folder(pattern):
        return match_files(pattern)
    files = (file.name for file in storage.walk(pattern))
    return [join_path(pattern, name) for name in files if rows_format(name) and not is_system_file(name)]


def rows_files(paths: Iterable[str]) -> Iterator[RowsFile]:
    """Yield the existing files of one table in the order of their paths, with the columns in the names of their
    folders. A column of whole numbers is int64, any other one text."""
    paths = sorted(paths)
    by_path = {path: partition_texts(path) for path in paths}
    texts = [pair for pairs in by_path.values() for pair in pairs.items()]
    other_columns = {name for name, text in texts if text is not None and not _is_int64(text)}
    for number, path in enumerate(paths):
        values = (
            (name, text if text is None or name in other_columns else int(text)) for name, text in by_path[path].items()
        )
        if stat := storage_for(path).stat(path):
            yield RowsFile(path, stat.size_bytes, stat.version, number, tuple(values))


def partition_texts(path: str) -> dict[str, str | None]:
    """Return the columns in the names of folders, as Spark, Hive and pandas write them; None for a missing value.

    >>> partition_texts("data/year=2026/kind=hot%20dog/part-0.parquet")
    {'year': '2026', 'kind': 'hot dog'}
    """
    columns: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if name and equals:
            columns.setdefault(_unquote(name), None if text == _MISSING else _unquote(text))
    return columns


_MISSING = "__HIVE_DEFAULT_PARTITION__"


def _unquote(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _is_int64(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit() and -(1 << 63) <= int(text) < 1 << 63


def find_row_splits(folder: str) -> dict[str, tuple[str, ...]]:
    """Return the files of rows in a folder by split, if the folder or the name of each says its split; none otherwise.

    >>> find_row_splits("/no/folder")
    {}
    """
    by_split: dict[str, list[str]] = {}
    for path in find_rows(folder) if storage_for(folder).is_folder(folder) else ():
        top, slash, _ = path.removeprefix(folder).lstrip("/").partition("/")
        in_folder = SPLIT_OF_WORD.get(top.lower(), "") if slash else ""
        by_split.setdefault(in_folder or split_of_file(posixpath.basename(path)), []).append(path)
    return {} if "" in by_split else {name: tuple(by_split[name]) for name in USUAL_SPLITS if name in by_split}


def format_fault(path: str) -> str:
    """Return why a file cannot be read as rows; empty if it can."""
    known = ", ".join(ENDINGS)
    return "" if rows_format(path) else f"{path}: its name ends in none of {known}, perhaps with .gz, .bz2 or .zst"
