"""Claim the target folder of an extraction, and its state."""

import fcntl
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from recordmill.schemas.errors import ConfigError
from recordmill.transforms.extract.extract_pieces import STATE, delete_pieces, finished_pieces
from recordmill.transforms.records.read_shards import ManifestShard
from recordmill.transforms.runtime.beam_steps import made_by
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)

_RECIPE = f"{STATE}/recipe"


def extract_recipe(shards: Sequence[ManifestShard], layout: str) -> bytes:
    """Return a hex digest of the inputs of an extraction. Equal digests give the same bytes."""
    of_anywhere = [msgspec.structs.replace(shard, path="") for shard in shards]
    parts = msgspec.msgpack.encode((of_anywhere, made_by(layout)), order="deterministic")
    return hashlib.sha256(parts).hexdigest().encode()


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Context manager: lock a local folder against other extractions, and create it. Buckets and some file systems have
    no locks.

    Raises:
        ConfigError: another process is extracting there.
    """
    with ExitStack() as stack:
        if not is_remote(folder):
            try:
                os.makedirs(folder, exist_ok=True)
                descriptor = os.open(folder, os.O_RDONLY)  # of the folder, so that no file is left; a kill unlocks it
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"another recordmill extract is writing to {folder}; wait until it has ended, or give another DIR"
                ) from error
            except OSError:  # what is wrong with the folder itself, `claim_target` and `folder_fault` tell
                _LOGGER.debug("%s is not locked", folder, exc_info=True)
        yield


def claim_target(folder: str, recipe: bytes) -> bool:
    """Return True if a folder has an unfinished extraction of the same recipe, False if it is new or empty.

    Raises:
        ConfigError: it is neither.
    """
    storage = storage_for(folder)
    note = join_path(folder, _RECIPE)
    if not is_remote(folder) and os.path.islink(os.path.join(folder, STATE)):
        raise ConfigError(f"{os.path.join(folder, STATE)} is a link, through which nothing is written; delete it")
    if storage.size(note) is not None:
        if storage.read(note) == recipe:
            return True
        raise ConfigError(
            f"{folder} has an unfinished extraction of other records, or by another version; give another DIR, or "
            "delete this one"
        )
    if is_remote(folder):
        is_taken = next(storage.walk(folder), None) is not None
    else:
        is_taken = os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder) not in ([], [STATE]))
    if is_taken:
        raise ConfigError(f"{folder} is there already and is not an empty folder; extract wants a folder of its own")
    return False


def note_recipe(folder: str, recipe: bytes) -> None:
    """Write the recipe, so that a rerun can continue."""
    storage = storage_for(folder)
    storage.write(join_path(folder, _RECIPE), recipe)


def resume_target(folder: str) -> int:
    """Delete temporary files of a killed run, and return the number of its finished shards."""
    storage = storage_for(folder)
    for below in {os.path.dirname(file.path) for file in storage.walk(folder)}:
        storage.delete_leftovers(below)
    return len(finished_pieces(folder))


def release_target(folder: str) -> None:
    """Delete the state of a complete extraction. The recipe goes last, because a run without it would start again."""
    delete_pieces(folder)
    storage = storage_for(folder)
    storage.delete_folder(join_path(folder, STATE))
