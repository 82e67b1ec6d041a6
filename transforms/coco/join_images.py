"""Join COCO's image rows, annotations and image files: partial Blocks become complete Blocks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.block import Block
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.coco import AnnotationSource
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import Division
from recordmill.transforms.blocks.cut_range import BlockKey, cut_range
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.coco.join_annotations import JoinInputs, MaskFiles, join_annotations
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.join.divide_images import DivideImages
from recordmill.transforms.join.match_blocks import MatchRows
from recordmill.transforms.join.screen_objects import Filters, screen_annotations, screen_objects
from recordmill.transforms.shards.limit_records import limit_records


class JoinRules(NamedTuple):
    """Options of the join.

    Attributes:
        bits: Binary logarithm of the number of image ranges.
        match: A `recordmill.schemas.names.Match`.
        table: Features of a record.
        max_side: Longest side of a stored image, in pixels; larger images are shrunk.
    """

    sources: tuple[AnnotationSource, ...]
    bits: int
    match: str
    seed: int
    filters: Filters
    table: FeatureTable
    max_side: int | None
    divides: Literal["by hash", "by rank", "by labels"] = "by hash"


class JoinedImages(NamedTuple):
    """PCollections of (BlockKey, packed complete Block), and of Facts."""

    blocks: PCollection
    facts: tuple[PCollection, ...]


@dataclass(eq=False, repr=False)
class JoinImages(beam.PTransform):
    """Convert (bucket of names, Block of image rows) and (range, Block of annotations) to JoinedImages.

    Args:
        labels: PCollection of one LabelMap with all categories of the input.
        files: (bucket of names, Block of files). None if no folder is listed; image rows then have the file columns.
        masks: PCollection of one MaskFiles; None if no folder of panoptic PNGs is listed.
    """

    rules: JoinRules
    labels: PCollection
    division: Division | AsSingleton
    splits: Sequence[str]
    files: PCollection | None
    masks: PCollection | None = None

    def expand(self, parts):
        rows, annotations = parts
        rules = self.rules
        sides = (rows,) if self.files is None else (rows, self.files)
        matched = sides | "MatchRows" >> MatchRows(rules.match, self.division, rules.seed, rules.bits)
        masks = None if self.masks is None else AsSingleton(self.masks)
        divided = matched.rows
        if rules.divides != "by hash":
            wanted = beam.FlatMap(_wanted_labels, AsSingleton(self.labels), rules).with_output_types(tuple[int, bytes])
            found = (annotations | "WantedLabels" >> wanted,) if rules.divides == "by labels" else ()
            divided = (matched.rows, *found) | "DivideImages" >> DivideImages(self.division, self.splits)
        joined = (
            (divided, annotations)
            | "RowsAndAnnotations" >> beam.Flatten()
            | "GroupByRange" >> beam.GroupByKey()
            | "Join"
            >> beam.FlatMap(_join, rules, AsSingleton(self.labels), self.division, masks)
            .with_output_types(tuple[BlockKey, bytes])
            .with_outputs(FACTS, main="blocks")
        )
        return JoinedImages(joined.blocks, (matched[FACTS], joined[FACTS]))


def _wanted_labels(keyed: tuple[int, bytes], labels: LabelMap, rules: JoinRules) -> Iterator[tuple[int, bytes]]:
    """Yield int64 [N, 2] as bytes: image id and category id of objects that pass the filters."""
    block = unpack_block(keyed[1])
    if block.num_objects:
        is_wanted = screen_objects(block, labels, rules.filters).is_wanted
        pairs = np.stack([block.image_id[block.image_of_object], block.category_id], axis=1)[is_wanted]
        yield keyed[0], np.unique(pairs, axis=0).tobytes()


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
