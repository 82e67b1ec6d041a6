"""Types of the keywords of the library, from the options: `python -m recordmill.launch.command_line.keywords FILE`."""

import json
import sys
from pathlib import Path

from recordmill.pipelines.transform_options import TRANSFORMS, transform_fields
from recordmill.pipelines.verbs import verb_fields
from recordmill.schemas.inputs.option import OptionField

_HEAD = '''"""Types of the keywords of `recordmill.convert` and `recordmill.beam`, made by `make templates`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Protocol

from typing_extensions import TypedDict, Unpack

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from recordmill.data_set import DataSet

    Runner = Sequence[str] | PipelineOptions | None

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Texts = str | Sequence[str]
Pairs = Texts | Mapping[str, str | float]
Shares = Texts | Mapping[str, float | str | Fraction]
'''
_CONVERT = '''class Convert(Protocol):
    """Type of `recordmill.convert`."""

    def __call__(
        self,
        data: Paths | None = None,
        output: Path | None = None,
        *,
        runner_options: Runner = None,
        **options: Unpack[ConvertKeywords],
    ) -> DataSet: ...
'''
_MAX_COLUMNS = 116
_NOT_KEYWORDS = {"data", "output", "dry_run", "debug", "print_config"}


def keywords_module() -> str:
    """Return the source of recordmill/keywords.py."""
    convert = [_keyword_line(field) for field in verb_fields("convert") if field.name not in _NOT_KEYWORDS]
    parts = [_HEAD, _typed_dict_source("Convert", "`recordmill.convert`", convert)]
    for transform in TRANSFORMS:
        fields = transform_fields(transform)
        own = [_keyword_line(field) for field in fields if field.name not in _NOT_KEYWORDS]
        parts.append(_typed_dict_source(transform, f"`recordmill.beam.{transform}`", own))
    return "\n\n".join([*parts, _CONVERT])


def _typed_dict_source(name: str, whose: str, lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f'class {name}Keywords(TypedDict, total=False):\n    """Keywords of {whose}."""\n\n{body}\n'


def _keyword_line(field: OptionField) -> str:
    may_be_none = field.default is None and not field.is_required
    line = f"{field.name}: {_keyword_type(field)}{' | None' if may_be_none else ''}"
    if len(line) <= _MAX_COLUMNS:
        return line
    choices = "\n".join(f"            {json.dumps(choice)}," for choice in field.choices)
    return f"{field.name}: (\n        Literal[\n{choices}\n        ]\n        | None\n    )"


def _keyword_type(field: OptionField) -> str:
    if field.is_shares or field.is_size:
        return "Shares" if field.is_shares else "int | str"
    if field.choices:
        return f"Literal{json.dumps(field.choices)}"
    if field.is_list:
        return "Paths" if field.must_be else "Pairs" if "=" in field.metavar else "Texts"
    return "Path" if field.must_be else field.type.__name__


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(keywords_module(), encoding="utf-8")
