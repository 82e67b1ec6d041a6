"""What Airflow's triggerer waits with for a job on Dataflow.

It is in the wheel, and not among the DAG files, as the triggerer does not see these. Of our modules only this one
imports Airflow, and only the DAG file imports it.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.providers.google.cloud.hooks.dataflow import DataflowJobStatus
from airflow.providers.google.cloud.triggers.dataflow import TemplateJobStartTrigger
from airflow.triggers.base import TriggerEvent
from google.api_core.exceptions import RetryError, ServerError, TooManyRequests
from google.auth.exceptions import TransportError

# A job runs on while nobody can ask for it. What limits the waiting is the task's timeout.
_TEMPORARY = ServerError, TooManyRequests, RetryError, TransportError, OSError


class JobEndTrigger(TemplateJobStartTrigger):
    """Airflow's trigger, which cancels the job where its task is killed. Airflow's waits for ever for a job that was
    cancelled, drained or updated, takes one that has not begun yet (JOB_STATE_STOPPED) as ended, and gives up at all
    errors but one."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        _, arguments = super().serialize()
        return f"{__name__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, with the job's id and the state that it has ended in; or with an error, as Google's answer is that
        there is no such job, or that we may not see it."""
        hook = self._get_async_hook()
        while True:
            try:
                state = await hook.get_job_status(self.job_id, self.project_id, location=self.location)
            except _TEMPORARY as error:
                self.log.warning("Dataflow cannot be asked for job %s; the next try follows: %s", self.job_id, error)
            except Exception as error:
                yield TriggerEvent({"job_id": self.job_id, "error": f"{type(error).__name__}: {error}"})
                return
            else:
                if state.name in DataflowJobStatus.TERMINAL_STATES:
                    yield TriggerEvent({"job_id": self.job_id, "state": state.name})
                    return
            await asyncio.sleep(self.poll_sleep)
