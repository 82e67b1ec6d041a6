"""What the records of a shard give to the files of their split: sorted lines in a file of its own, a piece, which a
rerun keeps, and which goes when all is written."""

from collections.abc import Iterable, Iterator
from itertools import chain

import google_crc32c
import msgspec

from recordmill.schemas.plan_report import Faults
from recordmill.transforms.extract.extract_lines import Lines
from recordmill.transforms.runtime.line_blocks import BlockPlace, LineBlock, LineSorter, lines_in, merged_lines
from recordmill.transforms.storage.interface import crc32c_text
from recordmill.transforms.storage.resolve import storage_for

STATE = ".recordmill-extract"
"""Folder within the target where an unfinished extraction keeps the pieces of shards."""
_PIECES = f"{STATE}/pieces"


class Piece(msgspec.Struct, frozen=True):
    """What came of a shard, up to its first damaged record.

    Attributes:
        file: of the shard.
        is_damaged: whether it may be whole the next time.
        bytes, crc32c: of the file of lines.
        blocks: of that file; their paths are left out.
    """

    file: str
    faults: Faults
    is_damaged: bool
    bytes: int
    crc32c: str
    blocks: dict[Lines, tuple[LineBlock, ...]]


class PieceFile:
    """A piece being written. It is there, below `folder`, after `commit`."""

    def __init__(self, folder: str, shard: str):
        self._shard = shard
        self._note = _path(folder, shard, "json")
        self._storage = storage_for(folder)
        self._storage.delete(self._note)  # which tells where lines were in the file that is now replaced
        self._upload = self._storage.create(_path(folder, shard, "lines"))
        self._checksum, self._size = google_crc32c.Checksum(), 0
        self._sorters = {kind: LineSorter(self._store) for kind in Lines}

    def add(self, kind: Lines, line: bytes) -> None:
        self._sorters[kind].add(line)

    def _store(self, packed: bytes) -> BlockPlace:
        place = BlockPlace("", self._size, len(packed))
        self._upload.write(packed)
        self._checksum.update(packed)
        self._size += len(packed)
        return place

    def commit(self, faults: Faults, is_damaged: bool) -> None:
        blocks = {kind: sorter.blocks() for kind, sorter in self._sorters.items()}
        self._upload.commit()
        crc32c = crc32c_text(self._checksum)
        piece = Piece(self._shard, faults, is_damaged, self._size, crc32c, blocks)
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
        is_whole = storage_for(folder).checksum(_path(folder, shard, "lines")) == (piece.bytes, piece.crc32c)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return piece if is_whole and not piece.is_damaged else None


def lines_of_piece(folder: str, piece: Piece, kind: Lines) -> Iterator[bytes]:
    """In no particular order."""
    return chain.from_iterable(map(lines_in, _blocks(folder, piece, kind)))


def merged_pieces(folder: str, pieces: Iterable[Piece], kind: Lines) -> Iterator[list[bytes]]:
    """The lines of all pieces in their order, in lists."""
    return merged_lines(block for piece in pieces for block in _blocks(folder, piece, kind))


def _blocks(folder: str, piece: Piece, kind: Lines) -> Iterator[LineBlock]:
    path = _path(folder, piece.file, "lines")
    for block in piece.blocks[kind]:
        assert isinstance(block.packed, BlockPlace)
        yield msgspec.structs.replace(block, packed=msgspec.structs.replace(block.packed, path=path))


def finished_pieces(folder: str) -> list[str]:
    """Names of the pieces that there are."""
    storage = storage_for(folder)
    return [name for name in storage.names(storage.join(folder, _PIECES)) if name.endswith(".json")]


def _path(folder: str, shard: str, suffix: str) -> str:
    return storage_for(folder).join(folder, f"{_PIECES}/{shard}.{suffix}")


def delete_pieces(folder: str) -> None:
    storage = storage_for(folder)
    storage.delete_folder(storage.join(folder, _PIECES))
