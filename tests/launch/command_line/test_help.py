"""Help fits the terminal and ends with commands that run."""

import os
import platform
import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest

from recordmill.launch.cli import main
from recordmill.launch.command_line.documentation import update_tables
from recordmill.launch.command_line.help import program_help, verb_help
from recordmill.launch.command_line.parser import parse
from recordmill.pipelines.formats import FORMATS, all_formats
from recordmill.pipelines.verbs import EXAMPLES, VERBS, verb_fields
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.option import OptionField, option_fields
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


def test_version_of_libraries(capsys, monkeypatch):
    """A report of a fault has them, also if TensorFlow has another name or is missing."""
    packages = {"apache_beam": ["apache-beam"], "tensorflow": ["pytest"], "PIL": ["pillow", "pillow"]}
    monkeypatch.setattr("recordmill.launch.command_line.version.packages_distributions", lambda: packages)
    code, text, _ = answer(capsys, "--version", "--verbose")
    assert (code, text.splitlines()) == (
        0,
        [
            f"recordmill {version('recordmill')}",
            f"CPython {platform.python_version()}",
            platform.platform(),
            f"apache-beam {version('apache-beam')}",
            f"pytest {version('pytest')}",
            "numpy is not installed",
            f"pillow {version('pillow')}",
            "pyarrow is not installed",
        ],
    )


@pytest.mark.parametrize("columns", [64, 80, 120])
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_fits_the_terminal(verb, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = (verb_help(verb) if verb else program_help()).splitlines()
    room = min(columns, 80) if verb == "convert" else columns
    assert room - 15 < max(map(len, lines)) <= room


@pytest.mark.parametrize("format_", ["", "coco", "all"])
def test_narrow_terminal_loses_nothing(format_, monkeypatch):
    texts = []
    for columns in ("1", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        texts.append(verb_help("convert", format_).replace("\\", "").split())
    texts = ["".join(words) for words in texts]
    assert texts[0] == texts[1]


def test_help_of_all_verbs(monkeypatch):
    """Every flag with its defaults is in it."""
    monkeypatch.setenv("COLUMNS", "100")
    assert_golden("help", "\n".join([program_help(), *map(verb_help, VERBS), verb_help("convert", "all")]))


JOBS_FLAGS = """--output --container --format --images --instances --keypoints --captions --masks --label --labels
    --model --split --stratify --group-from --categories --image-format --max-side --shard-size --max-rejects
    --limit --overwrite --add --dry-run --class-map --tile --labels-only"""


def shown_flags(text: str) -> list[str]:
    return re.findall(r"^  (?:-o, )?(--[a-z-]+)", text, re.MULTILINE)


def test_help_of_convert_is_a_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = verb_help("convert")
    assert len(text.splitlines()) <= 50
    assert max(map(len, text.splitlines())) <= 80
    assert sorted(shown_flags(text)) == sorted(JOBS_FLAGS.split())
    assert [name for name in FORMATS if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("format_", FORMATS)
def test_help_of_a_format_has_the_flags_that_its_data_takes(format_, capsys):
    code, text, _ = answer(capsys, "help", "convert", format_)
    assert (code, text) == (0, verb_help("convert", format_))
    assert answer(capsys, "help", format_)[1] == text
    shown = shown_flags(text)
    assert len(shown) == len(set(shown))
    fields = [field for field in verb_fields("convert") if not field.is_argument and field.name not in ASKED]
    assert set(shown) - {f"--{name.replace('_', '-')}" for name in ASKED} == {
        field.flag for field in fields if is_taken(format_, field)
    }


ASKED = ("format", "output", "config", "print_config", "sets")


def is_taken(format_: str, field: OptionField) -> bool:
    """Return whether data of a format takes a flag, also with a model."""
    words = ["convert", "d", "--format", format_, "-o", "o", field.flag, *([] if field.type is bool else ["1"])]
    for more in ([], ["--model", "m"]) if FORMATS[format_].model_options_path else ([],):
        try:
            parse([*words, *more])
        except ConfigError as error:
            if re.match(
                f"{field.flag} (is a flag of|applies to|is not needed|has no effect with(out)? --model)", str(error)
            ):
                continue
        return True
    return False


def test_help_of_all_formats(capsys):
    """Also what a model adds."""
    for word in ("--all", "all"):
        _, text, _ = answer(capsys, "help", "convert", word)
        assert text == verb_help("convert", "all")
    flags = {field.flag for field in verb_fields("convert") if not field.is_argument}
    assert sorted(shown_flags(text)) == sorted(flags)
    assert flags > {field.flag for entry in all_formats() for field in option_fields(entry.options)} - {"--data"}
    with pytest.raises(ConfigError, match="'yolov8' is not a format; the formats are coco, yolo"):
        parse(["help", "convert", "yolov8"])


@pytest.mark.parametrize("text", [program_help(), *map(verb_help, VERBS), verb_help("convert", "all")])
def test_help_has_no_markdown(text):
    assert re.findall(r"`|\]\(|\*\*", text) == []


@pytest.mark.parametrize("columns", [30, 80, 200])
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_examples_are_shown_as_shell_takes_them(verb, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = (verb_help(verb) if verb else program_help()).partition("examples:\n")[2]
    examples = VERBS[verb].examples[verb == "convert" :] if verb else EXAMPLES  # not `sample` on one screen
    commands = [shlex.join(shlex.split(line)) for line in shown.replace("\\\n", " ").splitlines()]
    assert commands == [shlex.join(shlex.split(example)) for example in examples]
    assert 2 <= len(commands) <= 4


def test_examples_run(tmp_path, monkeypatch, capfd, empty_pages):
    """Examples of all verbs run, each command once; the inputs of an example come from the examples before it."""
    monkeypatch.chdir(tmp_path)
    done = set()
    for examples in (EXAMPLES, *(verb.examples for verb in VERBS.values())):
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
    assert {name: update_tables(page) for name, page in pages.items()} == pages, "make templates writes them again"
    fields = [option for entry in all_formats() for option in option_fields(entry.options)]
    meanings = {option.text for option in fields if not option.is_argument}
    assert [text for text in meanings if f"| {text} |" not in "".join(pages.values())] == []


def test_table_says_flag_meaning_and_default():
    names = "common", "all formats", "images", "objects", "coco", "one format"
    page = update_tables("".join(f"<!-- options: {name} -->\nold\n<!-- end of options -->kept\n" for name in names))
    assert page.endswith("<!-- end of options -->kept\n")
    assert "\nold\n" not in page
    assert "| `--masks none\\|png\\|rle\\|both` | Masks of objects. `png`: 8-bit PNG" in page
    shared = (
        "| `--name NAME` | Prefix of the shards' file names. | the format's; `images` (folder); `features` (folder "
        "--model, table --model) |\n"
    )
    assert page.count(shared) == page.count("--name NAME") == 1
    assert "| `--no-crowd` | Skip annotations with `iscrowd` 1. | off |\n" in page
    assert "| cvat | `--frame-name NAME` |" in page
