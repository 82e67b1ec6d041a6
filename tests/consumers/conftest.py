"""The data sets that the consumers read."""

import contextlib
import json
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from recordmill.launch.cli import main
from recordmill.schemas.containers import CONTAINERS, TFRECORD
from tests.conftest import SHARED_DATA
from tests.consumers.coco_truth import Truth, awkward, coco_mini, needs_shared_data
from tests.consumers.pages import DOCS, run

ANY_CONTAINER = pytest.mark.parametrize(
    "trained_on",
    [
        pytest.param(name, marks=pytest.mark.skipif(not row.is_installed, reason=f"without extra {row.extra}"))
        for name, row in CONTAINERS.items()
    ],
    indirect=True,
    scope="session",
)
"""Mark of tests of programs that train from data sets in each container."""


@pytest.fixture(scope="session")
def truths(sample, tmp_path_factory) -> dict[str, Truth]:
    """Drawn data sets, and a real one where the machine has it."""
    found = {"sample": Truth(sample.images, sample.instances), "awkward": awkward(tmp_path_factory.mktemp("awkward"))}
    return found | ({"coco_mini": coco_mini()} if SHARED_DATA.exists() else {})


@pytest.fixture(params=["sample", "awkward", pytest.param("coco_mini", marks=needs_shared_data)])
def truth(request, truths) -> Truth:
    """Each of `truths`."""
    return truths[request.param]


@pytest.fixture(scope="session")
def converted(tmp_path_factory) -> Callable[..., Path]:
    """Folder that `convert` makes of a Truth with these flags. Each is made once; tests only read it."""

    @cache
    def convert(truth: Truth, *more: object) -> Path:
        folder = tmp_path_factory.mktemp("converted")
        assert main(["convert", *map(str, (*truth.flags, *more)), "--output", str(folder), "--progress", "none"]) == 0
        return folder

    return convert


@pytest.fixture(scope="session")
def grown(truths, tmp_path_factory) -> Callable[..., Path]:
    """Folder of a data set of the drawn truth, with these flags: half of its images, one without labels; the others by
    --add --sync. The files with the old version of that image's record are there."""

    def grow(*flags: object) -> Path:
        truth, folder = truths["sample"], tmp_path_factory.mktemp("grown")
        document = json.loads(truth.instances.read_text())
        document["images"] = document["images"][::2]
        ids = {row["id"] for row in document["images"]}
        unlabelled = next(row["image_id"] for row in document["annotations"] if row["image_id"] in ids)
        ids.remove(unlabelled)
        document["annotations"] = [row for row in document["annotations"] if row["image_id"] in ids]
        (folder / "half.json").write_text(json.dumps(document))
        common = ["convert", "--images", truth.images, "--max-rejects", 0.2, *flags, "--output", folder / "out"]
        for more in ([folder / "half.json"], [truth.instances, "--add", "--sync"]):
            assert main([*map(str, (*common, "--instances", *more))]) == 0
        return folder / "out"

    return grow


@pytest.fixture(scope="session")
def trained_on(request, tmp_path_factory) -> Path:
    """Folder in which the commands of docs/training.md have run. The parameter is a container, see `ANY_CONTAINER`."""
    folder = tmp_path_factory.mktemp("trained_on")
    flags = ["--container", container] if (container := getattr(request, "param", TFRECORD)) != TFRECORD else []
    with contextlib.chdir(folder):
        for line in re.findall(r"^    recordmill (.*)$", (DOCS / "training.md").read_text(), re.MULTILINE):
            if not (flags and "--layout" in line):
                assert main([*shlex.split(line), *(flags if line.startswith("convert") else [])]) == 0
    return folder


@pytest.fixture
def run_program(trained_on, tmp_path, monkeypatch) -> Callable[..., dict[str, Any]]:
    """Runs a program of docs/training.md where its commands have run. See `run`."""
    monkeypatch.chdir(tmp_path)
    for path in trained_on.iterdir():
        Path(path.name).symlink_to(path)
    return lambda name, **smaller: run((DOCS / "training" / f"{name}.py").read_text(), **smaller)
