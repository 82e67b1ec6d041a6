"""A file for libraries that read from this machine's disk only."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import archive_of, storage_for


@contextmanager
def local_copy(path: str) -> Iterator[str]:
    """Yield the local path of a file: its own, or that of a copy that is deleted when the block ends.

    Raises:
        ConfigError: the bucket or archive has no such file.
        OSError: storage fails.
    """
    if not (is_remote(path) or archive_of(path)):
        yield path
        return
    storage = storage_for(path)
    with TemporaryDirectory(prefix="recordmill-") as folder:
        if storage.stat(path) is None:
            raise ConfigError(f"{path}: no such file")
        copy = os.path.join(folder, os.path.basename(path))
        with storage.open(path) as data, open(copy, "wb") as copied:
            shutil.copyfileobj(data, copied)
        yield copy
