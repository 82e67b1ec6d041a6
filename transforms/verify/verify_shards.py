"""Read finished shards and compare them with their manifest. Every record is parsed, every image decoded."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import chain, islice
from typing import Any

import msgspec
import numpy as np

from recordmill.schemas.dataset.checks import Check, Fault, ShardCheck
from recordmill.schemas.features import RecordOf
from recordmill.schemas.inputs.annotations import ImageLabels
from recordmill.schemas.inputs.encoders import EncoderInfo
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask
from recordmill.schemas.layouts import is_image_feature
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.containers.container import ShardReader
from recordmill.transforms.containers.read_shards import FaultList, ManifestShard, readable_records
from recordmill.transforms.encoders.embed_images import EmbedImages, FeatureEncoder, embed_tasks
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.records.parse_record import RecordFault, RecordParser
from recordmill.transforms.records.shard_index import index_file, index_path
from recordmill.transforms.runtime.processes import ListedShardDoFn
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


def recompute_features(
    records: Sequence[bytes], settings: Recomputing, context: RecordContext
) -> tuple[int, float, list[tuple[int, RecordFault]]]:
    """Recompute the features of a shard's first records, which have no other faults.

    Returns:
        Number of recomputed features; largest difference, as a fraction of the largest number of its record; and faults
        with record numbers.
    """
    parsed = list(map(RecordParser(context.table), records))
    tasks = [_image_task(number, values, settings.folders) for number, values in enumerate(parsed)]
    faults = [(number, task) for number, task in enumerate(tasks) if not isinstance(task, ImageTask)]
    differences = []
    encoder = FeatureEncoder(context.labels, context.table, settings.maker.dtype)
    image_tasks = [task for task in tasks if isinstance(task, ImageTask)]
    for task, outcome in embed_tasks(image_tasks, settings.maker, context, encoder):
        number = task.image_id
        if isinstance(outcome, Rejected):
            faults.append((number, ("picture", f"{outcome.detail} ({outcome.reason.value})")))
            continue
        (record,) = outcome.records
        difference = _relative_difference(parsed[number], RecordParser(context.table)(b"".join(record)))
        differences.append(difference)
        if difference > settings.tolerance:
            detail = (
                f"{task.file_name!r}: the recomputed feature differs by {difference:.2g} of the largest number; the "
                f"tolerance is {settings.tolerance:g}. The record was made with another model, weights, preprocessing "
                "or image"
            )
            faults.append((number, ("feature_differs", detail)))
    return len(differences), max(differences, default=0.0), sorted(faults)


def _image_task(number: int, values: dict[str, Any], folders: Sequence[str]) -> ImageTask | RecordFault:
    """Return the task of a record's image, with the record's number as its id; a fault if the image has no file."""
    name = values["image.file_name"].decode()
    for folder in () if name_fault(name) else folders:
        storage = storage_for(folder)
        if file := storage.stat(join_path(folder, name)):
            ref = ImageFile(file.path, file.size_bytes, file.version)
            labels = ImageLabels(class_name=values["image.class_name"].decode())
            return ImageTask(number, name, None, None, ref, "", (), labels)
    return "picture", f"{name!r} is not in {', '.join(folders)}. Name its folder with --images"


def _relative_difference(one: dict[str, Any], other: dict[str, Any]) -> float:
    first, second = _feature_numbers(one), _feature_numbers(other)
    largest = max(np.abs(first).max(initial=0), np.abs(second).max(initial=0))
    return float(np.abs(first - second).max(initial=0) / largest) if largest else 0.0


def _feature_numbers(values: dict[str, Any]) -> np.ndarray:
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


class VerifyShard(ListedShardDoFn):
    """Convert each ShardToVerify to a ShardCheck. Its threads decode images."""

    def process(self, expected: ShardToVerify) -> Iterator[ShardCheck]:
        yield from self.do(verify_shard, expected, shards=self._shards)


def verify_shard(expected: ShardToVerify, pool: Executor, threads: int) -> ShardCheck:
    """Read a shard to its end, or to its first damaged record, and check every record."""
    reader = expected.reader()
    file = expected.info.file
    check, batch_size = _make_checker(expected)
    faults = FaultList()
    damage: list[Fault] = []
    objects = 0
    records = readable_records(expected, reader, damage)
    batches = iter(lambda: list(islice(records, batch_size)), [])
    for number, (record_objects, record_faults) in enumerate(
        chain.from_iterable(look_ahead(check, batches, pool, threads))
    ):
        objects += record_objects
        faults.add(Fault(file, number, reason, detail) for reason, detail in record_faults)
    recomputed, difference = 0, 0.0
    if expected.recomputing and not (faults.faults() or damage):
        first = list(islice(expected.reader().records(), expected.recomputing.records))
        context = RecordContext(expected.labels, expected.table, pool, threads)
        recomputed, difference, feature_faults = recompute_features(first, expected.recomputing, context)
        faults.add(Fault(file, number, *fault) for number, fault in feature_faults)
    if not damage:
        damage += index_faults(expected, reader)
    faults.add(damage)
    fault_list = faults.faults()
    count_faults(len(fault_list))
    counts = reader.examples, objects, reader.record_bytes, reader.size
    return ShardCheck(expected.split, file, *counts, fault_list, recomputed, difference)


def index_faults(expected: ManifestShard, reader: ShardReader) -> Iterator[Fault]:
    """Yield the faults of a shard's index. An index that was added later is not in the manifest."""
    file, path = index_file(expected.info.file), index_path(expected.path)
    needed, is_listed = reader.index(), expected.info.index is not msgspec.UNSET
    try:
        data = storage_for(path).read(path)
    except FileNotFoundError:
        if is_listed:
            yield Fault(file, None, "missing", "it is missing; recordmill index writes it")
        return
    except UnreadableFileError:  # a damaged object, for example; other shards are still checked
        data = b""
    if data != needed:
        yield Fault(file, None, "index", "it is not the index of this shard; recordmill index writes it again")


def _make_checker(expected: ShardToVerify) -> tuple[Callable[[list[bytes]], list[tuple[int, list[RecordFault]]]], int]:
    """Return a function that returns the number of objects and the faults of each of several records, and the number of
    records per call."""
    arguments = expected.check, expected.table, expected.labels
    if expected.table.record_of is RecordOf.ROW:
        check_rows = RowChecker(*arguments, expected.encoders)
        batch_size = _IMAGES_AT_ONCE if any(map(is_image_feature, expected.table.features)) else _ROWS_AT_ONCE
        return lambda records: [(0, faults) for faults in check_rows(records)], batch_size
    check_record = RecordChecker(*arguments, expected.boxes_inside, expected.encoders)
    return lambda records: list(map(check_record, records)), 1
