"""Options as parameters: what Flex Templates and Airflow ask for by name is what the command line takes."""

import argparse
from collections.abc import Mapping

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.launch.command_line.parameters import TEMPLATES, command_line, parameters
from recordmill.launch.command_line.parser import parse
from recordmill.pipelines.formats import FORMATS
from recordmill.pipelines.verbs import verb_fields
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.option import OptionField, Options, option_fields

DATA = {"data": "gs://b/d", "output": "gs://b/o"}
CLASS_FOLDERS = DATA | {"format": "folder"}
ROWS = DATA | {"format": "table"}
IMAGE_ROWS = ROWS | {"images": "gs://b/i", "image_column": "image"}
MODEL = {"model": "mobilenet-v2"}
PATHS = {
    "coco": {"images": "gs://b/i", "instances": "gs://b/a.json", "output": "gs://b/o"},
    **{name: DATA | {"format": name} for name in FORMATS if name != "coco"},
    "table": IMAGE_ROWS,
    "folder --model": CLASS_FOLDERS | MODEL,
    "table --model": IMAGE_ROWS | MODEL | {"class_column": "class"},
}
"""Parameters of a conversion by format, also with a model."""

RENAMED = {"labels": "label_files", "label": "class_column"}


@pytest.mark.parametrize("command", TEMPLATES)
def test_every_option_is_a_parameter(command):
    options = {RENAMED.get(option.name, option.name) for option in verb_fields(command)}
    left_out = {"dry_run", "part", "progress", "debug", "config", "print_config"}
    local = {"recompute", "images", "tolerance"} if command == "verify" else set()
    assert set(parameters(command)) == options - left_out - local


def required(fields: dict[str, OptionField]) -> set[str]:
    return {field.typed for field in fields.values() if field.is_required}


def test_required_options_match_command():
    assert (required(parameters("convert")), required(parameters("verify"))) == ({"--output"}, {"OUT", "--check"})
    with pytest.raises(ConfigError, match=r"^DATA is missing"):
        parse(["convert"])
    with pytest.raises(
        ConfigError, match=r"^--output is missing. Give the folder of the data set; DATA is missing \(folder or \.zip"
    ):
        parse(["convert", "--format", "folder"])


@pytest.mark.parametrize("command", TEMPLATES)
def test_no_name_is_one_of_beams(command):
    parser = argparse.ArgumentParser(allow_abbrev=False, conflict_handler="resolve", add_help=False)
    for options_class in PipelineOptions.__subclasses__():
        options_class._add_argparse_args(parser)
    assert not {f"--{name}" for name in parameters(command)} & set(parser._option_string_actions)
    assert "--labels" in parser._option_string_actions


def options_of(given: Mapping[str, object]) -> Options:
    command = parse(command_line("convert", given))
    return command.options


def test_value_of_every_parameter_is_taken_by_command():
    """All but those that contradict each other, each with a value that is not its default, in each format that has
    it."""
    tried = set()
    for format_, paths in PATHS.items():
        plain = options_of(paths)
        for option in option_fields(type(plain)):
            name = RENAMED.get(option.name, option.name)
            other_choices = [choice for choice in option.choices if choice != option.default]
            if option.must_be or name in {
                *paths,
                "dry_run",
                "part",
                *NEEDS_ANOTHER,
                *NEEDS_ANOTHER_IN.get(format_, ()),
            }:
                continue
            if option.choices and not other_choices:
                continue
            wanted = VALUES_OF.get(option.metavar) or ("1GB" if option.is_size else VALUES[option.type])
            given = dict(options_of(paths | {name: other_choices[0] if other_choices else wanted}))
            assert given.items() - dict(plain).items() == {(option.attribute, given[option.attribute])}
            tried.add(name)
    paths = {name for name, option in parameters("convert").items() if option.must_be}
    assert tried == parameters("convert").keys() - paths - NEEDS_ANOTHER - {"format", "model", "sets"}


VALUES = {int: 7, float: 0.5, bool: True, str: "val"}
VALUES_OF = {
    "HxW": "64x64",
    "CHAR": ";",
    "VALUE[,…]": "7",
    "KEY=NAME[,…]": "image/width=w",
    "KEY=int64|float32[,…]": "image/width=float32",
}
NEEDS_ANOTHER_IN = {
    "folder": {"class_column", "fields"},
    "folder --model": {"class_column", "add"},
    "table": {"label_as", "max_per_class"},
    "masks": {"masks", "boxes", "fields", "no_crowd", "min_area", "categories", "stratify", "max_per_class"},
}
"""Options that need another option in one format only, or that it refuses."""

NEEDS_ANOTHER = {
    *("writer", "masks", "no_list", "split_seed", "split_by", "group_from", "stratify", "label_separator"),
    *("split_column", "caption_text", "exclude_kinds", "add_as", "sync", "prune"),
    *("text_features", "min_df", "ngrams", "no_lower", "fit_split", "text_names"),
    *("text", "text_column", "image_column", "raw_size"),
    *("classes", "default", "encoding", "group_column", "rename", "container"),
    *("tile_overlap", "tile_min_visible", "keep_empty", "depth_scale", "as", "labels_only"),
}
"""Options that are refused, or do nothing, without another option, or that change the defaults of others."""


def test_lists_are_texts_with_commas_or_lists():
    for images in ("a, b", ["a", "b"], ["a,b"]):
        assert command_line("convert", {"images": images}) == ["convert", "--images=a", "--images=b"]
        assert command_line("convert", {"data": images}) == ["convert", "a", "b"]
    for names in (["c", "a,b"], 'c,"a,b"'):
        assert command_line("convert", {"classes": names}) == ["convert", '--classes=c,"a,b"']


def test_switches():
    for value in (True, "true", "TRUE", "1", "yes"):
        assert command_line("convert", {"gzip": value}) == ["convert", "--gzip"]
    for value in (False, "false", "", None, "0", "no"):
        assert command_line("convert", {"gzip": value}) == ["convert"]


def test_value_that_begins_with_dash_stays_value():
    assert options_of(PATHS["coco"] | {"seed": -3}).seed == -3
    with pytest.raises(ConfigError, match="--name '--gzip' must be letters"):
        options_of(PATHS["coco"] | {"name": "--gzip"})


@pytest.mark.parametrize(
    ("command", "values", "told"),
    [
        ("convert", {"gzip": "maybe"}, "gzip=maybe must be true or false"),
        (
            "convert",
            {"image": "x"},
            "convert has no parameter image; it has add, add_as, allow_empty, as, batch",
        ),
        ("convert", {"labels": "x"}, "convert has no parameter labels"),
        ("verify", {"recompute": 1}, "verify has no parameter recompute"),
    ],
)
def test_refused(command, values, told):
    with pytest.raises(ConfigError) as caught:
        command_line(command, values)
    assert str(caught.value).startswith(told)
