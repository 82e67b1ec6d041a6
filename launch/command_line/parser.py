"""The command line's grammar: verbs, flags, help. What there is to say of a flag stands with its option."""

import argparse
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeVar

from recordmill.launch.command_line.flags import names, size_bytes, split_shares
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.convert_options import RUN
from recordmill.pipelines.options.extract_options import ExtractOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.pipelines.options.option import Kind, OptionField, Options, option, options_of
from recordmill.pipelines.options.sample_options import SampleOptions
from recordmill.pipelines.options.verify_options import VerifyOptions
from recordmill.schemas.errors import ConfigError

_BEAMS = ("--project", "--region", "--runner")
"""Flags of Beam's that have no underscore to know them by."""

_ALSO_CALLED = {"--annotations": "--instances", "--shards": "--num-shards"}
"""Names that other tools have for our flags."""

_EPILOG = """\
Flags after a lone -- go to Apache Beam as they are, for example
  -- --direct_running_mode=multi_processing --direct_num_workers=4
Exit codes: 0 done; 1 the job failed, verify or extract found a fault; 2 the command or its configuration is wrong.
"""


@dataclass(frozen=True, kw_only=True)
class TerminalOptions(Options):
    """What a command shows while it runs, whatever it does."""

    progress: str = option(
        "auto",
        kind=Kind.CHOICE,
        group=RUN,
        help="a live line, plain lines, or none",
        docs="a live line on a terminal and plain lines elsewhere; plain lines; nothing",
        choices=("auto", "plain", "none"),
    )
    debug: bool = option(False, kind=Kind.SWITCH, group=RUN, help="show tracebacks and Beam's log")


class Verb(NamedTuple):
    """A verb of the command line.

    Attributes:
        help: what becomes of what.
        runs_beam: whether flags after a lone -- would do anything.
    """

    options: type[Options]
    help: str
    description: str
    runs_beam: bool = True


VERBS = {
    "coco": Verb(
        CocoOptions,
        "COCO annotations and images -> TFRecord shards",
        "COCO annotations and images become TFRecord shards, with a manifest that says what is in them. At least one "
        "annotation file is needed: instances, keypoints, captions, panoptic, stuff or image-info.",
    ),
    "folder": Verb(
        FolderOptions,
        "class folders, or labelled images -> TFRecord shards",
        "Images of one class each are checked and written as tf.Examples into sharded TFRecord files. The class is "
        "the folder that an image is in, the beginning of its name, or what a table says.",
    ),
    "verify": Verb(
        VerifyOptions,
        "read a data set back and prove it whole",
        "Every record is read, parsed and decoded by TensorFlow, and held against the manifest.",
    ),
    "extract": Verb(
        ExtractOptions,
        "records back to image files + COCO JSON",
        "The images of a data set become files again, and what its records say of them COCO's JSON.",
    ),
    "sample": Verb(
        SampleOptions,
        "write a small COCO data set, drawn by the program",
        "A small COCO data set of every kind is drawn: JPEG and PNG, grey and colour, crowds, images without "
        "objects, one missing file and one broken one.",
        runs_beam=False,
    ),
}


_Options = TypeVar("_Options", bound=Options)


class Command(NamedTuple):
    """What was typed, without what stands after a lone `--`."""

    verb: str
    options: Any
    terminal: TerminalOptions


def parse(arguments: Sequence[str]) -> Command:
    """The verb and its options.

    Raises:
        ConfigError: something that the verb does not know, a value of a wrong type, or options that are wrong, with
            every fault of them.
        SystemExit: --help or --version was asked for, and has been answered.
    """
    parser, verbs = _parsers()
    if list(arguments[:1]) == ["help"]:
        arguments = [*arguments[1:], "--help"]
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        verb = verbs[parsed.verb]
        verb.error("; ".join(map(verb.describe_unknown, unknown)))
    given = VERBS[parsed.verb].options
    return Command(parsed.verb, _filled(given, parsed), _filled(TerminalOptions, parsed))


def fields_of(verb: str) -> tuple[OptionField, ...]:
    """All options of a verb, in the order of its help."""
    shown = options_of(TerminalOptions)
    if not VERBS[verb].runs_beam:  # nor has it progress to show
        shown = tuple(each for each in shown if each.name != "progress")
    return (*options_of(VERBS[verb].options), *shown)


def metavar(each: OptionField) -> str:
    """What stands for an option's value in the help; empty for a switch."""
    if each.option.kind is Kind.SWITCH:
        return ""
    return "|".join(each.option.choices) or each.option.metavar or each.name.replace("_", "-").upper()


def _filled(options: type[_Options], parsed: argparse.Namespace) -> _Options:
    values = {each.name: getattr(parsed, each.name, each.default) for each in options_of(options)}
    return options(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


class _Parser(argparse.ArgumentParser):
    """Refuses what it does not know, and names what was probably meant."""

    known: tuple[str, ...] = ()

    def __init__(self, **kwargs):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} ({self.prog} --help lists the flags)")

    def describe_unknown(self, argument: str) -> str:
        """What to say of an argument that this verb does not know."""
        name = argument.partition("=")[0]
        if not name.startswith("-"):
            return f"unexpected argument {argument!r}"
        if name in self.known:
            return f"{name} must stand after the verb"
        meant = _ALSO_CALLED.get(name, name.replace("_", "-"))
        if meant not in self.known and ("_" in name or name in _BEAMS):
            return f"unknown flag {name}; Beam's flags go after a lone --"
        near = [meant] if meant in self.known else difflib.get_close_matches(name, self.known, 1)
        return f"unknown flag {name}" + (f"; did you mean {near[0]}?" if near else "")


class _Version(argparse.Action):
    """Prints the installed version; looked up only when asked for."""

    def __call__(self, parser, *_):
        from importlib.metadata import version

        print(f"recordmill {version('recordmill')}")
        parser.exit()


def _parsers() -> tuple[_Parser, dict[str, _Parser]]:
    parser = _Parser(
        prog="recordmill",
        description="Data sets of pictures and labels become sharded TFRecord files of tf.Example.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    parsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    for name, verb in VERBS.items():
        epilog = _EPILOG if verb.runs_beam else None
        one = parsers.add_parser(name, help=verb.help, description=verb.description, epilog=epilog)
        one.known = ("--help", *(each.flag for each in fields_of(name) if each.option.kind is not Kind.ARGUMENT))
        groups: dict[str, Any] = {"": one}
        for each in fields_of(name):
            group = groups.get(each.option.group) or one.add_argument_group(each.option.group)
            groups[each.option.group] = group
            _add(group, each)
    return parser, parsers.choices


def _add(group: Any, each: OptionField) -> None:
    known = each.option
    text = f"{known.help} (default {each.usual})" if each.usual else known.help
    if known.kind is Kind.ARGUMENT:
        group.add_argument(each.name, metavar=known.metavar, help=text)
    elif known.kind is Kind.SWITCH:
        group.add_argument(each.flag, action="store_true", help=text)
    elif known.kind is Kind.PATHS:
        group.add_argument(each.flag, action="append", default=[], metavar=metavar(each), help=text)
    else:
        default = "" if each.is_required else each.default
        group.add_argument(each.flag, type=_TYPES.get(known.kind), default=default, metavar=metavar(each), help=text)


def _typed(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """`convert` with its own message where argparse would say only that the value is invalid."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error

    return converted


_TYPES: dict[Kind, Callable[[str], Any]] = {
    Kind.INTEGER: int,
    Kind.NAMES: _typed(names),
    Kind.NUMBER: float,
    Kind.SHARES: _typed(split_shares),
    Kind.SIZE: _typed(size_bytes),
}
