"""Help texts, formatted for the width of the terminal."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from recordmill.pipelines.choose_format import format_fields
from recordmill.pipelines.formats import fields_by_name, formats
from recordmill.pipelines.verbs import EXAMPLES, VERBS, Verb, verb_fields
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.option import COMMON, RARE, OptionField

_BEAM = "Flags after a lone -- go to Apache Beam; they say where the job runs."
_EXIT_CODES = (
    "Exit codes: 0 done; 1 the job failed, or verify or extract found a fault; 2 the command or its configuration is "
    "wrong."
)
_DATA = (
    "DATA: a folder, .zip, file or quoted pattern of files: an export of COCO, YOLO, VOC and others, class folders, "
    "rows. Several data sets become one. With --instances or --labels, the folder of the images."
)

_FLAG_AND_VALUE = re.compile(r"--\w[\w-]* (?!-)\S+")
_LEAST_COLUMNS = 20
_SCREEN_COLUMNS, _TEXT_COLUMN = 80, 29
_RARE = "rarely needed"
_COMMON_TEXTS = {
    "format": "Format of DATA, if it is not recognised",
    "images": "Folder or .zip of the images, where DATA has only labels",
    "label": "Column of the classes, in rows or in --labels",
    "labels": "Table of image paths and their classes",
    "instances": "COCO's annotation file: boxes and segmentations",
    "keypoints": "COCO's keypoints",
    "captions": "COCO's captions",
    "model": "Store features of this model of keras.applications",
    "split": "One split, or several: train=0.8,val=0.1,test=0.1",
    "stratify": "Give each split its share of every class",
    "group_from": "Keep images with the same match in one split",
    "categories": "Keep only objects of these categories",
    "tile": "Divide images into tiles of this width and height",
    "max_rejects": "Fraction of rejects that is accepted (default 0.01)",
    "shard_size": "Size of a shard (default 150MB)",
}
"""Texts of the screen that shows the options of all formats; other options have the first sentence of their text."""


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
    flags.add_argument(
        "--version", action="store_true", help="Print the version; --verbose adds Python, the platform and libraries"
    )
    return parser.format_help()


def verb_help(name: str, format_: str = "") -> str:
    """Return the help of a verb.

    Args:
        format_: Format of a conversion whose options to show; `all` for every option; "" for those that most jobs use.

    Raises:
        ConfigError: The format does not exist.
    """
    verb = VERBS[name]
    if verb.converts and not format_:
        return _common_help(verb)
    beam = " [-- flags of Beam]" if verb.runs_beam else ""
    notes = f"{_BEAM} {_EXIT_CODES}" if verb.runs_beam else ""
    usage, text, fields = verb.usage, verb.text, verb_fields(name)
    if verb.converts and format_ != "all":
        entry = formats().get(format_)
        if not entry:
            raise ConfigError(f"{format_!r} is not a format; the formats are {', '.join(formats())}")
        usage = f"DATA -o OUT --format {format_} [more flags]"
        text = f"Convert {entry.text} DATA is {entry.data}."
        fields = format_fields(format_)
    parser = _help_parser(
        f"recordmill {name} {usage}{beam}", text, verb.examples if format_ in ("", "all") else (), notes
    )
    groups: dict[str, Any] = {}
    for field in sorted(fields, key=lambda field: verb.converts and field.rank == RARE):
        heading = _RARE if verb.converts and field.rank == RARE else field.group or "arguments"
        group = groups.get(heading) or parser.add_argument_group(heading)
        groups[heading] = group
        text = _help_of_formats(field) if format_ == "all" else field.help
        text += f" (default {_plain(field.shown_default)})" if field.shown_default else ""
        form: dict[str, Any] = {"action": "store_true"} if field.type is bool else {"metavar": field.metavar}
        group.add_argument(field.typed, help=text.replace("%", "%%"), **form)
    return parser.format_help()


def _help_of_formats(field: OptionField) -> str:
    """Return the first sentence of an option's text; of several, each with the formats that it is for."""
    formats: dict[str, list[str]] = {}
    for name, option in fields_by_name().get(field.name, {}).items():
        if "--" not in name:  # it has the text of the format without --model
            formats.setdefault(option.help, []).append(name)
    if field.is_argument or len(formats) < 2:
        return field.help
    most = max(formats.values(), key=len)
    return "; ".join(
        f"{text} ({'others' if names == most and len(names) > 1 else ', '.join(names)})"
        for text, names in formats.items()
    )


def _common_help(verb: Verb) -> str:
    """Return the help of `convert` on one screen: what DATA is, the formats, and the options of most jobs."""
    columns = max(min(shutil.get_terminal_size().columns, _SCREEN_COLUMNS), _TEXT_COLUMN + _LEAST_COLUMNS)
    parts = [
        _fill_text(f"usage: recordmill convert {verb.usage} [-- flags of Beam]", columns, rest=" " * len("usage: ")),
        "",
        _fill_text(verb.text, columns),
        "",
        _fill_text(_DATA, columns),
        _fill_text(f"Formats: {', '.join(formats())}.", columns),
        *(_fill_text(line, columns, rest="  ") for line in _lines_of_packages()),
        "",
        *(_flag_and_text(field, columns) for field in verb_fields("convert") if field.rank == COMMON),
        "",
        _fill_text("For all flags of a format: recordmill help convert FORMAT, or --all.", columns),
        "",
        "examples:",
        *(_command_lines(example, columns) for example in verb.examples[1:]),
    ]
    return "\n".join(parts) + "\n"


def _lines_of_packages() -> Iterator[str]:
    """Yield a line for each format of another package."""
    for entry in formats().values():
        if entry.package:
            yield f"{entry.name} (of {entry.package}): {entry.what}"


def _flag_and_text(field: OptionField, columns: int) -> str:
    short = "-o, " if field.name == "output" else ""
    words = f"  {short}{field.flag}" + ("" if field.type is bool else f" {field.metavar}")
    text = _fill_text(_COMMON_TEXTS.get(field.name, field.help), columns, first=" " * _TEXT_COLUMN)
    return words + text[len(words) :] if len(words) < _TEXT_COLUMN else f"{words}\n{text}"


def _plain(text: str) -> str:
    return text.replace("`", "")


def _help_parser(usage: str, description: str, examples: Sequence[str], notes: str) -> argparse.ArgumentParser:
    columns = shutil.get_terminal_size().columns - 2  # as argparse does
    shown = "\n".join(["examples:", *(_command_lines(example, columns) for example in examples)]) if examples else ""
    return argparse.ArgumentParser(
        usage=_fill_text(usage, columns, first=" " * len("usage: ")).lstrip(),
        description=_fill_text(description, columns),
        epilog=f"{_fill_text(notes, columns)}\n\n{shown}".strip(),
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
