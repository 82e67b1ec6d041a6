"""Each source can be deleted: its folder, its module of pipelines, its row of the registry. The others work on."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.pipelines.formats import FORMATS
from tests.matrix import inputs

ROOT = Path(__file__).resolve().parents[2]


def without_row(registry: str, source: str) -> str:
    """Return pipelines/formats.py without the row of a format."""
    lines = registry.splitlines(keepends=True)
    rows = [
        (key.lineno, value.end_lineno)
        for node in ast.walk(ast.parse(registry))
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == source
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
    (folder / "pipelines" / f"{source}.py").unlink(missing_ok=True)
    registry = folder / "pipelines" / "formats.py"
    registry.write_text(without_row(registry.read_text(), source))


@pytest.mark.parametrize("source", FORMATS)
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

    line, _, _ = run("convert", "--help").partition("\nFormats: ")[2].partition(".")
    formats = line.replace("\n", " ").split(", ")
    assert (source in formats, other in formats) == (False, True)
    flags = ["--images", "data/images"] if other == "vertex" else []
    out = run("convert", "data", *flags, "--output", "out", "--max-rejects", "0.9", "--progress", "none")
    assert f"data is read as {other}: " in out
    assert [*(tmp_path / "out").glob("*.tfrecord*")]
