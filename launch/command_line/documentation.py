"""Write the tables of options in docs/cli.md and docs/formats.md, between the comments that name them.

Update them by `python -m recordmill.launch.command_line.documentation docs/cli.md docs/formats.md`."""

import re
import sys
from pathlib import Path

from recordmill.pipelines.dataset_options import ShowOptions, TerminalOptions
from recordmill.pipelines.verbs import CONVERSIONS, FORMATS, VERBS
from recordmill.schemas.inputs.option import OptionField, Options, options_of
from recordmill.schemas.inputs.options import ConvertOptions, DividedOptions
from recordmill.schemas.inputs.picture_options import PictureOptions
from recordmill.transforms.annotated.format_options import FormatOptions

_TABLE = re.compile(r"(<!-- options: (.+?) -->\n).*?(<!-- end of options -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """Return a page with current tables.

    Raises:
        KeyError: A comment names a table that does not exist.
    """
    rows_by_verb = {name: _rows(VERBS[name].options) for name in CONVERSIONS}
    described = {row for rows in rows_by_verb.values() for row in rows}
    shared = [row for row in _rows(ConvertOptions) if row in described]
    pictures = [row for row in _rows(DividedOptions, PictureOptions) if row in described and row not in shared]
    tables = {name: _without(rows, shared, pictures) for name, rows in rows_by_verb.items()}
    tables["embed"] = _without(tables["embed"], tables["folder"])
    tables["formats"] = _without(_rows(FormatOptions), shared, pictures)
    tables |= {name: _without(tables[name], tables["formats"]) for name in FORMATS}
    tables |= {
        "all conversions": [*shared, *_rows(TerminalOptions)],
        "pictures": pictures,
        "show": _rows(ShowOptions),
    }
    head = "| flag | meaning | default |\n|---|---|---|\n"
    return _TABLE.sub(lambda match: f"{match[1]}{head}{''.join(tables[match[2]])}{match[3]}", page)


def _rows(*options: type[Options]) -> list[str]:
    return list(dict.fromkeys(_row(each) for one in options for each in options_of(one) if not each.is_argument))


def _without(rows: list[str], *others: list[str]) -> list[str]:
    return [row for row in rows if not any(row in other for other in others)]


def _row(each: OptionField) -> str:
    words = each.flag if each.type is bool else f"{each.flag} {each.metavar}".replace("|", "\\|")
    default = "off" if each.type is bool else each.usual or (each.shown_default and f"`{each.shown_default}`")
    return f"| `{words}` | {each.text} | {default} |\n"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
