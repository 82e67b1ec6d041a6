"""Parse the command line: a verb, its arguments and flags, or a `--config` file. argparse only formats the help,
because it stops at the first error."""

import difflib
import glob
import logging
import os
import shlex
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from recordmill.launch.command_line.help import program_help, verb_help
from recordmill.pipelines.choose_format import choose_conversion
from recordmill.pipelines.dataset_options import TerminalOptions
from recordmill.pipelines.formats import Format, formats
from recordmill.pipelines.verbs import OLD_VERBS, VERBS, verb_fields
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.fields import config_fields
from recordmill.schemas.inputs.option import OptionField, Options, flag, mappings, option_fields
from recordmill.schemas.paths import is_remote

_LOGGER = logging.getLogger(__name__)

HELP = {"-h", "--help"}
"""Flags that ask for help."""
_SHORT = {"-o": "--output"}
_UNEXPECTED_SHOWN = 2
_BEAM_FLAGS = ("--project", "--region", "--runner")  # Beam's flags without an underscore
_CLOSE = 0.75  # similarity of flags, 0 to 1; difflib's default of 0.6 takes --frobnicate for --writer
_OLD_DATA_FLAGS = {"--data", "--rows"}
_RENAMED_FLAGS = {
    "--label-column": "--label",
    "--path-column": "--image-column",
    "--format": "--image-format",
    "--format-in": "--format",
}
_TERMINAL = frozenset(field.name for field in option_fields(TerminalOptions))
_TYPED_ONLY = ("config", "print_config", "debug")  # not in a `--config` file; --debug counts before it is read


class Command(NamedTuple):
    """A parsed command, without Beam's flags.

    Attributes:
        options: None if a conversion's format is not known, see `parse`.
        format: Format of a conversion's data; None for other verbs.
        notes: Lines to print first: what was recognised.
    """

    verb: str
    options: Any
    terminal: TerminalOptions
    format: Format | None = None
    notes: tuple[str, ...] = ()


def parse(arguments: Sequence[str], recognises: bool = True) -> Command:
    """Return the verb and its options.

    Args:
        arguments: At least one word.
        recognises: False to return no options if the format of a conversion is not named; see `choose_conversion`.

    Raises:
        ConfigError: With all errors: unknown flags, wrong values, options that contradict each other.
        SystemExit: Help, the version or the options as YAML were requested and printed.
    """
    verb, *rest = arguments
    if verb in HELP or (verb == "help" and not rest):
        _print_and_exit(program_help())
    if verb == "--version":
        from recordmill.launch.command_line.version import version_text  # its import is slow

        _print_and_exit(version_text(verbose="--verbose" in rest))
    if verb == "help":
        verb, *topics = rest
        if verb in VERBS:
            _print_and_exit(verb_help(verb, topics[0].lstrip("-") if topics else ""))
        if verb in formats() or verb in OLD_VERBS:
            _print_and_exit(verb_help("convert", verb if verb in formats() else ""))
    if verb in OLD_VERBS:
        raise ConfigError(old_verb_fault(verb, rest))
    if verb not in VERBS:
        raise ConfigError(f"{_verb_fault(verb)} (recordmill --help lists the verbs)")
    if any(word in HELP for word in rest):
        _print_and_exit(verb_help(verb))
    typed, faults = read_words(verb_fields(verb), rest)
    advice = f" (recordmill {verb} --help lists the flags)" if faults else ""
    faults += _output_faults(typed)
    command = _build_command(verb, typed, faults, advice, recognises)
    if command.terminal.print_config:
        _print_and_exit(to_config(command))
    return command


def parse_values(verb: str, values: Mapping[str, Any], recognises: bool = True) -> Command:
    """Return what `parse` does, from values by option, as JSON has them.

    Raises:
        ConfigError: With all errors.
    """
    faults: list[str] = []
    fields = {field.name: field for field in verb_fields(verb) if field.name not in ("print_config", "debug")}
    return _build_command(verb, drop_unknown(values, fields, "", faults), faults, recognises=recognises)


def _build_command(
    verb: str, typed: Mapping[str, Any], faults: list[str], advice: str = "", recognises: bool = True
) -> Command:
    fields, values = {field.name: field for field in verb_fields(verb)}, dict(typed)
    if path := values.get("config"):
        values = _read_config(path, fields, faults) | values
    if values.get("sets"):
        values["sets"] = _known_sets(values["sets"], fields, faults)
    terminal_values = {name: values.pop(name) for name in list(values) if name in _TERMINAL}
    terminal = _build_options(TerminalOptions, terminal_values, faults)
    command = Command(verb, None, terminal)
    if not VERBS[verb].converts:
        command = command._replace(options=_build_options(VERBS[verb].options, values, faults))
    else:
        try:
            if chosen := choose_conversion(values, recognises and not faults):
                options = _build_options(chosen.format.options, chosen.values, faults)
                command = command._replace(options=options, format=chosen.format, notes=chosen.notes)
        except (ConfigError, OSError):
            if not faults:  # a misspelt option may be the one that names DATA or its format
                raise
    if faults:
        raise ConfigError("; ".join(dict.fromkeys(faults)) + advice)
    return command


def _output_faults(typed: Mapping[str, Any]) -> list[str]:
    """Return the error of a command that gives its output as the last DATA, as `cp DATA OUT` does."""
    data = typed.get("data", [])
    if "output" in typed or len(data) < 2 or not os.path.exists(data[0]):
        return []
    output = data[-1]
    if is_remote(output) or glob.has_magic(output) or os.path.lexists(output):
        return []
    return [f"--output is missing, and {output} does not exist. If it is the output, write -o {shlex.quote(output)}"]


def _known_sets(sets: Any, fields: Mapping[str, OptionField], faults: list[str]) -> list[dict[str, Any]]:
    """Return the known options of each data set, and append an error for each other name."""
    known = {name: field for name, field in fields.items() if name not in (*_TERMINAL, "sets")}
    try:
        parsed = mappings(sets)
    except ValueError as error:
        faults.append(f"--sets: {error}")
        return []
    return [drop_unknown(one, known, f"--sets, item {number}: ", faults) for number, one in enumerate(parsed, 1)]


def _build_options(model: type[Options], values: Mapping[str, Any], faults: list[str]) -> Any:
    """Return options; None after an error, which `faults` gets."""
    try:
        return model(**values)
    except ConfigError as error:
        faults.append(str(error))
        return None


def old_verb_fault(verb: str, words: Sequence[str]) -> str:
    """Return the error of a verb of earlier versions, with the command that replaces it."""
    flags = {word.partition("=")[0] for word in words}
    names_files = any(flag(name) in flags for entry in formats().values() for name in entry.files)
    data_flags = _OLD_DATA_FLAGS if names_files or flags & _OLD_DATA_FLAGS else {"--images"}
    renamed = _RENAMED_FLAGS | ({"--dtype": "--feature-dtype"} if verb == "embed" else {})
    dashes = words.index("--") if "--" in words else len(words)
    data, rest, waiting = list[str](), list[str](), deque(words[:dashes])
    while waiting:
        name, equals, value = waiting.popleft().partition("=")
        if name in data_flags:
            data.append(value if equals else waiting.popleft() if waiting else "DATA")
        else:
            rest.append(renamed.get(name, name) + equals + value)
    what = "a format of DATA, not a verb" if verb in formats() else "not a verb; convert does it"
    named = ["--format", verb] if verb in formats() and not names_files else []
    command = shlex.join(["recordmill", "convert", *data, *rest, *named, *words[dashes:]])
    return f"{verb} is {what}. The same command is: {command}"


def _print_and_exit(text: str) -> NoReturn:
    print(text, end="")
    raise SystemExit(0)


def _verb_fault(word: str) -> str:
    if word.startswith("-"):
        name = word.partition("=")[0]
        is_known = any(name == field.flag for verb in VERBS for field in verb_fields(verb))
        return f"{name} must come after the verb" if is_known else f"unknown flag {name}; the verb must come first"
    near = difflib.get_close_matches(word, (*VERBS, "--version"), 1)
    return f"{word!r} is not a verb" + (f". Did you mean {near[0]}?" if near else f". The verbs are {', '.join(VERBS)}")


def read_words(fields: Iterable[OptionField], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return typed values by option, and errors of unknown words."""
    fields = tuple(fields)
    flags = {field.flag: field for field in fields if not field.is_argument}
    flags |= {short: flags[long] for short, long in _SHORT.items() if long in flags}
    arguments = deque(field for field in fields if field.is_argument)
    takes_arguments = bool(arguments)
    typed: dict[str, list[str]] = {}
    faults: list[str] = []
    unexpected: list[str] = []
    waiting = deque(words)
    while waiting:
        word = waiting.popleft()
        if not _is_flag(word):
            if arguments:
                typed.setdefault(arguments[0].name, []).append(word)
                if not arguments[0].is_list:
                    arguments.popleft()
            else:
                unexpected.append(word)
            continue
        name, equals, value = word.partition("=")
        field = flags.get(name)
        if field is None:
            meant, advice = _closest_argument(name, fields) or _closest_flag(name, flags)
            if not advice:
                meant, advice = _closest_argument(name, fields, _CLOSE) or ("", "")
            if name == "--version":
                advice = ". Run recordmill --version"
            elif not advice and takes_arguments and os.path.exists(word):
                advice = f". To give the path, write ./{word}"
            faults.append(f"unknown flag {name}{advice}")
            field = flags.get(meant)
        has_value_next = bool(waiting) and not _is_flag(waiting[0])
        if field is None:
            if has_value_next and not equals and not takes_arguments:
                waiting.popleft()  # probably its value
        elif field.type is bool:
            typed[field.name] = ["true"]
            if equals:
                faults.append(f"{name} does not take a value (got {value!r})")
        elif equals or has_value_next:
            typed.setdefault(field.name, []).append(value if equals else waiting.popleft())
        else:
            faults.append(f"{name} needs a value (write {name}=… if the value begins with a dash)")
            typed |= {field.name: ["-"]} if field.is_required else {}  # so that it is not reported as missing, too
    faults += [f"unexpected argument {word!r}" for word in unexpected[:_UNEXPECTED_SHOWN]]
    if (more := len(unexpected) - _UNEXPECTED_SHOWN) > 0:
        faults.append(f"and {more:,} more. Quote a file pattern, or the shell expands it")
    known = {field.name: field for field in fields}
    return {name: _option_value(known[name], texts) for name, texts in typed.items()}, faults


def _option_value(field: OptionField, texts: list[str]) -> list[str] | str:
    """Return all values of a list, and the last of a single value."""
    if field.is_list:
        return ",".join(texts) if field.are_fields or field.are_names else texts
    if len(different := list(dict.fromkeys(texts))) > 1:
        _LOGGER.warning("%s is set several times (%s); the last value is used", field.flag, ", ".join(different))
    return texts[-1]


def _closest_argument(name: str, fields: Iterable[OptionField], cutoff: float = 1) -> tuple[str, str] | None:
    """Return what `_closest_flag` does, for an argument that was typed as a flag."""
    for field in fields:
        if field.is_argument and difflib.get_close_matches(name[2:], (field.name, *field.also), 1, cutoff):
            return "", f". Give {field.metavar} without a flag"
    return None


def _closest_flag(name: str, known: Mapping[str, OptionField]) -> tuple[str, str]:
    """Return the known flag that is closest to an unknown one, or an empty string, and the advice to print."""
    plain = "--" + name.lstrip("-").replace("_", "-").lower()
    near = [plain] if plain in known else [flag for flag in known if plain[2:] in known[flag].also]
    if not near and name.startswith("--") and ("_" in name or name in _BEAM_FLAGS):
        return "", ". Beam's flags go after a lone --"
    near = near or difflib.get_close_matches(plain, known, 1, _CLOSE)
    return (near[0], f". Did you mean {near[0]}?") if near else ("", "")


def _is_flag(word: str) -> bool:
    is_number = word[1:2].isdigit() or (word[1:2] == "." and word[2:3].isdigit())
    return word.startswith("-") and word != "-" and " " not in word.partition("=")[0] and not is_number


def _read_config(path: str, fields: Mapping[str, OptionField], faults: list[str]) -> dict[str, Any]:
    """Return the values of a YAML file by option."""
    import yaml

    from recordmill.schemas.inputs.yaml_loader import describe_yaml_error
    from recordmill.schemas.inputs.yaml_text import load_yaml
    from recordmill.transforms.storage.os_errors import explain_os_error
    from recordmill.transforms.storage.resolve import storage_for

    texts = {field for field in fields.values() if field.type is str and not field.is_size}
    lists, sets = ({field for field in texts if getattr(field, kind)} for kind in ("are_names", "are_sets"))
    lists |= {field for field in texts if field.name == "name"}
    names, plain, nested = (
        {word for field in group for word in (field.name, field.flag[2:])} for group in (lists, texts - sets, sets)
    )
    try:
        document = load_yaml(storage_for(path).read(path), names, plain, nested) or {}
    except OSError as error:
        raise ConfigError(f"--config {explain_os_error(error)}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"--config {describe_yaml_error(path, error)}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"--config {path} must map names of options to values: num_shards: 8")
    values = {str(name).replace("-", "_"): value for name, value in document.items()}
    known = {name: field for name, field in fields.items() if name not in _TYPED_ONLY}
    return drop_unknown(values, known, f"--config {path}: ", faults)


def drop_unknown(
    values: Mapping[str, Any], known: Mapping[str, OptionField], where: str, faults: list[str]
) -> dict[str, Any]:
    """Return the values of known options, and append an error for each other name. A misspelt option counts as
    given."""
    known_values = {name: value for name, value in values.items() if name in known}
    for name in [name for name in values if name not in known]:
        near = [option for option in known if name.replace("_", "-") in known[option].also]
        renamed = _RENAMED_FLAGS.get(flag(name), "").removeprefix("--").replace("-", "_")
        near = [renamed] if renamed in known else near
        near = near or difflib.get_close_matches(name, known, 1, _CLOSE)
        faults.append(f"{where}unknown option {name!r}" + (f". Did you mean {near[0]}?" if near else ""))
        known_values |= {near[0]: values[name]} if near and near[0] not in known_values else {}
    return known_values


def to_config(command: Command) -> str:
    """Return options that differ from defaults, as YAML for `--config`."""
    import yaml

    values: dict[str, Any] = {}
    models: tuple[Options, ...] = (command.options, command.terminal)
    is_one = command.format is not None and command.format.name in formats()  # not several data sets
    if command.format and is_one and not any(getattr(command.options, name, None) for name in command.format.files):
        values["format"] = command.format.name
    for options, field in [(model, field) for model in models for field in option_fields(type(model))]:
        value = getattr(options, field.attribute)
        is_given = field.attribute == "split" and field.attribute in options.model_fields_set
        if field.name not in (*_TYPED_ONLY, "dry_run") and (value != field.default or is_given):
            plain = [f"{name}={share}" for name, share in value] if field.is_shares else value
            plain = config_fields(value) if field.are_fields else plain
            values[field.name] = list(plain) if isinstance(plain, tuple) else plain
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
