"""A DAG for each command, recordmill_coco_dataflow and so on: conversions on Dataflow, by the Flex Templates.

Copy this file and recordmill_tasks.py into the dags folder. A site must set, for the DAG processor and the workers,

    RECORDMILL_PROJECT, RECORDMILL_REGION            where jobs run
    RECORDMILL_TEMPLATES=gs://TEMP/templates         that launch/dataflow/build.sh has built
    RECORDMILL_TEMP_LOCATION=gs://TEMP/temp          in that region
    RECORDMILL_OUTPUT_ROOT=gs://OUTPUT/runs          likewise
    RECORDMILL_SUBNETWORK=https://…/subnetworks/…    with Private Google Access; or RECORDMILL_PUBLIC_IPS=true
    RECORDMILL_VERIFY=dataflow|pod|none              or RECORDMILL_PYTHON=… on every worker, which then verifies

and should set RECORDMILL_SERVICE_ACCOUNT, that Dataflow's workers run as. docs/airflow.md lists the rest;
docs/composer.md has Cloud Composer.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Any

from airflow.providers.google.cloud.hooks.dataflow import DataflowJobStatus
from airflow.providers.google.cloud.links.dataflow import DataflowJobLink
from airflow.providers.google.cloud.operators.dataflow import DataflowStartFlexTemplateOperator
from airflow.sdk import dag
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from recordmill_tasks import dag_arguments, final, verify_and_publish, verify_retries

from recordmill.launch.command_line.parameters import COMMANDS
from recordmill.launch.services.airflow_arguments import (
    command_values,
    is_of_run,
    job_name,
    launch_body,
    resolved,
)
from recordmill.launch.services.airflow_site import DataflowSite, dataflow_site
from recordmill.launch.services.airflow_verification import DATAFLOW
from recordmill.launch.services.dataflow_trigger import JobEndTrigger

_ENDING = DataflowJobStatus.JOB_STATE_CANCELLING, DataflowJobStatus.JOB_STATE_DRAINING


class JobOperator(DataflowStartFlexTemplateOperator):
    """Airflow's operator, which starts a second job beside one of the same run, and of whose waits
    `recordmill.launch.services.dataflow_trigger` tells."""

    def execute(self, context: Any) -> dict[str, Any]:
        self.job = self._running_job() or self.hook.launch_job_with_flex_template(
            body=self.body, location=self.location, project_id=self.project_id
        )
        DataflowJobLink.persist(
            context=context, project_id=self.project_id, region=self.location, job_id=self.job["id"]
        )
        trigger = self._trigger(self.job)
        if self.deferrable:
            self.defer(trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout)
        return self.execute_complete(context, asyncio.run(_event_of(trigger)))

    def _running_job(self) -> dict[str, Any] | None:
        """The job of an earlier try, whose worker was lost, if it still runs. One that is being ended is waited for: a
        second job would write to the same folder."""
        name = self.body["launchParameter"]["jobName"]
        running = None
        for job in [job for job in self._active_jobs() if is_of_run(job["name"], name)]:
            if job["currentState"] in _ENDING:
                self.log.info("%s of an earlier try is being ended", job["name"])
                asyncio.run(_event_of(self._trigger(job)))
            else:
                self.log.info("%s of an earlier try still runs, and is waited for", job["name"])
                running = job
        return running

    def _trigger(self, job: Mapping[str, Any]) -> JobEndTrigger:
        return JobEndTrigger(
            job["id"],
            self.project_id,
            self.location,
            self.gcp_conn_id,
            self.poll_sleep,
            self.impersonation_chain,
            self.cancel_timeout,
        )

    def execute_complete(self, context: Any, event: dict[str, str]) -> dict[str, Any]:
        """What comes of the job's end. One that somebody has cancelled is not started again."""
        if error := event.get("error"):
            raise AirflowException(f"job {event['job_id']} cannot be waited for: {error}")
        state = event["state"]
        if state == DataflowJobStatus.JOB_STATE_CANCELLED:
            raise AirflowFailException(f"job {event['job_id']} was cancelled; clear the task to go on where it was")
        if state != DataflowJobStatus.JOB_STATE_DONE:
            raise AirflowException(f"job {event['job_id']} has ended in {state}")
        context["task_instance"].xcom_push(key="job_id", value=event["job_id"])
        return self.hook.get_job(job_id=event["job_id"], project_id=self.project_id, location=self.location)

    def _active_jobs(self) -> Iterator[dict[str, Any]]:
        jobs = self.hook.get_conn().projects().locations().jobs()
        request = jobs.list(projectId=self.project_id, location=self.location, filter="ACTIVE")
        while request is not None:
            answer = request.execute(num_retries=self.hook.num_retries)
            yield from answer.get("jobs", ())
            request = jobs.list_next(request, answer)


async def _event_of(trigger: JobEndTrigger) -> dict[str, str]:
    async for event in trigger.run():
        return event.payload
    raise AirflowException(f"job {trigger.job_id}: the wait has ended without an event")


def conversion(command: str) -> Any:
    dag_id = f"recordmill_{command}_dataflow"
    site: DataflowSite = dataflow_site(dag_id, os.environ)

    @final
    def request(params: Mapping[str, Any], dag_run: Any, ti: Any) -> dict[str, Any]:
        given, folder = resolved(command, dag_id, site, params, dag_run)
        name = job_name(dag_id, dag_run.run_after, ti.try_number)
        return launch_body(command, command_values(command, given, folder), params, site, name)

    @final
    def verify_request(params: Mapping[str, Any], dag_run: Any, ti: Any) -> dict[str, Any]:
        _, folder = resolved(command, dag_id, site, params, dag_run)
        name = job_name(f"{dag_id}_verify", dag_run.run_after, ti.try_number)
        return launch_body("verify", site.verification.values(folder), params, site, name)

    @dag(**dag_arguments(command, dag_id, site, request=request, verify_request=verify_request))
    def convert_verify_publish() -> None:
        convert = _job("convert", "{{ request(params, dag_run, ti) }}", site)
        verify = None
        if site.verification.place == DATAFLOW:
            verify = _job("verify", "{{ verify_request(params, dag_run, ti) }}", site, retries=verify_retries(site))
        verify_and_publish(convert, command, dag_id, site, verify)

    return convert_verify_publish()


def _job(task_id: str, body: str, site: DataflowSite, **more: Any) -> JobOperator:
    return JobOperator(
        task_id=task_id,
        project_id=site.project,
        location=site.region,
        gcp_conn_id=site.connection,
        body=body,
        render_template_as_native_obj=True,
        # The name has the try's number in it: a request that is sent twice starts one job.
        append_job_name=False,
        deferrable=site.deferrable,
        **more,
    )


for each in COMMANDS:
    conversion(each)
