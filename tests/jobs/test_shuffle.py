"""Metadata is shuffled, image bytes never are: what goes through the groupings of a job, counted."""

import io
from pathlib import Path

import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import execution, fn_runner
from PIL import Image

from tests.conftest import CATEGORIES, annotation, every_kind, image_row, write_coco

IMAGES = 30


@pytest.fixture(scope="module")
def noise(tmp_path_factory) -> Path:
    """JPEGs of 100 kB each, and a few annotations."""
    folder = tmp_path_factory.mktemp("noise")
    drawn = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 400, 3), np.uint8)).save(drawn, "JPEG", quality=75)
    names = [f"{('cat', 'dog')[number % 2]}/{number}.jpg" for number in range(IMAGES)]
    for name in names:
        (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / name).write_bytes(drawn.getvalue())
    rows = [image_row(number, name, 400, 300) for number, name in enumerate(names)]
    write_coco(folder, rows, [annotation(number, number % IMAGES) for number in range(3 * IMAGES)], CATEGORIES)
    return folder


@pytest.fixture
def shuffled(monkeypatch) -> list[int]:
    """Bytes of each piece of data that a GroupByKey of the local runner is given."""
    pieces: list[int] = []
    real = execution.GroupingBuffer.append

    def append(self, elements_data: bytes) -> None:
        pieces.append(len(elements_data))
        real(self, elements_data)

    monkeypatch.setattr(execution.GroupingBuffer, "append", append)
    return pieces


def image_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.jpg"))


@pytest.mark.parametrize("format_", ["coco", "folder"])
def test_image_bytes_are_not_shuffled(noise, tmp_path, recordmill, shuffled, format_):
    annotations = ["--instances", noise / "instances.json"] if format_ == "coco" else []
    flags = [noise / "images", *annotations, "--format", format_, "--output", tmp_path / "out", "--num-shards", 4]
    assert recordmill("convert", *flags).code == 0
    assert 0 < sum(shuffled) < 0.05 * image_bytes(noise)


def test_stock_sink_shuffles_them_twice(noise, tmp_path, recordmill, shuffled):
    """Beam's sink shuffles images, so it is not the default. This also tests the count above."""
    flags = ["--images", noise / "images", "--instances", noise / "instances.json", "--num-shards", 4]
    assert recordmill("convert", *flags, "--output", tmp_path / "out", "--writer", "beam").code == 0
    assert sum(shuffled) > image_bytes(noise)


def test_stages(noise, sample, tmp_path, recordmill, monkeypatch):
    """Each fused stage costs a job some 20 ms."""
    stages: set[str] = set()
    real = fn_runner.FnApiRunner._execute_bundle

    def execute(runner, context, bundle, *rest):
        stages.add(bundle.stage.name)
        return real(runner, context, bundle, *rest)

    monkeypatch.setattr(fn_runner.FnApiRunner, "_execute_bundle", execute)
    flags = ["--images", noise / "images", "--instances", noise / "instances.json", "--output", tmp_path / "boxes"]
    assert recordmill("convert", *flags).code == 0
    of_boxes = len(stages)
    stages.clear()
    flags = ["--masks", "rle", "--group-from", "^(.*)[.]", "--split", "train=0.5,val=0.5", "--output", tmp_path / "all"]
    assert recordmill("convert", *every_kind(sample), *flags).code == 0
    assert (of_boxes <= 20, len(stages) <= 28) == (True, True), (of_boxes, len(stages))
