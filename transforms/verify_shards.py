"""Finished shards are read back and held against their manifest, every record, by TensorFlow itself."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import apache_beam as beam
import msgspec

from schemas.errors import RecordError
from schemas.features import FeatureTable, parse_spec
from schemas.layouts import LAYOUTS
from schemas.reports import Fault, ShardCheck
from schemas.shards import ShardInfo
from transforms.read_shards import ShardReader
from transforms.storage import storage_for


class Expected(msgspec.Struct, frozen=True):
    """A shard as the manifest describes it.

    Attributes:
        path: of the file.
        category_ids: of the data set's classes, by class index.
        boxes_inside: whether boxes must lie within 0..1 (not where they were kept as they came).
    """

    path: str
    split: str
    info: ShardInfo
    layout: str
    category_ids: tuple[int, ...]
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
    check = RecordChecker(LAYOUTS[expected.layout], expected.category_ids, expected.boxes_inside)
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


class RecordChecker:
    """Checks records of one layout. Imports TensorFlow."""

    def __init__(self, table: FeatureTable, category_ids: tuple[int, ...], boxes_inside: bool):
        self._table = table
        self._spec = parse_spec(table)
        self._category_ids = category_ids
        self._boxes_inside = boxes_inside

    def __call__(self, record: bytes) -> tuple[int, list[tuple[str, str]]]:
        """The number of objects in a record, and its faults as (reason, detail)."""
        import tensorflow as tf

        try:
            parsed = tf.io.parse_single_example(record, self._spec)
        except tf.errors.InvalidArgumentError as error:
            return 0, [("schema", _first_line(error))]
        values = {feature.source: parsed[feature.name].numpy() for feature in self._table.features}
        faults = [*self._image_faults(values), *self._object_faults(values)]
        return len(values["objects.id"]), faults

    def _image_faults(self, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        import tensorflow as tf

        encoded = values["image.encoded"]
        if hashlib.sha256(encoded).hexdigest().encode() != values["image.sha256"]:
            yield "image_sha256", "the image's SHA-256 is not the record's"
        try:
            image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        except tf.errors.InvalidArgumentError as error:
            yield "image_undecodable", _first_line(error)
            return
        height, width = int(values["image.height"]), int(values["image.width"])
        if image.shape != (height, width, 3):
            yield "image_size", f"decodes to {image.shape[1]}x{image.shape[0]}, the record says {width}x{height}"

    def _object_faults(self, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        columns = {source: column for source, column in values.items() if source.startswith("objects.")}
        lengths = {source: len(column) for source, column in columns.items()}
        if len(set(lengths.values())) > 1:
            yield "object_lists", f"lists of one object each differ in length: {lengths}"
            return
        if self._boxes_inside:
            for edge in ("xmin", "xmax", "ymin", "ymax"):
                column = columns[f"objects.{edge}"]
                if not ((column >= 0) & (column <= 1)).all():
                    yield "box_range", f"{edge} outside 0..1: {column.min():g} .. {column.max():g}"
        for low, high in (("xmin", "xmax"), ("ymin", "ymax")):
            if not (columns[f"objects.{low}"] <= columns[f"objects.{high}"]).all():
                yield "box_order", f"a box has {low} beyond {high}"
        for index, id_ in zip(
            columns["objects.class_index"].tolist(), columns["objects.category_id"].tolist(), strict=True
        ):
            if not 0 <= index < len(self._category_ids) or self._category_ids[index] != id_:
                yield "class", f"category id {id_} with class index {index} is not in the manifest"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
