import json
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image
from pycocotools import mask as coco_mask

from recordmill.transforms.sample.draw_scene import (
    _COLOURS,
    _GROUND,
    _SKY,
    PASSED,
    bounding_box,
    draw_odd,
    draw_scene,
    encode_run_lengths,
    object_mask,
)
from recordmill.transforms.sample.write_sample import ODD_FOLDER, write_sample
from tests.conftest import manifest_of, read_examples, rejects_of

MASKS = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=12))


def theirs(mask: np.ndarray) -> dict:
    return coco_mask.encode(np.asfortranarray(mask, np.uint8))


@given(MASKS)
def test_rle_is_that_of_pycocotools(mask):
    rle = encode_run_lengths(mask)
    assert rle["size"] == list(mask.shape)
    assert coco_mask.frPyObjects(rle, *mask.shape)["counts"] == theirs(mask)["counts"]


@given(MASKS.filter(np.any))
def test_boxes_are_pycocotools(mask):
    assert bounding_box(mask) == coco_mask.toBbox(theirs(mask)).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_every_object_is_seen_where_its_mask_is(seed):
    scene = draw_scene(random.Random(seed), 200, 150, things=6, crowd=seed % 3 == 0, grey=False)
    pixels = np.asarray(scene.image)
    colours = [_SKY, _GROUND, *(_COLOURS[thing.colour] for thing in scene.things)]
    assert pixels.shape == (150, 200, 3)
    assert set(np.unique(scene.numbers)) <= set(range(1, len(colours) + 1))
    for number, colour in enumerate(colours, 1):
        assert (pixels[object_mask(scene, number)] == colour).all()


def test_each_odd_image_is_converted(tmp_path, recordmill):
    odd = write_sample(str(tmp_path / "odd"), count=3, seed=0, odd=True)
    output = tmp_path / "out"
    flags = ["--images", odd.images, "--instances", odd.instances, "--output", output, "--max-rejects", 1]
    assert recordmill("convert", *flags, "--masks", "png").code == 0
    assert recordmill("verify", output).code == 0
    names = {row["id"]: row["file_name"] for row in json.loads(Path(odd.instances).read_text())["images"]}
    outcomes = {names[reject["id"]]: reject["reason"] for reject in rejects_of(output)}
    pixels = {}
    for example in read_examples(output):
        name = example["image/filename"][0].decode()
        data = (Path(odd.images) / name).read_bytes()
        passed = example["image/encoded"] == [data]
        outcomes[name] = PASSED if passed else example["image/format"][0].decode()
        pixels[name] = tf.io.decode_image(example["image/encoded"][0], channels=3, expand_animations=False).numpy()
    drawn = {f"{ODD_FOLDER}/{image.name}": image for image in draw_odd(Image.new("RGB", (240, 180)))}
    assert {name: what for name, what in outcomes.items() if name in drawn} == {
        name: image.becomes for name, image in drawn.items()
    }
    scene = pixels[f"{ODD_FOLDER}/a-png-really.jpg"].astype(int)
    for name in drawn.keys() & pixels.keys():
        if "bit" not in name:
            assert np.abs(pixels[name].astype(int) - scene).mean() < 4, name
    rewritten = manifest_of(output)["splits"]["train"]["images"]["rewritten"]
    assert sum(rewritten["by_format"].values()) == sum(image.becomes in ("jpeg", "png") for image in drawn.values())
    assert rewritten["turned"] == 1
