"""Options of a command as parameters by name, for Dataflow's Flex Templates and Airflow's Params."""

import json
from collections.abc import Mapping, Sequence

from recordmill.pipelines.verbs import VERBS, verb_fields
from recordmill.schemas.command_texts import without_flags
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.option import OptionField, join_names, option_fields

TEMPLATES = tuple(name for name, verb in VERBS.items() if verb.converts or verb.service_options_path)
"""Commands of services."""

_RENAMED = {"label": "class_column", "labels": "label_files"}  # Beam has --label and --labels, in the same list
_LEFT_OUT = {"dry_run", "part", "progress", "debug", "config", "print_config"}
"""Services show no plan, have no terminal, and do not seal."""

_TRUE = {"true", "1", "yes"}
_FALSE = {"false", "0", "no", ""}


def parameters(command: str) -> dict[str, OptionField]:
    """Return the options of a command by their names as parameters, in the order of its help.

    >>> parameters("convert")["num_shards"].largest
    99999
    """
    verb = VERBS[command]
    fields = verb_fields(command) if verb.converts else option_fields(verb.service_options)
    return {_RENAMED.get(field.name, field.name): field for field in fields if field.name not in _LEFT_OUT}


def plain_default(field: OptionField) -> str | int | float | bool | None:
    """Return a parameter's default; None if forms cannot show it."""
    return field.default if isinstance(field.default, str | int | float) else None


def parameter_help(command: str, text: str) -> str:
    """Return a help text with the names of parameters in place of flags."""
    return without_flags(text, {field.flag: name for name, field in parameters(command).items()})


def command_line(command: str, values: Mapping[str, object]) -> list[str]:
    """Return the arguments of `recordmill`: the command and its flags.

    Args:
        values: Values by parameter name. Lists may be texts with commas; None and empty texts count as missing.

    Raises:
        ConfigError: A name is unknown, or a switch is neither true nor false.

    >>> command_line("convert", {"data": "gs://b/a,gs://b/b", "gzip": "true", "num_shards": 8, "masks": ""})
    ['convert', 'gs://b/a', 'gs://b/b', '--gzip', '--num-shards=8']
    """
    known = parameters(command)
    typed = [command]
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{command} has no parameter {name}; it has {', '.join(sorted(known))}")
        typed += _parameter_words(name, known[name], value)
    return typed


def _parameter_words(name: str, field: OptionField, value: object) -> list[str]:
    if value is None or value == "" or value == []:
        return []
    if field.are_sets:
        return [f"{field.flag}={value if isinstance(value, str) else json.dumps(value)}"]
    texts = [str(text) for text in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])]
    if field.are_names and not isinstance(value, str):
        texts = [join_names(texts)]
    if field.type is bool:
        word = texts[-1].strip().lower()
        if word not in _TRUE | _FALSE:
            raise ConfigError(f"{name}={texts[-1]} must be true or false")
        return [field.flag] if word in _TRUE else []
    if field.is_list and field.must_be:
        texts = [part.strip() for text in texts for part in text.split(",")]
    return texts if field.is_argument else [f"{field.flag}={text}" for text in texts if text]
