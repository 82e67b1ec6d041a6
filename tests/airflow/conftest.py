"""Airflow's home and database, DAGs as parsed, and runs of the DAG file by `airflow dags test`.

`make test-airflow` sets PROJECT_PYTHON: Python of the environment that converts.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DAG_FILE = ROOT / "launch" / "airflow" / "recordmill_dags.py"
RECORDMILL = Path(os.environ["PROJECT_PYTHON"]).parent / "recordmill"
_AIRFLOW = Path(sys.executable).parent / "airflow"
_HOME = Path(tempfile.mkdtemp(prefix="recordmill-airflow-"))

# Airflow reads its configuration when it is imported.
os.environ.update(
    AIRFLOW_HOME=str(_HOME),
    AIRFLOW__CORE__DAGS_FOLDER=str(_HOME / "dags"),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__USAGE_DATA_COLLECTION__ENABLED="False",
    AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT="google-cloud-platform://",
)


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def home() -> Path:
    """Airflow's home with an empty database."""
    run = subprocess.run([_AIRFLOW, "db", "migrate"], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return _HOME


@pytest.fixture(scope="session")
def sample(tmp_path_factory) -> Path:
    """A drawn COCO data set of 24 image rows. Two images are faulty."""
    folder = tmp_path_factory.mktemp("sample") / "coco"
    subprocess.run([RECORDMILL, "sample", folder, "--count", "24"], check=True, capture_output=True)
    return folder


def tutorial(language: str) -> list[str]:
    """Blocks of docs/tutorials/airflow_schedule.md in a language."""
    page = (ROOT / "docs" / "tutorials" / "airflow_schedule.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def examples() -> list[str]:
    """DAG files of docs/airflow and of the tutorial."""
    files = [path.read_text() for path in sorted((ROOT / "docs" / "airflow").glob("*.py"))]
    return [*files, tutorial("python")[1]]


def write_dags(folder: Path, **settings: object) -> Path:
    """Copy the DAG file into a dags folder and edit its settings; add the examples of the docs."""
    text = DAG_FILE.read_text()
    for name, value in settings.items():
        pattern = rf"^({name}\b.*?) = (\{{ .*?^\}}|[^\n]*)"
        text, edited = re.subn(pattern, lambda found, v=value: f"{found[1]} = {v!r}", text, flags=re.M | re.S)
        assert edited == 1, name
    folder.mkdir(parents=True)
    (folder / DAG_FILE.name).write_text(text)
    for number, example in enumerate(examples()):
        python = os.environ["PROJECT_PYTHON"]
        (folder / f"example_{number}.py").write_text(example.replace("/opt/recordmill/bin/python", python))
    return folder


def parsed_dags(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return Airflow's DagBag of a dags folder, and the DAGs of the DAG file by id, after a check of each."""
    from airflow.dag_processing.dagbag import DagBag  # after the configuration

    import recordmill.launch

    bag = DagBag(dag_folder=str(folder))
    assert bag.import_errors == {}
    assert "site-packages" in recordmill.launch.__file__  # The DAG file needs no more than the wheel.
    dags = {dag_id: dag for dag_id, dag in bag.dags.items() if dag_id.startswith("recordmill_")}
    for dag_id, dag in dags.items():
        assert (dag.catchup, dag.max_active_runs, dag.dagrun_timeout) == (False, 1, timedelta(hours=24))
        convert, verify, publish = dag.topological_sort()
        assert (convert.downstream_task_ids, verify.downstream_task_ids) == ({"verify"}, {"publish"})
        assert [task.retries for task in (convert, verify, publish)] == [3, 1, 3]
        assert (convert.retry_delay, convert.retry_exponential_backoff) == (timedelta(minutes=1), 2.0)
        assert [asset.name for asset in publish.outlets] == [dag_id]
    return bag, dags


class DagRun:
    """A run by `airflow dags test` in a separate process with a separate database.

    Args:
        data: Folder in place of /data in all DAG files.

    Attributes:
        code: exit code, from `wait`.
        log: standard output and standard error, from `wait`.
    """

    def __init__(
        self,
        home: Path,
        folder: Path,
        settings: dict,
        dag_id: str,
        params: dict,
        date: str = "2026-11-02",
        data: str = "",
    ):
        self._home = folder / "airflow"
        dags = write_dags(self._home / "dags", **settings)
        for path in dags.iterdir() if data else ():
            path.write_text(path.read_text().replace("/data/", f"{data}/"))
        shutil.copy(home / "airflow.db", self._home)
        own = {"AIRFLOW_HOME": str(self._home), "AIRFLOW__CORE__DAGS_FOLDER": str(dags), "TMPDIR": str(home)}
        command = [_AIRFLOW, "dags", "test", dag_id, date, "--conf", json.dumps(params)]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self._process = subprocess.Popen(command, env=os.environ | own, **output)

    def wait(self) -> "DagRun":
        out, _ = self._process.communicate(timeout=600)
        self.code, self.log = self._process.returncode, re.sub(r"\x1b\[[0-9;]*m", "", out)
        return self

    def kill(self) -> None:
        self._process.kill()

    @property
    def tasks(self) -> dict[str, tuple[str, int]]:
        """State and number of tries by task."""
        rows = self._query("SELECT task_id, state, try_number FROM task_instance")
        return {task: (state, tries) for task, state, tries in rows}

    @property
    def asset_events(self) -> list[tuple[str, dict]]:
        """Name of the asset and extra of each event."""
        rows = self._query("SELECT a.name, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id")
        return [(name, json.loads(extra)) for name, extra in rows]

    def _query(self, statement: str) -> list[tuple]:
        with closing(sqlite3.connect(f"file:{self._home / 'airflow.db'}?mode=ro", uri=True)) as database:
            return database.execute(statement).fetchall()
