"""Sphinx's configuration of the site, see `make site`.

The pages are those that GitHub shows. Only the navigation is made here: docs/README.md has its captions and pages.
"""

import re
from importlib.metadata import version as version_of
from pathlib import Path
from posixpath import normpath
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.pycode import ModuleAnalyzer

project = "Recordmill"
version = release = version_of("recordmill")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["docs/site"]

html_theme = "furo"
html_title = "Recordmill"
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # it fetches pages, which browsers refuse to pages that are files
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_heading_anchors = 4
highlight_language = "none"  # indented code is mostly for the shell

smartquotes = False
default_role = "code"  # docstrings are written as Markdown
autodoc_inherit_docstrings = False
autodoc_default_options = {"members": True, "inherited-members": True}
napoleon_use_ivar = True

_INDEX = "docs/README"
_ROW = re.compile(r"^\| (?:\*\*(.+?)\*\*)? ?\| (.*) \|$", re.MULTILINE)
_COLON = "\N{MODIFIER LETTER COLON}"
_PAGE = re.compile(r"\]\(([^)#]+)\.(?:md|rst)[)#]")


def setup(app: Any) -> None:
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", to_restructured_text, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", show_colons, priority=900)
    app.connect("autodoc-skip-member", skip_foreign)
    app.add_lexer("csv", TextLexer)
    conversion = ModuleAnalyzer.for_module("recordmill._convert")
    conversion.analyze()
    conversion.overloads.clear()  # signatures of a hundred options, which docs/cli.md has


def add_navigation(app: Any, page: str, source: list[str]) -> None:
    """Add the sidebar's contents to the first page, and the list of decisions to the page of decisions."""
    if page == "index":
        rows = _ROW.findall(Path(app.srcdir, f"{_INDEX}.md").read_text(encoding="utf-8"))
        parts: dict[str, list[str]] = {"": [_INDEX]}
        caption = ""
        for name, text in rows:
            caption = name or caption
            links = [normpath(f"docs/{link}") for link in _PAGE.findall(text)]
            parts.setdefault(caption, []).extend(links)
        source[0] += "".join(_toctree(pages, name and f":caption: {name}") for name, pages in parts.items())
    elif page == "docs/decisions/README":
        source[0] += _toctree(["0*"], ":glob:", ":maxdepth: 1", hidden="")


def _toctree(pages: list[str], *options: str, hidden: str = ":hidden:") -> str:
    lines = ["", "```{toctree}", *filter(None, (hidden, *options)), *dict.fromkeys(pages), "```", ""]
    return "\n".join(lines)


def to_restructured_text(app: Any, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Mark indented code of a docstring, leave out a list of options, which docs/cli.md has, and hide colons."""
    for number in range(2, len(lines)):
        before, blank, line = lines[number - 2 : number + 1]
        if before.strip() and not blank.strip() and _indent(line) >= _indent(before) + 4:
            lines[number - 2] = f"{before}:" if before.endswith(":") else f"{before} ::"
    if "Example:" in lines:
        lines.insert(lines.index("Example:") + 1, "")
        lines[lines.index("Example:")] = "Example::"
    if "Options:" in lines:
        start = lines.index("Options:")
        end = next((number for number in range(start, len(lines)) if lines[number] in ("Returns:", "Raises:")), start)
        del lines[start:end]
    if what == "property":  # napoleon takes what is before a colon as a type
        lines[:] = [line.replace(":", _COLON) for line in lines]


def show_colons(app: Any, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Undo what `to_restructured_text` did for napoleon."""
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def skip_foreign(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool:
    """Skip members that classes inherit from Python, Beam and msgspec."""
    owner = getattr(value, "fget", value)
    module = getattr(owner, "__module__", None) or getattr(getattr(owner, "__objclass__", None), "__module__", "")
    return skip or (what in ("class", "exception") and not module.startswith("recordmill"))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
