"""The set-up for Google Cloud: formatted, valid, and granting what it says and nothing more.

Terraform checks and applies it for real, against a provider of ours that knows the resources' arguments as
hashicorp/google 6.50.0 has them (google-6.50.0.json, in the form of `terraform providers schema`) and
makes up what Google would answer. What Google itself refuses it cannot know.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "launch" / "dataflow" / "terraform"
SCHEMA = json.loads(Path(__file__).with_name("google-6.50.0.json").read_text())["provider_schemas"]["hashicorp/google"]

needs_terraform = pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
pytestmark = needs_terraform

GIVEN = {
    "project": "my-project",
    "region": "europe-west4",
    "input_buckets": ["my-coco", "my-pets"],
    "output_bucket": "my-tfrecords",
    "temp_bucket": "my-temp",
}
WORKER = "serviceAccount:recordmill-worker@my-project.iam.gserviceaccount.com"
LAUNCHER = "serviceAccount:recordmill-launcher@my-project.iam.gserviceaccount.com"
BUILDER = "serviceAccount:recordmill-builder@my-project.iam.gserviceaccount.com"

# The part of Terraform's plugin protocol, version 5, that is used here. A line is a message: its fields by number.
_PROTOCOL = {
    "Value": {"msgpack": (1, "bytes"), "json": (2, "bytes")},
    "Attribute": {
        "name": (1, "string"),
        "type": (2, "bytes"),
        "required": (4, "bool"),
        "optional": (5, "bool"),
        "computed": (6, "bool"),
    },
    "Nested": {
        "type_name": (1, "string"),
        "block": (2, "Block"),
        "nesting": (3, "int64"),
        "min_items": (4, "int64"),
        "max_items": (5, "int64"),
    },
    "Block": {"attributes": (2, "*Attribute"), "block_types": (3, "*Nested")},
    "Schema": {"version": (1, "int64"), "block": (2, "Block")},
    "NamedSchema": {"key": (1, "string"), "value": (2, "Schema")},  # a protobuf map, as it is on the wire
    "Schemas": {"provider": (1, "Schema"), "resources": (2, "*NamedSchema")},
    "Config": {"config": (1, "Value")},
    "Prepared": {"prepared": (1, "Value")},
    "Raw": {"json": (1, "bytes")},
    "Upgrade": {"type_name": (1, "string"), "raw": (3, "Raw")},
    "Read": {"type_name": (1, "string"), "state": (2, "Value")},
    "Plan": {"type_name": (1, "string"), "proposed": (3, "Value")},
    "State": {"state": (1, "Value")},
    "Empty": {},
}
_TYPES = {"string": 9, "bytes": 12, "bool": 8, "int64": 3}
_UNKNOWN = msgspec.msgpack.Ext(0, b"\x00")
_LISTS = 2


def _messages() -> dict[str, type]:
    file = descriptor_pb2.FileDescriptorProto(name="stand_in.proto", package="stand_in", syntax="proto3")
    for name, held in _PROTOCOL.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in held.items():
            added = message.field.add(name=field, number=number, label=3 if kind.startswith("*") else 1)
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type, added.type_name = 11, f".stand_in.{kind.lstrip('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"stand_in.{name}")) for name in _PROTOCOL}


_M = _messages()


def _block(described: dict):
    """A block as `terraform providers schema -json` has it, as a message."""
    block = _M["Block"]()
    for name, attribute in described.get("attributes", {}).items():
        flags = {flag: attribute.get(flag, False) for flag in ("required", "optional", "computed")}
        block.attributes.add(name=name, type=json.dumps(attribute["type"]).encode(), **flags)
    for name, nested in described.get("block_types", {}).items():
        assert nested["nesting_mode"] == "list"
        limits = {limit: nested.get(limit, 0) for limit in ("min_items", "max_items")}
        block.block_types.add(type_name=name, block=_block(nested["block"]), nesting=_LISTS, **limits)
    return block


class Provider:
    """Answers Terraform as a provider does: plans what is computed as unknown, and makes it up when it is applied."""

    def __init__(self):
        self.calls = {
            "GetSchema": ("Empty", self.schemas),
            "PrepareProviderConfig": ("Config", lambda asked: _M["Prepared"](prepared=asked.config)),
            "ValidateResourceTypeConfig": ("Empty", lambda _: _M["Empty"]()),
            "Configure": ("Empty", lambda _: _M["Empty"]()),
            "UpgradeResourceState": ("Upgrade", lambda asked: _M["State"](state=_M["Value"](json=asked.raw.json))),
            "ReadResource": ("Read", lambda asked: _M["State"](state=asked.state)),
            "PlanResourceChange": ("Plan", self.plan),
            "ApplyResourceChange": ("Plan", self.apply),
            "Stop": ("Empty", lambda _: _M["Empty"]()),
        }

    def schemas(self, _):
        answer = _M["Schemas"]()
        answer.provider.block.CopyFrom(_block(SCHEMA["provider"]["block"]))
        for name, resource in SCHEMA["resource_schemas"].items():
            schema = _M["Schema"](version=resource["version"], block=_block(resource["block"]))
            answer.resources.add(key=name, value=schema)
        return answer

    def plan(self, asked):
        values = msgspec.msgpack.decode(asked.proposed.msgpack)
        attributes = SCHEMA["resource_schemas"][asked.type_name]["block"]["attributes"]
        if values is not None:  # or it is to be destroyed
            unset = [name for name, it in attributes.items() if it.get("computed") and values[name] is None]
            values |= dict.fromkeys(unset, _UNKNOWN)
        return _M["State"](state=_M["Value"](msgpack=msgspec.msgpack.encode(values)))

    def apply(self, asked):
        values = msgspec.msgpack.decode(asked.proposed.msgpack)
        if values is not None:
            attributes = SCHEMA["resource_schemas"][asked.type_name]["block"]["attributes"]
            made = _made_up(asked.type_name, values)
            empty = {"string": "made-up", "number": 1, "bool": False}
            for name, value in values.items():
                if isinstance(value, msgspec.msgpack.Ext):
                    kind = attributes[name]["type"]
                    values[name] = made.get(name, empty[kind] if isinstance(kind, str) else {})
        return _M["State"](state=_M["Value"](msgpack=msgspec.msgpack.encode(values)))

    def service(self, details: grpc.HandlerCallDetails):
        package, _, method = details.method.strip("/").partition("/")
        if package != "tfplugin5.Provider" or method not in self.calls:
            return None  # unimplemented
        message, answer = self.calls[method]
        return grpc.unary_unary_rpc_method_handler(
            lambda request, _: answer(request),
            request_deserializer=_M[message].FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )


def _made_up(kind: str, values: dict) -> dict[str, str]:
    """What Google derives from what it was given, by its own rules."""
    if kind == "google_service_account":
        email = f"{values['account_id']}@{values['project']}.iam.gserviceaccount.com"
        name = f"projects/{values['project']}/serviceAccounts/{email}"
        return {"email": email, "member": f"serviceAccount:{email}", "name": name, "id": name}
    if kind == "google_artifact_registry_repository":
        return {"name": values["repository_id"]}
    return {}


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, provider: Provider):
        self._provider = provider

    def service(self, handler_call_details):
        return self._provider.service(handler_call_details)


@pytest.fixture(scope="module")
def provider() -> Iterator[dict[str, str]]:
    """Environment in which Terraform's hashicorp/google is the stand-in."""
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[_Handlers(Provider())])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    attached = {
        "Protocol": "grpc",
        "ProtocolVersion": 5,
        "Pid": os.getpid(),
        "Test": True,
        "Addr": {"Network": "tcp", "String": f"127.0.0.1:{port}"},
    }
    yield {"TF_REATTACH_PROVIDERS": json.dumps({"hashicorp/google": attached})}
    server.stop(None).wait()


class Terraform:
    """Terraform in a copy of the module."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self._folder = folder
        settings = {"TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1", "TF_CLI_ARGS": "-no-color"}
        self._environment = os.environ | settings | environment
        self._environment.pop("TF_CLI_CONFIG_FILE", None)
        for file in MODULE.glob("*.tf"):
            shutil.copy(file, folder)

    def __call__(self, *arguments: str, **variables: object) -> subprocess.CompletedProcess:
        if variables:
            (self._folder / "terraform.tfvars.json").write_text(json.dumps(variables))
        return subprocess.run(
            ["terraform", *arguments],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def resources(self) -> list[dict]:
        shown = json.loads(self("show", "-json").stdout)
        return shown["values"]["root_module"]["resources"]

    def outputs(self) -> dict[str, str]:
        return {name: it["value"] for name, it in json.loads(self("output", "-json").stdout).items()}


@pytest.fixture
def terraform(tmp_path, provider) -> Terraform:
    run = Terraform(tmp_path, provider)
    begun = run("init", "-backend=false")
    assert begun.returncode == 0, begun.stderr
    return run


@pytest.fixture
def applied(terraform) -> Callable[..., Terraform]:
    def apply(**more: object) -> Terraform:
        done = terraform("apply", "-auto-approve", **(GIVEN | more))
        assert done.returncode == 0, done.stderr
        return terraform

    return apply


def grants(terraform: Terraform) -> set[tuple[str, str, str, str]]:
    """Of each role that is granted: on what, the role, to whom, and under which condition's title."""
    found = set()
    for resource in terraform.resources():
        kind, values = resource["type"], resource["values"]
        if "_iam_" in kind:
            of = (
                values.get("bucket")
                or values.get("repository")
                or values.get("service_account_id")
                or values["project"]
            )
            titles = [condition["title"] for condition in values["condition"]]
            found.add((of.split("/")[-1], values["role"], values["member"], *titles, *[""][len(titles) :]))
    return found


def test_it_is_formatted():
    found = subprocess.run(
        ["terraform", "fmt", "-check", "-diff", "-recursive", str(MODULE)], capture_output=True, text=True, timeout=60
    )
    assert (found.returncode, found.stdout) == (0, "")


def test_it_is_valid(terraform):
    found = json.loads(terraform("validate", "-json").stdout)
    assert (found["valid"], found["diagnostics"]) == (True, [])


def test_the_stand_in_knows_what_is_no_argument(terraform, tmp_path):
    """Or the test above could not fail."""
    wrong = 'resource "google_storage_bucket" "x" {\n  name = "x"\n  uniform_access = true\n  lifecycle_rule {}\n}\n'
    (tmp_path / "wrong.tf").write_text(wrong)
    found = json.loads(terraform("validate", "-json").stdout)
    assert sorted(diagnostic["detail"].partition(".")[0] for diagnostic in found["diagnostics"]) == [
        'An argument named "uniform_access" is not expected here',
        'At least 1 "action" blocks are required',
        'At least 1 "condition" blocks are required',
        'The argument "location" is required, but no definition was found',
    ]


def test_it_is_valid_for_the_real_provider(tmp_path):
    """Where its registry can be reached; else it is for the stand-in above to say."""
    run = Terraform(tmp_path, {})
    try:
        begun = run("init", "-backend=false")
    except subprocess.TimeoutExpired:
        pytest.skip("the provider cannot be downloaded here")
    unreachable = ("Could not connect to", "could not connect to", "Failed to query available provider packages")
    if begun.returncode and any(text in begun.stderr for text in unreachable):
        pytest.skip("the provider cannot be downloaded here")
    assert begun.returncode == 0, begun.stderr
    found = json.loads(run("validate", "-json").stdout)
    assert (found["valid"], found["diagnostics"]) == (True, [])


def test_who_may_do_what(applied):
    """All of it: a role that is added must be added here, too."""
    assert grants(applied()) == {
        ("my-project", "roles/dataflow.worker", WORKER, ""),
        ("my-coco", "roles/storage.objectViewer", WORKER, ""),
        ("my-pets", "roles/storage.objectViewer", WORKER, ""),
        ("my-tfrecords", "roles/storage.objectUser", WORKER, ""),
        ("my-temp", "roles/storage.objectUser", WORKER, ""),
        ("recordmill", "roles/artifactregistry.reader", WORKER, ""),
        ("my-project", "roles/dataflow.developer", LAUNCHER, ""),
        (WORKER.partition(":")[2], "roles/iam.serviceAccountUser", LAUNCHER, ""),
        ("my-temp", "roles/storage.objectViewer", LAUNCHER, "templates"),
        ("my-temp", "roles/storage.objectViewer", BUILDER, "build"),
        ("recordmill", "roles/artifactregistry.writer", BUILDER, ""),
        ("my-project", "roles/logging.logWriter", BUILDER, ""),
    }


def test_who_may_start_jobs_is_said_by_name(applied):
    users = ["user:a@example.com", "group:b@example.com"]
    added = {it for it in grants(applied(launcher_users=users)) if it[2] in users}
    account = LAUNCHER.partition(":")[2]
    assert added == {(account, "roles/iam.serviceAccountTokenCreator", user, "") for user in users}


def test_conditions_name_the_folders_that_build_sh_writes(applied):
    expressions = {
        resource["values"]["condition"][0]["expression"]
        for resource in applied().resources()
        if resource["values"].get("condition")
    }
    assert expressions == {
        f'resource.name.startsWith("projects/_/buckets/my-temp/objects/{folder}/")' for folder in ("templates", "build")
    }


def test_buckets_are_closed_and_what_is_temporary_goes(applied):
    buckets = {
        resource["values"]["name"]: resource["values"]
        for resource in applied(temp_days=3).resources()
        if resource["type"] == "google_storage_bucket"
    }
    assert sorted(buckets) == ["my-temp", "my-tfrecords"]
    for bucket in buckets.values():
        assert bucket["uniform_bucket_level_access"] is True
        assert bucket["public_access_prevention"] == "enforced"
        assert bucket["location"] == "europe-west4"
        assert not bucket["force_destroy"]
    assert buckets["my-tfrecords"]["lifecycle_rule"] == []
    (rule,) = buckets["my-temp"]["lifecycle_rule"]
    assert (rule["action"][0]["type"], rule["condition"][0]["age"]) == ("Delete", 3)
    assert rule["condition"][0]["matches_prefix"] == ["build/", "staging/", "temp/"]  # templates stay
    assert buckets["my-temp"]["soft_delete_policy"] == [{"retention_duration_seconds": 0}]


def test_an_output_bucket_that_is_there_is_not_made(applied):
    terraform = applied(create_output_bucket=False)
    buckets = [it["values"]["name"] for it in terraform.resources() if it["type"] == "google_storage_bucket"]
    assert buckets == ["my-temp"]
    assert ("my-tfrecords", "roles/storage.objectUser", WORKER, "") in grants(terraform)


def test_a_network_is_made_only_if_it_is_wanted(applied):
    kinds = {it["type"] for it in applied().resources()}
    assert not [kind for kind in kinds if kind.startswith("google_compute_")]


def test_workers_without_public_addresses_reach_google_and_each_other(applied):
    terraform = applied(private_network=True)
    made = {it["type"]: it["values"] for it in terraform.resources() if it["type"].startswith("google_compute_")}
    assert made["google_compute_network"]["auto_create_subnetworks"] is False
    assert made["google_compute_subnetwork"]["private_ip_google_access"] is True
    assert made["google_compute_subnetwork"]["region"] == "europe-west4"
    firewall = made["google_compute_firewall"]
    assert (firewall["source_tags"], firewall["target_tags"]) == (["dataflow"], ["dataflow"])
    assert firewall["allow"] == [{"protocol": "tcp", "ports": ["12345", "12346"]}]
    assert terraform.outputs()["subnetwork"].endswith(
        "/projects/my-project/regions/europe-west4/subnetworks/recordmill-workers"
    )


@pytest.mark.parametrize("private", [False, True])
def test_the_commands_that_it_prints_are_taken_by_our_scripts(applied, private):
    outputs = applied(private_network=private).outputs()
    for name in ("build_command", "run_command"):
        script, *arguments = shlex.split(outputs[name])
        options = ["--dry-run", *arguments]
        done = subprocess.run([str(ROOT / script), *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert ("--disable-public-ips" in done.stdout) == (private and name == "run_command")
        assert "my-project" in done.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"project": "My Project"}, "A project's id is"),
        ({"project": "123456789012"}, "A project's id is"),
        ({"region": "europe-west4-a"}, "A region is wanted"),
        ({"region": "EU"}, "A region is wanted"),
        ({"name": "rm"}, "5 to 21 lower-case letters"),
        ({"input_buckets": []}, "One bucket at least"),
        ({"input_buckets": ["gs://my-coco"]}, "One bucket at least"),
        ({"output_bucket": "my-tfrecords/coco"}, "A bucket's name alone"),
        ({"temp_bucket": "gs://my-temp"}, "A bucket's name alone"),
        ({"temp_days": 1}, "2 or more whole days"),
        ({"temp_days": 2.5}, "2 or more whole days"),
        ({"launcher_users": ["a@example.com"]}, "Each begins with user:"),
        ({"launcher_users": ["allUsers"]}, "Each begins with user:"),
        ({"subnet_range": "10.0.0.0"}, "A range of IPv4 addresses"),
    ],
)
def test_a_value_that_cannot_be_right_is_refused_before_anything_is_made(terraform, given, message):
    done = terraform("plan", **(GIVEN | given))
    assert done.returncode == 1
    assert message in done.stderr


def test_the_example_has_what_must_be_given(terraform, tmp_path):
    shutil.copy(MODULE / "terraform.tfvars.example", tmp_path / "terraform.tfvars")
    done = terraform("plan")
    assert done.returncode == 0, done.stderr
