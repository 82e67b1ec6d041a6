"""A shard from its plan to its file: records made and framed, and the file made visible when it is whole. What an
earlier run has finished is found and kept."""

import ctypes
import gc
import hashlib
import logging
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain

import msgspec
import numpy as np

from recordmill.schemas.block import Block, Ragged, join_blocks, starts_of
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.image_facts import FactColumns, RecordPlaces, join_facts, sort_objects
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import has_picture
from recordmill.schemas.rejects import Metric, Rejected
from recordmill.schemas.shards import ShardKey, ShardResult
from recordmill.schemas.statistics import Statistics
from recordmill.schemas.tfrecord import FRAME_BYTES
from recordmill.transforms.blocks.image_tasks import NO_IMAGES
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.blocks.run_step import hash_images, image_order
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.insight.count_images import ImageCounter
from recordmill.transforms.insight.fingerprint_images import ImageFingerprints
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.beam_steps import made_by, pack
from recordmill.transforms.runtime.threads import usable_cores
from recordmill.transforms.shards.shard_file import FinishedShards, ShardFile, ShardRecipe, WrittenShard, folders_of
from recordmill.transforms.storage.resolve import storage_for

_LOGGER = logging.getLogger(__name__)

_COUNTED_IMAGES = 1000
"""Images that are counted together: NumPy takes as long for one as for hundreds."""


def ordered_block(packed: Iterable[bytes], seed: int) -> Block:
    """Join the packed Blocks of a shard, in any order, to one Block of its images in order."""
    blocks = [unpack_block(data) for data in packed if data]
    if len(blocks) < 2:
        return blocks[0] if blocks else NO_IMAGES
    # Each Block is in order, and no other Block has images between its images.
    firsts = join_blocks([block.cut(0, 1) for block in blocks])
    order = image_order(firsts, hash_images(firsts.image_id, seed))
    return join_blocks([blocks[index] for index in order.tolist()])


def write_shard(key: ShardKey, packed: Iterable[bytes], recipe: ShardRecipe, of: RecordContext) -> WrittenShard:
    """Write a shard, or find that an earlier run has: it left a note of the same plan and versions, and the file is
    there, with the same checksum.

    Args:
        packed: Blocks of the shard's images, in any order.

    Raises:
        EndedElsewhereError: see `recordmill.transforms.table.spill_file.read_piece`.
        OSError: the output cannot be written, or images cannot be read for another reason than that they are gone.
    """
    block = ordered_block(packed, recipe.seed)
    block = block.having(split=np.zeros(len(block), np.int64))
    plan, finished = plan_digest(key, block, recipe, of), FinishedShards(recipe.output, recipe.name, recipe.layout)
    if found := finished.find(key, plan):
        written, result = found
        _LOGGER.info("%s is there already, with %d examples", result.info.file, result.info.examples)
        continued = 0 if block.is_continuation is None else int(block.is_continuation.sum())
        progress.skipped_images(result.info.examples if block.rows is not None else len(block) - continued)
    else:
        written = finished.note(_write(key, block, plan, recipe, of))
    progress.finished_shard()
    return written


def plan_digest(key: ShardKey, block: Block, recipe: ShardRecipe, of: RecordContext) -> str:
    """What is to be written, as a hex digest: equal plans give equal bytes as long as the image files stay as they were
    listed. It does not depend on the Blocks that the images came in."""
    digest = hashlib.sha256(pack((key, msgspec.structs.replace(recipe, output=""), of.labels, of.table)))
    for name, column in chain(block.image_columns(), block.object_columns()):
        values = column.values if isinstance(column, Ragged) else column
        if values.any():  # a Block may lack a column without values
            digest.update(f"{name} {values.dtype.str}".encode())
            digest.update(values.tobytes())
            if isinstance(column, Ragged):
                digest.update(column.starts.tobytes())
    digest.update(block.objects_per_image.tobytes())
    return digest.hexdigest()


def _write(key: ShardKey, block: Block, plan: str, recipe: ShardRecipe, of: RecordContext) -> ShardResult:
    counted: Counter[Metric] = Counter()
    classes: Counter[int] = Counter()
    rejected: list[Rejected] = []
    facts = _ShardFacts()
    encode = recipe.maker.start(of)
    with ShardFile(recipe, key) as shard:
        for run in encode(block, key.split):
            first, offset = shard.examples, shard.framed_bytes
            for record in run.records:
                shard.append(*record)
            lengths = shard.lengths(first)
            counted.update(run.counted)
            counted[Metric.RECORD_BYTES] += int(lengths.sum()) - len(lengths) * FRAME_BYTES
            classes.update(run.class_counts)
            rejected += run.rejected
            if run.facts:
                facts.add(run.facts, find_places(run.records_per_image, lengths, first, offset))
            progress.wrote_images(run.images, run.bytes)
            for size in run.rejected_bytes:
                progress.rejected_image(size)
    for reject in rejected:
        progress.rejected(reject)
    facts.count()
    return ShardResult(
        key,
        plan,
        made_by(recipe.layout),
        shard.info,
        dict(+counted),
        tuple(rejected),
        # Of rows without pictures, nothing but their number is counted.
        facts.images.statistics(shard.info.file) if block.rows is None else Statistics(shard.examples),
        dict(classes),
        facts.fingerprints.of_shard(shard.info.file) if has_picture(of.table) else None,
    )


def find_places(records_per_image: np.ndarray, lengths: np.ndarray, first: int, offset: int) -> RecordPlaces:
    """Where the records of images are that follow each other.

    Args:
        records_per_image: int64 [N].
        lengths: int64, bytes of each framed record.
        first, offset: index and offset of the first record in the shard.

    >>> find_places(np.array([1, 2]), np.array([30, 40, 50]), first=7, offset=900)
    RecordPlaces(record=array([7, 8]), offset=array([900, 930]), bytes=array([30, 90]))
    """
    rows = starts_of(records_per_image)
    starts = starts_of(lengths)[rows]
    return RecordPlaces(first + rows[:-1], offset + starts[:-1], np.diff(starts))


class _ShardFacts:
    """Statistics and fingerprints of a shard's images, of many images at a time."""

    def __init__(self) -> None:
        self.images, self.fingerprints = ImageCounter(), ImageFingerprints()
        self._facts: list[FactColumns] = []
        self._places: list[RecordPlaces] = []

    def add(self, facts: FactColumns, places: RecordPlaces) -> None:
        self._facts.append(facts)
        self._places.append(places)
        if sum(map(len, self._facts)) >= _COUNTED_IMAGES:
            self.count()

    def count(self) -> None:
        """Count what was added since."""
        if not self._facts:
            return
        facts = join_facts(self._facts)
        places = RecordPlaces(*map(np.concatenate, zip(*self._places, strict=True)))
        objects = None if facts.first_object_of_image is None else sort_objects(facts)
        self.images.add(facts, places, objects)
        self.fingerprints.add(facts, places, objects)
        self._facts, self._places = [], []


_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h
_OF_PARENT = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""What interrupts a command: its process ends the others."""
_LARGE_BYTES = 8 << 20
"""What is known of a shard's images from which on memory that it leaves free is worth giving back."""
_THREADS_A_CORE = 2
"""One fetches and checks images while another waits for a disk, or for a process that has no shard left."""


class ShardProcesses:
    """Processes that each write one shard at a time.

    Attributes:
        number: how many.
    """

    def __init__(self, number: int, executor: ProcessPoolExecutor):
        self.number = number
        self._executor = executor
        self._folders: set[str] = set()

    def finish(
        self,
        recipe: ShardRecipe,
        labels: LabelMap,
        table: FeatureTable,
        threads: int | None,
        key: ShardKey,
        packed: list[bytes],
    ) -> "Future[WrittenShard]":
        """`write_shard` in one of them.

        Args:
            threads: that fetch and check images, in all; None for as many as there is work for.
        """
        at_once = min(self.number, key.count)
        self._folders |= folders_of(recipe, key.split)
        each = -(-(threads or _THREADS_A_CORE * usable_cores()) // at_once)
        return self._executor.submit(_finish, recipe, labels, table, each, key, packed)

    def end(self) -> None:
        """Kill them, wherever they are, and delete what they were writing."""
        children = multiprocessing.active_children()
        for process in children:
            process.kill()
        for process in children:
            process.join()
        self._executor.shutdown(cancel_futures=True)
        for folder in self._folders:
            with suppress(OSError):  # the error that ends the job is the one to be told; the next run deletes it
                storage_for(folder).delete_leftovers(folder)


_forked: ShardProcesses | None = None


def forked() -> ShardProcesses | None:
    """Those of the process that this is, if it has some."""
    return _forked


@contextmanager
def forking(number: int) -> Iterator[None]:
    """While the block runs, there are so many, forked as it begins. No other thread may be alive then."""
    global _forked
    gc.freeze()  # or each process would copy what its collector looks at
    progress.expect_forked()
    executor = ProcessPoolExecutor(number, multiprocessing.get_context("fork"), _begin, (os.getpid(),))
    processes = ShardProcesses(number, executor)
    try:
        with _held_back(_OF_PARENT):  # in them for good; here, a fork must not be interrupted halfway
            executor.submit(os.getpid)  # all are forked with the first task, before the executor has a thread
        _forked = processes
        yield
    finally:
        _forked = None
        processes.end()


@contextmanager
def _held_back(signals: set[signal.Signals]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int) -> None:
    """A process begins, which ends with its parent, however that ends."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    progress.is_forked()
    gc.enable()


def _finish(
    recipe: ShardRecipe, labels: LabelMap, table: FeatureTable, threads: int, key: ShardKey, packed: list[bytes]
) -> WrittenShard:
    with ThreadPoolExecutor(threads) as pool:
        written = write_shard(key, packed, recipe, RecordContext(labels, table, pool, threads, recipe.output))
    if sum(map(len, packed)) > _LARGE_BYTES:
        packed.clear()
        ctypes.CDLL(None).malloc_trim(0)  # glibc would keep it for a next shard, which there may not be
    return written
