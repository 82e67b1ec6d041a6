"""Features of records are made again by their model, and compared within a tolerance: floats differ a little between
processors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.annotations import ImageLabels
from recordmill.schemas.images import ImageRef, ImageTask
from recordmill.schemas.names import name_fault
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.encoders.embed_pictures import EmbedPictures, FeatureEncoder, embed_tasks
from recordmill.transforms.encoders.record_maker import RecordContext
from recordmill.transforms.records.parse_record import RecordFault, RecordParser
from recordmill.transforms.storage.resolve import storage_for


class Recomputing(msgspec.Struct, frozen=True):
    """How features are made again.

    Attributes:
        maker: of the records.
        folders: where the pictures are.
        records: of each shard, the first: they are in a drawn order, and in the batches that they were made in.
        tolerance: how much of a record's largest number its numbers may differ by.
    """

    maker: EmbedPictures
    folders: tuple[str, ...]
    records: int
    tolerance: float


class Recomputed(NamedTuple):
    """What became of records whose features were to be made again.

    Attributes:
        features: how many were made.
        difference: the largest, of how much of a record's largest number its numbers differ by.
        faults: with the records' numbers.
    """

    features: int
    difference: float
    faults: list[tuple[int, RecordFault]]


def recompute(records: Sequence[bytes], how: Recomputing, of: RecordContext) -> Recomputed:
    """Make the features of a shard's first records again. `records` have no fault of their own."""
    found = list(map(RecordParser(of.table), records))
    tasks = [_task(number, values, how.folders) for number, values in enumerate(found)]
    faults = [(number, task) for number, task in enumerate(tasks) if not isinstance(task, ImageTask)]
    differences = []
    encoder = FeatureEncoder(of.labels, of.table, how.maker.dtype)
    pictures = [task for task in tasks if isinstance(task, ImageTask)]
    for task, made in embed_tasks(pictures, how.maker, of, encoder):
        number = task.image_id
        if isinstance(made, Rejected):
            faults.append((number, ("picture", f"{made.detail} ({made.reason.value})")))
            continue
        (record,) = made.records
        difference = _difference(found[number], RecordParser(of.table)(b"".join(record)))
        differences.append(difference)
        if difference > how.tolerance:
            detail = (
                f"{task.file_name!r}: the model makes other numbers of it, which differ by {difference:.2g} of the "
                f"largest where {how.tolerance:g} is tolerated: another model, weights, preprocessing or picture made "
                "the record"
            )
            faults.append((number, ("feature_differs", detail)))
    return Recomputed(len(differences), max(differences, default=0.0), sorted(faults))


def _task(number: int, values: dict[str, Any], folders: Sequence[str]) -> ImageTask | RecordFault:
    """A record's picture, called by the record's number; or that there is none."""
    name = values["image.file_name"].decode()
    for folder in () if name_fault(name) else folders:
        storage = storage_for(folder)
        if file := storage.stat(storage.join(folder, name)):
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
