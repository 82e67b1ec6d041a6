"""Write the tables of options in docs/cli.md and docs/formats.md, and that of the columns of Blocks in
docs/architecture.md, between the comments that name them.

Update them by `python -m recordmill.launch.command_line.documentation docs/cli.md docs/formats.md
docs/architecture.md`."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from recordmill.pipelines.dataset_options import TerminalOptions
from recordmill.pipelines.verbs import CONVERSIONS, FORMATS, VERBS
from recordmill.schemas.block import COLUMNS
from recordmill.schemas.inputs.image_options import StoredImageOptions
from recordmill.schemas.inputs.option import OptionField, Options, options_of
from recordmill.schemas.inputs.options import ConvertOptions, DividedOptions
from recordmill.schemas.inputs.text_options import TextOptions
from recordmill.transforms.annotated.format_options import FormatOptions

_TABLE = re.compile(r"(<!-- (?:options|columns): (.+?) -->\n).*?(<!-- end of (?:options|columns) -->)", re.DOTALL)
_HEAD = "| flag | meaning | default |\n|---|---|---|\n"
_FORMAT_HEAD = "| format | flag | meaning | default |\n|---|---|---|---|\n"

_Key = tuple[str, str]  # flag and meaning: verbs that differ in the default only share a row


def with_tables(page: str) -> str:
    """Return a page with current tables. Each option of a conversion is in one of them.

    Raises:
        KeyError: A comment names a table that does not exist.
    """
    tables = _tables()
    return _TABLE.sub(lambda match: f"{match[1]}{tables[match[2]]}{match[3]}", page)


def _tables() -> dict[str, str]:
    by_verb = {name: _options(VERBS[name].options) for name in CONVERSIONS}
    others = {name: [*options] for name, options in by_verb.items() if name not in FORMATS}
    of_formats = {key for name in FORMATS for key in by_verb[name]}
    keys = {
        "all conversions": [*_options(ConvertOptions), *_options(TerminalOptions)],
        "pictures": [*_options(DividedOptions), *_options(StoredImageOptions)],
        "annotated images": [key for options in others.values() for key in options if key in of_formats],
        "texts": [*_options(TextOptions)],
        "formats": [*_options(FormatOptions)],
        **others,
    }
    users = {**by_verb, "": _options(TerminalOptions)}
    rows: dict[_Key, str] = {}
    tables: dict[str, str] = {}
    for table, options in keys.items():
        found = {key: {verb: users[verb][key] for verb in users if key in users[verb]} for key in options}
        new = {key: _row(key, fields) for key, fields in found.items() if fields and key not in rows}
        tables[table] = "".join(new.values())
        rows |= new
    formats = ((name, key, each) for name in FORMATS for key, each in by_verb[name].items() if key not in rows)
    one_format = "".join(f"| {name} {_row(key, {name: each})}" for name, key, each in formats)
    more = {"one format": _FORMAT_HEAD + one_format, "Block": "".join(_block_rows())}
    return {name: _HEAD + table for name, table in tables.items()} | more


def _block_rows() -> Iterator[str]:
    yield "| column | dtype | unit | fill | meaning |\n|---|---|---|---|---|\n"
    for name, column in COLUMNS.items():
        fill = "empty" if column.fill in ("", b"", ()) else str(column.fill).strip("()")
        yield f"| `{name}` | {column.form} | {column.unit} | {fill} | {column.meaning} |\n"


def _options(options: type[Options]) -> dict[_Key, OptionField]:
    return {(each.flag, each.text): each for each in options_of(options) if not each.is_argument}


def _row(key: _Key, users: dict[str, OptionField]) -> str:
    """Return the row of an option that verbs share. Where defaults differ, each but the first has its verbs."""
    first = next(iter(users.values()))
    words = first.flag if first.type is bool else f"{first.flag} {first.metavar}".replace("|", "\\|")
    verbs = defaultdict(list)
    for verb, each in users.items():
        verbs[_default(verb, each)].append(verb)
    default, *others = verbs
    shown = [default, *(f"{other} ({', '.join(verbs[other])})" for other in others if other)]
    return f"| `{words}` | {key[1]} | {'; '.join(shown)} |\n"


def _default(verb: str, each: OptionField) -> str:
    if each.default == verb and each.name == "name":
        return "the command's"
    return "off" if each.type is bool else each.usual or (each.shown_default and f"`{each.shown_default}`")


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
