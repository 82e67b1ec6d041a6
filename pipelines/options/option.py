"""What is known of an option besides its value: it stands with the option, once. The parser, the checks, Airflow's
Params, Dataflow's templates and the tables of docs/cli.md are made of it."""

import math
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

from recordmill.schemas.errors import ConfigError

READ, WRITE, LEAVE_OUT = "what to read", "what to write", "what to leave out"
PICTURES, TEXTS = "what becomes of pictures", "what becomes of texts"
MODEL, RUN = "which model, and what of it", "how to run"
_GROUPS = ("", READ, MODEL, WRITE, LEAVE_OUT, PICTURES, TEXTS, RUN)
"""Headings, in the order of the help; arguments are below none."""


class Kind(str, Enum):
    """What an option's value is, and how it is typed."""

    ARGUMENT = "argument"  # a text that stands without a flag
    ARGUMENTS = "arguments"  # tuple of texts that stand without a flag, after all others that do
    CHOICE = "choice"  # one of several words
    INTEGER = "integer"
    NAMES = "names"  # tuple of texts, typed with commas between them
    NUMBER = "number"
    PATH = "path"
    PATHS = "paths"  # tuple of paths: the flag is repeated
    SHARES = "shares"  # a split's name, or several with their shares of the images
    SIZE = "size"  # bytes, typed as 150MB
    SWITCH = "switch"
    TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class Option:
    """The description of an option, for help texts and for services such as Airflow and Dataflow.

    Attributes:
        group: heading in the help.
        help: a few words.
        docs: Markdown, where docs/cli.md says more than `help`.
        metavar: what stands for the value in the help.
        choices: of a CHOICE.
        least, largest: bounds, included; None without.
        measure: what the bounds are of, `a fraction`.
        unit: of the bounds.
        usual: what applies where the option is not given, if its default value does not say so.
        may_repeat: whether PATHS may name one path twice.
        pattern: a regular expression that a service matches the whole text with; POSIX extended syntax (egrep).
    """

    kind: Kind
    group: str
    help: str
    docs: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    least: int | None = None
    largest: int | None = None
    measure: str = ""
    unit: str = ""
    usual: str = ""
    may_repeat: bool = False
    pattern: str = ""

    def fault(self, value: Any) -> str:
        """What is wrong with a value that was given; empty if nothing is."""
        if self.kind is Kind.CHOICE and value not in self.choices:
            return f"{value!r} is none of {', '.join(self.choices)}"
        if self.kind in (Kind.INTEGER, Kind.NUMBER, Kind.SIZE) and not self._is_within(value):
            return f"{value} must be {self._bounds}"
        return ""

    def _is_within(self, value: float) -> bool:
        least = -math.inf if self.least is None else self.least
        largest = math.inf if self.largest is None else self.largest
        return math.isfinite(value) and least <= value <= largest

    @property
    def _bounds(self) -> str:
        if self.least is None and self.largest is None:
            return "finite"
        upper = "or more" if self.largest is None else f"to {self.largest}"
        measure = f"{self.measure}, " if self.measure else ""
        return f"{measure}{self.least} {upper}{f' {self.unit}' if self.unit else ''}"


@dataclass(frozen=True)
class OptionField:
    """An option of a verb: its name, its default (None where it must be given), and what is known of it."""

    name: str
    option: Option
    default: Any
    is_required: bool

    @property
    def flag(self) -> str:
        return flag(self.name)

    @property
    def is_argument(self) -> bool:
        """Whether it stands without a flag."""
        return self.option.kind in (Kind.ARGUMENT, Kind.ARGUMENTS)

    @property
    def typed(self) -> str:
        """What stands for it in the help: its flag, or the name of an argument without one."""
        return self.option.metavar if self.is_argument else self.flag

    @property
    def usual(self) -> str:
        """What holds where it is not given, as text; empty where that goes without saying."""
        if self.option.usual:
            return self.option.usual
        if self.default in (None, "", ()) or self.default is False:
            return ""
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of what each verb is asked to do: every field is an `option`."""

    def __post_init__(self):
        """Raises ConfigError with every fault that can be seen without looking at a file."""
        faults = [*self._faults_of_each(), *self._faults()]
        if faults:
            raise ConfigError("; ".join(faults))

    def _faults_of_each(self) -> Iterator[str]:
        for each in options_of(type(self)):
            value = getattr(self, each.name)
            if each.is_required and not value:
                what = f" ({each.option.help})" if each.is_argument else ""
                yield f"{each.typed} is missing{what}"
            if each.option.kind is Kind.PATHS and not each.option.may_repeat:
                for path in sorted({path for path in value if value.count(path) > 1}):
                    yield f"{each.flag} {path} is given twice"
            if value is not None and (fault := each.option.fault(value)):
                yield f"{each.flag} {fault}"

    def _faults(self) -> Iterator[str]:
        """What is wrong with several options together."""
        yield from ()


class Unworded(NamedTuple):
    """A dataclass field of `Options` that lacks its texts."""

    default: Any
    known: dict[str, Any]

    def says(self, help: str, docs: str = "") -> Any:
        """Return the field; the texts are those of `Option`."""
        return field(default=self.default, metadata={"option": Option(**self.known | {"help": help, "docs": docs})})


def option(kind: Kind, group: str, default: Any = MISSING, **known: Any) -> Unworded:
    """An option of this kind, below the heading `group` of the help. Without a default it must be given."""
    return Unworded(default, {"kind": kind, "group": group, **known})


_SAME: Any = object()


def reworded(base: type[Options], name: str, default: Any = _SAME, **changes: Any) -> Unworded:
    """A base's option, perhaps with another default, that lacks its texts."""
    known = base.__dataclass_fields__[name]
    return Unworded(known.default if default is _SAME else default, vars(known.metadata["option"]) | changes)


def redefined(base: type[Options], name: str, default: Any = _SAME, **changes: Any) -> Any:
    """A base's option with another default or other details."""
    unworded = reworded(base, name, default, **changes)
    return unworded.says(unworded.known["help"], unworded.known["docs"])


def options_of(options: type[Options]) -> tuple[OptionField, ...]:
    """The options of a verb by groups; within one, those of its base first."""
    found = (
        OptionField(
            each.name,
            each.metadata["option"],
            None if each.default is MISSING else each.default,
            each.default is MISSING,
        )
        for each in fields(options)
    )
    return tuple(sorted(found, key=lambda each: _GROUPS.index(each.option.group)))


def flag(name: str) -> str:
    """The flag that sets an option.

    >>> flag("image_info")
    '--image-info'
    """
    return "--" + name.replace("_", "-")
