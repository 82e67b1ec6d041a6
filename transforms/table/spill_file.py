"""Records on their way from the rows' order to the shards': sorted runs in the folder of a split's state.

A table's rows must be mixed, and there may be more of them than memory holds. So encoded records are sorted in pieces
of bounded size, each written as one file, and whoever writes a shard reads a range of every file. What moves between
workers is only where these files are.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from recordmill.schemas.dataset_files import RECIPE, state_folder
from recordmill.schemas.errors import EndedElsewhereError
from recordmill.transforms.storage.resolve import storage_for

RANGES = 4096
_HASH_BITS = 63
_RANGE_SHIFT = _HASH_BITS - 12


class Spill(msgspec.Struct, frozen=True):
    """A file of records, sorted by order.

    Attributes:
        source: the file of rows that they were made of.
        name: of the file, in the folder of the split's state.
        digest: of the records and their orders.
        rows_before, bytes_before: int64 [RANGES + 1], as bytes: rows, and bytes of records, ahead of each range of
            orders; at the end those of the file.
        largest: bytes of its largest record.
    """

    split: str
    source: str
    name: str
    digest: str
    rows_before: bytes
    bytes_before: bytes
    largest: int

    @property
    def bytes(self) -> int:
        return int(np.frombuffer(self.bytes_before, np.int64)[-1])

    def piece(self, first: int, end: int) -> "SpillPiece":
        """The records of ranges `first` up to `end`."""
        rows, data = (np.frombuffer(before, np.int64) for before in (self.rows_before, self.bytes_before))
        start = int(rows[-1]) * _INDEX.itemsize + int(data[first])
        return SpillPiece(int(rows[first]), int(rows[end] - rows[first]), start, int(data[end] - data[first]))


class SpillPiece(NamedTuple):
    """Neighbours in a Spill: the first of them, their number, offset and bytes of their records."""

    first: int
    rows: int
    offset: int
    bytes: int


def spill_path(output: str, split: str, name: str) -> str:
    return storage_for(output).join(output, f"{state_folder(split)}/{name}")


class Records(NamedTuple):
    """Records and their orders.

    Attributes:
        orders: uint64 [rows].
        lines: int64 [rows]: where each row is in its file, see RowBatch.
        records: a binary array.
    """

    orders: np.ndarray
    lines: np.ndarray
    records: pa.LargeBinaryArray

    @classmethod
    def joined(cls, parts: Sequence["Records"]) -> "Records":
        """Those of one or more parts."""
        orders, lines = (np.concatenate(arrays) for arrays in zip(*(part[:2] for part in parts), strict=True))
        return cls(orders, lines, pa.concat_arrays([part.records for part in parts]))

    def take(self, places: np.ndarray) -> "Records":
        return Records(self.orders[places], self.lines[places], self.records.take(pa.array(places)))

    def sorted(self) -> "Records":
        """By order; what has one order by its bytes, so that the input's order does not matter."""
        places = np.argsort(self.orders, kind="stable")
        orders = self.orders[places]
        for start in np.flatnonzero(orders[1:] == orders[:-1]).tolist():
            if start and orders[start - 1] == orders[start]:
                continue  # within a run that is sorted already
            end = int(np.searchsorted(orders, orders[start], "right"))
            places[start:end] = sorted(places[start:end].tolist(), key=lambda place: self.records[place].as_py())
        return self.take(places)


def record_orders(seed: int, identities: list[bytes]) -> np.ndarray:
    """The sort key of each record in its split, 0 .. 2**63 - 1: a hash, evenly distributed and the same on every
    machine.

    >>> record_orders(0, [b"139"]).tolist()
    [4972096885692211845]
    """
    start = hashlib.blake2b(f"{seed}/".encode(), digest_size=8)
    digests = []
    for identity in identities:
        digest = start.copy()
        digest.update(identity)
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64) >> np.uint64(64 - _HASH_BITS)


def write_spill(output: str, split: str, source: str, name: str, records: Records) -> Spill:
    """Write sorted `records` of the file `source` as the file `name`; nothing where `output` is empty."""
    lengths = np.diff(_offsets(records.records))
    borders = (np.arange(RANGES + 1, dtype=np.uint64)) << np.uint64(_RANGE_SHIFT)
    rows_before = np.searchsorted(records.orders, borders[:-1]).astype(np.int64)
    rows_before = np.append(rows_before, len(records.orders))
    bytes_before = np.concatenate([[0], np.cumsum(lengths)])[rows_before].astype(np.int64)
    index = np.zeros(len(lengths), _INDEX)
    index["order"], index["line"], index["length"] = records.orders, records.lines, lengths
    parts = index.tobytes(), _data(records.records)
    if output:
        upload = storage_for(output).create(spill_path(output, split, name))
        try:
            for part in parts:
                upload.write(part)
            upload.commit()
        finally:
            upload.abandon()
    digest = hashlib.sha256(parts[0])
    digest.update(parts[1])
    before, largest = (rows_before.tobytes(), bytes_before.tobytes()), int(lengths.max(initial=0))
    return Spill(split, source, name, digest.hexdigest(), *before, largest)


_INDEX = np.dtype([("order", "<u8"), ("line", "<i8"), ("length", "<u4")])


def read_index(path: str, piece: SpillPiece) -> np.ndarray:
    """`order`, `line` and `length` of records of the Spill `path`.

    Raises:
        EndedElsewhereError: another run of the job is done, and has deleted the file.
        OSError: it was cut short.
    """
    return np.frombuffer(_range(path, piece.first * _INDEX.itemsize, piece.rows * _INDEX.itemsize), _INDEX)


def rows_before(spills: Iterable[Spill]) -> np.ndarray:
    """int64 [RANGES + 1]: how many rows of all `spills` lie ahead of each range."""
    return sum((np.frombuffer(spill.rows_before, np.int64) for spill in spills), np.zeros(RANGES + 1, np.int64))


def _range(path: str, start: int, size: int) -> bytes:
    if not size:
        return b""
    try:
        data = storage_for(path).read_range(path, start, size)
    except FileNotFoundError as error:
        _delete_unowned(os.path.dirname(path))
        raise EndedElsewhereError(
            f"{path} is gone, with rows that were to be written: another run of this job that is done deletes "
            "it. Run again: what is done is kept"
        ) from error
    if len(data) != size:
        raise OSError(f"{path} was cut short")
    return data


def _delete_unowned(folder: str) -> None:
    """Delete a state folder that another run has deleted and this one has written to since. A folder with a recipe is
    a third run's."""
    storage = storage_for(folder)
    if storage.size(storage.join(folder, RECIPE)) is None:
        storage.delete_folder(folder)


def read_piece(path: str, piece: Sequence[int]) -> Records:
    """Records of the Spill `path`; `piece` has what SpillPiece has.

    Raises:
        EndedElsewhereError: another run of the job is done, and has deleted the file.
        OSError: it was cut short.
    """
    of = SpillPiece(*piece)
    index = read_index(path, of)
    data = _range(path, of.offset, of.bytes)
    ends = np.concatenate([[0], np.cumsum(index["length"], dtype=np.int64)])
    array = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(index), [None, pa.py_buffer(np.ascontiguousarray(ends)), pa.py_buffer(data)]
    )
    return Records(index["order"].astype(np.uint64), index["line"].astype(np.int64), array)


def _offsets(array: pa.LargeBinaryArray) -> np.ndarray:
    return np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)


def _data(array: pa.LargeBinaryArray) -> bytes:
    """The bytes of all values."""
    offsets = _offsets(array)
    return array.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes() if len(array) else b""
