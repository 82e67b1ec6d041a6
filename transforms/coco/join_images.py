"""COCO's image rows, annotations and image files are joined: partial Blocks become whole ones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.block import Block
from recordmill.schemas.coco import AnnotationSource
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.splits import Division
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.coco.join_annotations import JoinInputs, join_annotations
from recordmill.transforms.coco.match_masks import MaskFiles
from recordmill.transforms.coco.screen_annotations import Filters, limit_records, screen_annotations
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.join.match_blocks import MatchRows
from recordmill.transforms.shards.plan_blocks import BlockKey, cut_range


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


@dataclass(eq=False, repr=False)
class JoinImages(beam.PTransform):
    """Convert (bucket of names, Block of image rows) and (range, Block of annotations) to JoinedImages.

    Args:
        labels: a PCollection of one LabelMap, of all categories of the input.
        files: (bucket of names, Block of files); None if no folder is listed, and rows have the columns of files.
        masks: a PCollection of one MaskFiles; None if no folder of panoptic PNGs is listed.
    """

    rules: JoinRules
    labels: PCollection
    division: Division | AsSingleton
    files: PCollection | None
    masks: PCollection | None = None

    def expand(self, parts):
        rows, annotations = parts
        rules = self.rules
        sides = (rows,) if self.files is None else (rows, self.files)
        matched = sides | "MatchRows" >> MatchRows(rules.match, self.division, rules.seed, rules.bits)
        masks = None if self.masks is None else AsSingleton(self.masks)
        joined = (
            (matched.rows, annotations)
            | "RowsAndAnnotations" >> beam.Flatten()
            | "GroupByRange" >> beam.GroupByKey()
            | "Join"
            >> beam.FlatMap(_join, rules, AsSingleton(self.labels), self.division, masks)
            .with_output_types(tuple[BlockKey, bytes])
            .with_outputs(FACTS, main="blocks")
        )
        return JoinedImages(joined.blocks, (matched[FACTS], joined[FACTS]))


def _join(
    group: tuple[int, Iterable[bytes]], rules: JoinRules, labels: LabelMap, division: Division, masks: MaskFiles | None
) -> Iterator[Any]:
    number, packed = group
    inputs = JoinInputs(rules.sources, labels, division, rules.match, rules.seed, masks)

    def join(blocks: list[Block]) -> tuple[Block, FactsBuilder]:
        facts = FactsBuilder()
        block = join_annotations(blocks, inputs, facts)
        block = screen_annotations(block, labels, rules.filters, division.names, facts)
        return limit_records(block, RecordEstimate(rules.table, rules.max_side), division.names, facts), facts

    paths = [source.path for source in rules.sources]
    block, facts = run_step("join annotations", join, list(map(unpack_block, packed)), paths)
    yield tagged(facts)
    yield from cut_range(number, block)
