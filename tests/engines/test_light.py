"""The wheel without its extras: what reads does so without Beam and TensorFlow, and what needs them says so."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from recordmill import open as open_dataset
from tests.conftest import coco_flags
from tests.engines.test_wheel import OF_OTHERS, output
from tests.engines.worker_pool import LIGHT_PYTHON, pip, site_packages, worker_environment
from tests.test_layering import EXTRAS, FILES, reached, roots

MEGABYTES = 200
"""Size limit of a training environment with the wheel and pip. With Beam it has 840."""


@pytest.fixture(scope="module")
def python(built_wheel, tmp_path_factory) -> Path:
    """Python of an environment with the wheel and its requirements."""
    return worker_environment(tmp_path_factory.mktemp("light") / "environment", built_wheel, LIGHT_PYTHON)


@pytest.fixture
def run(python, tmp_path):
    """Runs the command there, in an empty folder."""
    folder = tmp_path / "empty"
    folder.mkdir()

    def command(*arguments: object) -> subprocess.CompletedProcess:
        words = [str(python.with_name("recordmill")), *map(str, arguments)]
        return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)

    return command


def test_environment_is_whole_small_and_has_no_extra(python, tmp_path):
    assert pip(python, "check").strip() == "No broken requirements found."
    code = "import sys; from importlib.util import find_spec as f; print([n for n in sys.argv[1:] if f(n)])"
    assert output(python, code, *sorted(EXTRAS), "recordmill", cwd=tmp_path) == "['recordmill']"
    files = [file for file in site_packages(LIGHT_PYTHON).rglob("*") if file.is_file()]
    assert 50 < sum(file.stat().st_size for file in files) / 1e6 < MEGABYTES


def test_all_modules_that_reach_no_extra_can_be_imported(python, tmp_path):
    code = "import importlib, json, sys; print(json.dumps([importlib.import_module(n).__name__ for n in sys.argv[1:]]))"
    light = sorted(name for name in FILES.keys() - OF_OTHERS if not roots(reached(name)) & EXTRAS)
    assert json.loads(output(python, code, *light, cwd=tmp_path)) == light
    assert len(light) > 100


def test_data_set_is_looked_at_and_reported_as_with_beam(run, tmp_path, copy_converted, recordmill):
    copy_converted(tmp_path / "out", "--masks", "png")
    with_beam = recordmill("show", tmp_path / "out", "--json").out
    assert recordmill("report", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "report.html").read_bytes()
    shown = run("show", tmp_path / "out", "--json")
    assert (shown.returncode, shown.stdout) == (0, with_beam)
    saved = run("show", tmp_path / "out", "--save", tmp_path / "x.png")
    assert (saved.returncode, (tmp_path / "x.png").read_bytes()[:4]) == (0, b"\x89PNG")
    (tmp_path / "out" / "report.html").unlink()
    assert run("report", tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "report.html").read_bytes() == page


def test_records_are_read_as_with_beam(python, tmp_path, copy_converted):
    copy_converted(tmp_path / "out", "--masks", "png")
    split = open_dataset(str(tmp_path / "out"))["train"]
    code = (
        "import sys, hashlib, recordmill; split = recordmill.open(sys.argv[1])['train']\n"
        "digest = lambda example: hashlib.sha256(example['image'].tobytes() + example['masks'].tobytes()).hexdigest()\n"
        "print([digest(example) for example in split.numpy()] + [digest(split[-1])])\n"
        "print(sorted({'apache_beam', 'pyarrow', 'tensorflow'} & sys.modules.keys()))"
    )
    read, loaded = output(python, code, str(tmp_path / "out"), cwd=tmp_path).splitlines()
    assert read == str([digest_of(example) for example in split.numpy()] + [digest_of(split[-1])])
    assert len(split) == 22
    assert loaded == "[]"


def digest_of(example: dict) -> str:
    return hashlib.sha256(example["image"].tobytes() + example["masks"].tobytes()).hexdigest()


def test_sample_is_drawn_and_its_conversion_names_extra(run, sample, tmp_path):
    assert run("sample", tmp_path / "drawn", "--count", 3).returncode == 0
    assert (tmp_path / "drawn" / "annotations" / "instances.json").exists()
    for flags in (coco_flags(sample, tmp_path / "out"), ["convert", tmp_path / "drawn", "-o", tmp_path / "out"]):
        refused = run(*flags)
        assert refused.returncode == 2
        (line,) = refused.stderr.splitlines()
        assert "recordmill[beam]" in line
    assert not (tmp_path / "out").exists()
    in_a_bucket = run("show", "gs://bucket/out")
    assert (in_a_bucket.returncode, in_a_bucket.stderr) == (
        2,
        'recordmill: gs:// needs the extra gs. Run: pip install "recordmill[gs]"\n',
    )
