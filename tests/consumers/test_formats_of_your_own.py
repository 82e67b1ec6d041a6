"""The package of docs/formats_of_your_own.md: built as a wheel, installed, and run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import manifest_of
from tests.jobs.folders import draw_all

PAGE = (Path(__file__).parents[2] / "docs" / "formats_of_your_own.md").read_text()
MOST_LINES = 80
SPLITS = {"train": 4, "val": 2}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder in which the package's wheel is installed."""
    package, wheels, site = (tmp_path_factory.mktemp(name) for name in ("package", "wheels", "site"))
    files = dict(re.findall(r"`(\S+)` (?:registers|defines) [^\n]*\n\n```\w+\n(.*?)```", PAGE, re.DOTALL))
    assert sum(text.count("\n") for text in files.values()) <= MOST_LINES
    for name, text in files.items():
        (package / name).write_text(text)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, package], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", site, wheel], check=True)
    return site


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Manifests of two splits. One line is not JSON, one box has no class id, one has little confidence."""
    folder = tmp_path_factory.mktemp("data")
    for split, number in SPLITS.items():
        names = [f"{split}{n}.jpg" for n in range(number)]
        draw_all(folder / split, names)
        lines = [json.dumps(line(name, 0.5 if n == 1 else 0.9)) for n, name in enumerate(names)]
        (folder / split / "output.manifest").write_text("\n".join(lines) + "\n")
    with (folder / "train" / "output.manifest").open("a") as file:
        file.write("{\n")
    return folder


def line(name: str, confidence: float) -> dict:
    box = {"class_id": 1, "left": 2, "top": 3, "width": 8, "height": 9}
    about = {"class-map": {"1": "cat"}, "objects": [{"confidence": confidence}, {}]}
    return {"source-ref": f"s3://b/{name}", "job": {"annotations": [box, {"class_id": 1}]}, "job-metadata": about}


def run(site: Path, *words: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run([sys.executable, *map(str, words)], env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("layout", ["detection", "keras", "tfds"])
def test_command(site, data, tmp_path, layout):
    """Recognised, with its flag, its splits and its rejects."""
    inputs = data / "val" if layout == "keras" else data  # `keras` has one split
    flags = ["--layout", layout, "--min-confidence", 0.8, "--max-rejects", 1, "-o", tmp_path]
    done = run(site, "-m", "recordmill.launch.cli", "convert", inputs, *flags)
    assert (done.returncode, f"{inputs} is read as groundtruth: " in done.stdout) == (0, True), done
    splits = manifest_of(tmp_path)["splits"]
    counts = {"train": 1} if layout == "keras" else {"train": 4, "val": 2}
    assert {name: split["images"]["written"] for name, split in splits.items()} == counts
    rejects = (tmp_path / "rejects-train.jsonl").read_text()
    if layout != "keras":
        assert "train/output.manifest, line 5: not a line of Ground Truth" in rejects
    assert "output.manifest, line 1, box 2: " in rejects
    verified = run(site, "-m", "recordmill.launch.cli", "verify", tmp_path)
    assert verified.returncode == 0, verified


def test_library_and_beam(site, data, tmp_path):
    """The same bytes as the command's."""
    program = f"""
import apache_beam as beam
import recordmill, recordmill.beam

options = {{"format": "groundtruth", "format_options": {{"min_confidence": 0.8}}}}
recordmill.convert({str(data)!r}, {str(tmp_path / "library")!r}, max_rejects=1, **options)
with beam.Pipeline() as p:
    read = p | recordmill.beam.ReadDataset({str(data)!r}, **options)
    read | recordmill.beam.WriteDataset({str(tmp_path / "beam")!r}, max_rejects=1, split={{"train": 0.5, "val": 0.5}})
"""
    done = run(site, "-c", program)
    assert done.returncode == 0, done.stderr
    for name in ("library", "beam"):
        splits = manifest_of(tmp_path / name)["splits"]
        assert {split: entry["class_counts"] for split, entry in splits.items()} == {"train": [3], "val": [1]}
