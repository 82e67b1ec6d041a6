"""Records of images, what is known of them besides, and the protocol of what makes them."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.annotations import TableRow
from recordmill.schemas.inputs.images import MAX_RECORD_BYTES, ImageTask, Picture, Transcoding
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import is_of_picture
from recordmill.schemas.rejects import REWRITTEN_FROM, Metric, Reason, Rejected, UnusableError
from recordmill.transforms.blocks.image_facts import FactColumns, join_facts
from recordmill.transforms.dataset.record_view import RecordView
from recordmill.transforms.images.open_picture import encoded_channels
from recordmill.transforms.records.example import ExampleWriter, Record, merge_examples


class Encoded(NamedTuple):
    """The records of one image.

    Attributes:
        records: serialised tf.Examples.
        counted: what is in them.
        rejected: the annotations that are not.
        class_counts: objects of each class, or images, by class index.
        facts: of the image, for statistics; None without a record.
    """

    records: Collection[Record]
    counted: dict[Metric, int]
    rejected: list[Rejected]
    class_counts: dict[int, int] = {}
    facts: FactColumns | None = None


class EncodedRun(NamedTuple):
    """The records of some images, in order.

    Attributes:
        records: serialised tf.Examples, each joined when it is taken.
        facts: of the images that have a record; None if none has.
        records_per_image: int64 [N], of those images, 1 or more.
        counted: what is in the records.
        rejected: images and annotations that are not.
        class_counts: objects of each class, or images, by class index.
        images: number of images that are not rejected; those that an earlier shard counts are not among them.
        bytes: size of their files.
        rejected_bytes: size of each rejected image's file.
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


def check_size(size: int) -> None:
    """
    Raises:
        UnusableError: a record has so many bytes or more, which no reader takes.
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


class PictureRowEncoder:
    """Encodes images that rows name, one at a time.

    Args:
        labels: the classes that rows may be of.
        table: features of columns, which are encoded already, and of pictures.
    """

    def __init__(self, labels: LabelMap, table: FeatureTable):
        self._class_index = {category.name: index for index, category in enumerate(labels.categories)}
        features = tuple(filter(is_of_picture, table.features))
        self._writer = ExampleWriter(msgspec.structs.replace(table, features=features))
        self._class_source = table.class_source
        self._has_channels = any(feature.source == "image.channels" for feature in features)

    def encode(self, task: ImageTask, picture: Picture) -> Encoded | Rejected:
        """The record of a row with its picture; or why there is none.

        Raises:
            ValueError: no row of a table names the image.
        """
        row, name = task.labels.row, task.labels.class_name
        if row is None:
            raise ValueError("an image that no row names")
        try:
            record, values = self._record(row, task, picture)
        except UnusableError as fault:
            return task.rejected(fault.reason, fault.detail)
        counted: Counter[Metric] = Counter({Metric.IMAGES: 1})
        if picture.transcoding:
            counted += transcoding_counts(picture.transcoding, len(picture.data))
        class_counts = {}
        if name is not None:
            values[self._class_source] = self._class_index[name]
            class_counts[self._class_index[name]] = 1
        return Encoded(((record,),), dict(counted), [], class_counts, RecordView(values).facts(picture.measures))

    def _record(self, row: TableRow, task: ImageTask, picture: Picture) -> tuple[bytes, dict[str, Any]]:
        """The record, and the values of its picture."""
        check_size(len(picture.data) + len(row.record))
        values = {
            "image.encoded": picture.data,
            "image.file_name": task.file_name.encode(),
            "image.format": picture.format.encode(),
            "image.height": picture.height,
            "image.id": b"%d" % task.image_id,
            "image.pixels": picture.data,
            "image.sha256": picture.sha256.encode(),
            "image.width": picture.width,
        }
        if self._has_channels:
            values["image.channels"] = encoded_channels(picture.data, picture.format)
        record = merge_examples(row.record, self._writer.write(values))
        check_size(len(record))
        return record, values


Made = tuple[ImageTask, Encoded | Rejected]
"""An image with its records, or with why there are none."""

EncodeBlock = Callable[[Block, str], Iterator[EncodedRun]]
"""Makes the records of a Block's images, all of one split, in their order; its threads count nothing in Beam.

Raises:
    OSError: images cannot be read for another reason than that they are gone.
"""

_RUN_IMAGES = 8
"""Images of a run of those that are encoded one at a time: their records are held."""


class RecordContext(NamedTuple):
    """Context of records, besides images.

    Attributes:
        pool: its threads, `threads` of them, fetch and check images.
        output: folder of the data set.
    """

    labels: LabelMap
    table: FeatureTable
    pool: Executor
    threads: int
    output: str = ""


class RecordMaker(Protocol):
    """A frozen msgspec Struct with a tag: with labels and table it decides the records of an image."""

    def start(self, of: RecordContext) -> EncodeBlock:
        """Return the function that makes the records of a shard's images."""


def encode_runs(made: Iterator[Made]) -> Iterator[EncodedRun]:
    """Images that were encoded one at a time, as runs."""
    while run := list(islice(made, _RUN_IMAGES)):
        yield _run(run)


def _run(made: Iterable[Made]) -> EncodedRun:
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
