"""Options as parameters: what Flex Templates and Airflow ask for by name is what the command line takes."""

import argparse

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.command_line.parameters import COMMANDS, command_line, parameters
from recordmill.launch.command_line.parser import parse
from recordmill.pipelines.verbs import FORMATS
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.option import option_fields

PATHS = {
    "coco": {"images": "gs://b/i", "instances": "gs://b/a.json", "output": "gs://b/o"},
    "folder": {"images": "gs://b/i", "output": "gs://b/o"},
    "embed": {"images": "gs://b/i", "model": "mobilenet-v2", "output": "gs://b/o"},
    "table": {"rows": "gs://b/r.csv", "output": "gs://b/o"},
    **{name: {"data": "gs://b/d", "output": "gs://b/o"} for name in (*FORMATS, "auto")},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_a_parameter(command):
    renamed = {"labels": "label_files", "label": "class_column"}
    options = {renamed.get(option.name, option.name) for option in option_fields(COMMANDS[command])}
    assert set(parameters(command)) == options - {"dry_run"}


@pytest.mark.parametrize("command", COMMANDS)
def test_required_options_match_command(command):
    required = {option.flag for option in parameters(command).values() if option.is_required}
    with pytest.raises(ConfigError) as caught:
        parse([command])
    missing = {word for word in str(caught.value).split() if word.startswith("--")}
    more = {"coco": set(), "table": {"--rows"}, "embed": {"--model"}}.get(command, {"--images"})
    more = {"--data"} if command in (*FORMATS, "auto") else more
    assert required == {"--output", *more} <= missing


@pytest.mark.parametrize("command", COMMANDS)
def test_no_name_is_one_of_beams(command):
    parser = argparse.ArgumentParser(allow_abbrev=False, conflict_handler="resolve", add_help=False)
    for options_class in PipelineOptions.__subclasses__():
        options_class._add_argparse_args(parser)
    assert not {f"--{name}" for name in parameters(command)} & set(parser._option_string_actions)
    assert "--labels" in parser._option_string_actions


@pytest.mark.parametrize("command", COMMANDS)
def test_value_of_every_parameter_is_taken_by_command(command):
    """All but those that contradict each other, each with a value that is not its default."""
    paths = PATHS[command] | (PICTURES if command == "table" else {})
    plain = parse(command_line(command, paths)).options
    for name, option in parameters(command).items():
        if option.must_be or name in (*NEEDS_ANOTHER, *OF_ROWS.get(command, ())):
            continue
        other_choices = [choice for choice in option.choices if choice != option.default]
        if option.choices and not other_choices:
            continue
        wanted = VALUES_OF.get(option.metavar) or ("1GB" if option.is_size else VALUES[option.type])
        given = parse(command_line(command, paths | {name: other_choices[0] if other_choices else wanted})).options
        assert dict(given).items() - dict(plain).items() == {(option.attribute, dict(given)[option.attribute])}


VALUES = {int: 7, float: 0.5, bool: True, str: "val"}
VALUES_OF = {
    "HxW": "64x64",
    "CHAR": ";",
    "KEY=NAME[,…]": "image/width=w",
    "KEY=int64|float32[,…]": "image/width=float32",
}
OF_ROWS = {
    "embed": ("image_column", "class_column", "key", "group_column", "schema", "encoding", "delimiter", "rename"),
    "table": ("label_as",),
}
"""Options that need rows, by command."""
PICTURES = {"images": "gs://b/i", "image_column": "image"}

NEEDS_ANOTHER = {
    *("writer", "masks", "no_list", "split_seed", "split_by", "group_from", "stratify", "label_separator"),
    *("path_column", "label_column", "split_column", "caption_text", "exclude_kinds"),
    *("text_features", "min_df", "ngrams", "no_lower", "fit_split", "text_names"),
    *("text", "text_column", "image_column", "raw_size"),
    *("classes", "default", "encoding", "group_column", "rename"),
}
"""Options that are refused, or do nothing, without another option."""


def test_lists_are_texts_with_commas_or_lists():
    for images in ("a, b", ["a", "b"], ["a,b"]):
        assert command_line("coco", {"images": images}) == ["coco", "--images=a", "--images=b"]


def test_switches():
    for value in (True, "true", "TRUE", "1", "yes"):
        assert command_line("coco", {"gzip": value}) == ["coco", "--gzip"]
    for value in (False, "false", "", None, "0", "no"):
        assert command_line("coco", {"gzip": value}) == ["coco"]


def test_value_that_begins_with_dash_stays_value():
    assert parse(command_line("coco", PATHS["coco"] | {"seed": -3})).options.seed == -3
    with pytest.raises(ConfigError, match="--name '--gzip' must be letters"):
        parse(command_line("coco", PATHS["coco"] | {"name": "--gzip"}))


@pytest.mark.parametrize(
    ("command", "values", "told"),
    [
        ("coco", {"gzip": "maybe"}, "gzip=maybe must be true or false"),
        ("coco", {"image": "x"}, "coco has no parameter image; it has bbox_format, boxes"),
        ("coco", {"labels": "x"}, "coco has no parameter labels"),
        ("verify", {"recompute": 1}, "verify has no parameter recompute"),
    ],
)
def test_refused(command, values, told):
    with pytest.raises(ConfigError) as caught:
        command_line(command, values)
    assert str(caught.value).startswith(told)
