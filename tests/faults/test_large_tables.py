"""A table of ten million rows whose last row is of another type than all before it. It is drawn, and not kept."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import manifest_of, rejects_of

ROWS = 10_000_000
MOST_MB = 1500
"""What docs/tables.md says of memory on two cores, and room for other machines."""


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("large") / "rows.csv.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("id,size\n")
        for start in range(0, ROWS, 100_000):
            file.write("".join(f"{number},{number % 1000}\n" for number in range(start, start + 100_000)))
        file.write(f"{ROWS},large\n")
    return path


def run(*words: object) -> tuple[str, float]:
    """What a command says that must end well, in one line, and the most memory that it had, in MB."""
    process = subprocess.Popen(
        [sys.executable, "-m", "recordmill.launch.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    told = " ".join(process.stdout.read().split())
    _, status, used = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return told, used.ru_maxrss / 1024


def test_a_type_that_changes_at_row_ten_million(table, tmp_path):
    flags = ["--rows", table, "--key", "id", "--output"]
    told, found = run("table", *flags, tmp_path / "none", "--dry-run")
    assert found < MOST_MB
    assert (
        f"column size is written as text, as it has 10,000,000 whole numbers and 1 text, the first 'large' in {table} "
        "row 10000001"
    ) in told
    columns = [{"name": "size", "feature": "size", "type": "int64"}]
    (tmp_path / "schema.json").write_text(json.dumps({"columns": columns}))
    _, found = run("table", *flags, tmp_path / "typed", "--schema", tmp_path / "schema.json")
    print(f"PEAK {found:.0f} MB")
    assert found < MOST_MB
    assert manifest_of(tmp_path / "typed")["splits"]["train"]["images"]["written"] == ROWS
    assert [(reject["id"], reject["reason"]) for reject in rejects_of(tmp_path / "typed")] == [(ROWS + 1, "other_type")]
