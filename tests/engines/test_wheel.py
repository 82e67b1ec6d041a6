"""Contents of the wheel and of the source distribution, and their behaviour in an environment."""

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.engines.worker_pool import (
    ROOT,
    built_sdist,  # noqa: F401  a fixture
    pip,
    site_packages,
)
from tests.test_layering import DATA, FILES, installed_name

METADATA = {"LICENSE", "METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt"}
"""Files of a wheel's metadata; setuptools decides the place of the licence."""
EGG_INFO = {"PKG-INFO", "SOURCES.txt", "dependency_links.txt", "entry_points.txt", "requires.txt", "top_level.txt"}
SOURCES = {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "setup.py"}
"""Files of a source distribution besides the packages: its build files, and setuptools' additions."""

OF_OTHERS = {"recordmill._torch_dataset"}
"""Modules that import PyTorch. The consumers' tests import them."""


def modules(built: Path) -> dict[Path, bytes]:
    """Files of the package as the clone had them when a distribution was built, by their place in the checkout."""
    files = [*FILES.values(), *DATA]
    return {file: (built.with_name("clone") / file.relative_to(ROOT)).read_bytes() for file in files}


def test_wheel_holds_only_packages(built_wheel):
    with zipfile.ZipFile(built_wheel) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    folder = f"recordmill-{version(built_wheel)}.dist-info"
    metadata = {name for name in files if name.startswith(f"{folder}/")}
    assert {name.rpartition("/")[2] for name in metadata} == METADATA
    expected = {installed_name(file): data for file, data in modules(built_wheel).items()}
    assert {name: data for name, data in files.items() if name not in metadata} == expected
    assert files[f"{folder}/top_level.txt"].split() == [b"recordmill"]


def test_source_distribution_holds_its_sources(built_sdist):  # noqa: F811
    folder = built_sdist.name.removesuffix(".tar.gz")
    with tarfile.open(built_sdist) as archive:
        files = {
            member.name.removeprefix(f"{folder}/"): archive.extractfile(member).read()
            for member in archive
            if member.isfile()
        }
    others = SOURCES | {f"recordmill.egg-info/{name}" for name in EGG_INFO}
    paths = {file.relative_to(ROOT): data for file, data in modules(built_sdist).items()}
    expected = {
        str(path if path.parts[0] == "recordmill" else "recordmill" / path): data for path, data in paths.items()
    }
    assert files.keys() - expected.keys() == others
    assert {name: data for name, data in files.items() if name not in others} == expected
    assert files["setup.py"] == built_sdist.with_name("clone").joinpath("setup.py").read_bytes()
    assert files["pyproject.toml"] == built_sdist.with_name("clone").joinpath("pyproject.toml").read_bytes()


def test_source_distribution_becomes_same_wheel(built_sdist, built_wheel, tmp_path):  # noqa: F811
    """Workers install the source distribution where `--setup_file` is given."""
    pip(Path(sys.executable), "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, built_sdist)
    wheels = zipfile.ZipFile(tmp_path / built_wheel.name), zipfile.ZipFile(built_wheel)
    assert {each.filename: each.CRC for each in wheels[0].filelist} == {
        each.filename: each.CRC for each in wheels[1].filelist
    }


def version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def test_all_that_wheel_needs_is_there(worker_python):
    """`pip check` prints missing requirements, and fails."""
    assert pip(worker_python, "check").strip() == "No broken requirements found."


def test_every_module_of_wheel_can_be_imported(worker_python, tmp_path):
    """Without TensorFlow, and without the files that are beside the packages in a clone."""
    code = "import importlib, json, sys; print(json.dumps([importlib.import_module(n).__file__ for n in sys.argv[1:]]))"
    importable = FILES.keys() - OF_OTHERS
    files = json.loads(output(worker_python, code, *importable, cwd=tmp_path))
    assert len(files) == len(importable) == len(FILES) - len(OF_OTHERS) > 80
    assert {Path(file).relative_to(site_packages(worker_python)).parts[0] for file in files} == {"recordmill"}


def output(python: Path, code: str, *arguments: str, cwd: Path) -> str:
    """Output of a piece of code in that environment, without the checkout on its path."""
    command = [str(python), "-I", "-c", code, *arguments]
    ended = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
