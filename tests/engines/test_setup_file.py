"""`--setup_file` and `--extra_package`: what the job stages is enough for workers that have nothing of ours."""

import os
import tarfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import coco_flags, shard_bytes
from tests.engines import record_calls
from tests.engines.boot_stand_in import boot_program
from tests.engines.submit import BootError, finished, submit
from tests.engines.worker_pool import (
    built_sdist,  # noqa: F401  a fixture
    copy_of_clone,
    running_pool,
    site_packages,
    worker_environment,
)
from tests.faults.warm_process import Command

LOG = "submission_environment_dependencies.txt"
"""What Beam stages with every job."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    return copy_of_clone(tmp_path_factory.mktemp("setup") / "clone")


@dataclass(frozen=True)
class Booted:
    """A job whose worker began with nothing of ours.

    Attributes:
        staged: names of the files that the worker got.
        folders: where the functions of ours that it ran are.
    """

    command: Command
    staged: set[str]
    folders: set[tuple[str, ...]]


def run_booted(folder: Path, words: list[object], *beam_flags: object, cwd: Path | None = None) -> Booted:
    """Run a command, perhaps in another folder; its worker is started by the boot program."""
    python = worker_environment(folder / "environment", None)
    packages = site_packages(python)
    assert not (packages / record_calls.PACKAGE).exists()
    record_calls.add_to(packages)
    calls, log = folder / "calls", folder / "pool.log"
    calls.mkdir()
    boot = boot_program(folder, python)
    before = partial(os.chdir, cwd) if cwd else None
    with running_pool(python, log, {"RECORDED_CALLS": str(calls)}, boot) as pool:
        command = finished(submit(words, pool, folder / "command", *beam_flags, before=before), log)
    assert command.code == 0, f"{command}\n{log.read_text()}"
    (staged,) = [line for line in log.read_text().splitlines() if line.startswith("boot stand-in: staged ")]
    folders = {Path(file).parent for file, _ in record_calls.read(calls)}
    return Booted(command, set(staged.split()[3:]), {each.relative_to(packages).parts[:2] for each in folders})


PACKAGES = {("recordmill",), *(("recordmill", layer) for layer in ("schemas", "transforms", "pipelines"))}
"""Of which functions run in workers."""


def assert_same_shards(sample, tmp_path: Path, recordmill) -> None:
    """As in process."""
    assert recordmill(*coco_flags(sample, tmp_path / "in-process", "--num-shards", 2)).code == 0
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "in-process") != {}


def test_setup_file(sample, clone, tmp_path, recordmill):
    words = coco_flags(sample, tmp_path / "out", "--num-shards", 2)
    job = run_booted(tmp_path, words, "--setup_file=setup.py", cwd=clone)
    assert job.staged == {"workflow.tar.gz", LOG}
    assert job.folders == PACKAGES
    assert_same_shards(sample, tmp_path, recordmill)


@pytest.mark.parametrize("kind", ["built_wheel", "built_sdist"])
def test_extra_package(sample, tmp_path, recordmill, kind, request):
    package = request.getfixturevalue(kind)
    words = coco_flags(sample, tmp_path / "out", "--num-shards", 2)
    job = run_booted(tmp_path, words, f"--extra_package={package}")
    assert job.staged == {package.name, "extra_packages.txt", LOG}
    assert job.folders == PACKAGES
    assert_same_shards(sample, tmp_path, recordmill)


def test_a_package_that_cannot_be_installed_is_told_at_once(sample, tmp_path):
    """By our stand-in, that is: Beam's local job server waits for ever for a worker."""
    package = tmp_path / "recordmill-0.1.0.tar.gz"
    with tarfile.open(package, "w:gz"):
        pass
    words = coco_flags(sample, tmp_path / "out")
    with pytest.raises(BootError, match="pip install"):
        run_booted(tmp_path, words, f"--extra_package={package}")
    assert shard_bytes(tmp_path / "out") == {}
