"""docs/tutorials/bucket_to_dataflow.md: its shell with a `gcloud` that does nothing, `recordmill` with stand-ins."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.dataflow_stand_in import PROJECT, REGION
from tests.engines.test_dockerfile import instructions
from tests.engines.worker_pool import ROOT
from tests.gcs_stand_in import BUCKET
from tests.tutorials import blocks

BUILD = ROOT / "launch" / "dataflow" / "cloudbuild.yaml"
STUBS = r"""set -euo pipefail
record() { printf '%q ' "$@" >> commands; echo >> commands; }
gcloud() { record gcloud "$@"; case "$*" in "config get account") echo me@example.com;; esac; }
recordmill() { record recordmill "$@"; }
make() { record make "$@"; }
"""


@pytest.fixture
def commands(tmp_path, monkeypatch) -> list[list[str]]:
    """Commands of the page, with the names of the stand-ins, in the order in which the shell reaches them."""
    monkeypatch.chdir(tmp_path)
    page = "\n".join(code for kind, code in blocks("bucket_to_dataflow") if kind == "sh")
    stand_ins = {"PROJECT": PROJECT, "REGION": REGION, "INPUT": BUCKET, "OUTPUT": BUCKET, "TEMP": BUCKET}
    for name, value in stand_ins.items():
        page, replaced = re.subn(rf"^(.*?\b){name}=\S+", rf"\g<1>{name}={value}", page, count=1, flags=re.MULTILINE)
        assert replaced == 1, name
    subprocess.run(["bash", "-c", STUBS + page], check=True)
    return [shlex.split(line) for line in Path("commands").read_text().splitlines()]


def test_recordmill_lines_with_stand_ins(commands, gcs, dataflow, recordmill):
    uses = []
    for name, *words in commands:
        if name == "recordmill":
            uses.append(words[0])
            is_job = "--" in words
            outcome = recordmill(*words, *([f"--dataflow_endpoint={dataflow.url}", "--no_auth"] if is_job else []))
            assert outcome.code == 0, outcome.err
            if "--dry-run" in words:
                assert "manifest.json" not in "".join(gcs.objects())
        elif words[:2] == ["storage", "cp"]:
            source, target = Path(words[2]), words[3].removeprefix(f"gs://{BUCKET}").strip("/")
            for path in [source] if source.is_file() else sorted(source.rglob("*.*")):
                gcs.put(target or f"{source.name}/{path.relative_to(source)}", path.read_bytes())
    assert uses == ["sample", "convert", "convert", "verify"]
    assert dataflow.job["labels"]["team"] == "vision"
    (pool,) = dataflow.job["environment"]["workerPools"]
    assert pool["machineType"] == "e2-standard-2"
    assert pool["sdkHarnessContainerImages"][0]["containerImage"].startswith(f"{REGION}-docker.pkg.dev/{PROJECT}/")


@pytest.mark.skipif(not shutil.which("gcloud"), reason="no gcloud, whose parser reads the commands")
def test_gcloud_knows_each_command(commands, tmp_path):
    lines = {shlex.join(words): None for words in commands if words[0] == "gcloud"}
    assert len(lines) > 30
    environment = {**os.environ, "CLOUDSDK_CONFIG": str(tmp_path / "gcloud")}
    Path("lines.json").write_text(json.dumps([{"command_string": line} for line in lines]))
    command = ["gcloud", "meta", "lint-gcloud-commands", "--commands-file=lines.json"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    reports = json.loads(run.stdout)
    assert len(reports) == len(lines)
    assert [report["error_message"] for report in reports if not report["success"]] == []


def test_cloud_build_fills_in_the_dockerfile():
    build = yaml.safe_load(BUILD.read_text())
    (step,) = build["steps"]
    arguments = dict(word.removeprefix("--build-arg=").split("=", 1) for word in step["args"] if "--build-arg" in word)
    assert arguments.keys() == {line.partition("=")[0] for line in instructions("ARG")}
    assert (ROOT / next(word for word in step["args"] if word.startswith("--file=")).removeprefix("--file=")).exists()
    names = set(re.findall(r"\$\{(\w+)\}", BUILD.read_text()))
    assert names == set(build["substitutions"])
