"""Metadata of Dataflow's Flex Templates: parameters, help and regexes.

`make templates` writes build/templates/convert.json and verify.json. Dataflow matches values with the regexes before it
starts a job. They are POSIX-egrep's, as Google's documentation says: no \\d, no lookaround. The fields are those of
https://cloud.google.com/dataflow/docs/reference/rest/v1b3/GetTemplateResponse#ParameterMetadata."""

import json
import sys
from pathlib import Path
from typing import Any

from recordmill.launch.command_line.parameters import TEMPLATES, parameter_help, parameters, plain_default
from recordmill.pipelines.verbs import VERBS
from recordmill.schemas.inputs.option import Must, OptionField
from recordmill.schemas.paths import GCS

# A bucket or a path in it. Several paths are separated by commas, so a path must have none.
_GS_PATH = f"{GCS}://[a-z0-9][a-z0-9._-]{{1,220}}[a-z0-9](/[^,]*)?"
_REGEXES: dict[type, str] = {bool: "(true|false)", int: "-?[0-9]{1,18}", float: "[0-9]{0,15}[.]?[0-9]{1,15}", str: ".+"}
_SIZE = "[0-9]{1,9}([.][0-9]{1,6})? ?([kKmMgG][iI]?)?[bB]?"
_FRACTION = "(0|1|[01][.]0*|0?[.][0-9]+|[0-9]([.][0-9]+)?[eE]-[1-9][0-9]?)"
_SPLIT = "[A-Za-z0-9][A-Za-z0-9_]{0,79}"
_SHARE = f"{_SPLIT} *= *([0-9]{{0,9}}[.]?[0-9]{{1,18}}([eE]-?[0-9])?|[0-9]{{1,9}}/[1-9][0-9]{{0,8}})"
_PARAMETER_TYPES: dict[type, str] = {bool: "BOOLEAN", int: "NUMBER", float: "NUMBER", str: "TEXT"}
_PATH_TYPES = {
    Must.DATA: "TEXT",
    Must.DATA_SET: "GCS_READ_FOLDER",
    Must.FILE: "GCS_READ_FILE",
    Must.OUTPUT: "GCS_WRITE_FOLDER",
}

# Beam's options that a run may need. Dataflow refuses parameters that a template does not name. Machines, network
# and accounts are fields of the request, not parameters.
_BEAMS: tuple[dict[str, Any], ...] = (
    {
        "name": "sdk_container_image",
        "label": "Sdk container image",
        "helpText": "image that workers run, by tag or digest (default: the image of the template)",
        "isOptional": True,
        "regexes": ["^[^ ,@]+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})$"],
        "paramType": "TEXT",
    },
    {
        "name": "number_of_worker_harness_threads",
        "label": "Number of worker harness threads",
        "helpText": "shards that each worker process writes at the same time; more shards take more memory",
        "isOptional": True,
        "regexes": ["^[1-9][0-9]{0,2}$"],
        "paramType": "NUMBER",
    },
)


def metadata(command: str) -> dict[str, Any]:
    """Return the metadata of a command's template, which `gcloud dataflow flex-template build --metadata-file` reads.

    >>> [p["name"] for p in metadata("convert")["parameters"] if not p["isOptional"]]
    ['output']
    """
    ours = [_describe_parameter(command, name, field) for name, field in parameters(command).items()]
    return {
        "name": f"Recordmill {command}",
        "description": VERBS[command].text,
        # Required parameters come first in Console's form.
        "parameters": [*sorted(ours, key=lambda described: described["isOptional"]), *_BEAMS],
    }


def _describe_parameter(command: str, name: str, field: OptionField) -> dict[str, Any]:
    text = f"{field.help} (default {field.shown_default})" if field.shown_default else field.help
    kind = "ENUM" if field.choices else _PARAMETER_TYPES[field.type]
    described: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": parameter_help(command, text.replace("repeatable", "several, separated by commas")),
        "isOptional": not field.is_required,
        "regexes": [f"^{_parameter_regex(field)}$"],
        "paramType": kind if field.is_list or not field.must_be else _PATH_TYPES[field.must_be],
    }
    if field.choices:
        described["enumOptions"] = [{"value": choice, "label": choice} for choice in field.choices]
    default = plain_default(field)
    if default not in (None, ""):
        described["defaultValue"] = str(default).lower() if isinstance(default, bool) else str(default)
    return described


def _parameter_regex(field: OptionField) -> str:
    if field.must_be:
        return f"{_GS_PATH}( *, *{_GS_PATH})*" if field.is_list else _GS_PATH
    if field.choices:
        return f"({'|'.join(field.choices)})"
    if field.is_size:
        return _SIZE
    if field.is_shares:
        return f"({_SPLIT}|{_SHARE}( *, *{_SHARE})*)"
    if field.type is float and field.largest == 1:
        return _FRACTION
    if field.type is int and field.least == 1:
        # Only checks the number of digits; the command checks the bound.
        return f"[1-9][0-9]{{0,{len(str(field.largest)) - 1 if field.largest else 17}}}"
    return _REGEXES[field.type]


def write(folder: Path) -> None:
    """Write the metadata of all commands."""
    folder.mkdir(parents=True, exist_ok=True)
    for command in TEMPLATES:
        text = json.dumps(metadata(command), indent=2, ensure_ascii=False)
        (folder / f"{command}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
