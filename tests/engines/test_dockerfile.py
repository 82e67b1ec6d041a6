"""The image of launcher and workers, as far as it can be told without a registry: its lines, what it is built from, and
what starts in it."""

import email
import json
import os
import re
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from apache_beam.internal.gcp import auth
from packaging.requirements import Requirement

from recordmill.launch.command_line.parameters import TEMPLATES
from tests.gcs_stand_in import GcsStandIn, running
from tests.test_layering import DATA, FILES, installed_name

ROOT = Path(__file__).resolve().parents[2]
DATAFLOW = ROOT / "launch" / "dataflow"
IMAGES = "europe-west4-docker.pkg.dev/p-1/recordmill"


def instructions() -> list[tuple[str, str]]:
    """The lines of the Dockerfile: a keyword and the rest."""
    text = re.sub(r"^#.*\n", "", (DATAFLOW / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], " ".join(line.split()[1:])) for line in lines if line.strip()]


def only(keyword: str, beginning: str = "") -> str:
    (found,) = (rest for word, rest in instructions() if word == keyword and rest.startswith(beginning))
    return found


def pinned(package: str) -> str:
    (version,) = re.findall(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return version


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> Path:
    """The folder that build.sh has the image built from."""
    folder = tmp_path_factory.mktemp("build")
    gcloud = folder / "bin" / "gcloud"
    gcloud.parent.mkdir()
    gcloud.write_text(f'#!/bin/sh\nif [ "$1" = builds ]; then cp -r "$3" "{folder}/context"; fi\n')
    gcloud.chmod(0o755)
    # Built with this environment's setuptools, so that nothing is downloaded.
    environment = os.environ | {"PATH": f"{gcloud.parent}:{os.environ['PATH']}", "PIP_NO_BUILD_ISOLATION": "false"}
    command = [DATAFLOW / "build.sh", "--project", "p-1", "--images", IMAGES, "--temp", "gs://t-1"]
    done = subprocess.run([*command, "--python", sys.executable], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "context"


def test_the_sdk_is_of_the_version_that_is_installed():
    assert only("ARG", "BEAM_IMAGE").partition(":")[2] == pinned("apache-beam")


def test_all_images_are_of_one_python():
    bases = [rest.partition("=")[2] for word, rest in instructions() if word == "ARG" and "_IMAGE=" in rest]
    found = [re.search(r"python(?::|_)?(\d)\.?(\d\d)", base) for base in bases]
    assert [match and (match[1], match[2]) for match in found] == [("3", "11")] * 3
    assert bases[-1] == "python:3.11-slim-bookworm"
    named = ["${BEAM_IMAGE} AS beam", "${LAUNCHER_IMAGE} AS launcher", "${PYTHON_IMAGE}"]
    assert [rest for word, rest in instructions() if word == "FROM"] == named


def test_all_that_is_copied_is_there(context):
    copied = [rest.split()[:-1] for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    for pattern in (pattern for patterns in copied for pattern in patterns):
        assert len(list(context.glob(pattern))) == 1, pattern
    assert sorted(path.name for path in context.iterdir() if path.suffix != ".whl") == sorted(
        [
            *("Dockerfile", "build_image.sh", "cloudbuild.yaml", "main.py"),
            *("requirements-embed.txt", "requirements.txt"),
        ]
    )


def test_the_wheel_that_it_builds_of_a_copy_holds_every_module(context):
    (wheel,) = context.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == {*map(installed_name, FILES.values()), *map(installed_name, DATA)}


def listed(name: str) -> dict[str, tuple[str, int]]:
    """Packages of a list, each with its version and how many digests it may have."""
    entries = re.split(r"\n(?=\S)", (DATAFLOW / name).read_text().strip())
    found = [(re.match(r"([a-z0-9.-]+)==(\S+)", entry), entry.count("--hash=sha256:")) for entry in entries]
    return {match[1]: (match[2], digests) for match, digests in found if match}


def test_what_is_installed_is_pinned_as_everywhere_and_has_digests():
    pins = (Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    image = {"python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "linux"}
    constraints = {pin.name: str(pin.specifier)[2:] for pin in pins if not pin.marker or pin.marker.evaluate(image)}
    base, embed = listed("requirements.txt"), listed("requirements-embed.txt")
    for name, (version, digests) in (base | embed).items():
        assert version == constraints[name], name
        assert digests, name
    assert not base.keys() & embed.keys()


def test_nothing_but_our_wheel_is_installed_without_a_digest():
    installed = [
        words for word, rest in instructions() if word == "RUN" for words in re.findall(r"pip install [^&]+", rest)
    ]
    assert len(installed) == 3
    assert [words for words in installed if "--require-hashes" not in words] == ["pip install --no-deps ./*.whl "]


def test_all_that_the_wheel_and_beam_require_is_installed_and_tensorflow_for_embed_alone(context):
    (wheel,) = context.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    required = {Requirement(line).name for line in lines if "extra ==" not in line or 'extra == "gcp"' in line}
    base, embed = listed("requirements.txt"), listed("requirements-embed.txt")
    assert "apache-beam" in required
    assert required <= base.keys()
    assert ("tensorflow" in base, "tensorflow" in embed) == (False, True)


def test_cloud_build_and_docker_build_alike(context):
    """The same script for each command, with the same arguments, whoever builds."""
    steps = yaml.safe_load((context / "cloudbuild.yaml").read_text())
    built = [" ".join([step["entrypoint"], *step["args"]]) for step in steps["steps"]]
    command = [
        DATAFLOW / "build.sh",
        "--project",
        "p-1",
        "--images",
        "${_IMAGES}",
        "--temp",
        "gs://t-1",
        "--tag",
        "t-1",
    ]
    command[4] = IMAGES
    printed = subprocess.run([*command, "--local", "--dry-run"], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in printed.splitlines() if "build_image.sh" in line]
    values = {"${_IMAGES}": IMAGES, "${_TAG}": "t-1"}
    for name, value in values.items():
        built = [line.replace(name, value) for line in built]
    assert built == [f"bash build_image.sh {' '.join(words[1:])}" for words in lines]
    assert [words[1] for words in lines] == list(TEMPLATES)
    assert [image.rpartition("/")[2] for image in steps["images"]] == [
        f"recordmill-{command}:${{_TAG}}" for command in TEMPLATES
    ]


def test_only_the_image_of_embed_has_tensorflow():
    """By the line as a shell runs it, with a pip that says what it is asked."""
    (line,) = (rest for word, rest in instructions() if word == "RUN" and "requirements-embed" in rest)
    pip = 'pip() { echo "$@"; }; '
    said = {
        command: subprocess.run(["sh", "-c", pip + line], env={"COMMAND": command}, capture_output=True, text=True)
        for command in TEMPLATES
    }
    assert {command: done.returncode for command, done in said.items()} == dict.fromkeys(TEMPLATES, 0)
    installed = {command: done.stdout.splitlines() for command, done in said.items() if done.stdout}
    asked = "install --require-hashes --no-deps --requirement requirements-embed.txt"
    assert installed == {"embed": [asked, "check"]}


def test_the_build_converts_and_verifies(tmp_path):
    """By the line as a shell runs it, in another folder than /tmp."""
    (line,) = (rest for word, rest in instructions() if word == "RUN" and "recordmill sample" in rest)
    folder = tmp_path / "smoke"
    line = line.replace("/tmp/smoke", str(folder))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    kept = line.removesuffix(f"&& rm -rf {folder}")
    assert kept != line
    done = subprocess.run(["sh", "-c", kept], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (folder / "out" / "manifest.json").exists()


# What starts in it


@pytest.fixture
def started(monkeypatch):
    """Runs main.py as the launcher does; returns the flags that the job would have had."""

    def start(*flags: str, **environment: str) -> list[str]:
        given = []
        monkeypatch.setattr("recordmill.launch.flat.main", lambda arguments: given.extend(arguments) or 7)
        for name in ("RECORDMILL_COMMAND", "RECORDMILL_IMAGE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["main.py", *flags])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(DATAFLOW / "main.py"), run_name="__main__")
        assert ended.value.code == 7  # what the command returned, so that the launcher sees a failure
        return given

    return start


def test_the_image_says_which_command_it_runs_and_what_workers_run(started):
    given = started("--images=gs://b-1/i", RECORDMILL_COMMAND="folder", RECORDMILL_IMAGE="h/i:t")
    assert given == ["--command=folder", "--sdk_container_image=h/i:t", "--images=gs://b-1/i"]


def test_another_worker_image_may_be_given(started):
    from recordmill.launch.flat import from_flat

    other = "--sdk_container_image=h/other@sha256:0"
    given = started(other, RECORDMILL_COMMAND="coco", RECORDMILL_IMAGE="h/i:t")
    assert from_flat(given)[-2:] == ["--sdk_container_image=h/i:t", other]  # Beam heeds the last


def test_without_an_image_none_is_given(started):
    """As where the file is run outside of it."""
    assert started("--x=1", RECORDMILL_COMMAND="coco", RECORDMILL_IMAGE="") == ["--command=coco", "--x=1"]


@pytest.fixture
def gcs(monkeypatch) -> Iterator[GcsStandIn]:
    with running() as stand_in:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", stand_in.url)
        monkeypatch.setattr(auth._Credentials, "_credentials_init", True)  # Beam's own would be searched for 20 s
        yield stand_in


def test_the_launcher_gets_a_job_for_its_workers(gcs, sample, monkeypatch, capfd):
    """With the flags that Dataflow's launcher adds, Beam writes the job to where it is told, for Dataflow to start."""
    folder = Path(sample.images).parent
    for path in folder.rglob("*"):
        if path.is_file():
            gcs.put(f"in/{path.relative_to(folder).as_posix()}", path.read_bytes())
    image = f"{IMAGES}/recordmill-coco:t-1"
    monkeypatch.setenv("RECORDMILL_COMMAND", "coco")
    monkeypatch.setenv("RECORDMILL_IMAGE", image)
    launch = "gs://bucket/staging/template_launches/1"
    flags = [
        *("--images=gs://bucket/in/images", "--instances=gs://bucket/in/annotations/instances.json"),
        *("--output=gs://bucket/out", "--max_rejects=0.2", "--gzip=false", "--num_shards=2"),
        *("--runner=DataflowRunner", "--project=my-project", "--region=europe-west4", "--job_name=j-1"),
        *("--temp_location=gs://bucket/temp", "--staging_location=gs://bucket/staging"),
        *(f"--template_location={launch}/job_object", "--machine_type=n2-standard-4", "--max_num_workers=3"),
        *("--service_account_email=w@my-project.iam.gserviceaccount.com", "--no_use_public_ips"),
        """--labels={"goog-dataflow-provided-template-type": "flex"}""",
    ]
    monkeypatch.setattr(sys, "argv", ["main.py", *flags])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DATAFLOW / "main.py"), run_name="__main__")
    assert ended.value.code == 0, capfd.readouterr().err
    job = json.loads(gcs.objects()["staging/template_launches/1/job_object"])
    (pool,) = (pool for pool in job["environment"]["workerPools"] if pool.get("kind", "harness") == "harness")
    assert [it["containerImage"] for it in pool["sdkHarnessContainerImages"]] == [image]
    assert pool["machineType"] == "n2-standard-4"
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 3
    assert pool["ipConfiguration"] in ("WORKER_IP_PRIVATE", 2)
    assert job["environment"]["serviceAccountEmail"] == "w@my-project.iam.gserviceaccount.com"
    assert job["labels"] == {"goog-dataflow-provided-template-type": "flex", "made-by": "recordmill"}
    assert not [name for name in gcs.objects() if ".tfrecord" in name]  # that is the workers' part
    assert not [name for name in gcs.objects() if "pickled_main_session" in name]
