"""The command line's grammar: a verb, its arguments and its flags. What there is to say of a flag stands with its
option. All faults of a command are found before any is reported, which argparse does not do; it lays out the help."""

import difflib
import logging
import re
from collections import deque
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn, TypeVar

from recordmill.launch.command_line.help import program_help, verb_help
from recordmill.launch.command_line.verbs import VERBS, TerminalOptions, fields_of
from recordmill.pipelines.options.option import Kind, OptionField, Options, options_of
from recordmill.schemas.errors import ConfigError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
_SHARE = re.compile(r"([^=]*?)\s*=\s*(-?\d{0,9}\.?\d{1,18}(?:e-?\d)?|-?\d{1,9}/0*[1-9]\d{0,8})", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", re.IGNORECASE)


def size_bytes(text: str) -> int:
    """A size in bytes.

    Raises:
        ValueError: not a size; the message says what one looks like.

    >>> size_bytes("150MB"), size_bytes("1.5GiB"), size_bytes("4096")
    (150000000, 1610612736, 4096)
    """
    match = _SIZE.fullmatch(text.strip())
    if not match or len(match[1]) > 18:
        raise ValueError("a size like 150MB, 1.5GB, 100MiB or a number of bytes is expected")
    return int(Decimal(match[1]) * _UNITS[(match[2] or "").upper()])


def split_shares(text: str) -> tuple[tuple[str, Fraction], ...]:
    """Names of splits with their shares, each a fraction of 1; a single name alone has all.

    Raises:
        ValueError: not that; the message says what it looks like.

    >>> split_shares("val"), split_shares("train=0.75,val=1/4")
    ((('val', Fraction(1, 1)),), (('train', Fraction(3, 4)), ('val', Fraction(1, 4))))
    """
    if not set("=,") & set(text):
        return ((text, Fraction(1)),)
    shares = []
    for part in text.split(","):
        match = _SHARE.fullmatch(part.strip())
        if not match:
            raise ValueError("a name, or shares like train=0.8,val=0.1,test=0.1, is expected")
        shares.append((match[1], Fraction(match[2])))
    return tuple(shares)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them.

    Raises:
        ValueError: there is none.

    >>> names("person, traffic light")
    ('person', 'traffic light')
    """
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    if not found:
        raise ValueError("names, with commas between them, are expected")
    return found


_LOGGER = logging.getLogger(__name__)

_HELP = ("-h", "--help")
_UNEXPECTED_SHOWN = 2
_NEGATIVE = re.compile(r"-\.?\d")
_BEAM_FLAGS = ("--project", "--region", "--runner")
"""Beam's flags without an underscore; all others of Beam's have one."""
_CLOSE = 0.75
"""Similarity cutoff of flags, 0 to 1; difflib's default of 0.6 takes --frobnicate for --writer."""

_Options = TypeVar("_Options", bound=Options)


class Command(NamedTuple):
    """What was typed, without what stands after a lone `--`."""

    verb: str
    options: Any
    terminal: TerminalOptions


def parse(arguments: Sequence[str]) -> Command:
    """The verb and its options.

    Args:
        arguments: one at least.

    Raises:
        ConfigError: with every fault: something that the verb does not know, a value that is none, options that are
            wrong.
        SystemExit: help or the version was asked for, and has been printed.
    """
    verb, *rest = arguments
    if verb in _HELP or (verb == "help" and not rest):
        _answer(program_help())
    if verb == "--version":
        from importlib.metadata import version

        _answer(f"recordmill {version('recordmill')}\n")
    if verb == "help":
        verb, rest = rest[0], ["--help"]
    if verb not in VERBS:
        raise ConfigError(f"{_no_verb(verb)} (recordmill --help lists the verbs)")
    if any(word in _HELP for word in rest):
        _answer(verb_help(verb))
    typed = _Typed(verb, rest)
    options, terminal = typed.filled(VERBS[verb].options), typed.filled(TerminalOptions) or TerminalOptions()
    if typed.faults or typed.faults_of_options:
        advice = f" (recordmill {verb} --help lists the flags)" if typed.faults else ""
        raise ConfigError("; ".join([*typed.faults, *typed.faults_of_options]) + advice)
    return Command(verb, options, terminal)


def _answer(text: str) -> NoReturn:
    print(text, end="")
    raise SystemExit(0)


def _no_verb(word: str) -> str:
    if word.startswith("-"):
        name = word.partition("=")[0]
        is_known = any(name == each.flag for verb in VERBS for each in fields_of(verb))
        return f"{name} must stand after the verb" if is_known else f"unknown flag {name}, and no verb before it"
    near = difflib.get_close_matches(word, VERBS, 1)
    return f"{word!r} is no verb" + (f"; did you mean {near[0]}?" if near else f"; they are {', '.join(VERBS)}")


class _Typed:
    """What was typed after a verb, as texts, and what is wrong with it.

    Attributes:
        faults: against which the list of flags helps.
        faults_of_options: of values that are what their flag takes.
    """

    def __init__(self, verb: str, words: Sequence[str]):
        self.faults: list[str] = []
        self.faults_of_options: list[str] = []
        self._unusable: set[str] = set()  # options whose fault has been told
        self._texts: dict[str, list[str]] = {}
        fields = fields_of(verb)
        self._flags = {each.flag: each for each in fields if not each.is_argument}
        self._arguments = deque(each for each in fields if each.is_argument)
        self._takes_arguments = bool(self._arguments)
        self._unexpected: list[str] = []
        waiting = deque(words)
        while waiting:
            self._take(waiting)
        self.faults += [f"unexpected argument {word!r}" for word in self._unexpected[:_UNEXPECTED_SHOWN]]
        if (more := len(self._unexpected) - _UNEXPECTED_SHOWN) > 0:
            self.faults.append(
                f"and {more:,} more, so quote a pattern of files, which the shell else replaces by all of them"
            )

    def _take(self, waiting: deque[str]) -> None:
        word = waiting.popleft()
        if not _is_flag(word):
            if self._arguments and self._arguments[0].option.kind is Kind.ARGUMENTS:
                self._texts.setdefault(self._arguments[0].name, []).append(word)
            elif self._arguments:
                self._texts[self._arguments.popleft().name] = [word]
            else:
                self._unexpected.append(word)
            return
        name, equals, value = word.partition("=")
        each = self._flags.get(name)
        if each is None:
            meant, advice = _meant_flag(name, self._flags)
            self.faults.append(f"unknown flag {name}{advice}")
            each = self._flags.get(meant)
        has_value_next = bool(waiting) and not _is_flag(waiting[0])
        if each is None:
            if has_value_next and not equals and not self._takes_arguments:
                waiting.popleft()  # in all likelihood its value
        elif each.option.kind is Kind.SWITCH:
            self._texts[each.name] = [value]
            if equals:
                self.faults.append(f"{name} takes no value, and {value!r} is given")
        elif equals or has_value_next:
            self._texts.setdefault(each.name, []).append(value if equals else waiting.popleft())
        else:
            self.faults.append(f"{name} needs a value ({name}=… where it begins with a dash)")
            self._unusable.add(each.name)

    def filled(self, options: type[_Options]) -> _Options | None:
        """The options, or None and more faults."""
        values = {each.name: self._value(each) for each in options_of(options)}
        try:
            return options(**values)
        except ConfigError as error:
            self.faults_of_options.append(str(error))
            return None

    def _value(self, each: OptionField) -> Any:
        texts = self._texts.get(each.name)
        if texts and each.name not in self._unusable:
            try:
                return value_of(each, texts)
            except ValueError as error:
                self.faults.append(f"{each.typed} {error}")
                self._unusable.add(each.name)
        if not each.is_required:
            return each.default
        stand_in = each.typed if each.name in self._unusable else ""  # so that it is not said to be missing, too
        return tuple(filter(None, [stand_in])) if each.option.kind in _LISTS else stand_in


def _meant_flag(name: str, known: Collection[str]) -> tuple[str, str]:
    """Return the known flag that an unknown one probably stands for, or an empty string, and the advice to print.

    >>> _meant_flag("--num_shards", ["--num-shards", "--workers"])
    ('--num-shards', '; did you mean --num-shards?')
    """
    plain = "--" + name.lstrip("-").replace("_", "-").lower()
    if plain not in known and name.startswith("--") and ("_" in name or name in _BEAM_FLAGS):
        return "", "; Beam's flags go after a lone --"
    near = [plain] if plain in known else difflib.get_close_matches(plain, known, 1, _CLOSE)
    return (near[0], f"; did you mean {near[0]}?") if near else ("", "")


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-" and " " not in word.partition("=")[0] and not _NEGATIVE.match(word)


def value_of(each: OptionField, texts: Sequence[str]) -> Any:
    """An option's value of all that was typed for it: lists add up; of single values the last counts.

    Raises:
        ValueError: it is none; the message goes on after the flag.
    """
    kind = each.option.kind
    if kind is Kind.SWITCH:
        return True
    if kind in _LISTS:
        return tuple(texts)
    if kind is Kind.NAMES:
        return tuple(name for text in texts for name in _converted(names, text))
    if kind is Kind.SHARES:
        return _converted(split_shares, ",".join(texts))
    if len(different := list(dict.fromkeys(texts))) > 1:
        _LOGGER.warning("%s is given as %s; the last counts", each.flag, ", ".join(different))
    return _converted(_CONVERT.get(kind, str), texts[-1])


def _converted(convert: Callable[[str], Any], text: str) -> Any:
    try:
        return convert(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: {_EXPECTED.get(convert, error)}") from error


_LISTS = (Kind.PATHS, Kind.ARGUMENTS)
_CONVERT: dict[Kind, Callable[[str], Any]] = {Kind.INTEGER: int, Kind.NUMBER: float, Kind.SIZE: size_bytes}
_EXPECTED: dict[Callable, str] = {int: "a whole number is expected", float: "a number is expected"}
