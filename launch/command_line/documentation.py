"""The tables of options in docs/cli.md, made of the options. `python -m recordmill.launch.command_line.documentation
docs/cli.md` replaces them, between comments that name them; the rest of the page is left as it is."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from recordmill.launch.command_line.verbs import TerminalOptions, metavar
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.convert_options import ConvertOptions
from recordmill.pipelines.options.dataset_options import ShowOptions
from recordmill.pipelines.options.embed_options import EmbedOptions
from recordmill.pipelines.options.folder_options import FolderOptions, LabelledOptions
from recordmill.pipelines.options.option import Kind, OptionField, Options, options_of
from recordmill.pipelines.options.picture_options import DividedOptions, PictureOptions
from recordmill.pipelines.options.table_options import TableOptions

_TABLE = re.compile(r"(<!-- options: (.+?) -->\n).*?(<!-- end of options -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """A page with its tables as the options are now.

    Raises:
        KeyError: a comment names a table that does not exist.
    """
    pictures = [*_own(DividedOptions, PictureOptions), *_own(PictureOptions, ConvertOptions)]
    shared = [each for each in options_of(ConvertOptions) if not _is_of_each(each)]
    tables = {
        "all conversions": [*shared, *options_of(TerminalOptions)],
        "pictures": [each for each in pictures if not _is_of_each(each)],
        "coco": _own(CocoOptions, PictureOptions, DividedOptions),
        "folder": _own(FolderOptions, PictureOptions, DividedOptions),
        "embed": _own(EmbedOptions, LabelledOptions),
        "table": _own(TableOptions, PictureOptions),
        "show": [each for each in options_of(ShowOptions) if each.option.kind is not Kind.ARGUMENT],
    }
    return _TABLE.sub(lambda match: f"{match[1]}{_table(tables[match[2]])}{match[3]}", page)


def _own(options: type[Options], *bases: type[Options]) -> list[OptionField]:
    """Those that a conversion has for itself, or describes otherwise than its bases."""
    shared = {each.name: each for base in bases for each in options_of(base)}
    return [each for each in options_of(options) if each != shared.get(each.name)]


def _is_of_each(each: OptionField) -> bool:
    """Whether all conversions of pictures describe it for themselves."""
    described = (
        {own.name for own in _own(options, PictureOptions, DividedOptions)} for options in (CocoOptions, FolderOptions)
    )
    return all(each.name in names for names in described)


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
