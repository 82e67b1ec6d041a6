"""Print a version's section of CHANGELOG.md, with links for GitHub's page of a release: `python docs/release_notes.py
VERSION`. Exit code 1 if VERSION is not that of pyproject.toml, or if its section is missing or empty."""

import re
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def section(changelog: str, version: str) -> str:
    """Return the text below the heading `## VERSION (DATE)`, up to the next heading of that level; "" without one."""
    match = re.search(rf"^## {re.escape(version)} \([^\n]+\)\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return match[1].strip() if match else ""


def main(version: str) -> str:
    """Return the notes.

    Raises:
        SystemExit: With what to do.
    """
    setup = runpy.run_path(str(ROOT / "setup.py"))
    if version != (ours := setup["project_value"]("version")):
        raise SystemExit(f"pyproject.toml has version {ours}, and not {version}. Tag the commit that sets the version.")
    if not (text := section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)):
        raise SystemExit(f"CHANGELOG.md has no section `## {version} (DATE)` with text. Rename `## Unreleased`.")
    return setup["absolute_links"](text, setup["project_value"]("Source"), f"v{version}")


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
