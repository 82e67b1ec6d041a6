"""What is imported when: the write path never needs TensorFlow, and --help needs next to nothing."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import coco_flags, shard_bytes


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def test_writing_and_extracting_import_no_tensorflow(sample, tmp_path, copy_converted):
    """One thread of a process with another hash seed writes the same bytes."""
    code = (
        "import sys\n"
        "from recordmill.launch.cli import main\n"
        "out, new, *flags = sys.argv[1:]\n"
        "assert main(flags) == main(['extract', out, new]) == 0\n"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('tensorflow', 'keras')))"
    )
    folders = str(tmp_path / "out"), str(tmp_path / "new")
    out = run(code, *folders, *coco_flags(sample, tmp_path / "out", "--num-shards", 3, "--workers", 1))
    assert out.splitlines()[-1] == "[]"
    copy_converted(tmp_path / "here", "--num-shards", 3)
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "here") != {}


def test_help_and_wrong_options_import_next_to_nothing():
    """The modules of a job are left to the child of `convert`."""
    code = """
import sys
def loaded(*names):
    print([name for name in names if any(module.partition(".")[0] == name for module in sys.modules)])

import recordmill
try: recordmill.convert("coco")
except recordmill.ConfigError: loaded("apache_beam", "tensorflow", "pydantic", "PIL", "rich")
from recordmill.launch.cli import main
try: main(["coco", "--help"])
except SystemExit: loaded("apache_beam", "tensorflow", "numpy", "PIL")
print(main(["coco", "--ouput", "x"]))
loaded("apache_beam")
"""
    lines = run(code).splitlines()
    assert [lines[0], *lines[-3:]] == ["[]", "[]", "2", "[]"]


def test_package_is_found_beside_clone(tmp_path):
    """Not the clone itself, as a namespace package."""
    (tmp_path / "recordmill").symlink_to(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", "import recordmill; recordmill.open"], cwd=tmp_path, check=True)
