"""Write the tables of options in docs/cli.md and docs/formats.md, and that of the columns of Blocks in
docs/architecture.md, between the comments that name them.

Update them by `python -m recordmill.launch.command_line.documentation docs/cli.md docs/formats.md
docs/architecture.md`."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from recordmill.pipelines.dataset_options import DataOptions, TerminalOptions
from recordmill.pipelines.formats import FORMATS, LABEL_FILE_FORMATS, Format
from recordmill.schemas.block import COLUMNS
from recordmill.schemas.inputs.image_options import TileOptions
from recordmill.schemas.inputs.option import COMMON, OptionField, Options, option_fields
from recordmill.schemas.inputs.options import ConvertOptions, DividedOptions
from recordmill.schemas.inputs.text_options import TextOptions
from recordmill.transforms.annotated.format_options import FormatOptions

_TABLE = re.compile(r"(<!-- (?:options|columns): (.+?) -->\n).*?(<!-- end of (?:options|columns) -->)", re.DOTALL)
_HEAD = "| flag | meaning | default |\n|---|---|---|\n"
_FORMAT_HEAD = "| format | flag | meaning | default |\n|---|---|---|---|\n"
_DATA_HEAD = "| `--format` | reads | DATA |\n|---|---|---|\n"

_Key = tuple[str, str]  # flag and meaning: formats that differ in the default only share a row


def update_tables(page: str) -> str:
    """Return a page with current tables. Each option of a conversion is in one of them.

    Raises:
        KeyError: A comment names a table that does not exist.
    """
    tables = _tables()
    return _TABLE.sub(lambda match: f"{match[1]}{tables[match[2]]}{match[3]}", page)


def _tables() -> dict[str, str]:
    by_format = {name: _option_keys(entry.options) for name, entry in FORMATS.items()}
    with_model = [entry.with_model() for entry in FORMATS.values() if entry.model_options_path]
    by_model = {f"{entry.name} --model": _option_keys(entry.options) for entry in with_model}
    label_file_keys = {key for name in LABEL_FILE_FORMATS for key in by_format[name]}
    users = {"": _option_keys(DataOptions) | _option_keys(TerminalOptions), **by_format, **by_model}
    common = {key[0]: key for options in reversed(users.values()) for key in options if options[key].rank == COMMON}
    keys = {
        "common": [key for options in users.values() for key in options if key in common.values()],
        "all formats": [*_option_keys(ConvertOptions), *_option_keys(DataOptions), *_option_keys(TerminalOptions)],
        "images": [*_option_keys(DividedOptions), *_option_keys(TileOptions)],
        "objects": [key for key in by_format["coco"] if key in label_file_keys],
        "texts": [*_option_keys(TextOptions)],
        "label files": [*_option_keys(FormatOptions)],
        **{name: [*by_format[name]] for name in FORMATS if name not in LABEL_FILE_FORMATS},
        "model": [key for options in by_model.values() for key in options],
    }
    rows: dict[_Key, str] = {}
    tables: dict[str, str] = {}
    for table, options in keys.items():
        users_by_key = {key: {user: users[user][key] for user in users if key in users[user]} for key in options}
        new = {key: _option_row(key, fields) for key, fields in users_by_key.items() if fields and key not in rows}
        tables[table] = "".join(new.values())
        rows |= new
    own = ((name, key, field) for name in LABEL_FILE_FORMATS for key, field in by_format[name].items())
    one_format = "".join(f"| {name} {_option_row(key, {name: field})}" for name, key, field in own if key not in rows)
    data = "".join(map(_data_row, FORMATS.values()))
    more = {"one format": _FORMAT_HEAD + one_format, "DATA": _DATA_HEAD + data, "Block": "".join(_block_rows())}
    return {name: _HEAD + table for name, table in tables.items()} | more


def _block_rows() -> Iterator[str]:
    yield "| column | dtype | unit | fill | meaning |\n|---|---|---|---|---|\n"
    for name, column in COLUMNS.items():
        fill = "empty" if column.fill in ("", b"", ()) else str(column.fill).strip("()")
        yield f"| `{name}` | {column.form} | {column.unit} | {fill} | {column.meaning} |\n"


def _data_row(entry: Format) -> str:
    """Return the row of a format: what it reads, and what DATA is."""
    text = next(field.text for field in option_fields(entry.options) if field.is_argument)
    return f"| `{entry.name}` | {entry.text[0].upper()}{entry.text[1:]} | {text} |\n"


def _option_keys(options: type[Options]) -> dict[_Key, OptionField]:
    return {(field.flag, field.text): field for field in option_fields(options) if not field.is_argument}


def _option_row(key: _Key, users: dict[str, OptionField]) -> str:
    """Return the row of an option that verbs share. Where defaults differ, each but the first has its verbs."""
    first = next(iter(users.values()))
    words = first.flag if first.type is bool else f"{first.flag} {first.metavar}".replace("|", "\\|")
    verbs = defaultdict(list)
    for verb, field in users.items():
        verbs[_default_text(verb, field)].append(verb)
    default, *other_defaults = verbs
    shown = [default, *(f"{other} ({', '.join(verbs[other])})" for other in other_defaults if other)]
    return f"| `{words}` | {key[1]} | {'; '.join(shown)} |\n"


def _default_text(verb: str, field: OptionField) -> str:
    if field.default == verb and field.name == "name":
        return "the format's"
    return "off" if field.type is bool else field.usual or (field.shown_default and f"`{field.shown_default}`")


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(update_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
