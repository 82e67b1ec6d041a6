"""Help texts, formatted for the width of the terminal."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

from recordmill.pipelines.verbs import EXAMPLES, VERBS, verb_fields

_BEAM = "Flags after a lone -- go to Apache Beam; they say where the job runs."
_EXIT_CODES = (
    "Exit codes: 0 done; 1 the job failed, or verify or extract found a fault; 2 the command or its configuration is "
    "wrong."
)


_FLAG_AND_VALUE = re.compile(r"--\w[\w-]* (?!-)\S+")
_LEAST_COLUMNS = 20


def program_help() -> str:
    """Return the help of `recordmill`."""
    parser = _help_parser(
        "recordmill VERB [flags] [-- flags of Beam]",
        "Convert data sets of images and labels to sharded TFRecord files of tf.Example.",
        EXAMPLES,
        _EXIT_CODES,
    )
    verbs = parser.add_argument_group("verbs")
    for name, verb in VERBS.items():
        verbs.add_argument(name, help=verb.help)
    verbs.add_argument("help VERB", help="Show the flags of a verb, with examples")
    flags = parser.add_argument_group("flags")
    flags.add_argument("-h", "--help", action="store_true", help="Show this")
    flags.add_argument("--version", action="store_true", help="Print the version")
    return parser.format_help()


def verb_help(name: str) -> str:
    """Return the help of a verb."""
    verb = VERBS[name]
    beam = " [-- flags of Beam]" if verb.runs_beam else ""
    notes = f"{_BEAM} {_EXIT_CODES}" if verb.runs_beam else ""
    parser = _help_parser(f"recordmill {name} {verb.usage}{beam}", verb.text, verb.examples, notes)
    groups: dict[str, Any] = {}
    for field in verb_fields(name):
        group = groups.get(field.group) or parser.add_argument_group(field.group or "arguments")
        groups[field.group] = group
        text = f"{field.help} (default {field.shown_default})" if field.shown_default else field.help
        form: dict[str, Any] = {"action": "store_true"} if field.type is bool else {"metavar": field.metavar}
        group.add_argument(field.name if field.is_argument else field.flag, help=text.replace("%", "%%"), **form)
    return parser.format_help()


def _help_parser(usage: str, description: str, examples: Sequence[str], notes: str) -> argparse.ArgumentParser:
    columns = shutil.get_terminal_size().columns - 2  # as argparse does
    shown = "\n".join(_command_lines(example, columns) for example in examples)
    return argparse.ArgumentParser(
        usage=_fill_text(usage, columns, first=" " * len("usage: ")).lstrip(),
        description=_fill_text(description, columns),
        epilog=f"{_fill_text(notes, columns)}\n\nexamples:\n{shown}".strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )


def _fill_text(text: str, columns: int, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text,
        max(columns, _LEAST_COLUMNS),
        initial_indent=first,
        subsequent_indent=rest or first,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _command_lines(command: str, columns: int) -> str:
    """Break a long command into lines for a shell. A flag and its value stay together if possible."""
    room = max(columns, _LEAST_COLUMNS) - len(" \\")
    pairs = _FLAG_AND_VALUE.sub(
        lambda pair: pair[0].replace(" ", "\0") if len(pair[0]) + 6 <= room else pair[0], command
    )
    lines = _fill_text(pairs, room, first=" " * 2, rest=" " * 6)
    return lines.replace("\0", " ").replace("\n", " \\\n")
