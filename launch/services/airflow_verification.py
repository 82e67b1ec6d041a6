"""Where the records of a run are read back: a site's settings of it.

As in recordmill.launch.services.airflow_arguments, neither Airflow nor Beam is imported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from recordmill.launch.command_line.parameters import command_line, parameters
from recordmill.launch.command_line.parser import parse
from recordmill.launch.services.airflow_settings import Settings
from recordmill.pipelines.options.option import flag
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.plan_report import Check

WORKER, POD, DATAFLOW, NONE = PLACES = ("worker", "pod", "dataflow", "none")


class Pod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where Kubernetes runs what a task asks for.

    Attributes:
        image: has Recordmill, as those that launch/dataflow/build.sh makes.
        service_account: of Kubernetes, as which the pod reads; None for the namespace's own.
        cpu, memory: requested, and the limit, as Kubernetes writes them.
        config_file: of the cluster; None for the cluster that Airflow itself runs in.
        connection: of Airflow, to the cluster.
    """

    image: str
    namespace: str = "default"
    service_account: str | None = None
    cpu: str = "2"
    memory: str = "4Gi"
    config_file: str | None = None
    connection: str = "kubernetes_default"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How a run is verified.

    Attributes:
        place: one of PLACES.
        options: of `recordmill verify`, by name.
        pod: of the place that is called so.
    """

    place: str = WORKER
    options: Mapping[str, Any] = field(default_factory=dict)
    pod: Pod | None = None

    def values(self, folder: str) -> dict[str, Any]:
        """The parameters of the command that reads a folder back."""
        return {"folder": folder, **self.options}

    def arguments(self, folder: str) -> list[str]:
        """The command that does, after `recordmill`."""
        return [
            "verify",
            folder,
            *(f"{flag(name)}={value}" for name, value in self.options.items()),
            "--progress=plain",
        ]


def verification(read: Settings, of_dataflow: bool) -> Verification:
    """The settings RECORDMILL_VERIFY, RECORDMILL_VERIFY_OPTIONS and RECORDMILL_POD; faults go to `read`."""
    place, options = read.choice("RECORDMILL_VERIFY", PLACES), read.mapping("RECORDMILL_VERIFY_OPTIONS")
    pod = read.decoded("RECORDMILL_POD", Pod)
    if place == DATAFLOW and not of_dataflow:
        read.faults.append(
            "RECORDMILL_VERIFY=dataflow is for the DAGs of recordmill_dataflow.py; give another, or leave "
            "recordmill_beam.py out of the dags folder"
        )
    if place == POD and pod is None:
        read.faults.append('RECORDMILL_POD is missing: {"image": "…/recordmill-verify:TAG"}')
    if place in (POD, DATAFLOW):  # their images have no TensorFlow
        options = {"check": Check.DECODE.value} | options
    found = Verification(place=place, options=options, pod=pod)
    try:
        parse(found.arguments("gs://bucket/folder"))
        if place == DATAFLOW:
            command_line("verify", found.values("gs://bucket/folder"))
            if fault := parameters("verify")["check"].option.fault(options["check"]):
                raise ConfigError(f"check {fault}")
    except ConfigError as error:
        read.faults.append(f"RECORDMILL_VERIFY_OPTIONS: {error}")
    return found
