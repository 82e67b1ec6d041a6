"""Fixtures of jobs that are to be disturbed."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.containers import tfrecord
from recordmill.transforms.sample.write_sample import write_sample
from tests.conftest import CATEGORIES, annotation, image_row, write_coco
from tests.faults.jobs import IMAGES, Place, SampleJob, Shard, SmallJob, place_called, small_coco
from tests.faults.warm_process import Command
from tests.gcs_stand_in import running


@pytest.fixture
def server(monkeypatch, request) -> Iterator[Any]:
    """The stand-in that a test's parameters name; that of gs:// where they name none."""
    if "s3" in getattr(getattr(request.node, "callspec", None), "params", {}).values():
        from tests.s3_stand_in import running as running_stand_in
    else:
        running_stand_in = running
    with running_stand_in() as stand_in:
        for name, value in stand_in.environment.items():
            monkeypatch.setenv(name, value)
        yield stand_in


@pytest.fixture(params=["local", "gs"])
def place(request, tmp_path, server) -> Place:
    return place_called(request.param, tmp_path, server)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """A folder of 240 JPEGs of 45 kB in three class folders, and `instances.json` of them; and a table in two files."""
    Command(["--help"], tmp_path_factory.mktemp("warm") / "up").end()
    folder = tmp_path_factory.mktemp("pictures")
    noise = np.random.default_rng(0)
    drawn = []
    for _ in range(8):
        data = io.BytesIO()
        Image.fromarray(noise.integers(0, 255, (200, 240, 3), np.uint8)).save(data, "JPEG", quality=75)
        drawn.append(data.getvalue())
    rows = []
    for number in range(IMAGES):
        name = f"{('cat', 'dog', 'owl')[number % 3]}/{number:03}.jpg"
        (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "images" / name).write_bytes(drawn[number % len(drawn)])
        rows.append(image_row(number, name, 240, 200))
    for number in range(2):
        lines = (
            f"{row},{('cat', 'dog')[row % 2]},{row / 7},{'word ' * (row % 9)}\n" for row in range(number, 60_000, 2)
        )
        (folder / f"rows-{number}.csv").write_text("".join(["id,kind,size,note\n", *lines]))
    boxes = [(number % 230, number % 190, 10, 10) for number in range(3 * IMAGES)]
    objects = [annotation(number, number % IMAGES, box) for number, box in enumerate(boxes)]
    write_coco(folder, rows, objects, CATEGORIES)
    return folder


@pytest.fixture
def small_job(place, pictures, tmp_path) -> SmallJob:
    return SmallJob(place, tmp_path, small_coco(pictures, tmp_path))


@pytest.fixture
def shard(place, tmp_path) -> "Shard":
    return Shard(place, tmp_path)


@pytest.fixture(params=["plain", "gzip"])
def is_gzip(request) -> bool:
    return request.param == "gzip"


@pytest.fixture
def small_writes(monkeypatch):
    """Each record goes to the file at once."""
    monkeypatch.setattr(tfrecord, "_WRITE_BYTES", 1)


@pytest.fixture
def sample_job(place, tmp_path) -> SampleJob:
    """Job on a copy of the sample, which a test may change."""
    return SampleJob(place, write_sample(str(tmp_path / "sample"), count=24, seed=0))
