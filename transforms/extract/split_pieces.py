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

from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.names import name_key
from recordmill.schemas.plan_report import Fault
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


class SplitPieces:
    """The pieces of a split, without the records that are left out: about 200 bytes a record are in memory.

    Attributes:
        faults: of the shards, and of what is left out.
        spoiled: paths of files that cannot be kept.
        images, image_bytes: number and size of image files.
    """

    def __init__(self, folder: str, pieces: tuple[Piece, ...], table: FeatureTable):
        self._folder = folder
        self._pieces = pieces
        self._numbers, records_of = array("q"), list[int]()
        names, contents, paths, ids, rows = (_Keys() for _ in range(5))
        record_of_file, sizes, is_image = array("q"), array("q"), array("b")
        for piece in pieces:
            for record in records_of_piece(folder, piece):
                for number, file in enumerate(record.files):
                    names.add(name_key(file.path).encode())
                    contents.add(file.sha256.encode())
                    paths.add(file.path.encode())
                    record_of_file.append(len(self._numbers))
                    sizes.append(file.bytes)
                    is_image.append(number == 0)
                ids.add(b"%d" % record.rows.image.id)
                rows.add(msgspec.json.encode((record.rows.image, record.files[0].path)))
                self._numbers.append(record.number)
            records_of.append(len(self._numbers))
        self._ends = records_of
        record_of, images = np.array(record_of_file, np.int64), np.array(is_image, bool)
        faults = FaultList()
        for piece in pieces:
            faults.add_listed(piece.faults)

        files = np.arange(len(record_of))
        first = names.first_of_each(files)
        others = np.flatnonzero(contents.differ(files, first))
        is_spoiled = np.isin(first, first[others])
        path_of = dict(zip(np.flatnonzero(is_spoiled).tolist(), self._paths(is_spoiled), strict=True))
        self.spoiled = set(path_of.values())
        _, one_a_name = np.unique(first[others], return_index=True)
        for file in others[one_a_name].tolist():
            where = f"{self._where(record_of[first[file]])} has that name for another file: neither is kept"
            faults.add([self._fault(record_of[file], "duplicate_name", f"{path_of[file]!r}: {where}")])

        self._is_kept = np.ones(len(rows) // 16, bool)
        self._is_kept[record_of[is_spoiled & images]] = False
        kept = np.flatnonzero(self._is_kept)
        known = ids.first_of_each(kept)
        self._has_row = np.zeros(len(self._is_kept), bool)
        self._has_row[known] = True
        is_same = table.record_of is not RecordOf.IMAGE  # objects of an image share its row
        left_out = known != kept
        if is_same:
            left_out &= rows.differ(kept, known)
        self._is_kept[kept[left_out]] = False
        of_left_out = compress(self._all_records(), np.isin(np.arange(len(self._is_kept)), kept[left_out]))
        for record, index, other in zip(of_left_out, kept[left_out], known[left_out], strict=True):
            detail = f"image id {record.rows.image.id} is that of {self._where(other)}, too; this one is left out"
            faults.add([self._fault(index, "duplicate_image_id", detail)])
        self.faults = faults.faults()
        kept_images = np.flatnonzero(images & self._is_kept[record_of])
        one_a_path = np.unique(paths.first_of_each(kept_images))
        self.images, self.image_bytes = len(one_a_path), int(np.array(sizes, np.int64)[one_a_path].sum())

    def _all_records(self) -> Iterator[ExtractedRecord]:
        for piece in self._pieces:
            yield from records_of_piece(self._folder, piece)

    def _paths(self, is_wanted: np.ndarray) -> list[str]:
        """Of files, of all records' one after the other."""
        if not is_wanted.any():
            return []
        files = (file.path for record in self._all_records() for file in record.files)
        return list(compress(files, is_wanted.tolist()))

    def _at(self, record: int) -> tuple[str, int]:
        return self._pieces[bisect_right(self._ends, record)].file, self._numbers[record]

    def _where(self, record: int) -> str:
        shard, number = self._at(record)
        return f"record {number} of {shard}"

    def _fault(self, record: int, reason: str, detail: str) -> Fault:
        return Fault(*self._at(record), reason, detail)

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
