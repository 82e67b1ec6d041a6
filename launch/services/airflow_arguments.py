"""What Airflow's DAGs and operators are given: plain values, from a site's settings and a run's Params.

Neither Airflow nor Beam is imported here, so that a DAG file which imports this is parsed at once, and so that all of
it can be tried without them. The DAG files are in launch/airflow, their manual is docs/airflow.md.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recordmill.launch.command_line.parameters import command_line, parameters, plain_default
from recordmill.launch.command_line.parser import parse
from recordmill.launch.services.airflow_dates import PIECES, all_filled
from recordmill.launch.services.airflow_site import BeamSite, DataflowSite, Site
from recordmill.pipelines.options.option import READ, Kind, OptionField
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.manifest import decode_manifest

_BUCKET_PATH = rf"^gs://{PIECES}$"
_ANY_PATH = rf"^(gs://|/){PIECES}$"

_MAX_JOB_NAME = 63


def param_schemas(command: str, site: Site) -> dict[str, dict[str, Any]]:
    """What Airflow's `Param` is given for each parameter of a command: JSON schema, description and default.

    Raises:
        ConfigError: the site's defaults name what the command does not have; or a schedule starts runs that somebody
            would have to give a value.
    """
    is_dataflow = isinstance(site, DataflowSite)
    known = parameters(command)
    names = {each.flag: name for name, each in known.items()}
    schemas = {name: _schema(each, names, is_dataflow) for name, each in known.items()}
    schemas["output"] = {
        "type": ["null", "string"],
        "pattern": _path_pattern(is_dataflow),
        "default": None,
        "description": f"folder of the data set; without it the run has one of its own in {site.output_root}",
    }
    if is_dataflow:
        schemas |= _DATAFLOW_PARAMS
    if unknown := sorted(set(site.params) - set(schemas)):
        raise ConfigError(f"no Param is called {', '.join(unknown)}; {command} has {', '.join(sorted(schemas))}")
    for name, schema in schemas.items():
        schemas[name] = {"title": name.replace("_", " "), **schema}
        if name in site.params:
            schemas[name]["default"] = site.params[name]
    missing = [name for name, schema in schemas.items() if "default" not in schema]
    if site.schedule and missing:
        raise ConfigError(f"scheduled runs ({site.schedule}) need defaults for {', '.join(missing)}")
    return schemas


# The image is for x86.
_MACHINE = "^(?!t2a-|c4a-|n4a-)[a-z][a-z0-9]*-[a-z0-9-]+$"

_DATAFLOW_PARAMS: dict[str, dict[str, Any]] = {
    "machine_type": {
        "type": ["null", "string"],
        "pattern": _MACHINE,
        "default": None,
        "description": "of the workers, not of ARM; without it the template's default",
    },
    "launcher_machine_type": {
        "type": ["null", "string"],
        "pattern": _MACHINE,
        "default": None,
        "description": "of the machine that makes the job; without it Dataflow's default, of 3.75 GB of memory",
    },
    "disk_size_gb": {
        "type": ["null", "integer"],
        "minimum": 25,
        "default": None,
        "description": "of the workers' disks; without it Dataflow's default",
    },
    "max_workers": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20, "description": "at most so many"},
    "flexrs": {
        "type": "boolean",
        "default": False,
        "description": "cheaper machines; the job starts within six hours rather than at once",
    },
}


_JSON_TYPES = {
    Kind.INTEGER: "integer",
    Kind.NUMBER: "number",
    Kind.PATHS: "array",
    Kind.SWITCH: "boolean",
}
"""Options of all other kinds are strings."""


def _schema(each: OptionField, names: Mapping[str, str], of_buckets: bool) -> dict[str, Any]:
    """The JSON schema of one option. `names` are parameter names by flag: help texts mention flags."""
    known, default = each.option, plain_default(each)
    description = re.sub(r"--[a-z]+(?:-[a-z]+)*", lambda flag: names.get(flag[0], flag[0]), known.help)
    kind = _JSON_TYPES.get(known.kind, "string")
    is_optional = default is None and not each.is_required
    schema: dict[str, Any] = {"description": description, "type": ["null", kind] if is_optional else kind}
    if known.kind is Kind.PATHS:
        schema["items"] = {"type": "string", "pattern": _path_pattern(of_buckets)}
        if each.is_required:
            schema["minItems"] = 1
    if known.kind is Kind.PATH:
        schema["pattern"] = _path_pattern(of_buckets)
    if known.kind is Kind.CHOICE:
        schema["enum"] = [*([None] if is_optional else []), *known.choices]
    if known.kind in (Kind.INTEGER, Kind.NUMBER):
        bounds = {"minimum": known.least, "maximum": known.largest}
        schema |= {name: bound for name, bound in bounds.items() if bound is not None}
    return schema if each.is_required else schema | {"default": default}


def _path_pattern(of_buckets: bool) -> str:
    return _BUCKET_PATH if of_buckets else _ANY_PATH


def run_name(run_after: datetime) -> str:
    """A DAG run's name in paths and in names of jobs: its time, which retries and reruns of it share.

    >>> run_name(datetime(2026, 11, 21, 2)), run_name(datetime(2026, 11, 21, 2, 30, 7, 90))
    ('20261121t020000', '20261121t023007000090')
    """
    return run_after.strftime("%Y%m%dt%H%M%S") + (f"{run_after.microsecond:06}" if run_after.microsecond else "")


def runs_folder(site: Site, dag_id: str) -> str:
    """The folder of the folders of a DAG's runs."""
    return f"{site.output_root.rstrip('/')}/{dag_id}"


def resolved(command: str, dag_id: str, site: Site, params: Mapping[str, Any], run: Any) -> tuple[dict[str, Any], str]:
    """A run's Params with its dates in their placeholders, and where it writes: the folder that its Params name, or one
    of its own, in which a retry goes on.

    Args:
        run: Airflow's, with `run_after` and the dates of `airflow_dates`.

    Raises:
        ConfigError: a placeholder is of a date that the run does not have.
    """
    given = all_filled(params, _path_names(command), run)
    return given, given.get("output") or f"{runs_folder(site, dag_id)}/{run_name(run.run_after)}"


def _path_names(command: str) -> frozenset[str]:
    return frozenset(name for name, each in parameters(command).items() if each.option.kind in (Kind.PATH, Kind.PATHS))


def input_uris(command: str, site: Site) -> list[str]:
    """The inputs that the site's defaults name, as addresses of assets; of a path with a placeholder or a wildcard, the
    folder above it.

    >>> params = {"images": ["gs://b/{logical_date:%Y}/x"], "instances": ["/data/a.json"]}
    >>> input_uris("coco", BeamSite(output_root="/o", params=params))
    ['gs://b', 'file:///data/a.json']
    """
    read = (name for name, each in parameters(command).items() if each.option.group == READ)
    given = [site.params.get(name) or [] for name in read if name in _path_names(command)]
    paths = [path for value in given for path in ([value] if isinstance(value, str) else value)]
    return list(dict.fromkeys(as_uri(re.sub(r"/[^/]*[{*?\[].*", "", path)) for path in paths))


def as_uri(path: str) -> str:
    """A path as the address of an asset."""
    return path if path.startswith("gs://") else f"file://{path}"


def job_name(dag_id: str, run_after: datetime, try_number: int) -> str:
    """A name that Dataflow takes, [a-z]([-a-z0-9]{0,61}[a-z0-9])?, and that no other try has.

    >>> job_name("recordmill_coco_dataflow", datetime(2026, 11, 21, 2), 1)
    'recordmill-coco-dataflow-20261121t020000-1'
    """
    end = f"-{run_name(run_after)}-{try_number}"
    start = re.sub(r"[^a-z0-9]+", "-", dag_id.lower()).strip("-")
    start = start if start[:1].isalpha() else f"r-{start}"
    return start[: _MAX_JOB_NAME - len(end)].rstrip("-") + end


def is_of_run(name: str, other: str) -> bool:
    """Whether two names that `job_name` gave are of tries of one run.

    >>> is_of_run("recordmill-coco-dataflow-20261121t020000-1", "recordmill-coco-dataflow-20261121t020000-12")
    True
    >>> is_of_run("recordmill-coco-dataflow-20261121t020000-1", "recordmill-coco-dataflow-20261122t020000-1")
    False
    """
    return name.rpartition("-")[0] == other.rpartition("-")[0]


def command_values(command: str, params: Mapping[str, Any], output: str) -> dict[str, Any]:
    """The parameters that a run sets, by name, checked as the command would check them.

    Raises:
        ConfigError: with every fault that can be seen without looking at a file.
    """
    values: dict[str, Any] = {}
    for name, each in parameters(command).items():
        value = params.get(name)
        if value not in (None, [], "", each.default):
            values[name] = value
    values["output"] = output
    parse(command_line(command, values))
    return values


def beam_options(command: str, values: Mapping[str, Any], site: BeamSite) -> dict[str, Any]:
    """What BeamRunPythonPipelineOperator makes flags of `recordmill.launch.flat` from.

    It leaves out what is False and writes True without a value, so switches go as texts; a list repeats its flag.
    """
    return {"command": command, **{name: _told(value) for name, value in values.items()}, **site.beam_options}


def launch_body(
    command: str, values: Mapping[str, Any], params: Mapping[str, Any], site: DataflowSite, name: str
) -> dict[str, Any]:
    """The request that starts a Flex Template, as projects.locations.flexTemplates.launch takes it.

    Args:
        values: as `command_values` gives them.
        params: for those of Dataflow's own.
        name: the job's.
    """
    environment = {
        "tempLocation": site.temp_location,
        # Without one the service makes a bucket that nobody knows of.
        "stagingLocation": site.staging_location,
        "ipConfiguration": "WORKER_IP_PUBLIC" if site.public_ips else "WORKER_IP_PRIVATE",
        "maxWorkers": params["max_workers"],
        "machineType": params["machine_type"],
        "launcherMachineType": params["launcher_machine_type"],
        "diskSizeGb": params["disk_size_gb"],
        "flexrsGoal": "FLEXRS_COST_OPTIMIZED" if params["flexrs"] else None,
        "serviceAccountEmail": site.service_account,
        "network": site.network,
        "subnetwork": site.subnetwork,
        "kmsKeyName": site.kms_key,
        "additionalUserLabels": dict(site.labels) or None,
    }
    given = {**values, **({"sdk_container_image": site.image} if site.image else {})}
    return {
        "launchParameter": {
            "jobName": name,
            "containerSpecGcsPath": f"{site.templates.rstrip('/')}/{command}.json",
            "parameters": {name: _joined(value) for name, value in given.items()},
            "environment": {key: value for key, value in environment.items() if value is not None},
        }
    }


def verify_command(site: Site, folder: str) -> list[str]:
    return [site.python, "-m", "recordmill.launch.cli", *site.verification.arguments(folder)]


def _told(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _joined(value: Any) -> str:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return ",".join(map(str, value)) if is_list else str(_told(value))


def manifest_facts(data: bytes, folder: str, verified: bool = True) -> dict[str, Any]:
    """The extra fields of an asset event: facts about a data set, from its manifest.json, and whether its records have
    been read back.

    Raises:
        ConfigError: it is no manifest.
    """
    manifest = decode_manifest(data, f"{folder.rstrip('/')}/manifest.json")
    splits = {
        name: {
            "records": split.examples,
            "images": split.images.written,
            "rejected": sum(split.images.rejected.values()),
            "shards": len(split.shards),
            "bytes": split.bytes,
        }
        for name, split in manifest.splits.items()
    }
    return {
        "folder": folder,
        "name": manifest.name,
        "layout": manifest.layout,
        "splits": splits,
        "verified": verified,
        "manifest_sha256": hashlib.sha256(data).hexdigest(),
    }
