"""Image rows of a range, and the files that they name, become one whole Block."""

from collections.abc import Iterable, Sequence

import numpy as np

from recordmill.schemas.block import Block, join_blocks
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.blocks.order_images import hash_images, image_order
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.match_blocks import (
    NO_FILES,
    check_same_files,
    match_rows,
    without_faults,
)


def join_files(
    blocks: Iterable[Block], classes: Sequence[str], splits: Sequence[str], seed: int, facts: FactsBuilder
) -> Block | None:
    """Return the images of a range in order; None if there is none.

    Args:
        blocks: in any order: rows, which have a split, and the columns of their files if they come from paths or have
            met their files; and files, if a table of labels names the images.
        classes: names of the classes that are wanted; empty for all.

    Raises:
        CollidingImagesError: a name is that of two files.
    """
    parts = list(blocks)
    rows = [part for part in parts if part.split is not None]
    files = [part for part in parts if part.split is None]
    if not rows:
        facts.add_unlisted(*{name for part in files for name in part.file_name.texts()})
        return None
    block = join_blocks(rows)
    if block.state is None:
        matched = match_rows(block, join_blocks([NO_FILES, *files]) if block.file_bytes is None else None, "path")
        block = matched.rows
        facts.add_unlisted(*matched.unlisted)
    if block.class_name is not None:  # each row of another table is a record
        block = _without_repeated(block, splits, facts)
    block = without_faults(block, splits, facts)
    block = _chosen(block, classes, splits, facts)
    return block.take(image_order(block, hash_images(block.image_id, seed)))


def _without_repeated(block: Block, splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop rows of one name: all of them if they differ, as their order depends on the runner; else all but one."""
    ids, numbers = np.unique(block.image_id, return_counts=True)
    dropped = np.zeros(len(block), bool)
    for image_id in ids[numbers > 1].tolist():
        rows = np.flatnonzero(block.image_id == image_id)
        found = block.take(rows)
        names, labels = found.file_name.texts(), found.class_name.texts()
        check_same_files(names[0], found)
        of_splits = [splits[split] for split in found.split.tolist()]
        said = sorted({f"{label!r} in {split}" for label, split in zip(labels, of_splits, strict=True)})
        detail = f"another row says the same of {names[0]!r}"
        if len(said) > 1:
            detail = f"{len(rows)} rows of {names[0]!r} say {', '.join(said)}: none is taken"
        rejected = rows if len(said) > 1 else rows[1:]
        dropped[rejected] = True
        for split in of_splits[-len(rejected) :]:
            facts.reject(split, Rejected("image", image_id, Reason.DUPLICATE_IMAGE_ID, detail))
    return block.take(np.flatnonzero(~dropped)) if dropped.any() else block


def _chosen(block: Block, classes: Sequence[str], splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop images of other classes."""
    if not classes:
        return block
    is_chosen = np.array([name in set(classes) for name in block.class_name.texts()], bool)
    for split, number in enumerate(np.bincount(block.split[~is_chosen]).tolist()):
        facts.count(splits[split], Metric.OF_OTHER_CLASSES, number)
    return block.take(np.flatnonzero(is_chosen))
