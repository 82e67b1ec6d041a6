"""What the tests in Airflow's environment share: Airflow's home and database, and the DAG files with their settings.

`make test-airflow` runs them; PROJECT_PYTHON is the python of the environment that converts.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_HOME = tempfile.mkdtemp(prefix="recordmill-airflow-")

# Airflow reads its configuration when it is imported, by whichever test is the first.
os.environ.update(
    AIRFLOW_HOME=_HOME,
    AIRFLOW__CORE__DAGS_FOLDER=f"{_HOME}/dags",
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__PARALLELISM="2",
    AIRFLOW__USAGE_DATA_COLLECTION__ENABLED="False",
)
for _name in [name for name in os.environ if name.startswith("RECORDMILL_")]:
    del os.environ[_name]


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def project_python() -> str:
    python = os.environ.get("PROJECT_PYTHON", "")
    assert os.access(python, os.X_OK), f"PROJECT_PYTHON={python} is no program; `make test-airflow` sets it"
    return python


@pytest.fixture(scope="session")
def home() -> Path:
    """Airflow's home, with a database and without DAGs."""
    (Path(_HOME) / "dags").mkdir()
    run = subprocess.run(airflow("db", "migrate"), check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return Path(_HOME)


@pytest.fixture(scope="session")
def sample(project_python, tmp_path_factory) -> Path:
    """A drawn data set of 24 image rows, two of them bad."""
    folder = tmp_path_factory.mktemp("sample") / "coco"
    subprocess.run([project_python, "-m", "recordmill.launch.cli", "sample", folder, "--count", "24"], check=True)
    return folder


@pytest.fixture
def dataflow_settings(monkeypatch) -> None:
    """What a site must say for Dataflow, in the environment."""
    for name, value in DATAFLOW_SETTINGS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def load(home, tmp_path, monkeypatch, dataflow_settings):
    """Loads the DAG files with more settings; None takes one away."""
    folder = copy_dags(tmp_path / "dags", *FILES)
    monkeypatch.syspath_prepend(str(folder))

    def loaded(**settings: str | None) -> Any:
        from airflow.dag_processing.dagbag import DagBag

        for name, value in settings.items():
            if value is None:
                monkeypatch.delenv(name)
            else:
                monkeypatch.setenv(name, value)
        for name in [name for name in sys.modules if "recordmill_" in name]:
            del sys.modules[name]
        return DagBag(dag_folder=str(folder))

    return loaded


FILES = ("recordmill_beam.py", "recordmill_dataflow.py")

DATAFLOW_SETTINGS = {
    "RECORDMILL_PYTHON": "/opt/recordmill/bin/python",
    "RECORDMILL_OUTPUT_ROOT": "gs://records/runs",
    "RECORDMILL_TEMPLATES": "gs://templates/recordmill",
    "RECORDMILL_PROJECT": "a-project",
    "RECORDMILL_REGION": "europe-west4",
    "RECORDMILL_TEMP_LOCATION": "gs://temporary/dataflow",
    "RECORDMILL_SUBNETWORK": "regions/europe-west4/subnetworks/s",
    "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": "google-cloud-platform://",
}


def airflow(*arguments: str) -> list[str]:
    """Airflow's command line, of this environment."""
    return [sys.executable, "-m", "airflow", *arguments]


def copy_dags(folder: Path, *names: str) -> Path:
    """A dags folder with these files and what they share, as docs/airflow.md has it made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*names, "recordmill_tasks.py"):
        shutil.copy(ROOT / "launch" / "airflow" / name, folder)
    return folder
