"""Data sets that are converted once for all tests of jobs."""

from pathlib import Path

import pytest

from recordmill.launch.cli import main
from tests.conftest import every_kind
from tests.jobs.folders import NOT_IMAGES, draw, draw_all, three_splits


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """Class folders of 24 JPEGs and PNGs of 1 to 4 channels and different sizes: endings in upper case, folders in
    folders, spaces, an accent. And files that are no images, or are hidden."""
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(8):
        draw(folder / "Cat" / f"{number}.jpg", number, "L" if number == 3 else "RGB")
        mode = ("L", "LA", "RGB", "RGBA")[number % 4]
        draw(folder / "big dog" / ("0 1.PNG" if number == 0 else f"{number}.png"), 20 + number, mode)
    for number, name in enumerate(
        ("a b.JPG", "c.Jpeg", "in/d.png", "in/side/e.jpg", "ü.jpg", "1.png", "2.jpg", "3.png")
    ):
        draw(folder / "Öl" / name, 40 + number)
    for name in NOT_IMAGES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"not an image")
    return folder


@pytest.fixture(scope="session")
def of_every_kind(sample, tmp_path_factory) -> Path:
    """The sample with all kinds in one record, and both forms of masks."""
    folder = tmp_path_factory.mktemp("kinds")
    assert main(["coco", *every_kind(sample), "--masks", "both", "--num-shards", "2", "--output", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def many(tmp_path_factory) -> Path:
    """24 images of `a`, 12 of `b`, 4 of `c`."""
    numbers = {"a": 24, "b": 12, "c": 4}
    names = [f"{class_}/{number}.png" for class_, count in numbers.items() for number in range(count)]
    return draw_all(tmp_path_factory.mktemp("many"), names)


@pytest.fixture(scope="session")
def converted(pictures, tmp_path_factory) -> Path:
    """`pictures` in three splits of two shards each."""
    folder = tmp_path_factory.mktemp("converted")
    assert main(list(map(str, ["folder", *three_splits(pictures, folder)]))) == 0
    return folder


@pytest.fixture(scope="session")
def extracted(converted, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("extracted") / "new"
    assert main(["extract", str(converted), str(folder)]) == 0
    return folder
