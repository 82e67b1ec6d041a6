"""The settings of a site that runs Recordmill by Airflow: what is the same for all runs of a DAG.

As in recordmill.launch.services.airflow_arguments, neither Airflow nor Beam is imported.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from recordmill.schemas.errors import ConfigError

_CONNECTION = "RECORDMILL_CONNECTION"
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Site:
    """Settings that are the same for all runs of a DAG. Each comes from an environment variable, see `beam_site`.

    Attributes:
        python: of the environment that Recordmill is installed in, with TensorFlow.
        output_root: folder of the runs' folders; local paths are absolute.
        schedule: a cron expression or a preset such as @daily; None to run only when triggered.
        params: defaults of Params, by name.
        retry_s: seconds before the first retry; each waits twice as long as the one before it.
        timeout_h: hours that a try of a task may take.
        connection: of Airflow, whose account all tasks read and write as; None for that of the machine.
        run_timeout_h: hours after which a run that has not ended fails, so that the next may begin.
    """

    python: str
    output_root: str
    schedule: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 3
    retry_s: int = 60
    timeout_h: float = 24.0
    run_timeout_h: float = 72.0
    connection: str | None = None


@dataclass(frozen=True, kw_only=True)
class BeamSite(Site):
    """Settings of a DAG that runs its jobs anywhere but on Dataflow.

    Attributes:
        runner: Beam's, as in --runner.
        beam_options: Beam's own options by name, without dashes: job_endpoint for example.
    """

    runner: str = "DirectRunner"
    beam_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DataflowSite(Site):
    """Settings of a DAG that runs its jobs on Dataflow.

    Attributes:
        templates: gs:// folder of the Flex Templates, coco.json and so on, which launch/dataflow/build.sh writes.
        image: container image of the workers; None for the one that the template runs in.
        deferrable: whether Airflow's triggerer waits for the job, rather than a worker.
    """

    templates: str
    project: str
    region: str
    temp_location: str
    staging_location: str
    connection: str | None = "google_cloud_default"
    image: str | None = None
    service_account: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    public_ips: bool = False
    kms_key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    deferrable: bool = False


def beam_site(dag_id: str, environment: Mapping[str, str]) -> BeamSite:
    """The settings of a DAG that runs anywhere but on Dataflow: RECORDMILL_…, {DAG_ID}_SCHEDULE and {DAG_ID}_PARAMS.

    Raises:
        ConfigError: with all that is missing or wrong.
    """
    read = _Settings(environment)
    runner, options = read.text("RECORDMILL_RUNNER", BeamSite.runner), read.mapping("RECORDMILL_BEAM_OPTIONS")
    if "dataflow" in runner.lower():
        read.faults.append(f"RECORDMILL_RUNNER={runner}: Dataflow's jobs are recordmill_dataflow.py's")
    for name in sorted({"command", "runner"} & options.keys()):
        read.faults.append(f"RECORDMILL_BEAM_OPTIONS: {name} is not to be had there")
    return read.site(BeamSite, _common(read, dag_id), runner=runner, beam_options=options)


def dataflow_site(dag_id: str, environment: Mapping[str, str]) -> DataflowSite:
    """The settings of a DAG that runs on Dataflow, as `beam_site`.

    Raises:
        ConfigError: with all that is missing or wrong.
    """
    read = _Settings(environment)
    labels = read.mapping("RECORDMILL_LABELS")
    temp_location = read.path("RECORDMILL_TEMP_LOCATION", of_buckets=True)
    for name, value in labels.items():
        if not (name[:1].isalpha() and _LABEL.fullmatch(name) and _LABEL.fullmatch(str(value))):
            read.faults.append(
                f"RECORDMILL_LABELS: {name}={value} is no label (small letters, digits, _ and -, up to 63)"
            )
    subnetwork, public_ips = read.text("RECORDMILL_SUBNETWORK"), read.switch("RECORDMILL_PUBLIC_IPS")
    if not public_ips and not subnetwork:
        read.faults.append(
            "RECORDMILL_SUBNETWORK is missing, one with Private Google Access; or give RECORDMILL_PUBLIC_IPS=true"
        )
    return read.site(
        DataflowSite,
        _common(read, dag_id, of_buckets=True) | {"connection": read.text(_CONNECTION, DataflowSite.connection)},
        templates=read.path("RECORDMILL_TEMPLATES", of_buckets=True),
        project=read.required("RECORDMILL_PROJECT"),
        region=read.required("RECORDMILL_REGION"),
        temp_location=temp_location,
        staging_location=read.text("RECORDMILL_STAGING_LOCATION") or f"{temp_location.rstrip('/')}/staging",
        image=read.text("RECORDMILL_IMAGE"),
        service_account=read.text("RECORDMILL_SERVICE_ACCOUNT"),
        network=read.text("RECORDMILL_NETWORK"),
        subnetwork=subnetwork,
        public_ips=public_ips,
        kms_key=read.text("RECORDMILL_KMS_KEY"),
        labels=labels,
        deferrable=read.switch("RECORDMILL_DEFERRABLE"),
    )


def _common(read: "_Settings", dag_id: str, of_buckets: bool = False) -> dict[str, Any]:
    prefix = dag_id.upper()
    return {
        "python": read.path("RECORDMILL_PYTHON"),
        "output_root": read.path("RECORDMILL_OUTPUT_ROOT", of_buckets=of_buckets),
        "schedule": read.text(f"{prefix}_SCHEDULE"),
        "params": read.mapping(f"{prefix}_PARAMS"),
        "retries": int(read.number("RECORDMILL_RETRIES", Site.retries)),
        "retry_s": int(read.number("RECORDMILL_RETRY_SECONDS", Site.retry_s)),
        "timeout_h": read.number("RECORDMILL_TIMEOUT_HOURS", Site.timeout_h),
        "connection": read.text(_CONNECTION),
        "run_timeout_h": read.number("RECORDMILL_RUN_TIMEOUT_HOURS", Site.run_timeout_h),
    }


class _Settings:
    """Reads environment variables, and collects what is wrong with them; an empty one is as none."""

    def __init__(self, environment: Mapping[str, str]):
        self._environment = environment
        self.faults: list[str] = []

    def site(self, kind: type, common: dict[str, Any], **more: Any) -> Any:
        if self.faults:
            raise ConfigError("; ".join(self.faults))
        return kind(**common, **more)

    def text(self, name: str, default: str | None = None) -> Any:
        return self._environment.get(name, "").strip() or default

    def required(self, name: str) -> str:
        if not (text := self.text(name)):
            self.faults.append(f"{name} is missing")
        return text or ""

    def path(self, name: str, of_buckets: bool = False) -> str:
        path = self.required(name)
        if path and not path.startswith("gs://" if of_buckets else ("gs://", "/")):
            wanted = "must begin with gs://" if of_buckets else "must be absolute, or begin with gs://"
            self.faults.append(f"{name}={path} {wanted}")
        return path

    def switch(self, name: str, default: bool = False) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            self.faults.append(f"{name}={text} must be true or false")
        return text == "true"

    def number(self, name: str, default: float) -> float:
        text = self.text(name, str(default))
        if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text):
            self.faults.append(f"{name}={text} must be a number, 0 or more")
            return default
        return float(text)

    def mapping(self, name: str) -> dict[str, Any]:
        text = self.text(name, "{}")
        try:
            return msgspec.json.decode(text.encode(), type=dict[str, Any])
        except msgspec.DecodeError as error:
            self.faults.append(f"{name} must be a JSON object ({error})")
            return {}
