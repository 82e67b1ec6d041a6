"""Model Garden's own classification input reads the layout `classification`; see test_model_garden.py."""

import subprocess
from pathlib import Path

import numpy as np
from PIL import Image

from tests.conftest import manifest_of, read_examples
from tests.consumers.test_model_garden import PYTHON

SCRIPT = Path(__file__).with_name("parse_with_model_garden.py")
SIDE = 32
MEAN = np.array([0.485 * 255, 0.456 * 255, 0.406 * 255])
DEVIATION = np.array([0.229 * 255, 0.224 * 255, 0.225 * 255])
"""Mean and deviation of ImageNet's pixels, by which the parser normalises an image."""
CLASSES = {"red": (220, 30, 20), "green": (20, 200, 60), "dark blue": (10, 20, 120)}


def draw_classes(folder: Path) -> None:
    """Six images of one colour for each class, half of them PNGs, of different sizes."""
    for name, colour in CLASSES.items():
        (folder / name).mkdir(parents=True)
        for number in range(6):
            ending = "png" if number % 2 else "JPG"
            Image.new("RGB", (40 + 7 * number, 90 - 9 * number), colour).save(folder / name / f"{number}.{ending}")


def parsed_by_model_garden(shards: list[Path], output: Path) -> dict[str, np.ndarray]:
    """Records as the parser reads them."""
    assert PYTHON.exists(), f"{PYTHON} is not there; `make test-consumers` makes it"
    command = [PYTHON, SCRIPT, output, SIDE, len(CLASSES), *shards]
    run = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return dict(np.load(output))


def test_every_image_and_its_label(tmp_path, recordmill):
    draw_classes(tmp_path / "pictures")
    out = tmp_path / "out"
    flags = ["--format", "folder", "--output", out, "--image-format", "jpeg", "--num-shards", 2]
    assert recordmill("convert", tmp_path / "pictures", *flags).code == 0
    assert [category["name"] for category in manifest_of(out)["categories"]] == ["dark blue", "green", "red"]
    examples = read_examples(out)
    assert {example["image/format"][0] for example in examples} == {b"jpeg"}
    found = parsed_by_model_garden(sorted(out.glob("*.tfrecord-*")), tmp_path / "parsed.npz")
    assert found["images"].shape == (len(examples), SIDE, SIDE, 3) == (18, SIDE, SIDE, 3)
    assert found["labels"].tolist() == [example["image/class/label"][0] for example in examples]
    assert np.bincount(found["labels"]).tolist() == [6, 6, 6]
    for image, example in zip(found["images"] * DEVIATION + MEAN, examples, strict=True):
        colour = CLASSES[example["image/class/text"][0].decode()]
        np.testing.assert_allclose(image, np.broadcast_to(colour, image.shape), atol=4)
