"""The files of rows that a command names."""

import os
from collections.abc import Iterable

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.match_files import match_files


def find_rows(patterns: Iterable[str]) -> tuple[str, ...]:
    """The files that `patterns` name, sorted: a path stands for itself, wild cards for all files that they match.

    Raises:
        ConfigError: a pattern matches nothing, or two name one file.
    """
    found: list[str] = []
    for pattern in patterns:
        try:
            found += match_files(pattern)
        except ConfigError as error:
            raise ConfigError(f"--rows {error}") from error
    real = [path if is_remote(path) else os.path.realpath(path) for path in found]
    if twice := sorted(path for path in set(real) if real.count(path) > 1):
        raise ConfigError(f"--rows: {twice[0]} is named twice, so its rows would be written twice")
    return tuple(sorted(found))
