"""Write docs/api.md from the docstrings of what `recordmill.__all__` names.

python docs/make_api.py docs/api.md
"""

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recordmill.beam
from recordmill.split_records import listed

_HEAD = """# The Python API

`import recordmill` has these names; nothing else is public. The page is made of their docstrings by `make templates`.
A public name is renamed or removed only after a release in which it still works and warns (`DeprecationWarning`) with
the name that replaces it. Before 0.1.0 nothing is released, so names may change at any time; the changelog says so.
"""

_BEAM = """# Transforms of Apache Beam

`import recordmill.beam` has these; [beam.md](beam.md) has programs.
"""


def api_page() -> str:
    """Return the page in Markdown."""
    pages = (_HEAD, recordmill), (_BEAM, recordmill.beam)
    return "\n".join(line for head, module in pages for line in _of_module(head, module))


def _of_module(head: str, module: Any) -> Iterator[str]:
    yield head
    for name in sorted((name for name in module.__all__ if name != "__version__"), key=str.lower):
        yield from _of_name(f"{module.__name__}.{name}", getattr(module, name))


def _of_name(path: str, value: Any) -> Iterator[str]:
    name = path.rpartition(".")[2]
    yield f"## {path}\n"
    if inspect.isclass(value):
        yield from _docstring(value)
        for member, of_class in vars(value).items():
            is_described = isinstance(of_class, property) or (inspect.isfunction(of_class) and of_class.__doc__)
            if is_described and not member.startswith("_"):
                yield f"### {name}.{member}{_signature(of_class)}\n"
                yield from _docstring(of_class)
    elif inspect.isfunction(value):
        yield f"`{name}{_signature(value)}`\n"
        yield from _docstring(value)
    else:
        yield f"A {type(value).__name__} of {', '.join(map(repr, value))}.\n"


def _signature(function: object) -> str:
    if not inspect.isfunction(function):
        return ""
    parameters = list(inspect.signature(function).parameters.values())
    shown = [str(each.replace(annotation=each.empty)) for each in parameters if each.name != "self"]
    return f"({', '.join(shown)})"


def _docstring(value: object) -> Iterator[str]:
    if value.__doc__:
        # reading.md has the table of the values.
        text = inspect.cleandoc(value.__doc__).replace(f":\n\n{listed(indent=4)}\n", ", see reading.md.\n")
        yield f"{textwrap.indent(text, '    ')}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(api_page(), encoding="utf-8")
