"""The files that a path with wild cards stands for."""

import glob
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import storage_for

_WILD = frozenset("*?[")


def match_files(pattern: str) -> list[str]:
    """All files that a pattern matches, sorted; a path without wild cards, or of a file that has them in its name,
    stands for itself.

    Raises:
        ConfigError: it matches nothing, or has wild cards where a bucket takes none.
    """
    if not _WILD & set(pattern) or storage_for(pattern).size(pattern) is not None:
        return [pattern]
    paths = sorted(_matching(pattern))
    if not paths:
        raise ConfigError(f"{pattern}: no file matches")
    return paths


def _matching(pattern: str) -> Iterator[str]:
    if not is_remote(pattern):
        yield from (path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))
        return
    folder, _, name = pattern.rpartition("/")
    if _WILD & set(folder):
        raise ConfigError(f"{pattern}: in a bucket, wild cards may stand in the file's name only")
    storage = storage_for(folder)
    yield from (storage.join(folder, found) for found in storage.names(folder) if fnmatchcase(found, name))
