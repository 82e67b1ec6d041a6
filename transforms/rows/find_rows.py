"""Files of rows that a pattern matches."""

import posixpath
from collections.abc import Iterable

from recordmill.schemas.inputs.splits import SPLIT_OF_WORD, USUAL_SPLITS, split_of_file
from recordmill.schemas.inputs.tables import ENDINGS, rows_format
from recordmill.transforms.storage.resolve import find_archive, join_path, match_files, storage_for


def find_rows(*patterns: str) -> tuple[str, ...]:
    """Return the files that match, sorted. A path without wild cards matches itself, a folder the files of rows in it.

    Raises:
        ConfigError: A pattern matches nothing.
    """
    return tuple(sorted(path for pattern in patterns for path in _match_rows(pattern)))


def _match_rows(pattern: str) -> Iterable[str]:
    storage = storage_for(pattern)
    if not storage.is_folder(pattern) or find_archive(pattern):
        return match_files(pattern)
    files = (file.name for file in storage.walk(pattern))
    return [join_path(pattern, name) for name in files if rows_format(name)]


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
