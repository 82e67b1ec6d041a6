"""What the DAGs of recordmill_beam.py and recordmill_dataflow.py share. Copy it into the dags folder with them."""

import functools
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.providers.google.common.hooks.base_google import GoogleBaseHook
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import Asset, ObjectStoragePath, Param, task
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from recordmill.launch.command_line.verbs import VERBS
from recordmill.launch.services.airflow_arguments import manifest_facts, output_folder, param_schemas, verify_command
from recordmill.launch.services.airflow_site import Site
from recordmill.schemas.errors import ConfigError


def dag_arguments(command: str, dag_id: str, site: Site, **macros: Callable[..., Any]) -> dict[str, Any]:
    """What `airflow.sdk.dag` is given; `macros` are for the templates of the DAG's own tasks.

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
        "user_defined_macros": {"verification": functools.partial(_verification, dag_id, site), **macros},
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


@contextmanager
def identity(connection: str | None) -> Iterator[None]:
    """The account of one of Airflow's connections, for the programs that a task starts meanwhile.

    Raises:
        AirflowFailException: it is one that only Airflow itself can become.
    """
    if not connection:
        yield
        return
    hook = GoogleBaseHook(gcp_conn_id=connection)
    for field in ("impersonation_chain", "credential_config_file", "key_secret_name"):
        if hook.extras.get(field):
            raise AirflowFailException(
                f"recordmill: connection {connection} has {field}, which no program outside of Airflow can be given; "
                "give it a key file, or none for the account of the machine"
            )
    with hook.provide_gcp_credential_file_as_context():
        yield


class VerifyOperator(BashOperator):
    """Reads every record back, in the environment that Recordmill is installed in.

    Args:
        connection: whose account reads.
    """

    def __init__(self, *, connection: str | None, **arguments: Any):
        super().__init__(**arguments)
        self.connection = connection

    def execute(self, context: Any) -> Any:
        with identity(self.connection):
            return super().execute(context)


def _verification(dag_id: str, site: Site, params: Mapping[str, Any], dag_run: Any) -> str:
    return shlex.join(verify_command(site, output_folder(site, dag_id, dag_run.run_after, params)))


def verify_and_publish(command: str, dag_id: str, site: Site) -> tuple[Any, Any]:
    """The tasks after a conversion, one after the other.

    The asset, `recordmill_coco` and so on, is that of both DAGs of a command; its event says where the
    data set is and what is in it.
    """
    verified = VerifyOperator(
        task_id="verify",
        bash_command="{{ verification(params, dag_run) }}",
        connection=site.connection,
        # A fault stays one however often it is looked at; the one retry is for a worker that was lost.
        retries=min(1, site.retries),
    )

    @task(outlets=[Asset(f"recordmill_{command}")])
    @final
    def publish(params: Any = None, dag_run: Any = None, outlet_events: Any = None) -> dict[str, Any]:
        where = output_folder(site, dag_id, dag_run.run_after, params)
        connection = site.connection if where.startswith("gs://") else None
        facts = manifest_facts((ObjectStoragePath(where, conn_id=connection) / "manifest.json").read_bytes(), where)
        outlet_events[Asset(f"recordmill_{command}")].extra = facts
        return facts

    published = publish()
    verified >> published
    return verified, published
