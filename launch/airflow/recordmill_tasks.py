"""What the DAGs of recordmill_beam.py and recordmill_dataflow.py share. Copy it into the dags folder with them."""

import functools
import shlex
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, ObjectStoragePath, Param, task
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from recordmill.launch.command_line.verbs import VERBS
from recordmill.launch.services.airflow_arguments import manifest_facts, output_folder, param_schemas, verify_command
from recordmill.launch.services.airflow_site import Site
from recordmill.schemas.errors import ConfigError


def dag_arguments(command: str, dag_id: str, site: Site) -> dict[str, Any]:
    """What `airflow.sdk.dag` is given.

    Raises:
        ConfigError: the site's defaults of Params are none that a run could have.
    """
    params = {name: Param(**schema) for name, schema in param_schemas(command, site).items()}
    for name in site.params:  # Airflow itself looks at defaults only where there is a schedule
        try:
            params[name].resolve()
        except ParamValidationError as error:
            raise ConfigError(f"{dag_id.upper()}_PARAMS: {name}: {error}") from error
    return {
        "dag_id": dag_id,
        "description": VERBS[command].description,
        "tags": ["recordmill"],
        "schedule": site.schedule,
        "catchup": False,
        "max_active_runs": 1,
        "dagrun_timeout": timedelta(hours=site.run_timeout_h),
        "params": params,
        "default_args": {
            "retries": site.retries,
            "retry_delay": timedelta(seconds=site.retry_s),
            "retry_exponential_backoff": 2.0,
            "max_retry_delay": timedelta(hours=1),
            "execution_timeout": timedelta(hours=site.timeout_h),
        },
    }


def final(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose ConfigError fails its task for good: no retry makes a wrong configuration right."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ConfigError as error:
            raise AirflowFailException(f"recordmill: {error}") from error

    return called


def verify_and_publish(command: str, dag_id: str, site: Site) -> tuple[Any, Any]:
    """The tasks after a conversion, one after the other.

    The asset, `recordmill_coco` and so on, is that of both DAGs of a command; its event says where the
    data set is and what is in it.
    """

    def folder(params: Mapping[str, Any], dag_run: Any) -> str:
        return output_folder(site, dag_id, dag_run.run_after, params)

    # A fault stays one however often it is looked at; the one retry is for a worker that was lost.
    @task.bash(retries=min(1, site.retries))
    def verify(params: Any = None, dag_run: Any = None) -> str:
        return shlex.join(verify_command(site, folder(params, dag_run)))

    @task(outlets=[Asset(f"recordmill_{command}")])
    @final
    def publish(params: Any = None, dag_run: Any = None, outlet_events: Any = None) -> dict[str, Any]:
        where = folder(params, dag_run)
        facts = manifest_facts((ObjectStoragePath(where) / "manifest.json").read_bytes(), where)
        outlet_events[Asset(f"recordmill_{command}")].extra = facts
        return facts

    verified, published = verify(), publish()
    verified >> published
    return verified, published
