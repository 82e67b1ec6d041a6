"""Kubernetes manifests for Flink: valid for the schemas of Kubernetes and of the operator, and consistent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from apache_beam import version as beam

from recordmill.launch.command_line.parser import parse
from recordmill.launch.runners.beam_options import beam_options
from tests.engines import fetch
from tests.engines.conftest import fetched

FLINK = Path(__file__).resolve().parents[2] / "launch" / "flink"
FILES = ("access", "session", "operator", "job")
KUBERNETES = "1.30"


def manifests(*files: str) -> list[dict[str, Any]]:
    return [it for file in files for it in yaml.safe_load_all((FLINK / f"{file}.yaml").read_text())]


def the(kind: str, *files: str) -> dict[str, Any]:
    (found,) = (it for it in manifests(*files) if it["kind"] == kind)
    return found


def pods(*files: str) -> Iterator[dict[str, Any]]:
    """Specifications of pods, wherever they stand."""

    def within(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            if "containers" in value:
                yield value
            for held in value.values():
                yield from within(held)

    for manifest in manifests(*files):
        yield from within(manifest)


def container(name: str, *files: str) -> list[dict[str, Any]]:
    return [
        it for pod in pods(*files) for it in [*pod["containers"], *pod.get("initContainers", ())] if it["name"] == name
    ]


def strict(schema: Any) -> Any:
    """A schema that knows of nothing but what it names, as Kubernetes drops the rest without a word."""
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema["additionalProperties"] = False
    return schema


@pytest.fixture(scope="module")
def operator() -> jsonschema.Draft7Validator:
    """Validator of a FlinkDeployment's spec."""
    text = (fetched(fetch.OPERATOR) / fetch.OPERATOR_SCHEMA).read_text()
    described = yaml.load(text, yaml.CSafeLoader)["spec"]  # half a megabyte
    return jsonschema.Draft7Validator(strict(described["validation"]["openAPIV3Schema"]["properties"]["spec"]))


def test_kubernetes_knows_all_that_it_is_given():
    for manifest in manifests("access", "session", "job"):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_operator_knows_all_that_it_is_given(operator):
    deployment = the("FlinkDeployment", "operator")
    operator.validate(deployment["spec"])
    with pytest.raises(jsonschema.ValidationError):
        operator.validate(deployment["spec"] | {"taskManagers": 2})
    deployment["spec"]["taskManager"]["podTemplate"]["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(jsonschema.ValidationError):
        operator.validate(deployment["spec"])


def configured(file: str) -> dict[str, str]:
    if file == "operator":
        return the("FlinkDeployment", file)["spec"]["flinkConfiguration"]
    lines = the("ConfigMap", file)["data"]["FLINK_PROPERTIES"].splitlines()
    return dict(line.split(": ", 1) for line in lines)


def test_the_job_is_a_command_of_ours():
    (job,) = container("recordmill", "job")
    program, *ours = job["command"]
    assert program == "recordmill"
    lone = ours.index("--")
    assert parse(ours[:lone])
    options = beam_options(ours[lone + 1 :]).get_all_options()
    (server,) = container("job-server", "job")
    assert options["job_endpoint"] == f"localhost:{server['startupProbe']['tcpSocket']['port']}"
    assert server["args"] == [f"--flink-master={the('Service', 'session')['metadata']['name']}:8081"]
    pools = container("workers", "session", "operator")
    assert len(pools) == 2
    assert all(pool["command"][-1] == f"--service_port={options['environment_config'].split(':')[1]}" for pool in pools)
    slots = int(configured("session")["taskmanager.numberOfTaskSlots"])
    (replicas,) = (it["spec"]["replicas"] for it in manifests("session") if "replicas" in it.get("spec", {}))
    assert options["parallelism"] == slots * replicas == int(configured("operator")["slotmanager.number-of-slots.max"])


def test_flink_and_beam_are_of_versions_that_go_together():
    (server,) = container("job-server", "job")
    deployment = the("FlinkDeployment", "operator")["spec"]
    flink = {it["image"] for it in container("flink-main-container", "session")} | {deployment["image"]}
    assert flink == {"flink:1.19-java17"}
    assert deployment["flinkVersion"] == "v1_19"
    assert server["image"] == f"apache/beam_flink1.19_job_server:{beam.__version__}"
    assert fetch.FLINK.startswith("1.19.")  # which the other tests run
