"""Airflow DAGs of conversions on workers and on Dataflow.

Copy this file into the dags folder and edit its settings. The manual is docs/airflow.md.
"""

import shlex
from collections.abc import Mapping
from datetime import timedelta
from tempfile import gettempdir
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, Param, chain, task
from airflow.sdk.exceptions import AirflowFailException

from recordmill.launch.command_line.parameters import command_line
from recordmill.launch.services.airflow_params import airflow_params, run_values, template_parameters
from recordmill.schemas.errors import ConfigError

# Settings.
ROOT = "/data/runs"  # Or gs://…. A run writes to ROOT/DAG_ID/TIME.
DATA_SETS: dict[str, dict[str, Any]] = {  # One DAG per row, recordmill_NAME.
    # "pets": {"schedule": "@daily", "options": {"data": ["gs://b/{%Y/%m/%d}"], "format": "folder", "num_shards": 8}},
    # "farm": {"schedule": "@daily", "options": {"data": ["gs://b/{%Y/%m/%d}"], "output": "/data/farm", "add": True}},
    # "street": {"schedule": "@weekly", "on_dataflow": True, "options": {…}},
    "convert": {},
    "convert_dataflow": {"on_dataflow": True},
}
VERIFY = {"check": "decode"}  # Options of `recordmill verify`.
TIMEOUT = timedelta(hours=24)  # Of one run.
RETRY = {"retries": 3, "retry_delay": timedelta(minutes=1), "retry_exponential_backoff": 2.0}

# Settings of data sets that workers convert.
RECORDMILL = "/opt/recordmill/bin/recordmill"  # On every worker, in a separate environment.
BEAM: list[str] = []  # Beam's flags, for example ["--runner=FlinkRunner", "--flink_master=flink:8081"].

# Settings of data sets on Dataflow. These DAGs exist if PROJECT is set.
PROJECT = ""
REGION = "europe-west4"
TEMPLATES = "gs://TEMP/templates"  # Folder of convert.json and verify.json.
ENVIRONMENT = {  # FlexTemplateRuntimeEnvironment of Dataflow's REST API.
    "tempLocation": "gs://TEMP/temp",
    "stagingLocation": "gs://TEMP/temp/staging",
    "serviceAccountEmail": "recordmill-worker@PROJECT.iam.gserviceaccount.com",
    "subnetwork": "https://www.googleapis.com/compute/v1/projects/PROJECT/regions/REGION/subnetworks/NAME",
    "ipConfiguration": "WORKER_IP_PRIVATE",
    "maxWorkers": 20,
}

_IN_USE = 75  # Exit code of `flock` if another process holds the lock.


def conversion(name: str, schedule: Any = None, options: Mapping[str, Any] = {}, on_dataflow: bool = False) -> None:
    dag_id = f"recordmill_{name}"
    asset = Asset(dag_id)

    def run_name(dag_run: Any) -> str:
        return f"{dag_run.logical_date or dag_run.run_after:%Y%m%dt%H%M%S%f}".removesuffix("000000")

    def command_of(task_id: str, params: Mapping[str, Any], dag_run: Any) -> tuple[str, dict[str, Any]]:
        when = dag_run.logical_date or dag_run.run_after
        try:
            values = run_values("convert", params, f"{ROOT}/{dag_id}/{run_name(dag_run)}", when)
        except ConfigError as error:  # A retry would fail, too.
            raise AirflowFailException(f"recordmill: {error}") from error
        return ("verify", {"folder": values["output"], **VERIFY}) if task_id == "verify" else ("convert", values)

    def shell_line(params: Mapping[str, Any], dag_run: Any, ti: Any) -> str:
        line = [RECORDMILL, *command_line(*command_of(ti.task_id, params, dag_run)), "--progress=plain"]
        if ti.task_id == "verify":
            return shlex.join(line)
        lock = ["flock", "--nonblock", f"--conflict-exit-code={_IN_USE}", f"{gettempdir()}/{dag_id}.lock"]
        in_use = f"[ $code -ne {_IN_USE} ] || echo {dag_id} is in use: another convert runs on this machine"
        return f"{shlex.join([*lock, *line, '--', *BEAM])} || {{ code=$?; {in_use}; exit $code; }}"

    def launch_body(params: Mapping[str, Any], dag_run: Any, ti: Any) -> dict[str, Any]:
        command, values = command_of(ti.task_id, params, dag_run)
        launch = {
            "jobName": f"{dag_id}-{ti.task_id}-{run_name(dag_run)}-{ti.try_number}".replace("_", "-"),
            "containerSpecGcsPath": f"{TEMPLATES}/{command}.json",
            "parameters": template_parameters(values),
            "environment": ENVIRONMENT,
        }
        return {"launchParameter": launch}

    def command_task(task_id: str, **arguments: Any) -> Any:
        if not on_dataflow:
            # shell_line quotes every value for the shell. Jinja does not render its result again.
            line = "{{ shell_line(params, dag_run, ti) }}"
            return BashOperator(task_id=task_id, bash_command=line, skip_on_exit_code=None, **arguments)
        from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator

        return DataflowStartFlexTemplateOperator(
            task_id=task_id,
            project_id=PROJECT,
            location=REGION,
            body="{{ launch_body(params, dag_run, ti) }}",
            render_template_as_native_obj=True,  # body is a dict.
            append_job_name=False,  # The name is the same if a request is sent twice: one job.
            deferrable=True,
            **arguments,
        )

    @task(outlets=[asset])
    def publish(params: Any = None, dag_run: Any = None, outlet_events: Any = None) -> None:
        outlet_events[asset].extra = {"folder": command_of("verify", params, dag_run)[1]["folder"]}

    with DAG(
        dag_id,
        schedule=schedule,
        params={n: Param(**s) for n, s in airflow_params("convert", on_dataflow, options).items()},
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=TIMEOUT,
        default_args=RETRY,
        user_defined_macros={"shell_line": shell_line, "launch_body": launch_body},
        tags=["recordmill"],
    ):
        chain(command_task("convert"), command_task("verify", retries=1), publish())


for data_set, settings in DATA_SETS.items():
    if PROJECT or not settings.get("on_dataflow"):
        conversion(data_set, **settings)
