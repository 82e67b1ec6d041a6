"""The code of the documentation's pages, to be run."""

import re
import shlex
from pathlib import Path
from typing import Any

from recordmill.launch.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def code_of(page: str, heading: str) -> str:
    """The Python of a page's section: all blocks that begin with ```python under the heading, one after the other."""
    blocks = re.findall(r"^```python\n(.*?)^```$", _section(page, heading), re.MULTILINE | re.DOTALL)
    assert blocks, f"{page}: no code under {heading}"
    return "\n".join(blocks)


def _section(page: str, heading: str) -> str:
    text = (DOCS / page).read_text()
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return section


def run_section(page: str, heading: str, **smaller: int) -> dict[str, Any]:
    """Run a section's commands and its code in the current folder.

    Args:
        smaller: numbers to take in place of those that the code's first line sets.

    Returns:
        the variables that the code leaves.
    """
    for line in re.findall(r"^    recordmill (.*)$", _section(page, heading), re.MULTILINE):
        assert main(shlex.split(line)) == 0
    first, rest = code_of(page, heading).split("\n", 1)
    names = first.split(" = ")[0].split(", ")
    assert names == list(smaller)
    variables: dict[str, Any] = dict(smaller)
    exec(compile(rest, f"{page}: {heading}", "exec"), variables)
    return variables
