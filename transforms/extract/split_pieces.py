"""The pieces of a split's shards: what is in the records that are kept, in the order of shards and records."""

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import compress
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.checks import Fault
from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.names import name_key
from recordmill.transforms.extract.extract_pieces import ExtractedRecord, Piece, records_of_piece
from recordmill.transforms.extract.extract_rows import panoptic_path
from recordmill.transforms.records.read_shards import FaultList


class Row(NamedTuple):
    """A row of a document as JSON; the id is None where ids are not the source's."""

    id: int | None
    json: bytes


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

    Attributes:
        faults: of the shards, and of what is left out.
        spoiled: paths of files that cannot be kept.
        images, image_bytes: number and size of image files.
    """

    def __init__(self, folder: str, pieces: tuple[Piece, ...], table: FeatureTable):
        self._folder = folder
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
                self._image_ids.add(b"%d" % record.rows.image.id)
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
        path_of = dict(zip(np.flatnonzero(is_spoiled).tolist(), self._paths(is_spoiled), strict=True))
        self.spoiled = set(path_of.values())
        self._is_kept[files.record[is_spoiled & files.is_image]] = False
        _, one_a_name = np.unique(first[others], return_index=True)
        for file in others[one_a_name].tolist():
            where = f"{self._where(files.record[first[file]])} has that name for another file: neither is kept"
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
            detail = f"image id {record.rows.image.id} is that of {self._where(other)}, too; this one is left out"
            yield self._fault(index, "duplicate_image_id", detail)

    def _all_records(self) -> Iterator[ExtractedRecord]:
        for piece in self._pieces:
            yield from records_of_piece(self._folder, piece)

    def _paths(self, is_wanted: np.ndarray) -> list[str]:
        """Of files, of all records' one after the other."""
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
        for record in compress(self._all_records(), self._has_row.tolist()):
            yield Row(record.rows.image.id, msgspec.json.encode(record.rows.image))

    def objects(self, kind: str) -> Iterator[Row]:
        """Of `instances` or `keypoints`."""
        for record in self._kept():
            yield from (Row(row.id, row.json) for row in getattr(record.rows, kind))

    def captions(self) -> Iterator[Row]:
        """Those without an id are numbered from 1 on."""
        number = 0
        for record in self._kept():
            for row in record.rows.captions:
                number += 1
                with_id = msgspec.structs.replace(row, id=number) if row.id is None else row
                yield Row(row.id, msgspec.json.encode(with_id))

    def panoptic(self, split: str) -> Iterator[Row]:
        """Those whose PNG was written and is kept."""
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
