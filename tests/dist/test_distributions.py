"""The distributions in dist/, made by `make dist`: one wheel from any source, which works in empty environments."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PINS = ROOT / "constraints.txt"
EXTRAS = ("gs", "fsspec", "parquet", "arrayrecord", "beam", "gcp")
"""Extras without TensorFlow, which has no wheel for Python 3.14 yet."""


def distribution(pattern: str) -> Path:
    paths = [*(ROOT / "dist").glob(pattern)]
    assert len(paths) == 1, f"{paths}: `make dist` makes one of each"
    return paths[0]


@pytest.fixture(scope="session")
def wheel() -> Path:
    return distribution("*.whl")


def run(*words: object, cwd: Path, **variables: str) -> str:
    """Return what a command prints, without the checkout on Python's path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    ended = subprocess.run(
        [*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, f"{words}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def unpack_sdist(folder: Path) -> Path:
    with tarfile.open(distribution("*.tar.gz")) as archive:
        assert not any(member.issym() or member.islnk() for member in archive)
        archive.extractall(folder)
    (tree,) = folder.iterdir()
    return tree


def copy_checkout(folder: Path, keeps_links: bool) -> Path:
    """Copy the files that Git does not ignore, as they are now."""
    for name in run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines():
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink() and not keeps_links:
            shutil.copytree(source, target)
        elif source.is_symlink() or source.exists():
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


SOURCES = {
    "clone": lambda folder: copy_checkout(folder / "clone", keeps_links=True),
    "clone without links": lambda folder: copy_checkout(folder / "clone", keeps_links=False),
    "source distribution": unpack_sdist,
}


@pytest.mark.parametrize("source", SOURCES)
def test_each_source_becomes_the_same_wheel(source, wheel, tmp_path):
    tree = SOURCES[source](tmp_path / "source")
    epoch = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    command = (BIN / "python", "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "out", tree)
    run(*command, cwd=tmp_path, SOURCE_DATE_EPOCH=epoch)
    (built,) = (tmp_path / "out").iterdir()
    assert built.name == wheel.name
    assert built.read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_wheel_works_in_an_empty_environment(python, wheel, tmp_path):
    # pyenv has a command for versions that it does not run.
    if not (path := shutil.which(f"python{python}")) or subprocess.run([path, "-c", ""], check=False).returncode:
        pytest.skip(f"no python{python} on this machine")
    environment = tmp_path / "environment"
    run(BIN / "uv", "venv", "--no-python-downloads", "--python", f"python{python}", environment, cwd=tmp_path)
    install = (BIN / "uv", "pip", "install", "--python", environment / "bin" / "python", "-c", PINS)
    run(*install, f"{wheel}[beam]", cwd=tmp_path)

    def recordmill(*words: object) -> str:
        return run(environment / "bin" / "recordmill", *words, cwd=tmp_path)

    version = wheel.name.split("-")[1]
    assert recordmill("--version", "--verbose").startswith(f"recordmill {version}\nCPython {python}.")
    recordmill("sample", "shapes")
    recordmill("convert", "shapes/images", "--instances", "shapes/annotations/instances.json", "-o", "out")
    recordmill("verify", "out", "--check", "decode")
    assert "circle" in recordmill("show", "out")


def test_one_line_runs_it_without_an_installation(wheel, tmp_path):
    """As `uvx --from "recordmill[beam]" recordmill …` does."""
    command = (BIN / "uvx", "--no-python-downloads", "--constraints", PINS, "--from", f"{wheel}[beam]", "recordmill")
    assert "\napache-beam " in run(*command, "--version", "--verbose", cwd=tmp_path)


def test_newest_python_has_wheels_of_all_but_tensorflow(tmp_path):
    """Only resolved, since no machine here has Python 3.14: no classifier says that it works."""
    extras = [word for name in EXTRAS for word in ("--extra", name)]
    command = (BIN / "uv", "pip", "compile", "--python-version", "3.14", "--no-python-downloads", "--only-binary=:all:")
    pins = run(*command, ROOT / "pyproject.toml", *extras, "-c", PINS, cwd=tmp_path)
    assert "\napache-beam==" in pins
