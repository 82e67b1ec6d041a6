"""Claim the folder of an extraction."""

import fcntl
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.extract.extract_pieces import STATE, delete_pieces, finished_pieces
from recordmill.transforms.records.read_shards import ManifestShard
from recordmill.transforms.runtime.beam_steps import made_by
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)


def extract_recipe(shards: Sequence[ManifestShard], layout: str, format_: str) -> bytes:
    """Return a hex digest of the inputs of an extraction. Equal digests give the same bytes."""
    of_anywhere = [msgspec.structs.replace(shard, path="") for shard in shards]
    parts = msgspec.msgpack.encode((of_anywhere, made_by(layout), format_), order="deterministic")
    return hashlib.sha256(parts).hexdigest().encode()


@contextmanager
def claimed(folder: str, recipe: bytes) -> Iterator[int | None]:
    """Context manager: claim a folder that is new, empty, or has an unfinished extraction of the same recipe.

    The value is the number of finished shards of that extraction; None if it is new. After the block, unless it raises,
    the state of the extraction is deleted.

    Raises:
        ConfigError: the folder has other contents, or another process is extracting there.
    """
    lock = _lock(folder)
    try:
        storage, note = storage_for(folder), join_path(folder, f"{STATE}/recipe")
        if _continues(folder, note, recipe):
            for below in {os.path.dirname(file.path) for file in storage.walk(folder)}:
                storage.delete_leftovers(below)
            yield len(finished_pieces(folder))
        else:
            storage.write(note, recipe)
            yield None
        delete_pieces(folder)
        storage.delete_folder(join_path(folder, STATE))  # the recipe goes last: a run without it would start again
    finally:
        if lock is not None:
            os.close(lock)


def _lock(folder: str) -> int | None:
    """Lock a local folder, and create it. Buckets and some file systems have no locks: None."""
    if is_remote(folder):
        return None
    descriptor = None
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)  # the folder itself: no file is left, and a kill unlocks it
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor or 0)
        raise ConfigError(
            f"another recordmill extract is writing to {folder}; wait until it has ended, or give another DIR"
        ) from error
    except OSError:
        _LOGGER.debug("%s is not locked", folder, exc_info=True)
    return descriptor


def _continues(folder: str, note: str, recipe: bytes) -> bool:
    """Return True if a folder has an unfinished extraction of the recipe, False if it is new or empty."""
    storage = storage_for(folder)
    if not is_remote(folder) and os.path.islink(os.path.join(folder, STATE)):
        raise ConfigError(f"{os.path.join(folder, STATE)} is a link, through which nothing is written; delete it")
    if storage.size(note) is not None:
        if storage.read(note) == recipe:
            return True
        raise ConfigError(
            f"{folder} has an unfinished extraction of other records, to another format, or by another version; give "
            "another DIR, or delete this one"
        )
    if is_remote(folder):
        is_taken = next(storage.walk(folder), None) is not None
    else:
        is_taken = os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder) not in ([], [STATE]))
    if is_taken:
        raise ConfigError(f"{folder} exists and is not empty; give a new or an empty DIR")
    return False
