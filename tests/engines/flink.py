"""Flink: a cluster of a JobManager and a TaskManager, and Beam's job server, each a process of this machine."""

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engines import servers

LOCAL = "[local]"
"""Master of a job server that contains its cluster."""

# Where Java 17 lets nobody in unless it is told to; Flink's bin/config.sh names the same.
_PACKAGES = [
    "java.lang",
    "java.lang.reflect",
    "java.net",
    "java.io",
    "java.nio",
    "sun.nio.ch",
    "java.text",
    "java.time",
]
_PACKAGES += ["java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"]
# Jobs here are short: compiling well does not pay, nor does a look at the bytecode of thousands of classes.
_LIGHT = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+UnlockDiagnosticVMOptions"]
_LIGHT += ["-XX:-BytecodeVerificationRemote"]
_JAVA = [*_LIGHT, *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES)]
_JAVA += ["--add-exports=java.base/sun.net.util=ALL-UNNAMED", "-Dorg.apache.logging.log4j.level=INFO"]

_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_MEMORY = "org.apache.flink.runtime.util.bash.BashJavaUtils"

# One TaskManager: two would each call their first worker 1-1, and a pool has one of a name. By default there is too
# little memory for network buffers: each producer of a shuffle wants 16 MB.
_CONFIGURATION = """\
jobmanager.rpc.address: localhost
jobmanager.rpc.port: {rpc_port}
jobmanager.bind-host: localhost
jobmanager.memory.process.size: 1g
rest.address: localhost
rest.bind-address: localhost
rest.port: {rest_port}
taskmanager.host: localhost
taskmanager.bind-host: localhost
taskmanager.memory.process.size: 2g
taskmanager.memory.network.min: 512m
taskmanager.memory.network.max: 512m
taskmanager.numberOfTaskSlots: 2
parallelism.default: 2
io.tmp.dirs: {folder}
restart-strategy.type: fixed-delay
restart-strategy.fixed-delay.attempts: 3
restart-strategy.fixed-delay.delay: 1 s
heartbeat.interval: 1000
heartbeat.timeout: 5000
"""


@contextlib.contextmanager
def running_job_server(jar: Path, master: str, folder: Path) -> Iterator["JobServer"]:
    """Beam's job server for a Flink."""
    port = servers.free_port()
    ports = [f"--job-port={port}", "--artifact-port=0", "--expansion-port=0"]
    command = [*_LIGHT, "-Xmx1g", "-jar", str(jar), f"--flink-master={master}", *ports]
    command += [f"--artifacts-dir={folder / 'artifacts'}"]
    with servers.running(command, folder / "job_server.log", lambda: servers.listens(port)) as process:
        yield JobServer(f"localhost:{port}", process)


@dataclass(frozen=True)
class JobServer:
    """One that runs.

    Attributes:
        endpoint: as `--job_endpoint` takes it.
    """

    endpoint: str
    process: subprocess.Popen


class FlinkCluster:
    """A session cluster with two task slots.

    Attributes:
        master: as `--flink_master` takes it.
    """

    def __init__(self, libraries: Path, folder: Path):
        self._libraries = libraries
        self._folder = folder
        self._stack = contextlib.ExitStack()
        rest_port = servers.free_port()
        self.master = f"localhost:{rest_port}"
        text = _CONFIGURATION.format(rpc_port=servers.free_port(), rest_port=rest_port, folder=folder)
        (folder / "flink-conf.yaml").write_text(text)

    def __enter__(self) -> "FlinkCluster":
        with contextlib.ExitStack() as starting:
            command = [*_JAVA, "-Xmx512m", *self._class(_JOB_MANAGER)]
            starting.enter_context(servers.running(command, self._log("job_manager"), self._answers))
            self._task_manager = starting.enter_context(self._running_task_manager())
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def kill_task_manager(self) -> None:
        self._task_manager.kill()
        self._task_manager.wait()

    def start_task_manager(self) -> None:
        self._task_manager = self._stack.enter_context(self._running_task_manager())

    def version(self) -> str:
        return self._ask("overview")["flink-version"]

    def failures(self) -> list[str]:
        """Stack traces of all restarts of the last job."""
        jobs = self._ask("jobs/overview")["jobs"]
        last = max(jobs, key=lambda job: job["start-time"])["jid"]
        return [entry["stacktrace"] for entry in self._ask(f"jobs/{last}/exceptions")["exceptionHistory"]["entries"]]

    def _running_task_manager(self) -> contextlib.AbstractContextManager[subprocess.Popen]:
        command = [*_LIGHT, "-cp", f"{self._libraries}/*", _MEMORY, "GET_TM_RESOURCE_PARAMS"]
        command += ["--configDir", str(self._folder)]
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        mark = "BASH_JAVA_UTILS_EXEC_RESULT:"
        java, flink = [line.removeprefix(mark).split() for line in told.splitlines() if line.startswith(mark)]
        command = [*_JAVA, *java, *self._class(_TASK_MANAGER), *flink]
        return servers.running(command, self._log("task_manager"), self._has_slots)

    def _class(self, name: str) -> list[str]:
        return ["-cp", f"{self._libraries}/*", name, "--configDir", str(self._folder)]

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _answers(self) -> bool:
        try:
            return bool(self._ask("overview"))
        except OSError:
            return False

    def _has_slots(self) -> bool:
        return self._ask("overview")["slots-total"] == 2

    def _ask(self, what: str) -> Any:
        with urllib.request.urlopen(f"http://{self.master}/{what}", timeout=10) as answer:
            return json.load(answer)
