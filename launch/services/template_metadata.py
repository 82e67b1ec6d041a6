"""The metadata of a Flex Template for Dataflow: its parameters, what they mean, and which values they take.

`make templates` writes build/templates/coco.json and the others.

Dataflow matches values with the regexes before it starts anything, and Cloud Console shows labels and help. The
regexes are POSIX-egrep's, which is what Google's documentation names: no \\d, no lookaround. The fields are those of
https://cloud.google.com/dataflow/docs/reference/rest/v1b3/GetTemplateResponse#ParameterMetadata.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from recordmill.launch.command_line.parameters import TEMPLATES, parameters, plain_default
from recordmill.launch.command_line.verbs import VERBS
from recordmill.pipelines.options.option import READ, Kind, Option, OptionField
from recordmill.transforms.storage.resolve import GCS

# A bucket or a path in it. Several paths are separated by commas, so a path must have none.
_GS_PATH = f"{GCS}://[a-z0-9][a-z0-9._-]{{1,220}}[a-z0-9](/[^,]*)?"
_OF_KIND = {
    Kind.ARGUMENT: _GS_PATH,
    Kind.PATH: _GS_PATH,
    Kind.PATHS: f"{_GS_PATH}( *, *{_GS_PATH})*",
    Kind.SWITCH: "(true|false)",
    Kind.INTEGER: "-?[0-9]{1,18}",
    Kind.NUMBER: "-?[0-9]*[.]?[0-9]+",
}
_TYPES = {
    Kind.ARGUMENT: "GCS_READ_FOLDER",
    Kind.CHOICE: "ENUM",
    Kind.INTEGER: "NUMBER",
    Kind.NUMBER: "NUMBER",
    Kind.PATH: "GCS_WRITE_FOLDER",
    Kind.SWITCH: "BOOLEAN",
}
"""Of the others: TEXT."""

# Words of the command line's help that mean something else in a form.
_RETOLD = (
    ("local or gs://", "gs://bucket/folder"),
    ("repeatable, as every file below", "several with commas between them, as of every file below"),
    ("repeatable", "several with commas between them"),
)

# Beam's own options that a run may want. Dataflow refuses parameters that a template does not name; machines, network
# and accounts are no parameters but fields of the request.
_BEAMS: tuple[dict[str, Any], ...] = (
    {
        "name": "sdk_container_image",
        "label": "Sdk container image",
        "helpText": "image that workers run, by tag or digest (default: the one that the template itself runs in)",
        "isOptional": True,
        "regexes": ["^[^ ,@]+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})$"],
        "paramType": "TEXT",
    },
    {
        "name": "number_of_worker_harness_threads",
        "label": "Number of worker harness threads",
        "helpText": "shards that each worker process has in hand at once; more take more memory",
        "isOptional": True,
        "regexes": ["^[1-9][0-9]{0,2}$"],
        "paramType": "NUMBER",
    },
)


def metadata(command: str) -> dict[str, Any]:
    """The metadata of a command's template: what `gcloud dataflow flex-template build --metadata-file` reads.

    >>> [p["name"] for p in metadata("coco")["parameters"] if not p["isOptional"]]
    ['images', 'output']
    """
    ours = [_described(command, name, each) for name, each in parameters(command).items()]
    return {
        "name": f"Recordmill {command}",
        "description": VERBS[command].description,
        # What must be given comes first in Console's form.
        "parameters": [*sorted(ours, key=lambda described: described["isOptional"]), *_BEAMS],
    }


def _described(command: str, name: str, each: OptionField) -> dict[str, Any]:
    is_read_file = each.option.kind is Kind.PATH and each.option.group == READ
    described: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": _help(command, each),
        "isOptional": not each.is_required,
        "regexes": [f"^{_regex(each.option)}$"],
        "paramType": "GCS_READ_FILE" if is_read_file else _TYPES.get(each.option.kind, "TEXT"),
    }
    if each.option.kind is Kind.CHOICE:
        described["enumOptions"] = [{"value": choice, "label": choice} for choice in each.option.choices]
    default = plain_default(each)
    if default not in (None, ""):
        described["defaultValue"] = str(default).lower() if isinstance(default, bool) else str(default)
    return described


def _regex(option: Option) -> str:
    if option.kind is Kind.CHOICE:
        return f"({'|'.join(option.choices)})"
    if option.pattern:
        return option.pattern
    if option.kind is Kind.INTEGER and option.least == 1:
        # As many digits as the bound has; the command checks the bound itself.
        return f"[1-9][0-9]{{0,{len(str(option.largest)) - 1 if option.largest else 17}}}"
    return _OF_KIND.get(option.kind, ".+")


def _help(command: str, each: OptionField) -> str:
    """The command line's help, with its flags called by their parameters' names."""
    text = f"{each.option.help} (default {each.usual})" if each.usual else each.option.help
    for said, retold in _RETOLD:
        text = text.replace(said, retold)
    names = {other.flag: name for name, other in parameters(command).items()}
    return re.sub(r"--[a-z]+(?:-[a-z]+)*", lambda flag: names[flag[0]], text)


def write(folder: Path) -> None:
    """Write the metadata of all commands."""
    folder.mkdir(parents=True, exist_ok=True)
    for command in TEMPLATES:
        text = json.dumps(metadata(command), indent=2, ensure_ascii=False)
        (folder / f"{command}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
