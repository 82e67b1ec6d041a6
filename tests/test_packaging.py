"""What the distribution, the workflows and the pages for contributors say agrees with the project."""

import re
import runpy
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from readme_renderer import markdown

ROOT = Path(__file__).resolve().parents[1]
SETUP = runpy.run_path(str(ROOT / "setup.py"))
NOTES = runpy.run_path(str(ROOT / "docs" / "release_notes.py"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
REPOSITORY = "https://example.org/a/b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/a.md#b)", "[a](https://example.org/a/b/blob/v1/docs/a.md#b)"),
        ("![a](i.png)", "![a](https://example.org/a/b/raw/v1/i.png)"),
        (
            "[![a](i.svg)](docs/a.md)",
            "[![a](https://example.org/a/b/raw/v1/i.svg)](https://example.org/a/b/blob/v1/docs/a.md)",
        ),
        ("[a](#install)", "[a](https://example.org/a/b/blob/v1/README.md#install)"),
        ("[a](https://b.org/c) <x@b.org>", "[a](https://b.org/c) <x@b.org>"),
        ("f(x) [a] (b)", "f(x) [a] (b)"),
    ],
)
def test_links_become_absolute(text, expected):
    assert SETUP["absolute_links"](text, REPOSITORY, "v1") == expected


class Targets(HTMLParser):
    """Targets of links and images, those of headings included."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.targets += [value for name, value in attrs if name in ("href", "src", "srcset")]


def test_long_description_shows_everywhere():
    """Other sites lack the repository: each link is a URL, and those of the repository name files that exist."""
    html = markdown.render(SETUP["absolute_links"]((ROOT / "README.md").read_text(), REPOSITORY, "v1"))
    targets = Targets(html).targets
    assert len(targets) > 20
    assert [target for target in targets if not re.match("https://|#user-content-", target)] == []
    paths = [target.split("/v1/")[1].partition("#")[0] for target in targets if target.startswith(REPOSITORY)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_checkout_without_links_is_refused(tmp_path):
    """Its wheel would lack most of the package."""
    for name in ("setup.py", "pyproject.toml", "README.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "recordmill").mkdir()
    (tmp_path / "recordmill" / "launch").write_text("../launch")  # as Git leaves it
    with pytest.raises(SystemExit, match="recordmill/launch is not a folder"):
        runpy.run_path(str(tmp_path / "setup.py"), run_name="__main__")


def test_old_setuptools_is_refused(monkeypatch):
    """Its own error shows a schema of licences, and not what to do."""
    monkeypatch.setattr("setuptools.__version__", "65.5.0")
    with pytest.raises(SystemExit, match=r"Run `pip install 'setuptools>=77'`"):
        SETUP["main"]()
    assert f"setuptools>={SETUP['OLDEST_SETUPTOOLS']}" in (ROOT / "pyproject.toml").read_text()


def test_version_is_in_one_place():
    version = SETUP["project_value"]("version")
    assert re.search(rf"^## {re.escape(version)} \(", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    others = ("setup.py", "recordmill/__init__.py", "CITATION.cff", "README.md", "docs/install.md")
    assert [name for name in others if version in (ROOT / name).read_text()] == []


CHANGELOG = """# Changelog

## Unreleased

- c

## 1.1.0 (2026-11-30)

- b ([docs](docs/b.md))

### Fixed
- b2

## 1.1.0rc1 (2026-11-29)

## 1.0.0 (2026-11-28)

a
"""


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.1.0", "- b ([docs](docs/b.md))\n\n### Fixed\n- b2"), ("1.0.0", "a"), ("1.1.0rc1", ""), ("1.1", ""), ("2", "")],
)
def test_release_notes_are_a_section_of_the_changelog(version, expected):
    assert NOTES["section"](CHANGELOG, version) == expected


def test_release_notes_of_another_version_are_refused():
    assert NOTES["main"](SETUP["project_value"]("version"))
    with pytest.raises(SystemExit, match=r"and not 99\.0\. Tag the commit"):
        NOTES["main"]("99.0")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path):
    """A tag can be moved to other code; the comment has the version for people and Dependabot."""
    actions = re.findall(r"uses: (.+)", path.read_text())
    pinned = r"\./\.github/workflows/\w+\.yml|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert [action for action in actions if not re.fullmatch(pinned, action)] == []
    assert actions


def test_one_action_has_one_commit():
    actions = {action for path in WORKFLOWS for action in re.findall(r"uses: (\S+@.+)", path.read_text())}
    assert len({action.partition("@")[0] for action in actions}) == len(actions)


def test_ci_runs_each_python_of_the_classifiers():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]["python"]
    text = (ROOT / "pyproject.toml").read_text()
    assert re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text) == matrix
    assert SETUP["project_value"]("requires-python") == f">={matrix[0]}"
    (pythons,) = (
        step["with"]["python-version"] for step in jobs["dist"]["steps"] if "with" in step and "python" in step["uses"]
    )
    assert sorted(pythons.split(), key=matrix.index) == matrix


def test_named_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z -]*):", makefile, re.MULTILINE))
    targets = {name for names in targets for name in names.split()}
    long = yaml.safe_load((ROOT / ".github/workflows/long.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    named = {*long["target"], *(row["target"] for row in long["include"])}
    for path in (ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", *WORKFLOWS):
        named |= set(re.findall(r"(?:^    |`|&& |run: )make ([a-z-]+)", path.read_text(), re.MULTILINE))
    assert len(named) > 15
    assert named - targets == set()


def test_page_for_agents_is_short():
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 60


@pytest.mark.parametrize("name", ["bug", "request"])
def test_reports_have_versions(name):
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    (asked,) = (part for part in form["body"] if part.get("id") == "versions")
    assert asked["validations"]["required"] is True
    assert "`recordmill --version --verbose`" in asked["attributes"]["description"]


def test_citation_names_the_project():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["repository-code"] == SETUP["project_value"]("Source")
    assert citation["license"] == SETUP["project_value"]("license")
