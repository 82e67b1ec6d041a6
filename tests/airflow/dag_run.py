"""A DAG run as `airflow dags test` has it: in a process and with a database of its own."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from pathlib import Path

from conftest import airflow, copy_dags


class DagRun:
    """A DAG that has been run to its end, once for each day where days are given.

    Attributes:
        code: exit code of the command.
        log: what it printed, which has the logs of all tasks.
    """

    def __init__(self, home: Path, folder: Path, settings: Mapping[str, str], params: dict, dag_id: str, *days: str):
        self._home = folder / "airflow"
        self.root = folder / "runs"
        copy_dags(self._home / "dags", "recordmill_beam.py")
        shutil.copy(home / "airflow.db", self._home)
        environment = {
            **os.environ,
            "AIRFLOW_HOME": str(self._home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._home / "dags"),
            "RECORDMILL_OUTPUT_ROOT": str(self.root),
            "RECORDMILL_RETRIES": "0",
            **settings,
        }
        self.code, self.log = 0, ""
        for day in days or (None,):
            command = airflow("dags", "test", dag_id, *([day] if day else []), "--conf", json.dumps(params))
            run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=600)
            self.code = self.code or run.returncode
            self.log += re.sub(r"\x1b\[[0-9;]*m", "", run.stdout + run.stderr)

    @property
    def tasks(self) -> dict[str, tuple[str, int]]:
        """State and number of tries, by task."""
        rows = self._query("SELECT task_id, state, try_number FROM task_instance")
        return {task: (state, tries) for task, state, tries in rows}

    @property
    def asset_events(self) -> list[tuple[str, dict]]:
        """Asset and what its event says."""
        rows = self._query("SELECT a.name, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id")
        return [(name, json.loads(extra)) for name, extra in rows]

    def _query(self, statement: str) -> list[tuple]:
        database = sqlite3.connect(f"file:{self._home / 'airflow.db'}?mode=ro", uri=True)
        try:
            return database.execute(statement).fetchall()
        finally:
            database.close()

    @property
    def folder(self) -> Path:
        """What the run wrote."""
        (folder,) = self.root.glob("*/*")
        return folder

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.log}"
