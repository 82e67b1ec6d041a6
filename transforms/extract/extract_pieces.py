"""What the records of a shard give to the files of their split: a file of extracted records, a piece, which a rerun
keeps, and which goes when all is written."""

from collections.abc import Iterator

import google_crc32c
import msgspec

from recordmill.schemas.checks import Faults
from recordmill.schemas.tfrecord import frame
from recordmill.transforms.extract.extract_files import WrittenFile
from recordmill.transforms.extract.extract_rows import RecordRows
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.storage.interface import crc32c_text
from recordmill.transforms.storage.resolve import join_path, storage_for

STATE = ".recordmill-extract"
"""Folder within the target where an unfinished extraction keeps the pieces of shards."""
_PIECES = f"{STATE}/pieces"


class ExtractedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record whose image has been written.

    Attributes:
        number: within its shard, from 0.
        files: that were written, its image first.
    """

    number: int
    rows: RecordRows
    files: tuple[WrittenFile, ...]


# JSON, as ids may have more than 64 bits.
_ENCODE, _DECODE = msgspec.json.Encoder().encode, msgspec.json.Decoder(ExtractedRecord).decode


class Piece(msgspec.Struct, frozen=True):
    """What came of a shard, up to its first damaged record.

    Attributes:
        file: of the shard.
        is_damaged: whether it may be whole the next time.
        bytes, crc32c: of the file of records.
    """

    file: str
    faults: Faults
    is_damaged: bool
    bytes: int
    crc32c: str


class PieceFile:
    """A piece being written. It is there, below `folder`, after `commit`."""

    def __init__(self, folder: str, shard: str):
        self._shard = shard
        self._note = _path(folder, shard, "json")
        self._storage = storage_for(folder)
        self._storage.delete(self._note)  # which is of the file that is now replaced
        self._upload = self._storage.create(_path(folder, shard, "records"))
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
        """Leave no trace of it; without effect after `commit`."""
        self._upload.abandon()


def read_piece(folder: str, shard: str) -> Piece:
    """The piece of a shard.

    Raises:
        FileNotFoundError: there is none.
        msgspec.DecodeError: what is there is damaged.
    """
    return msgspec.json.decode(storage_for(folder).read(_path(folder, shard, "json")), type=Piece)


def found_piece(folder: str, shard: str) -> Piece | None:
    """The piece that an earlier run has left of a shard; None where it is not whole, or the shard was not."""
    try:
        piece = read_piece(folder, shard)
        is_whole = storage_for(folder).checksum(_path(folder, shard, "records")) == (piece.bytes, piece.crc32c)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return piece if is_whole and not piece.is_damaged else None


def records_of_piece(folder: str, piece: Piece) -> Iterator[ExtractedRecord]:
    """In the order of the shard."""
    return map(_DECODE, ShardReader(_path(folder, piece.file, "records")).records())


def finished_pieces(folder: str) -> list[str]:
    """Names of the pieces that there are."""
    storage = storage_for(folder)
    return [name for name in storage.names(join_path(folder, _PIECES)) if name.endswith(".json")]


def _path(folder: str, shard: str, suffix: str) -> str:
    return join_path(folder, f"{_PIECES}/{shard}.{suffix}")


def delete_pieces(folder: str) -> None:
    storage = storage_for(folder)
    storage.delete_folder(join_path(folder, _PIECES))
