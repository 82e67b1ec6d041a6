"""COCO annotation files become partial Blocks.

A file is cut into blocks of whole rows, which are decoded wherever Beam puts them. Image rows meet their files by name,
annotations their images by range.
"""

import contextlib
import errno
import gc
import logging
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import google_crc32c
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.coco import AnnotationBlock, AnnotationFile, AnnotationKind, AnnotationSource
from recordmill.schemas.inputs.images import USUAL_IMAGE_BYTES
from recordmill.schemas.names import name_fault
from recordmill.transforms.blocks.image_tasks import file_folder
from recordmill.transforms.blocks.pack_block import Keyed, pack_parts
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.coco.convert_rows import annotation_block, image_block, other_format
from recordmill.transforms.coco.cut_blocks import BLOCK_BYTES, cut_blocks
from recordmill.transforms.coco.decode_coco import CocoRows, decode_coco, sample_rows
from recordmill.transforms.coco.describe_file import (
    BlockSummary,
    describe_file,
    guesses_boxes,
    summarize,
)
from recordmill.transforms.coco.guess_box_format import sampled_of
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.join.match_blocks import name_buckets, name_keys
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.interface import UnreadableFileError, is_remote
from recordmill.transforms.storage.resolve import archive_of, join_path, open_unpacked, storage_for

_LOGGER = logging.getLogger(__name__)
_SUMMARIES = "summaries"
_ROWS = "rows"
_RANGE_BYTES, _UNPACKED = 2 << 20, 5
_LEAST_BITS, _MOST_BITS = 2, 14
_TRIES = 5
"""A block is read again where other bytes have come: those of a range in a bucket have no checksum."""


class CocoFiles(NamedTuple):
    """Output of ReadAnnotations.

    Attributes:
        rows: (bucket of names, packed Block of image rows).
        annotations: (range of images, packed Block).
        files: AnnotationFile.
        facts: Facts, of rows that give no image.
    """

    rows: PCollection
    annotations: PCollection
    files: PCollection
    facts: tuple[PCollection, ...]


class ReadRules(NamedTuple):
    """How rows become Blocks.

    Attributes:
        sources: all annotation files.
        masks: True to keep the segmentations of objects.
        bits: 2 ** bits ranges of images, and as many buckets of names.
        match, seed: see `recordmill.transforms.coco.join_images.JoinRules`.
        folder: that has all images if no folder is listed; else empty.
        first_split: gets the rejects of rows that give no image.
    """

    sources: tuple[AnnotationSource, ...]
    masks: bool
    bits: int
    match: str
    seed: int
    folder: str
    first_split: str


@dataclass(eq=False, repr=False)
class ReadAnnotations(beam.PTransform):
    """Read the files of `rules.sources` from a pipeline: CocoFiles.

    Blocks of a compressed file have their text with them, and are decoded in the step that cut the file, or a runner
    would hold all of the text. Others are decoded wherever Beam puts them.
    """

    rules: ReadRules
    block_bytes: int = BLOCK_BYTES

    def expand(self, p):
        read = []
        for name, is_packed in (("Files", False), ("PackedFiles", True)):
            sources = [source for source in self.rules.sources if source.path.endswith(".gz") == is_packed]
            if sources:
                cut = p | name >> beam.Create(sources) | f"Cut{name}" >> beam.FlatMap(cut_file, self.block_bytes)
                spread = cut if is_packed else cut | f"Spread{name}" >> beam.Reshuffle()
                decode = beam.FlatMap(_read, self.rules).with_output_types(Keyed)
                outputs = decode.with_outputs(_SUMMARIES, FACTS, _ROWS, main="annotations")
                read.append(spread | f"Read{name}" >> outputs)
        described = (
            united(tuple(each[_SUMMARIES] for each in read), "Summaries")
            | "TypeOfSummaries" >> beam.Map(_same).with_output_types(tuple[bytes, BlockSummary])
            | "BySource" >> beam.GroupByKey()
            | "DescribeFile" >> beam.MapTuple(_describe).with_output_types(AnnotationFile)
        )
        return CocoFiles(
            united(tuple(each[_ROWS] for each in read), "Rows")
            | "TypeOfRows" >> beam.Map(_same).with_output_types(Keyed),
            united(tuple(each.annotations for each in read), "Annotations"),
            described,
            tuple(each[FACTS] for each in read),
        )


def united(parts: Sequence[PCollection], name: str) -> PCollection:
    """Return one PCollection of all."""
    return parts[0] if len(parts) == 1 else parts | name >> beam.Flatten()


def _same(element: Any) -> Any:
    """Return the element. A step of this gives a further output its type."""
    return element


def range_bits(sources: Iterable[AnnotationSource]) -> int:
    """Binary logarithm of the number of ranges of images, so that a range has about two megabytes of JSON."""
    sizes = ((source.path, storage_for(source.path).size(source.path) or 0) for source in sources)
    total = sum(size * _UNPACKED if path.endswith(".gz") else size for path, size in sizes)
    return max(_LEAST_BITS, min(_MOST_BITS, (total // _RANGE_BYTES).bit_length()))


def _read(block: AnnotationBlock, rules: ReadRules) -> Iterator[Any]:
    progress.set_step("reading annotations")
    rows = read_block(block, rules.masks)
    facts = FactsBuilder(rows.id_texts)
    for reject in rows.rejected:
        if reject.image_id is None:
            facts.reject(rules.first_split, reject)
        else:
            progress.rejected(reject)
    yield tagged(facts)
    yield TaggedOutput(_SUMMARIES, (msgspec.json.encode(block.source), summarize(block, rows)))
    if rows.images:
        images = image_block(block, rows, rules.sources)
        keys = name_keys(images.file_name.texts())
        if rules.folder:
            images = _with_files(images, rules.folder)
        for bucket, packed in pack_parts(images, name_buckets(keys, rules.match, 1 << rules.bits)):
            yield TaggedOutput(_ROWS, (bucket, packed))
    annotations = annotation_block(block, rows, rules.sources)
    if len(annotations):
        yield from pack_parts(annotations, ranges_of(hash_images(annotations.image_id, rules.seed), rules.bits))


def _with_files(rows: Block, folder: str) -> Block:
    """Rows whose files are assumed to be in a folder that is not listed."""
    names = rows.file_name.texts()
    paths = ["" if name_fault(name) else join_path(folder, posixpath.normpath(name)) for name in names]
    return rows.having(
        file_folder=ragged_texts([file_folder(path, name) for path, name in zip(paths, names, strict=True)]),
        file_bytes=np.full(len(rows), USUAL_IMAGE_BYTES, np.int64),
        file_version=ragged_texts([""] * len(rows)),
    )


def _describe(source: bytes, summaries: Iterable[BlockSummary]) -> AnnotationFile:
    return describe_file(msgspec.json.decode(source, type=AnnotationSource), summaries)


def cut_file(source: AnnotationSource, block_bytes: int = BLOCK_BYTES) -> Iterator[AnnotationBlock]:
    """The blocks of a COCO file (https://cocodataset.org/#format-data).

    Raises:
        AnnotationFileError: not JSON (the message gives line and column), or it has a list twice.
        OSError: the file cannot be read.
    """
    progress.set_step("reading annotations")
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
            pass  # damaged bytes are reported at its end
        raise


def read_block(block: AnnotationBlock, masks: bool = False) -> CocoRows:
    """Decode the rows of a block.

    Args:
        masks: True to keep the segmentations of objects.

    Raises:
        AnnotationFileError: not COCO's.
        OSError: the file cannot be read.
    """
    text = block.text or _read_text(block)
    source = block.source
    with _gc_paused():
        fills = source.kind is AnnotationKind.INSTANCES and not other_format(source)
        rows = decode_coco(source.path, block.list, text, source.kind, masks, fills)
        if not guesses_boxes(source):
            return rows
        first, step = -block.first_row % block.sampled, block.sampled
        return rows._replace(sampled=sample_rows(block.list, text, source.kind, first, step))


def _read_text(block: AnnotationBlock) -> bytes:
    path = block.source.path
    for _ in range(_TRIES):
        text = storage_for(path).read_range(path, block.start, block.size)
        if google_crc32c.value(text) == block.crc32c:
            return text
    found = f"its bytes from {block.start:,} on are not those that it was cut at, {_TRIES} times; run again"
    raise UnreadableFileError(errno.EIO, found, path)


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
