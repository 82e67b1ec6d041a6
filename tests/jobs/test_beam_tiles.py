"""Data sets of tiles from end to end: one of the command, and the same of a user's pipeline."""

import contextlib
import io
import json
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from PIL import Image

from recordmill.beam import ReadDataset, Sample, Tile, WriteDataset
from recordmill.launch.cli import main
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.sizes import size_text
from recordmill.transforms.shards import check_findings
from tests.beam_pipeline import Pipeline
from tests.conftest import examples_by_name, leave_pages_empty, manifest_of, rejects_of

TILES = {"size": 64, "overlap": 0.25, "min_visible": 0.3, "keep_empty": 0.5}
FLAGS = ("--tile", 64, "--tile-overlap", 0.25, "--tile-min-visible", 0.3, "--keep-empty", 0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two images with boxes and masks, in two splits; one without objects, one that cannot be read, in YOLO's format;
    the first is a PNG."""
    root = tmp_path_factory.mktemp("tiles")
    texts = {
        "train/a.png": "0 0.5 0.5 0.9 0.2\n1 0.1 0.1 0.2 0.1 0.2 0.3 0.1 0.2\n1 0.99 0.5 0.1 0.1\n1 2 2 0.1 0.1\n",
        "train/b.jpg": "",
        "train/broken.jpg": "0 0.5 0.5 0.1 0.1\n",
        "val/c.jpg": "0 0.5 0.5 0.5 0.5\n",
    }
    for number, (name, text) in enumerate(texts.items()):
        image, label = root / "data" / "images" / name, root / "data" / "labels" / f"{name.split('.')[0]}.txt"
        for path in (image, label):
            path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.RandomState(number).randint(0, 255, (90, 150, 3), np.uint8)
        Image.fromarray(pixels).save(image)
        if "broken" in name:
            image.write_bytes(b"\xff\xd8\xff")
        label.write_text(text)
    (root / "data" / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [cat, dog]\n")
    return root


@pytest.fixture(scope="module")
def converted(folder) -> Path:
    options = "--name", "tiles", "--masks", "rle", "--max-rejects", 0.9, "--num-shards", 2, *FLAGS, "--progress", "none"
    arguments = "convert", folder / "data", "--output", folder / "out", *options
    with contextlib.redirect_stdout(io.StringIO()), pytest.MonkeyPatch.context() as patch:
        leave_pages_empty(patch)
        assert main(list(map(str, arguments))) == 0
    return folder / "out"


def test_tiles_of_images(folder, converted):
    train, val = examples_by_name(converted), examples_by_name(converted, "val")
    pixels = np.asarray(Image.open(folder / "data" / "images" / "train" / "a.png"))
    for name, example in (train | val).items():
        x, y = example["image/tile/x"][0], example["image/tile/y"][0]
        stem, suffix = name.rsplit(f"_{x}_{y}", 1)
        assert example["image/tile/file_name"] == [f"{stem}{suffix}".encode()]
        if suffix == ".png":
            stored = np.asarray(Image.open(io.BytesIO(example["image/encoded"][0])))
            np.testing.assert_array_equal(stored, pixels[y : y + 64, x : x + 64])
    wide = [example["image/object/bbox/xmax"] for name, example in train.items() if "a_48_0" in name]
    assert wide == [[1.0]]
    counts = manifest_of(converted)["splits"]["train"]
    images = counts["images"]
    assert [images[what] for what in ("rows", "written", "tiles")] == [3, 2, len(train)]
    assert images["rejected"] == {"image_unreadable": 1}
    assert counts["annotations"]["rejected"] == {"malformed_box": 1}
    assert [line["file_name"] for line in rejects_of(converted)] == ["images/train/a.png", "images/train/broken.jpg"]
    assert {name.rsplit("_", 2)[0] for name in val} == {"images/val/c"}


def test_a_pipeline_writes_the_same_records(folder, converted):
    with Pipeline() as p:
        samples = p | ReadDataset(str(folder / "data"), masks="rle") | Tile(**TILES)
        options = {"name": "tiles", "max_rejects": 0.9, "num_shards": 2}
        samples | WriteDataset(str(folder / "beam"), **options)
    names = sorted(path.name for path in converted.glob("*.tfrecord*") if path.is_file())
    assert len(names) >= 4
    for name in names:
        assert (folder / "beam" / name).read_bytes() == (converted / name).read_bytes()
    images = json.loads((folder / "beam" / "manifest.json").read_bytes())["splits"]["train"]["images"]
    assert [images[what] for what in ("rows", "written")] == [3, 2]


def test_image_bytes_that_tiles_repeat_are_a_warning(folder, tmp_path, monkeypatch, caplog):
    path = folder / "data" / "images" / "val" / "c.jpg"
    data = path.read_bytes()
    monkeypatch.setattr(check_findings, "_MAX_REPEATED_BYTES", 4 * len(data))
    samples = [Sample("data.jpg", data=data), Sample("path.jpg", path=str(path))]
    with Pipeline() as p:
        p | beam.Create(samples) | Tile(64, keep_empty=1) | WriteDataset(str(tmp_path / "out"))
    (text,) = [text for text in caplog.messages if "repeat" in text]
    assert f"repeat {size_text(5 * len(data))} of image bytes" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"size": 0}, "^size must be 1 or more \\(got 0\\)$", id="size"),
        pytest.param({"size": 20_000}, "^size 20000 is larger than any image that is read", id="large"),
        pytest.param({"size": 9, "overlap": 1}, "^overlap must be below 1", id="overlap"),
        pytest.param({"size": 9, "keep_empty": 2}, "^keep_empty must be 0 to 1 \\(got 2\\)$", id="keep_empty"),
    ],
)
def test_faults_of_the_transform_name_its_arguments(options, text):
    with pytest.raises(ConfigError, match=text):
        Tile(**options)
