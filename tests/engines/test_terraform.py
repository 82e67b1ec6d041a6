"""The set-up for Google Cloud, as far as Terraform itself and reading it can tell without an account."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATAFLOW = ROOT / "launch" / "dataflow"
MODULE = DATAFLOW / "terraform"
FILES = {path.name: re.sub(r"^\s*#.*", "", path.read_text(), flags=re.MULTILINE) for path in MODULE.glob("*.tf")}
TEXT = "\n".join(FILES.values())
GUIDE = (ROOT / "docs" / "dataflow.md").read_text()

needs_terraform = pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")

GIVEN = {
    "project": '"my-project"',
    "region": '"europe-west4"',
    "input_buckets": '["my-coco", "my-pets"]',
    "output_bucket": '"my-tfrecords"',
    "temp_bucket": '"my-temp"',
}


def terraform(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = ["terraform", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@needs_terraform
def test_it_can_be_parsed_and_is_formatted():
    found = terraform(MODULE, "fmt", "-check", "-diff", "-no-color")
    assert (found.returncode, found.stdout) == (0, ""), found.stderr


@needs_terraform
def test_it_is_valid_for_the_real_provider(tmp_path):
    """Where its registry can be reached."""
    for path in MODULE.glob("*.tf"):
        shutil.copy(path, tmp_path)
    try:
        begun = terraform(tmp_path, "init", "-backend=false", "-input=false", "-no-color")
    except subprocess.TimeoutExpired:
        pytest.skip("the provider cannot be downloaded here")
    unreachable = ("could not connect to", "failed to query available provider packages")
    if begun.returncode and any(text in begun.stderr.lower() for text in unreachable):
        pytest.skip("the provider cannot be downloaded here")
    assert begun.returncode == 0, begun.stderr
    found = terraform(tmp_path, "validate", "-no-color")
    assert found.returncode == 0, found.stderr


# variables.tf alone wants no provider, and Terraform checks what it is given.


def planned(folder: Path, text: str) -> subprocess.CompletedProcess:
    shutil.copy(MODULE / "variables.tf", folder)
    (folder / "terraform.tfvars").write_text(text)
    return terraform(folder, "plan", "-input=false", "-no-color")


@needs_terraform
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("project", '"123456789012"'),
        ("region", '"europe-west4-a"'),
        ("region", '"EU"'),
        ("name", '"rm"'),
        ("input_buckets", "[]"),
        ("input_buckets", '["gs://my-coco"]'),
        ("output_bucket", '"my-tfrecords/coco"'),
        ("temp_bucket", '"gs://my-temp"'),
        ("temp_days", "1"),
        ("temp_days", "2.5"),
        ("launcher_users", '["allUsers"]'),
        ("subnet_range", '"10.0.0.0"'),
    ],
)
def test_a_value_that_cannot_be_right_is_refused_before_anything_is_made(tmp_path, name, value):
    done = planned(tmp_path, "\n".join(f"{name} = {value}" for name, value in (GIVEN | {name: value}).items()))
    assert done.returncode == 1
    assert re.findall(r"var\.(\w+) is ", done.stderr) == [name]


@needs_terraform
def test_the_example_has_what_must_be_given_and_nothing_else(tmp_path):
    text = (MODULE / "terraform.tfvars.example").read_text()
    done = planned(tmp_path, re.sub(r"^# (\w+ += )", r"\1", text, flags=re.MULTILINE))
    assert done.returncode == 0, done.stderr
    assert "undeclared" not in done.stdout


# What reading it can tell


def test_all_that_is_used_is_declared_and_all_that_is_declared_is_used():
    expressions = "\n".join(text for name, text in FILES.items() if name != "variables.tf")
    variables = set(re.findall(r'^variable "(\w+)"', TEXT, re.MULTILINE))
    assert set(re.findall(r"\bvar\.(\w+)", expressions)) == variables
    values = set(re.findall(r"^  (\w+) +=", re.search(r"^locals \{$(.*?)^\}", TEXT, re.DOTALL | re.MULTILINE)[1], re.M))
    assert set(re.findall(r"\blocal\.(\w+)", TEXT)) == values
    resources = {".".join(names) for names in re.findall(r'^resource "(\w+)" "(\w+)"', TEXT, re.MULTILINE)}
    assert set(re.findall(r"\b(google_\w+\.\w+)", TEXT)) <= resources


def granted(account: str) -> set[str]:
    """The roles of one of the three accounts."""
    blocks = re.findall(r"^resource .*?^\}", TEXT, re.DOTALL | re.MULTILINE)
    whose = [block for block in blocks if f"google_service_account.{account}.member" in block]
    return {role for block in whose for role in re.findall(r'role += "(.*)"', block)}


def test_the_guide_s_commands_give_the_worker_the_same_roles_and_enable_the_same_services():
    assert set(re.findall(r"serviceAccount:\$WORKER --role=(\S+)", GUIDE)) == granted("worker") != set()
    (enabled,) = re.findall(r"gcloud services enable (.*) --project", GUIDE)
    assert set(re.findall(r'"(\S+\.googleapis\.com)"', TEXT)) == set(enabled.split())


def test_no_account_may_do_more_than_the_guide_says():
    """All of it: a role that is added must be added here and in the guide's table."""
    assert granted("launcher") == {
        "roles/dataflow.developer",
        "roles/iam.serviceAccountUser",
        "roles/storage.objectViewer",
    }
    assert granted("builder") == {
        "roles/artifactregistry.writer",
        "roles/logging.logWriter",
        "roles/storage.objectViewer",
    }


def test_folders_of_the_temporary_bucket_are_those_that_the_scripts_use():
    scripts = "".join((DATAFLOW / name).read_text() for name in ("build.sh", "run.sh"))
    used = set(re.findall(r"\$(?:temp|\{template:-\$temp)/(\w+)", scripts))
    (deleted,) = re.findall(r"matches_prefix += \[(.*)\]", TEXT)
    assert set(re.findall(r'"(\w+)/"', deleted)) == used - {"templates"}
    assert set(re.findall(r"/objects/(\w+)/", TEXT)) == {"templates", "build"} <= used


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("name", ["build_command", "run_command"])
def test_the_commands_that_it_prints_are_taken_by_our_scripts(name, private):
    (command,) = re.findall(rf'output "{name}" \{{[^}}]*?value += "(.*)"', TEXT)
    (networks,) = re.findall(r' network += var\.private_network \? "(.*)" : "(.*)"', TEXT)
    command = command.replace("${local.network}", networks[0] if private else networks[1])
    command = command.replace('${var.private_network ? local.network : ""}', networks[0] if private else "")
    values = {"local.images": "europe-west4-docker.pkg.dev/p-1/rm", "local.temp": "gs://t-1", "var.region": "eu-west1"}
    for expression in set(re.findall(r"\$\{(.*?)\}", command)):
        command = command.replace(f"${{{expression}}}", values.get(expression, "my-value"))
    script, *arguments = shlex.split(command)
    done = subprocess.run([str(ROOT / script), "--dry-run", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert ("--disable-public-ips" in done.stdout) == private
