"""What the scripts and the guides call is what the real gcloud takes: it needs neither account nor network for that."""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from recordmill.launch.command_line.parameters import TEMPLATES
from recordmill.launch.services.template_metadata import metadata
from tests.engines.scripts import BUILD, EVERY_OPTION, IMAGE, PATHS, ROOT, RUN


def gcloud(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess:
    settings = {
        "CLOUDSDK_CONFIG": str(tmp_path),
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "0",
    }
    environment = os.environ | settings
    return subprocess.run(["gcloud", *arguments], env=environment, capture_output=True, text=True, timeout=120)


needs_gcloud = pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")


@needs_gcloud
@pytest.mark.parametrize("command", TEMPLATES)
def test_gcloud_takes_the_metadata_and_drops_nothing(scripts, tmp_path, command):
    printed = scripts("build.sh", *BUILD, "--dry-run").stdout.splitlines()
    (line,) = (line for line in printed if f"templates/{command}.json" in line)
    program, *arguments = shlex.split(line)
    done = gcloud(tmp_path, *arguments, "--print-only")
    assert (program, done.returncode) == ("gcloud", 0), done.stderr
    spec = json.loads(yaml.safe_load(done.stdout))
    assert spec["metadata"] == metadata(command)
    assert spec["image"] == f"{IMAGE}{command}:t"
    assert spec["sdkInfo"] == {"language": "PYTHON"}


def unknown(tmp_path: Path, printed: str) -> list[str]:
    """Which arguments of a printed command gcloud does not know. One that it cannot know keeps it from acting."""
    _, *words = shlex.split(printed)
    own = words.index("--") if "--" in words else len(words)  # what follows is for another program
    done = gcloud(tmp_path, *words[:own], "--no-such-flag=1", *words[own:])
    assert done.returncode == 2
    return [word for word in done.stderr.split() if word.startswith("--") and len(word) > 2]


DOCUMENTED = [
    commands
    for page in ("dataflow.md", "airflow.md")
    for commands in re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)
]


@needs_gcloud
@pytest.mark.parametrize("number", range(len(DOCUMENTED)))
def test_gcloud_knows_the_commands_of_the_docs(scripts, tmp_path, number):
    names = ("PROJECT", "REGION", "INPUT", "OUTPUT", "TEMP", "JOB_ID", "ENVIRONMENT")
    scripts.type(DOCUMENTED[number], **{name: f"x-{name.lower().replace('_', '-')}" for name in names})
    lines = [line for line in DOCUMENTED[number].splitlines() if line.startswith("gcloud ")]
    assert len(scripts.calls) == len(lines) >= 1
    alike = {
        (*call[1:4], *(word.partition("=")[0] for word in call if word[:2] == "--")): call for call in scripts.calls
    }
    for call in alike.values():
        assert unknown(tmp_path, shlex.join(call)) == ["--no-such-flag=1"]


@needs_gcloud
def test_gcloud_knows_every_flag_of_run(scripts, tmp_path):
    options = shlex.split(" ".join(EVERY_OPTION))
    printed = scripts("run.sh", *RUN, *options, "--dry-run", "--", *PATHS).stdout
    assert unknown(tmp_path, printed) == ["--no-such-flag=1"]


@needs_gcloud
def test_gcloud_knows_every_flag_of_build(scripts, tmp_path):
    for printed in scripts("build.sh", *BUILD, "--build-service-account", "b@p-1", "--dry-run").stdout.splitlines():
        assert unknown(tmp_path, printed) == ["--no-such-flag=1"]
