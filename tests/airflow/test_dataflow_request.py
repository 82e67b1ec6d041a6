"""What is sent to Dataflow: the operator and Google's client are the real ones, what answers is not."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.google.cloud.hooks.dataflow import AsyncDataflowHook, DataflowHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.module_loading import import_string
from conftest import copy_dags
from google.api_core.exceptions import NotFound, ServiceUnavailable
from google.auth.exceptions import TransportError
from google.cloud.dataflow_v1beta3 import JobState
from googleapiclient.discovery import build
from googleapiclient.http import HttpMockSequence

JOB = {"id": "job-1", "name": "n", "projectId": "a-project", "location": "europe-west4", "type": "JOB_TYPE_BATCH"}
NO_JOBS, LAUNCHED, DONE, CANCELLED = (
    {},
    {"job": {**JOB, "currentState": "JOB_STATE_QUEUED"}},
    {**JOB, "currentState": "JOB_STATE_DONE"},
    {**JOB, "currentState": "JOB_STATE_CANCELLED"},
)
JOBS_PATH = "/v1b3/projects/a-project/locations/europe-west4/jobs"
PARAMS = {
    "images": ["gs://b/one", "gs://b/two.zip"],
    "instances": ["gs://b/instances.json"],
    "num_shards": 64,
    "gzip": True,
    "max_rejects": 0.05,
}
SMALLEST = {
    "launchParameter": {
        "jobName": "recordmill-coco-dataflow-20261121t020000-2",
        "containerSpecGcsPath": "gs://templates/recordmill/coco.json",
        "parameters": {
            "images": "gs://b/one,gs://b/two.zip",
            "instances": "gs://b/instances.json",
            "num_shards": "64",
            "gzip": "true",
            "max_rejects": "0.05",
            "output": "gs://records/runs/recordmill_coco_dataflow/20261121t020000",
        },
        "environment": {
            "tempLocation": "gs://temporary/dataflow",
            "stagingLocation": "gs://temporary/dataflow/staging",
            "ipConfiguration": "WORKER_IP_PRIVATE",
            "subnetwork": "regions/europe-west4/subnetworks/s",
            "maxWorkers": 20,
        },
    }
}


class Service:
    """Answers one request after the other, and keeps what it was asked; the states of jobs, for which triggers ask, it
    has by job, and each may be an error."""

    def __init__(self, *answers: dict, **states: list[str | Exception]):
        self.states = {job.replace("_", "-"): list(each) for job, each in states.items()}
        self._http = HttpMockSequence([({"status": "200"}, json.dumps(answer)) for answer in answers])

    def client(self):
        return build("dataflow", "v1b3", http=self._http, static_discovery=True)

    async def state(self, job_id: str, *_, **__) -> JobState:
        state = self.states[job_id].pop(0)
        if isinstance(state, Exception):
            raise state
        return JobState[f"JOB_STATE_{state}"]

    @property
    def requests(self) -> list[tuple[str, str, dict | None]]:
        """Method, path and body of each."""
        return [
            (method, urlsplit(uri).path, json.loads(body) if body else None)
            for uri, method, body, _ in self._http.request_sequence
        ]


@pytest.fixture
def convert(home, tmp_path, monkeypatch, dataflow_settings) -> Callable:
    """A task of recordmill_coco_dataflow, rendered for its second try, with a service that answers."""
    folder = copy_dags(tmp_path / "dags", "recordmill_dataflow.py")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("asyncio.sleep", _at_once)

    def made(service: Service, params: dict = PARAMS, task_id: str = "convert", **settings: str):
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(DataflowHook, "get_conn", lambda hook: service.client())
        monkeypatch.setattr(AsyncDataflowHook, "get_job_status", lambda hook, *args, **more: service.state(*args))
        bag = DagBag(dag_folder=str(folder))
        assert bag.import_errors == {}
        dag = bag.dags["recordmill_coco_dataflow"]
        task = dag.get_task(task_id).prepare_for_execution()
        task.render_template_fields(context() | {"params": {**dag.params.dump(), **params}})
        return task

    return made


async def _at_once(seconds: float) -> None:
    assert seconds > 0


def context() -> dict:
    """As much of a task's context as the operator asks for."""
    instance = SimpleNamespace(try_number=2, xcom_push=lambda **_: None)
    return {
        "dag_run": SimpleNamespace(run_after=datetime(2026, 11, 21, 2, tzinfo=UTC)),
        "ti": instance,
        "task_instance": instance,
    }


def test_the_whole_request(convert):
    service = Service(NO_JOBS, LAUNCHED, DONE, job_1=["QUEUED", "RUNNING", "DONE"])
    task = convert(service)
    assert task.execute.__wrapped__(task, context())["currentState"] == "JOB_STATE_DONE"
    look, launch, answer = service.requests
    assert look == ("GET", JOBS_PATH, None)
    path = "/v1b3/projects/a-project/locations/europe-west4/flexTemplates:launch"
    assert launch == ("POST", path, SMALLEST)
    assert answer[:2] == ("GET", f"{JOBS_PATH}/job-1")


def test_everything_a_site_and_a_run_may_say(convert):
    service = Service(NO_JOBS, LAUNCHED, DONE, job_1=["DONE"])
    machines = {"machine_type": "n2-standard-4", "launcher_machine_type": "n2-highmem-2", "disk_size_gb": 40}
    params = PARAMS | machines | {"max_workers": 50, "flexrs": True, "output": "gs://b/out"}
    task = convert(
        service,
        params,
        RECORDMILL_SERVICE_ACCOUNT="worker@a-project.example",
        RECORDMILL_SUBNETWORK="",
        RECORDMILL_STAGING_LOCATION="gs://staging",
        RECORDMILL_NETWORK="n",
        RECORDMILL_PUBLIC_IPS="true",
        RECORDMILL_IMAGE="europe-docker.example/p/recordmill-coco:1",
        RECORDMILL_KMS_KEY="projects/p/locations/l/keyRings/r/cryptoKeys/k",
        RECORDMILL_LABELS='{"team": "vision"}',
    )
    task.execute.__wrapped__(task, context())
    (_, (_, _, body), _) = service.requests
    parameters = body["launchParameter"]["parameters"]
    assert parameters["output"] == "gs://b/out"
    assert parameters["sdk_container_image"] == "europe-docker.example/p/recordmill-coco:1"
    assert body["launchParameter"]["environment"] == {
        "tempLocation": "gs://temporary/dataflow",
        "stagingLocation": "gs://staging",
        "ipConfiguration": "WORKER_IP_PUBLIC",
        "maxWorkers": 50,
        "machineType": "n2-standard-4",
        "launcherMachineType": "n2-highmem-2",
        "diskSizeGb": 40,
        "flexrsGoal": "FLEXRS_COST_OPTIMIZED",
        "serviceAccountEmail": "worker@a-project.example",
        "network": "n",
        "kmsKeyName": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
        "additionalUserLabels": {"team": "vision"},
    }
    assert unknown_keys(body) == []


def test_a_job_reads_the_records_back(convert):
    """Beside which the conversion's own, which has ended, is none that it would wait for."""
    of_convert = of_earlier_try(2, "RUNNING")
    service = Service({"jobs": [of_convert]}, LAUNCHED, job_1=["RUNNING", "FAILED"])
    settings = {"VERIFY": "dataflow", "VERIFY_OPTIONS": '{"check": "hashes"}', "PYTHON": ""}
    params = PARAMS | {"max_workers": 7}
    task = convert(service, params, "verify", **{f"RECORDMILL_{name}": value for name, value in settings.items()})
    assert task.retries == 1
    with pytest.raises(AirflowException, match="job job-1 has ended in JOB_STATE_FAILED"):
        task.execute.__wrapped__(task, context())
    launch = service.requests[1][2]["launchParameter"]
    assert (launch["jobName"], launch["containerSpecGcsPath"], launch["parameters"]) == (
        "recordmill-coco-dataflow-verify-20261121t020000-2",
        "gs://templates/recordmill/verify.json",
        {"folder": "gs://records/runs/recordmill_coco_dataflow/20261121t020000", "check": "hashes"},
    )
    assert launch["environment"] == SMALLEST["launchParameter"]["environment"] | {"maxWorkers": 7}


def unknown_keys(body: dict) -> list[str]:
    """Those of a request that Google's own description of the interface does not have, or has with other values."""
    schemas = build("dataflow", "v1b3", http=HttpMockSequence([]), static_discovery=True)._schema.schemas
    found = []

    def look(value: dict, properties: dict) -> None:
        for key, item in value.items():
            if key not in properties:
                found.append(key)
            elif "$ref" in properties[key]:
                look(item, schemas[properties[key]["$ref"]]["properties"])
            elif item not in properties[key].get("enum", [item]):
                found.append(f"{key}={item}")

    look(body, schemas["LaunchFlexTemplateRequest"]["properties"])
    return found


def test_a_wrong_key_would_be_noticed():
    wrong = {"launchParameter": {"environment": {"ipConfiguration": "NONE", "maxWorkers": 1, "spot": True}}, "job": 1}
    assert unknown_keys(wrong) == ["ipConfiguration=NONE", "spot", "job"]


@pytest.mark.parametrize("state", ["FAILED", "UPDATED", "DRAINED"])
def test_a_job_that_ends_otherwise_than_done_fails_its_try(convert, state):
    task = convert(Service(NO_JOBS, LAUNCHED, job_1=["STOPPED", "RUNNING", state]))
    with pytest.raises(AirflowException, match=f"job job-1 has ended in JOB_STATE_{state}") as raised:
        task.execute.__wrapped__(task, context())
    assert not isinstance(raised.value, AirflowFailException)


def test_a_job_that_somebody_cancels_is_not_started_again(convert):
    task = convert(Service(NO_JOBS, LAUNCHED, job_1=["CANCELLING", "CANCELLED"]))
    with pytest.raises(AirflowFailException, match="job job-1 was cancelled"):
        task.execute.__wrapped__(task, context())


def test_dataflow_may_be_out_of_reach_while_a_job_runs(convert):
    """For ten minutes and more, at a question each ten seconds."""
    away = [ServiceUnavailable("no answer"), TransportError("no token"), ConnectionResetError()] * 30
    service = Service(NO_JOBS, LAUNCHED, DONE, job_1=["RUNNING", *away, "DONE"])
    task = convert(service)
    assert task.execute.__wrapped__(task, context())["currentState"] == "JOB_STATE_DONE"
    assert service.states == {"job-1": []}


def test_a_job_that_cannot_be_seen_fails_its_try(convert):
    task = convert(Service(NO_JOBS, LAUNCHED, job_1=[NotFound("gone")]))
    with pytest.raises(AirflowException, match="job job-1 cannot be waited for: NotFound: 404 gone"):
        task.execute.__wrapped__(task, context())


def of_earlier_try(number: int, state: str, **more: str) -> dict:
    name = f"recordmill-coco-dataflow-20261121t020000-{number}"
    return {**JOB, "id": "job-0", "name": name, "currentState": f"JOB_STATE_{state}", **more}


def test_the_job_of_an_earlier_try_is_waited_for(convert):
    """Its worker was lost; a second job beside it would do the same work."""
    of_another_run = of_earlier_try(1, "RUNNING", name="recordmill-coco-dataflow-20261120t020000-1", id="job-9")
    pages = {"jobs": [of_another_run], "nextPageToken": "more"}, {"jobs": [of_earlier_try(1, "RUNNING")]}
    service = Service(*pages, DONE, job_0=["RUNNING", "DONE"])
    task = convert(service)
    task.execute.__wrapped__(task, context())
    assert [(method, path) for method, path, _ in service.requests] == [
        ("GET", JOBS_PATH),
        ("GET", JOBS_PATH),
        ("GET", f"{JOBS_PATH}/job-0"),
    ]


def test_an_earlier_job_that_is_being_cancelled_is_gone_before_the_next_starts(convert):
    jobs = {"jobs": [of_earlier_try(1, "CANCELLING")]}
    service = Service(jobs, LAUNCHED, DONE, job_0=["CANCELLING", "CANCELLED"], job_1=["DONE"])
    task = convert(service)
    task.execute.__wrapped__(task, context())
    assert service.states == {"job-0": [], "job-1": []}
    assert [method for method, _, _ in service.requests] == ["GET", "POST", "GET"]


def test_killing_the_task_cancels_the_job(convert):
    running = {**JOB, "currentState": "JOB_STATE_RUNNING"}
    service = Service(NO_JOBS, LAUNCHED, DONE, running, {}, CANCELLED, CANCELLED, job_1=["DONE"])
    task = convert(service)
    task.execute.__wrapped__(task, context())
    task.on_kill()
    cancelling = [(method, path, body["requestedState"]) for method, path, body in service.requests if method == "PUT"]
    assert cancelling == [("PUT", f"{JOBS_PATH}/job-1", "JOB_STATE_CANCELLED")]


def test_deferred_the_triggerer_waits_for_the_same_job(convert):
    service = Service(NO_JOBS, LAUNCHED, DONE, job_1=["RUNNING", "DONE"])
    task = convert(service, RECORDMILL_DEFERRABLE="true")
    with pytest.raises(TaskDeferred) as deferred:
        task.execute.__wrapped__(task, context())
    assert service.requests[1][2] == SMALLEST
    assert deferred.value.timeout == timedelta(hours=24)
    path, arguments = deferred.value.trigger.serialize()
    assert (arguments["job_id"], arguments["cancel_on_kill"]) == ("job-1", True)
    trigger = import_string(path)(**arguments)  # as the triggerer makes it, which has no dags folder

    async def events() -> list:
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(events())
    done = getattr(task, deferred.value.method_name)(context(), event)
    assert done["currentState"] == "JOB_STATE_DONE"
