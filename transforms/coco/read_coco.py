"""COCO annotation files become, for each image id, what a block of the file says of it.

A file is cut into blocks of whole rows. They are decoded wherever Beam puts them, and grouped by image id; what only
the whole file tells, such as its categories, is added where the blocks come together again.
"""

import contextlib
import gc
import logging
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.annotations import NO_LABELS, ImageLabels, ImageRow
from recordmill.schemas.coco import AnnotationBlock, AnnotationFile, AnnotationKind, AnnotationSource, FileAnnotations
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.coco.convert_rows import other_format, row_converter
from recordmill.transforms.coco.cut_blocks import BLOCK_BYTES, cut_blocks
from recordmill.transforms.coco.decode_coco import CocoImageRow, decode_coco
from recordmill.transforms.coco.describe_file import OF_OBJECTS, BlockSummary, describe_file, size_of, summarize
from recordmill.transforms.coco.guess_box_format import sampled_of
from recordmill.transforms.runtime import coders, progress  # noqa: F401  coders: for the coder of FileAnnotations
from recordmill.transforms.runtime.outputs import REJECTED, count_rejects, route_outputs
from recordmill.transforms.storage.read_unpacked import open_unpacked
from recordmill.transforms.storage.resolve import archive_of, storage_for

_LOGGER = logging.getLogger(__name__)
_SUMMARIES = "summaries"
_IN_PLACE = "in place"


class CocoFiles(NamedTuple):
    """What ReadCoco gives.

    Attributes:
        parts: (image id, FileAnnotations).
        files: AnnotationFile.
        rejected: Rejected, of rows that give no image.
    """

    parts: PCollection
    files: PCollection
    rejected: PCollection


class ReadCoco(beam.PTransform):
    """AnnotationSource become CocoFiles; `masks` is whether segmentations of objects are wanted."""

    def __init__(self, masks: bool, block_bytes: int = BLOCK_BYTES):
        super().__init__()
        self._masks = masks
        self._block_bytes = block_bytes

    def expand(self, sources: PCollection[AnnotationSource]):
        cut = sources | "CutBlocks" >> beam.FlatMap(_cut, self._block_bytes).with_output_types(
            AnnotationBlock
        ).with_outputs(_IN_PLACE, main="ranges")
        # What has its text with it is decoded where it was cut.
        blocks = (cut.ranges | "SpreadBlocks" >> beam.Reshuffle(), cut[_IN_PLACE]) | "Blocks" >> beam.Flatten()
        read = blocks | "ReadBlock" >> beam.FlatMap(_read, self._masks).with_output_types(
            tuple[int, FileAnnotations]
        ).with_outputs(_SUMMARIES, REJECTED, main="parts")
        files = (
            read[_SUMMARIES]
            | "SourceAndSummary" >> beam.Map(_by_source).with_output_types(tuple[bytes, BlockSummary])
            | "BySource" >> beam.GroupByKey()
            | "DescribeFile" >> beam.MapTuple(_describe).with_output_types(AnnotationFile)
        )
        return CocoFiles(read.parts, files, read[REJECTED])


def _cut(source: AnnotationSource, block_bytes: int) -> Iterator[Any]:
    progress.set_step("reading annotations")
    for block in cut_file(source, block_bytes):
        yield TaggedOutput(_IN_PLACE, block) if block.text else block


def _read(block: AnnotationBlock, masks: bool) -> Iterator[Any]:
    progress.set_step("reading annotations")
    for item in route_outputs(count_rejects(with_rejects(block, read_block(block, masks)))):
        if isinstance(item, FileAnnotations):
            yield item.image_id, item
        else:
            yield TaggedOutput(_SUMMARIES, (block.source, item)) if isinstance(item, BlockSummary) else item


def _by_source(summary: tuple[AnnotationSource, BlockSummary]) -> tuple[bytes, BlockSummary]:
    source, of_block = summary
    return msgspec.json.encode(source), of_block


def _describe(source: bytes, summaries: Iterable[BlockSummary]) -> AnnotationFile:
    return describe_file(msgspec.json.decode(source, type=AnnotationSource), summaries)


def cut_file(source: AnnotationSource, block_bytes: int = BLOCK_BYTES) -> Iterator[AnnotationBlock]:
    """The blocks of a COCO file (https://cocodataset.org/#format-data).

    Raises:
        AnnotationFileError: not JSON (the message gives line and column), or it has a list twice.
        OSError: the file cannot be read.
    """
    path = source.path
    _LOGGER.info("Reading %s", path)
    size = storage_for(path).size(path) or 0
    is_packed, pieces = open_unpacked(path, block_bytes)
    by_range = not is_packed and not archive_of(path)
    for number, block in enumerate(cut_blocks(path, pieces, block_bytes)):
        text = b"" if by_range and block.list else block.text
        yield AnnotationBlock(
            source, number, block.list, block.first_row, block.start, len(block.text), sampled_of(size), text
        )


def with_rejects(block: AnnotationBlock, items: Iterable[Any]) -> Iterator[Any]:
    """What `read_block` gives, where the rejects of an image's annotations go with the image, as they are counted in
    its split. Those of no image stay for themselves."""
    held: dict[int, list[Rejected]] = {}
    for item in items:
        if isinstance(item, Rejected) and item.image_id is not None:
            held.setdefault(item.image_id, []).append(item)
        elif isinstance(item, FileAnnotations) and item.image_id in held:
            yield msgspec.structs.replace(item, rejected=tuple(held.pop(item.image_id)))
        else:
            yield item
    for image_id, rejected in held.items():
        part = _part(image_id, block, [], ())
        yield msgspec.structs.replace(part, rejected=tuple(rejected))


def read_block(block: AnnotationBlock, masks: bool = False) -> Iterator[FileAnnotations | BlockSummary | Rejected]:
    """What a block holds.

    Yields a FileAnnotations for each image id that its rows give, a Rejected for each row that cannot be used, and one
    BlockSummary.

    Args:
        masks: whether annotations keep their segmentation.

    Raises:
        AnnotationFileError: not COCO's.
        OSError: the file cannot be read.
    """
    source = block.source
    text = block.text or storage_for(source.path).read_range(source.path, block.start, block.size)
    with _gc_paused():
        rows = decode_coco(source.path, block.list, text, source.kind, masks)
        parts = _group(rows.images, rows.annotations if source.kind is not AnnotationKind.IMAGE_INFO else [])
    convert = row_converter(source)
    yield from rows.rejected
    for image_id, images, annotations in parts:
        usable: list[Any] = []
        for row in annotations:
            annotation = convert(row)
            if isinstance(annotation, Rejected):
                yield annotation
            else:
                usable.append(annotation)
        yield _part(image_id, block, images, tuple(usable))
    yield summarize(block, rows)


def _part(
    image_id: int, block: AnnotationBlock, images: list[CocoImageRow], usable: tuple[Any, ...]
) -> FileAnnotations:
    source = block.source
    rows, labels = tuple(map(_image, images)), _lvis_labels(images)
    annotations = usable if source.kind in OF_OBJECTS else ()
    if source.kind in _LABELS:
        labels = msgspec.structs.replace(labels, **{_LABELS[source.kind]: usable})
    return FileAnnotations(
        image_id,
        source.path,
        source.kind,
        rows,
        annotations,
        labels,
        block=block.number,
        bbox_format=other_format(source),
    )


_LABELS = {
    AnnotationKind.CAPTIONS: "captions",
    AnnotationKind.STUFF: "regions",
    AnnotationKind.PANOPTIC: "panoptic",
}
"""Which of ImageLabels an annotation of a kind is."""


def _lvis_labels(images: list[CocoImageRow]) -> ImageLabels:
    for row in images[:1]:
        if row.neg_category_ids is not None or row.not_exhaustive_category_ids is not None:
            return ImageLabels(
                neg_category_ids=tuple(row.neg_category_ids or ()),
                not_exhaustive_category_ids=tuple(row.not_exhaustive_category_ids or ()),
            )
    return NO_LABELS


def _group(image_rows: list[CocoImageRow], rows: list[Any]) -> Iterator[tuple[int, list[CocoImageRow], list[Any]]]:
    """Rows by image id; a sort of ids costs half of what a dict of lists does."""
    image_ids = np.fromiter((row.image_id for row in rows), np.int64, len(rows))
    order = np.argsort(image_ids, kind="stable")
    image_ids = image_ids[order]
    starts = np.flatnonzero(np.diff(image_ids, prepend=image_ids[:1] - 1))
    ends = np.append(starts, len(order))[1:]
    spans = dict(zip(image_ids[starts].tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True))
    images: dict[int, list[CocoImageRow]] = {}
    for row in image_rows:
        images.setdefault(row.id, []).append(row)

    def groups() -> Iterator[tuple[int, list[CocoImageRow], list[Any]]]:
        for image_id in images.keys() | spans.keys():
            start, end = spans.get(image_id, (0, 0))
            yield image_id, images.get(image_id, []), [rows[index] for index in order[start:end].tolist()]

    return groups()


def _image(row: CocoImageRow) -> ImageRow:
    return ImageRow(row.id, row.file_name, *(size_of(row) or (None, None)))


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """The garbage collector would walk a million fresh rows again and again (a third of the time), and find nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
