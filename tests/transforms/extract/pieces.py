"""Pieces of shards whose records are given, as `extract_shard` leaves them."""

from collections.abc import Iterable
from pathlib import Path

from recordmill.schemas.dataset.checks import Fault, Faults
from recordmill.transforms.extract.extract_files import WrittenFile
from recordmill.transforms.extract.extract_pieces import ExtractedRecord, PieceFile
from recordmill.transforms.extract.extract_rows import ImageEntry, RecordRows, Row


def record(
    number: int, image_id: int, name: str, sha256: str = "", files: Iterable[tuple[str, str]] = (), **rows
) -> ExtractedRecord:
    """A record of an image 40x30; `files` are its paths and checksums, where there are more than the image's."""
    files = files or ((f"images/val/{name}", sha256),)
    written = tuple(WrittenFile(path, 100, checksum, "") for path, checksum in files)
    return ExtractedRecord(number, RecordRows(ImageEntry(image_id, name, 40, 30), **rows), written)


def row(id_: int) -> Row:
    return Row(id_, b'{"id":%d}' % id_)


def write_piece(
    folder: Path, shard: str, *records: ExtractedRecord, faults: tuple[Fault, ...] = (), is_damaged: bool = False
) -> str:
    """Write the piece of a shard of the split val; the shard's name."""
    piece = PieceFile(str(folder), shard)
    for each in records:
        piece.add(each)
    piece.commit(Faults(faults), is_damaged)
    return shard
