"""A DAG for each command, recordmill_coco and so on: conversions on this worker, or on a job server as Flink's.

Copy this file and recordmill_tasks.py into the dags folder. A site must set, for the DAG processor and the workers,

    RECORDMILL_PYTHON=/opt/recordmill/bin/python     of an environment with Recordmill, on every worker
    RECORDMILL_OUTPUT_ROOT=/data/runs                or gs://…; a folder that all workers have

and may set, of some thirty that docs/airflow.md lists,

    RECORDMILL_COCO_SCHEDULE=@daily                  with the inputs, RECORDMILL_COCO_PARAMS={"images": […], …}
    RECORDMILL_RUNNER, RECORDMILL_BEAM_OPTIONS       a job server's, as Flink's, rather than this machine
    RECORDMILL_VERIFY=worker|pod|none                where records are read back
    RECORDMILL_CONNECTION                            Airflow's, by whose account buckets are read and written
"""

import os
import re
import time
from collections.abc import Mapping
from typing import Any

import psutil
from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.sdk import dag
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from recordmill_tasks import dag_arguments, final, identity, verify_and_publish

from recordmill.launch.command_line.parameters import COMMANDS
from recordmill.launch.services.airflow_arguments import beam_options, command_values, resolved
from recordmill.launch.services.airflow_site import BeamSite, beam_site

_WRONG_CONFIGURATION = 2
_RETURN_CODE = re.compile(r"return code (-?\d+)")

# Airflow sends SIGKILL five seconds after SIGTERM.
_ENDS_BY_ITSELF_S = 1.5
_ENDS_WHEN_TOLD_S = 3.0


class ConvertOperator(BeamRunPythonPipelineOperator):
    """Airflow's operator, which neither looks at the exit code nor ends the process that it has started.

    Args:
        connection: whose account reads and writes.
    """

    def __init__(self, *, connection: str | None, **arguments: Any):
        super().__init__(**arguments)
        self.connection = connection

    def execute(self, context: Any) -> Any:
        try:
            with identity(self.connection):
                return super().execute(context)
        except AirflowException as error:
            code = _RETURN_CODE.search(str(error))
            if code and int(code[1]) == _WRONG_CONFIGURATION:
                raise AirflowFailException(f"{error}: the configuration is wrong, see the line above") from error
            raise

    def on_kill(self) -> None:
        """SIGTERM to the conversion: finished shards stay, and the next try goes on from there."""
        # Where the task's state was changed, Airflow has sent it already, and a second one would disturb the first.
        if started := _running_after(psutil.Process().children(), _ENDS_BY_ITSELF_S):
            for process in started:
                process.terminate()
            _running_after(started, _ENDS_WHEN_TOLD_S)


def _running_after(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those of `processes` that still run when they have had so long to end. Nobody is waited for as a parent does: the
    exit code is the operator's."""
    end = time.monotonic() + seconds
    while (running := list(filter(_is_running, processes))) and time.monotonic() < end:
        time.sleep(0.05)
    return running


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def conversion(command: str) -> Any:
    dag_id = f"recordmill_{command}"
    site: BeamSite = beam_site(dag_id, os.environ)

    @final
    def pipeline_options(params: Mapping[str, Any], dag_run: Any) -> dict[str, Any]:
        given, folder = resolved(command, dag_id, site, params, dag_run)
        return beam_options(command, command_values(command, given, folder), site)

    @dag(**dag_arguments(command, dag_id, site, pipeline_options=pipeline_options))
    def convert_verify_publish() -> None:
        convert = ConvertOperator(
            task_id="convert",
            connection=site.connection,
            runner=site.runner,
            py_interpreter=site.python,
            py_options=["-m"],
            py_file="recordmill.launch.flat",
            pipeline_options="{{ pipeline_options(params, dag_run) }}",
            render_template_as_native_obj=True,
            # Deferred, the conversion would be a process of the triggerer, which nothing there would end.
            deferrable=False,
        )
        verify_and_publish(convert, command, dag_id, site)

    return convert_verify_publish()


for each in COMMANDS:
    conversion(each)
