"""What the DAGs of recordmill_beam.py and recordmill_dataflow.py share. Copy it into the dags folder with them."""

import functools
import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, time, timedelta
from typing import Any

import airflow.settings
from airflow.providers.google.common.hooks.base_google import GoogleBaseHook
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import Asset, CronDataIntervalTimetable, ObjectStoragePath, Param, chain, task
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
from airflow.sdk.module_loading import import_string

from recordmill.launch.command_line.verbs import VERBS
from recordmill.launch.services import airflow_runs as runs
from recordmill.launch.services.airflow_arguments import (
    as_uri,
    input_uris,
    manifest_facts,
    param_schemas,
    resolved,
    run_name,
    runs_folder,
    verify_command,
)
from recordmill.launch.services.airflow_site import Site
from recordmill.launch.services.airflow_verification import NONE, POD, WORKER, Pod
from recordmill.schemas.dataset_files import MANIFEST
from recordmill.schemas.errors import ConfigError
from recordmill.transforms.storage.local_storage import LocalStorage

_LOGGER = logging.getLogger(__name__)


def dag_arguments(command: str, dag_id: str, site: Site, **macros: Callable[..., Any]) -> dict[str, Any]:
    """What `airflow.sdk.dag` is given; `macros` are for the templates of the DAG's own tasks.

    Raises:
        ConfigError: the site's defaults of Params are none that a run could have, or its callback is none.
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
        "schedule": _timetable(site.schedule),
        "start_date": site.start and datetime.combine(site.start, time.min, airflow.settings.TIMEZONE),
        "catchup": site.catchup,
        "max_active_runs": 1,
        "dagrun_timeout": timedelta(hours=site.run_timeout_h),
        "params": params,
        "on_failure_callback": _callback(site.on_failure),
        "user_defined_macros": {**_verify_macros(command, dag_id, site), **macros},
        "default_args": {
            **({"pool": site.pool} if site.pool else {}),
            "retries": site.retries,
            "retry_delay": timedelta(seconds=site.retry_s),
            "retry_exponential_backoff": 2.0,
            "max_retry_delay": timedelta(hours=1),
            "execution_timeout": timedelta(hours=site.timeout_h),
        },
    }


def _timetable(schedule: str | None) -> Any:
    """Of a cron expression, each of whose runs is of the interval that has just ended. With Airflow's own timetable,
    intervals have no length, unless all of Airflow is configured otherwise."""
    if schedule is None or schedule in ("@once", "@continuous"):
        return schedule
    return CronDataIntervalTimetable(schedule, airflow.settings.TIMEZONE)


def _callback(name: str | None) -> Any:
    """What a dotted name of the site's stands for: a function that is given a context, or a notifier."""
    if name is None:
        return None
    try:
        found = import_string(name)
    except ImportError as error:
        raise ConfigError(f"RECORDMILL_ON_FAILURE={name} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigError(f"RECORDMILL_ON_FAILURE={name} is nothing that can be called")
    return found


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


def _verify_macros(command: str, dag_id: str, site: Site) -> dict[str, Callable[..., Any]]:
    """What the tasks that verify are given, by the names that their templates have for it."""

    @final
    def verify_line(params: Mapping[str, Any], dag_run: Any) -> str:
        return shlex.join(verify_command(site, resolved(command, dag_id, site, params, dag_run)[1]))

    @final
    def run_folder(params: Mapping[str, Any], dag_run: Any) -> str:
        return resolved(command, dag_id, site, params, dag_run)[1]

    return {"verify_line": verify_line, "run_folder": run_folder}


def verify_retries(site: Site) -> int:
    """A fault stays one however often it is looked at; the one retry is for a worker that was lost."""
    return min(1, site.retries)


def verify_and_publish(convert: Any, command: str, dag_id: str, site: Site, verify: Any = None) -> None:
    """The tasks after a conversion, one after the other; `verify` is that of the DAG file's own, where there is one."""
    if site.verification.place == POD and site.verification.pod:
        verify = _verify_in_pod(site, site.verification.pod)
    elif site.verification.place == WORKER:
        verify = VerifyOperator(
            task_id="verify",
            bash_command="{{ verify_line(params, dag_run) }}",
            connection=site.connection,
            retries=verify_retries(site),
        )
    more = [_tidy(dag_id, site)] if site.keep else []
    chain(convert, *([verify] if verify else []), _publish(command, dag_id, site), *more)


def _verify_in_pod(site: Site, pod: Pod) -> Any:
    """Recordmill's command in an image that has it; only here is Kubernetes' provider needed."""
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from kubernetes.client import V1ResourceRequirements

    amounts = {"cpu": pod.cpu, "memory": pod.memory}
    return KubernetesPodOperator(
        task_id="verify",
        name="recordmill-verify",
        image=pod.image,
        # The image's own entrypoint is that of Dataflow's workers.
        cmds=["python", "-m", "recordmill.launch.cli"],
        arguments=site.verification.arguments("{{ run_folder(params, dag_run) }}"),
        namespace=pod.namespace,
        service_account_name=pod.service_account,
        container_resources=V1ResourceRequirements(requests=amounts, limits=amounts),
        config_file=pod.config_file,
        kubernetes_conn_id=pod.connection,
        # A machine may have to be started for it, and load the image.
        startup_timeout_seconds=900,
        log_events_on_failure=True,
        deferrable=site.deferrable,
        retries=verify_retries(site),
    )


def _place(site: Site, folder: str) -> ObjectStoragePath:
    """A folder as the account of the site's connection sees it."""
    return ObjectStoragePath(folder, conn_id=site.connection if folder.startswith("gs://") else None)


def _read(path: ObjectStoragePath) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: ObjectStoragePath, data: bytes) -> None:
    """Readers see the old bytes or the new ones: an object in a bucket is there when all of it is."""
    if path.protocol != "gs":
        LocalStorage().write(path.path, data)
    else:
        path.write_bytes(data)


def _publish(command: str, dag_id: str, site: Site) -> Any:
    """The task that emits the event of the asset, `recordmill_coco` and so on, which is that of both DAGs of a command;
    the event says where the data set is and what is in it."""
    assets = [Asset(f"recordmill_{command}")]
    if site.latest or site.lineage:
        where = runs_folder(site, dag_id)
        assets.append(Asset(uri=as_uri(f"{where}/{runs.LATEST}" if site.latest else where)))

    @task(outlets=assets, inlets=[Asset(uri=uri) for uri in input_uris(command, site)] if site.lineage else [])
    @final
    def publish(params: Any = None, dag_run: Any = None, outlet_events: Any = None) -> dict[str, Any]:
        where = resolved(command, dag_id, site, params, dag_run)[1]
        manifest = (_place(site, where) / MANIFEST).read_bytes()
        facts = manifest_facts(manifest, where, verified=site.verification.place != NONE)
        run, digest = run_name(dag_run.run_after), facts["manifest_sha256"]
        if site.keep and where == f"{runs_folder(site, dag_id)}/{run}":
            _write(_place(site, where) / runs.NOTE, runs.encoded(runs.RunNote(dag_id, run, digest)))
        if site.latest:
            facts["latest"] = f"{runs_folder(site, dag_id)}/{runs.LATEST}"
            _point_to(_place(site, facts["latest"]), runs.Latest(where, run, digest))
        for asset in assets:
            outlet_events[asset].extra = facts
        return facts

    return publish()


def _point_to(path: ObjectStoragePath, new: runs.Latest) -> None:
    data = _read(path)
    before = None if data is None else runs.decoded_latest(data, str(path))
    if runs.is_newer(new, before):
        _write(path, runs.encoded(new))
    else:
        _LOGGER.warning("%s stays, as it is of a later run than this: %s", path, before)


def _tidy(dag_id: str, site: Site) -> Any:
    """The task that deletes all but the newest folders of runs."""

    @task
    @final
    def tidy(dag_run: Any = None) -> dict[str, Any]:
        root = _place(site, runs_folder(site, dag_id))
        latest = _read(root / runs.LATEST)
        spared = {run_name(dag_run.run_after)}
        if latest is not None:
            spared.add(runs.decoded_latest(latest, str(root / runs.LATEST)).folder.rpartition("/")[2])
        found = [_run_folder(path) for path in root.iterdir() if path.is_dir()]
        plan = runs.retention(dag_id, found, site.keep, frozenset(spared))
        for name, reason in plan.left.items():
            _LOGGER.warning("%s is left alone: %s", root / name, reason)
        for name in plan.delete:
            _LOGGER.info("%s %s", "Would delete" if site.keep_dry_run else "Deleting", root / name)
            if not site.keep_dry_run:
                _delete(root / name, runs.RunNote(dag_id, name, "", is_going=True))
        return {**plan._asdict(), "dry_run": site.keep_dry_run}

    return tidy()


def _run_folder(path: ObjectStoragePath) -> runs.RunFolder:
    """A folder with what says whether it is a run's; of one that is a link, whose files are elsewhere, nothing."""
    if path.protocol != "gs" and os.path.islink(path.path):
        return runs.RunFolder(path.name, None, None)
    return runs.RunFolder(path.name, _read(path / runs.NOTE), _read(path / MANIFEST))


def _delete(folder: ObjectStoragePath, note: runs.RunNote) -> None:
    """Delete a run's folder. Where that is cut short, it is no data set any more, and the note says to go on."""
    _write(folder / runs.NOTE, runs.encoded(note))
    (folder / MANIFEST).unlink(missing_ok=True)
    files, last = folder.fs, (folder / runs.NOTE).path
    if others := [path for path in files.find(folder.path) if path != last]:
        files.rm(others)
    files.rm(folder.path, recursive=True)
