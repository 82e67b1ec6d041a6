"""COCO's image rows, annotations and image files are joined: partial Blocks become whole ones."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.block import join_blocks
from recordmill.schemas.coco import AnnotationSource
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.splits import Division
from recordmill.transforms.blocks.order_images import hash_images, ranges_of
from recordmill.transforms.blocks.pack_block import pack_parts, unpack_block
from recordmill.transforms.coco.join_annotations import JoinInputs, join_annotations
from recordmill.transforms.coco.limit_records import limit_records
from recordmill.transforms.coco.match_masks import MaskFiles
from recordmill.transforms.coco.screen_annotations import Filters, screen_annotations
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.join.match_blocks import NO_FILES, match_rows
from recordmill.transforms.shards.plan_blocks import BlockKey, cut_range

Keyed = tuple[int, bytes]
"""Number of a bucket of names or of a range of images, and a packed Block."""


class JoinRules(NamedTuple):
    """How images are joined.

    Attributes:
        bits: 2 ** bits ranges of images.
        match: one of `recordmill.schemas.names.MATCHES`.
        table: what is in a record; `max_side` in pixels, to which images are shrunk.
    """

    sources: tuple[AnnotationSource, ...]
    bits: int
    match: str
    seed: int
    filters: Filters
    table: FeatureTable
    max_side: int | None


class JoinedImages(NamedTuple):
    """(BlockKey, packed Block) of whole Blocks, and Facts of several steps."""

    blocks: PCollection
    facts: tuple[PCollection, ...]


class JoinImages(beam.PTransform):
    """Convert (bucket of names, Block of image rows) and (range, Block of annotations) to JoinedImages.

    Args:
        labels: a PCollection of one LabelMap, of all categories of the input.
        files: (bucket of names, Block of files); None if no folder is listed, and rows have the columns of files.
        masks: a PCollection of one MaskFiles; None if no folder of panoptic PNGs is listed.
    """

    def __init__(
        self,
        rules: JoinRules,
        labels: PCollection,
        division: Division | AsSingleton,
        files: PCollection | None,
        masks: PCollection | None = None,
    ):
        super().__init__()
        self._rules = rules
        self._labels = labels
        self._division = division
        self._files = files
        self._masks = masks

    def expand(self, parts):
        rows, annotations = parts
        if self._files is None:
            grouped = rows | "AloneByName" >> beam.Map(_alone)
        else:
            grouped = (rows, self._files) | "RowsAndFiles" >> beam.Flatten() | "GroupByName" >> beam.GroupByKey()
        matched = grouped | "MatchFiles" >> beam.FlatMap(
            _match, self._division, self._rules, self._files is not None
        ).with_output_types(Keyed).with_outputs(FACTS, main="rows")
        masks = None if self._masks is None else AsSingleton(self._masks)
        joined = (
            (matched.rows, annotations)
            | "RowsAndAnnotations" >> beam.Flatten()
            | "GroupByRange" >> beam.GroupByKey()
            | "Join"
            >> beam.FlatMap(_join, self._rules, AsSingleton(self._labels), self._division, masks)
            .with_output_types(tuple[BlockKey, bytes])
            .with_outputs(FACTS, main="blocks")
        )
        return JoinedImages(joined.blocks, (matched[FACTS], joined[FACTS]))


def _alone(keyed: Keyed) -> tuple[int, list[bytes]]:
    return keyed[0], [keyed[1]]


def _match(group: tuple[int, Iterable[bytes]], division: Division, rules: JoinRules, has_files: bool) -> Iterator[Any]:
    blocks = list(map(unpack_block, group[1]))
    files = [block for block in blocks if block.image_id is None]
    facts = FactsBuilder()
    rows = [block for block in blocks if block.image_id is not None]
    if not rows:
        facts.add_unlisted(*(name for block in files for name in set(block.file_name.texts())))
        yield tagged(facts)
        return
    found = join_blocks(files or [NO_FILES]) if has_files else None
    matched = match_rows(join_blocks(rows), found, rules.match, division)
    facts.add_unlisted(*matched.unlisted)
    yield tagged(facts)
    ranges = ranges_of(hash_images(matched.rows.image_id, rules.seed), rules.bits)
    yield from pack_parts(matched.rows, ranges)


def _join(
    group: tuple[int, Iterable[bytes]], rules: JoinRules, labels: LabelMap, division: Division, masks: MaskFiles | None
) -> Iterator[Any]:
    number, packed = group
    facts = FactsBuilder()
    inputs = JoinInputs(rules.sources, labels, division, rules.match, rules.seed, masks)
    block = join_annotations(map(unpack_block, packed), inputs, facts)
    block = screen_annotations(block, labels, rules.filters, division.names, facts)
    block = limit_records(block, RecordEstimate(rules.table, rules.max_side), division.names, facts)
    yield tagged(facts)
    yield from cut_range(number, block)
