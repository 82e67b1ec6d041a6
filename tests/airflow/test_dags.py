"""The DAG files as Airflow reads them."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowFailException
from conftest import DATAFLOW_SETTINGS, FILES, copy_dags
from pendulum import Timezone

from recordmill.launch.command_line.parameters import COMMANDS

DAGS = sorted(f"recordmill_{command}{engine}" for command in COMMANDS for engine in ("", "_dataflow"))
INPUTS = {"images": ["gs://b/images"], "instances": ["gs://b/a.json"]}


def rendered(dag, params: dict, task_id: str = "convert"):
    """A task as it is about to run, in the run of 2026-11-21 02:00 of the day before it."""
    task = dag.get_task(task_id).prepare_for_execution()
    start, end = datetime(2026, 11, 20, 2, tzinfo=UTC), datetime(2026, 11, 21, 2, tzinfo=UTC)
    context = {
        "params": {**dag.params.dump(), **params},
        "dag_run": SimpleNamespace(run_after=end, data_interval_start=start, data_interval_end=end, logical_date=None),
        "ti": SimpleNamespace(try_number=1),
    }
    task.render_template_fields(context)
    return task


def test_all_are_read_and_have_the_properties_they_should(load):
    bag = load()
    assert bag.import_errors == {}
    assert sorted(bag.dags) == DAGS
    for dag in bag.dags.values():
        assert (dag.catchup, dag.max_active_runs, dag.schedule, dag.start_date) == (False, 1, None, None)
        assert [task.task_id for task in dag.topological_sort()] == ["convert", "verify", "publish"]
        assert [sorted(task.downstream_task_ids) for task in dag.topological_sort()] == [["verify"], ["publish"], []]
        assert [task.retries for task in dag.topological_sort()] == [3, 1, 3]
        for task in dag.tasks:
            assert task.retry_exponential_backoff == 2.0
            assert (task.retry_delay, task.max_retry_delay) == (timedelta(minutes=1), timedelta(hours=1))
            assert task.execution_timeout == timedelta(hours=24)
            assert task.trigger_rule == "all_success"
        assert [asset.name for asset in dag.get_task("publish").outlets] == [dag.dag_id.removesuffix("_dataflow")]
        assert not any(task.outlets for task in dag.tasks if task.task_id != "publish")


def test_settings_change_what_they_are_of(load):
    bag = load(
        RECORDMILL_COCO_DATAFLOW_SCHEDULE="0 3 * * *",
        RECORDMILL_COCO_DATAFLOW_PARAMS='{"images": ["gs://b/i"], "instances": ["gs://b/a.json"], "num_shards": 8}',
        RECORDMILL_RETRIES="0",
        RECORDMILL_RETRY_SECONDS="5",
        RECORDMILL_TIMEOUT_HOURS="0.5",
        RECORDMILL_RUN_TIMEOUT_HOURS="2",
        RECORDMILL_DEFERRABLE="true",
        RECORDMILL_COCO_DATAFLOW_START="2026-11-01",
        RECORDMILL_COCO_DATAFLOW_CATCHUP="true",
        RECORDMILL_POOL="conversions",
        RECORDMILL_ON_FAILURE="json.dumps",
        RECORDMILL_KEEP="7",
        RECORDMILL_LATEST="true",
        RECORDMILL_LINEAGE="true",
    )
    assert bag.import_errors == {}
    dag = bag.dags["recordmill_coco_dataflow"]
    assert (dag.schedule, dag.dagrun_timeout) == (
        CronDataIntervalTimetable("0 3 * * *", Timezone("UTC")),
        timedelta(hours=2),
    )
    assert (dag.start_date, dag.catchup) == (datetime(2026, 11, 1, tzinfo=UTC), True)
    assert (dag.on_failure_callback, {task.pool for task in dag.tasks}) == (json.dumps, {"conversions"})
    assert [task.task_id for task in dag.topological_sort()] == ["convert", "verify", "publish", "tidy"]
    publish = dag.get_task("publish")
    latest = "gs://records/runs/recordmill_coco_dataflow/latest.json"
    assert [(asset.name, asset.uri) for asset in publish.outlets] == [
        ("recordmill_coco", "recordmill_coco"),  # as who names it Asset("recordmill_coco") has it
        (latest, latest),
    ]
    assert [asset.uri for asset in publish.inlets] == ["gs://b/i", "gs://b/a.json"]
    assert (dag.params["num_shards"], dag.params["images"]) == (8, ["gs://b/i"])
    convert = dag.get_task("convert")
    assert (convert.deferrable, convert.retries) == (True, 0)
    assert (convert.retry_delay, convert.execution_timeout) == (timedelta(seconds=5), timedelta(minutes=30))
    assert bag.dags["recordmill_folder_dataflow"].schedule is None
    assert bag.dags["recordmill_coco"].params["num_shards"] is None
    assert bag.dags["recordmill_coco"].get_task("convert").deferrable is False


@pytest.mark.parametrize(
    ("settings", "file", "told"),
    [
        ({"RECORDMILL_PYTHON": None}, FILES[0], "RECORDMILL_PYTHON is missing"),
        ({"RECORDMILL_REGION": ""}, FILES[1], "RECORDMILL_REGION is missing"),
        ({"RECORDMILL_VERIFY": "dataflow"}, FILES[0], "RECORDMILL_VERIFY=dataflow is for the DAGs of"),
        ({"RECORDMILL_ON_FAILURE": "no.such"}, FILES[0], "RECORDMILL_ON_FAILURE=no.such cannot be imported"),
        (
            {"RECORDMILL_ON_FAILURE": "sys.argv"},
            FILES[1],
            "RECORDMILL_ON_FAILURE=sys.argv is nothing that can be called",
        ),
        (
            {"RECORDMILL_COCO_PARAMS": '{"images": ["gs://b/{run.__class__:%Y}"]}'},
            FILES[0],
            "RECORDMILL_COCO_PARAMS: images: ",
        ),
        ({"RECORDMILL_SUBNETWORK": None}, FILES[1], "RECORDMILL_SUBNETWORK is missing"),
        ({"RECORDMILL_COCO_SCHEDULE": "@daily"}, FILES[0], "scheduled runs (@daily) need defaults for images"),
        ({"RECORDMILL_COCO_PARAMS": '{"num_shards": 0}'}, FILES[0], "0 is less than the minimum of 1"),
    ],
)
def test_a_setting_that_is_wrong_is_an_import_error_that_names_it(load, settings, file, told):
    errors = {path.rsplit("/", 1)[1]: error for path, error in load(**settings).import_errors.items()}
    assert told in errors[file]


@pytest.mark.parametrize(
    "wrong",
    [
        {"INPUT": "gs://b/images"},
        {"INPUT": ["images"]},
        {"INPUT": ["gs://b/one,gs://b/two"]},
        {"INPUT": ["gs://b/{ds}"]},
        {"output": "gs://b/{logical_date.__class__}"},
        {"num_shards": 0},
        {"num_shards": 2.5},
        {"layout": "tfrecord"},
        {"gzip": "yes"},
        {"max_rejects": 1.1},
        {"output": "records"},
    ],
)
def test_params_that_break_their_schema_are_refused(load, wrong):
    """By the forms of all DAGs."""
    for dag in load().dags.values():
        params, name = dag.params, "rows" if "table" in dag.dag_id else "images"
        params[name] = ["gs://b/images"]
        if "embed" in dag.dag_id:
            params["model"] = "efficientnet-b0"
        params.validate()
        values = {key.replace("INPUT", name): value for key, value in wrong.items()}
        with pytest.raises(ValueError, match=f"Invalid input for param {next(iter(values))}"):
            params.update(values)


def test_a_run_without_pictures_is_refused(load):
    for dag in load().dags.values():
        if "table" not in dag.dag_id:  # whose rows a query may give
            with pytest.raises(ValueError, match="Invalid input for param images"):
                dag.params.update({"images": []})


def test_the_operator_is_given_flags_of_what_was_changed(load):
    params = {**INPUTS, "gzip": True, "num_shards": 8, "max_rejects": 0, "categories": "cat,traffic light"}
    task = rendered(load(RECORDMILL_BEAM_OPTIONS='{"direct_num_workers": 2}').dags["recordmill_coco"], params)
    assert task.pipeline_options == {
        "command": "coco",
        "images": ["gs://b/images"],
        "instances": ["gs://b/a.json"],
        "gzip": "true",
        "num_shards": 8,
        "max_rejects": 0,
        "categories": "cat,traffic light",
        "output": "gs://records/runs/recordmill_coco/20261121t020000",
        "direct_num_workers": 2,
    }
    assert (task.py_interpreter, task.py_options, task.py_file) == (
        "/opt/recordmill/bin/python",
        ["-m"],
        "recordmill.launch.flat",
    )


@pytest.mark.parametrize("dag_id", ["recordmill_coco", "recordmill_coco_dataflow"])
def test_a_contradiction_fails_for_good_before_anything_is_started(load, dag_id):
    dag = load().dags[dag_id]
    with pytest.raises(AirflowFailException, match="--num-shards and --shard-size contradict each other: give one"):
        rendered(dag, {**INPUTS, "num_shards": 8, "shard_size": "100MB"})
    with pytest.raises(AirflowFailException, match="--instances is missing"):
        rendered(dag, {"images": ["gs://b/images"]})


CLUSTER = """
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
"""


def test_a_pod_reads_the_records_back(load, tmp_path):
    (tmp_path / "cluster").write_text(CLUSTER)
    pod = {
        "config_file": str(tmp_path / "cluster"),
        "image": "h/recordmill-verify:1",
        "namespace": "n",
        "service_account": "reader",
        "memory": "2Gi",
    }
    bag = load(
        RECORDMILL_VERIFY="pod", RECORDMILL_POD=json.dumps(pod), RECORDMILL_PYTHON=None, RECORDMILL_DEFERRABLE="true"
    )
    assert list(bag.import_errors) == [path for path in bag.import_errors if path.endswith(FILES[0])]  # which converts
    dag = bag.dags["recordmill_coco_dataflow"]
    assert [task.task_id for task in dag.topological_sort()] == ["convert", "verify", "publish"]
    task = rendered(dag, INPUTS, task_id="verify")
    assert (task.deferrable, task.retries, task.execution_timeout) == (True, 1, timedelta(hours=24))
    spec = task.build_pod_request_obj().spec
    (container,) = spec.containers
    assert (container.image, container.command) == (pod["image"], ["python", "-m", "recordmill.launch.cli"])
    folder = "gs://records/runs/recordmill_coco_dataflow/20261121t020000"
    assert container.args == ["verify", folder, "--check=decode", "--progress=plain"]
    amounts = {"cpu": "2", "memory": "2Gi"}
    assert (container.resources.requests, container.resources.limits) == (amounts, amounts)
    assert (task.namespace, spec.service_account_name, spec.restart_policy) == ("n", "reader", "Never")


def test_nothing_need_be_verified(load):
    bag = load(RECORDMILL_VERIFY="none")
    assert bag.import_errors == {}
    for dag in bag.dags.values():
        assert [task.task_id for task in dag.topological_sort()] == ["convert", "publish"]
        assert sorted(dag.get_task("convert").downstream_task_ids) == ["publish"]


def test_dates_of_a_run_are_in_its_paths_everywhere(load):
    dates = {"images": ["gs://b/{data_interval_start:%Y/%m/%d}"], "output": "gs://o/{data_interval_end:%Y%m%d}"}
    bag = load(RECORDMILL_COCO_DATAFLOW_PARAMS=json.dumps(INPUTS | dates))
    dag = bag.dags["recordmill_coco_dataflow"]
    parameters = rendered(dag, {}).body["launchParameter"]["parameters"]
    assert (parameters["images"], parameters["output"]) == ("gs://b/2026/11/20", "gs://o/20261121")
    assert " verify gs://o/20261121 " in rendered(dag, {}, task_id="verify").bash_command
    coco = bag.dags["recordmill_coco"]
    assert rendered(coco, INPUTS | dates).pipeline_options["images"] == ["gs://b/2026/11/20"]
    with pytest.raises(AirflowFailException, match="this run has no logical_date"):
        rendered(coco, INPUTS | {"output": "gs://o/{logical_date:%Y}"})


def test_the_manifest_is_read_by_the_account_of_the_connection(load, monkeypatch):
    dag = load(RECORDMILL_CONNECTION="reader").dags["recordmill_coco_dataflow"]
    publish = dag.get_task("publish").python_callable
    asked = []

    def path(where: str, conn_id: str | None) -> None:
        asked.append((where, conn_id))
        raise FileNotFoundError(where)

    monkeypatch.setattr(sys.modules["recordmill_tasks"], "ObjectStoragePath", path)
    with pytest.raises(FileNotFoundError):
        publish(params={"output": "gs://b/out"}, dag_run=SimpleNamespace(run_after=datetime.now(UTC)))
    with pytest.raises(FileNotFoundError):
        publish(params={"output": "/data/out"}, dag_run=SimpleNamespace(run_after=datetime.now(UTC)))
    assert asked == [("gs://b/out", "reader"), ("/data/out", None)]


@pytest.mark.parametrize("field", ["impersonation_chain", "credential_config_file", "key_secret_name"])
def test_an_account_that_programs_cannot_be_given_is_refused(load, monkeypatch, field):
    monkeypatch.setenv("AIRFLOW_CONN_READER", json.dumps({"conn_type": "google_cloud_platform", "extra": {field: "x"}}))
    verify = load(RECORDMILL_CONNECTION="reader").dags["recordmill_coco"].get_task("verify")
    with pytest.raises(AirflowFailException, match=f"connection reader has {field}"):
        verify.execute.__wrapped__(verify, {})


def test_parsing_imports_nothing_but_what_is_light(home, tmp_path):
    folder = copy_dags(tmp_path / "dags", *FILES)
    program = (
        "import sys\n"
        "import psutil, airflow.sdk, airflow.sdk.exceptions\n"
        "import airflow.providers.apache.beam.operators.beam, airflow.providers.google.cloud.operators.dataflow\n"
        "import airflow.providers.standard.operators.bash\n"
        "before = set(sys.modules)\n"
        "import recordmill_beam, recordmill_dataflow\n"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))\n"
    )
    environment = {**DATAFLOW_SETTINGS, "PYTHONPATH": str(folder), "AIRFLOW_HOME": str(home), "PATH": "/usr/bin:/bin"}
    run = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    new = set(run.stdout.split())
    assert {"recordmill", "recordmill_beam", "recordmill_dataflow"} <= new
    assert not {"apache_beam", "tensorflow", "numpy", "pandas", "PIL"} & new


def test_recordmill_is_of_the_wheel_and_not_of_the_tree():
    import recordmill.launch

    assert "site-packages" in recordmill.launch.__file__
