"""Assign images to shards, without a sort of all images."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsList, AsSingleton, PCollection

from recordmill.schemas.block import Block, spans, starts_of, take_rows
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.shards import ShardKey, ShardSizing, SplitSize
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.pack_block import pack_parts, unpack_block
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import pack, unpacker

_Packed = bytes  # because SplitPlan.bytes is a number


class SplitPlan(msgspec.Struct, frozen=True):
    """Plan of a split's shards.

    Attributes:
        sizing: Requested sizing, with `shard_bytes` raised to the largest image's records if those are larger.
        shards, images, bytes, examples: Totals; bytes are expected, before compression.
        before: int64 [3, B], as bytes: images, bytes and examples before each Block. Bytes, because Beam measures each
            object of a side input.
        keys: int64 [B], as bytes: the BlockKeys, ascending; empty for a table.
        first: Index of the first shard; above 0 if the data set has shards of the split.
    """

    sizing: ShardSizing
    shards: int
    images: int
    bytes: int
    examples: int
    before: _Packed = b""
    keys: _Packed = b""
    first: int = 0

    def key(self, split: str, shard: int) -> ShardKey:
        """Return the key of a shard, which counts from 0 in the plan.

        >>> SplitPlan(ShardSizing(num_shards=2), 2, 9, 0, 9, first=128).key("train", 0)
        ShardKey(split='train', index=128, count=130)
        """
        return ShardKey(split, self.first + shard, self.first + self.shards)


def plan_split(
    sizing: ShardSizing,
    sums: np.ndarray,
    largest: int,
    last_bytes: int = 0,
    are_rows: bool = False,
    keys: _Packed = b"",
) -> SplitPlan:
    """Return the plan of a split.

    Args:
        sums: int64 [3, B], for each Block: images, expected bytes of their framed records, and number of records.
        largest: Largest expected size of an image's records.
        last_bytes: Expected size of the last image with an example; 0 if there is none.
        are_rows: True for a table.
    """
    images, total_bytes, examples = sums.sum(axis=1).tolist()
    if sizing.num_shards is not None:
        shards = sizing.num_shards
    elif sizing.examples_per_shard is not None:
        shards = max(1, -(-examples // sizing.examples_per_shard))
    else:
        shard_bytes = max(sizing.shard_bytes or 1, largest, 1)
        sizing = ShardSizing(shard_bytes=shard_bytes)
        shards = (total_bytes - last_bytes + last_bytes // 2) // shard_bytes + 1
        if are_rows:
            shards = max(1, min(images, round(total_bytes / shard_bytes)))
    before = np.cumsum(sums, axis=1) - sums
    return SplitPlan(sizing, shards, images, total_bytes, examples, before.tobytes(), keys)


def shard_ranks(plan: SplitPlan, index: int) -> tuple[int, int]:
    """Return the rank of the first row of a shard of a table, and the end.

    >>> [shard_ranks(SplitPlan(ShardSizing(num_shards=3), 3, 10, 0, 10), index) for index in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    """
    if plan.sizing.examples_per_shard is not None:
        first, end = (min(plan.images, (index + more) * plan.sizing.examples_per_shard) for more in (0, 1))
    else:  # the borders of rank * shards // images
        first, end = (-(-(index + more) * plan.images // plan.shards) for more in (0, 1))
    return first, end


def empty_shards(split: str, plan: SplitPlan) -> Iterator[ShardKey]:
    """Yield shards without an image. They exist if more shards were requested than there are images."""
    if plan.sizing.num_shards is not None and plan.images < plan.shards:
        used = {rank * plan.shards // plan.images for rank in range(plan.images)}
        yield from (plan.key(split, index) for index in range(plan.shards) if index not in used)


_MIN_IMAGES_PER_SHARD = 2
_MIN_SHARDS = 10
_MAX_SHARDS = 10_000
_MIN_SHARD_BYTES = 10_000
"""Minimum plausible shard size in bytes. A smaller size probably lacks its unit."""


def sizing_warnings(split: str, plan: SplitPlan, requested: ShardSizing, what: str = "image") -> Iterator[str]:
    """Yield warnings about unusual plans; `what`: `image`, `tile`, `row`."""
    plan_text = f"{_sizing_flag(requested)} gives split {split} {plan.shards:,} shards for {plan.images:,} {what}s"
    empty = plan.shards - plan.images
    if empty > 0 and requested.num_shards is not None:
        yield f"{plan_text}: {empty:,} of them are empty. Use a smaller number"
    elif what != "row" and plan.shards > 1 and (requested.shard_bytes or _MIN_SHARD_BYTES) < _MIN_SHARD_BYTES:
        yield f"{plan_text}. {what.capitalize()}s are larger than that. Did you mean {requested.shard_bytes}MB?"
    elif plan.shards >= _MIN_SHARDS and plan.images < _MIN_IMAGES_PER_SHARD * plan.shards:
        yield f"{plan_text}, about one in each. {_sizing_fix(requested)}"
    elif plan.shards > _MAX_SHARDS:
        yield f"{plan_text}. That many files are slow to list and open. {_sizing_fix(requested)}"


_PLAN_TEXT = re.compile(r"--(num-shards|examples-per-shard|shard-size) .+ gives split ")


def is_sizing_warning(text: str) -> bool:
    """Return True for a text of `sizing_warnings`."""
    return _PLAN_TEXT.match(text) is not None


def _sizing_flag(requested: ShardSizing) -> str:
    if requested.num_shards is not None:
        return f"--num-shards {requested.num_shards:,}"
    if requested.examples_per_shard is not None:
        return f"--examples-per-shard {requested.examples_per_shard:,}"
    return f"--shard-size of {requested.shard_bytes:,} bytes"


def _sizing_fix(requested: ShardSizing) -> str:
    return "Use a smaller number" if requested.num_shards is not None else "Use a larger number"


class BlockCensus(msgspec.Struct, frozen=True, array_like=True):
    """Size of one split in a Block.

    Attributes:
        key: Key of the Block.
        images, bytes, examples: Sums; bytes are expected, framed.
        largest: Bytes of the largest image.
        last: Bytes of the last image with an example; None if there is none.
        has_tiles: True if some images are tiles.
    """

    key: BlockKey
    split: int
    images: int
    bytes: int
    examples: int
    largest: int
    last: int | None
    has_tiles: bool = False


class PlanBlocks(beam.PTransform):
    """Convert (BlockKey, packed Block) of complete Blocks to (ShardKey, packed Block), with empty bytes for a shard
    without images. Facts have the plans, and warnings about unusual shards.

    Args:
        container: Name of the shards' container. A plan with empty shards is a ConfigError if it has none.
        first_shards: Index of the first shard of each split that the data set has.
    """

    def __init__(
        self,
        splits: Sequence[str],
        sizing: ShardSizing,
        estimate: RecordEstimate,
        container: str = TFRECORD,
        first_shards: Mapping[str, int] = {},
    ):
        super().__init__()
        self._splits, self._sizing, self.estimate, self._container = splits, sizing, estimate, container
        self._first_shards = dict(first_shards)

    def after(self, first_shards: Mapping[str, int]) -> "PlanBlocks":
        """Return the plan of shards beside those of a data set."""
        return PlanBlocks(self._splits, self._sizing, self.estimate, self._container, first_shards)

    def expand(self, blocks: PCollection[tuple[BlockKey, bytes]]):
        census = blocks | "TakeCensus" >> beam.FlatMap(_pack_census, self.estimate).with_output_types(bytes)
        once = blocks.pipeline | "OncePlanned" >> beam.Impulse()
        plans = once | "PlanSplits" >> WithFacts(
            _plan_splits, self._sizing, AsList(census), self._splits, self._container, self._first_shards
        )
        place = beam.FlatMap(_place_block, AsSingleton(plans), self._splits, self.estimate)
        return blocks | "Place" >> place.with_output_types(tuple[ShardKey, bytes])


def _pack_census(keyed: tuple[BlockKey, bytes], estimate: RecordEstimate) -> Iterator[bytes]:
    key, packed = keyed
    yield from map(pack, take_census(key, unpack_block(packed), estimate))


def take_census(key: BlockKey, block: Block, estimate: RecordEstimate) -> Iterator[BlockCensus]:
    """Count each split of a Block."""
    sizes, examples = estimate.estimate_block(block)
    has_tiles = block.tile_xy_px is not None and bool((block.tile_xy_px >= 0).any())
    for split in np.unique(block.split).tolist():
        images = np.flatnonzero(block.split == split)
        size, number = sizes[images], examples[images]
        with_examples = images[number > 0]
        last = int(sizes[with_examples[-1]]) if len(with_examples) else None
        sums = int(size.sum()), int(number.sum()), int(size.max())
        yield BlockCensus(key, split, len(images), *sums, last, has_tiles)


# Long list of arguments: an element, Facts, a side input and four arguments of the plan.
def _plan_splits(
    _: bytes,
    facts: FactsBuilder,
    sizing: ShardSizing,
    packed: list[bytes],
    splits: Sequence[str],
    container: str,
    first_shards: Mapping[str, int],
) -> Iterator[dict[str, SplitPlan]]:
    counted = list(map(unpacker(BlockCensus), packed))
    unit = "tile" if any(census.has_tiles for census in counted) else "image"
    plans = plan_blocks(counted, splits, sizing, first_shards)
    check_empty_shards(plans, container, unit)
    report_plans(plans, sizing, facts, unit)
    yield plans


def check_empty_shards(plans: Mapping[str, SplitPlan], container: str, unit: str = "image") -> None:
    """Raise ConfigError if a split has more shards than images, and readers of the container need an image in each.
    `unit` is `image` or `tile`."""
    images = {split: plan.images for split, plan in plans.items() if plan.images < plan.shards}
    if images and not CONTAINERS[container].can_be_empty:
        split = min(images, key=lambda name: images[name])
        no_empty = f"--container {container} has no empty shards, because readers fail at them"
        if not images[split]:
            raise ConfigError(f"split {split} has no images, and {no_empty}. Leave the split out, or add images to it")
        raise ConfigError(
            f"--num-shards {plans[split].shards:,} is more than the {images[split]:,} {unit}s of split {split}, and "
            f"{no_empty}. Use --num-shards {images[split]} or fewer"
        )


def report_plans(
    plans: Mapping[str, SplitPlan], requested: ShardSizing, facts: FactsBuilder, unit: str = "image"
) -> None:
    """Add plans and their warnings to `facts`; `unit` is `image`, `tile` or `row`."""
    for split, plan in plans.items():
        progress.count_planned(plan.images, plan.shards, f"{unit}s")
        facts.add_plan(split, SplitSize(plan.images, plan.bytes, plan.shards))
        for text in sizing_warnings(split, plan, requested, unit):
            facts.warn(split, text)


def plan_blocks(
    counted: Iterable[BlockCensus],
    splits: Sequence[str],
    sizing: ShardSizing,
    first_shards: Mapping[str, int] = {},
) -> dict[str, SplitPlan]:
    """Plan each split that has an image.

    Args:
        first_shards: Index of the first shard of each split that the data set has. Such a split gets no more shards
            than it has images.
    """
    by_split: dict[int, list[BlockCensus]] = {}
    for census in counted:
        by_split.setdefault(census.split, []).append(census)
    plans = {}
    for split in sorted(by_split):
        blocks = sorted(by_split[split], key=lambda census: census.key)
        sums = np.array([(census.images, census.bytes, census.examples) for census in blocks], np.int64).T
        last_bytes = next((census.last for census in reversed(blocks) if census.last is not None), 0)
        keys = np.array([census.key for census in blocks], np.int64).tobytes()
        largest = max(census.largest for census in blocks)
        own, name = sizing, splits[split]
        if name in first_shards and sizing.num_shards is not None:
            own = ShardSizing(num_shards=min(sizing.num_shards, int(sums[0].sum())))
        plan = plan_split(own, sums, largest, last_bytes, keys=keys)
        plans[name] = msgspec.structs.replace(plan, first=first_shards.get(name, 0))
    return plans


def _place_block(
    keyed: tuple[BlockKey, bytes], plans: dict[str, SplitPlan], splits: Sequence[str], estimate: RecordEstimate
) -> Iterator[tuple[ShardKey, bytes]]:
    key, packed = keyed
    block = unpack_block(packed)
    for split in np.unique(block.split).tolist():
        plan, images = plans[splits[split]], np.flatnonzero(block.split == split)
        if key == int.from_bytes(plan.keys[:8], sys.byteorder):
            yield from ((shard, b"") for shard in empty_shards(splits[split], plan))
        part = block if len(images) == len(block) else block.take(images)
        placed, shards = place_images(key, part, plan, estimate)
        for shard, piece in pack_parts(placed, shards):
            yield plan.key(splits[split], shard), piece


def place_images(key: BlockKey, block: Block, plan: SplitPlan, estimate: RecordEstimate) -> tuple[Block, np.ndarray]:
    """Return the images of a Block of one split, and the shard of each: int64. An image with records in several shards
    is repeated, each time with some of its objects."""
    column = np.searchsorted(np.frombuffer(plan.keys, np.int64), key)
    before = np.frombuffer(plan.before, np.int64).reshape(3, -1)[:, column]
    pieces = place_sizes(plan, before, *estimate.estimate_block(block))
    if len(pieces.shard) == len(block):
        return block, pieces.shard
    columns = {name: take_rows(column, pieces.image) for name, column in block.image_columns()}
    objects = spans(block.first_object_of_image[pieces.image] + pieces.start, pieces.end - pieces.start)
    columns |= {name: take_rows(column, objects) for name, column in block.object_columns()}
    placed = Block(**columns, first_object_of_image=starts_of(pieces.end - pieces.start))
    return placed.replace(is_continuation=np.diff(pieces.image, prepend=-1) == 0), pieces.shard


class Pieces(NamedTuple):
    """Images in the order of shards. An image is repeated for each shard that has records of it.

    Attributes:
        image: int64 [P], index of the image.
        shard: int64 [P], its shard.
        start, end: int64 [P], records of the image in that shard.
    """

    image: np.ndarray
    shard: np.ndarray
    start: np.ndarray
    end: np.ndarray


def place_sizes(plan: SplitPlan, before: np.ndarray, sizes: np.ndarray, examples: np.ndarray) -> Pieces:
    """Return the shards of consecutive images of a split.

    Args:
        before: int64 [3], numbers of images, bytes and examples of the split before them.
        sizes, examples: int64 [N], expected bytes of each image's records, and their number.
    """
    if plan.sizing.examples_per_shard is not None:
        return _fill_shards(plan, before[2] + starts_of(examples)[:-1], examples)
    images = np.arange(len(sizes))
    if plan.sizing.num_shards is not None:
        shards = _multiply_ranks(before[0] + images, plan.shards) // plan.images
    else:
        bytes_before = before[1] + starts_of(sizes)[:-1]
        shards = np.minimum((bytes_before + sizes // 2) // (plan.sizing.shard_bytes or 1), plan.shards - 1)
    return Pieces(images, shards, np.zeros_like(examples), examples)


def _multiply_ranks(ranks: np.ndarray, shards: int) -> np.ndarray:
    """Return the products; raise OverflowError beyond 64 bits."""
    if len(ranks) and int(ranks[-1]) * shards >= 1 << 63:
        raise OverflowError(f"{int(ranks[-1]):,} images in {shards:,} shards")
    return ranks * shards


def _fill_shards(plan: SplitPlan, before: np.ndarray, examples: np.ndarray) -> Pieces:
    """Fill shards one after the other with `examples_per_shard` examples.

    Args:
        before: int64 [N], number of the split's examples before each image.
    """
    per_shard = plan.sizing.examples_per_shard or 1
    first = before // per_shard
    last = np.maximum(before + examples - 1, before) // per_shard
    pieces = last - first + 1
    images = np.repeat(np.arange(len(examples)), pieces)
    shards = first[images] + spans(np.zeros(len(examples), np.int64), pieces)  # + number of the piece in its image
    start = np.maximum(shards * per_shard - before[images], 0)
    end = np.minimum((shards + 1) * per_shard - before[images], examples[images])
    return Pieces(images, np.where(examples[images] > 0, shards, np.minimum(shards, plan.shards - 1)), start, end)
