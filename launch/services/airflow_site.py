"""The settings of a site that runs Recordmill by Airflow: what is the same for all runs of a DAG.

As in recordmill.launch.services.airflow_arguments, neither Airflow nor Beam is imported.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from recordmill.launch.services.airflow_settings import Settings
from recordmill.launch.services.airflow_verification import WORKER, Verification, verification

_CONNECTION = "RECORDMILL_CONNECTION"
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Site:
    """Settings that are the same for all runs of a DAG. Each comes from an environment variable, see `beam_site`.

    Attributes:
        python: of the environment that Recordmill is installed in, with TensorFlow where its verify is to use it; empty
            where nothing runs in it.
        output_root: folder of the runs' folders; local paths are absolute.
        schedule: a cron expression or a preset such as @daily; None to run only when triggered.
        params: defaults of Params, by name.
        retry_s: seconds before the first retry; each waits twice as long as the one before it.
        timeout_h: hours that a try of a task may take.
        connection: of Airflow, whose account all tasks read and write as; None for that of the machine.
        run_timeout_h: hours after which a run that has not ended fails, so that the next may begin.
        deferrable: whether Airflow's triggerer waits for what runs elsewhere, rather than a worker.
        start, catchup: the day of the first scheduled run, and whether those since then are made up for.
        pool: of Airflow, that all tasks are in.
        on_failure: dotted name of what Airflow calls when a run has failed.
        latest: whether publish writes latest.json into the folder of the runs' folders.
        keep: how many runs' folders stay; 0 for all.
        keep_dry_run: whether what would be deleted is only told.
        lineage: whether publish names inputs and output as assets with their addresses.
    """

    output_root: str
    python: str = ""
    schedule: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 3
    retry_s: int = 60
    timeout_h: float = 24.0
    run_timeout_h: float = 72.0
    connection: str | None = None
    verification: Verification = field(default_factory=Verification)
    deferrable: bool = False
    start: date | None = None
    catchup: bool = False
    pool: str | None = None
    on_failure: str | None = None
    latest: bool = False
    keep: int = 0
    keep_dry_run: bool = False
    lineage: bool = False


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


def beam_site(dag_id: str, environment: Mapping[str, str]) -> BeamSite:
    """The settings of a DAG that runs anywhere but on Dataflow: RECORDMILL_…, {DAG_ID}_SCHEDULE and {DAG_ID}_PARAMS.

    Raises:
        ConfigError: with all that is missing or wrong.
    """
    read = Settings(environment)
    runner, options = read.text("RECORDMILL_RUNNER", BeamSite.runner), read.mapping("RECORDMILL_BEAM_OPTIONS")
    if "dataflow" in runner.lower():
        read.faults.append(f"RECORDMILL_RUNNER={runner}: Dataflow's jobs are recordmill_dataflow.py's")
    for name in sorted({"command", "runner"} & options.keys()):
        read.faults.append(f"RECORDMILL_BEAM_OPTIONS: {name} is not to be had there")
    common = _common(read, dag_id) | {"python": read.path("RECORDMILL_PYTHON")}
    return read.checked(BeamSite, **common, runner=runner, beam_options=options)


def dataflow_site(dag_id: str, environment: Mapping[str, str]) -> DataflowSite:
    """The settings of a DAG that runs on Dataflow, as `beam_site`.

    Raises:
        ConfigError: with all that is missing or wrong.
    """
    read = Settings(environment)
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
    common = _common(read, dag_id, of_buckets=True) | {"connection": read.text(_CONNECTION, DataflowSite.connection)}
    if common["verification"].place == WORKER:
        common["python"] = read.path("RECORDMILL_PYTHON")
    return read.checked(
        DataflowSite,
        **common,
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
    )


def _common(read: Settings, dag_id: str, of_buckets: bool = False) -> dict[str, Any]:
    prefix = dag_id.upper()
    start, catchup = read.day(f"{prefix}_START"), read.switch(f"{prefix}_CATCHUP")
    if catchup and not start:
        read.faults.append(f"{prefix}_START is missing, the day from which {prefix}_CATCHUP makes up for runs")
    keep, keep_dry_run = read.positive("RECORDMILL_KEEP"), read.switch("RECORDMILL_KEEP_DRY_RUN")
    if keep_dry_run and not keep:
        read.faults.append("RECORDMILL_KEEP_DRY_RUN=true does nothing without RECORDMILL_KEEP, how many runs stay")
    return {
        "verification": verification(read, of_dataflow=of_buckets),
        "deferrable": read.switch("RECORDMILL_DEFERRABLE"),
        "start": start,
        "catchup": catchup,
        "pool": read.text("RECORDMILL_POOL"),
        "on_failure": read.text("RECORDMILL_ON_FAILURE"),
        "latest": read.switch("RECORDMILL_LATEST"),
        "keep": keep,
        "keep_dry_run": keep_dry_run,
        "lineage": read.switch("RECORDMILL_LINEAGE"),
        "output_root": read.path("RECORDMILL_OUTPUT_ROOT", of_buckets=of_buckets),
        "schedule": read.text(f"{prefix}_SCHEDULE"),
        "params": read.mapping(f"{prefix}_PARAMS"),
        "retries": int(read.number("RECORDMILL_RETRIES", Site.retries)),
        "retry_s": int(read.number("RECORDMILL_RETRY_SECONDS", Site.retry_s)),
        "timeout_h": read.number("RECORDMILL_TIMEOUT_HOURS", Site.timeout_h),
        "connection": read.text(_CONNECTION),
        "run_timeout_h": read.number("RECORDMILL_RUN_TIMEOUT_HOURS", Site.run_timeout_h),
    }
