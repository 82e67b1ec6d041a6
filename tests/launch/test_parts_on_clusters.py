"""Manifests for Kubernetes, and Slurm's script of docs/parts.md: valid, and commands of ours."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from recordmill.launch.command_line.parser import parse

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = "1.30"


def manifest(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "launch/kubernetes" / name).read_text())


def commands_of(script: list[str], tmp_path: Path, **environment: str) -> list[str]:
    """Words of the command `recordmill` that a script runs."""
    program = tmp_path / "recordmill"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    outcome = subprocess.run(script, env={"PATH": path, **environment}, capture_output=True, text=True, check=True)
    return outcome.stdout.splitlines()


def values_of(words: list[str]) -> dict[str, Any]:
    """Values of the options of `convert`, whose DATA is not there to be recognised."""
    return parse([*words, "--format", "coco"], recognises=False).options.model_dump()


def container(job: dict[str, Any]) -> dict[str, Any]:
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("name", ["parts.yaml", "seal.yaml"])
def test_kubernetes_knows_manifest(name):
    job = manifest(name)
    kubernetes_validate.validate(job, KUBERNETES, strict=True)
    job["spec"]["completionIndex"] = 1
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        kubernetes_validate.validate(job, KUBERNETES, strict=True)


def test_pods_write_all_parts(tmp_path):
    job, seal = manifest("parts.yaml"), manifest("seal.yaml")
    assert job["spec"]["completionMode"] == "Indexed"
    number = job["spec"]["completions"]
    outputs = set()
    for index in (0, number - 1):
        words = commands_of(container(job)["command"], tmp_path, JOB_COMPLETION_INDEX=str(index))
        options = values_of(words)
        assert options["part"] == f"{index}/{number}"
        outputs.add(options["output"])
    program, verb, output = container(seal)["command"]
    assert (program, verb, {output}) == ("recordmill", "seal", outputs)
    assert container(seal)["image"] == container(job)["image"]


def test_slurm_script(tmp_path):
    (script,) = re.findall(r"```bash\n(.*?)```", (ROOT / "docs/parts.md").read_text(), re.DOTALL)
    (last,) = re.findall(r"#SBATCH --array=0-(\d+)\n", script)
    words = commands_of(["bash", "-c", script], tmp_path, SLURM_ARRAY_TASK_ID=last)
    assert words[-2:] == ["--part", f"{last}/{int(last) + 1}"]
    assert values_of(words)["output"] == "/data/tfrecords"
