"""`recordmill auto`: recognise a data set, and run the command that converts it."""

import difflib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recordmill.launch.command_line.parser import Command, parse, parse_values, read_words
from recordmill.pipelines.recognise import choose_format
from recordmill.pipelines.verbs import VERBS, verb_fields
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.sizes import printable

_CLOSE = 0.75


def recognise_commands(words: Sequence[str]) -> Iterator[Command]:
    """Yield the commands that `recordmill auto WORDS` stands for, after each is printed.

    Raises:
        ConfigError: --data is missing or misspelt; or see `recordmill.pipelines.recognise.choose_format`.
    """
    rest = list(words)
    data, asked = _pop_flag(rest, "--data"), _pop_flag(rest, "--format-in")
    known = {field.flag for verb in VERBS for field in verb_fields(verb)}
    for name in (word.partition("=")[0] for word in rest):
        if name not in known and (near := difflib.get_close_matches(name, ("--data", "--format-in"), 1, _CLOSE)):
            raise ConfigError(f"unknown flag {name}; did you mean {near[0]}?")
    yield from map(parse, _print_commands(data, asked, rest))


def recognise_values(values: Mapping[str, Any]) -> Iterator[Command]:
    """Yield the commands that values of options by name stand for, as `recognise_commands` does."""
    rest = {name: value for name, value in values.items() if name not in ("data", "format_in")}
    for verb, *flags in _print_commands(values.get("data"), values.get("format_in"), []):
        yield parse_values(verb, read_words(verb_fields(verb), flags)[0] | rest)


def _print_commands(data: str | None, asked: str | None, rest: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of commands, after each is printed."""
    if not data:
        raise ConfigError("--data is missing: the folder, .zip or file of the data set (recordmill auto --help)")
    verb, match = choose_format(data, asked)
    print(printable(f"{data} is read by recordmill {verb}: {match.why}"))
    for flags in match.commands:
        command = [verb, *flags, *rest]
        print(printable(f"recordmill {shlex.join(command)}"), flush=True)
        yield command


def _pop_flag(words: list[str], flag: str) -> str | None:
    """Remove a flag and its value from words, and return the value; None without."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == flag:
            value = value if equals else "".join(words[place + 1 : place + 2])
            del words[place : place + (1 if equals else 2)]
            return value
    return None
