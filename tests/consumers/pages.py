"""Programs of the documentation, to be run."""

import re
import shlex
from pathlib import Path
from typing import Any

from recordmill.launch.cli import main

DOCS = Path(__file__).parents[2] / "docs"


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
