"""Write shards: encode records, and commit the file. A shard that an earlier run has finished is kept.

Each shard is written by one worker. No other step reads image bytes, and they go to the shard only."""

import hashlib
import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import chain
from typing import Any

import apache_beam as beam
import msgspec
import numpy as np
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from recordmill.schemas.block import Block, Ragged, join_blocks, starts_of
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.image_records import ShardImages
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import has_image, shard_names
from recordmill.schemas.problems import Fingerprints
from recordmill.schemas.rejects import Metric, Rejected
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult, parse_shard_name
from recordmill.schemas.sizes import number_text
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.blocks.image_facts import (
    NO_OFFSET,
    FactColumns,
    FieldItems,
    RecordPlaces,
    join_facts,
    sort_objects,
)
from recordmill.transforms.blocks.image_tasks import NO_IMAGES
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_in_order, image_order
from recordmill.transforms.containers.container import Contents, container_of
from recordmill.transforms.containers.tfrecord import TFRecordReader
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.insight.count_images import ImageCounter
from recordmill.transforms.insight.fingerprint_images import ImageFingerprints
from recordmill.transforms.insight.list_problems import worst_problems
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import library_versions, pack
from recordmill.transforms.runtime.processes import ShardDoFn
from recordmill.transforms.shards.image_records import ImageRecords, shard_images, whole_names
from recordmill.transforms.shards.shard_file import (
    FinishedShards,
    ShardFile,
    ShardRecipe,
    WrittenShard,
    shard_folders,
    write_index,
    written_shard,
)
from recordmill.transforms.storage.resolve import join_path, storage_for

_LOGGER = logging.getLogger(__name__)

_COUNTED_IMAGES = 1000
"""Number of images that are counted together: NumPy takes as long for one as for hundreds."""


def ordered_block(packed: Iterable[bytes], seed: int) -> Block:
    """Join the packed Blocks of a shard, in any order, to one Block of its images in order."""
    blocks = [unpack_block(data) for data in packed if data]
    if len(blocks) < 2:
        return blocks[0] if blocks else NO_IMAGES
    # Each Block is in order, and no other Block has images between its images.
    firsts = join_blocks([block.cut(0, 1) for block in blocks])
    order = image_order(firsts, hash_in_order(firsts, seed))
    return join_blocks([blocks[index] for index in order.tolist()])


# Long list of arguments: what determines the records, the images, threads, and the plan's estimate.
def write_shard(
    recipe: ShardRecipe,
    labels: LabelMap,
    table: FeatureTable,
    key: ShardKey,
    packed: Iterable[bytes],
    pool: Executor,
    threads: int,
    estimate: RecordEstimate | None = None,
) -> WrittenShard:
    """Write a shard, unless an earlier run has finished it: there is a note with the same plan and versions, and a file
    with the same checksum.

    Args:
        packed: Blocks of the shard's images, in any order.
        pool: Threads that fetch and check images; there are `threads` of them.
        estimate: Estimate with which the shards were planned; None if the result has no ShardImages.

    Raises:
        EndedElsewhereError: See `recordmill.transforms.table.spill_rows.read_piece`.
        OSError: The output cannot be written, or images cannot be read, for a reason other than missing files.
    """
    block = ordered_block(packed, recipe.seed)
    block = block.replace(split=np.zeros(len(block), np.int64))
    context = RecordContext(labels, table, pool, threads, recipe.output)
    plan = plan_digest(key, block, recipe, context)
    notes = FinishedShards(recipe.output, recipe.name, recipe.layout, recipe.container)
    if finished := notes.find(key, plan):
        written, result = finished
        _LOGGER.info("%s already exists, with %d examples", result.info.file, result.info.examples)
        continued = 0 if block.is_continuation is None else int(block.is_continuation.sum())
        progress.count_skipped_images(result.info.examples if block.rows is not None else len(block) - continued)
    else:
        written = notes.note(_write_records(key, block, plan, recipe, context, estimate))
    progress.count_finished_shard()
    return written


def plan_digest(key: ShardKey, block: Block, recipe: ShardRecipe, context: RecordContext) -> str:
    """Return a hex digest of a shard's plan. Equal digests give equal bytes, if the image files are unchanged. It does
    not depend on the Blocks of the images."""
    # msgspec omits a default by its identity, which a recipe of another process does not have.
    options = msgspec.structs.replace(recipe, output="", container=TFRECORD)
    digest = hashlib.sha256(pack((key, options, context.labels, context.table)))
    if recipe.container != TFRECORD:
        digest.update(recipe.container.encode())
    for name, column in chain(block.image_columns(), block.object_columns()):
        values = column.values if isinstance(column, Ragged) else column
        if values.any():  # a Block may lack a column without values
            digest.update(f"{name} {values.dtype.str}".encode())
            digest.update(values.tobytes())
            if isinstance(column, Ragged):
                digest.update(column.starts.tobytes())
    digest.update(block.objects_per_image.tobytes())
    return digest.hexdigest()


# More than forty lines: each of a run's findings is counted while its records are written.
def _write_records(
    key: ShardKey,
    block: Block,
    plan: str,
    recipe: ShardRecipe,
    context: RecordContext,
    estimate: RecordEstimate | None,
) -> ShardResult:
    counted: Counter[Metric] = Counter()
    classes: Counter[int] = Counter()
    rejected: list[Rejected] = []
    facts = _ShardFacts()
    images = ImageRecords(context.table) if estimate and has_image(context.table) else None
    encode = recipe.maker.start(context)
    offset, container = 0, container_of(recipe.container)
    with ShardFile(recipe, key, Contents(context.table, context.labels)) as shard:
        for run in encode(block, key.split):
            first = shard.examples
            for record in run.records:
                shard.append(*record)
                if images:
                    images.add_record(*record)
            lengths = shard.lengths(first)
            sizes = container.sizes_in_file(lengths)
            counted.update(run.counted)
            counted[Metric.RECORD_BYTES] += int(lengths.sum())
            classes.update(run.class_counts)
            rejected += run.rejected
            if run.facts:
                facts.add(run.facts, locate_records(run.records_per_image, first, offset, sizes), run.fields)
                if images:
                    images.add_images(run.facts, run.records_per_image)
            offset += 0 if sizes is None else int(sizes.sum())
            progress.count_written_images(run.images, run.bytes)
            for size in run.rejected_bytes:
                progress.count_rejected_image(size)
        if not shard.examples and key.split in recipe.first_shards:
            shard.drop()
        elif not shard.examples and not CONTAINERS[recipe.container].can_be_empty:
            raise ConfigError(_empty_shard_text(key, rejected, recipe.container))
    for reject in rejected:
        progress.count_reject(reject)
    facts.count()
    return ShardResult(
        key,
        plan,
        library_versions(recipe.layout, recipe.container),
        shard.info,
        dict(+counted),
        tuple(rejected),
        # For rows without images, only their number is counted.
        facts.images.statistics(shard.info.file) if block.rows is None else Statistics(shard.examples),
        dict(classes),
        facts.fingerprints_of(shard.info.file) if has_image(context.table) else None,
        images=_shard_images(shard.info.file, block, images, estimate) if images and estimate else None,
    )


def _shard_images(shard: str, block: Block, images: ImageRecords, estimate: RecordEstimate) -> ShardImages:
    sources = None if block.tile_xy_px is None else whole_names(block)
    return shard_images(shard, block.file_name.texts(), *images.rows(block, estimate), sources)


def _empty_shard_text(key: ShardKey, rejected: Sequence[Rejected], container: str) -> str:
    """Return the error of a shard without records in a container that needs one."""
    images = [reject for reject in rejected if reject.what == "image"]
    why = ""
    if images:
        why = f": {number_text(len(images), 'image')} rejected, the first: {images[0].detail}"
    fewer = f", or use a smaller --num-shards than {key.count}" if key.count > 1 else ""
    return (
        f"shard {key.index} of {key.split} has no records{why}. --container {container} has no empty shards, because "
        f"readers fail at them. Fix or exclude such images{fewer}"
    )


def locate_records(records_per_image: np.ndarray, first: int, offset: int, sizes: np.ndarray | None) -> RecordPlaces:
    """Return the positions of the records of consecutive images.

    Args:
        records_per_image: int64 [N].
        first, offset: Index and offset of the first record in the shard.
        sizes: int64, size of each record in the file in bytes; None if the container has no byte ranges.

    >>> locate_records(np.array([1, 2]), first=7, offset=900, sizes=np.array([30, 40, 50]))
    RecordPlaces(record=array([7, 8]), records=array([1, 2]), offset=array([900, 930]), bytes=array([30, 90]))
    """
    rows = starts_of(records_per_image)
    numbers = first + rows[:-1], np.asarray(records_per_image)
    if sizes is None:
        return RecordPlaces(*numbers, np.full_like(rows[:-1], NO_OFFSET), np.zeros_like(rows[:-1]))
    starts = starts_of(sizes)[rows]
    return RecordPlaces(*numbers, offset + starts[:-1], np.diff(starts))


class _ShardFacts:
    """Statistics, fingerprints and possible problems of a shard's images."""

    def __init__(self) -> None:
        self.images, self._fingerprints = ImageCounter(), ImageFingerprints()
        self._facts: list[FactColumns] = []
        self._places: list[RecordPlaces] = []
        self._fields: dict[str, list[FieldItems]] = {}

    def add(self, facts: FactColumns, places: RecordPlaces, fields: Mapping[str, FieldItems]) -> None:
        self._facts.append(facts)
        self._places.append(places)
        for source, items in fields.items():
            self._fields.setdefault(source, []).append(items)
        if sum(map(len, self._facts)) >= _COUNTED_IMAGES:
            self.count()

    def count(self) -> None:
        """Count the images that were added since the last call."""
        if not self._facts:
            return
        facts = join_facts(self._facts)
        places = RecordPlaces(*map(np.concatenate, zip(*self._places, strict=True)))
        objects = None if facts.first_object_of_image is None else sort_objects(facts)
        self.images.add(facts, places, objects, self._fields)
        self._fingerprints.add(facts, places)
        self._facts, self._places, self._fields = [], [], {}

    def fingerprints_of(self, shard: str) -> Fingerprints:
        """Return the fingerprints of all images, with their problems; `shard` is the name of the file."""
        fingerprints = self._fingerprints.collect(shard)
        return msgspec.structs.replace(fingerprints, problems=worst_problems(self.images.problems))


class WriteShards(beam.PTransform):
    """Convert (ShardKey, packed Block) to WrittenShard; empty ones have b"".

    Args:
        checked: A PCollection of one element. Images are read only after it.
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        threads: Number of threads that fetch and check images; None for the number of cores where a shard is written.
        estimate: See `write_shard`.
    """

    def __init__(
        self,
        checked: PCollection,
        labels: PCollection,
        table: PCollection,
        recipe: ShardRecipe,
        threads: int | None,
        estimate: RecordEstimate | None = None,
    ):
        super().__init__()
        self._sides = AsSingleton(labels), AsSingleton(table), AsSingleton(checked)
        self._recipe, self._threads, self._estimate = recipe, threads, estimate

    def expand(self, placed: PCollection[tuple[ShardKey, bytes]]):
        write = beam.ParDo(_WriteShard(self._recipe, self._threads, self._estimate), *self._sides)
        grouped = placed | "GroupByShard" >> beam.GroupByKey()  # (ShardKey, [packed Block])
        return grouped | "Write" >> write.with_output_types(WrittenShard)


class _WriteShard(ShardDoFn):
    def __init__(self, recipe: ShardRecipe, threads: int | None, estimate: RecordEstimate | None = None):
        super().__init__(threads)
        self._recipe, self._write = recipe, partial(write_shard, estimate=estimate)

    def process(
        self, group: tuple[ShardKey, Iterable[bytes]], labels: LabelMap, table: FeatureTable, _: object
    ) -> Iterator[WrittenShard]:
        key, packed = group
        folders = shard_folders(self._recipe, key.split)
        arguments = self._recipe, labels, table, key, list(packed)
        shards = key.count - self._recipe.first_shards.get(key.split, 0)
        yield from self.do(self._write, *arguments, shards=shards, folders=folders)


_RUNS = "runs"


class _MakeRecords(_WriteShard):
    """Convert (ShardKey, [packed Block]) to (split, record) and, tagged _RUNS, a WrittenShard for each run."""

    def process(
        self, group: tuple[ShardKey, Iterable[bytes]], labels: LabelMap, table: FeatureTable, _: object
    ) -> Iterator[Any]:
        key, recipe = group[0], self._recipe
        block = ordered_block(group[1], recipe.seed)
        encode = recipe.maker.start(RecordContext(labels, table, self.pool, self.threads, recipe.output))
        for run in encode(block.replace(split=np.zeros(len(block), np.int64)), key.split):
            for reject in run.rejected:
                progress.count_reject(reject)
            lengths = []
            for record in map(b"".join, run.records):
                lengths.append(len(record))
                yield key.split, record
            counted = dict(+run.counted) | {Metric.RECORD_BYTES: sum(lengths)}
            rest = counted, tuple(run.rejected), Statistics(), run.class_counts
            result = ShardResult(key, "", {}, ShardInfo("", 0, 0, "", ""), *rest)
            yield TaggedOutput(_RUNS, written_shard("", result))


class WriteWithBeam(WriteShards):
    """Convert like WriteShards, but write with Beam's sink to the state folders of the splits.

    Args:
        arguments: Arguments of WriteShards.
        num_shards: Number of shards of each split; None if the runner chooses.
    """

    def __init__(self, *arguments: Any, splits: Sequence[str], num_shards: int | None):
        super().__init__(*arguments)
        self._splits, self._num_shards = splits, num_shards

    def expand(self, placed: PCollection[tuple[ShardKey, bytes]]):
        _LOGGER.warning(
            "--writer beam: a job that is stopped starts from the beginning; no statistics, no search for duplicates"
        )
        make = beam.ParDo(_MakeRecords(self._recipe, self._threads), *self._sides).with_outputs(_RUNS, main="records")
        made = placed | "GroupByShard" >> beam.GroupByKey() | "MakeRecords" >> make
        return (made[_RUNS], *(self._write(made.records, split) for split in self._splits)) | "All" >> beam.Flatten()

    def _write(self, records: PCollection, split: str) -> PCollection:
        names = shard_names(self._recipe.name, split, self._recipe.layout, TFRECORD)
        name = names.stable(ShardKey(split, 0, 1)).removesuffix("-00000-of-00001")  # which Beam appends
        path = join_path(self._recipe.output, f"{state_folder(split)}/{name}")
        suffix = ".gz" if self._recipe.gzip else ""  # makes Beam compress
        sink = beam.io.WriteToTFRecord(path, file_name_suffix=suffix, num_shards=self._num_shards or 0)
        select = beam.FlatMapTuple(lambda name, record: [record] * (name == split)).with_output_types(bytes)
        note = beam.Map(_note_beam_shard, split, self._recipe).with_output_types(Any)
        return records | f"Of-{split}" >> select | f"Write-{split}" >> sink | f"Note-{split}" >> note


def _note_beam_shard(path: str, split: str, recipe: ShardRecipe) -> TimestampedValue:
    """Read a shard, write its index and its note."""
    reader, file = TFRecordReader(path), path.rsplit("/", 1)[-1]
    deque(reader.records(), maxlen=0)
    index = msgspec.UNSET if recipe.gzip else write_index(path, reader.index())
    checksums = storage_for(path).checksum(path)[1], reader.sha256.hexdigest()
    progress.count_finished_shard()
    info = ShardInfo(file, reader.examples, reader.size, *checksums, index)
    result = ShardResult(
        parse_shard_name(split, file), "", library_versions(recipe.layout), info, {}, (), Statistics(reader.examples)
    )
    # Beam emits names at the end of the window, when Prism takes side inputs as complete.
    notes = FinishedShards(recipe.output, recipe.name, recipe.layout, recipe.container)
    return TimestampedValue(notes.note(result), MIN_TIMESTAMP)
