"""COCO annotation files become partial Blocks.

A file is cut into blocks of whole rows, which are decoded wherever Beam puts them. Image rows meet their files by name,
annotations their images by range.
"""

import contextlib
import errno
import gc
import logging
import math
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import apache_beam as beam
import google_crc32c
import msgspec
import numpy as np
from apache_beam.pvalue import PCollection, TaggedOutput

from recordmill.schemas.block import Block, Ragged, ragged_bytes, ragged_texts
from recordmill.schemas.errors import AnnotationFileError
from recordmill.schemas.inputs.annotations import NO_LABELS, ImageLabels
from recordmill.schemas.inputs.coco import AnnotationBlock, AnnotationFile, AnnotationKind, AnnotationSource
from recordmill.schemas.inputs.images import USUAL_IMAGE_BYTES
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import NO_ID_TEXTS, IdTexts, Rejected
from recordmill.transforms.blocks.image_tasks import file_folder, label_column, object_columns, with_id_texts
from recordmill.transforms.blocks.pack_block import pack_parts
from recordmill.transforms.blocks.run_step import hash_images, ranges_of
from recordmill.transforms.coco.convert_rows import Converter, other_format, row_converter
from recordmill.transforms.coco.cut_blocks import BLOCK_BYTES, cut_blocks
from recordmill.transforms.coco.decode_coco import AnnotationRow, CocoImageRow, CocoRows, decode_coco, sample_rows
from recordmill.transforms.coco.describe_file import (
    BlockSummary,
    describe_file,
    guesses_boxes,
    size_of,
    summarize,
)
from recordmill.transforms.coco.guess_box_format import LARGEST, sampled_of
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.join.match_blocks import name_buckets, name_keys
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import pack
from recordmill.transforms.storage.interface import UnreadableFileError, is_remote
from recordmill.transforms.storage.resolve import archive_of, join_path, open_unpacked, storage_for

_LOGGER = logging.getLogger(__name__)
_SUMMARIES = "summaries"
Keyed = tuple[int, bytes]
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
                read.append(spread | f"Read{name}" >> _ReadBlocks(self.rules))
        described = (
            united(tuple(each[_SUMMARIES] for each in read), "Summaries")
            | "SourceAndSummary" >> beam.Map(_by_source).with_output_types(tuple[bytes, BlockSummary])
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


def _same(keyed: Keyed) -> Keyed:
    return keyed


@dataclass(eq=False, repr=False)
class _ReadBlocks(beam.PTransform):
    """Convert AnnotationBlock to (range, packed Block of annotations) in the output `annotations`; further outputs are
    summaries, image rows, and Facts."""

    rules: ReadRules

    def expand(self, blocks: PCollection[AnnotationBlock]):
        read = beam.FlatMap(_read, self.rules).with_output_types(Keyed)
        return blocks | "ReadBlock" >> read.with_outputs(_SUMMARIES, FACTS, _ROWS, main="annotations")


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
    yield tagged(facts)
    yield TaggedOutput(_SUMMARIES, (block.source, summarize(block, rows)))
    if rows.images:
        found = with_origin(with_id_texts(image_block(rows.images), rows.id_texts), block, rules.sources)
        keys = name_keys(found.file_name.texts())
        if rules.folder:
            found = _with_files(found, rules.folder)
        for bucket, packed in pack_parts(found, name_buckets(keys, rules.match, 1 << rules.bits)):
            yield TaggedOutput(_ROWS, (bucket, packed))
    annotations = rows.annotations if block.source.kind is not AnnotationKind.IMAGE_INFO else []
    rejected = [reject for reject in rows.rejected if reject.image_id is not None]
    for reject in rejected:
        progress.rejected(reject)
    if annotations or rejected:
        of_images = annotation_block(block.source, annotations, rejected, row_converter(block.source), rows.id_texts)
        of_images = with_id_texts(of_images, rows.id_texts)
        ranges = ranges_of(hash_images(of_images.image_id, rules.seed), rules.bits)
        yield from pack_parts(with_origin(of_images, block, rules.sources), ranges)


def with_origin(rows: Block, block: AnnotationBlock, sources: Sequence[AnnotationSource]) -> Block:
    """Rows with the columns that say which file and which part of it they are of."""
    source = np.full(len(rows), sources.index(block.source), np.int64)
    return rows.having(source=source, part=np.full(len(rows), block.number, np.int64))


def _with_files(rows: Block, folder: str) -> Block:
    """Rows whose files are assumed to be in a folder that is not listed."""
    names = rows.file_name.texts()
    paths = ["" if name_fault(name) else join_path(folder, posixpath.normpath(name)) for name in names]
    return rows.having(
        file_folder=ragged_texts([file_folder(path, name) for path, name in zip(paths, names, strict=True)]),
        file_bytes=np.full(len(rows), USUAL_IMAGE_BYTES, np.int64),
        file_version=ragged_texts([""] * len(rows)),
    )


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


LABELS = {
    AnnotationKind.CAPTIONS: "captions",
    AnnotationKind.STUFF: "regions",
    AnnotationKind.PANOPTIC: "panoptic",
}
"""Field of ImageLabels for each kind of annotation."""
_BOXES = msgspec.json.Decoder(list[tuple[float, float, float, float]])


def _without_parents(name: str) -> str:
    return posixpath.normpath(name) if "/../" in name else name


def image_block(rows: Sequence[CocoImageRow]) -> Block:
    """Image rows in the order of the file, some of which may have one id."""
    return Block(
        image_id=np.array([row.id for row in rows], np.int64),
        file_name=ragged_texts([_without_parents(row.file_name) for row in rows]),
        image_size_px=np.array([size_of(row) or (0, 0) for row in rows], np.int64).reshape(-1, 2),
        labels=label_column(list(map(_lvis_labels, rows))),
    )


def _lvis_labels(row: CocoImageRow) -> ImageLabels:
    if row.neg_category_ids is None and row.not_exhaustive_category_ids is None:
        return NO_LABELS
    return ImageLabels(
        neg_category_ids=tuple(row.neg_category_ids or ()),
        not_exhaustive_category_ids=tuple(row.not_exhaustive_category_ids or ()),
    )


def annotation_block(
    source: AnnotationSource,
    rows: Sequence[Any],
    rejected: Sequence[Rejected],
    convert: Converter,
    texts: IdTexts = NO_ID_TEXTS,
) -> Block:
    """Group annotations by image, in the order of the file. Each image has one row.

    Args:
        rejected: rows of known images that could not be decoded.
        texts: of ids.
    """
    if source.kind is AnnotationKind.INSTANCES and not other_format(source):
        typed = _typed_objects(rows)
        if typed is not None and not rejected:
            return _by_image(np.array([row.image_id for row in rows], np.int64), typed)
    converted = [convert(row) for row in rows]
    named = IdTexts({}, texts.annotations).named  # images are named where they are joined
    bad = [named(each) for each in (*rejected, *converted) if isinstance(each, Rejected)]
    good = [(row.image_id, each) for row, each in zip(rows, converted, strict=True) if not isinstance(each, Rejected)]
    image_ids = np.array([image_id for image_id, _ in good], np.int64)
    usable: list[Any] = [each for _, each in good]
    label = LABELS.get(source.kind)
    objects = object_columns([] if label else usable)
    others = [*image_ids.tolist(), *(reject.image_id or 0 for reject in bad)]
    block = _by_image(np.array([] if label else image_ids, np.int64), objects, others)
    of_image: dict[int, list[Any]] = {}
    for image_id, each in good if label else ():
        of_image.setdefault(image_id, []).append(each)
    of_rejected: dict[int, list[Rejected]] = {}
    for reject in bad:
        of_rejected.setdefault(reject.image_id or 0, []).append(reject)
    ids = block.image_id.tolist()
    replace = msgspec.structs.replace
    labels = [
        replace(NO_LABELS, **{label: tuple(of_image[id_])}) if label and id_ in of_image else NO_LABELS for id_ in ids
    ]
    packed = [pack(of_rejected[id_]) if id_ in of_rejected else b"" for id_ in ids]
    return block.having(labels=label_column(labels), rejected=ragged_bytes(packed) if bad else None)


def _typed_objects(rows: Sequence[AnnotationRow]) -> dict[str, Any] | None:
    """Columns of rows that are all usable; None if one is not."""
    try:
        boxes = _BOXES.decode(b"[%b]" % b",".join([row.bbox for row in rows]))
    except msgspec.DecodeError:
        return None
    box = np.fromiter(chain.from_iterable(boxes), np.float64, 4 * len(rows)).reshape(-1, 4)
    given = np.array([math.nan if row.area is None else row.area for row in rows], np.float64)
    has_area = np.array([row.area is not None for row in rows], bool)
    area = np.where(has_area, given, box[:, 2] * box[:, 3])
    if not ((np.abs(box) <= LARGEST).all() and (box[:, 2:] >= 0).all() and (np.abs(area) <= LARGEST).all()):
        return None
    columns: dict[str, Any] = {
        "object_id": np.array([row.id for row in rows], np.int64),
        "category_id": np.array([row.category_id for row in rows], np.int64),
        "boxes_xywh_px": box,
        "area_px2": area,
        "is_crowd": np.array([bool(row.iscrowd) for row in rows], bool),
    }
    segmentation = [getattr(row, "segmentation", b"") for row in rows]
    if any(segmentation):
        columns["segmentation"] = ragged_bytes(segmentation)
    return columns


def _by_image(image_of_object: np.ndarray, objects: dict[str, Any], others: Sequence[int] = ()) -> Block:
    """A Block of the images of objects, and of others without any."""
    order = np.argsort(image_of_object, kind="stable")
    image_ids = np.unique(np.concatenate([image_of_object, np.array(others, np.int64)]))
    ordered = image_of_object[order]
    starts = np.append(np.searchsorted(ordered, image_ids), len(ordered)).astype(np.int64)
    columns = {
        name: column.take(order) if isinstance(column, Ragged) else column[order] for name, column in objects.items()
    }
    return Block(image_id=image_ids, first_object_of_image=starts, **columns)
