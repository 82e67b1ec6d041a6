import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.transforms.sample.draw_scene import PASSED, draw_odd
from recordmill.transforms.sample.write_sample import ODD_FOLDER, SampleFiles, write_sample
from tests.conftest import manifest_of, read_examples, rejects_of


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> SampleFiles:
    return write_sample(str(tmp_path_factory.mktemp("odd")), count=3, seed=0, odd=True)


def test_each_becomes_what_it_says(odd, tmp_path, recordmill):
    flags = ["--images", odd.images, "--instances", odd.instances, "--output", tmp_path, "--max-rejects", 1]
    assert recordmill("coco", *flags, "--masks", "png").code == 0
    assert recordmill("verify", tmp_path).code == 0
    names = {row["id"]: row["file_name"] for row in json.loads(Path(odd.instances).read_text())["images"]}
    found = {names[reject["id"]]: reject["reason"] for reject in rejects_of(tmp_path)}
    pixels = {}
    for example in read_examples(tmp_path):
        name = example["image/filename"][0].decode()
        data = (Path(odd.images) / name).read_bytes()
        passed = example["image/encoded"] == [data]
        found[name] = PASSED if passed else example["image/format"][0].decode()
        pixels[name] = tf.io.decode_image(example["image/encoded"][0], channels=3, expand_animations=False).numpy()
    drawn = {f"{ODD_FOLDER}/{picture.name}": picture for picture in draw_odd(Image.new("RGB", (240, 180)))}
    assert {name: what for name, what in found.items() if name in drawn} == {
        name: picture.becomes for name, picture in drawn.items()
    }
    scene = pixels[f"{ODD_FOLDER}/a-png-really.jpg"].astype(int)
    for name in drawn.keys() & pixels.keys():
        if "bit" not in name:
            assert np.abs(pixels[name].astype(int) - scene).mean() < 4, name
    rewritten = manifest_of(tmp_path)["splits"]["train"]["images"]["rewritten"]
    assert sum(rewritten["by_format"].values()) == sum(picture.becomes in ("jpeg", "png") for picture in drawn.values())
    assert rewritten["turned"] == 1
