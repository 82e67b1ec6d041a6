"""Options of a verb as Airflow Params, and the Params of a run as values of its options.

The DAG file launch/airflow/recordmill_dags.py imports this module. It imports neither Airflow nor Beam.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from recordmill.launch.command_line.parameters import command_line, parameter_help, parameters, plain_default
from recordmill.launch.command_line.parser import parse
from recordmill.schemas.inputs.option import OptionField, join_names
from recordmill.schemas.paths import GCS, SCHEMES

# A path has no comma, because lists travel as text with commas. A date of the run is in braces.
_DATE = r"\{(%[a-zA-Z]|[^%{},])+\}"
_REST = rf"([^,{{}}]|{_DATE})+$"
_GS_PATH, _ANY_PATH = rf"^{GCS}://{_REST}", rf"^(({'|'.join(SCHEMES)})://|/){_REST}"

_JSON_TYPES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def airflow_params(verb: str, gs_only: bool, defaults: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return arguments of Airflow's `Param` by name.

    Args:
        gs_only: True to accept only paths in buckets of Google Cloud Storage.
        defaults: Values that replace the defaults of the options.

    >>> airflow_params("convert", False, {"num_shards": 8})["num_shards"]["default"]
    8
    """
    known = parameters(verb)
    schemas = {name: _param_schema(verb, field, _GS_PATH if gs_only else _ANY_PATH) for name, field in known.items()}
    schemas["output"] |= {
        "type": ["null", "string"],
        "default": None,
        "description": "folder of the data set (default: a folder for each run)",
    }
    for name, value in defaults.items():
        schemas[name] |= {"default": value}
    return schemas


def _param_schema(verb: str, field: OptionField, path: str) -> dict[str, Any]:
    default = plain_default(field)
    has_paths = field.is_list and field.must_be
    kind = "array" if has_paths or field.are_sets else _JSON_TYPES[field.type]
    is_nullable = default is None and not field.is_required
    schema: dict[str, Any] = {
        "type": ["null", kind] if is_nullable else kind,
        "description": parameter_help(verb, field.help),
    }
    if field.group:
        schema["section"] = field.group  # a heading of the form
    if has_paths:
        schema["items"] = {"type": "string", "pattern": path}
        schema |= {"minItems": 1} if field.is_required else {}
    elif field.must_be:
        schema["pattern"] = path
    elif field.are_sets:
        schema["items"] = {"type": "object"}
    if field.choices:
        schema["enum"] = [*([None] if is_nullable else []), *field.choices]
    if field.type in (int, float):
        bounds = {"minimum": field.least, "maximum": field.largest}
        schema |= {name: bound for name, bound in bounds.items() if bound is not None}
    return schema if field.is_required else schema | {"default": default}


def run_values(verb: str, params: Mapping[str, Any], output: str, when: datetime) -> dict[str, Any]:
    """Return the options of a run: Params that differ from their defaults, with the run's date in paths.

    Args:
        output: Folder of the data set, unless the Param `output` names one.
        when: Time that fills `{%Y/%m/%d}` in paths.

    Raises:
        ConfigError: The options contradict each other.

    >>> run_values("convert", {"data": ["/pets/{%Y/%m}"], "gzip": False}, "/runs/1", datetime(2026, 11, 21))
    {'data': ['/pets/2026/11'], 'output': '/runs/1'}
    """
    values: dict[str, Any] = {}
    for name, field in parameters(verb).items():
        value = params.get(name)
        if value in (None, [], "", field.default):
            continue
        values[name] = _fill_dates(value, when) if field.must_be or field.are_sets else value
    values.setdefault("output", output)
    parse(command_line(verb, values), recognises=False)  # the job reads DATA, not the scheduler
    return values


def _fill_dates(value: Any, when: datetime) -> Any:
    """Return paths, or options of data sets, with the date in their texts."""
    if isinstance(value, list):
        return [_fill_dates(one, when) for one in value]
    if isinstance(value, Mapping):
        return {name: _fill_dates(one, when) for name, one in value.items()}
    if not isinstance(value, str):
        return value
    return re.sub(_DATE, lambda date: when.strftime(date[0][1:-1]), value)


def template_parameters(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as a Dataflow template's parameters, as text.

    >>> template_parameters({"images": ["gs://b/1", "gs://b/2"], "gzip": True, "num_shards": 8})
    {'images': 'gs://b/1,gs://b/2', 'gzip': 'true', 'num_shards': '8'}
    """
    return {name: _parameter_text(value) for name, value in values.items()}


def _parameter_text(value: Any) -> str:
    if isinstance(value, list):
        is_sets = any(isinstance(one, Mapping) for one in value)
        return json.dumps(value) if is_sets else join_names(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
