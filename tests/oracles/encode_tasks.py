"""Images encoded by the encoder of Blocks, and one by one by the oracle."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.images import ImageTask, Picture
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import Metric, Rejected
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.encoders.encode_examples import ExampleEncoder, LoadedImage, with_objects
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.encoders.record_maker import EncodedRun
from tests.oracles import encode_examples
from tests.oracles.block_of_tasks import block_of_tasks
from tests.oracles.image_facts import ImageFacts

Loaded = tuple[ImageTask, Picture | Rejected | None]


def encode_tasks(labels: LabelMap, table: FeatureTable, policy: str, loaded: Sequence[Loaded]) -> EncodedRun:
    encoder = ExampleEncoder(labels, table, policy)
    block = with_objects(block_of_tasks([task for task, _ in loaded], ("train",)))
    images = []
    for row, (task, picture) in enumerate(loaded):
        alone = msgspec.structs.replace(task, annotations=())
        if encoder.per_annotation and not task.annotations:
            images.append(LoadedImage(alone, None))
        elif isinstance(picture, Picture):
            images.append(encoder.draw(alone, block, row, picture))
        else:
            reject = msgspec.structs.replace(picture, annotations=alone.annotation_rows) if picture else None
            images.append(LoadedImage(alone, reject))
    return encoder.encode(block, images)


def pack_tasks(tasks: Iterable[ImageTask]) -> list[bytes]:
    """Packed Blocks, of an image each."""
    blocks = []
    for task in tasks:
        continued = np.array([True]) if task.is_continuation else None
        blocks.append(pack_block(block_of_tasks([task], (task.split,)).having(is_continuation=continued)))
    return blocks


class Expected(NamedTuple):
    """What becomes of the images of a run."""

    records: list[bytes]
    facts: list[ImageFacts]
    records_per_image: list[int]
    counted: dict[Metric, int]
    rejected: list[Rejected]
    class_counts: dict[int, int]
    images: int
    bytes: int
    rejected_bytes: list[int]


def encode_one_by_one(labels: LabelMap, table: FeatureTable, policy: str, loaded: Sequence[Loaded]) -> Expected:
    """As the shard writer did it before there were Blocks."""
    encoder = encode_examples.ExampleEncoder(labels, table, policy)
    records, facts, numbers, rejected, rejected_bytes, sizes = [], [], [], [], [], []
    counted, classes = Counter(), Counter()
    for task, picture in loaded:
        size = task.ref.size_bytes
        encoded = encode_examples.Encoded((), {Metric.IMAGES_WITHOUT_RECORD: 1}, [])
        if encoder.wants_image(task):
            encoded = encoder.encode(task, picture) if isinstance(picture, Picture) else picture
        else:
            size = 0
        if isinstance(encoded, Rejected):
            if task.is_continuation:
                counted[Metric.OF_REJECTED_IMAGES] += encoded.annotations
            else:
                rejected.append(encoded)
                rejected_bytes.append(size)
            continue
        if encoded.records:
            records += map(b"".join, encoded.records)
            facts.append(encoded.facts)
            numbers.append(len(encoded.records))
        rejected += encoded.rejected
        counted.update(encoded.counted)
        classes.update(encoded.class_counts)
        if not task.is_continuation:
            sizes.append(size)
    return Expected(
        records, facts, numbers, dict(+counted), rejected, dict(classes), len(sizes), sum(sizes), rejected_bytes
    )


def expected_amount(estimate: RecordEstimate, task: ImageTask) -> tuple[int, int]:
    """Expected bytes and number of the records of one image."""
    sizes, examples = estimate.of_block(block_of_tasks([task], (task.split,)))
    return int(sizes[0]), int(examples[0])
