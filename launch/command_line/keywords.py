"""Types of the keywords of the library, from the options: `python -m recordmill.launch.command_line.keywords FILE`."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from recordmill.pipelines.dataset_options import TerminalOptions
from recordmill.pipelines.transform_options import TRANSFORM_OPTIONS
from recordmill.pipelines.verbs import CONVERSIONS, VERBS
from recordmill.schemas.inputs.image_options import AnnotatedOptions
from recordmill.schemas.inputs.option import OptionField, Options, option_fields
from recordmill.schemas.inputs.options import ConvertOptions
from recordmill.transforms.annotated.format_options import FormatOptions

_HEAD = '''"""Types of the keywords of `recordmill.convert` and `recordmill.beam`, made by `make templates`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload

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
_COLUMNS = 121  # with the end of the line
_CONVERT = '''class Convert(Protocol):
    """Type of `recordmill.convert`."""

'''
_BASES: dict[str, tuple[type[Options], str]] = {
    "Convert": (ConvertOptions, "all conversions"),
    "Objects": (AnnotatedOptions, "all conversions of images with objects"),
    "Format": (FormatOptions, "all formats"),
}
"""Options that verbs share: each line inherits those above it."""


def keywords_module() -> str:
    """Return the source of recordmill/keywords.py."""
    terminal_lines = [
        _keyword_line(field) for field in option_fields(TerminalOptions) if field.name in ("progress", "config")
    ]
    models = {verb: VERBS[verb].options for verb in CONVERSIONS if not VERBS[verb].recognises}
    lines = {
        verb: [_keyword_line(field) for field in option_fields(model) if field.name != "dry_run"] + terminal_lines
        for verb, model in models.items()
    }
    parts, known, parent = [_HEAD], list[str](), "TypedDict"
    names = dict.fromkeys(models, parent)
    inherited = {parent: known}
    for base, (base_options, whose) in _BASES.items():
        verbs = [verb for verb, model in models.items() if issubclass(model, base_options)]
        own = [line for line in _common_lines(lines[verb] for verb in verbs) if line not in known]
        parts.append(_typed_dict_source(base, parent, whose, own))
        known, parent = [*known, *own], f"{base}Keywords"
        names |= dict.fromkeys(verbs, parent)
        inherited[parent] = known
    for verb, verb_lines in lines.items():
        own = [line for line in verb_lines if line not in inherited[names[verb]]]
        parts.append(_typed_dict_source(verb.capitalize(), names[verb], f"`{verb}`", own))
    for transform, (model, options) in TRANSFORM_OPTIONS.items():
        own = [_keyword_line(field) for field in option_fields(model) if field.name in options - {"output"}]
        parts.append(_typed_dict_source(transform, "TypedDict", f"`recordmill.beam.{transform}`", own))
    overloads = (
        _overload(verb, f"Unpack[{verb.capitalize()}Keywords]" if verb in models else "Any") for verb in CONVERSIONS
    )
    return "\n\n".join([*parts, _CONVERT + "".join(overloads)])


def _overload(verb: str, options: str) -> str:
    words = f'self, verb: Literal["{verb}"], *, runner_options: Runner = None, **options: {options}'
    one_line = f"    def __call__({words}) -> DataSet: ...\n"
    lines = one_line if len(one_line) <= _COLUMNS else f"    def __call__(\n        {words}\n    ) -> DataSet: ...\n"
    return f"    @overload\n{lines}"


def _common_lines(lines: Iterable[list[str]]) -> list[str]:
    first, *other_lines = lines
    return [line for line in first if all(line in other for other in other_lines)]


def _typed_dict_source(name: str, base: str, whose: str, lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f'class {name}Keywords({base}, total=False):\n    """Keywords of {whose}."""\n\n{body}\n'


def _keyword_line(field: OptionField) -> str:
    may_be_none = field.default is None and not field.is_required
    return f"{field.name}: {_keyword_type(field)}{' | None' if may_be_none else ''}"


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
