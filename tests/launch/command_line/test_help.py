"""Help fits the terminal and ends with commands that run."""

import os
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest

from recordmill.launch.cli import main
from recordmill.launch.command_line.documentation import with_tables
from recordmill.launch.command_line.help import program_help, verb_help
from recordmill.launch.command_line.parser import parse
from recordmill.pipelines.verbs import CONVERSIONS, EXAMPLES, FORMATS, VERBS
from recordmill.schemas.inputs.option import options_of
from tests.golden import assert_golden


def answer(capsys, *typed: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        parse(typed)
    return caught.value.code, *capsys.readouterr()


@pytest.mark.parametrize("typed", [("--help",), ("-h",), ("help",)])
def test_help_of_the_program(typed, capsys):
    assert answer(capsys, *typed) == (0, program_help(), "")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb(verb, capsys):
    for typed in ((verb, "--help"), (verb, "-h"), ("help", verb), (verb, "--unknown", "-h")):
        assert answer(capsys, *typed) == (0, verb_help(verb), "")


def test_version(capsys):
    assert answer(capsys, "--version") == (0, f"recordmill {version('recordmill')}\n", "")


@pytest.mark.parametrize("columns", [64, 80, 120])
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_the_terminal(verb, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = (verb_help(verb) if verb else program_help()).splitlines()
    assert max(map(len, lines)) <= columns
    assert max(map(len, lines)) > columns - 15


def test_narrow_terminal_loses_nothing(monkeypatch):
    texts = []
    for columns in ("1", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        texts.append(verb_help("coco").replace("\\", "").split())
    texts = ["".join(words) for words in texts]
    assert texts[0] == texts[1]


def test_help_of_all_verbs(monkeypatch):
    """Every flag with its default is in it."""
    monkeypatch.setenv("COLUMNS", "100")
    assert_golden("help", "\n".join([program_help(), *map(verb_help, VERBS)]))


@pytest.mark.parametrize("columns", [30, 80, 200])
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_examples_are_shown_as_shell_takes_them(verb, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = (verb_help(verb) if verb else program_help()).partition("examples:\n")[2]
    commands = [shlex.join(shlex.split(line)) for line in shown.replace("\\\n", " ").splitlines()]
    assert commands == [shlex.join(shlex.split(each)) for each in (VERBS[verb].examples if verb else EXAMPLES)]
    assert 2 <= len(commands) <= 4


def test_examples_run(tmp_path, monkeypatch, capfd):
    """Examples of all verbs run, each command once; the inputs of an example come from the examples before it."""
    monkeypatch.chdir(tmp_path)
    done = set()
    for examples in (EXAMPLES, *(verb.examples for name, verb in VERBS.items() if name not in FORMATS)):
        for command in examples:
            program, *arguments = shlex.split(command)
            assert program == "recordmill"
            if command not in done:
                assert main(arguments) == 0, (command, capfd.readouterr())
            done.add(command)
        wanted = {word for command in examples for word in command.split() if os.path.exists(word)}
        assert {word.split("/")[0] for word in wanted} <= {word for command in examples for word in command.split()}


# Tables of docs

DOCS = Path(__file__).parents[3] / "docs"


def test_pages_have_options_unchanged():
    pages = {name: (DOCS / name).read_text(encoding="utf-8") for name in ("cli.md", "formats.md", "architecture.md")}
    assert {name: with_tables(page) for name, page in pages.items()} == pages, "make templates writes them again"
    meanings = {each.text for verb in CONVERSIONS for each in options_of(VERBS[verb].options) if each.flag}
    assert [text for text in meanings if f"| {text} |" not in "".join(pages.values())] == []


def test_table_says_flag_meaning_and_default():
    names = "all conversions", "annotated images", "coco", "one format"
    page = with_tables("".join(f"<!-- options: {name} -->\nold\n<!-- end of options -->kept\n" for name in names))
    assert page.endswith("<!-- end of options -->kept\n")
    assert "\nold\n" not in page
    assert "| `--masks none\\|png\\|rle\\|both` | Masks of objects. `png`: 8-bit PNG" in page
    shared = (
        "| `--name NAME` | Prefix of the shards' file names. | the command's; `images` (folder); `features` (embed) |\n"
    )
    assert page.count(shared) == page.count("--name NAME") == 1
    assert "| `--no-crowd` | Skip annotations with `iscrowd` 1. | off |\n" in page
    assert "| cvat | `--images DIR\\|ZIP` |" in page
