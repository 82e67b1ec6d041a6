"""What makes the records of a shard's images: one interface, whatever is in the records."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from itertools import chain, islice
from typing import NamedTuple, Protocol

import numpy as np

from recordmill.schemas.block import Block
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.image_facts import join_facts
from recordmill.schemas.images import ImageTask
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.rejects import Metric, Rejected
from recordmill.transforms.examples.encoded import Encoded, EncodedRun

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
    """Of what records are made besides images.

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
