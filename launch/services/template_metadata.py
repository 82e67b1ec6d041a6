"""What Dataflow is told of a Flex Template: its parameters, what they mean, and which values they take.

`python -m recordmill.launch.services.template_metadata` writes launch/dataflow/coco.json and folder.json.

Dataflow holds values against the regexes before it starts anything, and Cloud Console shows labels and help. The
regexes are POSIX-egrep's, which is what Google's documentation names: no \\d, no lookaround. The fields are those of
https://cloud.google.com/dataflow/docs/reference/rest/v1b3/GetTemplateResponse#ParameterMetadata.
"""

import json
import re
from pathlib import Path
from typing import Any

from recordmill.launch.command_line.parameters import COMMANDS, Parameter, parameters

FOLDER = Path(__file__).parents[1] / "dataflow"

_DESCRIPTIONS = {
    "coco": (
        "COCO annotations and their images become sharded TFRecord files, with a manifest that says what is in them. "
        "At least one annotation file is needed: instances, keypoints, captions, panoptic, stuff or image_info."
    ),
    "folder": (
        "Images of one class each are checked and written as tf.Examples into sharded TFRecord files. The class is the "
        "folder that an image is in, the beginning of its name, or what a table says."
    ),
}

# A bucket, and perhaps what is in it. Where there are several, with commas between them, so that a path has none.
_GS_PATH = "gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[^,]*)?"
_SPLIT = "[A-Za-z0-9][A-Za-z0-9_]{0,79}"
_SHARE = f"{_SPLIT} *= *([0-9]{{0,9}}[.]?[0-9]{{1,18}}([eE]-?[0-9])?|[0-9]{{1,9}}/[1-9][0-9]{{0,8}})"

# Of those that their kind does not tell enough of.
_REGEXES = {
    "output": f"^{_GS_PATH}$",
    "name": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$",
    "split": f"^{_SPLIT}$",
    "shard_size": "^[0-9]{1,9}([.][0-9]{1,6})? ?([kKmMgG][iI]?)?[bB]?$",
    "num_shards": "^[1-9][0-9]{0,4}$",
    "examples_per_shard": "^[1-9][0-9]{0,17}$",
    "max_side": "^([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|65500)$",
    "jpeg_quality": "^([1-9][0-9]?|100)$",
    "workers": "^([1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-6])$",
    "max_rejects": "^(0|1|[01][.]0*|0?[.][0-9]+|[0-9]([.][0-9]+)?[eE]-[1-9][0-9]?)$",
    "min_area": "^[0-9]{0,15}[.]?[0-9]{1,15}([eE][+-]?[0-9]{1,2})?$",
    "categories": "^.*[^ ,].*$",
    "classes": "^.*[^ ,].*$",
}
_SHARES = f"^({_SPLIT}|{_SHARE}( *, *{_SHARE})*)$"
_OF_KIND = {
    "list": f"^{_GS_PATH}( *, *{_GS_PATH})*$",
    "switch": "^(true|false)$",
    "integer": "^-?[0-9]{1,18}$",
    "number": "^-?[0-9]*[.]?[0-9]+$",
    "text": "^.+$",
}
_TYPES = {
    "switch": "BOOLEAN",
    "integer": "NUMBER",
    "number": "NUMBER",
    "choice": "ENUM",
    "list": "TEXT",
    "text": "TEXT",
}

# Words of the command line's help that mean something else in a form.
_RETOLD = (
    ("local or gs://", "gs://bucket/folder"),
    ("repeatable, as every file below", "several with commas between them, as of every file below"),
    ("repeatable", "several with commas between them"),
)

# Beam's own that a run may want. Dataflow refuses parameters that a template does not name; machines, network and
# accounts are no parameters but fields of the request.
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
    ours = [_described(command, parameter) for parameter in parameters(command)]
    return {
        "name": f"Recordmill {command}",
        "description": _DESCRIPTIONS[command],
        # What must be given comes first in Console's form.
        "parameters": [*sorted(ours, key=lambda described: described["isOptional"]), *_BEAMS],
    }


def _described(command: str, parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": parameter.name,
        "label": parameter.name.replace("_", " ").capitalize(),
        "helpText": _help(command, parameter),
        "isOptional": not parameter.required,
        "regexes": [_regex(command, parameter)],
        "paramType": "GCS_WRITE_FOLDER" if parameter.name == "output" else _TYPES[parameter.kind],
    }
    if parameter.kind == "choice":
        described["enumOptions"] = [{"value": choice, "label": choice} for choice in parameter.choices]
    default = parameter.default
    if default not in (None, ""):
        described["defaultValue"] = str(default).lower() if isinstance(default, bool) else str(default)
    return described


def _regex(command: str, parameter: Parameter) -> str:
    if parameter.kind == "choice":
        return f"^({'|'.join(parameter.choices)})$"
    if (command, parameter.name) == ("folder", "split"):
        return _SHARES
    return _REGEXES.get(parameter.name, _OF_KIND[parameter.kind])


def _help(command: str, parameter: Parameter) -> str:
    """The command line's help, with its flags called by their parameters' names."""
    text = parameter.help
    for said, retold in _RETOLD:
        text = text.replace(said, retold)
    names = {other.flag: other.name for other in parameters(command)}
    return re.sub(r"--[a-z]+(?:-[a-z]+)*", lambda flag: names[flag[0]], text)


def text_of(command: str) -> str:
    """The file of a command's metadata."""
    return json.dumps(metadata(command), indent=2, ensure_ascii=False) + "\n"


def write() -> None:
    """Write the files of all commands."""
    for command in COMMANDS:
        (FOLDER / f"{command}.json").write_text(text_of(command), encoding="utf-8")


if __name__ == "__main__":
    write()
