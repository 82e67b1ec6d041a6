"""Masks of the records are those that pycocotools draws from the annotation file, pixel for pixel."""

import io

import numpy as np
from PIL import Image
from pycocotools import mask as rle_masks

from tests.conftest import read_examples


def png_masks(example: dict) -> list[np.ndarray]:
    """Masks as Pillow reads them."""
    images = [Image.open(io.BytesIO(data)) for data in example["image/object/mask"]]
    assert {(image.format, image.mode) for image in images} <= {("PNG", "L")}
    return [np.asarray(image) for image in images]


def rle_decoded(example: dict) -> list[np.ndarray]:
    """Masks as pycocotools reads them."""
    size = [example["image/height"][0], example["image/width"][0]]
    return [rle_masks.decode({"size": size, "counts": counts}) for counts in example["image/object/mask/rle"]]


def assert_masks_equal(example: dict, expected: np.ndarray) -> None:
    for masks in (png_masks(example), rle_decoded(example)):
        assert [mask.shape for mask in masks] == [mask.shape for mask in expected]
        different = [int((mask != other).sum()) for mask, other in zip(masks, expected, strict=True)]
        assert different == [0] * len(expected)  # pixels


def test_every_mask(truth, converted):
    out = converted(truth, "--masks", "both", "--fields", "all", "--num-shards", 3)
    examples = {int(example["image/source_id"][0]): example for example in read_examples(out)}
    assert set(examples) == truth.image_ids
    for image_id, example in examples.items():
        assert example["image/object/id"] == truth.values(image_id, "id")
        assert_masks_equal(example, truth.masks(image_id))
