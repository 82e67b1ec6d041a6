"""The set-up for Google Cloud, as OpenTofu plans it with the arguments of hashicorp/google and without Google."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from apache_beam.metrics import Metrics

from recordmill.transforms.runtime import progress
from tests.engines import fetch
from tests.engines.conftest import fetched

ROOT = Path(__file__).resolve().parents[2]
DATAFLOW = ROOT / "launch" / "dataflow"
MODULE = DATAFLOW / "terraform"
GUIDE = (ROOT / "docs" / "dataflow.md").read_text()

GIVEN = {
    "project": "my-project",
    "region": "europe-west4",
    "input_buckets": ["my-coco", "my-pets"],
    "output_bucket": "my-tfrecords",
    "temp_bucket": "my-temp",
}
ACCOUNTS = ("worker", "launcher", "builder")


class Module:
    """A copy of our module."""

    def __init__(self, folder: Path, tofu: Path, configuration: Path):
        self.folder = folder
        self._tofu = tofu
        self._environment = {"TF_CLI_CONFIG_FILE": str(configuration), "HOME": str(folder), "TMPDIR": str(folder)}

    def tofu(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [self._tofu, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=120
        )

    def test(self, command: str = "plan", **variables: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """What is planned with these variables, and what is wrong with it.

        What Google would answer is made up by OpenTofu, but for the accounts' names.
        """
        accounts = "\n".join(
            f"""override_resource {{
              target = google_service_account.{name}
              values = {{ member = "{name}", email = "{name}@my-project.iam.gserviceaccount.com", name = "{name}" }}
            }}"""
            for name in ACCOUNTS
        )
        google = """
            override_data {
              target = data.google_project.this
              values = { number = "12" }
            }"""
        given = "\n".join(f"{name} = {json.dumps(value)}" for name, value in {**GIVEN, **variables}.items())
        parts = ('mock_provider "google" {}', accounts, google, f"variables {{\n{given}\n}}")
        (self.folder / "facts.tftest.hcl").write_text("\n".join([*parts, f'run "it" {{ command = {command} }}']))
        lines = self.tofu("test", "-json", "-verbose").stdout.splitlines()
        said = [line for line in map(json.loads, lines) if "type" in line]
        plans = [line["test_plan"] for line in said if line["type"] == "test_plan"]
        return (plans or [{}])[0], [line["diagnostic"] for line in said if line["type"] == "diagnostic"]

    def plan(self, **variables: Any) -> "Plan":
        planned, faults = self.test(**variables)
        assert not faults
        return Plan(planned)


class Plan:
    """What would be made."""

    def __init__(self, planned: dict[str, Any]):
        changes = planned["resource_changes"]
        assert {tuple(it["change"]["actions"]) for it in changes if it["mode"] == "managed"} == {("create",)}
        self.resources = {it["address"]: it["change"]["after"] for it in changes if it["mode"] == "managed"}
        self.outputs = {name: it["value"] for name, it in planned["planned_values"]["outputs"].items()}

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [values for address, values in self.resources.items() if address.startswith(f"{kind}.")]

    def granted(self, member: str) -> set[tuple[str, str]]:
        """What somebody may: roles, and on what."""
        places = ("bucket", "repository", "service_account_id", "subnetwork", "crypto_key_id", "project")

        def place(values: dict[str, Any]) -> str:
            where = next(values[name] for name in places if values.get(name))
            return where + "".join(
                it["expression"].partition("objects")[2].strip('")') for it in values.get("condition", ())
            )

        members = [it for address, it in self.resources.items() if "_iam_member." in address]
        return {(it["role"], place(it)) for it in members if it["member"] == member}


@pytest.fixture(scope="module")
def configuration(tmp_path_factory) -> Path:
    """Says where the provider is."""
    path = tmp_path_factory.mktemp("tofu") / "tofurc"
    mirror = fetched(fetch.GOOGLE_PROVIDER).resolve()
    path.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{mirror}" }}\n}}\n')
    return path


@pytest.fixture
def copy(configuration, tmp_path) -> Module:
    """One that may be changed."""
    return copied(tmp_path / "module", configuration)


@pytest.fixture(scope="module")
def module(configuration, tmp_path_factory) -> Module:
    return copied(tmp_path_factory.mktemp("terraform") / "module", configuration)


def copied(folder: Path, configuration: Path) -> Module:
    shutil.copytree(MODULE, folder, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*", "terraform.tfvars"))
    made = Module(folder, fetched(fetch.TOFU_PROGRAM).resolve() / "tofu", configuration)
    begun = made.tofu("init", "-backend=false", "-input=false", "-no-color")
    assert begun.returncode == 0, begun.stderr
    return made


@pytest.fixture(scope="module")
def plan(module) -> Plan:
    """With what must be given, and nothing else."""
    return module.plan()


def test_it_is_valid_and_formatted(module):
    found = module.tofu("validate", "-json")
    assert json.loads(found.stdout)["diagnostics"] == []
    found = module.tofu("fmt", "-check", "-diff", "-no-color")
    assert (found.returncode, found.stdout) == (0, ""), found.stderr


@pytest.mark.parametrize(
    ("wrong", "summary"),
    [
        ('resource "google_storage_bucket" "x" { name = "x" }', "Missing required argument"),
        ('resource "google_service_account" "x" { account = "x" }', "Unsupported argument"),
        ('resource "google_service_account" "x" {\n account_id = "x"\n action {}\n}', "Unsupported block type"),
        ('output "x" { value = google_service_account.worker.mail }', "Unsupported attribute"),
        ('output "x" { value = var.nothing }', "Reference to undeclared input variable"),
    ],
)
def test_what_the_provider_does_not_know_is_found(copy, wrong, summary):
    """Or the test above would hold nothing."""
    (copy.folder / "wrong.tf").write_text(wrong)
    faults = json.loads(copy.tofu("validate", "-json").stdout)["diagnostics"]
    assert summary in {fault["summary"] for fault in faults}


def test_the_provider_that_is_asked_for_is_the_one_whose_arguments_are_known():
    (asked,) = re.findall(r'version = "~> (\S+)"', (MODULE / "versions.tf").read_text())
    schema = json.loads((Path(__file__).parent / "google_provider" / "schema.json").read_text())
    assert schema["made_of"].endswith(f"hashicorp/google {fetch.GOOGLE}")
    assert f"{asked}.0" == fetch.GOOGLE


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("project", "123456789012"),
        ("region", "europe-west4-a"),
        ("region", "EU"),
        ("name", "rm"),
        ("input_buckets", []),
        ("input_buckets", ["gs://my-coco"]),
        ("output_bucket", "my-tfrecords/coco"),
        ("temp_bucket", "gs://my-temp"),
        ("temp_days", 1),
        ("temp_days", 2.5),
        ("launcher_users", ["allUsers"]),
        ("readers", ["allUsers"]),
        ("writers", ["allUsers"]),
        ("subnet_range", "10.0.0.0"),
        ("shared_subnetwork", "my-subnetwork"),
        ("shared_subnetwork", "projects/p/regions/us-east1/subnetworks/s"),
        ("output_soft_delete_days", 3),
        ("keep_images", 0),
        ("kms_key", "projects/p/locations/us/keyRings/r/cryptoKeys/k"),
        ("alert_email", "somebody"),
        ("billing_account", "billingAccounts/1"),
        ("monthly_budget", 0),
    ],
)
def test_a_value_that_cannot_be_right_is_refused_before_anything_is_made(module, name, value):
    faults = module.test(**{name: value})[1]
    (looked_at,) = ({it["traversal"] for it in fault["snippet"]["values"]} for fault in faults)
    assert f"var.{name}" in looked_at <= {f"var.{name}", "var.region"}


def test_the_example_has_what_must_be_given_and_nothing_that_is_not_known(copy):
    text = (MODULE / "terraform.tfvars.example").read_text()
    given = dict(re.findall(r"^(\w+) += (.+)$", text, re.M))
    assert given.keys() == GIVEN.keys()
    offered = dict(re.findall(r"^# (\w+) += (.+)$", text, re.M))
    assert copy.plan(**{name: json.loads(value) for name, value in {**given, **offered}.items()})


def test_an_account_may_do_what_the_guide_says_and_no_more(plan):
    """All of it: a role that is added must be added here and in the guide's table."""
    assert plan.granted("worker") == {
        ("roles/dataflow.worker", "my-project"),
        ("roles/storage.objectViewer", "my-coco"),
        ("roles/storage.objectViewer", "my-pets"),
        ("roles/storage.objectUser", "my-tfrecords"),
        ("roles/storage.objectUser", "my-temp"),
        ("roles/artifactregistry.reader", repository(plan)),
    }
    assert plan.granted("launcher") == {
        ("roles/dataflow.developer", "my-project"),
        ("roles/iam.serviceAccountUser", "worker"),
        ("roles/storage.objectViewer", "my-tfrecords"),
        ("roles/storage.objectViewer", "my-temp/templates/"),
    }
    assert plan.granted("builder") == {
        ("roles/artifactregistry.writer", repository(plan)),
        ("roles/logging.logWriter", "my-project"),
        ("roles/storage.objectViewer", "my-temp/build/"),
    }
    assert {values["member"] for address, values in plan.resources.items() if "_iam_member" in address} == set(ACCOUNTS)


def repository(plan: Plan) -> str:
    (values,) = plan.of("google_artifact_registry_repository")
    return values["name"]


def test_people_are_let_in_by_variables(module):
    plan = module.plan(launcher_users=["user:a@b.c"], readers=["group:d@b.c"], writers=["user:e@b.c"])
    assert plan.granted("user:a@b.c") == {("roles/iam.serviceAccountTokenCreator", "launcher")}
    assert plan.granted("group:d@b.c") == {("roles/storage.objectViewer", "my-tfrecords")}
    assert plan.granted("user:e@b.c") == {("roles/storage.objectUser", "my-tfrecords")}


def test_the_guide_s_commands_give_the_same_roles_and_enable_the_same_services(plan):
    for account in ("worker", "builder"):
        roles = {role for role, _ in plan.granted(account)}
        assert set(re.findall(rf"serviceAccount:\${account.upper()} --role=(\S+)", GUIDE)) == roles
    (enabled,) = re.findall(r"gcloud services enable (.*) --project", GUIDE)
    assert {values["service"] for values in plan.of("google_project_service")} == set(enabled.split())


def test_buckets_are_private_and_one_that_is_there_is_taken_as_it_is(module, plan):
    for bucket in plan.of("google_storage_bucket"):
        assert bucket["location"] == "europe-west4"
        assert (bucket["uniform_bucket_level_access"], bucket["public_access_prevention"]) == (True, "enforced")
    assert {bucket["name"] for bucket in plan.of("google_storage_bucket")} == {"my-tfrecords", "my-temp"}
    there = module.plan(create_output_bucket=False)
    assert {bucket["name"] for bucket in there.of("google_storage_bucket")} == {"my-temp"}
    assert ("roles/storage.objectUser", "my-tfrecords") in there.granted("worker")


def test_folders_of_the_temporary_bucket_are_those_that_the_scripts_use(plan):
    scripts = "".join((DATAFLOW / name).read_text() for name in ("build.sh", "run.sh"))
    used = set(re.findall(r"\$(?:temp|\{template:-\$temp)/(\w+)", scripts))
    (temp,) = (bucket for bucket in plan.of("google_storage_bucket") if bucket["name"] == "my-temp")
    (rule,) = temp["lifecycle_rule"]
    assert {prefix.rstrip("/") for prefix in rule["condition"][0]["matches_prefix"]} == used - {"templates"}
    assert {
        place.split("/")[1] for _, place in plan.granted("launcher") | plan.granted("builder") if "/" in place
    } <= used


def test_workers_without_addresses_reach_google_and_each_other(module, plan):
    (subnetwork,) = plan.of("google_compute_subnetwork")
    assert (subnetwork["private_ip_google_access"], subnetwork["region"]) == (True, "europe-west4")
    (rule,) = plan.of("google_compute_firewall")
    assert (rule["source_tags"], rule["target_tags"]) == (["dataflow"], ["dataflow"])
    assert not module.plan(private_network=False).of("google_compute_network")


SHARED = "projects/my-host/regions/europe-west4/subnetworks/s"
KEY = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
DATAFLOW_AGENT = "serviceAccount:service-12@dataflow-service-producer-prod.iam.gserviceaccount.com"


@pytest.mark.parametrize("variables", [{}, {"private_network": False}, {"shared_subnetwork": SHARED, "kms_key": KEY}])
@pytest.mark.parametrize("name", ["build_command", "run_command"])
def test_the_commands_that_it_prints_are_taken_by_our_scripts(module, name, variables):
    command = module.plan(**variables).outputs[name]
    script, *arguments = shlex.split(command)
    done = subprocess.run([str(ROOT / script), "--dry-run", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert ("--disable-public-ips" in done.stdout) == variables.get("private_network", True)
    assert (SHARED in done.stdout) == ("shared_subnetwork" in variables)
    if name == "run_command":
        assert (f"--dataflow-kms-key={KEY}" in done.stdout) == ("kms_key" in variables)


def test_a_subnetwork_of_a_host_project_is_used_by_workers_and_dataflow(module):
    plan = module.plan(shared_subnetwork=SHARED)
    assert not plan.of("google_compute_network")
    lets = plan.of("google_compute_subnetwork_iam_member")
    assert {(it["member"], it["role"]) for it in lets} == {
        ("worker", "roles/compute.networkUser"),
        (DATAFLOW_AGENT, "roles/compute.networkUser"),
    }
    assert {(it["project"], it["region"], it["subnetwork"]) for it in lets} == {("my-host", "europe-west4", "s")}


def test_a_key_encrypts_buckets_and_images_for_which_google_s_agents_may_use_it(module, plan):
    assert not plan.of("google_kms_crypto_key_iam_member")
    with_key = module.plan(kms_key=KEY)
    lets = with_key.of("google_kms_crypto_key_iam_member")
    assert {(it["role"], it["crypto_key_id"]) for it in lets} == {("roles/cloudkms.cryptoKeyEncrypterDecrypter", KEY)}
    agents = {it["member"] for it in lets}
    assert len(agents) == 4
    domains = ("gcp-sa-artifactregistry", "compute-system")
    named = {f"serviceAccount:service-12@{domain}.iam.gserviceaccount.com" for domain in domains}
    assert {*named, DATAFLOW_AGENT} < agents
    for bucket in with_key.of("google_storage_bucket"):
        assert bucket["encryption"] == [{"default_kms_key_name": KEY}]
    assert [it["kms_key_name"] for it in with_key.of("google_artifact_registry_repository")] == [KEY]
    assert "cloudkms.googleapis.com" in {it["service"] for it in with_key.of("google_project_service")}


def test_data_sets_are_not_destroyed_with_the_rest_and_can_be_had_back(copy, plan):
    output, temp = sorted(plan.of("google_storage_bucket"), key=lambda bucket: bucket["name"], reverse=True)
    assert output["soft_delete_policy"][0]["retention_duration_seconds"] == 7 * 24 * 3600
    assert temp["soft_delete_policy"][0]["retention_duration_seconds"] == 0
    assert (output["retention_policy"], output["default_event_based_hold"]) == ([], None)  # no job could end there
    (fault,) = copy.test("apply")[1]  # after which all is destroyed
    assert fault["summary"] == "Instance cannot be destroyed"
    assert fault["snippet"]["code"] == 'resource "google_storage_bucket" "output" {'


def test_tags_do_not_move_unless_old_images_are_deleted(module, plan):
    """Artifact Registry deletes nothing that has an immutable tag."""
    (images,) = plan.of("google_artifact_registry_repository")
    assert (images["docker_config"], images["cleanup_policies"]) == ([{"immutable_tags": True}], [])
    (images,) = module.plan(keep_images=5).of("google_artifact_registry_repository")
    assert images["docker_config"] == [{"immutable_tags": False}]
    keep, delete = sorted(images["cleanup_policies"], key=lambda policy: policy["action"], reverse=True)
    assert (keep["action"], keep["most_recent_versions"][0]["keep_count"]) == ("KEEP", 5)
    assert (delete["action"], delete["condition"][0]["older_than"]) == ("DELETE", f"{30 * 24 * 3600}s")


# Alerts

MAIL = {"alert_email": "a@b.c"}


def test_without_an_address_or_a_billing_account_nobody_is_told(plan):
    kinds = ("monitoring_notification_channel", "monitoring_alert_policy", "logging_metric", "billing_budget")
    assert [plan.of(f"google_{kind}") for kind in kinds] == [[], [], [], []]


def test_every_alert_goes_to_the_address_and_says_when_it_is_given(module):
    plan = module.plan(**MAIL, alert_hours=2, alert_rejects=5, alert_vcpus=40, alert_idle_minutes=45)
    (channel,) = plan.of("google_monitoring_notification_channel")
    assert (channel["type"], channel["labels"]) == ("email", {"email_address": "a@b.c"})
    policies = plan.of("google_monitoring_alert_policy")
    assert all(len(policy["notification_channels"]) == 1 and policy["documentation"] for policy in policies)
    conditions = [policy["conditions"][0] for policy in policies]
    thresholds = [it["condition_threshold"][0] for it in conditions if it["condition_threshold"]]
    (metric,) = plan.of("google_logging_metric")
    assert {re.findall(r'metric.type = "(.*?)"', it["filter"])[0]: it["threshold_value"] for it in thresholds} == {
        "dataflow.googleapis.com/job/is_failed": 0,
        "dataflow.googleapis.com/job/elapsed_time": 2 * 3600,
        "dataflow.googleapis.com/job/user_counter": 5,
        "dataflow.googleapis.com/job/current_num_vcpus": 40,
        f"logging.googleapis.com/user/{metric['name']}": 0,
    }
    assert all('full_match("recordmill-.*")' in it["filter"] for it in thresholds)
    assert all('resource.type = "dataflow_job"' in it["filter"] for it in thresholds)
    assert 'resource.type="dataflow_step"' in metric["filter"]
    (query,) = (
        it["condition_prometheus_query_language"][0]["query"] for it in conditions if not it["condition_threshold"]
    )
    assert "[45m]" in query
    assert "> 2700" in query


def test_alerts_are_on_counters_that_steps_have(module):
    text = json.dumps(module.plan(**MAIL).of("google_monitoring_alert_policy")).replace("\\", "")
    named = set(re.findall(r'metric_name *= *(?:starts_with\()?"(.*?)"', text))
    counters = {str(it.metric_name.name) for it in vars(progress).values() if isinstance(it, Metrics.DelegatingCounter)}
    assert named - counters == {progress._REJECTED}
    assert named & counters == {"shards_written"}


def test_a_budget_is_of_the_project_and_tells_before_it_is_spent(module):
    plan = module.plan(billing_account="012345-6789AB-CDEF01", monthly_budget=70)
    (budget,) = plan.of("google_billing_budget")
    assert budget["budget_filter"][0]["projects"] == ["projects/12"]
    assert budget["amount"][0]["specified_amount"][0]["units"] == "70"
    rules = {(rule["threshold_percent"], rule["spend_basis"]) for rule in budget["threshold_rules"]}
    assert rules == {(0.5, None), (0.9, None), (1, None), (1, "FORECASTED_SPEND")}
    assert not budget["all_updates_rule"][0]["disable_default_iam_recipients"]
    assert "billingbudgets.googleapis.com" in {it["service"] for it in plan.of("google_project_service")}
    told = module.plan(billing_account="012345-6789AB-CDEF01", **MAIL).of("google_billing_budget")[0]
    assert len(told["all_updates_rule"][0]["monitoring_notification_channels"]) == 1
