"""launch/airflow/recordmill_dags.py in an Airflow without Google's provider: DAGs as parsed, and runs."""

import shlex
import subprocess
import tempfile
import time
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import RECORDMILL, DagRun, parsed_dags, write_dags

ONCE = {"retries": 0}
NOT_RUN = ("upstream_failed", 0)


@pytest.fixture
def start(home, tmp_path):
    """Start a run of recordmill_convert, or of another DAG."""
    runs = []

    def started(params: dict, dag_id: str = "recordmill_convert", **settings: object) -> DagRun:
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
    assert done.asset_events == [("recordmill_convert", {"folder": str(folder)})]
    plain = [f"--images={dated}", f"--instances={params['instances'][0]}", f"--output={tmp_path}/plain"]
    flags = ["--num-shards=3", "--max-rejects=0.2"]
    subprocess.run([RECORDMILL, "convert", *plain, *flags], check=True, capture_output=True)
    written = shards(folder)
    assert len(written) == 3
    assert written == shards(tmp_path / "plain")

    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = start(params).wait()
    assert (again.code, again.tasks) == (0, success), again.log
    assert f"{folder} already has the complete split" in again.log
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times


def test_daily_run_adds_to_a_data_set(start, sample, tmp_path):
    days = {day: tmp_path / "2026" / "11" / day for day in ("01", "02")}
    for number, folder in enumerate(days.values()):
        for class_name in ("circle", "square"):
            (folder / class_name).mkdir(parents=True)
            for path in sorted((sample / "classes" / class_name).iterdir())[number::2]:
                (folder / class_name / path.name).write_bytes(path.read_bytes())
    farm = tmp_path / "farm"
    subprocess.run([RECORDMILL, "convert", days["01"], "--output", farm], check=True, capture_output=True)
    (first,) = shards(farm).items()
    data = {"data": [f"{tmp_path}/{{%Y/%m/%d}}"], "format": "folder"}
    for is_rerun in (False, True):
        done = start({**data, "output": str(farm), "add": True}).wait()
        assert (done.code, done.tasks["verify"]) == (0, ("success", 1)), done.log
        assert ("already has all that this command adds" in done.log) == is_rerun
        assert first in shards(farm).items()
        assert [*shards(farm)][1:] == [first[0].replace("00000-of-00001", "00001-of-00002")]


def test_convert_in_task_of_ones_own(start, sample, tmp_path):
    (instances,) = coco(sample)["instances"]
    params = {"images": str(sample / "images"), "instances": instances, "output": str(tmp_path / "own")}
    done = start(params, "own").wait()
    assert (done.code, done.tasks) == (0, {"convert": ("success", 1)}), done.log
    flags = [f"--{name}={value}" for name, value in (params | {"output": tmp_path / "plain"}).items()]
    subprocess.run([RECORDMILL, "convert", *flags, "--max-rejects=0.2"], check=True, capture_output=True)
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
    assert "--num-shards and --shard-size contradict each other. Give one" in done.log
    assert "flock" not in done.log


def test_second_run_at_once_is_in_use(start, sample, tmp_path):
    waiting = tmp_path / "waiting"
    waiting.write_text(
        f"#!/bin/bash\ntouch {tmp_path}/started\n"
        f"while [ $1 = convert -a ! -e {tmp_path}/go ]; do sleep 0.1; done\n"
        f'exec {RECORDMILL} "$@"\n'
    )
    waiting.chmod(0o755)
    classes = {"data": [str(sample / "classes")], "max_rejects": 0.2}  # a format that the job recognises
    one = start(classes, RECORDMILL=str(waiting))
    deadline = time.monotonic() + 300
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    other = start(classes, RETRY=ONCE).wait()
    assert (other.code, other.tasks["convert"]) == (1, ("failed", 1)), other.log
    assert "recordmill_convert is in use: another convert runs on this machine" in other.log
    assert not (tmp_path / "runs").exists()
    (tmp_path / "go").touch()
    assert one.wait().code == 0, one.log
    assert {state for state, _ in one.tasks.values()} == {"success"}


def test_dags_as_parsed(home, tmp_path):
    """Without PROJECT, data sets on Dataflow have no DAG."""
    assert find_spec("airflow.providers.google") is None
    daily = {"schedule": "@daily", "options": {"data": ["gs://b/{%Y/%m/%d}"], "format": "folder", "num_shards": 8}}
    data_sets = {"convert": {}, "pets": daily, "street": {"on_dataflow": True}}
    bag, dags = parsed_dags(write_dags(tmp_path / "dags", DATA_SETS=data_sets))
    (outlet,) = dags["recordmill_convert"].get_task("publish").outlets
    assert outlet in bag.dags["train"].timetable.asset_condition.objects
    assert sorted(dags) == ["recordmill_convert", "recordmill_pets"]
    other, scheduled = dags["recordmill_convert"], dags["recordmill_pets"]
    assert (scheduled.schedule, other.schedule) == ("@daily", None)
    assert (scheduled.params["num_shards"], other.params["num_shards"]) == (8, None)
    assert (scheduled.params["data"], scheduled.params["format"]) == (["gs://b/{%Y/%m/%d}"], "folder")


def test_values_are_neither_shell_nor_jinja(home, tmp_path):
    _, dags = parsed_dags(write_dags(tmp_path / "dags"))
    text = "$(x) `x`,'; x #,{{ 7 * 7 }},a\\b\"\n"
    context = {
        "params": {"data": ["/i"], "instances": ["/a"], "categories": text},
        "dag_run": SimpleNamespace(logical_date=datetime(2026, 11, 2), run_after=None),
        "ti": SimpleNamespace(task_id="convert"),
    }
    task = dags["recordmill_convert"].get_task("convert").prepare_for_execution()
    task.render_template_fields(context)
    words = shlex.split(task.bash_command)
    end = words.index("--")
    lock = ["flock", "--nonblock", "--conflict-exit-code=75", f"{tempfile.gettempdir()}/recordmill_convert.lock"]
    inputs = ["/i", "--instances=/a", f"--categories={text}"]
    output = "--output=/data/runs/recordmill_convert/20261102t000000"
    command = ["/opt/recordmill/bin/recordmill", "convert"]
    assert sorted(words[:end]) == sorted([*lock, *command, *inputs, output, "--progress=plain"])
