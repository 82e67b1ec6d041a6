"""What makes the records of a shard's images: one interface, whatever is in the records."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, Protocol

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.images import ImageTask
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.examples.encode_examples import Encoded
from recordmill.transforms.examples.estimate_records import RecordEstimate

Made = tuple[ImageTask, Encoded | Rejected]
"""An image with its records, or with why there are none."""


class RecordContext(NamedTuple):
    """Of what records are made besides images.

    Attributes:
        pool: its threads, `threads` of them, fetch and check images.
    """

    labels: LabelMap
    table: FeatureTable
    pool: Executor
    threads: int


class RecordMaker(Protocol):
    """A frozen msgspec Struct with a tag: with labels and table it decides the records of an image."""

    def estimate(self, table: FeatureTable) -> RecordEstimate:
        """Sizes of records, before images have been read."""

    def start(self, of: RecordContext) -> Callable[[Sequence[ImageTask]], Iterator[Made]]:
        """What makes the records of a shard's images, in their order; its threads count nothing in Beam.

        Raises:
            OSError: images cannot be read for another reason than that they are gone.
        """
