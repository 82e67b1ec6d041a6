"""Encode images and their annotations as records. Threads read and check the images ahead."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.features import FeatureTable, RecordOf
from recordmill.schemas.inputs.images import ImageRules, ImageTask
from recordmill.schemas.paths import is_remote
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.blocks.image_tasks import image_tasks
from recordmill.transforms.blocks.run_step import FORESEEN, fewest, step_error
from recordmill.transforms.encoders.encode_examples import ExampleEncoder, LoadedImage, add_object_columns
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.encoders.record_maker import (
    EncodeBlock,
    EncodedRun,
    ImageRowEncoder,
    Made,
    RecordContext,
    encode_runs,
)
from recordmill.transforms.images.load_images import load_image
from recordmill.transforms.runtime.threads import look_ahead
from recordmill.transforms.shards.tile_batches import DividedImage, find_images

_BATCH_IMAGES = 32
_BATCH_BYTES = 2_000_000
_RUN_IMAGES = 512
_RUN_BYTES = 8_000_000
_TASKS_AT_ONCE = 512
"""Maximum number of images that are structs at the same time. Structs take several times the memory of a Block."""

Result = TypeVar("Result")


class EncodeImages(msgspec.Struct, frozen=True, tag=True):
    """RecordMaker of images.

    Attributes:
        boxes: Policy, see `recordmill.transforms.encoders.encode_objects.fit_boxes`.
        rules: Rules for image files.
        min_area_px2: See `recordmill.transforms.encoders.encode_objects.scale_to_pixels`.
    """

    boxes: str
    rules: ImageRules
    min_area_px2: float = 0.0

    def estimate(self, table: FeatureTable) -> RecordEstimate:
        height, width = self.rules.raw_size or (0, 0)
        return RecordEstimate(table, self.rules.max_side, 3 * height * width, self.rules.format)

    def start(self, context: RecordContext) -> EncodeBlock:
        estimate = self.estimate(context.table)
        if context.table.record_of is RecordOf.ROW:
            rows = ImageRowEncoder(context.labels, context.table)
            return partial(_encode_rows, context=context, encoder=rows, estimate=estimate, rules=self.rules)
        encoder = ExampleEncoder(context.labels, context.table, self.boxes, self.min_area_px2)
        upright = self.rules.upright or "image.class_index" in context.table.sources
        rules = msgspec.structs.replace(self.rules, upright=upright)
        return partial(_encode_images, context=context, encoder=encoder, estimate=estimate, rules=rules)


class Batch(NamedTuple):
    """Consecutive images of a shard that one thread reads.

    Attributes:
        block: Block with these and other images.
        first: Row of the first image.
        tasks: Metadata of each image, without its objects.
        bytes: Expected size of their records.
        divided: Image that all of them are tiles of; None for whole images.
    """

    block: Block
    first: int
    tasks: list[ImageTask]
    bytes: int
    divided: DividedImage | None = None


def _encode_images(
    block: Block,
    split: str,
    context: RecordContext,
    encoder: ExampleEncoder,
    estimate: RecordEstimate,
    rules: ImageRules,
) -> Iterator[EncodedRun]:
    block = add_object_columns(block)
    load = partial(_load_batch, encoder=encoder, rules=rules)
    start, size = 0, 0
    images: list[LoadedImage] = []
    batches = _divided_batches(block, split, estimate, partial(DividedImage, encoder=encoder, rules=rules))
    for batch, loaded in _load_ahead(load, batches, context):
        if images and (len(images) + len(loaded) > _RUN_IMAGES or size + batch.bytes > _RUN_BYTES):
            yield _encode_run(encoder, block.cut(start, start + len(images)), images)
            start, images, size = start + len(images), [], 0
        images += loaded
        size += batch.bytes
    if images:
        yield _encode_run(encoder, block.cut(start, len(block)), images)


def _encode_run(encoder: ExampleEncoder, block: Block, images: list[LoadedImage]) -> EncodedRun:
    try:
        return encoder.encode(block, images)
    except FORESEEN:
        raise
    except Exception as error:
        rows, first_error = fewest(
            lambda part: encoder.encode(block.take(part), [images[row] for row in part.tolist()]),
            np.arange(len(images)),
            error,
        )
        raise step_error("encode images", first_error, [block.take(rows)]) from first_error


def _load_batch(batch: Batch, encoder: ExampleEncoder, rules: ImageRules) -> list[LoadedImage]:
    """Load a batch. It runs in a thread, so it does not use Beam's counters."""
    if batch.divided:
        return _load_tiles(batch, batch.divided)
    loaded = []
    for row, task in enumerate(batch.tasks, batch.first):
        try:
            loaded.append(_load_row(task, batch.block, row, encoder, rules))
        except FORESEEN:
            raise
        except Exception as error:
            raise step_error("read images", error, [batch.block.cut(row, row + 1)]) from error
    return loaded


def _load_tiles(batch: Batch, divided: DividedImage) -> list[LoadedImage]:
    try:
        return divided.load(batch.tasks, batch.block)
    except FORESEEN:
        raise
    except Exception as error:
        raise step_error("cut tiles", error, [batch.block]) from error


def _load_row(task: ImageTask, block: Block, row: int, encoder: ExampleEncoder, rules: ImageRules) -> LoadedImage:
    firsts = block.first_object_of_image
    if encoder.per_annotation and firsts[row] == firsts[row + 1]:
        return LoadedImage(task, None)
    stored = encoder.load(task, rules)
    if isinstance(stored, Rejected):
        return LoadedImage(task, stored)
    return encoder.draw(task, block, row, stored)


def _encode_rows(
    block: Block,
    split: str,
    context: RecordContext,
    encoder: ImageRowEncoder,
    estimate: RecordEstimate,
    rules: ImageRules,
) -> Iterator[EncodedRun]:
    encode = partial(_encode_row_batch, encoder=encoder, rules=rules)
    made = (made for _, made in _load_ahead(encode, _image_batches(block, split, estimate), context))
    return encode_runs(chain.from_iterable(made))


def _encode_row_batch(batch: Batch, encoder: ImageRowEncoder, rules: ImageRules) -> list[Made]:
    made: list[Made] = []
    for task in batch.tasks:
        loaded = load_image(task, rules)
        made.append((task, loaded if isinstance(loaded, Rejected) else encoder.encode(task, loaded)))
    return made


def _load_ahead(
    work: Callable[[Batch], Result], batches: Iterable[Batch], context: RecordContext
) -> Iterator[tuple[Batch, Result]]:
    """Yield batches in order, with the results of their threads."""

    def with_batch(batch: Batch) -> tuple[Batch, Result]:
        return batch, work(batch)

    return look_ahead(with_batch, batches, context.pool, context.threads, lambda batch: batch.bytes)


def _divided_batches(
    block: Block, split: str, estimate: RecordEstimate, divide: Callable[[ImageTask, int], DividedImage]
) -> Iterator[Batch]:
    """Yield the batches of whole images and of tiles, in order."""
    opened: list[DividedImage] = []
    try:
        for start, end, is_divided in find_images(block):
            part = block.cut(start, end)
            if not is_divided:
                yield from _image_batches(part, split, estimate)
                continue
            sizes = estimate.estimate_block(part)[0].tolist()
            spans = list(batch_spans(sizes, [False] * len(part)))
            (first,) = image_tasks(Block(**dict(part.cut(0, 1).image_columns())), (split,))
            opened = [image for image in opened if not image.is_closed]
            divided = divide(first, len(spans))
            opened.append(divided)
            for first_row, last_row in spans:
                rows = part.cut(first_row, last_row)
                tasks = image_tasks(Block(**dict(rows.image_columns())), (split,))
                yield Batch(rows, 0, tasks, sum(sizes[first_row:last_row]), divided)
    except BaseException:  # GeneratorExit, too: batches that are cancelled never close their image
        for divided in opened:
            divided.close()
        raise


def _image_batches(block: Block, split: str, estimate: RecordEstimate) -> Iterator[Batch]:
    for start in range(0, len(block), _TASKS_AT_ONCE):
        part = block.cut(start, min(start + _TASKS_AT_ONCE, len(block)))
        tasks = image_tasks(Block(**dict(part.image_columns())), (split,))
        sizes = estimate.estimate_block(part)[0].tolist()
        for first, last in batch_spans(sizes, [is_remote(task.ref.path) for task in tasks]):
            yield Batch(part, first, tasks[first:last], sum(sizes[first:last]))


def batch_spans(sizes: Sequence[int], are_remote: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield start and end of batches of consecutive images, up to _BATCH_IMAGES and _BATCH_BYTES. With single local
    images, threads would spend a fifth of their time on getting tasks. An image in a bucket is its own batch.

    Args:
        sizes: Bytes of each image.

    >>> list(batch_spans([1_000_000, 1_500_000, 9, 9], [False, False, False, True]))
    [(0, 1), (1, 3), (3, 4)]
    """
    start = total = 0
    for row, (size, in_bucket) in enumerate(zip(sizes, are_remote, strict=True)):
        if row > start and (row - start == _BATCH_IMAGES or total + size > _BATCH_BYTES or in_bucket):
            yield start, row
            start, total = row, 0
        total += size
    if sizes:
        yield start, len(sizes)
