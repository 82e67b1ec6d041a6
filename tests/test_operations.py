"""The operator's table says how things were checked: by tests that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_tests_that_it_names_are_there():
    named = re.findall(r"(tests/\S+\.py)::(\w+)", (ROOT / "docs" / "operations.md").read_text())
    assert named
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert missing == []
