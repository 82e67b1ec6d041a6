"""The tables of options in docs/cli.md, made of the options. `python -m recordmill.launch.command_line.documentation
docs/cli.md` replaces them, between comments that name them; the rest of the page is left as it is."""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from recordmill.launch.command_line.verbs import TerminalOptions, metavar
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.convert_options import ConvertOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.pipelines.options.option import Kind, OptionField, options_of

_TABLE = re.compile(r"(<!-- options: (.+?) -->\n).*?(<!-- end of options -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """A page with its tables as the options are now.

    Raises:
        KeyError: a comment names a table that does not exist.
    """
    tables = {
        "all conversions": [*_shared(), *options_of(TerminalOptions)],
        "coco": _own(CocoOptions),
        "folder": _own(FolderOptions),
    }
    return _TABLE.sub(lambda match: f"{match[1]}{_table(tables[match[2]])}{match[3]}", page)


def _own(options: type[ConvertOptions]) -> list[OptionField]:
    """Those that a conversion has for itself, or describes otherwise."""
    shared = {each.name: each for each in options_of(ConvertOptions)}
    return [each for each in options_of(options) if each != shared.get(each.name)]


def _shared() -> Iterator[OptionField]:
    """Those that no conversion describes for itself."""
    own = [{each.name for each in _own(options)} for options in (CocoOptions, FolderOptions)]
    return (each for each in options_of(ConvertOptions) if not all(each.name in names for names in own))


def _table(fields: Iterable[OptionField]) -> str:
    lines = ["| flag | meaning | default |", "|---|---|---|"]
    for each in fields:
        words = " ".join(word for word in (each.flag, metavar(each)) if word).replace("|", "\\|")
        usual = "off" if each.option.kind is Kind.SWITCH else each.usual
        default = f"`{usual}`" if usual and not each.option.usual and usual != "off" else usual
        lines.append(f"| `{words}` | {each.option.docs or each.option.help} | {default} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
