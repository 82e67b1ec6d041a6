"""Extracted records of a shard: a piece, which a rerun keeps, and which is deleted at the end."""

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import compress
from operator import attrgetter
from typing import NamedTuple

import google_crc32c
import msgspec
import numpy as np

from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.names import name_key
from recordmill.transforms.extract.extract_files import WrittenFile
from recordmill.transforms.extract.extract_rows import RecordRows, Row, panoptic_path
from recordmill.transforms.records.read_shards import FaultList
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.records.tfrecord import frame
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
    """Result of a shard, up to its first damaged record.

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


class _Keys(bytearray):
    """Digests of many texts, 16 bytes each."""

    def add(self, text: bytes) -> None:
        self += hashlib.blake2b(text, digest_size=16).digest()

    def first_of_each(self, rows: np.ndarray) -> np.ndarray:
        """The first of `rows` that has the text of each of them: int64."""
        _, first, group = np.unique(np.frombuffer(self, "S16")[rows], return_index=True, return_inverse=True)
        return rows[first[group.ravel()]]

    def differ(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        keys = np.frombuffer(self, "S16")
        return keys[rows] != keys[others]


class _Files(NamedTuple):
    """The files of all records, one after the other.

    Attributes:
        names, paths, contents: digests; of names by what file systems tell apart.
        record: int64, index of the record.
        size: int64, bytes.
        is_image: bool.
    """

    names: _Keys
    paths: _Keys
    contents: _Keys
    record: np.ndarray
    size: np.ndarray
    is_image: np.ndarray


class SplitPieces:
    """The pieces of a split, without the records that are left out: about 0.6 kB a record are in memory.

    Args:
        has_label_files: whether an image is known by its path and not by its id, and none is kept without its label
            file.

    Attributes:
        faults: of the shards, and of what is left out.
        spoiled: paths of files that cannot be kept.
        images, image_bytes: number and size of image files.
    """

    def __init__(self, folder: str, pieces: tuple[Piece, ...], table: FeatureTable, has_label_files: bool = False):
        self._folder = folder
        self._has_label_files = has_label_files
        self._pieces = pieces
        self._ends: list[int] = []  # of each piece, in records
        self._numbers = array("q")  # of each record, within its shard
        self._image_ids, self._image_rows = _Keys(), _Keys()
        files = self._read()
        self._is_kept = np.ones(len(self._numbers), bool)
        faults = FaultList()
        for piece in pieces:
            faults.add_listed(piece.faults)
        faults.add(self._spoil(files))
        faults.add(self._leave_out(one_an_image=table.record_of is RecordOf.IMAGE))
        self.faults = faults.faults()
        images = np.unique(files.paths.first_of_each(np.flatnonzero(files.is_image & self._is_kept[files.record])))
        self.images, self.image_bytes = len(images), int(files.size[images].sum())

    def _read(self) -> _Files:
        names, paths, contents = _Keys(), _Keys(), _Keys()
        of_record, sizes, is_image = array("q"), array("q"), array("b")
        for piece in self._pieces:
            for record in records_of_piece(self._folder, piece):
                for number, file in enumerate(record.files):
                    names.add(name_key(file.path).encode())
                    paths.add(file.path.encode())
                    contents.add(file.sha256.encode())
                    of_record.append(len(self._numbers))
                    sizes.append(file.bytes)
                    is_image.append(number == 0)
                path = record.files[0].path.encode()
                self._image_ids.add(path if self._has_label_files else b"%d" % record.rows.image.id)
                self._image_rows.add(msgspec.json.encode((record.rows.image, record.files[0].path)))
                self._numbers.append(record.number)
            self._ends.append(len(self._numbers))
        columns = np.array(of_record, np.int64), np.array(sizes, np.int64), np.array(is_image, bool)
        return _Files(names, paths, contents, *columns)

    def _spoil(self, files: _Files) -> Iterator[Fault]:
        """Leave out records whose image has the name of a different file. (The same file may be that of two rows.)"""
        indices = np.arange(len(files.record))
        first = files.names.first_of_each(indices)
        others = np.flatnonzero(files.contents.differ(indices, first))
        is_spoiled = np.isin(first, first[others])
        if self._has_label_files:
            is_spoiled = np.isin(files.record, files.record[is_spoiled])
        path_of = dict(zip(np.flatnonzero(is_spoiled).tolist(), self._paths(is_spoiled), strict=True))
        self.spoiled = set(path_of.values())
        self._is_kept[files.record[is_spoiled & files.is_image]] = False
        _, one_a_name = np.unique(first[others], return_index=True)
        for file in others[one_a_name].tolist():
            where = f"{self._where(files.record[first[file]])} has that name for another file: neither is kept"
            if not files.is_image[file] and self._has_label_files:
                where += ", nor are their images, whose names differ by the suffix alone"
            yield self._fault(files.record[file], "duplicate_name", f"{path_of[file]!r}: {where}")

    def _leave_out(self, one_an_image: bool) -> Iterator[Fault]:
        """Leave out records whose image is not that of the first record with its id; others share that one's row."""
        kept = np.flatnonzero(self._is_kept)
        first = self._image_ids.first_of_each(kept)
        self._has_row = np.zeros(len(self._is_kept), bool)
        self._has_row[first] = True
        is_other = (first != kept) & (one_an_image | self._image_rows.differ(kept, first))
        left_out, known = kept[is_other], first[is_other]
        self._is_kept[left_out] = False
        records = compress(self._all_records(), np.isin(np.arange(len(self._is_kept)), left_out).tolist())
        for record, index, other in zip(records, left_out, known, strict=True) if len(left_out) else ():
            image = record.files[0].path if self._has_label_files else f"image id {record.rows.image.id}"
            detail = f"{image} is that of {self._where(other)}, too; this one is left out"
            yield self._fault(index, "duplicate_image_id", detail)

    def _all_records(self) -> Iterator[ExtractedRecord]:
        for piece in self._pieces:
            yield from records_of_piece(self._folder, piece)

    def _paths(self, is_wanted: np.ndarray) -> list[str]:
        """Return the paths of the selected files, in the order of the records."""
        if not is_wanted.any():
            return []
        files = (file.path for record in self._all_records() for file in record.files)
        return list(compress(files, is_wanted.tolist()))

    def _where(self, record: int) -> str:
        return f"record {self._numbers[record]} of {self._pieces[bisect_right(self._ends, record)].file}"

    def _fault(self, record: int, reason: str, detail: str) -> Fault:
        return Fault(self._pieces[bisect_right(self._ends, record)].file, self._numbers[record], reason, detail)

    def _kept(self) -> Iterator[ExtractedRecord]:
        return compress(self._all_records(), self._is_kept.tolist())

    def image_rows(self) -> Iterator[Row]:
        for rows in self.rows():
            yield Row(rows.image.id, msgspec.json.encode(rows.image))

    def rows(self) -> Iterator[RecordRows]:
        """Yield the rows of each image, those of its first record."""
        for record in compress(self._all_records(), self._has_row.tolist()):
            yield record.rows

    def objects(self, kind: str) -> Iterator[Row]:
        """Yield the rows of `instances` or `keypoints`."""
        for record in self._kept():
            yield from getattr(record.rows, kind)

    def captions(self) -> Iterator[Row]:
        """Yield captions. Those without an id are numbered from 1."""
        number = 0
        for record in self._kept():
            for row in record.rows.captions:
                number += 1
                with_id = msgspec.structs.replace(row, id=number) if row.id is None else row
                yield Row(row.id, msgspec.json.encode(with_id))

    def panoptic(self, split: str) -> Iterator[Row]:
        """Yield the panoptic rows whose PNG was written and kept."""
        for record in self._kept():
            if row := record.rows.panoptic:
                path = panoptic_path(split, row.file_name)
                if path not in self.spoiled and path in map(attrgetter("path"), record.files):
                    yield Row(None, msgspec.json.encode(row))

    def labels(self) -> Iterator[tuple[str, str]]:
        """Names of images below the split's folder, and their classes."""
        for record in self._kept():
            if record.rows.class_name is not None:
                yield record.rows.image.file_name, record.rows.class_name
