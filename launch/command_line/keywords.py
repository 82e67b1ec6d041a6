"""Types of the keywords of the library, from the options: `python -m recordmill.launch.command_line.keywords FILE`."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from recordmill.pipelines.dataset_options import TerminalOptions
from recordmill.pipelines.verbs import CONVERSIONS, FORMATS, VERBS
from recordmill.schemas.inputs.option import OptionField, options_of
from recordmill.transforms.user_samples.record_options import TRANSFORM_OPTIONS

_HEAD = '''"""Types of the keywords of `recordmill.convert` and `recordmill.beam`, made by `make templates`."""

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

from typing_extensions import TypedDict

Path = str | os.PathLike[str]
Paths = Path | Sequence[Path]
Texts = str | Sequence[str]
Pairs = Texts | Mapping[str, str | float]
Shares = Texts | Mapping[str, float | str | Fraction]
'''


def keywords_module() -> str:
    """Return the source of recordmill/keywords.py."""
    of_all = [_line(each) for each in options_of(TerminalOptions) if each.name in ("progress", "config")]
    lines = {
        verb: [_line(each) for each in options_of(VERBS[verb].options) if each.name != "dry_run"]
        for verb in CONVERSIONS
        if not VERBS[verb].recognises
    }
    shared = _shared(lines.values())
    of_objects = [line for line in _shared(lines[verb] for verb in ("coco", *FORMATS)) if line not in shared]
    of_formats = [line for line in _shared(lines[verb] for verb in FORMATS) if line not in (*shared, *of_objects)]
    others = [f'    "{verb}",' for verb in CONVERSIONS if verb in FORMATS or VERBS[verb].recognises]
    parts = [
        "\n".join([f"{_HEAD}OtherVerb = Literal[", *others, "]\n"]),
        _class("Convert", "TypedDict", "all conversions", [*shared, *of_all]),
        _class("Objects", "ConvertKeywords", "`coco` and all formats", of_objects),
        _class("Format", "ObjectsKeywords", "all formats", of_formats),
    ]
    inherited = {"Convert": shared, "Objects": [*shared, *of_objects], "Format": [*shared, *of_objects, *of_formats]}
    for verb, found in lines.items():
        base = "Format" if verb in FORMATS else "Objects" if verb == "coco" else "Convert"
        own = [line for line in found if line not in inherited[base]]
        parts.append(_class(verb.capitalize(), f"{base}Keywords", f"`{verb}`", own))
    for transform, (model, names) in TRANSFORM_OPTIONS.items():
        own = [_line(each) for each in options_of(model) if each.name in names - {"output"}]
        parts.append(_class(transform, "TypedDict", f"`recordmill.beam.{transform}`", own))
    return "\n\n".join(parts)


def _shared(lines: Iterable[list[str]]) -> list[str]:
    first, *others = lines
    return [line for line in first if all(line in other for other in others)]


def _class(name: str, base: str, whose: str, lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f'class {name}Keywords({base}, total=False):\n    """Keywords of {whose}."""\n\n{body}\n'


def _line(each: OptionField) -> str:
    may_be_none = each.default is None and not each.is_required
    return f"{each.name}: {_type(each)}{' | None' if may_be_none else ''}"


def _type(each: OptionField) -> str:
    if each.is_shares or each.is_size:
        return "Shares" if each.is_shares else "int | str"
    if each.choices:
        return f"Literal{json.dumps(each.choices)}"
    if each.is_list:
        return "Paths" if each.must_be else "Pairs" if "=" in each.metavar else "Texts"
    return "Path" if each.must_be else each.type.__name__


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(keywords_module(), encoding="utf-8")
