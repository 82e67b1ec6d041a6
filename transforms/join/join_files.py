"""Join image rows with their files to complete Blocks."""

from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np

from recordmill.schemas.block import Block, join_blocks
from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.transforms.blocks.cut_range import BlockKey, cut_range
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_images, image_order, run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.join.match_blocks import NO_FILES, check_same_files, drop_faulty_images, match_rows

RANGE_BITS = 6
"""A million images are some 3 MB in each of 64 ranges."""


class JoinFiles(beam.PTransform):
    """Convert (range, packed Block) of image rows and files to (BlockKey, packed Block) of complete Blocks.

    Args:
        classes: Names of the selected classes; empty for all.
        source: Input whose dropped rows are counted; None if they are counted elsewhere. See `count_rows`.
    """

    def __init__(
        self, splits: tuple[str, ...], seed: int, classes: tuple[str, ...] = (), source: InputRows | None = None
    ):
        super().__init__()
        self._options = splits, seed, classes, source

    def expand(self, sides):
        grouped = sides | "BothSides" >> beam.Flatten() | "GroupByRange" >> beam.GroupByKey()
        return grouped | "Join" >> WithFacts(_join_files, *self._options, types=tuple[BlockKey, bytes])


# Long list of arguments: the options of JoinFiles, as this runs on workers.
def _join_files(
    group: tuple[int, Iterable[bytes]],
    facts: FactsBuilder,
    splits: tuple[str, ...],
    seed: int,
    classes: tuple[str, ...],
    source: InputRows | None,
) -> Iterator[tuple[BlockKey, bytes]]:
    number, packed = group

    def join(blocks: list[Block]) -> Block | None:
        joined = join_files(blocks, classes, splits, seed, facts)
        if source:
            rows = [block.split for block in blocks if block.split is not None]
            count_input_rows(facts, rows, splits, source, [] if joined is None else [joined.split])
        return joined

    joined = run_step("join files", join, list(map(unpack_block, packed)))
    if joined is not None:
        yield from cut_range(number, joined)


def count_input_rows(
    facts: FactsBuilder,
    rows: Iterable[np.ndarray],
    splits: Sequence[str],
    source: InputRows,
    joined: Iterable[np.ndarray] = (),
) -> None:
    """Add the numbers of rows of an input, by split, to `facts`.

    Args:
        rows, joined: int64 arrays of indices of splits. The numbers of `joined` are subtracted.
    """
    before, after = (sum(np.bincount(part, minlength=len(splits)) for part in parts) for parts in (rows, joined))
    for split, images in zip(splits, np.broadcast_to(before - after, len(splits)).tolist(), strict=True):
        if images:
            facts.add_rows(split, InputRows(source.path, source.kind, images, 0))


def join_files(
    blocks: Iterable[Block], classes: Sequence[str], splits: Sequence[str], seed: int, facts: FactsBuilder
) -> Block | None:
    """Return a range's images in order; None without any.

    Args:
        blocks: Blocks of rows, which have the column `split`, and Blocks of files, in any order. There are no Blocks of
            files if the rows have the columns of their files.
        classes: Names of the selected classes; empty for all.

    Raises:
        CollidingImagesError: Two files have the same name.
    """
    parts = list(blocks)
    rows = [part for part in parts if part.split is not None]
    files = [part for part in parts if part.split is None]
    if not rows:
        facts.add_unlisted(*{name for part in files for name in part.file_name.texts()})
        return None
    block = join_blocks(rows)
    if block.state is None:
        block, unlisted = match_rows(
            block, join_blocks([NO_FILES, *files]) if block.file_bytes is None else None, "path"
        )
        facts.add_unlisted(*unlisted)
    if block.class_name is not None:  # each row of another table is a record
        block = _drop_repeated_rows(block, splits, facts)
    block = drop_faulty_images(block, splits, facts)
    block = _select_classes(block, classes, splits, facts)
    return block.take(image_order(block, hash_images(block.image_id, seed)))


def _drop_repeated_rows(block: Block, splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop rows with the same name: all if they differ, because their order depends on the runner; else all but one."""
    ids, numbers = np.unique(block.image_id, return_counts=True)
    dropped = np.zeros(len(block), bool)
    for image_id in ids[numbers > 1].tolist():
        rows = np.flatnonzero(block.image_id == image_id)
        if block.image_fields is not None:  # the order of tables depends on the runner
            texts = block.image_fields.take(rows).rows()
            rows = rows[sorted(range(len(rows)), key=texts.__getitem__)]
        repeated = block.take(rows)
        name, classes = repeated.file_name.texts()[0], repeated.class_name.texts()
        check_same_files(name, repeated)
        row_splits = [splits[split] for split in repeated.split.tolist()]
        labels = sorted({f"{label!r} in {split}" for label, split in zip(classes, row_splits, strict=True)})
        rejected, detail = rows[1:], f"another row of {name!r} has the same label"
        if len(labels) > 1:
            rejected, detail = rows, f"{len(rows)} rows of {name!r} have different labels, {', '.join(labels)}"
        dropped[rejected] = True
        for split in row_splits[-len(rejected) :]:
            facts.reject(split, Rejected("image", image_id, Reason.DUPLICATE_IMAGE_ID, detail).named(name))
    return block.take(np.flatnonzero(~dropped)) if dropped.any() else block


def _select_classes(block: Block, classes: Sequence[str], splits: Sequence[str], facts: FactsBuilder) -> Block:
    """Drop images of other classes."""
    if not classes:
        return block
    is_selected = np.array([name in set(classes) for name in block.class_name.texts()], bool)
    for split, number in enumerate(np.bincount(block.split[~is_selected]).tolist()):
        facts.count(splits[split], Metric.OF_OTHER_CLASSES, number)
    return block.take(np.flatnonzero(is_selected))
