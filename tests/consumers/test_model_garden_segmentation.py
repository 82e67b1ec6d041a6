"""Model Garden's segmentation parser reads records of image and mask pairs, in its own environment."""

import subprocess
from pathlib import Path

import numpy as np
from PIL import Image

from tests.conftest import read_examples
from tests.consumers.test_model_garden import PYTHON

SCRIPT = Path(__file__).with_name("segment_with_model_garden.py")
SIDE = 48
SIZES = ((30, 40), (48, 20), (17, 33))
CLASSES = ("background", "road", "sky", "person")


def draw_pairs(folder: Path) -> dict[str, np.ndarray]:
    """Draw images and their masks: grey, with a palette, of 2 bits. Return the masks by the name of their image."""
    rng = np.random.default_rng(3)
    masks = {}
    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    for number, (height, width) in enumerate(SIZES):
        mask = rng.integers(0, len(CLASSES), (height, width)).astype(np.uint8)
        image = Image.fromarray(mask)
        if number:
            image.putpalette([5, 9, 200, 255, 0, 0, 0, 7, 7, 80, 80, 80])
        else:
            mask[:4] = 255
            image = Image.fromarray(mask)
        image.save(folder / "masks" / f"{number}.png", bits=2 if number == 2 else 8)
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(folder / "images" / f"{number}.jpg")
        masks[f"{number}.jpg"] = mask
    return masks


def test_pixels_are_those_of_the_source(tmp_path, recordmill):
    masks = draw_pairs(tmp_path / "data")
    done = recordmill("convert", tmp_path / "data", "--class-names", ",".join(CLASSES), "--output", tmp_path / "out")
    assert done.code == 0, done
    shards = sorted((tmp_path / "out").glob("*.tfrecord-*"))
    run = subprocess.run(
        [str(part) for part in (PYTHON, SCRIPT, tmp_path / "read.npz", SIDE, *shards)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    read = np.load(tmp_path / "read.npz")
    names = [example["image/filename"][0].decode() for example in read_examples(tmp_path / "out", "train")]
    assert len(names) == len(read["masks"]) == len(masks)
    for name, found, valid in zip(names, read["masks"], read["valid"], strict=True):
        mask = masks[name.rpartition("/")[2]]
        height, width = mask.shape
        assert (found[:height, :width] == mask).all()
        assert (valid[:height, :width] == (mask != 255)).all()
        assert not valid[height:].any()
        assert not valid[:, width:].any()
