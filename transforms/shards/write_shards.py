"""Each shard is written by one worker: its images fetched ahead, checked, encoded, framed, and the file made visible
when it is whole.

This is the only step that sees image bytes, and they never leave it but into the file.
"""

import hashlib
import logging
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial

import apache_beam as beam
import msgspec
from apache_beam.pvalue import AsSingleton, PCollection

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.images import ImageTask, PictureRules
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import shard_names
from recordmill.schemas.manifest import state_folder
from recordmill.schemas.rejects import Count, Metric, Reason, Rejected
from recordmill.schemas.shards import ShardInfo, ShardKey, ShardResult
from recordmill.schemas.tfrecord import frame
from recordmill.transforms.examples.encode_examples import Encoded, ExampleEncoder
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.images.fetch_images import Fetch, fetch_file, fetch_for
from recordmill.transforms.images.load_images import load_image
from recordmill.transforms.runtime import progress
from recordmill.transforms.runtime.outputs import Written
from recordmill.transforms.shards.plan_shards import image_order
from recordmill.transforms.storage.interface import Storage, is_remote
from recordmill.transforms.storage.resolve import storage_for

_LOGGER = logging.getLogger(__name__)

BYTES_AHEAD = 64_000_000
"""Image bytes that are fetched before their record is written, at the most (one image may be larger)."""
_BATCH_IMAGES = 8
_BATCH_BYTES = 2_000_000
_WRITE_BYTES = 1 << 20
"""Records are written and hashed in pieces of about this size: fewer turns at the interpreter's lock."""

_MAY_PASS = (Reason.IMAGE_MISSING, Reason.IMAGE_INACCESSIBLE)
"""Why an image was rejected that may be had now: it has been listed again as it was."""

_GZIP_LEVEL = 1  # of zlib, see docs/decisions/0003-gzip.md; higher ones are slower and no smaller on JPEGs
_GZIP_WINDOW = 31  # a gzip header, whose time is left at 0, around the largest window


class ShardRecipe(msgspec.Struct, frozen=True):
    """All that decides a shard's bytes, besides its images and labels; and where it goes.

    Attributes:
        output: folder of the data set; `name` begins its files' names.
        seed: orders the records.
        layout: one of `recordmill.schemas.layouts.LAYOUTS`.
        boxes: policy, see `recordmill.transforms.examples.boxes.fit_box`.
        pictures: what is done with image files.
        format: of records and manifest, see `recordmill.schemas.manifest.FORMAT`.
    """

    output: str
    name: str
    seed: int
    layout: str
    gzip: bool
    boxes: str
    pictures: PictureRules
    format: int


class WriteShards(beam.PTransform):
    """ShardPlans become Written.

    Args:
        labels, table: PCollections of one LabelMap, and one FeatureTable.
        threads: that fetch and check images.
    """

    def __init__(self, labels: PCollection, table: PCollection, recipe: ShardRecipe, threads: int):
        super().__init__()
        self._labels = labels
        self._table = table
        self._recipe = recipe
        self._threads = threads

    def expand(self, plans):
        sides = AsSingleton(self._labels), AsSingleton(self._table)
        write = _WriteShard(self._recipe, self._threads)
        full = plans.placed | "GroupByShard" >> beam.GroupByKey()  # (ShardKey, [ImageTask])
        empty = plans.empty | "NoImages" >> beam.Map(_without_images)
        results = (
            full | "Write" >> beam.ParDo(write, *sides),
            empty | "WriteEmpty" >> beam.ParDo(write, *sides),
        ) | "Results" >> beam.Flatten()
        return Written(
            results | "Shards" >> beam.Map(_shard),
            results | "Counted" >> beam.FlatMap(_counted),
            results | "Rejected" >> beam.FlatMap(_rejected),
        )


def _shard(result: ShardResult) -> tuple[str, ShardInfo]:
    return result.key.split, result.info


def _counted(result: ShardResult) -> list[tuple[str, Count]]:
    return [(result.key.split, Count(tally, number)) for tally, number in result.counted.items()]


def _rejected(result: ShardResult) -> list[tuple[str, Rejected]]:
    return [(result.key.split, reject) for reject in result.rejected]


def _without_images(key: ShardKey) -> tuple[ShardKey, list[ImageTask]]:
    return key, []


class _WriteShard(beam.DoFn):
    """Holds the threads that fetch and check images."""

    def __init__(self, recipe: ShardRecipe, threads: int):
        self._recipe = recipe
        self._threads = threads

    def setup(self):
        self._pool = ThreadPoolExecutor(self._threads, "fetch")

    def process(
        self, group: tuple[ShardKey, Iterable[ImageTask]], labels: LabelMap, table: FeatureTable
    ) -> Iterator[ShardResult]:
        key, tasks = group
        yield finish_shard(key, tasks, self._recipe, labels, table, self._pool, self._threads)

    def teardown(self):
        self._pool.shutdown(cancel_futures=True)


def finish_shard(
    key: ShardKey,
    tasks: Iterable[ImageTask],
    recipe: ShardRecipe,
    labels: LabelMap,
    table: FeatureTable,
    pool: Executor,
    threads: int,
) -> ShardResult:
    """Write a shard, or find that an earlier run has: it left a ShardResult of the same plan, and the file is there.

    Raises:
        OSError: the output cannot be written, or images cannot be read for another reason than that they are gone.
    """
    ordered = sorted(tasks, key=lambda task: image_order(recipe.seed, task.image_id))
    plan = plan_digest(key, ordered, recipe, labels, table)
    storage = storage_for(recipe.output)
    state = state_path(storage, recipe, key)
    if done := _finished(storage, recipe, state, plan):
        _LOGGER.info("%s is there already, with %d examples", done.info.file, done.info.examples)
        first = [task for task in ordered if not task.is_continuation]
        progress.skipped_images(len(first), sum(task.ref.size_bytes for task in first))
    else:
        done = _write_shard(key, ordered, plan, recipe, labels, table, pool, threads)
        storage.write(state, msgspec.json.encode(done))
    progress.finished_shard()
    return done


def plan_digest(
    key: ShardKey, tasks: list[ImageTask], recipe: ShardRecipe, labels: LabelMap, table: FeatureTable
) -> str:
    """What is to be written, as a hex digest: equal plans give equal bytes as long as the image files stay as they
    were listed."""
    parts = (key, tasks, msgspec.structs.replace(recipe, output=""), labels, table)
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).hexdigest()


def state_path(storage: Storage, recipe: ShardRecipe, key: ShardKey) -> str:
    """Where a finished shard's ShardResult is kept until the manifest is written."""
    names = shard_names(recipe.name, key.split, recipe.layout)
    return storage.join(recipe.output, f"{state_folder(key.split)}/{names.stable(key)}.json")


def _finished(storage: Storage, recipe: ShardRecipe, state: str, plan: str) -> ShardResult | None:
    if storage.size(state) is None:
        return None
    try:
        result = msgspec.json.decode(storage.read(state), type=ShardResult)
    except (msgspec.DecodeError, UnicodeDecodeError, FileNotFoundError):  # another run may be done just now
        return None
    if any(reject.reason in _MAY_PASS for reject in result.rejected):
        return None
    written = storage.size(storage.join(recipe.output, result.info.file))
    return result if result.plan == plan and written == result.info.bytes else None


def _write_shard(
    key: ShardKey,
    tasks: list[ImageTask],
    plan: str,
    recipe: ShardRecipe,
    labels: LabelMap,
    table: FeatureTable,
    pool: Executor,
    threads: int,
) -> ShardResult:
    encoder = ExampleEncoder(labels, table, recipe.boxes)
    prepare = partial(prepare_batch, encoder=encoder, rules=recipe.pictures, fetch=fetch_for(tasks))
    size_of = RecordEstimate(table).bytes
    counted: Counter[Metric] = Counter()
    rejected: list[Rejected] = []
    with ShardFile(recipe, key) as shard:
        for task, prepared in prepare_ahead(tasks, prepare, pool, threads, size_of):
            if isinstance(prepared, Rejected) and task.is_continuation:
                counted[Metric.OF_REJECTED_IMAGES] += prepared.annotations
                continue
            if isinstance(prepared, Rejected):
                rejected.append(prepared)
                progress.rejected_image(task.ref.size_bytes)
                continue
            for record in prepared.records:
                shard.append(record)
            rejected += prepared.rejected
            counted.update(prepared.counted)
            if not task.is_continuation:
                progress.wrote_image(task.ref.size_bytes)
    for reject in rejected:
        progress.rejected(reject)
    info = ShardInfo(shard.name, shard.examples, shard.size, shard.digest)
    return ShardResult(key, plan, info, dict(counted), tuple(rejected))


Prepared = tuple[ImageTask, Encoded | Rejected]


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
        prepared.append((task, loaded if isinstance(loaded, Rejected) else encoder.encode(task, loaded)))
    return prepared


_NO_RECORD = Encoded((), {Metric.IMAGES_WITHOUT_RECORD: 1}, [])


def prepare_ahead(
    tasks: Iterable[ImageTask],
    prepare: Callable[[list[ImageTask]], list[Prepared]],
    pool: Executor,
    threads: int,
    size_of: Callable[[ImageTask], int],
) -> Iterator[Prepared]:
    """What `prepare` makes of the tasks, in order; threads of `pool` work ahead, but not beyond BYTES_AHEAD by
    `size_of`."""
    waiting: deque[tuple[int, Future]] = deque()
    bytes_ahead = 0
    try:
        for batch in batches(tasks, size_of):
            size = sum(map(size_of, batch))
            while waiting and (bytes_ahead + size > BYTES_AHEAD or len(waiting) >= 2 * threads):
                oldest, future = waiting.popleft()
                bytes_ahead -= oldest
                yield from future.result()
            waiting.append((size, pool.submit(prepare, batch)))
            bytes_ahead += size
        while waiting:
            yield from waiting.popleft()[1].result()
    finally:
        for _, future in waiting:
            future.cancel()


def batches(tasks: Iterable[ImageTask], size_of: Callable[[ImageTask], int]) -> Iterator[list[ImageTask]]:
    """Neighbours together, up to _BATCH_IMAGES of them and _BATCH_BYTES: a thread that is handed single local images
    spends a fifth of its time on being handed them. Images of buckets are alone, so that each thread has one."""
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


class ShardFile:
    """A TFRecord file being written. It appears when the `with` block ends well, and not at all when it does not.

    Attributes:
        name: of the file, `size` its bytes, and `digest` its hex SHA-256; once the block has ended.
        examples: records that were appended.
    """

    def __init__(self, recipe: ShardRecipe, key: ShardKey):
        self._recipe = recipe
        self._key = key
        self._names = shard_names(recipe.name, key.split, recipe.layout)
        self._storage = storage_for(recipe.output)
        self._upload = self._storage.create(self._storage.join(recipe.output, self._names.stable(key)))
        self._gzip = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW) if recipe.gzip else None
        self._sha256 = hashlib.sha256()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self.name = ""
        self.size = 0
        self.digest = ""
        self.examples = 0

    def append(self, record: bytes) -> None:
        self.examples += 1
        before, after = frame(record)
        self._pending += (before, record, after)
        self._pending_bytes += len(before) + len(record) + len(after)
        if self._pending_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        self._write(self._gzip.compress(data) if self._gzip else data)

    def _write(self, data: bytes) -> None:
        self._upload.write(data)
        self._sha256.update(data)
        self.size += len(data)

    def __enter__(self) -> "ShardFile":
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            if error_type is None:
                self._flush()
                if self._gzip:
                    self._write(self._gzip.flush())
                self.digest = self._sha256.hexdigest()
                self.name = self._names.file(self._key, self.examples, self._recipe.gzip)
                self._upload.commit(self._storage.join(self._recipe.output, self.name))
        finally:
            self._upload.abandon()  # nothing to do after a commit
