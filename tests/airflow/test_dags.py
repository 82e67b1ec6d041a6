"""The DAG files as Airflow reads them."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException
from conftest import DATAFLOW_SETTINGS, copy_dags

from recordmill.launch.command_line.parameters import COMMANDS

FILES = ("recordmill_beam.py", "recordmill_dataflow.py")
DAGS = sorted(f"recordmill_{command}{engine}" for command in COMMANDS for engine in ("", "_dataflow"))
INPUTS = {"images": ["gs://b/images"], "instances": ["gs://b/a.json"]}


@pytest.fixture
def load(home, tmp_path, monkeypatch, dataflow_settings):
    """Loads the DAG files with more settings; None takes one away."""
    folder = copy_dags(tmp_path / "dags", *FILES)
    monkeypatch.syspath_prepend(str(folder))

    def loaded(**settings: str | None) -> DagBag:
        for name, value in settings.items():
            if value is None:
                monkeypatch.delenv(name)
            else:
                monkeypatch.setenv(name, value)
        for name in [name for name in sys.modules if "recordmill_" in name]:
            del sys.modules[name]
        return DagBag(dag_folder=str(folder))

    return loaded


def rendered(dag, params: dict, try_number: int = 1):
    """The task `convert` as it is about to run, in the run of 2026-11-21 02:00."""
    task = dag.get_task("convert").prepare_for_execution()
    context = {
        "params": {**dag.params.dump(), **params},
        "dag_run": SimpleNamespace(run_after=datetime(2026, 11, 21, 2, tzinfo=UTC)),
        "ti": SimpleNamespace(try_number=try_number),
    }
    task.render_template_fields(context)
    return task


def test_all_are_read_and_have_the_properties_they_should(load):
    bag = load()
    assert bag.import_errors == {}
    assert sorted(bag.dags) == DAGS
    for dag in bag.dags.values():
        assert (dag.catchup, dag.max_active_runs, dag.schedule) == (False, 1, None)
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
    )
    assert bag.import_errors == {}
    dag = bag.dags["recordmill_coco_dataflow"]
    assert (dag.schedule, dag.dagrun_timeout) == ("0 3 * * *", timedelta(hours=2))
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
        ({"RECORDMILL_SUBNETWORK": None}, FILES[1], "RECORDMILL_SUBNETWORK is missing"),
        ({"RECORDMILL_COCO_SCHEDULE": "@daily"}, FILES[0], "scheduled runs (@daily) need defaults for images"),
        ({"RECORDMILL_COCO_PARAMS": '{"num_shards": 0}'}, FILES[0], "0 is less than the minimum of 1"),
    ],
)
def test_a_setting_that_is_wrong_is_an_import_error_that_names_it(load, settings, file, told):
    errors = {path.rsplit("/", 1)[1]: error for path, error in load(**settings).import_errors.items()}
    assert told in errors[file]


@pytest.mark.parametrize("dag_id", DAGS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"INPUT": "gs://b/images"},
        {"INPUT": ["images"]},
        {"INPUT": ["gs://b/one,gs://b/two"]},
        {"num_shards": 0},
        {"num_shards": 2.5},
        {"layout": "tfrecord"},
        {"gzip": "yes"},
        {"max_rejects": 1.1},
        {"output": "records"},
    ],
)
def test_params_that_break_their_schema_are_refused(load, dag_id, wrong):
    params = load().dags[dag_id].params
    name = "rows" if "table" in dag_id else "images"
    params[name] = ["gs://b/images"]
    if "embed" in dag_id:
        params["model"] = "efficientnet-b0"
    params.validate()
    wrong = {key.replace("INPUT", name): value for key, value in wrong.items()}
    with pytest.raises(ValueError, match=f"Invalid input for param {next(iter(wrong))}"):
        params.update(wrong)


@pytest.mark.parametrize("dag_id", [each for each in DAGS if "table" not in each])  # whose rows a query may give
def test_a_run_without_pictures_is_refused(load, dag_id):
    with pytest.raises(ValueError, match="Invalid input for param images"):
        load().dags[dag_id].params.update({"images": []})


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
