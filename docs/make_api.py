"""Write docs/api.md from the docstrings of what `recordmill.__all__` names.

python docs/make_api.py docs/api.md
"""

import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import recordmill

_HEAD = """# The Python API

`import recordmill` has these names; nothing else is public. The page is made of their docstrings by `make templates`.
A public name is renamed or removed only after a release in which it still works and warns (`DeprecationWarning`) with
the name that replaces it. Before 0.1.0 nothing is released, so names may change at any time; the changelog says so.
"""


def api_page() -> str:
    """Return the page in Markdown."""
    names = sorted((name for name in recordmill.__all__ if name != "__version__"), key=str.lower)
    return "\n".join([_HEAD, *(line for name in names for line in _of_name(name))])


def _of_name(name: str) -> Iterator[str]:
    value = getattr(recordmill, name)
    yield f"## recordmill.{name}\n"
    if inspect.isclass(value):
        yield from _docstring(value)
        for member, of_class in vars(value).items():
            if not member.startswith("_") and (inspect.isfunction(of_class) or isinstance(of_class, property)):
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
        yield f"{textwrap.indent(inspect.cleandoc(value.__doc__), '    ')}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(api_page(), encoding="utf-8")
