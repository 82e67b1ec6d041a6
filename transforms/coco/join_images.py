"""Join COCO's image rows, annotations and image files: partial Blocks become complete Blocks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.block import Block
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.coco import AnnotationSource
from recordmill.schemas.inputs.images import MAX_RECORD_BYTES
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import Division
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.blocks.image_tasks import each_task, label_column, labels_of
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.coco.join_annotations import JoinInputs, MaskFiles, join_annotations
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.join.divide_images import DivideImages
from recordmill.transforms.join.match_blocks import MatchRows
from recordmill.transforms.shards.plan_blocks import BlockKey, cut_range


class Filters(msgspec.Struct, frozen=True):
    """Selection of annotations.

    Attributes:
        categories: Names of the selected categories; empty for all.
        crowd: True to keep annotations with iscrowd 1.
        min_area_px2: Minimum `area` of the JSON, in pixels².
    """

    categories: tuple[str, ...] = ()
    crowd: bool = True
    min_area_px2: float = 0.0


class ScreenedObjects(NamedTuple):
    """Results of filters for the M objects of a Block.

    Attributes:
        is_known: bool [M], a category has the category id of the object.
        unwanted: Metric of each filter, and bool [M], the filter skips the object.
    """

    is_known: np.ndarray
    unwanted: tuple[tuple[Metric, np.ndarray], ...]

    @property
    def is_wanted(self) -> np.ndarray:
        """bool [M], the category is known, and no filter skips the object."""
        return self.is_known & ~np.logical_or.reduce([is_unwanted for _, is_unwanted in self.unwanted])


def screen_objects(block: Block, labels: LabelMap, filters: Filters) -> ScreenedObjects:
    """Return the objects that filters skip, and those of unknown categories. `labels` has all input categories."""
    categories = sorted(labels.categories, key=lambda category: category.id)
    known = np.array([category.id for category in categories], np.int64)
    place = np.minimum(np.searchsorted(known, block.category_id), max(len(known) - 1, 0))
    nothing = np.zeros(block.num_objects, bool)
    is_in_px = ~nothing if block.in_fractions is None else ~block.in_fractions
    is_selected = np.array([not filters.categories or each.name in filters.categories for each in categories], bool)
    return ScreenedObjects(
        known[place] == block.category_id if len(known) else nothing,
        (
            (Metric.FILTERED_CATEGORY, ~is_selected[place] if len(known) else nothing),
            (Metric.FILTERED_CROWD, block.is_crowd & (not filters.crowd)),
            # Some tools write -1 for an area. An area in fractions is known once the image has been read.
            (Metric.FILTERED_AREA, is_in_px & (block.area_px2 < filters.min_area_px2) & (filters.min_area_px2 > 0)),
        ),
    )


def screen_annotations(
    block: Block, labels: LabelMap, filters: Filters, splits: Sequence[str], facts: FactsBuilder
) -> Block:
    """Drop objects that filters skip, and objects of unknown categories. Images without objects are kept.

    Args:
        labels: All categories of the input.
        facts: Gets counts and rejects of the dropped objects.
    """
    block = _screen_labels(block, labels, splits, facts)
    is_known, unwanted = screen_objects(block, labels, filters)
    image_of_object = block.image_of_object
    for index in np.flatnonzero(~is_known).tolist():
        image = image_of_object[index]
        category_id = int(block.category_id[index])
        reject = _unknown(int(block.image_id[image]), int(block.object_id[index]), [category_id])
        facts.reject(splits[block.split[image]], reject)
    dropped = ~is_known
    for metric, is_unwanted in unwanted:
        found = is_unwanted & ~dropped
        for split, number in enumerate(np.bincount(block.split[image_of_object[found]]).tolist()):
            facts.count(splits[split], metric, number)
        dropped |= found
    has_objects, keeps_objects = (
        np.bincount(image_of_object[which], minlength=len(block)) > 0 for which in (is_known, ~dropped)
    )
    for split, number in enumerate(np.bincount(block.split[has_objects & ~keeps_objects]).tolist()):
        facts.count(splits[split], Metric.EMPTIED, number)
    return block.take_objects(~dropped) if dropped.any() else block


def _screen_labels(block: Block, labels: LabelMap, splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop stuff and panoptic annotations of unknown categories."""
    if block.labels is None or not block.labels.values.size:
        return block
    known = {category.id for category in labels.segments}
    screened = []
    for image_id, split, found in zip(block.image_id.tolist(), block.split.tolist(), labels_of(block), strict=True):
        regions, panoptic = [], []
        for region in found.regions:
            if region.category_id in known:
                regions.append(region)
            else:
                facts.reject(splits[split], _unknown(image_id, region.id, [region.category_id]))
        for row in found.panoptic:
            if unknown := sorted({segment.category_id for segment in row.segments} - known):
                facts.reject(splits[split], _unknown(image_id, None, unknown))
            else:
                panoptic.append(row)
        screened.append(msgspec.structs.replace(found, regions=tuple(regions), panoptic=tuple(panoptic)))
    return block.having(labels=label_column(screened))


def _unknown(image_id: int, annotation_id: int | None, category_ids: list[int]) -> Rejected:
    detail = f"no category has the id {', '.join(map(str, category_ids))}"
    return Rejected("annotation", annotation_id, Reason.UNKNOWN_CATEGORY, detail, image_id)


def limit_records(block: Block, estimate: RecordEstimate, splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop images whose records would be too large to read.

    An empty PNG mask has 1 byte per 1,000 pixels. The actual size is known only once masks are drawn."""
    least = estimate.least_mask_bytes(block)
    is_too_large = least > MAX_RECORD_BYTES
    if not is_too_large.any():
        return block
    for size, task in zip(least[is_too_large].tolist(), each_task(block.take(is_too_large), splits), strict=True):
        detail = (
            f"{len(task.annotations):,} masks of {task.width}x{task.height} pixels take at least "
            f"{size:,} bytes as PNG; a record has at most {MAX_RECORD_BYTES:,}: --masks rle takes far less"
        )
        facts.reject(task.split, task.rejected(Reason.RECORD_TOO_LARGE, detail))
    return block.take(np.flatnonzero(~is_too_large))


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
