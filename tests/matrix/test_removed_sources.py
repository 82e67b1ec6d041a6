"""Each source can be deleted: its folder, its module of pipelines, its row of the registry. The others work on."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.pipelines.verbs import FORMATS
from tests.matrix import inputs

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"coco": ("coco",), "folder": ("folder", "embed"), "table": ("table", "embed")}
"""Verbs that go with a source. `embed` reads class folders and tables."""
SOURCES |= {name: (name,) for name in FORMATS}


def without_rows(registry: str, verbs: tuple[str, ...]) -> str:
    """Return pipelines/verbs.py without the rows of these verbs."""
    lines = registry.splitlines(keepends=True)
    rows = [
        (key.lineno, value.end_lineno)
        for node in ast.walk(ast.parse(registry))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value in verbs
    ]
    for first, last in sorted(rows, reverse=True):
        del lines[first - 1 : last]
    return "".join(lines)


def copy_without(source: str, folder: Path) -> None:
    """Copy the package without a source."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "recordmill", folder / "recordmill", symlinks=True, ignore=ignored)
    for layer in ("launch", "pipelines", "transforms", "schemas"):
        shutil.copytree(ROOT / layer, folder / layer, ignore=ignored)
    shutil.rmtree(folder / "transforms" / source)
    for verb in SOURCES[source]:
        for module in (folder / "pipelines").glob(f"{verb}*.py"):
            module.unlink()
    registry = folder / "pipelines" / "verbs.py"
    registry.write_text(without_rows(registry.read_text(), SOURCES[source]))


@pytest.mark.parametrize("source", SOURCES)
def test_other_sources_work_without_it(source, tmp_path):
    copy_without(source, tmp_path)
    other = "createml" if source != "createml" else "vertex"
    {"createml": inputs.write_createml, "vertex": inputs.write_vertex}[other](tmp_path / "data")

    def run(*command: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "recordmill.launch.cli", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    help_ = run("--help")
    assert f"\n  {source} " not in help_
    assert f"\n  {other} " in help_
    flags = ["--images", "data/images"] if other == "vertex" else []
    run(other, "--data", "data", *flags, "--output", "out", "--max-rejects", "0.9", "--progress", "none")
    assert [*(tmp_path / "out").glob("*.tfrecord*")]
