"""Signature and types of the keywords of the library, from the options:
`python -m recordmill.launch.command_line.keywords recordmill/_keywords.py recordmill/_convert.py`."""

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from keyword import iskeyword
from pathlib import Path

from recordmill.pipelines.transform_options import TRANSFORMS, transform_fields
from recordmill.pipelines.verbs import verb_fields
from recordmill.schemas.command_texts import python_text
from recordmill.schemas.inputs.option import OptionField

_HEAD = '''"""Types of the keywords of `recordmill.convert` and `recordmill.beam`, made by `make templates`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from typing_extensions import TypedDict

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Texts = str | Sequence[str]
Pairs = Texts | Mapping[str, str | float]
Fields = Texts | Mapping[str, str | None]
Shares = Texts | Mapping[str, float | str | Fraction]
Sets = Sequence[Mapping[str, Any]]
'''
_CONVERT = '''"""`recordmill.convert` with its keywords, made by `make templates`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import overload

from recordmill._conversion import run_convert, with_signature

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from apache_beam.options.pipeline_options import PipelineOptions
    from typing_extensions import Never

    from recordmill._data_set import DataSet
    from recordmill._keywords import Fields, Pairs, Path, Paths, Sets, Shares, Texts


@overload
def convert(
    data: Paths,
    output: Path,
    *,
{keywords}
    **unknown: Never,  # so that checkers name a misspelt keyword
) -> DataSet:
    """Convert a data set to sharded TFRecord files, as the command `recordmill convert` does, and open the result.

    Options are the flags of the command with underscores, see docs/cli.md: `num_shards=4`, `split={{"train": 0.8,
    "val": 0.2}}`. `progress="none"` shows no progress; `config` names a YAML file of options.

    A child process runs the job, and ends with this process. Ctrl-C ends it; the same call resumes after the finished
    shards. Logger `recordmill` gets the summary at level INFO, and warnings and the number of rejects at level WARNING.

    Args:
        data: Folder, .zip, file or pattern of files, or a list of them. Its format is recognised, and printed. COCO's
            files may be given without it, by `images`, `instances` and others. Several data sets become one; `sets`
            names those that have options of their own: `sets=[{{"data": "A"}}, {{"data": "B", "split": "val"}}]`.
        output: Folder of the data set that is written.
        runner_options: Flags of Beam as a list, or PipelineOptions, for another runner. This process then builds the
            pipeline, and prints the output of the command.
        format_options: Options of a format of another package, by name.

    Options:

{options}

    Raises:
        ConfigError: The options are wrong. The message has all errors.
        JobError: The job failed. Its cause is the traceback of the child process.

    Example:
        data = recordmill.convert("images", "out", instances="instances.json", split={{"train": 0.8, "val": 0.2}})
        data["train"][0]["boxes"]
    """


@overload
def convert(
    *,
    output: Path,
{keywords}
    **unknown: Never,
) -> DataSet:
    """Convert files of COCO that options name, `images`, `instances`, `captions` and others; or several `sets`."""


@overload
def convert(
    data: Paths,
    output: Path,
    *,
    labels_only: Literal[True],
    **options: Any,
) -> str:
    """Write labels of another format beside linked images, and return the folder."""


@with_signature
def convert(*arguments: Any, **options: Any) -> DataSet | str:
    return run_convert(convert, arguments, options)
'''
_MORE = (
    "runner_options: Sequence[str] | PipelineOptions | None = None",
    "format_options: Mapping[str, Any] | None = None",
)
_FIRST = ("images", "instances", "keypoints", "captions")
_MAX_COLUMNS = 116
_WRAPPER = textwrap.TextWrapper(
    120, initial_indent=" " * 8, subsequent_indent=" " * 12, break_long_words=False, break_on_hyphens=False
)
_MAX_DEFAULT = 50  # a longer default is one for each format
LABELS_ONLY = "labels_only"
_NOT_KEYWORDS = {"data", "output", "dry_run", "part", "debug", "print_config"}


def keywords_module() -> str:
    """Return the source of recordmill/_keywords.py."""
    parts = [_HEAD]
    for transform in TRANSFORMS:
        fields = transform_fields(transform)
        own = [_keyword_line(field) for field in fields if field.name not in _NOT_KEYWORDS]
        parts.append(_typed_dict_source(transform, f"`recordmill.beam.{transform}`", own))
    return "\n\n".join(parts)


def convert_module() -> str:
    """Return the source of recordmill/_convert.py."""
    fields = [field for field in verb_fields("convert") if field.name not in _NOT_KEYWORDS]
    ordered = sorted(fields, key=lambda field: field.name not in _FIRST)
    keywords = "\n".join(f"    {line}," for line in (*map(_parameter, ordered), *_MORE))
    return _CONVERT.format(keywords=keywords, options="\n\n".join(_docstring_sections(fields)))


def _docstring_sections(fields: Iterable[OptionField]) -> Iterator[str]:
    types = {keyword_name(field): _keyword_type(field) for field in verb_fields("convert") if not field.is_argument}
    for heading, options in groupby(fields, key=lambda field: field.group):
        lines = [f"    {heading[0].upper()}{heading[1:]}:"]
        for field in options:
            default = field.shown_default if len(field.shown_default) <= _MAX_DEFAULT else "that of the format"
            text = f"{field.help} (default {default})" if default else field.help
            text = python_text(text.replace("`", ""), types).replace("; repeatable", "; or a list")
            entry = f"{keyword_name(field)}: {text}."
            lines += _WRAPPER.wrap(entry)
        yield "\n".join(lines)


def keyword_name(field: OptionField) -> str:
    """Return the keyword of an option: its name, with _ after a word of Python."""
    return f"{field.name}_" if iskeyword(field.name) else field.name


def _parameter(field: OptionField) -> str:
    default = None if field.is_shares else field.default
    may_be_none = " | None" if default is None else ""
    shown = repr(default) if not isinstance(default, str | tuple) else json.dumps(default).replace("[", "(")
    shown = shown.replace("]", ")")
    name = keyword_name(field)
    if field.name == LABELS_ONLY:
        return f"{name}: Literal[False] = False"  # with True, a folder is returned
    line = f"{name}: {_keyword_type(field)}{may_be_none} = {shown}"
    if len(line) < _MAX_COLUMNS:
        return line
    choices = "\n".join(f"        {json.dumps(choice)}," for choice in field.choices)
    packages = "\n    | str" if field.name == "format" else ""  # formats of other packages
    return f"{field.name}: Literal[\n{choices}\n    ]{packages}\n    {may_be_none.strip()} = {shown}"


def _typed_dict_source(name: str, whose: str, lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f'class {name}Keywords(TypedDict, total=False):\n    """Keywords of {whose}."""\n\n{body}\n'


def _keyword_line(field: OptionField) -> str:
    may_be_none = field.default is None and not field.is_required
    line = f"{field.name}: {_keyword_type(field)}{' | None' if may_be_none else ''}"
    if len(line) <= _MAX_COLUMNS:
        return line
    choices = "\n".join(f"            {json.dumps(choice)}," for choice in field.choices)
    packages = "\n        | str" if field.name == "format" else ""
    return f"{field.name}: (\n        Literal[\n{choices}\n        ]{packages}\n        | None\n    )"


def _keyword_type(field: OptionField) -> str:
    if field.is_shares or field.is_size:
        return "Shares" if field.is_shares else "int | str"
    if field.choices:
        return f"Literal{json.dumps(field.choices)}"
    if field.are_fields or field.are_sets:
        return "Fields" if field.are_fields else "Sets"
    if field.is_list:
        return "Paths" if field.must_be else "Pairs" if "=" in field.metavar else "Texts"
    return "Path" if field.must_be else field.type.__name__


if __name__ == "__main__":
    for path, source in zip(sys.argv[1:], (keywords_module(), convert_module()), strict=True):
        Path(path).write_text(source, encoding="utf-8")
