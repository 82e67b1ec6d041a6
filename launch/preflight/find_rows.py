"""The files of rows that a command names."""

import glob
import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import storage_for

_WILD = frozenset("*?[")


def find_rows(patterns: Iterable[str]) -> tuple[str, ...]:
    """The files that `patterns` name, sorted: a path stands for itself, wild cards for all files that they match.

    Raises:
        ConfigError: a pattern matches nothing, or two name one file.
    """
    found: list[str] = []
    for pattern in patterns:
        paths = [pattern] if not _WILD & set(pattern) or _is_there(pattern) else list(_matching(pattern))
        if not paths:
            raise ConfigError(f"--rows {pattern}: no file matches")
        found += paths
    real = [path if is_remote(path) else os.path.realpath(path) for path in found]
    if twice := sorted(path for path in set(real) if real.count(path) > 1):
        raise ConfigError(f"--rows: {twice[0]} is named twice, so its rows would be written twice")
    return tuple(sorted(found))


def _is_there(path: str) -> bool:
    return storage_for(path).size(path) is not None


def _matching(pattern: str) -> Iterator[str]:
    if not is_remote(pattern):
        yield from (path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
        return
    folder, _, name = pattern.rpartition("/")
    if _WILD & set(folder):
        raise ConfigError(f"--rows {pattern}: in a bucket, wild cards may stand in the file's name only")
    storage = storage_for(folder)
    yield from (storage.join(folder, found) for found in storage.names(folder) if fnmatchcase(found, name))
