"""Read finished shards, write image files to a folder, and the rows of records to pieces."""

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any

from recordmill.schemas.dataset.checks import Fault
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.images import is_image_name
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import SPLIT_OF_FOLDER
from recordmill.transforms.containers.read_shards import FaultList, ManifestShard, readable_records
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.extract.extract_files import (
    ExtractedFile,
    FileWriter,
    UnusableRecordError,
    WrittenFile,
    decode_text,
    describe_file,
    extraction_path,
    is_unchanged,
    read_record,
)
from recordmill.transforms.extract.extract_pieces import (
    ExtractedRecord,
    PieceFile,
    find_finished_piece,
    read_piece_records,
)
from recordmill.transforms.extract.extract_rows import (
    MAPS,
    Extracted,
    ImageEntry,
    RecordRows,
    RowExtractor,
    decode_class_name,
    read_image_file,
)
from recordmill.transforms.extract.label_format import ExtractedImage, ExtractedObject, LabelFormat
from recordmill.transforms.extract.write_formats import LABEL_FORMATS
from recordmill.transforms.images.check_formats import without_exif
from recordmill.transforms.images.image_sources import Use
from recordmill.transforms.images.open_image import exif_orientation, image_kind, open_image
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.processes import ListedShardDoFn
from recordmill.transforms.runtime.threads import look_ahead

_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
"""Suffixes that all readers accept as images."""
_RENAMED = "image files renamed to a suffix that readers know"
_ODD = (
    "image files to rename, because some readers do not find them (hidden, or with a \\ or an outer space in the name)"
)
_TURNED = "image files written without EXIF data, because readers would rotate the pixels, but not the boxes"
_TO_TURN = "images whose EXIF data has to be removed, because readers would rotate the pixels, but not the boxes"


class ExtractShard(ListedShardDoFn):
    """Convert each ManifestShard to (split, file of the shard), and write its piece, see `extract_shard`.

    Args:
        threads: Number of threads that write files; by default one per core.
        shards: Number of all shards.
    """

    def __init__(self, folder: str, threads: int | None, format_: str, shards: int, labels_only: bool = False):
        super().__init__(threads, shards)
        self._arguments = folder, format_, labels_only

    def process(self, shard: ManifestShard) -> Iterator[tuple[str, str]]:
        yield from self.do(extract_shard, *self._arguments, shard, shards=self._shards)


def extract_shard(
    folder: str, format_: str, labels_only: bool, shard: ManifestShard, pool: Executor, threads: int
) -> tuple[str, str]:
    """Read a shard to its end or first damaged record. Write the files of every record below `folder`, then the piece.
    Nothing is read if an earlier run extracted the shard, and all its files still exist.

    Args:
        format_: `coco` or one of `LABEL_FORMATS`.
        labels_only: True to write no images.

    Raises:
        OSError: A file cannot be written.
    """
    if _is_extracted(folder, labels_only, shard, pool, threads):
        progress.count_skipped_images(shard.info.examples)
        progress.count_finished_shard()
    else:
        _extract_records(folder, format_, labels_only, shard, pool, threads)
    return shard.split, shard.info.file


def _is_extracted(folder: str, labels_only: bool, shard: ManifestShard, pool: Executor, threads: int) -> bool:
    piece = find_finished_piece(folder, shard.info.file)
    if piece is None:
        return False
    files = (file for record in read_piece_records(folder, piece) for file in record.files[int(labels_only) :])
    return all(look_ahead(partial(is_unchanged, folder), files, pool, threads))


def _extract_records(
    folder: str, format_: str, labels_only: bool, shard: ManifestShard, pool: Executor, threads: int
) -> None:
    faults = FaultList()
    damage: list[Fault] = []
    contents = shard.table, shard.labels, shard.split
    extract = (
        RowExtractor(*contents) if format_ == "coco" else LabelExtractor(*contents, LABEL_FORMATS[format_], labels_only)
    )
    records = enumerate(readable_records(shard, shard.reader(), damage))
    writer = FileWriter(folder)
    write_image = describe_file if labels_only else writer.write
    extract_one = partial(_extract_record, shard, extract, writer, write_image)
    piece = PieceFile(folder, shard.info.file)
    try:
        for record, record_faults in look_ahead(extract_one, records, pool, threads):
            if record:
                piece.add(record)
            faults.add(record_faults)
        faults.add(damage)
        piece.commit(faults.faults(), is_damaged=bool(damage))
    finally:
        piece.abandon()  # no-op after a commit


def _extract_record(
    shard: ManifestShard,
    extract: Callable[[dict[str, Any]], Extracted],
    writer: FileWriter,
    write_image: Callable[[ExtractedFile], WrittenFile],
    numbered: tuple[int, bytes],
) -> tuple[ExtractedRecord | None, list[Fault]]:
    """Write the files of a numbered record. Return None for the record if its image is unusable."""
    number, record = numbered
    faults: list[tuple[str, str]] = []
    extracted = None
    try:
        rows, (image_file, *other_files), faults = extract(read_record(record, shard.table, shard.labels))
        files = [write_image(image_file)]
        for file in other_files:
            try:
                files.append(writer.write(file))
            except UnusableRecordError as fault:
                faults.append((fault.reason, fault.detail))
        extracted = ExtractedRecord(number, rows, tuple(files))
    except UnusableRecordError as fault:
        faults = [*faults, (fault.reason, fault.detail)]
    return extracted, [Fault(shard.info.file, number, reason, detail) for reason, detail in faults]


class LabelExtractor(RowExtractor):
    """Extractor of a split's records as images with label files.

    Args:
        labels_only: True if images are not written, and keep their EXIF data.
    """

    def __init__(
        self, table: FeatureTable, labels: LabelMap, split: str, format_: LabelFormat, labels_only: bool = False
    ):
        super().__init__(table, labels, split)
        self._labels_only = labels_only
        self._format, self._labels, self._table = format_, labels, table
        self._folder = format_.images.format(split=split)
        self._index = labels.index_by_id()

    def __call__(self, values: dict[str, Any]) -> Extracted:
        faults: list[tuple[str, str]] = []
        record, image = self.read_image(values, faults)
        (data, source), folder = read_image_file(values, Use.LINK), f"{self._folder}/"
        name = self._name_in_split(image.file_name)
        notes: Counter[str] = Counter()
        if posixpath.splitext(name)[1].lower() not in _SUFFIXES:
            kind = source.format if source else image_kind(data)
            name += {"jpeg": ".jpg", "tiff": ".tif"}.get(kind, f".{kind or 'png'}")
            notes[_RENAMED] = 1
        was, name = name, self._format.rename(name)
        notes[self._format.renamed] += was != name
        notes[_ODD] += _is_odd(name)
        if source is None and _has_exif_rotation(data):
            data = data if self._labels_only else without_exif(data)
            notes[_TO_TURN if self._labels_only else _TURNED] = 1
        extracted = ExtractedImage(
            image,
            self._split,
            name,
            tuple(self._objects(record, image, faults)),
            tuple(row.caption for row in self._captions(values, image.id)),
            decode_class_name(values),
            maps=sum(source in values for source in (*MAPS, "panoptic.png") if source != "depth.png"),
            depth_maps=int("depth.png" in values),
            tags=tuple(decode_text(name, "a tag") for name in record.column("image.tag_names")),
            fields=self.image_fields(record),
            notes=notes,
        )
        labels = self._format.write(extracted, self._labels, self._table)
        files = [
            ExtractedFile(folder + name, data, source.file if source else None),
            *([labels.file] if labels.file else []),
        ]
        rows = RecordRows(
            image, line=labels.line, objects=labels.objects, lost=dict(+extracted.lost), notes=dict(+notes)
        )
        return rows, tuple(files), faults

    def _name_in_split(self, file_name: str) -> str:
        """Return a name without a folder of its split, with which names of many data sets begin: `images/val`, `valid`.

        Raises:
            UnusableRecordError: See `extraction_path`.
        """
        folder = f"{self._folder}/"
        name = extraction_path(self._folder, file_name).removeprefix(folder).removeprefix(folder)
        top, _, rest = name.partition("/")
        return rest if rest and SPLIT_OF_FOLDER.get(top.lower()) == self._split else name

    def _objects(
        self, record: RecordView, image: ImageEntry, faults: list[tuple[str, str]]
    ) -> Iterator[ExtractedObject]:
        """Yield the objects whose class is known."""
        corners, rows = record.column("objects.corners"), list(self._instances(record, image, faults))
        fields = self.object_fields(record, len(rows))
        for at, row in enumerate(rows):
            if category := self._categories.get(row.category_id):
                yield ExtractedObject(
                    row,
                    category,
                    self._index[category.id],
                    tuple(corners[8 * at : 8 * at + 8]),
                    fields[at],
                )


def _is_odd(name: str) -> bool:
    parts = (*name.split("/"), posixpath.splitext(name)[0])
    return not is_image_name(name) or "\\" in name or any(part != part.strip() for part in parts)


def _has_exif_rotation(data: bytes) -> bool:
    try:
        with open_image(data, image_kind(data) or "png") as image:
            return exif_orientation(image) != 1
    except Exception:  # Pillow's decoders raise nearly anything on damaged bytes, which `_read_image_size` reported
        return False
