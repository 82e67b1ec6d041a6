"""Records of images, and what is known of them besides."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from recordmill.schemas.example import Record
from recordmill.schemas.image_facts import FactColumns
from recordmill.schemas.images import Transcoding
from recordmill.schemas.limits import MAX_RECORD_BYTES
from recordmill.schemas.rejects import REWRITTEN_FROM, Metric, Reason, Rejected, UnusableError


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
