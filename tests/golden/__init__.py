"""Outputs of commands, compared as a whole: `GOLDEN=write python -m pytest TEST` writes them."""

import difflib
import os
from pathlib import Path


def assert_golden(name: str, text: str) -> None:
    """Compare a text with the file of that name in this folder, or write it there."""
    path = Path(__file__).with_name(f"{name}.txt")
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8").splitlines()
    difference = "\n".join(difflib.unified_diff(expected, text.splitlines(), "expected", "found", n=0, lineterm=""))
    assert not difference, difference
