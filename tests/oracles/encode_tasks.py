"""Images encoded by the encoder of Blocks."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.images import ImageTask, Picture
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import Rejected
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.encoders.encode_examples import ExampleEncoder, LoadedImage, with_objects
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.encoders.record_maker import EncodedRun
from tests.oracles.block_of_tasks import block_of_tasks

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


def expected_amount(estimate: RecordEstimate, task: ImageTask) -> tuple[int, int]:
    """Expected bytes and number of the records of one image."""
    sizes, examples = estimate.of_block(block_of_tasks([task], (task.split,)))
    return int(sizes[0]), int(examples[0])
