"""COCO annotation files become what their blocks say of the images.

A file is cut into blocks of whole rows. They are decoded wherever Beam puts them, and each becomes an element a range
of image ids: most images have rows in several blocks, and an element an image and block would be nearly one a row.
"""

import contextlib
import errno
import gc
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import google_crc32c
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.annotations import NO_LABELS, ImageLabels, ImageRow
from recordmill.schemas.coco import AnnotationBlock, AnnotationFile, AnnotationKind, AnnotationSource, BlockRows
from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.coco.convert_rows import other_format, row_converter
from recordmill.transforms.coco.cut_blocks import BLOCK_BYTES, cut_blocks
from recordmill.transforms.coco.decode_coco import CocoImageRow, CocoRows, decode_coco
from recordmill.transforms.coco.describe_file import BlockSummary, describe_file, size_of, summarize
from recordmill.transforms.coco.guess_box_format import sampled_of
from recordmill.transforms.coco.merge_blocks import LABELS
from recordmill.transforms.runtime import coders, progress  # noqa: F401  coders: for the coder of BlockRows
from recordmill.transforms.runtime.outputs import REJECTED, route_outputs
from recordmill.transforms.storage.interface import UnreadableFileError, is_remote
from recordmill.transforms.storage.read_unpacked import open_unpacked
from recordmill.transforms.storage.resolve import archive_of, storage_for

_LOGGER = logging.getLogger(__name__)
_SUMMARIES = "summaries"
_IN_PLACE = "in place"
_TRIES = 5
"""A block is read again where other bytes have come: those of a range in a bucket have no checksum."""
_RANGE_BITS = 8
"""Of 5 GB, a range has 20 MB; of a block, some 30 kB."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 by the golden ratio, as in Knuth's multiplicative hashing."""


class CocoFiles(NamedTuple):
    """What ReadCoco gives.

    Attributes:
        parts: (range of image ids, BlockRows).
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
        # What has its text with it is decoded in the step that cut it, or a runner would hold all of the text.
        read = (
            cut.ranges | "SpreadBlocks" >> beam.Reshuffle() | "ReadSpread" >> _ReadBlocks(self._masks),
            cut[_IN_PLACE] | "ReadInPlace" >> _ReadBlocks(self._masks),
        )
        files = (
            tuple(each[_SUMMARIES] for each in read)
            | "Summaries" >> beam.Flatten()
            | "SourceAndSummary" >> beam.Map(_by_source).with_output_types(tuple[bytes, BlockSummary])
            | "BySource" >> beam.GroupByKey()
            | "DescribeFile" >> beam.MapTuple(_describe).with_output_types(AnnotationFile)
        )
        return CocoFiles(
            tuple(each.parts for each in read) | "Parts" >> beam.Flatten(),
            files,
            tuple(each[REJECTED] for each in read) | "RejectedRows" >> beam.Flatten(),
        )


class _ReadBlocks(beam.PTransform):
    """AnnotationBlock become what ReadCoco gives of them."""

    def __init__(self, masks: bool):
        super().__init__()
        self._masks = masks

    def expand(self, blocks: PCollection[AnnotationBlock]):
        return blocks | "ReadBlock" >> beam.FlatMap(_read, self._masks).with_output_types(
            tuple[int, BlockRows]
        ).with_outputs(_SUMMARIES, REJECTED, main="parts")


def _cut(source: AnnotationSource, block_bytes: int) -> Iterator[Any]:
    progress.set_step("reading annotations")
    for block in cut_file(source, block_bytes):
        yield TaggedOutput(_IN_PLACE, block) if block.text else block


def _read(block: AnnotationBlock, masks: bool) -> Iterator[Any]:
    progress.set_step("reading annotations")
    for item in route_outputs(read_block(block, masks)):
        if isinstance(item, BlockRows):
            yield item.id_range, item
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
    try:
        for number, block in enumerate(cut_blocks(path, pieces, block_bytes)):
            text = block.text if is_packed or not block.list else b""
            of_text = block.start, len(block.text), google_crc32c.value(block.text)
            yield AnnotationBlock(source, number, block.list, block.first_row, *of_text, sampled_of(size), text)
    except AnnotationFileError:
        for _ in pieces if is_remote(path) or archive_of(path) else ():
            pass  # at its end, bytes that are damaged are told as such
        raise


def read_block(block: AnnotationBlock, masks: bool = False) -> Iterator[BlockRows | BlockSummary | Rejected]:
    """What a block holds.

    Yields a BlockRows for each range of image ids that its rows are of, which has the rejects of annotations of these
    images, as they are counted in the image's split; a Rejected for each other row that cannot be used; and one
    BlockSummary.

    Args:
        masks: whether annotations keep their segmentation.

    Raises:
        AnnotationFileError: not COCO's.
        OSError: the file cannot be read.
    """
    source = block.source
    text = block.text or _read_text(block)
    with _gc_paused():
        rows = decode_coco(source.path, block.list, text, source.kind, masks)
    yield from (reject for reject in rows.rejected if reject.image_id is None)
    yield from _by_range(block, rows)
    yield summarize(block, rows)


def _read_text(block: AnnotationBlock) -> bytes:
    path = block.source.path
    for _ in range(_TRIES):
        text = storage_for(path).read_range(path, block.start, block.size)
        if google_crc32c.value(text) == block.crc32c:
            return text
    found = f"its bytes from {block.start:,} on are not those that it was cut at, {_TRIES} times; run again"
    raise UnreadableFileError(errno.EIO, found, path)


def _by_range(block: AnnotationBlock, rows: CocoRows) -> Iterator[BlockRows]:
    source, convert = block.source, row_converter(block.source)
    annotations = rows.annotations if source.kind is not AnnotationKind.IMAGE_INFO else []
    rejected = [reject for reject in rows.rejected if reject.image_id is not None]
    of_images = _in_ranges([row.id for row in rows.images])
    of_annotations = _in_ranges([row.image_id for row in annotations])
    of_rejected = _in_ranges([reject.image_id or 0 for reject in rejected])
    label = LABELS.get(source.kind)
    for number in sorted(of_images.keys() | of_annotations.keys() | of_rejected.keys()):
        images = [rows.images[index] for index in of_images.get(number, ())]
        bad = [rejected[index] for index in of_rejected.get(number, ())]
        image_ids: list[int] = []
        usable: list[Any] = []
        for index in of_annotations.get(number, ()):
            annotation = convert(annotations[index])
            if isinstance(annotation, Rejected):
                bad.append(annotation)
            else:
                image_ids.append(annotations[index].image_id)
                usable.append(annotation)
        lvis = tuple(map(_lvis_labels, images))
        yield BlockRows(
            number,
            source.path,
            source.kind,
            block.number,
            tuple(map(_image, images)),
            lvis if any(lists is not NO_LABELS for lists in lvis) else (),
            tuple(image_ids),
            () if label else tuple(usable),
            msgspec.structs.replace(NO_LABELS, **{label: tuple(usable)}) if label else NO_LABELS,
            tuple(bad),
            other_format(source),
        )


def _lvis_labels(row: CocoImageRow) -> ImageLabels:
    if row.neg_category_ids is None and row.not_exhaustive_category_ids is None:
        return NO_LABELS
    return ImageLabels(
        neg_category_ids=tuple(row.neg_category_ids or ()),
        not_exhaustive_category_ids=tuple(row.not_exhaustive_category_ids or ()),
    )


def _in_ranges(image_ids: Sequence[int]) -> dict[int, list[int]]:
    """Indices of rows, in order, by the range of their images' ids. Hashes are spread evenly, be ids even, or names."""
    ids = np.fromiter(image_ids, np.int64, len(image_ids)).astype(np.uint64)
    ranges = (ids * _GOLDEN >> np.uint64(64 - _RANGE_BITS)).astype(np.uint8)
    order = np.argsort(ranges, kind="stable")
    numbers, starts = np.unique(ranges[order], return_index=True)
    indices = np.split(order, starts[1:])
    return {number: of_range.tolist() for number, of_range in zip(numbers.tolist(), indices, strict=False)}


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
