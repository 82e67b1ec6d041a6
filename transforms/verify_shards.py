"""Finished shards are read back and held against their manifest, every record, by TensorFlow itself."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import apache_beam as beam
import msgspec

from schemas.errors import RecordError
from schemas.features import FeatureTable
from schemas.labels import LabelMap
from schemas.reports import Fault, ShardCheck
from schemas.shards import ShardInfo
from transforms.check_records import RecordChecker
from transforms.read_shards import ShardReader
from transforms.storage import storage_for


class Expected(msgspec.Struct, frozen=True):
    """A shard as the manifest describes it.

    Attributes:
        path: of the file.
        table: what is in its records.
        labels: the data set's classes.
        boxes_inside: whether boxes must lie within 0..1 (not where they were kept as they came).
    """

    path: str
    split: str
    info: ShardInfo
    table: FeatureTable
    labels: LabelMap
    boxes_inside: bool


class VerifyShards(beam.PTransform):
    """Expected become ShardCheck; `threads` decode images."""

    def __init__(self, threads: int):
        super().__init__()
        self._threads = threads

    def expand(self, expected):
        return expected | "SpreadShards" >> beam.Reshuffle() | "Verify" >> beam.ParDo(_VerifyShard(self._threads))


class _VerifyShard(beam.DoFn):
    """Holds the threads that decode."""

    def __init__(self, threads: int):
        self._threads = threads

    def setup(self):
        self._pool = ThreadPoolExecutor(self._threads, "verify")

    def process(self, expected: Expected) -> Iterator[ShardCheck]:
        yield verify_shard(expected, self._pool, self._threads)

    def teardown(self):
        self._pool.shutdown(cancel_futures=True)


def verify_shard(expected: Expected, pool: Executor, threads: int) -> ShardCheck:
    """Read a shard to its end, or to its first damaged record, and check every record."""
    reader = ShardReader(expected.path)
    file = expected.info.file
    faults: list[Fault] = []
    examples = objects = 0
    if storage_for(expected.path).size(expected.path) is None:
        return ShardCheck(expected.split, file, 0, 0, 0, (Fault(file, None, "missing", "no such file"),))
    try:
        for number, (count, record_faults) in enumerate(_checked(reader.records(), expected, pool, threads)):
            examples += 1
            objects += count
            faults += [Fault(file, number, reason, detail) for reason, detail in record_faults]
    except RecordError as error:
        faults.append(Fault(file, error.record, error.reason, error.detail))
    except (
        Exception
    ) as error:  # a damaged GZIP stream ends in one of several types; the file is named and verification goes on
        faults.append(Fault(file, None, "unreadable", f"{type(error).__name__}: {error}"))
    else:
        if examples != expected.info.examples:
            faults.append(Fault(file, None, "count", f"{examples} records, the manifest says {expected.info.examples}"))
        if reader.sha256.hexdigest() != expected.info.sha256:
            faults.append(Fault(file, None, "sha256", "the file's SHA-256 is not the manifest's"))
    return ShardCheck(expected.split, file, examples, objects, reader.size, tuple(faults))


def _checked(
    records: Iterable[bytes], expected: Expected, pool: Executor, threads: int
) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """What `check_record` says of each record, in order, some records ahead."""
    check = RecordChecker(expected.table, expected.labels, expected.boxes_inside)
    waiting: deque[Future] = deque()
    damage: Exception | None = None
    try:
        for record in records:
            waiting.append(pool.submit(check, record))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
    except Exception as error:  # raised again below, when what was read before it has been looked at
        damage = error
    for future in waiting:
        yield future.result()
    if damage:
        raise damage
