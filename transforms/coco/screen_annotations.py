"""Annotations that are not wanted, or of no known category, are dropped; and images whose record would be too large."""

from collections.abc import Sequence

import msgspec
import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.limits import MAX_RECORD_BYTES
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.blocks.image_tasks import BlockTasks, label_column, labels_of
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.estimate_records import RecordEstimate


class Filters(msgspec.Struct, frozen=True):
    """Which annotations are wanted.

    Attributes:
        categories: names; empty for all.
        crowd: whether annotations with iscrowd 1 are.
        min_area_px2: the least area, in pixels², by the JSON.
    """

    categories: tuple[str, ...] = ()
    crowd: bool = True
    min_area_px2: float = 0.0


def screen_annotations(
    block: Block, labels: LabelMap, filters: Filters, splits: Sequence[str], facts: FactsBuilder
) -> Block:
    """Drop objects that are not wanted, or of no known category. All images stay, if without an object.

    Args:
        labels: all categories of the input.
        facts: gets what is dropped.
    """
    block = _screen_labels(block, labels, splits, facts)
    categories = sorted(labels.categories, key=lambda category: category.id)
    known = np.array([category.id for category in categories], np.int64)
    place = np.minimum(np.searchsorted(known, block.category_id), max(len(known) - 1, 0))
    is_known = known[place] == block.category_id if len(known) else np.zeros(block.num_objects, bool)
    image_of_object = block.image_of_object
    for index in np.flatnonzero(~is_known).tolist():
        image = image_of_object[index]
        category_id = int(block.category_id[index])
        reject = _unknown(int(block.image_id[image]), int(block.object_id[index]), [category_id])
        facts.reject(splits[block.split[image]], reject)
    dropped = ~is_known
    is_selected = np.array([not filters.categories or each.name in filters.categories for each in categories], bool)
    for metric, is_unwanted in (
        (Metric.FILTERED_CATEGORY, ~is_selected[place] if len(known) else dropped),
        (Metric.FILTERED_CROWD, block.is_crowd & (not filters.crowd)),
        # Some tools write -1 for an area.
        (Metric.FILTERED_AREA, (block.area_px2 < filters.min_area_px2) & (filters.min_area_px2 > 0)),
    ):
        found = is_unwanted & ~dropped
        for split, number in enumerate(np.bincount(block.split[image_of_object[found]]).tolist()):
            facts.count(splits[split], metric, number)
        dropped |= found
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
    """Drop images of which no record can be read.

    A mask as PNG has a thousandth of its image's pixels in bytes, even if it is empty. What else masks take shows only
    when they are drawn."""
    least = estimate.least_mask_bytes(block)
    is_too_large = least > MAX_RECORD_BYTES
    if not is_too_large.any():
        return block
    for size, task in zip(least[is_too_large].tolist(), BlockTasks(block.take(is_too_large), splits), strict=True):
        detail = (
            f"{len(task.annotations):,} masks of {task.width}x{task.height} pixels take at least "
            f"{size:,} bytes as PNG; a record has at most {MAX_RECORD_BYTES:,}: --masks rle takes far less"
        )
        facts.reject(task.split, task.rejected(Reason.RECORD_TOO_LARGE, detail))
    return block.take(np.flatnonzero(~is_too_large))
