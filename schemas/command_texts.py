"""Messages of the command line in the words of other callers: Python and services."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_VERB = re.compile(r"\brecordmill (convert|verify|extract|show|report|index|sample)(?= )")
_VERB_OR_FLAGS = re.compile(rf"{_VERB.pattern}|\b([Cc]onvert again with)(?= --)")
_WORD = re.compile(r" ((?:'[^']*'|\"[^\"]*\"|[^\s'\"])+)")
_FLAG = re.compile(r"(?<![\w/.-])--[a-z]+(?:-[a-z]+)*")
_VALUE = re.compile(r" ('[^']*'|[A-Z]{2,}\b|[\w-]+(?:,[\w-]+)+|-?\d+(?:\.\d+)?(?![\w.])|\w+=\S*\w|[\w-]*\w)")
_END = re.compile(r"[.,;:)]+$")
_CLEAR_VALUE = re.compile(r"'.*'|[A-Z]{2,}|-?\d+(\.\d+)?|\w+=.*|[\w-]+(,[\w-]+)+", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_CHOICE = re.compile(r"""['"]([^'"]*)['"]""")

_PYTHON_WORDS = {
    r"\b([Tt]he same) command\b": r"\1 call",
    r"\ba flag of\b": "an option of",
    r"\bby flags\b": "by options",
    r"\bDATA\b": "data",
}


class _Command(NamedTuple):
    """A command in a text.

    Attributes:
        verb: Its verb; "convert again with", of flags alone.
        data: Words before the first flag.
        values: Values by flag; none for a switch.
    """

    verb: str
    data: list[str]
    values: dict[str, list[str]]


def without_flags(text: str, names: Mapping[str, str]) -> str:
    """Return a text with `names` in place of their flags. Commands in the text keep their flags.

    >>> without_flags("--split-seed, --other; recordmill verify out --split-seed 1", {"--split-seed": "split_seed"})
    'split_seed, --other; recordmill verify out --split-seed 1'
    """
    return "".join(
        part if command else _FLAG.sub(lambda flag: names.get(flag[0], flag[0]), part)
        for part, command in _split_commands(text, frozenset())
    )


def python_text(text: str, keywords: Mapping[str, str]) -> str:
    """Return a message in the words of `recordmill.convert`: flags are keywords, and a command is a call.

    Args:
        keywords: Annotations of the keywords, by name.

    >>> keywords = {"gzip": "bool", "format": "Literal['voc'] | None", "shard_size": "int | str", "split": "Shares"}
    >>> python_text("--gzip and --shard-size 5: --split is train. Add --format voc.", keywords)
    'gzip=True and shard_size=5: split is train. Add format="voc".'
    >>> python_text("Add --split cat,dog with all.", keywords)
    'Add split="cat,dog" with all.'
    >>> python_text("Run: recordmill convert 'a b' --gzip --format voc -o OUT (same as recordmill verify).", keywords)
    'Run: recordmill.convert("a b", "OUT", gzip=True, format="voc") (same as recordmill verify).'
    >>> python_text("Convert again with --split a/b --gzip and others.", keywords)
    'Convert again with split="a/b", gzip=True and others.'
    """
    flags = {"--" + name.rstrip("_").replace("_", "-"): name for name in keywords}  # as_ is no word of Python
    switches = frozenset(flag for flag, name in flags.items() if keywords[name] == "bool")

    def renamed(match: re.Match[str]) -> str:
        """Return a flag, and the value after it, as an argument."""
        name = flags.get(match[1])
        if name is None:
            return match[0]
        if match[1] in switches:
            return f"{name}=True{match[2] or ''}"
        value = (match[2] or "")[1:]
        if _CLEAR_VALUE.fullmatch(value) or value in _CHOICE.findall(keywords[name]):
            return f"{name}={_literal(value, keywords[name])}"
        return name + (match[2] or "")

    flag_and_value = re.compile(f"({_FLAG.pattern})({_VALUE.pattern})?")
    texts = []
    for part, command in _split_commands(text, switches, _VERB_OR_FLAGS):
        if not command:
            part = flag_and_value.sub(renamed, part)
            for words, other in _PYTHON_WORDS.items():
                part = re.sub(words, other, part)
            texts.append(part)
        elif command.verb == "convert" and {*command.values} <= {*flags, "-o", "--help"}:
            texts.append(_call(command, flags, keywords))
        elif command.verb.endswith("again with") and {*command.values} <= {*flags}:
            texts.append(f"{command.verb} {', '.join(_arguments(command.values, flags, keywords))}")
        else:
            texts.append(part)
    return "".join(texts)


def _call(command: _Command, flags: Mapping[str, str], keywords: Mapping[str, str]) -> str:
    if "--help" in command.values:
        return "help(recordmill.convert)"
    values = dict(command.values)
    output = values.pop("-o", []) or values.pop("--output", [])
    arguments = [_literals(command.data, "")] if command.data else []
    arguments += [("" if command.data else "output=") + _literal(word, "") for word in output[-1:]]
    arguments += _arguments(values, flags, keywords)
    return f"recordmill.convert({', '.join(arguments)})"


def _arguments(values: Mapping[str, list[str]], flags: Mapping[str, str], keywords: Mapping[str, str]) -> Iterator[str]:
    """Yield flags and their values as keyword arguments."""
    for flag, words in values.items():
        name = flags[flag]
        yield f"{name}={_literals(words, keywords[name]) if words else True}"


def _literals(words: list[str], annotation: str) -> str:
    """Return one word as a value, and several as a list."""
    literals = ", ".join(_literal(word, annotation) for word in words)
    return literals if len(words) == 1 else f"[{literals}]"


def _literal(word: str, annotation: str) -> str:
    """Return a word of a shell as Python."""
    if annotation.startswith(("int", "float")) and _NUMBER.fullmatch(word):
        return word
    return json.dumps("".join(shlex.split(word)), ensure_ascii=False)


def _split_commands(
    text: str, switches: frozenset[str], verbs: re.Pattern[str] = _VERB
) -> Iterator[tuple[str, _Command | None]]:
    """Yield the parts of a text: commands that have flags, and what is between them."""
    start = 0
    for match in verbs.finditer(text):
        command, end = _read_command(text, match, switches)
        if match.start() >= start and command.values:
            yield text[start : match.start()], None
            yield text[match.start() : end], command
            start = end
    yield text[start:], None


def _read_command(text: str, verb: re.Match[str], switches: frozenset[str]) -> tuple[_Command, int]:
    """Return the command that begins with a verb, and its end. Punctuation ends it, and so does a word that is neither
    a flag nor the value of one."""
    command = _Command(verb[1] or verb[2], [], {})
    end, flag, is_open = verb.end(), "", True
    while is_open and (match := _WORD.match(text, end)):
        word = _END.sub("", match[1]) if match[1][-1] not in "'\"" else match[1]
        is_flag = word.startswith("-") and word.strip("-") != ""
        if not word or word == "--" or not (is_flag or flag or not command.values):
            break
        if is_flag:
            name, equals, value = word.partition("=")
            command.values.setdefault(name, []).extend([value] if equals else [])
            flag = "" if equals or name in (*switches, "--help") else name
        else:
            (command.values[flag] if flag else command.data).append(word)
            flag = ""
        end = match.start(1) + len(word)
        is_open = word == match[1]
    return command, end
