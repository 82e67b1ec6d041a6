"""A DAG for each command, recordmill_coco_dataflow and so on: conversions on Dataflow, by the Flex Templates.

Copy this file and recordmill_tasks.py into the dags folder; docs/airflow.md lists the settings.
"""

import os
from collections.abc import Mapping
from typing import Any

from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import dag
from recordmill_tasks import dag_arguments, final, verify_and_publish

from recordmill.launch.command_line.parameters import COMMANDS
from recordmill.launch.services.airflow_arguments import command_values, job_name, launch_body, output_folder
from recordmill.launch.services.airflow_site import DataflowSite, dataflow_site


def conversion(command: str) -> Any:
    dag_id = f"recordmill_{command}_dataflow"
    site: DataflowSite = dataflow_site(dag_id, os.environ)

    @final
    def request(params: Mapping[str, Any], dag_run: Any, ti: Any) -> dict[str, Any]:
        folder = output_folder(site, dag_id, dag_run.run_after, params)
        name = job_name(dag_id, dag_run.run_after, ti.try_number)
        return launch_body(command, command_values(command, params, folder), params, site, name)

    @dag(**dag_arguments(command, dag_id, site), user_defined_macros={"request": request})
    def convert_verify_publish() -> None:
        convert = DataflowStartFlexTemplateOperator(
            task_id="convert",
            project_id=site.project,
            location=site.region,
            gcp_conn_id=site.connection,
            body="{{ request(params, dag_run, ti) }}",
            render_template_as_native_obj=True,
            # The name has the try's number in it: a request that is sent twice starts one job.
            append_job_name=False,
            deferrable=site.deferrable,
            # A deferred task is waited for by the triggerer.
            wait_until_finished=None if site.deferrable else True,
        )
        verified, _ = verify_and_publish(command, dag_id, site)
        convert >> verified

    return convert_verify_publish()


for each in COMMANDS:
    conversion(each)
