import io

import msgspec
import pytest
from PIL import Image

from recordmill.schemas.annotations import Annotation, Category, ImageLabels
from recordmill.schemas.features import Part
from recordmill.schemas.images import ImageRef, ImageTask, Picture
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.transforms.statistics.count_images import ImageCounter
from tests.oracles.encode_tasks import encode_tasks
from tests.oracles.fact_columns import record_places, sorted_objects

LABELS = LabelMap((Category(1, "cat"),))


def polygon(left: float, top: float, right: float, bottom: float) -> bytes:
    return msgspec.json.encode([[left, top, right, top, right, bottom, left, bottom]])


@pytest.mark.parametrize("parts", [(Part.MASK_PNG,), (Part.MASK_RLE,), (Part.MASK_PNG, Part.MASK_RLE), ()])
def test_boxes_beside_their_masks(parts):
    """Of four boxes one is as its mask, one is not, one has a mask without a pixel, and one has none."""
    segmentations = [polygon(10, 5, 30, 25), polygon(60, 5, 70, 45), polygon(30, 30, 30.1, 30.1), b""]
    annotations = tuple(
        Annotation(id_, 1, (10.0, 5.0, 20.0, 20.0), 400.0, False, segmentation)
        for id_, segmentation in enumerate(segmentations)
    )
    file = io.BytesIO()
    Image.new("RGB", (100, 50)).save(file, "JPEG")
    task = ImageTask(1, "1.jpg", None, None, ImageRef("1.jpg", 1), "train", annotations, ImageLabels())
    table = DETECTION.with_parts(parts)
    run = encode_tasks(LABELS, table, "clip", [(task, Picture(file.getvalue(), "jpeg", 100, 50, "ab"))])
    counter = ImageCounter()
    counter.add(run.facts, record_places([(0, 0, 1)]), sorted_objects(run.facts))
    found = counter.statistics("s")
    numbers = {name: each.number for name, each in found.findings.items()}
    assert numbers == {"repeated_boxes": 3} | ({"box_mask_mismatch": 1} if parts else {})
