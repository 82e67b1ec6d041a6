"""Read finished shards and compare them with their manifest. Every record is parsed, every image decoded."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import chain, islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.dataset.checks import Check, Fault, ShardCheck
from recordmill.schemas.features import RecordOf
from recordmill.schemas.inputs.annotations import ImageLabels
from recordmill.schemas.inputs.encoders import EncoderInfo
from recordmill.schemas.inputs.images import ImageRef, ImageTask
from recordmill.schemas.layouts import is_image_feature
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.encoders.embed_images import EmbedImages, FeatureEncoder, embed_tasks
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.records.parse_record import RecordFault, RecordParser
from recordmill.transforms.records.read_shards import FaultList, ManifestShard, readable_records
from recordmill.transforms.records.record_file import ShardReader
from recordmill.transforms.records.shard_index import encode_index, index_file, index_lengths, index_path
from recordmill.transforms.records.tfrecord import framed_size
from recordmill.transforms.runtime.processes import ShardDoFn
from recordmill.transforms.runtime.progress import count_faults
from recordmill.transforms.runtime.threads import look_ahead
from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.resolve import join_path, storage_for
from recordmill.transforms.verify.check_records import RecordChecker, RowChecker


class Recomputing(msgspec.Struct, frozen=True):
    """Settings for recomputing features.

    Attributes:
        maker: Maker of the records.
        folders: Folders of the images.
        records: Number of first records per shard: a random sample, in the batches of the conversion.
        tolerance: Maximum difference, as a fraction of the largest number of a record.
    """

    maker: EmbedImages
    folders: tuple[str, ...]
    records: int
    tolerance: float


class Recomputed(NamedTuple):
    """Result of recomputed features.

    Attributes:
        features: Number of recomputed features.
        difference: Largest difference, as a fraction of the largest number of its record.
        faults: Faults with record numbers.
    """

    features: int
    difference: float
    faults: list[tuple[int, RecordFault]]


def recompute(records: Sequence[bytes], how: Recomputing, context: RecordContext) -> Recomputed:
    """Recompute the features of a shard's first records, which have no other faults."""
    found = list(map(RecordParser(context.table), records))
    tasks = [_task(number, values, how.folders) for number, values in enumerate(found)]
    faults = [(number, task) for number, task in enumerate(tasks) if not isinstance(task, ImageTask)]
    differences = []
    encoder = FeatureEncoder(context.labels, context.table, how.maker.dtype)
    pictures = [task for task in tasks if isinstance(task, ImageTask)]
    for task, made in embed_tasks(pictures, how.maker, context, encoder):
        number = task.image_id
        if isinstance(made, Rejected):
            faults.append((number, ("picture", f"{made.detail} ({made.reason.value})")))
            continue
        (record,) = made.records
        difference = _difference(found[number], RecordParser(context.table)(b"".join(record)))
        differences.append(difference)
        if difference > how.tolerance:
            detail = (
                f"{task.file_name!r}: the model makes other numbers of it, which differ by {difference:.2g} of the "
                f"largest where {how.tolerance:g} is tolerated: another model, weights, preprocessing or image made "
                "the record"
            )
            faults.append((number, ("feature_differs", detail)))
    return Recomputed(len(differences), max(differences, default=0.0), sorted(faults))


def _task(number: int, values: dict[str, Any], folders: Sequence[str]) -> ImageTask | RecordFault:
    """Return the task of a record's image, named by the record's number, or the fault that there is none."""
    name = values["image.file_name"].decode()
    for folder in () if name_fault(name) else folders:
        storage = storage_for(folder)
        if file := storage.stat(join_path(folder, name)):
            ref = ImageRef(file.path, file.size_bytes, file.version)
            labels = ImageLabels(class_name=values["image.class_name"].decode())
            return ImageTask(number, name, None, None, ref, "", (), labels)
    return "picture", f"{name!r} is not in {', '.join(folders)}; give the folder that has it by --images"


def _difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    first, second = _numbers(one), _numbers(other)
    largest = max(np.abs(first).max(initial=0), np.abs(second).max(initial=0))
    return float(np.abs(first - second).max(initial=0) / largest) if largest else 0.0


def _numbers(values: dict[str, Any]) -> np.ndarray:
    numbers = np.frombuffer(values["feature.bytes"], "<f2") if "feature.bytes" in values else values["feature.values"]
    return numbers.astype(np.float64)


_ROWS_AT_ONCE = 1024
"""Number of rows per call: small records are parsed a hundred times as fast together."""
_IMAGES_AT_ONCE = 8


class ShardToVerify(ManifestShard, frozen=True):
    """A shard, and what its records must satisfy.

    Attributes:
        boxes_inside: True if boxes must be within 0..1 (False if they were stored unchanged).
        encoders: Encoders of texts.
        check: Thoroughness of reading.
        recomputing: Settings for recomputing features; None to skip that.
    """

    boxes_inside: bool
    encoders: tuple[EncoderInfo, ...] = ()
    check: Check = Check.TENSORFLOW
    recomputing: Recomputing | None = None


class VerifyShard(ShardDoFn):
    """Convert each ShardToVerify to a ShardCheck.

    Args:
        threads: Number of threads that decode images; by default as many as there are cores where the shard is
            verified.
        shards: Number of all shards.
    """

    def __init__(self, threads: int | None, shards: int):
        super().__init__(threads)
        self._shards = shards

    def process(self, expected: ShardToVerify) -> Iterator[ShardCheck]:
        yield from self.do(verify_shard, expected, shards=self._shards)


def verify_shard(expected: ShardToVerify, pool: Executor, threads: int) -> ShardCheck:
    """Read a shard to its end, or to its first damaged record, and check every record."""
    reader = ShardReader(expected.path)
    file = expected.info.file
    check, at_once = _checker(expected)
    faults = FaultList()
    damage: list[Fault] = []
    objects = 0
    records = readable_records(expected, reader, damage)
    batches = iter(lambda: list(islice(records, at_once)), [])
    for number, (of_record, found) in enumerate(chain.from_iterable(look_ahead(check, batches, pool, threads))):
        objects += of_record
        faults.add(Fault(file, number, reason, detail) for reason, detail in found)
    again = Recomputed(0, 0.0, [])
    if expected.recomputing and not (faults.faults() or damage):
        first = list(islice(ShardReader(expected.path).records(), expected.recomputing.records))
        context = RecordContext(expected.labels, expected.table, pool, threads)
        again = recompute(first, expected.recomputing, context)
        faults.add(Fault(file, number, *fault) for number, fault in again.faults)
    if not damage:
        damage += index_faults(expected, reader)
    faults.add(damage)
    listed = faults.faults()
    count_faults(len(listed))
    record_bytes = sum(reader.lengths) - framed_size(0) * reader.examples
    counts = reader.examples, objects, record_bytes, reader.size
    return ShardCheck(expected.split, file, *counts, listed, again.features, again.difference)


def index_faults(expected: ManifestShard, reader: ShardReader) -> Iterator[Fault]:
    """Yield the faults of a shard's index. An index that was added later is not in the manifest."""
    file, path = index_file(expected.info.file), index_path(expected.path)
    is_listed = expected.info.index is not msgspec.UNSET
    try:
        found = storage_for(path).read(path)
    except FileNotFoundError:
        if is_listed:
            yield Fault(file, None, "missing", "it is gone; recordmill index writes it")
        return
    except UnreadableFileError:  # a damaged object, for example; other shards are still checked
        found = b""
    if found != encode_index(index_lengths(reader.lengths)):
        yield Fault(file, None, "index", "it is not the index of this shard; recordmill index writes it again")


def _checker(expected: ShardToVerify) -> tuple[Callable[[list[bytes]], list[tuple[int, list[RecordFault]]]], int]:
    """Return a function that returns the number of objects and the faults of each of several records, and the number of
    records per call."""
    arguments = expected.check, expected.table, expected.labels
    if expected.table.record_of is RecordOf.ROW:
        check_rows = RowChecker(*arguments, expected.encoders)
        at_once = _IMAGES_AT_ONCE if any(map(is_image_feature, expected.table.features)) else _ROWS_AT_ONCE
        return lambda records: [(0, faults) for faults in check_rows(records)], at_once
    check_record = RecordChecker(*arguments, expected.boxes_inside, expected.encoders)
    return lambda records: list(map(check_record, records)), 1
