"""State of an unfinished extraction in its target folder: its recipe, and a piece for each finished shard."""

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import google_crc32c
import msgspec

from recordmill.schemas.dataset.checks import Faults
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.paths import is_remote
from recordmill.transforms.containers.read_shards import ManifestShard
from recordmill.transforms.containers.tfrecord import TFRecordReader
from recordmill.transforms.extract.extract_files import WrittenFile
from recordmill.transforms.extract.extract_rows import RecordRows
from recordmill.transforms.records.tfrecord import frame
from recordmill.transforms.runtime.beam_steps import library_versions
from recordmill.transforms.storage.interface import crc32c_text
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)
STATE = ".recordmill-extract"
"""Folder within the target where an unfinished extraction keeps the pieces of shards."""
PIECES = f"{STATE}/pieces"
"""Folder within the target of the pieces, and of lists that become one file."""


class ExtractedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record whose files have been written.

    Attributes:
        number: Number within the shard, from 0.
        files: Written files, the image first, which is not written with `--labels-only`.
    """

    number: int
    rows: RecordRows
    files: tuple[WrittenFile, ...]


# JSON, because ids may have more than 64 bits.
_ENCODE, _DECODE = msgspec.json.Encoder().encode, msgspec.json.Decoder(ExtractedRecord).decode


class Piece(msgspec.Struct, frozen=True):
    """Result of a shard, up to its first damaged record.

    Attributes:
        file: File of the shard.
        is_damaged: True if the shard could not be read completely, so that the next run reads it again.
        bytes, crc32c: Size and checksum of the file of records.
    """

    file: str
    faults: Faults
    is_damaged: bool
    bytes: int
    crc32c: str


class PieceFile:
    """Writer of a piece, which exists after `commit`."""

    def __init__(self, folder: str, shard: str):
        self._shard = shard
        self._note = _piece_path(folder, shard, "json")
        self._storage = storage_for(folder)
        self._storage.delete(self._note)  # the note describes the old file
        self._upload = self._storage.create(_piece_path(folder, shard, "records"))
        self._checksum, self._size = google_crc32c.Checksum(), 0

    def add(self, record: ExtractedRecord) -> None:
        data = _ENCODE(record)
        head, end = frame(data)
        for part in (head, data, end):
            self._upload.write(part)
            self._checksum.update(part)
            self._size += len(part)

    def commit(self, faults: Faults, is_damaged: bool) -> None:
        self._upload.commit()
        piece = Piece(self._shard, faults, is_damaged, self._size, crc32c_text(self._checksum))
        self._storage.write(self._note, msgspec.json.encode(piece))

    def abandon(self) -> None:
        """Delete the unfinished piece; no-op after `commit`."""
        self._upload.abandon()


def read_shard_piece(folder: str, shard: str) -> Piece:
    """Return the piece of a shard.

    Raises:
        FileNotFoundError: There is no piece.
        msgspec.DecodeError: The piece is damaged.
    """
    return msgspec.json.decode(storage_for(folder).read(_piece_path(folder, shard, "json")), type=Piece)


def find_finished_piece(folder: str, shard: str) -> Piece | None:
    """Return the piece of a shard from an earlier run; None if the piece is incomplete or the shard was damaged."""
    try:
        piece = read_shard_piece(folder, shard)
        is_whole = storage_for(folder).checksum(_piece_path(folder, shard, "records")) == (piece.bytes, piece.crc32c)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return piece if is_whole and not piece.is_damaged else None


def read_piece_records(folder: str, piece: Piece) -> Iterator[ExtractedRecord]:
    """Return a piece's records, in the shard's order."""
    return map(_DECODE, TFRecordReader(_piece_path(folder, piece.file, "records")).records())


def _piece_path(folder: str, shard: str, suffix: str) -> str:
    return join_path(folder, f"{PIECES}/{shard}.{suffix}")


def extract_recipe(shards: Sequence[ManifestShard], layout: str, format_: str, labels_only: bool) -> bytes:
    """Return a hex digest of the inputs of an extraction. Equal digests give the same bytes."""
    pathless_shards = [msgspec.structs.replace(shard, path="") for shard in shards]
    parts = msgspec.msgpack.encode(
        (pathless_shards, library_versions(layout), format_, labels_only), order="deterministic"
    )
    return hashlib.sha256(parts).hexdigest().encode()


@contextmanager
def claim_target(
    folder: str, recipe: bytes, option: str = "DIR", is_worth: Callable[[], bool] = lambda: True
) -> Iterator[int | None]:
    """Context manager: claim a folder that is new, empty, or has an unfinished extraction of the same recipe.

    The value is the number of finished shards of that extraction; None if it is new. After the block, unless it raises,
    the state of the extraction is deleted.

    Args:
        option: Option that names the folder, for a message.
        is_worth: Function that returns False if an unfinished run of another recipe may be replaced.

    Raises:
        ConfigError: the folder has other contents, or another process is extracting there.
    """
    lock = _lock_folder(folder, option)
    try:
        storage, note, pieces = storage_for(folder), join_path(folder, f"{STATE}/recipe"), join_path(folder, PIECES)
        finished = None
        if storage.size(note) is not None and storage.read(note) != recipe and not is_worth():
            storage.delete_folder(join_path(folder, STATE))
        if _has_unfinished_extraction(folder, note, recipe, option):
            _delete_leftovers(folder)
            finished = sum(name.endswith(".json") for name in storage.names(pieces))
        else:
            storage.write(note, recipe)
        try:
            yield finished
        except BaseException:
            with suppress(OSError):  # report the error of the block; the next run deletes the leftovers
                _delete_leftovers(folder)  # temporary files of forked processes that were killed
            raise
        storage.delete_folder(pieces)
        storage.delete_folder(join_path(folder, STATE))  # the recipe goes last: a run without it would start again
    finally:
        if lock is not None:
            os.close(lock)


def _delete_leftovers(folder: str) -> None:
    """Delete the temporary files of processes that are no longer alive, in the folder and all below it."""
    storage = storage_for(folder)
    for below in {os.path.dirname(file.path) for file in storage.walk(folder)}:
        storage.delete_leftovers(below)


def _lock_folder(folder: str, option: str) -> int | None:
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
            f"another recordmill process is writing to {folder}. Wait until it ends, or choose another {option}"
        ) from error
    except OSError:
        _LOGGER.debug("%s is not locked", folder, exc_info=True)
    return descriptor


def _has_unfinished_extraction(folder: str, note: str, recipe: bytes, option: str) -> bool:
    """Return True if a folder has an unfinished extraction of the recipe, False if it is new or empty."""
    storage = storage_for(folder)
    if not is_remote(folder) and os.path.islink(os.path.join(folder, STATE)):
        raise ConfigError(
            f"{os.path.join(folder, STATE)} is a symbolic link, and recordmill does not write through links. Delete it"
        )
    if storage.size(note) is not None:
        if storage.read(note) == recipe:
            return True
        raise ConfigError(
            f"{folder} has an unfinished run of other data, with other options, or by another version. Choose another "
            f"{option}, or delete this folder"
        )
    if is_remote(folder):
        is_taken = next(storage.walk(folder), None) is not None
    else:
        is_taken = os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder) not in ([], [STATE]))
    if is_taken:
        raise ConfigError(f"{folder} exists and is not empty. Choose a new or empty {option}")
    return False
