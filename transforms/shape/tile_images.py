"""Divide the images of a job into tiles, before their shards are planned."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput

from recordmill.schemas.block import Block, Ragged
from recordmill.schemas.errors import CollidingImagesError, ConfigError
from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.inputs.images import MAX_PIXELS, ImageRules, ImageTask, TileRules
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.names import name_key
from recordmill.schemas.rejects import Metric
from recordmill.transforms.blocks.cut_range import BlockKey
from recordmill.transforms.blocks.image_tasks import id_texts, image_tasks, label_column, labels_of
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.blocks.run_step import run_step
from recordmill.transforms.dataset.collect_facts import WithFacts
from recordmill.transforms.dataset.facts import FactsBuilder
from recordmill.transforms.images.measure_size import measure_size
from recordmill.transforms.runtime.beam_steps import ThreadedDoFn
from recordmill.transforms.shape.divide_images import TileCounts, Tiles, divide_images, split_suffix
from recordmill.transforms.shape.tile_grid import TileGrid, tile_grid

_NAMES = "names"
_NAME_RANGES = 1 << 12
_BLOCK_TILES = 1000
_BLOCK_DATA_BYTES = 1 << 24
"""Maximum tiles of a Block, and bytes of their images; of an image that is larger, the Block has one tile."""
_MOST_TILES = 1_000_000
"""Maximum tiles of an image."""
_PART_BITS = 16
"""Bits of a BlockKey for the number of a Block among those of one Block of images. It has fewer than 2 ** 16 parts."""
_PLACE = re.compile(r"(.+)_([0-9]{1,9})_([0-9]{1,9})")

_METRICS = {
    "empty": Metric.EMPTY_TILES,
    "narrow": Metric.NARROW_TILES,
    "unseen": Metric.IN_NO_TILE,
    "copies": Metric.TILE_COPIES,
    "clipped": Metric.BOXES_CLIPPED,
    "small": Metric.FILTERED_AREA,
    "keypoints_outside": Metric.KEYPOINTS_OUTSIDE,
}


class TileJob(NamedTuple):
    """Arguments of a job's tiles.

    Attributes:
        rules: Rules of tiles.
        image_rules: Rules for image files.
        box_policy, min_area_px2: See `recordmill.transforms.shape.divide_images.divide_images`.
        splits: Splits of the job.
    """

    rules: TileRules
    image_rules: ImageRules
    box_policy: str
    min_area_px2: float
    splits: tuple[str, ...]

    def measure(self, block: Block, labels: LabelMap, table: FeatureTable, map_: Any = map) -> Block:
        """Return the images of a complete Block for `divide`, see `measure_block`."""
        upright = self.image_rules.upright or "image.class_index" in table.sources
        return measure_block(drop_other_tags(block, labels), upright, map_)

    def divide(self, block: Block, labels: LabelMap, table: FeatureTable, facts: FactsBuilder) -> Iterator[Block]:
        """Yield Blocks of the tiles of a Block of `measure`, see `divide_block`."""
        job = self
        if table.record_of is RecordOf.ANNOTATION:  # a tile without objects has no record
            job = self._replace(rules=msgspec.structs.replace(self.rules, keep_empty=0.0))
        class_ids = np.array([category.id for category in labels.categories], np.int64)
        return divide_block(block, job, class_ids, facts)


class TileImages(beam.PTransform):
    """Convert (BlockKey, packed Block) of images to the same of their tiles, in the same order. An image whose size is
    not known, and cannot be read, or that is too large, stays whole: the step that reads it rejects it. Facts have the
    rejects of annotations, and counts.

    Args:
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        threads: Number of threads that read the sizes of images.
        known: Names of `list_places` of the data set that the images are added to; None without one.
    """

    def __init__(
        self,
        job: TileJob,
        labels: PCollection,
        table: PCollection,
        threads: int | None,
        known: PCollection | None = None,
    ):
        super().__init__()
        self._job, self._threads, self._known = job, threads, known
        self._sides = AsSingleton(labels), AsSingleton(table)

    def expand(self, blocks: PCollection[tuple[BlockKey, bytes]]):
        fn = _DivideBlock(self._job, self._threads)
        divide = WithFacts(fn, *self._sides, types=tuple[BlockKey, bytes], tags=(_NAMES,))
        tiles, names = blocks | "Divide" >> divide
        if self._known is not None:
            names = (names, self._known) | "AllNames" >> beam.Flatten()
        names | "GroupByName" >> beam.GroupByKey() | "CheckNames" >> beam.Map(check_names, self._job.rules)
        return tiles


class _DivideBlock(ThreadedDoFn):
    def __init__(self, job: TileJob, threads: int | None):
        super().__init__(threads)
        self._job = job

    def process(
        self, keyed: tuple[BlockKey, bytes], facts: FactsBuilder, labels: LabelMap, table: FeatureTable
    ) -> Iterator[Any]:
        key, block = keyed[0], unpack_block(keyed[1])
        facts.texts = id_texts(block)
        block = self._job.measure(block, labels, table, self.pool.map)
        yield from (TaggedOutput(_NAMES, named) for named in list_names(block))
        for number, part in enumerate(self._job.divide(block, labels, table, facts)):
            yield part_key(key, number), pack_block(part)


def part_key(key: BlockKey, number: int) -> BlockKey:
    """Return the key of a Block of tiles. Keys are in the order of their Blocks."""
    low = (1 << 2 * _PART_BITS) - 1
    part = key & low
    if max(part, number) >> _PART_BITS:
        raise OverflowError(f"Block {part} has a part {number}")
    return key - part + (part << _PART_BITS) + number


def drop_other_tags(block: Block, labels: LabelMap) -> Block:
    """Return a complete Block without the tags that records do not have: a tile with only these is empty."""
    names = {category.name for category in labels.categories}
    images = [] if block.labels is None else labels_of(block)
    if all(names.issuperset(image.tags) for image in images):
        return block
    image_labels = [
        msgspec.structs.replace(image, tags=tuple(filter(names.__contains__, image.tags))) for image in images
    ]
    return block.replace(labels=label_column(image_labels))


def measure_block(block: Block, upright: bool, map_: Any = map) -> Block:
    """Return images with the column `is_measured`, and the size of each in `image_size_px`: that of the source, or else
    that of the file; 0, 0 for an image that cannot be divided.

    Args:
        upright: True if files without a size in the source are turned by EXIF.
        map_: Function like `map`, which may use threads.

    Raises:
        ConfigError: The images are tiles, of a user's pipeline.
    """
    if block.tile_xy_px is not None and (block.tile_xy_px >= 0).any():
        raise ConfigError("--tile divides images, and Samples are tiles already. Leave it out")
    sides = block.image_size_px.copy()
    is_measured = (sides == 0).any(axis=1)
    unknown = np.flatnonzero(is_measured)
    images = block.take(unknown).replace(first_object_of_image=None, labels=None, class_name=None)
    tasks = image_tasks(images, ("",) * (1 + int(images.split.max(initial=0))))
    sizes = [size or (0, 0) for size in map_(partial(_measure_image, upright=upright), tasks)]
    sides[unknown] = np.array(sizes, np.int64).reshape(-1, 2)
    sides[sides.astype(np.float64).prod(axis=1) > MAX_PIXELS] = 0
    return block.replace(image_size_px=sides, is_measured=is_measured)


def _measure_image(task: ImageTask, upright: bool) -> tuple[int, int] | None:
    return measure_size(task.ref, upright and not task.ignores_exif)


def divide_block(block: Block, job: TileJob, class_ids: np.ndarray, facts: FactsBuilder) -> Iterator[Block]:
    """Yield Blocks of the tiles of a Block of images, see `measure_block`, in order. Images that stay whole are in
    Blocks of their own.

    Args:
        class_ids: See `recordmill.transforms.insight.fingerprint_images.digest_labels`.
    """
    is_whole = (block.image_size_px == 0).any(axis=1)
    number = tile_grid(block.image_size_px, job.rules).number
    for row in np.flatnonzero(number > _MOST_TILES)[:1].tolist():
        (name,), sides = block.file_name.cut(row, row + 1).texts(), block.image_size_px[row].tolist()
        raise ConfigError(
            f"{name!r} of {sides[0]}x{sides[1]} pixels would give {number[row]:,} tiles; an image has at most "
            f"{_MOST_TILES:,}. Give a larger --tile or a smaller --tile-overlap"
        )
    before = np.cumsum(number) - number
    block_number = before // _BLOCK_TILES
    is_border = (np.diff(block_number) > 0) | (np.diff(is_whole.astype(np.int8)) != 0)
    for start, end in pairwise([0, *(np.flatnonzero(is_border) + 1).tolist(), len(block)]):
        images = block.cut(start, end)
        if is_whole[start]:
            yield images.replace(image_size_px=np.zeros_like(images.image_size_px), is_measured=None)
        else:
            yield from _divide_group(images, job, class_ids, facts)


def _divide_group(images: Block, job: TileJob, class_ids: np.ndarray, facts: FactsBuilder) -> Iterator[Block]:
    def divide(blocks: list[Block]) -> Tiles:
        return divide_images(blocks[0], job.rules, job.box_policy, job.min_area_px2, class_ids)

    tiles = run_step("divide images into tiles", divide, [images])
    split = images.split.tolist()
    for image, reject in tiles.rejects:
        facts.reject(job.splits[split[image]], reject)
    _count(images, tiles.images, tiles.counts, job.splits, facts)
    data: Ragged | None = images.image_data
    sizes = np.zeros(len(tiles.images), np.int64) if data is None else data.lengths[tiles.images]
    start = 0
    while start < len(tiles.images):
        end = start + int(np.searchsorted(np.cumsum(sizes[start : start + _BLOCK_TILES]), _BLOCK_DATA_BYTES, "right"))
        end = max(end, start + 1)
        part = tiles.block.cut(start, end)
        yield part if data is None else part.replace(image_data=data.take(tiles.images[start:end]))
        start = end


def _count(
    images: Block, image_of_tile: np.ndarray, counts: TileCounts, splits: Sequence[str], facts: FactsBuilder
) -> None:
    is_divided = np.bincount(image_of_tile, minlength=len(images)) > 0
    numbers = {_METRICS[name]: column for name, column in counts._asdict().items()}
    numbers |= {Metric.DIVIDED: is_divided, Metric.WITHOUT_TILE: ~is_divided}
    for split in np.unique(images.split).tolist():
        is_of_split = images.split == split
        for metric, column in numbers.items():
            facts.count(splits[split], metric, int(column[is_of_split].sum()))


class _TileName(NamedTuple):
    """Name of an image that has tiles, or that may be the name of a tile.

    Attributes:
        split, stem, suffix: Split, and parts of the name, of the image that has tiles or may have them.
        name: Name of the image.
        place: Width and height of an image that has tiles; left and top of a tile.
        has_tiles: True for an image that has tiles.
    """

    split: int
    stem: str
    suffix: str
    name: str
    place: tuple[int, int]
    has_tiles: bool


def list_names(block: Block) -> Iterator[tuple[int, _TileName]]:
    """Yield each name with a number of its range: those of images that have tiles, and those that look like tiles'."""
    splits, names = block.split.tolist(), block.file_name.texts()
    for split, name, (width, height) in zip(splits, names, block.image_size_px.tolist(), strict=True):
        if width:
            yield _by_range(_TileName(split, *split_suffix(name_key(name)), name, (width, height), True))
    for split, name in zip(splits, names, strict=True):
        yield from list_places(split, [name])


def list_places(split: int, names: Iterable[str]) -> Iterator[tuple[int, _TileName]]:
    """Yield the names of images that look like tiles' names, each with a number of its range."""
    for name in names:
        stem, suffix = split_suffix(name_key(name))
        if match := _PLACE.fullmatch(stem):
            yield _by_range(_TileName(split, match[1], suffix, name, (int(match[2]), int(match[3])), False))


def _by_range(name: _TileName) -> tuple[int, _TileName]:
    return name_id(name.stem + name.suffix) % _NAME_RANGES, name


def check_names(group: tuple[int, Iterable[tuple]], rules: TileRules) -> None:
    """Check that the names of tiles are unique among tiles and images.

    Raises:
        CollidingImagesError: The tiles of two images would have the same names, or a tile that of an image.
    """
    by_key = defaultdict[tuple[int, str, str], list[_TileName]](list)
    for tile_name in map(_TileName._make, group[1]):
        by_key[tile_name[:3]].append(tile_name)
    for names in by_key.values():
        divided = sorted(name for name in names if name.has_tiles)
        if len(divided) > 1:
            raise CollidingImagesError(
                f"two image ids have the file {divided[0].name!r}, so that their tiles would have the same names. Name "
                "one of the ids in a file of --exclude"
            )
        for other in sorted(name for name in names if not name.has_tiles) if divided else ():
            if _has_tile_at(divided[0], other.place, rules):
                raise CollidingImagesError(
                    f"a tile of {divided[0].name!r} would have the name of the image {other.name!r}. Name one of the "
                    "two in a file of --exclude"
                )


def _has_tile_at(image: _TileName, place: tuple[int, int], rules: TileRules) -> bool:
    grid: TileGrid = tile_grid(np.array([image.place]), rules)
    numbers = int(grid.columns[0]), int(grid.rows[0])
    return all(
        at % grid.stride_px == 0 and at // grid.stride_px < number for at, number in zip(place, numbers, strict=True)
    )
