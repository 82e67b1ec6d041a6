"""The options of a command as a list of parameters, for what asks for them by name: Dataflow's Flex Templates and
Airflow's Params. They are the command line's options, so that there is nothing to keep in step."""

from collections.abc import Mapping, Sequence

from recordmill.launch.command_line.verbs import VERBS
from recordmill.pipelines.options.convert_options import ConvertOptions
from recordmill.pipelines.options.dataset_options import ServiceVerifyOptions
from recordmill.pipelines.options.option import Kind, OptionField, Options, options_of
from recordmill.schemas.errors import ConfigError

COMMANDS = {name: verb.options for name, verb in VERBS.items() if issubclass(verb.options, ConvertOptions)}
"""Conversions."""

TEMPLATES: dict[str, type[Options]] = {**COMMANDS, "verify": ServiceVerifyOptions}
"""All that can be started by parameters."""

# Beam's flags and ours stand in one list there, and Beam has --labels and --label, too.
_RENAMED = {"label": "class_column", "labels": "label_files"}

# What a job that nobody watches has no use for.
_LEFT_OUT = {"dry_run"}

_TRUE = {"true", "1", "yes"}
_FALSE = {"false", "0", "no", ""}


def parameters(command: str) -> dict[str, OptionField]:
    """The options of a command by their names as parameters, in the order of its help.

    >>> parameters("coco")["num_shards"].option.kind.value
    'integer'
    """
    return {
        _RENAMED.get(each.name, each.name): each
        for each in options_of(TEMPLATES[command])
        if each.name not in _LEFT_OUT
    }


def plain_default(each: OptionField) -> str | int | float | bool | None:
    """A parameter's default; None where it is none that a form could show."""
    return each.default if isinstance(each.default, str | int | float) else None


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
    known = parameters(command)
    typed = [command]
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{command} has no parameter {name}; it has {', '.join(sorted(known))}")
        typed += _typed(name, known[name], value)
    return typed


def _typed(name: str, each: OptionField, value: object) -> list[str]:
    if value is None or value == "" or value == []:
        return []
    texts = [str(text) for text in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])]
    if each.option.kind is Kind.SWITCH:
        word = texts[-1].strip().lower()
        if word not in _TRUE | _FALSE:
            raise ConfigError(f"{name}={texts[-1]} must be true or false")
        return [each.flag] if word in _TRUE else []
    if each.option.kind is Kind.PATHS:
        texts = [part.strip() for text in texts for part in text.split(",")]
    if each.option.kind is Kind.ARGUMENT:
        return texts
    return [f"{each.flag}={text}" for text in texts if text]
