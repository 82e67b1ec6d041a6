"""launch/airflow/recordmill_dags.py in a real Airflow: DAGs as parsed, runs, and requests to Dataflow."""

import asyncio
import json
import re
import shlex
import subprocess
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.google.cloud.hooks.dataflow import AsyncDataflowHook, DataflowHook
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from airflow.sdk.module_loading import import_string
from conftest import RECORDMILL, DagRun, write_dags
from google.cloud.dataflow_v1beta3 import JobState
from googleapiclient.discovery import build
from googleapiclient.http import HttpMockSequence

import recordmill.launch
from recordmill.launch.command_line.parameters import COMMANDS

ONCE = {"retries": 0}
NOT_RUN = ("upstream_failed", 0)


@pytest.fixture
def start(home, tmp_path):
    """Start a run of recordmill_coco, or of another DAG."""
    runs = []

    def started(params: dict, dag_id: str = "recordmill_coco", **settings: object) -> DagRun:
        settings = {"ROOT": str(tmp_path / "runs"), "RECORDMILL": str(RECORDMILL), **settings}
        runs.append(DagRun(home, tmp_path / str(len(runs)), settings, dag_id, params))
        return runs[-1]

    yield started
    for run in runs:
        run.kill()


def coco(sample: Path) -> dict:
    instances = [str(sample / "annotations" / "instances.json")]
    return {"images": [str(sample / "images")], "instances": instances, "max_rejects": 0.2}


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*.tfrecord-*")}


def test_run_and_rerun(start, sample, tmp_path):
    dated = tmp_path / "2026" / "11" / "02"
    dated.parent.mkdir(parents=True)
    dated.symlink_to(sample / "images")
    # The shell would end itself if this was not quoted.
    folder = tmp_path / "'$(kill $$)' `kill $$`\"; kill $$ #"
    params = {**coco(sample), "images": [f"{tmp_path}/{{%Y/%m/%d}}"], "output": str(folder), "num_shards": 3}
    done = start(params).wait()
    success = {"convert": ("success", 1), "verify": ("success", 1), "publish": ("success", 1)}
    assert (done.code, done.tasks) == (0, success), done.log
    assert "is intact: all records were read, parsed and decoded" in done.log
    assert done.asset_events == [("recordmill_coco", {"folder": str(folder)})]
    plain = [f"--images={dated}", f"--instances={params['instances'][0]}", f"--output={tmp_path}/plain"]
    flags = ["--num-shards=3", "--max-rejects=0.2"]
    subprocess.run([RECORDMILL, "coco", *plain, *flags], check=True, capture_output=True)
    written = shards(folder)
    assert len(written) == 3
    assert written == shards(tmp_path / "plain")

    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = start(params).wait()
    assert (again.code, again.tasks) == (0, success), again.log
    assert f"{folder} already has the complete split" in again.log
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times


def test_convert_in_task_of_ones_own(start, sample, tmp_path):
    (instances,) = coco(sample)["instances"]
    params = {"images": str(sample / "images"), "instances": instances, "output": str(tmp_path / "own")}
    done = start(params, "own").wait()
    assert (done.code, done.tasks) == (0, {"convert": ("success", 1)}), done.log
    flags = [f"--{name}={value}" for name, value in (params | {"output": tmp_path / "plain"}).items()]
    subprocess.run([RECORDMILL, "coco", *flags, "--max-rejects=0.2"], check=True, capture_output=True)
    assert shards(tmp_path / "own") == shards(tmp_path / "plain") != {}


def test_param_that_breaks_its_schema(start, sample, tmp_path):
    done = start({**coco(sample), "num_shards": 0}).wait()
    assert done.code == 1
    assert "Invalid input for param num_shards: 0 is less than the minimum of 1" in done.log
    assert done.tasks == {}
    assert not (tmp_path / "runs").exists()


def test_contradictions_are_not_retried(start, sample):
    done = start({**coco(sample), "num_shards": 8, "shard_size": "1GB"}).wait()
    assert (done.code, done.tasks) == (1, {"convert": ("failed", 1), "verify": NOT_RUN, "publish": NOT_RUN}), done.log
    assert "--num-shards and --shard-size contradict each other: give one" in done.log
    assert "flock" not in done.log


def test_second_run_at_once_is_in_use(start, sample, tmp_path):
    waiting = tmp_path / "waiting"
    waiting.write_text(
        f"#!/bin/bash\ntouch {tmp_path}/started\n"
        f"while [ $1 = coco -a ! -e {tmp_path}/go ]; do sleep 0.1; done\n"
        f'exec {RECORDMILL} "$@"\n'
    )
    waiting.chmod(0o755)
    one = start(coco(sample), RECORDMILL=str(waiting))
    deadline = time.monotonic() + 300
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    other = start(coco(sample), RETRY=ONCE).wait()
    assert (other.code, other.tasks["convert"]) == (1, ("failed", 1)), other.log
    assert "recordmill_coco is in use: another convert runs on this machine" in other.log
    assert not (tmp_path / "runs").exists()
    (tmp_path / "go").touch()
    assert one.wait().code == 0, one.log
    assert {state for state, _ in one.tasks.values()} == {"success"}


def test_dags_as_parsed(home, tmp_path):
    defaults = {"recordmill_coco": {"images": ["gs://b/{%Y/%m/%d}"], "num_shards": 8}}
    folder = write_dags(tmp_path / "dags", SCHEDULES={"recordmill_coco": "@daily"}, DEFAULTS=defaults, PROJECT="p")
    bag = DagBag(dag_folder=str(folder))
    assert bag.import_errors == {}
    assert "site-packages" in recordmill.launch.__file__  # The DAG file needs no more than the wheel.
    (outlet,) = bag.dags["recordmill_coco"].get_task("publish").outlets
    assert outlet in bag.dags.pop("train").timetable.asset_condition.objects
    bag.dags.pop("own")
    assert sorted(bag.dags) == sorted(f"recordmill_{verb}{where}" for verb in COMMANDS for where in ("", "_dataflow"))
    for dag in bag.dags.values():
        assert (dag.catchup, dag.max_active_runs, dag.dagrun_timeout) == (False, 1, timedelta(hours=24))
        convert, verify, publish = dag.topological_sort()
        assert (convert.downstream_task_ids, verify.downstream_task_ids) == ({"verify"}, {"publish"})
        assert [task.retries for task in (convert, verify, publish)] == [3, 1, 3]
        assert (convert.retry_delay, convert.retry_exponential_backoff) == (timedelta(minutes=1), 2.0)
        scheduled, other = bag.dags["recordmill_coco"], bag.dags["recordmill_folder"]
    assert (scheduled.schedule, other.schedule) == ("@daily", None)
    assert (scheduled.params["num_shards"], other.params["num_shards"]) == (8, None)


def test_values_are_neither_shell_nor_jinja(home, tmp_path):
    dags = DagBag(dag_folder=str(write_dags(tmp_path / "dags"))).dags
    assert {dag_id for dag_id in dags if dag_id.endswith("_dataflow")} == set()  # PROJECT is not set.
    text = "$(x) `x`,'; x #,{{ 7 * 7 }},a\\b\"\n"
    context = {
        "params": {"images": ["/i"], "instances": ["/a"], "categories": text},
        "dag_run": SimpleNamespace(logical_date=datetime(2026, 11, 2), run_after=None),
        "ti": SimpleNamespace(task_id="convert"),
    }
    task = dags["recordmill_coco"].get_task("convert").prepare_for_execution()
    task.render_template_fields(context)
    words = shlex.split(task.bash_command)
    end = words.index("--")
    lock = ["flock", "--nonblock", "--conflict-exit-code=75", f"{tempfile.gettempdir()}/recordmill_coco.lock"]
    inputs = ["--images=/i", "--instances=/a", f"--categories={text}"]
    output = "--output=/data/runs/recordmill_coco/20261102t000000"
    command = ["/opt/recordmill/bin/recordmill", "coco"]
    assert sorted(words[:end]) == sorted([*lock, *command, *inputs, output, "--progress=plain"])


ENVIRONMENT = {"tempLocation": "gs://temp/t", "maxWorkers": 20, "ipConfiguration": "WORKER_IP_PRIVATE"}
JOB = {"id": "job-1", "projectId": "a-project", "location": "europe-west4"}


@pytest.fixture
def dataflow(home, tmp_path, monkeypatch):
    """Build a task of recordmill_coco_dataflow in its second try. Dataflow answers with `answers` and job states."""

    def built(task_id: str, answers: list[dict], states: list[str]) -> SimpleNamespace:
        settings = {"PROJECT": "a-project", "TEMPLATES": "gs://temp/templates", "ENVIRONMENT": ENVIRONMENT}
        folder = write_dags(tmp_path / task_id, ROOT="gs://records", **settings)
        http = HttpMockSequence([({"status": "200"}, json.dumps(answer)) for answer in answers])
        client = build("dataflow", "v1b3", http=http, static_discovery=True)
        monkeypatch.setattr(DataflowHook, "get_conn", lambda hook: client)

        async def state(hook: object, **job: object) -> JobState:
            return JobState[states.pop(0)]

        monkeypatch.setattr(AsyncDataflowHook, "get_job_status", state)
        dag = DagBag(dag_folder=str(folder)).dags["recordmill_coco_dataflow"]
        params = {"images": ["gs://b/{%Y}", "gs://b/two.zip"], "instances": ["gs://b/a.json"], "num_shards": 64}
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
        "jobName": "recordmill-coco-dataflow-convert-20261121t020000000070-2",
        "containerSpecGcsPath": "gs://temp/templates/coco.json",
        "parameters": {
            "images": "gs://b/2026,gs://b/two.zip",
            "instances": "gs://b/a.json",
            "num_shards": "64",
            "output": "gs://records/recordmill_coco_dataflow/20261121t020000000070",
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
        {"folder": "gs://records/recordmill_coco_dataflow/20261121t020000000070", "check": "decode"},
    )
    with pytest.raises(AirflowException, match="job-1 has failed"):
        end(built, deferred)
