"""Records of images, counts and facts, and the RecordMaker protocol."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.annotations import TableRow
from recordmill.schemas.inputs.images import MAX_RECORD_BYTES, ImageTask, StoredImage, Transcoding
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import is_image_feature
from recordmill.schemas.rejects import REWRITTEN_FROM, Metric, Reason, Rejected, UnusableError
from recordmill.transforms.blocks.image_facts import FactColumns, FieldItems, join_facts
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.images.open_image import encoded_channels
from recordmill.transforms.records.example import ExampleWriter, Record, merge_examples


class Encoded(NamedTuple):
    """The records of one image.

    Attributes:
        records: Serialised tf.Examples.
        counted: Counts of the records' contents.
        rejected: Rejected annotations.
        class_counts: Number of objects, or images, by class index.
        facts: Facts of the image, for statistics; None without a record.
    """

    records: Collection[Record]
    counted: dict[Metric, int]
    rejected: list[Rejected]
    class_counts: dict[int, int] = {}
    facts: FactColumns | None = None


class EncodedRun(NamedTuple):
    """The records of some images, in order.

    Attributes:
        records: Serialised tf.Examples, each assembled when it is consumed.
        facts: Facts of the images with a record; None if there are none.
        records_per_image: int64 [N], 1 or more, for the images with a record.
        counted: Counts of the records' contents.
        rejected: Rejected images and annotations.
        class_counts: Number of objects, or images, by class index.
        images: Number of images that are not rejected, without those that an earlier shard counts.
        bytes: Size of the files of these images in bytes.
        rejected_bytes: Size of each rejected image's file in bytes.
        fields: Values of open fields, for statistics, by the source of their feature.
    """

    records: Iterable[Record]
    facts: FactColumns | None
    records_per_image: np.ndarray
    counted: Counter[Metric]
    rejected: list[Rejected]
    class_counts: dict[int, int]
    images: int
    bytes: int
    rejected_bytes: list[int]
    fields: Mapping[str, FieldItems] = MappingProxyType({})


def check_size(size: int) -> None:
    """Check the size of a record in bytes.

    Raises:
        UnusableError: The record is larger than readers accept.
    """
    if size > MAX_RECORD_BYTES:
        detail = f"its record would have {size:,} bytes or more; at most {MAX_RECORD_BYTES:,} are written"
        raise UnusableError(Reason.RECORD_TOO_LARGE, detail)


def transcoding_counts(transcoding: Transcoding, bytes_written: int) -> Counter[Metric]:
    return Counter(
        {
            REWRITTEN_FROM.get(transcoding.original, Metric.FROM_OTHER): 1,
            Metric.TURNED: int(transcoding.turned),
            Metric.SHRUNK: int(transcoding.shrunk),
            Metric.REWRITTEN_BYTES_READ: transcoding.bytes,
            Metric.REWRITTEN_BYTES: bytes_written,
        }
    )


class ImageRowEncoder:
    """Encoder of images of rows, one image at a time.

    Args:
        labels: The classes of rows.
        table: Features of columns, which are already encoded, and of images.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable):
        self._class_index = {category.name: index for index, category in enumerate(labels.categories)}
        features = tuple(filter(is_image_feature, table.features))
        self._writer = ExampleWriter(msgspec.structs.replace(table, features=features))
        self._class_source = table.class_source
        self._has_channels = any(feature.source == "image.channels" for feature in features)

    def encode(self, task: ImageTask, image: StoredImage) -> Encoded | Rejected:
        """Return a row's record with its image, or its reject.

        Raises:
            ValueError: No row of a table names the image.
        """
        row, name = task.labels.row, task.labels.class_name
        if row is None:
            raise ValueError("an image that no row names")
        try:
            record, values = self._record(row, task, image)
        except UnusableError as fault:
            return task.rejected(fault.reason, fault.detail)
        counted: Counter[Metric] = Counter({Metric.IMAGES: 1})
        if image.transcoding:
            counted += transcoding_counts(image.transcoding, len(image.data))
        class_counts = {}
        if name is not None:
            values[self._class_source] = self._class_index[name]
            class_counts[self._class_index[name]] = 1
        return Encoded(((record,),), dict(counted), [], class_counts, RecordView(values).facts(image.measures))

    def _record(self, row: TableRow, task: ImageTask, image: StoredImage) -> tuple[bytes, dict[str, Any]]:
        """Return the record, and the values of its image."""
        check_size(len(image.data) + len(row.record))
        values = {
            "image.encoded": image.data,
            "image.file_name": task.file_name.encode(),
            "image.format": image.format.encode(),
            "image.height": image.height,
            "image.id": b"%d" % task.image_id,
            "image.pixels": image.data,
            "image.sha256": image.sha256.encode(),
            "image.width": image.width,
        }
        if self._has_channels:
            values["image.channels"] = encoded_channels(image.data, image.format)
        record = merge_examples(row.record, self._writer.write(values))
        check_size(len(record))
        return record, values


Made = tuple[ImageTask, Encoded | Rejected]
"""An image with its records or its reject."""

EncodeBlock = Callable[[Block, str], Iterator[EncodedRun]]
"""Function that makes the records of a Block's images, all in one split, in order. Its threads use no Beam metrics.

Raises:
    OSError: Images cannot be read, for a reason other than missing files.
"""

_RUN_IMAGES = 8
"""Images per run if they are encoded one at a time. Their records are in memory."""


class RecordContext(NamedTuple):
    """Context that makers of records need in addition to images.

    Attributes:
        pool: Threads that fetch and check images; there are `threads` of them.
        output: Folder of the data set.
    """

    labels: LabelMap
    table: FeatureTable
    pool: Executor
    threads: int
    output: str = ""


class RecordMaker(Protocol):
    """Frozen msgspec Struct with a tag. Together with labels and table, it determines the records of an image."""

    def start(self, context: RecordContext) -> EncodeBlock:
        """Return the function that makes a shard's records."""


def encode_runs(made: Iterator[Made]) -> Iterator[EncodedRun]:
    """Group singly encoded images into runs."""
    while run := list(islice(made, _RUN_IMAGES)):
        yield _join_encoded(run)


def _join_encoded(made: Iterable[Made]) -> EncodedRun:
    counted: Counter[Metric] = Counter()
    classes: Counter[int] = Counter()
    rejected, rejected_bytes, written = [], [], []
    for task, encoded in made:
        if isinstance(encoded, Rejected):
            rejected.append(encoded)
            rejected_bytes.append(task.ref.size_bytes)
        else:
            written.append((task, encoded))
            counted.update(encoded.counted)
            classes.update(encoded.class_counts)
            rejected += encoded.rejected
    return EncodedRun(
        chain.from_iterable(encoded.records for _, encoded in written),
        join_facts([encoded.facts for _, encoded in written if encoded.facts]) if written else None,
        np.array([len(encoded.records) for _, encoded in written], np.int64),
        counted,
        rejected,
        classes,
        len(written),
        sum(task.ref.size_bytes for task, _ in written),
        rejected_bytes,
    )
