import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from pycocotools import mask as coco_mask

from recordmill.transforms.sample.draw_scene import _COLOURS, _GROUND, _SKY, box_of, draw_scene, mask_of, rle_of

MASKS = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=12))


def theirs(mask: np.ndarray) -> dict:
    return coco_mask.encode(np.asfortranarray(mask, np.uint8))


@given(MASKS)
def test_rle_is_that_of_pycocotools(mask):
    rle = rle_of(mask)
    assert rle["size"] == list(mask.shape)
    assert coco_mask.frPyObjects(rle, *mask.shape)["counts"] == theirs(mask)["counts"]


@given(MASKS.filter(np.any))
def test_boxes_are_pycocotools(mask):
    assert box_of(mask) == coco_mask.toBbox(theirs(mask)).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_every_object_is_seen_where_its_mask_is(seed):
    scene = draw_scene(random.Random(seed), 200, 150, things=6, crowd=seed % 3 == 0, grey=False)
    pixels = np.asarray(scene.image)
    colours = [_SKY, _GROUND, *(_COLOURS[thing.colour] for thing in scene.things)]
    assert pixels.shape == (150, 200, 3)
    assert set(np.unique(scene.numbers)) <= set(range(1, len(colours) + 1))
    for number, colour in enumerate(colours, 1):
        assert (pixels[mask_of(scene, number)] == colour).all()
