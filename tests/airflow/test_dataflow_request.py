"""What is sent to Dataflow: the operator and Google's client are the real ones, what answers is not."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.google.cloud.hooks.dataflow import DataflowHook
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from conftest import copy_dags
from googleapiclient.discovery import build
from googleapiclient.http import HttpMockSequence

JOB = {"id": "job-1", "name": "n", "projectId": "a-project", "location": "europe-west4", "type": "JOB_TYPE_BATCH"}
LAUNCHED, RUNNING, DONE, FAILED, CANCELLED = (
    {"job": {**JOB, "currentState": "JOB_STATE_QUEUED"}},
    {**JOB, "currentState": "JOB_STATE_RUNNING"},
    {**JOB, "currentState": "JOB_STATE_DONE"},
    {**JOB, "currentState": "JOB_STATE_FAILED"},
    {**JOB, "currentState": "JOB_STATE_CANCELLED"},
)
JOB_PATH = "/v1b3/projects/a-project/locations/europe-west4/jobs/job-1"
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
        "environment": {"tempLocation": "gs://temporary/dataflow", "maxWorkers": 20},
    }
}


class Service:
    """Answers one request after the other, and keeps what it was asked."""

    def __init__(self, *answers: dict):
        self._http = HttpMockSequence([({"status": "200"}, json.dumps(answer)) for answer in answers])

    def client(self):
        return build("dataflow", "v1b3", http=self._http, static_discovery=True)

    @property
    def requests(self) -> list[tuple[str, str, dict | None]]:
        """Method, path and body of each."""
        return [
            (method, urlsplit(uri).path, json.loads(body) if body else None)
            for uri, method, body, _ in self._http.request_sequence
        ]


@pytest.fixture
def convert(home, tmp_path, monkeypatch, dataflow_settings) -> Callable:
    """The task `convert` of recordmill_coco_dataflow, rendered for its second try, with a service that answers."""
    folder = copy_dags(tmp_path / "dags", "recordmill_dataflow.py")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("time.sleep", lambda seconds: None)

    def made(service: Service, params: dict = PARAMS, **settings: str):
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(DataflowHook, "get_conn", lambda hook: service.client())
        bag = DagBag(dag_folder=str(folder))
        assert bag.import_errors == {}
        dag = bag.dags["recordmill_coco_dataflow"]
        task = dag.get_task("convert").prepare_for_execution()
        task.render_template_fields(context() | {"params": {**dag.params.dump(), **params}})
        return task

    return made


def context() -> dict:
    """As much of a task's context as the operator asks for."""
    instance = SimpleNamespace(try_number=2, xcom_push=lambda **_: None)
    return {
        "dag_run": SimpleNamespace(run_after=datetime(2026, 11, 21, 2, tzinfo=UTC)),
        "ti": instance,
        "task_instance": instance,
    }


def test_the_whole_request(convert):
    service = Service(LAUNCHED, RUNNING, DONE, DONE)
    task = convert(service)
    assert task.execute.__wrapped__(task, context())["currentState"] == "JOB_STATE_DONE"
    launch, *polls = service.requests
    path = "/v1b3/projects/a-project/locations/europe-west4/flexTemplates:launch"
    assert launch == ("POST", path, SMALLEST)
    assert {poll[:2] for poll in polls} == {("GET", JOB_PATH)}


def test_everything_a_site_and_a_run_may_say(convert):
    service = Service(LAUNCHED, DONE, DONE)
    params = PARAMS | {"machine_type": "n2-standard-4", "max_workers": 50, "flexrs": True, "output": "gs://b/out"}
    task = convert(
        service,
        params,
        RECORDMILL_SERVICE_ACCOUNT="worker@a-project.example",
        RECORDMILL_SUBNETWORK="regions/europe-west4/subnetworks/s",
        RECORDMILL_NETWORK="n",
        RECORDMILL_PUBLIC_IPS="false",
        RECORDMILL_IMAGE="europe-docker.example/p/recordmill-coco:1",
        RECORDMILL_KMS_KEY="projects/p/locations/l/keyRings/r/cryptoKeys/k",
        RECORDMILL_LABELS='{"team": "vision"}',
    )
    task.execute.__wrapped__(task, context())
    ((_, _, body), *_) = service.requests
    parameters = body["launchParameter"]["parameters"]
    assert parameters["output"] == "gs://b/out"
    assert parameters["sdk_container_image"] == "europe-docker.example/p/recordmill-coco:1"
    assert body["launchParameter"]["environment"] == {
        "tempLocation": "gs://temporary/dataflow",
        "ipConfiguration": "WORKER_IP_PRIVATE",
        "maxWorkers": 50,
        "machineType": "n2-standard-4",
        "flexrsGoal": "FLEXRS_COST_OPTIMIZED",
        "serviceAccountEmail": "worker@a-project.example",
        "network": "n",
        "subnetwork": "regions/europe-west4/subnetworks/s",
        "kmsKeyName": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
        "additionalUserLabels": {"team": "vision"},
    }
    assert unknown_keys(body) == []


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


def test_a_job_that_fails_fails_its_task(convert):
    task = convert(Service(LAUNCHED, RUNNING, FAILED))
    with pytest.raises(AirflowException, match="unexpected terminal state: JOB_STATE_FAILED"):
        task.execute.__wrapped__(task, context())


def test_killing_the_task_cancels_the_job(convert):
    service = Service(LAUNCHED, DONE, DONE, RUNNING, {}, CANCELLED, CANCELLED)
    task = convert(service)
    task.execute.__wrapped__(task, context())
    task.on_kill()
    cancelling = [(method, path, body["requestedState"]) for method, path, body in service.requests if method == "PUT"]
    assert cancelling == [("PUT", JOB_PATH, "JOB_STATE_CANCELLED")]


def test_deferred_the_triggerer_waits_for_the_same_job(convert):
    service = Service(LAUNCHED)
    task = convert(service, RECORDMILL_DEFERRABLE="true")
    with pytest.raises(TaskDeferred) as deferred:
        task.execute.__wrapped__(task, context())
    ((_, _, body),) = service.requests
    assert body == SMALLEST
    _, trigger = deferred.value.trigger.serialize()
    assert (trigger["job_id"], trigger["project_id"], trigger["location"]) == ("job-1", "a-project", "europe-west4")
    assert trigger["cancel_on_kill"] is True
