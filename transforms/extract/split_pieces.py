"""The pieces of a split's shards, merged: what is in the records that are kept, in the order of the files that it goes
to."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.plan_report import Fault
from recordmill.transforms.extract.extract_lines import (
    ID_BYTES,
    NO_ID,
    FileLine,
    ImageLine,
    Line,
    Lines,
    RecordAt,
    caption_json,
    label_of,
    line_of,
)
from recordmill.transforms.extract.extract_pieces import Piece, merged_pieces
from recordmill.transforms.extract.extract_rows import CaptionRow, PanopticRow, panoptic_path
from recordmill.transforms.records.read_shards import FaultList

_FILE = msgspec.msgpack.Decoder(FileLine).decode
_IMAGE = msgspec.msgpack.Decoder(ImageLine).decode


class Collision(NamedTuple):
    """Records that have different files of one name, so that none of them can be kept; `paths` are its spellings.

    Attributes:
        first: of the records.
    """

    first: RecordAt
    paths: tuple[str, ...]
    fault: Fault


def collision(files: Sequence[tuple[RecordAt, FileLine]]) -> Collision | None:
    """Of files of one name, in the order of their records. (The same file may well be that of two image rows.)"""
    (first, one), *others = files
    for other, line in others:
        if line.file.sha256 != one.file.sha256:
            paths = tuple(sorted({each.file.path for _, each in files}))
            where = f"record {first.number} of {first.shard} has that name for another file: neither is kept"
            detail = f"{line.file.path!r}: {where}"
            return Collision(first, paths, Fault(other.shard, other.number, "duplicate_name", detail))
    return None


class SplitPieces:
    """The pieces of a split, without the records that are left out.

    Attributes:
        faults: of the shards, and of what is left out.
        spoiled: paths of files that cannot be kept.
        shared_ids: of the annotations of a kind that have been taken so far, how many ids several have.
    """

    def __init__(self, folder: str, pieces: tuple[Piece, ...], table: FeatureTable):
        self._folder = folder
        self._pieces = pieces
        self._left_out: set[RecordAt] = set()
        self.shared_ids: Counter[Lines] = Counter()
        found = sorted(filter(None, map(collision, self._files_by_name())), key=attrgetter("first"))
        self.spoiled = {path for each in found for path in each.paths}
        twice = sorted(self._leave_out(table.record_of is RecordOf.IMAGE), key=attrgetter("file", "record"))
        faults = FaultList()
        for piece in pieces:
            faults.add_listed(piece.faults)
        faults.add(each.fault for each in found)
        faults.add(twice)
        self.faults = faults.faults()

    def _lines(self, kind: Lines) -> Iterator[list[Line]]:
        for lines in merged_pieces(self._folder, self._pieces, kind):
            yield [line for line in map(line_of, lines) if line.of not in self._left_out]

    def _by_id(self, kind: Lines) -> Iterator[list[Line]]:
        """Lines of annotations, of which those without an id have 0."""
        before = shared = None
        for lines in self._lines(kind):
            for line in lines:
                id_ = line.key[:ID_BYTES]
                if id_ == before and id_ not in (shared, NO_ID):
                    self.shared_ids[kind] += 1
                    shared = id_
                before = id_
            yield lines

    def _groups(self, kind: Lines) -> Iterator[list[Line]]:
        """Lines of one key."""
        lines = chain.from_iterable(self._lines(kind))
        return (list(group) for _, group in groupby(lines, attrgetter("key")))

    def _files_by_name(self) -> Iterator[list[tuple[RecordAt, FileLine]]]:
        for group in self._groups(Lines.FILES):
            yield [(line.of, _FILE(line.data)) for line in group]

    def _leave_out(self, one_an_image: bool) -> Iterator[Fault]:
        """Leave out records whose image was not kept, or is not that of the first record with its id."""
        for group in self._groups(Lines.IMAGES):
            first: dict[int, Line] = {}
            for line in group:
                image = _IMAGE(line.data)
                if image.path in self.spoiled:
                    self._left_out.add(line.of)
                    continue
                id_ = _image_id(image)
                known = first.setdefault(id_, line)
                if known is not line and (one_an_image or known.data != line.data):
                    self._left_out.add(line.of)
                    where = f"image id {id_} is that of record {known.of.number} of {known.of.shard}, too"
                    detail = f"{where}; this one is left out"
                    yield Fault(line.of.shard, line.of.number, "duplicate_image_id", detail)

    def image_files(self) -> tuple[int, int]:
        """How many there are, and their size in bytes."""
        files = size = 0
        for group in self._files_by_name():
            images = {line.file.path: line.file.bytes for _, line in group if line.is_image}
            files += len(images)
            size += sum(images.values())
        return files, size

    def images(self) -> Iterator[list[bytes]]:
        """The JSON of image rows by id."""
        for group in self._groups(Lines.IMAGES):
            by_id = {_image_id(image): image.json for image in (_IMAGE(line.data) for line in group)}
            yield [by_id[id_] for id_ in sorted(by_id)]

    def objects(self, kind: Lines) -> Iterator[list[bytes]]:
        """The JSON of INSTANCES or KEYPOINTS, by id."""
        for lines in self._by_id(kind):
            yield [line.data for line in lines]

    def captions(self) -> Iterator[list[bytes]]:
        """The JSON of captions by id; those without one are numbered from 1 on, by image id, in the order that their
        record has."""
        number = 0
        for lines in self._by_id(Lines.CAPTIONS):
            rows = []
            for line in lines:
                number += 1
                row = msgspec.json.decode(caption_json(line), type=CaptionRow)
                id_ = number if row.id is None else row.id
                rows.append(msgspec.json.encode(msgspec.structs.replace(row, id=id_)))
            yield rows

    def panoptic(self, split: str) -> Iterator[list[bytes]]:
        """The JSON of panoptic rows whose PNG was kept, by image id."""
        for lines in self._lines(Lines.PANOPTIC):
            yield [line.data for line in lines if not self.spoiled or self._has_png(split, line.data)]

    def _has_png(self, split: str, row: bytes) -> bool:
        return panoptic_path(split, msgspec.json.decode(row, type=PanopticRow).file_name) not in self.spoiled

    def labels(self) -> Iterator[list[tuple[str, str]]]:
        """Names of images below the split's folder, and their classes, by name."""
        for lines in merged_pieces(self._folder, self._pieces, Lines.LABELS):
            labels = map(label_of, lines)
            yield [(name, class_name) for of, name, class_name in labels if of not in self._left_out]


def _image_id(image: ImageLine) -> int:
    return msgspec.json.decode(image.json, type=_Id).id


class _Id(msgspec.Struct):
    id: int
