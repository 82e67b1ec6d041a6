"""Every image gets its shard, without one big sort.

The order of a split is that of a stable hash of (seed, image id). Each Block holds one range of hashes, in order. The
numbers of images, bytes and examples of each Block are summed up first and handed to all workers, so that a Block knows
what lies before it and finds the shards of its images by arithmetic. The same images, sizes and seed give the same plan
on every engine, however many ranges there are.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block, spans, starts_of, taken
from recordmill.schemas.shards import ShardKey, ShardSizing, SplitSize
from recordmill.transforms.blocks.pack_block import pack_parts, unpack_block
from recordmill.transforms.blocks.run_step import hash_images
from recordmill.transforms.dataset.facts import FACTS, FactsBuilder, tagged
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import pack, unpacker
from recordmill.transforms.shards.split_plan import Census, SplitPlan, empty_shards, plan_split, sizing_warnings

BlockKey = int
"""Where a Block is among all: its range of hashes, and its number in the range, in one integer."""
_PARTS = 1 << 32
_MOST_IMAGES, _MOST_BYTES = 1000, 1 << 20
"""Size of a Block, unless one image alone is larger."""


class BlockCensus(msgspec.Struct, frozen=True, array_like=True):
    """How much there is to write of one split in a Block.

    Attributes:
        key: of the Block.
        images, bytes, examples: sums; bytes as expected, framed.
        largest: bytes of the largest image.
        last: hash, id and bytes of the last image that gives an example; None if none does.
    """

    key: BlockKey
    split: int
    images: int
    bytes: int
    examples: int
    largest: int
    last: tuple[int, int, int] | None


class BlockPlan(msgspec.Struct, frozen=True):
    """The plan of a split.

    Attributes:
        keys: int64 bytes, ascending: the Blocks that `plan.before` has a column for.
    """

    plan: SplitPlan
    keys: bytes


class ShardPlans(NamedTuple):
    """What PlanBlocks gives.

    Attributes:
        placed: (ShardKey, packed Block); empty bytes for a shard that gets no image.
        facts: Facts, with plans, and warnings of shards that are not likely to be meant.
    """

    placed: PCollection
    facts: PCollection


@dataclass(eq=False, repr=False)
class PlanBlocks(beam.PTransform):
    """Convert (BlockKey, packed Block) of whole Blocks to ShardPlans."""

    splits: Sequence[str]
    sizing: ShardSizing
    seed: int
    estimate: RecordEstimate

    def expand(self, blocks: PCollection[tuple[BlockKey, bytes]]):
        census = blocks | "TakeCensus" >> beam.FlatMap(_census, self.seed, self.estimate).with_output_types(bytes)
        once = blocks.pipeline | "OncePlanned" >> beam.Create([self.sizing])
        plan = beam.FlatMap(_plan_splits, AsList(census), self.splits)
        planned = once | "PlanSplits" >> plan.with_outputs(FACTS, main="plans")
        place = beam.FlatMap(_place, AsSingleton(planned.plans), self.splits, self.estimate)
        placed = blocks | "Place" >> place.with_output_types(tuple[ShardKey, bytes])
        return ShardPlans(placed, planned[FACTS])


def cut_range(number: int, block: Block) -> Iterator[tuple[BlockKey, bytes]]:
    """Yield the images of a range, which are in order, as packed Blocks of a bounded size, each with its key."""
    weight = _bytes_of(block)
    total = np.cumsum(weight)
    start, part = 0, 0
    while start < len(block):
        before = int(total[start - 1]) if start else 0
        end = int(np.searchsorted(total, before + _MOST_BYTES, side="right"))
        end = min(max(end, start + 1), start + _MOST_IMAGES)
        for _, packed in pack_parts(block.cut(start, end), np.zeros(end - start, np.int64)):
            yield number * _PARTS + part, packed
        start, part = end, part + 1


def _bytes_of(block: Block) -> np.ndarray:
    """About how many bytes of columns each image has: int64 [N]."""
    size = np.full(len(block), 100, np.int64) + 60 * block.objects_per_image
    for column in (block.labels, block.rejected):
        if column is not None:
            size += column.lengths
    for column, each in ((block.segmentation, 1), (block.keypoints_xyv, 8)):
        if column is not None:
            size += each * np.diff(column.starts[block.first_object_of_image])
    return size


def _census(keyed: tuple[BlockKey, bytes], seed: int, estimate: RecordEstimate) -> Iterator[bytes]:
    key, packed = keyed
    yield from map(pack, take_census(key, unpack_block(packed), seed, estimate))


def take_census(key: BlockKey, block: Block, seed: int, estimate: RecordEstimate) -> Iterator[BlockCensus]:
    """Count each split of a Block."""
    sizes, examples = estimate.of_block(block)
    for split in np.unique(block.split).tolist():
        images = np.flatnonzero(block.split == split)
        size, number = sizes[images], examples[images]
        with_examples = images[number > 0]
        last = None
        if len(with_examples):
            image = with_examples[-1:]
            last = int(hash_images(block.image_id[image], seed)[0]), int(block.image_id[image[0]]), int(sizes[image[0]])
        yield BlockCensus(key, split, len(images), int(size.sum()), int(number.sum()), int(size.max()), last)


def _plan_splits(sizing: ShardSizing, packed: list[bytes], splits: Sequence[str]) -> Iterator[Any]:
    plans = plan_blocks(map(unpacker(BlockCensus), packed), splits, sizing)
    yield plans
    yield report_plans({split: of.plan for split, of in plans.items()}, sizing)


def report_plans(plans: Mapping[str, SplitPlan], asked: ShardSizing, unit: str = "image") -> TaggedOutput:
    """The Facts of plans, for the output FACTS; `unit` is `image` or `row`."""
    facts = FactsBuilder()
    for split, plan in plans.items():
        progress.planned(plan.images, plan.shards, f"{unit}s")
        facts.add_plan(split, SplitSize(plan.images, plan.bytes, plan.shards))
        for text in sizing_warnings(split, plan, asked, unit):
            facts.warn(split, text)
    return tagged(facts)


def plan_blocks(counted: Iterable[BlockCensus], splits: Sequence[str], sizing: ShardSizing) -> dict[str, BlockPlan]:
    """Plan each split that has an image."""
    of_split: dict[int, list[BlockCensus]] = {}
    for census in counted:
        of_split.setdefault(census.split, []).append(census)
    plans = {}
    for split in sorted(of_split):
        found = sorted(of_split[split], key=lambda census: census.key)
        sums = np.array([(census.images, census.bytes, census.examples) for census in found], np.int64).T
        hash_, id_, size = max((census.last for census in found if census.last), default=(0, 0, None))
        last = None if size is None else ((hash_, id_), size)
        plan = plan_split(Census(sums, max(census.largest for census in found), last), sizing)
        plans[splits[split]] = BlockPlan(plan, np.array([census.key for census in found], np.int64).tobytes())
    return plans


def _place(
    keyed: tuple[BlockKey, bytes], plans: dict[str, BlockPlan], splits: Sequence[str], estimate: RecordEstimate
) -> Iterator[tuple[ShardKey, bytes]]:
    key, packed = keyed
    block = unpack_block(packed)
    for split in np.unique(block.split).tolist():
        of, images = plans[splits[split]], np.flatnonzero(block.split == split)
        if key == int.from_bytes(of.keys[:8], sys.byteorder):
            yield from ((shard, b"") for shard in empty_shards(splits[split], of.plan))
        part = block if len(images) == len(block) else block.take(images)
        placed, shards = place_images(key, part, of, estimate)
        for shard, piece in pack_parts(placed, shards):
            yield ShardKey(splits[split], shard, of.plan.shards), piece


def place_images(key: BlockKey, block: Block, of: BlockPlan, estimate: RecordEstimate) -> tuple[Block, np.ndarray]:
    """Return the images of a Block of one split, and the shard of each: int64. An image whose records are in several
    shards is there several times, with some of its objects each."""
    plan, keys = of.plan, np.frombuffer(of.keys, np.int64)
    before = np.frombuffer(plan.before, np.int64).reshape(3, -1)[:, np.searchsorted(keys, key)].tolist()
    sizes, examples = estimate.of_block(block)
    if plan.sizing.num_shards is not None:
        ranks = before[0] + np.arange(len(block))
        return block, _multiplied(ranks, plan.shards) // plan.images
    if plan.sizing.examples_per_shard is not None:
        return _fill_shards(block, before[2] + starts_of(examples)[:-1], examples, plan)
    bytes_before = before[1] + starts_of(sizes)[:-1]
    shards = (bytes_before + sizes // 2) // (plan.sizing.shard_bytes or 1)
    return block, np.minimum(shards, plan.shards - 1)


def _multiplied(ranks: np.ndarray, shards: int) -> np.ndarray:
    """The products, which must fit 64 bits: a job has far fewer images and shards."""
    if len(ranks) and int(ranks[-1]) * shards >= 1 << 63:
        raise OverflowError(f"{int(ranks[-1]):,} images in {shards:,} shards")
    return ranks * shards


def _fill_shards(block: Block, before: np.ndarray, examples: np.ndarray, plan: SplitPlan) -> tuple[Block, np.ndarray]:
    """Fill shards one after the other with `examples_per_shard` examples.

    Args:
        before: int64 [N], examples of the split before each image.
    """
    per_shard = plan.sizing.examples_per_shard or 1
    first = before // per_shard
    last = np.maximum(before + examples - 1, before) // per_shard
    pieces = last - first + 1
    if (pieces == 1).all():
        return block, np.where(examples > 0, first, np.minimum(first, plan.shards - 1))
    images = np.repeat(np.arange(len(block)), pieces)
    number = spans(np.zeros(len(block), np.int64), pieces)  # of the piece in its image
    shards = first[images] + number
    start = np.maximum(shards * per_shard - before[images], 0)
    end = np.minimum((shards + 1) * per_shard - before[images], examples[images])
    columns = {name: taken(column, images) for name, column in block.image_columns()}
    objects = spans(block.first_object_of_image[images] + start, end - start)
    columns |= {name: taken(column, objects) for name, column in block.object_columns()}
    placed = Block(**columns, first_object_of_image=starts_of(end - start)).having(is_continuation=number > 0)
    return placed, np.where(examples[images] > 0, shards, np.minimum(shards, plan.shards - 1))
