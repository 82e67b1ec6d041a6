"""Images with annotations drawn at random, odd ones among them; and records that encoders of Blocks make of images."""

import hashlib
import io
import random
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
from PIL import Image

from recordmill.schemas.features import FeatureTable
from recordmill.schemas.inputs.annotations import Annotation, Caption, Category, ImageLabels, StuffAnnotation
from recordmill.schemas.inputs.files import ImageFile
from recordmill.schemas.inputs.images import ImageTask, StoredImage, Transcoding
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.rejects import Reason, Rejected
from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.encoders.encode_examples import ExampleEncoder, LoadedImage, add_object_columns
from recordmill.transforms.encoders.encode_objects import fit_boxes
from recordmill.transforms.encoders.estimate_records import RecordEstimate
from recordmill.transforms.encoders.record_maker import EncodedRun
from tests.transforms.blocks.of_tasks import block_of_tasks

LABELS = LabelMap(
    (
        Category(1, "cat", keypoints=("nose", "été")),
        Category(127, "dog", keypoints=("tail",)),
        Category(128, "n" * 130),
        Category(1 << 40, ""),
    ),
    (Category(127, "dog", isthing=1), Category(192, "sky", isthing=0)),
)
SHIFTED = LabelMap((Category(-(1 << 62), "cat"), Category(0, "dog"), Category(7, "cow")), LABELS.segments)
_SIDES = (1, 2, 40, 100, 300)


def draw_tasks(
    seed: int, labels: LabelMap = LABELS, images: int = 12, most: int = 30
) -> list[tuple[ImageTask, StoredImage | Rejected]]:
    """Images of a shard, each with its image or with why there is none; `most` objects in an image."""
    of = random.Random(seed)
    return [_draw_image(of, labels, of.choice((0, 1, 2, most))) for _ in range(images)]


def _draw_image(of: random.Random, labels: LabelMap, objects: int) -> tuple[ImageTask, StoredImage | Rejected]:
    image_id = of.choice((of.randint(0, 99), 1 << 62, -5))
    size = of.choice(_SIDES), of.choice(_SIDES)
    annotated = (of.choice(_SIDES), of.choice(_SIDES)) if of.random() < 0.3 else None
    frame = annotated or size
    annotations = tuple(_draw_annotation(of, labels, *frame) for _ in range(objects))
    name = of.choice((f"{image_id}.jpg", "été/ü.png", "n" * 130))
    ref = ImageFile(f"images/{name}", of.randint(0, 99))
    task = ImageTask(image_id, name, *frame, ref, "train", annotations, _draw_labels(of, labels), of.random() < 0.2)
    if of.random() < 0.1:
        return task, task.rejected(Reason.IMAGE_UNREADABLE, "broken")
    kind = of.choice(("jpeg", "png"))
    data = _file(kind, of.choice((5, 120)))
    transcoding = of.choice((None, Transcoding("webp", 9, True), Transcoding("other", 9, False, True)))
    measures = of.choice((None, PixelMeasures(3, 200, 0.5, bytes(1024))))
    return task, StoredImage(data, kind, *size, hashlib.sha256(data).hexdigest(), annotated, transcoding, measures)


@cache
def _file(kind: str, side: int) -> bytes:
    file = io.BytesIO()
    Image.frombytes("RGB", (side, side), random.Random(side).randbytes(3 * side * side)).save(file, kind)
    return file.getvalue()


def _draw_labels(of: random.Random, labels: LabelMap) -> ImageLabels:
    numbers = tuple(of.randint(-3, 1 << 20) for _ in range(of.randint(0, 3)))
    captions = tuple(Caption(of.randint(0, 1 << 40), of.choice(("", "un été"))) for _ in range(of.randint(0, 3)))
    stuff = (StuffAnnotation(of.randint(0, 9), 192, of.choice(_MASKS)) for _ in range(of.randint(0, 2)))
    weights = tuple(of.random() for _ in range(3))
    class_name = of.choice(labels.categories).name
    return ImageLabels(captions, tuple(stuff), (), numbers, numbers[1:], class_name, (1, 5, 300), weights)


_MASKS = (
    b"",
    b"null",
    b"[[0, 0, 30, 0, 30, 20, 0, 20]]",
    b"[[5, 5, 9, 5, 9, 9.5, 5, 9.5], [20, 20, 25, 20, 25, 25]]",
    b"[[1, 2, 3]]",
    b'{"counts": [0, 50, 9950], "size": [100, 100]}',
    b'{"counts": [40], "size": [1, 40]}',
)


def _draw_annotation(of: random.Random, labels: LabelMap, width: int, height: int) -> Annotation:
    category = of.choice(labels.categories)
    keypoints = [
        n for _ in category.keypoints for n in (of.uniform(-5, 300), of.choice((-0.0, 7.5)), of.choice((0, 1, 2)))
    ]
    sides = (of.choice((0.0, 1e-9, 1e-30, of.random(), 1.0, 2.0, 1e14)) for _ in range(2))
    return Annotation(
        of.choice((of.randint(0, 1 << 20), -(1 << 62), (1 << 63) - 1)),
        category.id,
        (
            *(of.choice((0.0, -0.0, of.uniform(-0.5, 1), of.uniform(-0.5, 1), -1e14)) * s for s in (width, height)),
            *(side * s for side, s in zip(sides, (width, height), strict=True)),
        ),
        of.choice((0.0, -0.0, 0.5, -7.9, 1e18, of.uniform(0, 1e6), 1e-30)),
        of.random() < 0.3,
        of.choice(_MASKS),
        tuple(of.choice(((), keypoints))),
    )


def encode_tasks(
    labels: LabelMap,
    table: FeatureTable,
    policy: str,
    loaded: Sequence[tuple[ImageTask, StoredImage | Rejected | None]],
) -> EncodedRun:
    encoder = ExampleEncoder(labels, table, policy)
    block = add_object_columns(block_of_tasks([task for task, _ in loaded], ("train",)))
    images = []
    for row, (task, stored) in enumerate(loaded):
        alone = msgspec.structs.replace(task, annotations=())
        if encoder.per_annotation and not task.annotations:
            images.append(LoadedImage(alone, None))
        elif isinstance(stored, StoredImage):
            images.append(encoder.draw(alone, block, row, stored))
        else:
            reject = msgspec.structs.replace(stored, annotations=alone.annotation_rows) if stored else None
            images.append(LoadedImage(alone, reject))
    return encoder.encode(block, images)


def expected_amount(estimate: RecordEstimate, task: ImageTask) -> tuple[int, int]:
    """Expected bytes and number of the records of one image."""
    sizes, examples = estimate.estimate_block(block_of_tasks([task], (task.split,)))
    return int(sizes[0]), int(examples[0])


class FittedBox(NamedTuple):
    """Edges as fractions of height and width."""

    ymin: float
    xmin: float
    ymax: float
    xmax: float
    clipped: bool


def fit_box(bbox_xywh_px: tuple[float, ...], width: int, height: int, policy: str) -> FittedBox | Reason:
    """The only box of an array, or why there is none."""
    fitted = fit_boxes(np.array([bbox_xywh_px], float), np.array([[width, height]]), policy)
    (edges,), (is_clipped,), (is_empty,), (is_outside,) = fitted
    if is_empty or is_outside:
        return Reason.EMPTY_BOX if is_empty else Reason.BOX_OUTSIDE
    return FittedBox(*edges.tolist(), bool(is_clipped))
