"""Drawn jobs in parts write the files that one job writes, byte for byte."""

import random
from pathlib import Path

import pytest

from recordmill.schemas.containers import CONTAINERS
from tests.conftest import leave_pages_empty
from tests.jobs.folders import differing_files
from tests.matrix.drawn_growth import Growth
from tests.matrix.test_shape import _FAULT, DrawnJob, run


def check_parts(seed: int, folder: Path) -> str:
    """Write a drawn job at once, and in parts in a drawn order. Return how it ended, if not well."""
    job = DrawnJob(seed, folder)
    draw = random.Random(-seed)
    number = draw.randint(1, 5)
    container = draw.choice([name for name, row in CONTAINERS.items() if row.is_installed])
    if job.more.get("gzip") and not CONTAINERS[container].can_gzip:
        del job.more["gzip"]
    if container == "webdataset":
        job.more["num_shards"] = 1
    elif draw.random() < 0.3:
        del job.more["num_shards"]
        job.more |= draw.choice(({"examples_per_shard": 2}, {"shard_size": "20kB"}))
    if CONTAINERS[container].layouts and job.layout not in CONTAINERS[container].layouts:
        job.layout = "detection"
    flags = [*job.write(), "--container", container]
    if job.has_masks and not CONTAINERS[container].has_png_masks:
        flags += ["--masks", "rle"]
    return compare_parts(flags, number, draw, folder)


def check_layouts(seed: int, folder: Path) -> str:
    """Class folders, Keras' records, transcoded and broken images, in parts."""
    job = Growth(seed, folder)
    draw = random.Random(-seed)
    sizes = draw.choice(({"num_shards": 2}, {"examples_per_shard": 2}))
    if job.options["container"] == "webdataset":
        sizes = {"num_shards": 1}
    flags = job.write("everything", job.sets, **sizes)
    return compare_parts(flags, draw.randint(1, 4), draw, folder)


def compare_parts(flags: list[str], number: int, draw: random.Random, folder: Path) -> str:
    whole, text = run(*flags, "-o", folder / "one")
    parts = [f"{index}/{number}" for index in range(number)]
    draw.shuffle(parts)
    for part in parts:
        code, part_text = run(*flags, "-o", folder / "out", "--part", part)
        assert not _FAULT.search(part_text), part_text
        if code:
            assert whole, (part_text, text)
            return part_text
        assert not (folder / "out/manifest.json").exists()
    code, sealed = run("seal", folder / "out", "--progress", "none")
    assert not _FAULT.search(sealed), sealed
    assert code == whole, (sealed, text)
    if whole:
        return sealed
    assert differing_files(folder / "one", folder / "out") == []
    return ""


@pytest.mark.parametrize(
    ("check", "seed"), [*((check_parts, seed) for seed in range(6)), *((check_layouts, seed) for seed in range(4))]
)
def test_drawn_parts(check, seed, tmp_path, monkeypatch):
    leave_pages_empty(monkeypatch)
    check(seed, tmp_path)
