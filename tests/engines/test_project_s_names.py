"""A project that has folders named like ours, and jobs of several processes in it."""

import os
import subprocess
import sys

from tests.conftest import coco_flags


def test_folders_of_project_do_not_shadow_ours(sample, processes, tmp_path):
    """With names as ours have in the checkout, and on the path before everything else."""
    for name in ("schemas", "pipelines", "launch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('this is the project')\n")
    (tmp_path / "transforms.py").write_text("raise ImportError('this is the project')\n")
    command = [sys.executable, "-m", "recordmill.launch.cli", *coco_flags(sample, tmp_path / "out"), "--", *processes]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out" / "manifest.json").exists()
