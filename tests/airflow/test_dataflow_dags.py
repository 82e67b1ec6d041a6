"""DAGs of launch/airflow/recordmill_dags.py on Dataflow, in an Airflow with Google's provider: requests and answers."""

import asyncio
import json
import re
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from airflow.providers.google.cloud.hooks.dataflow import AsyncDataflowHook, DataflowHook
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from airflow.sdk.module_loading import import_string
from conftest import parsed_dags, write_dags
from google.cloud.dataflow_v1beta3 import JobState
from googleapiclient.discovery import build
from googleapiclient.http import HttpMockSequence

ENVIRONMENT = {"tempLocation": "gs://temp/t", "maxWorkers": 20, "ipConfiguration": "WORKER_IP_PRIVATE"}
JOB = {"id": "job-1", "projectId": "a-project", "location": "europe-west4"}


@pytest.fixture
def dataflow(home, tmp_path, monkeypatch):
    """Build a task of recordmill_convert_dataflow in its second try. Dataflow answers with `answers` and job states."""

    def built(task_id: str, answers: list[dict], states: list[str]) -> SimpleNamespace:
        settings = {"PROJECT": "a-project", "TEMPLATES": "gs://temp/templates", "ENVIRONMENT": ENVIRONMENT}
        folder = write_dags(tmp_path / task_id, ROOT="gs://records", **settings)
        http = HttpMockSequence([({"status": "200"}, json.dumps(answer)) for answer in answers])
        client = build("dataflow", "v1b3", http=http, static_discovery=True)
        monkeypatch.setattr(DataflowHook, "get_conn", lambda hook: client)

        async def state(hook: object, **job: object) -> JobState:
            return JobState[states.pop(0)]

        monkeypatch.setattr(AsyncDataflowHook, "get_job_status", state)
        dag = parsed_dags(folder)[1]["recordmill_convert_dataflow"]
        params = {"data": ["gs://b/{%Y}", "gs://b/two.zip"], "instances": ["gs://b/a.json"], "num_shards": 64}
        instance = SimpleNamespace(task_id=task_id, try_number=2, xcom_push=lambda **_: None)
        context = {
            "params": {**dag.params.dump(), **params},
            "dag_run": SimpleNamespace(logical_date=None, run_after=datetime(2026, 11, 21, 2, 0, 0, 70, tzinfo=UTC)),
            "ti": instance,
            "task_instance": instance,
        }
        task = dag.get_task(task_id).prepare_for_execution()
        task.poll_sleep = 0
        task.render_template_fields(context)
        return SimpleNamespace(task=task, context=context, http=http)

    return built


def launched(built: SimpleNamespace) -> tuple[dict, TaskDeferred]:
    """The body of the request that starts the job, and the deferral that follows."""
    with pytest.raises(TaskDeferred) as deferred:
        built.task.execute.__wrapped__(built.task, built.context)
    ((uri, method, body, _),) = built.http.request_sequence
    path = "/v1b3/projects/a-project/locations/europe-west4/flexTemplates:launch"
    assert (method, path in uri) == ("POST", True)
    return json.loads(body)["launchParameter"], deferred.value


def end(built: SimpleNamespace, deferred: TaskDeferred) -> dict:
    """Result of the task after the triggerer has waited for the job."""
    path, arguments = deferred.trigger.serialize()
    assert (arguments["job_id"], arguments["cancel_on_kill"]) == ("job-1", True)

    async def event() -> dict:
        return (await anext(import_string(path)(**arguments).run())).payload

    return getattr(built.task, deferred.method_name)(built.context, asyncio.run(event()))


def test_dataflow_starts_job_and_waits_for_it(dataflow):
    queued, done = {"job": JOB | {"currentState": "JOB_STATE_QUEUED"}}, JOB | {"currentState": "JOB_STATE_DONE"}
    built = dataflow("convert", [queued, done], ["JOB_STATE_RUNNING", "JOB_STATE_DONE"])
    launch, deferred = launched(built)
    assert launch == {
        "jobName": "recordmill-convert-dataflow-convert-20261121t020000000070-2",
        "containerSpecGcsPath": "gs://temp/templates/convert.json",
        "parameters": {
            "data": "gs://b/2026,gs://b/two.zip",
            "instances": "gs://b/a.json",
            "num_shards": "64",
            "output": "gs://records/recordmill_convert_dataflow/20261121t020000000070",
        },
        "environment": ENVIRONMENT,
    }
    assert re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", launch["jobName"])
    assert end(built, deferred)["currentState"] == "JOB_STATE_DONE"


def test_job_that_fails_fails_its_task(dataflow):
    built = dataflow("verify", [{"job": JOB}], ["JOB_STATE_FAILED"])
    launch, deferred = launched(built)
    assert (launch["containerSpecGcsPath"], launch["parameters"]) == (
        "gs://temp/templates/verify.json",
        {"folder": "gs://records/recordmill_convert_dataflow/20261121t020000000070", "check": "decode"},
    )
    with pytest.raises(AirflowException, match="job-1 has failed"):
        end(built, deferred)


def test_dags_as_parsed(home, tmp_path):
    """As installed, with a project: one DAG of any data set on workers, one on Dataflow."""
    _, dags = parsed_dags(write_dags(tmp_path / "dags", PROJECT="a-project"))
    assert sorted(dags) == ["recordmill_convert", "recordmill_convert_dataflow"]
    assert {dag.schedule for dag in dags.values()} == {None}
    operators = [type(dag.get_task("convert")).__name__ for _, dag in sorted(dags.items())]
    assert operators == ["BashOperator", "DataflowStartFlexTemplateOperator"]
