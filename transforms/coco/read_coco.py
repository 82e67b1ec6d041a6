"""Read COCO annotation files into partial Blocks.

A file is cut into blocks of complete rows, which any worker decodes. Image rows are keyed by bucket of their file name,
annotations by range of their image id.
"""

import contextlib
import errno
import gc
import logging
import posixpath
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import google_crc32c
import msgspec
import numpy as np
from apache_beam.pvalue import TaggedOutput

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.coco import AnnotationBlock, AnnotationFile, AnnotationKind, AnnotationSource, ExportPart
from recordmill.schemas.inputs.fields import NONE_SELECTED, FieldSelection
from recordmill.schemas.inputs.images import USUAL_IMAGE_BYTES
from recordmill.schemas.names import name_fault
from recordmill.schemas.paths import is_remote
from recordmill.transforms.blocks.flatten_collections import flatten_collections
from recordmill.transforms.blocks.image_tasks import file_folder
from recordmill.transforms.blocks.pack_block import Keyed, pack_parts
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.convert_rows import (
    convert_annotation_rows,
    convert_image_rows,
    convert_plain_objects,
    other_format,
)
from recordmill.transforms.coco.cut_blocks import BLOCK_BYTES, cut_blocks
from recordmill.transforms.coco.decode_coco import CocoRows, decode_coco
from recordmill.transforms.coco.describe_file import BlockSummary, describe_file, guesses_boxes, summarize
from recordmill.transforms.coco.sample_boxes import sample_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.match_blocks import assign_buckets, name_keys
from recordmill.transforms.runtime import progress
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import find_archive, join_path, open_unpacked, storage_for

_LOGGER = logging.getLogger(__name__)
_SUMMARIES = "summaries"
_ROWS = "rows"
_RANGE_BYTES, _UNPACKED = 32 << 20, 5
_LEAST_BLOCK_BYTES = 2 << 20
"""Blocks have a 32nd of a file between this and BLOCK_BYTES. Rows of a block are the peak of a job of few images; small
blocks of a large file are slow to pack, as each has a part for each range."""
_LEAST_BITS, _MOST_BITS = 2, 14
_TRIES = 5
"""Reads per block. Ranged GETs carry no checksum, so each block is verified and re-read on mismatch."""


class ReadAnnotations(beam.PTransform):
    """Read the annotation files of a part of a job. Apply to a pipeline.

    Blocks of a compressed file carry their text. They are decoded in the step that cuts the file, because a shuffle
    would hold all of the text. Blocks of other files carry offsets, and any worker decodes them.

    Args:
        bits: Binary logarithm of the number of image ranges, and of the number of name buckets.
        first_split: Split that gets the rejects of rows without an image id.

    Returns:
        (bucket of names, packed Block of image rows); (range of images, packed Block of annotations); AnnotationFile.
    """

    def __init__(self, options: CocoOptions, part: ExportPart, bits: int, first_split: str):
        super().__init__()
        self._arguments, self._sources = (options, part, bits, first_split), part.sources

    def expand(self, p):
        read = []
        for name, is_packed in (("Files", False), ("PackedFiles", True)):
            sources = [source for source in self._sources if source.path.endswith(".gz") == is_packed]
            if sources:
                cut = p | name >> beam.Create(sources) | f"Cut{name}" >> beam.FlatMap(cut_file)
                spread = cut if is_packed else cut | f"Spread{name}" >> beam.Reshuffle()
                decode = WithFacts(_read_rows, *self._arguments, types=Keyed, tags=(_SUMMARIES, _ROWS))
                read.append(spread | f"Read{name}" >> decode)
        annotations, summaries, rows = zip(*read, strict=True)
        described = (
            flatten_collections(summaries, "Summaries")
            | "TypeOfSummaries" >> beam.Map(_keep_element).with_output_types(tuple[bytes, BlockSummary])
            | "BySource" >> beam.GroupByKey()
            | "DescribeFile" >> beam.MapTuple(_describe_source).with_output_types(AnnotationFile)
        )
        typed = "TypeOfRows" >> beam.Map(_keep_element).with_output_types(Keyed)
        return flatten_collections(rows, "Rows") | typed, flatten_collections(annotations, "Annotations"), described


def _keep_element(element: Any) -> Any:
    """Return the element. A Map of this function sets the element type of a tagged output."""
    return element


def range_bits(sources: Iterable[AnnotationSource]) -> int:
    """Return the binary logarithm of the number of image ranges. A range gets 16 to 32 MB of JSON. Each block of a file
    has a part for each range, and packing many small parts is slow."""
    sizes = ((source.path, storage_for(source.path).size(source.path) or 0) for source in sources)
    total = sum(size * _UNPACKED if path.endswith(".gz") else size for path, size in sizes)
    return min(_MOST_BITS, max(_LEAST_BITS, (total // _RANGE_BYTES).bit_length()))


# Long list of arguments: the options of ReadAnnotations, as this runs on workers.
def _read_rows(
    block: AnnotationBlock, facts: FactsBuilder, options: CocoOptions, part: ExportPart, bits: int, first_split: str
) -> Iterator[Any]:
    progress.set_step("reading annotations")
    rows = read_block(block, options.masks != "none", options.selected_fields())
    facts.texts = rows.id_texts
    for reject in rows.rejected:
        if reject.image_id is None:
            facts.reject(first_split, reject.named(block.source.path))
        else:
            progress.count_reject(reject)
    yield TaggedOutput(_SUMMARIES, (msgspec.json.encode(block.source), summarize(block, rows)))
    if rows.images:
        images = convert_image_rows(block, rows, part.sources)
        keys = name_keys(images.file_name.texts())
        if options.no_list:
            images = _add_assumed_files(images, part.images[0])
        for bucket, packed in pack_parts(images, assign_buckets(keys, options.match, 1 << bits)):
            yield TaggedOutput(_ROWS, (bucket, packed))
    annotations = convert_annotation_rows(block, rows, part.sources)
    if len(annotations):
        yield from pack_parts(annotations, ranges_of(hash_images(annotations.image_id, options.seed), bits))


def _add_assumed_files(rows: Block, folder: str) -> Block:
    """Add file columns to image rows, on the assumption that `folder` has all files."""
    names = rows.file_name.texts()
    paths = ["" if name_fault(name) else join_path(folder, posixpath.normpath(name)) for name in names]
    return rows.replace(
        file_folder=ragged_texts([file_folder(path, name) for path, name in zip(paths, names, strict=True)]),
        file_bytes=np.full(len(rows), USUAL_IMAGE_BYTES, np.int64),
        file_version=ragged_texts([""] * len(rows)),
    )


def _describe_source(source: bytes, summaries: Iterable[BlockSummary]) -> AnnotationFile:
    return describe_file(msgspec.json.decode(source, type=AnnotationSource), summaries)


def cut_file(source: AnnotationSource, most_bytes: int = BLOCK_BYTES) -> Iterator[AnnotationBlock]:
    """Yield the blocks of a COCO file (https://cocodataset.org/#format-data), of at most about `most_bytes`.

    Raises:
        AnnotationFileError: The file is not JSON (the message has line and column), or has a list twice.
        OSError: The file cannot be read.
    """
    progress.set_step("reading annotations")
    path = source.path
    _LOGGER.info("Reading %s", path)
    size = storage_for(path).size(path) or 0
    block_bytes = min(most_bytes, max(_LEAST_BLOCK_BYTES, size >> 5))
    is_packed, pieces = open_unpacked(path, block_bytes)
    try:
        for number, block in enumerate(cut_blocks(path, pieces, block_bytes)):
            text = block.text if is_packed or not block.list else b""
            text_range = block.start, len(block.text), google_crc32c.value(block.text)
            yield AnnotationBlock(source, number, block.list, block.first_row, *text_range, sample_step(size), text)
    except AnnotationFileError:
        for _ in pieces if is_remote(path) or find_archive(path) else ():
            pass  # reading to the end reports damaged bytes
        raise


def read_block(
    block: AnnotationBlock, masks: bool = False, fields: tuple[FieldSelection, FieldSelection] = NONE_SELECTED
) -> CocoRows:
    """Decode the rows of a block.

    Args:
        masks: True to keep the segmentations of objects.
        fields: Requested open fields of images, and of objects.

    Raises:
        AnnotationFileError: The text is not of a COCO file.
        OSError: The file cannot be read.
    """
    text = block.text or _read_text(block)
    source = block.source
    with _gc_paused():
        fills = source.kind is AnnotationKind.INSTANCES and not other_format(source)
        first = -block.first_row % block.sampled
        sampled = slice(first, None, block.sampled) if guesses_boxes(source) else slice(0)
        rows = decode_coco(source.path, block.list, text, source.kind, masks, fills, sampled, fields)
        return rows._replace(objects=convert_plain_objects(source, rows.annotations, rows.object_fields.texts))


def _read_text(block: AnnotationBlock) -> bytes:
    path = block.source.path
    for _ in range(_TRIES):
        text = storage_for(path).read_range(path, block.start, block.size)
        if google_crc32c.value(text) == block.crc32c:
            return text
    fault = (
        f"the bytes from {block.start:,} on differ from those of the first read, in {_TRIES} attempts; the file "
        "changed, or its reads are damaged. Run again"
    )
    raise UnreadableFileError(errno.EIO, fault, path)


@contextlib.contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause the garbage collector. It would scan a million new rows repeatedly (a third of the time) and free none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
