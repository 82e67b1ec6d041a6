"""Write docs/api.md from the docstrings of what `recordmill.__all__` names.

python docs/make_api.py docs/api.md
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recordmill.beam
from recordmill import formats
from recordmill._data_set import RecordSource
from recordmill._global_order import HostOrder
from recordmill._text_encoders import Encoder
from recordmill.schemas.features import Reading
from recordmill.schemas.inputs.option import Heading

_HEAD = """# The Python API

`import recordmill` has these names; nothing else is public. A public name is renamed or removed only after a release in
which it still works and warns (`DeprecationWarning`) with the name that replaces it. Before 0.1.0 nothing is released,
so names may change at any time; the changelog says so.

The page is made of docstrings by `make templates`. Arguments follow their function. `help(recordmill.open)` also has
the errors that it raises, and `help(recordmill.Manifest)` describes the attributes.
"""

_RETURNED = """
# Objects that these return

Their classes are not public: only functions and methods above make them.

| name | meaning |
|---|---|
"""
_CLASSES = (Encoder, HostOrder, Reading, RecordSource)

_BEAM = """
# Transforms of Apache Beam

`import recordmill.beam` has these; [beam.md](beam.md) has programs.
"""

_FORMATS = """
# Parts of a format of your own

`import recordmill.formats` has these; [formats_of_your_own.md](formats_of_your_own.md) has a package. Members of
FormatOptions that a format sets or overrides are there, too.

| name | meaning |
|---|---|
"""

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):\n((?:(?: .*)?(?:\n|$))+)", re.MULTILINE)
_LIST = re.compile(
    r"\n\n[^\n]*(?:\n[^\n]+)*:\n\n.*", re.DOTALL
)  # a paragraph before a list, to the end: reading.md has it
_MOST_PARAMETERS = 12
_ENTRY = re.compile(r"^    (\w[\w, ]*): ((?:.*\n?)(?:^     .*\n?)*)", re.MULTILINE)


def api_page() -> str:
    """Return the page in Markdown."""
    returned = (line for value in _CLASSES for line in _of_name(value.__name__, value))
    parts = (row for name in formats.__all__ for row in _described(f"**{name}**", getattr(formats, name)))
    lines = (
        *_of_module(_HEAD, recordmill),
        *(_RETURNED.rstrip(), *returned),
        *_of_module(_BEAM, recordmill.beam),
        *(_FORMATS.rstrip(), *parts),
    )
    return "".join(f"{line}\n" for line in lines)


def _of_module(head: str, module: Any) -> Iterator[str]:
    yield f"{head}\n| name | meaning |\n|---|---|"
    for name in sorted((name for name in module.__all__ if name != "__version__"), key=str.lower):
        yield from _of_name(name, getattr(module, name))


def _of_name(name: str, value: Any) -> Iterator[str]:
    yield from _described(f"**{name}**", value)
    for member, of_class in _members(value).items() if inspect.isclass(value) else ():
        is_described = isinstance(of_class, property) or (inspect.isfunction(of_class) and of_class.__doc__)
        if is_described and not member.startswith("_"):
            yield from _described(f"{name}.**{member}**", of_class)


def _members(value: type) -> dict[str, Any]:
    """Return the members of a class of Recordmill, with those of its bases."""
    classes = [each for each in reversed(value.__mro__) if each.__module__.startswith("recordmill.")]
    return {name: member for each in classes for name, member in vars(each).items()}


def _described(name: str, value: Any) -> Iterator[str]:
    """Yield the row of an object, and those of its arguments or attributes."""
    if isinstance(value, Heading):
        yield f"| {name} | Heading of options: `.opt(text, default)` declares one. |"
        return
    if not (callable(value) or isinstance(value, property)):
        yield f"| {name} | A {type(value).__name__} of {', '.join(map(repr, value))}. |"
        return
    text = inspect.cleandoc(value.__doc__ or "")
    sections = {match[1]: match[2] for match in _SECTION.finditer(text)}
    text = _LIST.sub("", _SECTION.sub("", text))
    returns = f" Returns: {sections['Returns']}" if "Returns" in sections else ""
    attributes = ", ".join(names for names, _ in _entries(sections.get("Attributes", "")))
    shown = f" Attributes: {attributes}." if attributes else ""
    yield f"| {name}{_signature(value)} | {_line(text + returns + shown)} |"
    for names, meaning in _entries(sections.get("Args", "")):
        yield f"| · {names} | {_line(meaning)} |"


def _entries(section: str) -> list[tuple[str, str]]:
    """Return names and meaning of each entry of a section."""
    return [(", ".join(f"`{each}`" for each in entry[1].split(", ")), entry[2]) for entry in _ENTRY.finditer(section)]


def _signature(function: object) -> str:
    if not inspect.isfunction(function):
        return ""
    parameters = list(inspect.signature(function).parameters.values())
    shown = [str(each.replace(annotation=each.empty)) for each in parameters if each.name != "self"]
    if len(shown) > _MOST_PARAMETERS:  # those of recordmill.convert are in docs/cli.md
        shown = [*(each.name for each in parameters if each.kind is not each.KEYWORD_ONLY), "*", "…"]
    return f"`({', '.join(shown)})`"


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(api_page(), encoding="utf-8")
