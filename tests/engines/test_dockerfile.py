"""The image of launcher and workers, as far as tests can tell without a registry: its lines, and what starts in it."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layering import DATA, FILES

ROOT = Path(__file__).resolve().parents[2]
DATAFLOW = ROOT / "launch" / "dataflow"


def instructions(keyword: str) -> list[str]:
    """The lines of the Dockerfile that begin with a keyword, without it."""
    text = re.sub(r"^#.*\n", "", (DATAFLOW / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = (" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines())
    return [line.removeprefix(f"{keyword} ") for line in lines if line.startswith(f"{keyword} ")]


def test_its_bases_are_of_one_python_and_of_beam_pinned():
    bases = instructions("FROM")
    assert [re.findall(r"python(?:_sdk)?:?3\.?11", base) != [] for base in bases] == [True] * 4
    (pin,) = re.findall(r"^apache-beam==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert bases[0].split()[0] == f"apache/beam_python3.11_sdk:{pin}"


def test_every_file_that_wheel_needs_is_copied():
    copied = [ROOT / path for line in instructions("COPY") if "--from" not in line for path in line.split()[:-1]]
    needed = [*FILES.values(), *DATA, *(ROOT / name for name in ("setup.py", "pyproject.toml", "LICENSE"))]
    assert [path for path in copied if not path.exists()] == []
    assert [file for file in needed if not any(file.is_relative_to(path) for path in copied)] == []


def test_build_converts_and_verifies(tmp_path):
    """The shell runs the line of the Dockerfile in another folder than /tmp."""
    (line,) = (line for line in instructions("RUN") if "recordmill sample" in line)
    folder = tmp_path / "smoke"
    line = line.replace("/tmp/smoke", str(folder))
    kept = line.removesuffix(f"&& rm -rf {folder}")
    assert kept != line
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", kept], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("image", "ours"), [("h/i:t", ["--command=convert", "--sdk_container_image=h/i:t"]), ("", ["--command=convert"])]
)
def test_image_names_commands_of_launcher_and_workers(monkeypatch, image, ours):
    given = []
    monkeypatch.setattr("recordmill.launch.flat.main", lambda arguments: given.extend(arguments) or 7)
    monkeypatch.setenv("RECORDMILL_COMMAND", "convert")
    monkeypatch.setenv("RECORDMILL_IMAGE", image)
    monkeypatch.setattr(sys, "argv", ["main.py", "--data=gs://b-1/i"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DATAFLOW / "main.py"), run_name="__main__")
    assert ended.value.code == 7  # what the command returned, so that the launcher sees a failure
    assert given == [*ours, "--data=gs://b-1/i"]  # Beam heeds the last of two
