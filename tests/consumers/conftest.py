"""The data sets that the consumers read."""

import contextlib
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from recordmill.launch.cli import main
from tests.conftest import SHARED_DATA
from tests.consumers.coco_truth import Truth, awkward, coco_mini, needs_shared_data
from tests.consumers.pages import DOCS, run


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
def trained_on(tmp_path_factory) -> Path:
    """Folder in which the commands of docs/training.md have run."""
    folder = tmp_path_factory.mktemp("trained_on")
    with contextlib.chdir(folder):
        for line in re.findall(r"^    recordmill (.*)$", (DOCS / "training.md").read_text(), re.MULTILINE):
            assert main(shlex.split(line)) == 0
    return folder


@pytest.fixture
def run_program(trained_on, tmp_path, monkeypatch) -> Callable[..., dict[str, Any]]:
    """Runs a program of docs/training.md where its commands have run. See `run`."""
    monkeypatch.chdir(tmp_path)
    for path in trained_on.iterdir():
        Path(path.name).symlink_to(path)
    return lambda name, **smaller: run((DOCS / "training" / f"{name}.py").read_text(), **smaller)
