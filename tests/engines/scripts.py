"""The scripts of launch/dataflow, as tests call them."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATAFLOW = ROOT / "launch" / "dataflow"

BUILD = [
    "--project",
    "p-1",
    "--images",
    "europe-west4-docker.pkg.dev/p-1/recordmill",
    "--temp",
    "gs://t-1",
    "--tag",
    "t",
]
RUN = ["coco", "--project", "p-1", "--region", "europe-west4", "--temp", "gs://t-1", "--job-name", "j-1"]
RUN += ["--subnetwork", "https://x/s"]
PATHS = ["images=gs://b-1/i", "output=gs://b-1/o"]
IMAGE = "europe-west4-docker.pkg.dev/p-1/recordmill/recordmill-"
EVERY_OPTION = {
    "--template gs://x-1/y.json": "--template-file-gcs-location=gs://x-1/y.json",
    "--service-account a@p-1.iam.gserviceaccount.com": "--service-account-email=a@p-1.iam.gserviceaccount.com",
    "--as l@p-1.iam.gserviceaccount.com": "--impersonate-service-account=l@p-1.iam.gserviceaccount.com",
    "--launcher-machine-type n2-highmem-2": "--launcher-machine-type=n2-highmem-2",
    "--disk-size-gb 40": "--additional-pipeline-options=disk_size_gb=40",
    "--machine-type n2-highcpu-4": "--worker-machine-type=n2-highcpu-4",
    "--max-workers 3": "--max-workers=3",
    "--num-workers 2": "--num-workers=2",
    "--flexrs": "--flexrs-goal=COST_OPTIMIZED",
    "--kms-key projects/p/k": "--dataflow-kms-key=projects/p/k",
    "--label team=vision --label run=7": "--additional-user-labels=^;^team=vision;run=7",
    "--experiment a --experiment b=1,2": "--additional-experiments=^;^a;b=1,2",
    "--temp gs://t-1/folder/": "--staging-location=gs://t-1/folder/staging",
}
"""Options of run.sh, and what gcloud is given for each."""


class Scripts:
    """The scripts, with programs on PATH that write down how they were called."""

    def __init__(self, folder: Path):
        self._calls = folder / "calls"
        self._bin = folder / "bin"
        self._bin.mkdir()
        for name in ("gcloud", "docker"):
            program = self._bin / name
            program.write_text(
                f'#!/bin/sh\nprintf "%s\\0" {name} "$@" >>"{self._calls}"\nprintf "\\n\\0" >>"{self._calls}"\n'
            )
            program.chmod(0o755)
        with (self._bin / "docker").open("a") as docker:
            docker.write('if [ "$1 $2" = "image inspect" ]; then echo "${4%:*}@sha256:1"; fi\n')

    def __call__(self, script: str, *arguments: str) -> subprocess.CompletedProcess:
        environment = os.environ | {"PATH": f"{self._bin}:{os.environ['PATH']}", "PIP_NO_BUILD_ISOLATION": "false"}
        if script == "build.sh":
            arguments = ("--python", sys.executable, *arguments)
        return subprocess.run([DATAFLOW / script, *arguments], env=environment, capture_output=True, text=True)

    def type(self, text: str, **variables: str) -> None:
        """Types what the docs say, into a shell that has these variables and complains of others."""
        environment = os.environ | {"PATH": f"{self._bin}:{os.environ['PATH']}"} | variables
        subprocess.run(["bash", "-euc", text], env=environment, check=True)

    @property
    def calls(self) -> list[list[str]]:
        """Program and arguments of each call, as they came."""
        if not self._calls.exists():
            return []
        return [call.split("\0")[:-1] for call in self._calls.read_text().split("\n\0")[:-1]]
