"""The part of Recordmill's distribution that needs code; the rest is in pyproject.toml."""

import re
from pathlib import Path

import setuptools

ROOT = Path(__file__).parent
OLDEST_SETUPTOOLS = 77
LAYERS = ("launch", "pipelines", "schemas", "transforms")


def project_value(key: str) -> str:
    """Return a text of pyproject.toml. Python 3.10 has no tomllib."""
    (value,) = re.findall(rf'^{key} = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    return value


def absolute_links(markdown: str, repository: str, revision: str) -> str:
    """Return Markdown with URLs in place of relative links and images, for sites without the repository."""

    def absolute(match: re.Match) -> str:
        text, target = match.groups()
        view = "raw" if text.startswith("!") else "blob"
        return f"{text}({repository}/{view}/{revision}/{'README.md' if target.startswith('#') else ''}{target})"

    return re.sub(r"(!\[[^\]]*\]|\])\((?!\w+:)([^()\s]+)\)", absolute, markdown)


def main() -> None:
    """Build what setuptools was asked for.

    Raises:
        SystemExit: setuptools is too old, or text files replace the links: the package would lack most modules.
    """
    if int(setuptools.__version__.partition(".")[0]) < OLDEST_SETUPTOOLS:  # `python setup.py sdist`, as Beam runs it
        raise SystemExit(
            f"setuptools {setuptools.__version__} cannot read pyproject.toml: {OLDEST_SETUPTOOLS} or later is needed. "
            f"Run `pip install 'setuptools>={OLDEST_SETUPTOOLS}'`."
        )
    if missing := [name for name in LAYERS if not (ROOT / "recordmill" / name).is_dir()]:
        raise SystemExit(
            f"recordmill/{missing[0]} is not a folder: this checkout lacks the symbolic links of recordmill/. "
            "Unpack archives with a program that keeps links. In a clone run `git config core.symlinks true` and "
            "`git checkout -- recordmill`."
        )
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setuptools.setup(
        long_description=absolute_links(readme, project_value("Source"), f"v{project_value('version')}"),
        long_description_content_type="text/markdown",
    )


if __name__ == "__main__":  # docs/release_notes.py uses the functions
    main()
