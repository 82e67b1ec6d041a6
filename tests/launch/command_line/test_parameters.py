"""Options as parameters: what Flex Templates and Airflow ask for by name is what the command line takes."""

import argparse
from dataclasses import fields

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.command_line.parameters import COMMANDS, Parameter, command_line, parameters
from recordmill.launch.command_line.parser import coco_options, folder_options, parse
from recordmill.schemas.errors import ConfigError

OPTIONS = {"coco": coco_options, "folder": folder_options}
PATHS = {
    "coco": {"images": "gs://b/i", "instances": "gs://b/a.json", "output": "gs://b/o"},
    "folder": {"images": "gs://b/i", "output": "gs://b/o"},
}


def by_name(command: str) -> dict[str, Parameter]:
    return {parameter.name: parameter for parameter in parameters(command)}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_a_parameter(command):
    renamed = {"labels": "label_files"} if command == "folder" else {}
    options = {renamed.get(field.name, field.name) for field in fields(COMMANDS[command])}
    assert set(by_name(command)) == options - {"dry_run"}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_must_be_given_is_what_the_command_misses(command):
    required = {parameter.flag for parameter in parameters(command) if parameter.required}
    with pytest.raises(ConfigError) as caught:
        OPTIONS[command](parse([command]))
    missing = {word for word in str(caught.value).split() if word.startswith("--")}
    assert required == {"--images", "--output"} <= missing


@pytest.mark.parametrize("command", COMMANDS)
def test_no_name_is_one_of_beams(command):
    parser = argparse.ArgumentParser(allow_abbrev=False, conflict_handler="resolve", add_help=False)
    for options_class in PipelineOptions.__subclasses__():
        options_class._add_argparse_args(parser)
    assert not {f"--{name}" for name in by_name(command)} & set(parser._option_string_actions)
    assert "--labels" in parser._option_string_actions


def test_kinds_choices_and_defaults():
    coco = by_name("coco")
    kinds = {name: coco[name].kind for name in ("images", "gzip", "num_shards", "min_area", "layout", "categories")}
    assert kinds == {
        "images": "list",
        "gzip": "switch",
        "num_shards": "integer",
        "min_area": "number",
        "layout": "choice",
        "categories": "text",
    }
    assert coco["layout"].choices == ("detection", "keras", "tfds")
    assert (coco["layout"].default, coco["gzip"].default, coco["num_shards"].default) == ("detection", False, None)
    assert [name for name, parameter in coco.items() if parameter.choices] == [
        name for name, parameter in coco.items() if parameter.kind == "choice"
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_value_of_every_parameter_is_taken_by_the_command(command):
    """All but those that contradict each other, each with a value that is not its default."""
    values = {
        "text": lambda p: {"split": "val", "shard_size": "1GB"}.get(p.name, "x"),
        "integer": lambda p: 7,
        "number": lambda p: 0.5,
        "switch": lambda p: True,
        "choice": lambda p: next((choice for choice in p.choices if choice != p.default), p.default),
    }
    for parameter in parameters(command):
        if parameter.kind == "list" or parameter.name in ("output", "writer"):
            continue
        wanted = values[parameter.kind](parameter)
        typed = command_line(command, PATHS[command] | {parameter.name: wanted})
        parsed = parse(typed)
        plain = parse(command_line(command, PATHS[command]))
        changed = {name for name in vars(parsed) if getattr(parsed, name) != getattr(plain, name)}
        only_one = parameter.kind == "choice" and len(parameter.choices) == 1
        assert changed == (set() if only_one else {parameter.flag[2:].replace("-", "_")}), parameter


def test_lists_are_texts_with_commas_or_lists():
    for images in ("a, b", ["a", "b"], ["a,b"]):
        assert command_line("coco", {"images": images}) == ["coco", "--images=a", "--images=b"]


@pytest.mark.parametrize("value", [True, "true", "TRUE", "1", "yes"])
def test_switches_that_are_on(value):
    assert command_line("coco", {"gzip": value}) == ["coco", "--gzip"]


@pytest.mark.parametrize("value", [False, "false", "", None, "0", "no"])
def test_switches_that_are_off(value):
    assert command_line("coco", {"gzip": value}) == ["coco"]


def test_a_value_that_begins_with_a_dash_stays_a_value():
    assert parse(command_line("coco", {"name": "--gzip", "seed": -3})).name == "--gzip"
    assert parse(command_line("coco", {"seed": -3})).seed == -3


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"gzip": "maybe"}, "gzip=maybe must be true or false"),
        ({"image": "x"}, "coco has no parameter image; it has boxes, captions"),
        ({"labels": "x"}, "coco has no parameter labels"),
    ],
)
def test_what_is_refused(values, told):
    with pytest.raises(ConfigError) as caught:
        command_line("coco", values)
    assert str(caught.value).startswith(told)
