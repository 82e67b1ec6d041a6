"""Programs of the documentation, to be run."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


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
