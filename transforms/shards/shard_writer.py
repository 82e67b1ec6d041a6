"""A shard from its plan to its file: images fetched ahead, checked, encoded, framed, and the file made visible when it
is whole. What an earlier run has finished is found and kept."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from itertools import chain

import msgspec

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.images import ImageTask, PictureRules
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.manifest import state_folder
from recordmill.schemas.rejects import Metric, Reason, Rejected
from recordmill.schemas.shards import ShardKey, ShardResult
from recordmill.transforms.examples.encode_examples import Encoded, ExampleEncoder
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.images.fetch_images import Fetch, fetch_file, fetch_for
from recordmill.transforms.images.load_images import load_image
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.look_ahead import look_ahead
from recordmill.transforms.runtime.made_by import made_by
from recordmill.transforms.shards.plan_shards import image_order
from recordmill.transforms.shards.shard_file import ShardFile, ShardRecipe, is_whole
from recordmill.transforms.storage.interface import is_remote
from recordmill.transforms.storage.resolve import storage_for

_LOGGER = logging.getLogger(__name__)

_BATCH_IMAGES = 8
_BATCH_BYTES = 2_000_000

_MAY_PASS = (Reason.IMAGE_MISSING, Reason.IMAGE_INACCESSIBLE, Reason.MASK_MISSING)
"""Reasons of rejects that may have passed since an earlier run, so that the shard is written again."""

Prepared = tuple[ImageTask, Encoded | Rejected]

_NO_RECORD = Encoded((), {Metric.IMAGES_WITHOUT_RECORD: 1}, [])


class ShardWriter:
    """Writes the shards of a job.

    Attributes:
        pool: its threads, `threads` of them, fetch and check images.
    """

    def __init__(self, recipe: ShardRecipe, labels: LabelMap, table: FeatureTable, pool: Executor, threads: int):
        self.recipe = recipe
        self.labels = labels
        self.table = table
        self.pool = pool
        self.threads = threads
        self._storage = storage_for(recipe.output)
        self._encoder = ExampleEncoder(labels, table, recipe.boxes)
        self._size_of = RecordEstimate(table, recipe.pictures.max_side).bytes

    def finish(self, key: ShardKey, tasks: Iterable[ImageTask]) -> ShardResult:
        """Write a shard, or find that an earlier run has: it left a ShardResult of the same plan and versions, and the
        file is there, with the same checksum.

        Raises:
            OSError: the output cannot be written, or images cannot be read for another reason than that they are gone.
        """
        ordered = sorted(tasks, key=lambda task: image_order(self.recipe.seed, task.image_id))
        plan = self.plan_digest(key, ordered)
        if done := self._finished(key, plan):
            _LOGGER.info("%s is there already, with %d examples", done.info.file, done.info.examples)
            progress.skipped_images(sum(not task.is_continuation for task in ordered))
        else:
            done = self._write(key, ordered, plan)
            self._storage.write(self._state_path(key), msgspec.json.encode(done))
        progress.finished_shard()
        return done

    def plan_digest(self, key: ShardKey, tasks: list[ImageTask]) -> str:
        """What is to be written, as a hex digest: equal plans give equal bytes as long as the image files stay as they
        were listed."""
        parts = (key, tasks, msgspec.structs.replace(self.recipe, output=""), self.labels, self.table)
        return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()

    def _state_path(self, key: ShardKey) -> str:
        """Where a finished shard's ShardResult is kept until the manifest is written."""
        names = shard_names(self.recipe.name, key.split, self.recipe.layout)
        return self._storage.join(self.recipe.output, f"{state_folder(key.split)}/{names.stable(key)}.json")

    def _finished(self, key: ShardKey, plan: str) -> ShardResult | None:
        state = self._state_path(key)
        if self._storage.size(state) is None:
            return None
        try:
            result = msgspec.json.decode(self._storage.read(state), type=ShardResult)
        except (msgspec.DecodeError, UnicodeDecodeError, FileNotFoundError):  # another run may be done just now
            return None
        if any(reject.reason in _MAY_PASS for reject in result.rejected):
            return None
        if (result.plan, result.made_by) != (plan, made_by()):
            return None
        # It has been moved already where the run was stopped as it ended.
        folders = (f"{state_folder(key.split)}/", "")
        files = (self._storage.join(self.recipe.output, f"{folder}{result.info.file}") for folder in folders)
        return result if any(is_whole(self._storage, file, result.info) for file in files) else None

    def _write(self, key: ShardKey, tasks: list[ImageTask], plan: str) -> ShardResult:
        counted: Counter[Metric] = Counter()
        classes: Counter[int] = Counter()
        rejected: list[Rejected] = []
        with ShardFile(self.recipe, key) as shard:
            for task, prepared in self._prepare_all(tasks):
                if isinstance(prepared, Rejected) and task.is_continuation:
                    counted[Metric.OF_REJECTED_IMAGES] += prepared.annotations
                    continue
                if isinstance(prepared, Rejected):
                    rejected.append(prepared)
                    progress.rejected_image(task.ref.size_bytes)
                    continue
                for record in prepared.records:
                    shard.append(record)
                    counted[Metric.RECORD_BYTES] += len(record)
                rejected += prepared.rejected
                counted.update(prepared.counted)
                classes.update(prepared.class_counts)
                if not task.is_continuation:
                    progress.wrote_image(0 if prepared is _NO_RECORD else task.ref.size_bytes)
        for reject in rejected:
            progress.rejected(reject)
        return ShardResult(key, plan, made_by(), shard.info, dict(counted), tuple(rejected), dict(classes))

    def _prepare_all(self, tasks: list[ImageTask]) -> Iterator[Prepared]:
        files = [file for task in tasks if self._encoder.wants_image(task) for file in task.files]
        prepare = partial(prepare_batch, encoder=self._encoder, rules=self.recipe.pictures, fetch=fetch_for(files))
        return chain.from_iterable(
            look_ahead(prepare, batches(tasks, self._size_of), self.pool, self.threads, self._bytes_of)
        )

    def _bytes_of(self, batch: list[ImageTask]) -> int:
        return sum(map(self._size_of, batch))


def prepare_batch(
    tasks: list[ImageTask], encoder: ExampleEncoder, rules: PictureRules, fetch: Fetch = fetch_file
) -> list[Prepared]:
    """Each task with its record, or with why there is none. Runs in a thread, so it counts nothing in Beam."""
    prepared: list[Prepared] = []
    for task in tasks:
        if not encoder.wants_image(task):
            prepared.append((task, _NO_RECORD))
            continue
        loaded = load_image(task, rules, fetch)
        prepared.append((task, loaded if isinstance(loaded, Rejected) else encoder.encode(task, loaded, fetch)))
    return prepared


def batches(tasks: Iterable[ImageTask], size_of: Callable[[ImageTask], int]) -> Iterator[list[ImageTask]]:
    """Batches of neighbours, up to _BATCH_IMAGES and _BATCH_BYTES: with single local images, threads would spend a
    fifth of their time on taking tasks. An image in a bucket is a batch of its own, so that each thread has one."""
    batch: list[ImageTask] = []
    size = 0
    for task in tasks:
        task_size = size_of(task)
        full = len(batch) == _BATCH_IMAGES or size + task_size > _BATCH_BYTES or is_remote(task.ref.path)
        if batch and full:
            yield batch
            batch, size = [], 0
        batch.append(task)
        size += task_size
    if batch:
        yield batch
