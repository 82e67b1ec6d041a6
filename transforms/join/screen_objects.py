"""Leave out objects that options skip, and those of unknown categories."""

from collections.abc import Sequence

import msgspec
import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.inputs.image_options import AnnotatedOptions
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.blocks.image_tasks import label_column, labels_of
from recordmill.transforms.dataset.facts import FactsBuilder


def screen_objects(
    block: Block, labels: LabelMap, options: AnnotatedOptions
) -> tuple[np.ndarray, tuple[tuple[Metric, np.ndarray], ...]]:
    """Find the objects of known categories among the M objects of a Block, and the objects that options skip.

    Args:
        labels: All categories of the input.

    Returns:
        is_known: bool [M], a category has the category id of the object.
        unwanted: Metric of each option, and bool [M], the option skips the object.
    """
    categories = sorted(labels.categories, key=lambda category: category.id)
    known_ids = np.array([category.id for category in categories], np.int64)
    index = np.minimum(np.searchsorted(known_ids, block.category_id), max(len(known_ids) - 1, 0))
    nothing = np.zeros(block.num_objects, bool)
    is_in_px = ~nothing if block.in_fractions is None else ~block.in_fractions
    selected = options.read_categories
    is_selected = np.array([not selected or category.name in selected for category in categories], bool)
    return (
        known_ids[index] == block.category_id if len(known_ids) else nothing,
        (
            (Metric.FILTERED_CATEGORY, ~is_selected[index] if len(known_ids) else nothing),
            (Metric.FILTERED_CROWD, block.is_crowd & options.no_crowd),
            # Some tools write -1 for an area. An area in fractions is known once the image has been read.
            (Metric.FILTERED_AREA, is_in_px & (block.area_px2 < options.min_area) & (options.min_area > 0)),
        ),
    )


def selected_labels(block: Block, labels: LabelMap, options: AnnotatedOptions) -> bytes:
    """Return int64 [N, 2] as bytes: image id and category id of objects that the options keep, each pair once."""
    is_known, unwanted = screen_objects(block, labels, options)
    is_wanted = is_known & ~np.logical_or.reduce([is_unwanted for _, is_unwanted in unwanted])
    pairs = np.stack([block.image_id[block.image_of_object], block.category_id], axis=1)[is_wanted]
    return np.unique(pairs, axis=0).tobytes()


def screen_annotations(
    block: Block, labels: LabelMap, options: AnnotatedOptions, splits: Sequence[str], facts: FactsBuilder
) -> Block:
    """Drop objects that options skip, and objects of unknown categories. Images without objects are kept.

    Args:
        labels: All categories of the input.
        facts: Gets counts and rejects of the dropped objects.
    """
    block = _screen_labels(block, labels, splits, facts)
    is_known, unwanted = screen_objects(block, labels, options)
    image_of_object = block.image_of_object
    names = block.file_name.texts() if not is_known.all() else []
    for index in np.flatnonzero(~is_known).tolist():
        image = image_of_object[index]
        category_id = int(block.category_id[index])
        reject = _unknown_category(int(block.image_id[image]), int(block.object_id[index]), [category_id])
        facts.reject(splits[block.split[image]], reject.named(names[image]))
    dropped = ~is_known
    for metric, is_unwanted in unwanted:
        filtered = is_unwanted & ~dropped
        for split, number in enumerate(np.bincount(block.split[image_of_object[filtered]]).tolist()):
            facts.count(splits[split], metric, number)
        dropped |= filtered
    has_objects, keeps_objects = (
        np.bincount(image_of_object[is_counted], minlength=len(block)) > 0 for is_counted in (is_known, ~dropped)
    )
    for split, number in enumerate(np.bincount(block.split[has_objects & ~keeps_objects]).tolist()):
        facts.count(splits[split], Metric.EMPTIED, number)
    return block.take_objects(~dropped) if dropped.any() else block


def _screen_labels(block: Block, labels: LabelMap, splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop stuff and panoptic annotations of unknown categories."""
    if block.labels is None or not block.labels.values.size:
        return block
    known_ids = {category.id for category in labels.segments}
    screened = []
    columns = block.image_id.tolist(), block.split.tolist(), block.file_name.texts()
    for image_id, split, name, image_labels in zip(*columns, labels_of(block), strict=True):
        regions, panoptic = [], []
        for region in image_labels.regions:
            if region.category_id in known_ids:
                regions.append(region)
            else:
                reject = _unknown_category(image_id, region.id, [region.category_id])
                facts.reject(splits[split], reject.named(name))
        for row in image_labels.panoptic:
            if unknown := sorted({segment.category_id for segment in row.segments} - known_ids):
                facts.reject(splits[split], _unknown_category(image_id, None, unknown).named(name))
            else:
                panoptic.append(row)
        screened.append(msgspec.structs.replace(image_labels, regions=tuple(regions), panoptic=tuple(panoptic)))
    return block.replace(labels=label_column(screened))


def _unknown_category(image_id: int, annotation_id: int | None, category_ids: list[int]) -> Rejected:
    detail = f"no category has the id {', '.join(map(str, category_ids))}"
    return Rejected("annotation", annotation_id, Reason.UNKNOWN_CATEGORY, detail, image_id)
