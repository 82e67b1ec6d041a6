"""Unusual images: each written one decodes to the size of its record, and each other one is a reject."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageDraw

from tests.conftest import SKELETON, annotation, examples_by_name, grey, image_row, manifest_of

CAT = [{"id": 1, "name": "cat", **SKELETON}]


def drawn(width: int = 60, height: int = 40) -> Image.Image:
    image = Image.new("RGB", (width, height), (200, 60, 50))
    ImageDraw.Draw(image).ellipse((10, 5, 50, 35), fill=(40, 90, 220))
    return image


def encoded(image: Image.Image, format_: str, **how) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_, **how)
    return stream.getvalue()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


class Album:
    """A folder of images, each with one annotation whose id is the image's."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.out = folder / "out"
        (folder / "images").mkdir()
        self.images: list[dict] = []
        self.annotations: list[dict] = []

    def add(self, name: str, data: bytes, width: int = 60, height: int = 40, **more) -> None:
        id_ = len(self.images) + 1
        (self.folder / "images" / name).write_bytes(data)
        self.images.append(image_row(id_, name, width, height))
        self.annotations.append(annotation(id_, id_, (6, 4, 30, 20)) | more)

    def convert(self, recordmill, *flags: object) -> dict[str, dict[str, list]]:
        """The records, by file name."""
        document = {"images": self.images, "annotations": self.annotations, "categories": CAT}
        path = self.folder / "instances.json"
        path.write_text(json.dumps(document))
        images = ["--images", self.folder / "images"] if "--images" not in flags else []
        kind = "--keypoints" if any("keypoints" in row for row in self.annotations) else "--instances"
        arguments = [*images, kind, path, "--output", self.out, "--max-rejects", 1, *flags]
        assert recordmill("convert", *arguments).code == 0
        assert recordmill("verify", self.out).code == 0
        return examples_by_name(self.out)


@pytest.fixture
def album(tmp_path) -> Album:
    return Album(tmp_path)


def decoded(example: dict[str, list]) -> np.ndarray:
    """Pixels as training decodes them; their size is the record's."""
    image = tf.io.decode_image(example["image/encoded"][0], channels=3, expand_animations=False)
    assert image.shape == (example["image/height"][0], example["image/width"][0], 3)
    return image.numpy().astype(int)


# Turned and shrunk: what is annotated stays where it is in the image

LYING = np.zeros((40, 60, 3), np.uint8)
LYING[8:28, 12:42] = (250, 20, 30)  # the object, as the pixels are stored


def test_picture_of_stored_size_passes_through(album, recordmill):
    data = encoded(Image.fromarray(LYING), "JPEG", quality=100, subsampling=0, exif=exif(6))
    album.add("a.jpg", data, 60, 40, bbox=[12, 8, 30, 20], segmentation=[[12, 8, 42, 8, 42, 28, 12, 28]])
    (example,) = album.convert(recordmill, "--masks", "png").values()
    assert example["image/encoded"] == [data]
    assert decoded(example)[grey(example["image/object/mask"][0]) == 1].mean(0) == pytest.approx([250, 20, 30], abs=5)


@pytest.mark.parametrize("orientation", [6, 7])
def test_picture_of_upright_size_is_turned(album, recordmill, orientation):
    """The annotations are of what a viewer shows: drawn upright, and stored lying as a camera does."""
    upright = np.zeros((60, 40, 3), np.uint8)
    upright[12:42, 8:28] = (250, 20, 30)
    upright[15:23, 10:18] = (20, 250, 30)
    lying = np.rot90(upright, 1) if orientation == 6 else upright[::-1, ::-1].transpose(1, 0, 2)
    stored = Image.fromarray(np.ascontiguousarray(lying))
    data = encoded(stored, "JPEG", quality=100, subsampling=0, exif=exif(orientation))
    box = {"bbox": [8, 12, 20, 30], "segmentation": [[8, 12, 28, 12, 28, 42, 8, 42]], "keypoints": [14, 19, 2, 0, 0, 0]}
    album.add("a.jpg", data, 40, 60, **box)
    (example,) = album.convert(recordmill, "--masks", "both").values()
    pixels = decoded(example)
    assert pixels.shape == (60, 40, 3)
    mask = grey(example["image/object/mask"][0]) == 1
    assert pixels[mask].mean(0) == pytest.approx([225, 45, 30], abs=8)
    assert pixels[~mask].mean() < 5
    edges = [example[f"image/object/bbox/{edge}"][0] for edge in ("xmin", "ymin", "xmax", "ymax")]
    assert edges == pytest.approx([8 / 40, 12 / 60, 28 / 40, 42 / 60])
    x, y = (example[f"image/object/keypoint/{axis}"][0] for axis in "xy")
    assert pixels[round(y * 60), round(x * 40)].tolist() == pytest.approx([20, 250, 30], abs=60)
    rewritten = manifest_of(album.out)["splits"]["train"]["images"]["rewritten"]
    assert (rewritten["by_format"], rewritten["turned"]) == ({"jpeg": 1}, 1)


def test_shrunk_pictures_keep_their_annotations_in_place(album, recordmill):
    image = np.zeros((40, 60, 3), np.uint8)
    image[8:28, 12:42] = (250, 20, 30)
    box = {"bbox": [12, 8, 30, 20], "segmentation": [[12, 8, 42, 8, 42, 28, 12, 28]], "keypoints": [14, 10, 2, 0, 0, 0]}
    album.add("a.png", encoded(Image.fromarray(image), "PNG"), **box)
    album.add("small.png", encoded(drawn(30, 20), "PNG"), 30, 20)
    examples = album.convert(recordmill, "--max-side", 30, "--masks", "both")
    example = examples["a.png"]
    pixels = decoded(example)
    assert pixels.shape == (20, 30, 3)
    mask = grey(example["image/object/mask"][0])
    expected = np.zeros((20, 30), np.uint8)
    expected[4:14, 6:21] = 1
    assert np.array_equal(mask, expected)
    assert pixels[6:12, 8:19].mean((0, 1)) == pytest.approx([250, 20, 30], abs=3)
    edges = [example[f"image/object/bbox/{edge}"][0] for edge in ("xmin", "ymin", "xmax", "ymax")]
    assert edges == pytest.approx([12 / 60, 8 / 40, 42 / 60, 28 / 40])
    assert example["image/object/keypoint/x"][0] == pytest.approx(14 / 60)
    assert decoded(examples["small.png"]).shape == (20, 30, 3)
    assert manifest_of(album.out)["splits"]["train"]["images"]["rewritten"]["shrunk"] == 1
