"""Airflow as a site has it: API server, scheduler with workers, DAG processor, all on loopback."""

import json
import os
import secrets
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from conftest import airflow, copy_dags

from recordmill.launch.command_line.parameters import COMMANDS

_START_S = 300


class Services:
    """Airflow that runs, by its REST API, which is what its user interface uses."""

    def __init__(self, url: str, logs: Path):
        self._url, self._logs = url, logs
        self._token = ""

    def ask(self, method: str, path: str, body: dict | None = None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def sign_in(self) -> None:
        self._token = self.ask("GET", "/auth/token")["access_token"]

    def log(self, task: str) -> str:
        """What a task's tries have logged."""
        return "\n".join(path.read_text() for path in sorted(self._logs.glob(f"**/task_id={task}/*.log")))


@contextmanager
def running(home: Path, folder: Path, more_dags: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Services]:
    """Airflow with recordmill_beam.py and `more_dags`, by file name, while the block runs; its files go to `folder`."""
    root = folder / "airflow"
    copy_dags(root / "dags", "recordmill_beam.py")
    for name, text in more_dags.items():
        (root / "dags" / name).write_text(text)
    shutil.copy(home / "airflow.db", root)
    port = _free_port()
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(root),
        "AIRFLOW__CORE__DAGS_FOLDER": str(root / "dags"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        **settings,
    }
    commands = {
        "api": airflow("api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        "scheduler": airflow("scheduler", "--skip-serve-logs"),
        "processor": airflow("dag-processor"),
    }
    processes = []
    try:
        for name, command in commands.items():
            with open(folder / f"{name}.log", "w") as log:
                processes.append(psutil.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder))
        services = Services(f"http://127.0.0.1:{port}", root / "logs")
        wait_until(lambda: _answers(services), "Airflow to answer", _START_S)
        services.sign_in()
        wait_until(lambda: _dags(services) == len(COMMANDS) + len(more_dags), "the DAGs to be read", _START_S)
        yield services
    finally:
        _end(processes)


def wait_until(is_so: Callable[[], Any], what: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.2)


def _answers(services: Services) -> bool:
    try:
        return bool(services.ask("GET", "/api/v2/version"))
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _dags(services: Services) -> int:
    return services.ask("GET", "/api/v2/dags")["total_entries"]


def _end(processes: list[psutil.Popen]) -> None:
    """End them and all that they have started, which has process groups of its own."""
    family = list(processes)
    for process in processes:
        if process.is_running():
            family += process.children(recursive=True)
    for process in family:
        if process.is_running():
            process.terminate()
    _, alive = psutil.wait_procs(family, timeout=5)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=10)


def _free_port() -> int:
    """One that no connection is given by chance: the kernel hands out those from 32768 on."""
    while True:
        port = secrets.choice(range(15_000, 32_000))
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
