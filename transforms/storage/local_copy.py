"""A file or folder for libraries that read from this machine's disk only."""

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
    """Where a file or folder can be read on this machine: where it is, or a copy that lasts as long as the block.

    Raises:
        ConfigError: a bucket or archive has nothing called so, or a name that leads out of the folder.
        OSError: storage fails.
    """
    if not (is_remote(path) or archive_of(path)):
        yield path
        return
    storage = storage_for(path)
    with TemporaryDirectory(prefix="recordmill-") as folder:
        copy = os.path.join(folder, os.path.basename(path.rstrip("/")))
        file = storage.stat(path)
        files = {copy: path} if file else {os.path.join(copy, each.name): each.path for each in storage.walk(path)}
        if not files:
            raise ConfigError(f"{path}: no such file or folder")
        for target, source in files.items():
            if os.path.normpath(target) != target:
                raise ConfigError(f"{source} has parts in its name that no file here can have; rename it")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with storage.open(source) as data, open(target, "wb") as copied:
                shutil.copyfileobj(data, copied)
        yield copy
