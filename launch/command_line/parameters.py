"""The options of a conversion as a list of parameters, for what asks for them by name: Dataflow's Flex Templates and
Airflow's Params. They follow from the command line's grammar, so that there is nothing to keep in step."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields

from recordmill.launch.command_line.parser import Choice, flags_of
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.schemas.errors import ConfigError

COMMANDS: dict[str, type[CocoOptions] | type[FolderOptions]] = {"coco": CocoOptions, "folder": FolderOptions}
"""What can be started by parameters."""

# Beam's flags and ours stand in one list there, and Beam has --labels, too.
_RENAMED = {"labels": "label_files"}

# What a job that nobody watches has no use for.
_LEFT_OUT = {"dry_run"}

_TRUE = {"true", "1", "yes"}
_FALSE = {"false", "0", "no", ""}


@dataclass(frozen=True)
class Parameter:
    """One option.

    Attributes:
        name: letters and underscores.
        flag: that of the command line.
        kind: `text`, `integer`, `number`, `choice` (one of `choices`), `switch` (true or false), or `list` (texts).
        default: None where there is none that could be told.
    """

    name: str
    flag: str
    help: str
    kind: str
    choices: tuple[str, ...]
    default: str | int | float | bool | None
    required: bool


def parameters(command: str) -> tuple[Parameter, ...]:
    """The options of a command, in the order of its help.

    >>> next(p for p in parameters("coco") if p.name == "num_shards").kind
    'integer'
    """
    options = {field.name: field for field in fields(COMMANDS[command])}
    found = []
    for action in flags_of(command):
        if action.dest not in options or action.dest in _LEFT_OUT:
            continue
        field = options[action.dest]
        found.append(
            Parameter(
                name=_RENAMED.get(action.dest, action.dest),
                flag=action.option_strings[0],
                help=str(action.help),
                kind=_kind(action),
                choices=action.allowed if isinstance(action, Choice) else (),
                default=action.default if isinstance(action.default, str | int | float) else None,
                required=field.default is MISSING and field.default_factory is MISSING,
            )
        )
    return tuple(found)


def _kind(action) -> str:
    if isinstance(action, Choice):
        return "choice"
    if action.nargs == 0:
        return "switch"
    if isinstance(action, argparse._AppendAction):
        return "list"
    return {int: "integer", float: "number"}.get(action.type, "text")


def command_line(command: str, values: Mapping[str, object]) -> list[str]:
    """What a person would have typed after `recordmill`: the command and its flags.

    Args:
        values: by parameter name. Lists may be texts with commas between them; None and empty texts are as if they were
            not there.

    Raises:
        ConfigError: a name that the command does not have, or a switch that is neither true nor false.

    >>> command_line("coco", {"images": "gs://b/a,gs://b/b", "gzip": "true", "num_shards": 8, "masks": ""})
    ['coco', '--images=gs://b/a', '--images=gs://b/b', '--gzip', '--num-shards=8']
    """
    known = {parameter.name: parameter for parameter in parameters(command)}
    typed = [command]
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{command} has no parameter {name}; it has {', '.join(sorted(known))}")
        typed += _typed(known[name], value)
    return typed


def _typed(parameter: Parameter, value: object) -> list[str]:
    if value is None or value == "":
        return []
    if parameter.kind == "switch":
        word = str(value).strip().lower()
        if word not in _TRUE | _FALSE:
            raise ConfigError(f"{parameter.name}={value} must be true or false")
        return [parameter.flag] if word in _TRUE else []
    if parameter.kind == "list":
        texts = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        parts = [part.strip() for text in texts for part in str(text).split(",")]
        return [f"{parameter.flag}={part}" for part in parts if part]
    return [f"{parameter.flag}={value}"]
