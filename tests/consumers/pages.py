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


def run_program(name: str, **smaller: int) -> dict[str, Any]:
    """Run the commands of docs/training.md and one of its programs in the current folder. See `run`."""
    for line in re.findall(r"^    recordmill (.*)$", (DOCS / "training.md").read_text(), re.MULTILINE):
        assert main(shlex.split(line)) == 0
    return run((DOCS / "training" / f"{name}.py").read_text(), **smaller)


def run(code: str, **smaller: int) -> dict[str, Any]:
    """Run a program in the current folder.

    Args:
        smaller: Numbers that replace those of the program's line of constants.

    Returns:
        Variables of the program.
    """
    constants = re.compile(r"^([A-Z]+(?:, [A-Z]+)*) = .*\n", re.MULTILINE)
    assert constants.findall(code) == [", ".join(smaller)]
    variables: dict[str, Any] = dict(smaller)
    exec(constants.sub("", code), variables)
    return variables
