"""The metadata of Dataflow's templates: what Flex Templates ask for, in step with the command line."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.launch.command_line.parameters import TEMPLATES, parameters
from recordmill.launch.command_line.parser import parse
from recordmill.launch.flat import from_flat
from recordmill.launch.services.template_metadata import metadata, write
from tests.launch.command_line.test_parameters import PATHS

REQUIRED = {"convert": PATHS["coco"], "verify": {"folder": "gs://b/o", "check": "decode"}}
BEAMS = {"sdk_container_image", "number_of_worker_harness_threads"}
TYPES = {"TEXT", "GCS_READ_FILE", "GCS_READ_FOLDER", "GCS_WRITE_FOLDER", "BOOLEAN", "ENUM", "NUMBER"}
FIELDS = {"name", "label", "helpText", "isOptional", "regexes", "paramType", "enumOptions", "defaultValue"}
NOT_EVERYWHERE = r"\\|\(\?|[*+?}][?+]|\[\[:"
"""Parts of regexes that POSIX, RE2 and Java do not all know."""

VALUES = {
    "images": (
        ["gs://my.bucket/a b/ü.zip", "gs://b-1/a , gs://b-2"],
        ["/data", "s3://b-1/x", "gs://B/x", "gs://b-1/a,"],
    ),
    "output": (["gs://b-1", "gs://my-bucket/out"], ["out", "gs://", "gs://b-1/a,gs://b-2/b"]),
    "gzip": (["true", "false"], ["yes", "True"]),
    "seed": (["0", "-3"], ["1.5", "x", "1" * 30]),
    "layout": (["detection", "keras"], ["nonsense", "Detection"]),
    "num_shards": (["1", "99999"], ["0", "-1", "100000"]),
    "examples_per_shard": (["1", "9" * 18], ["0", "1" + "0" * 18]),
    "workers": (["1", "256"], ["0", "1000"]),
    "max_side": (["1", "65500"], ["0", "100000"]),
    "shard_size": (["150MB", "1.5GiB", "4096"], ["MB", "-1", "1TB"]),
    "max_rejects": (["0", ".5", "1e-3"], ["-0.1", "1.1", "1%"]),
    "split": (["val_2017", "a=1/3,b=2/3"], ["a-b", "a,b", "a=", "a=80%,b=20%"]),
    "sdk_container_image": (["h:5000/i:t", "p/i@sha256:" + "0" * 64], ["p/i", "p/i@sha256:12", "p/i:a b"]),
    "number_of_worker_harness_threads": (["1", "12"], ["0", "-1"]),
}
"""Accepted and refused values of parameters of `convert`."""


def regex_of(name: str) -> str:
    (regex,) = (parameter["regexes"][0] for parameter in metadata("convert")["parameters"] if parameter["name"] == name)
    return regex


def options_of(command: str, **values: str):
    """The options of a template that is given these values."""
    given = REQUIRED[command] | values
    arguments = from_flat([f"--command={command}", *(f"--{name}={value}" for name, value in given.items())])
    parsed = parse(arguments[: arguments.index("--")])
    return parsed.options


@pytest.mark.parametrize("command", TEMPLATES)
def test_metadata_fits_flex_templates(command, tmp_path):
    """https://cloud.google.com/dataflow/docs/reference/rest/v1b3/GetTemplateResponse#ParameterMetadata"""
    write(tmp_path / "templates")
    whole = json.loads((tmp_path / "templates" / f"{command}.json").read_text())
    assert whole == metadata(command)
    assert set(whole) == {"name", "description", "parameters"}
    parameter_list = whole["parameters"]
    assert sorted(parameter["name"] for parameter in parameter_list) == sorted({*parameters(command)} | BEAMS)
    assert [parameter["isOptional"] for parameter in parameter_list] == sorted(
        parameter["isOptional"] for parameter in parameter_list
    )  # required ones first
    for parameter in parameter_list:
        assert set(parameter) <= FIELDS
        assert re.fullmatch("[a-z][a-z_]{0,62}", parameter["name"])
        assert parameter["label"]
        assert not re.search("^$|--|repeatable", parameter["helpText"])  # a form has no flags
        assert parameter["paramType"] in TYPES
        assert ("enumOptions" in parameter) == (parameter["paramType"] == "ENUM")
        assert isinstance(parameter.get("defaultValue", ""), str)
        (regex,) = parameter["regexes"]
        assert re.fullmatch(r"\^.+\$", regex)
        assert not re.search(NOT_EVERYWHERE, regex)
        assert max((int(number) for number in re.findall(r"[{,](\d+)", regex)), default=0) <= 255


@pytest.mark.parametrize("name", VALUES)
def test_good_values_match_and_bad_ones_do_not(name):
    good, bad = VALUES[name]
    matched = [value for value in [*good, *bad, ""] if re.fullmatch(regex_of(name), value)]
    assert matched == good


@pytest.mark.parametrize("name", ["output", "seed", "num_shards", "examples_per_shard", "max_rejects", "min_area"])
@settings(max_examples=20)
@given(data=st.data())
def test_command_takes_every_value_that_matches(name, data):
    options_of("convert", **{name: data.draw(st.from_regex(regex_of(name), fullmatch=True))})


@pytest.mark.parametrize("command", TEMPLATES)
def test_defaults_that_form_shows_change_nothing(command):
    with_defaults = {
        parameter["name"]: parameter for parameter in metadata(command)["parameters"] if "defaultValue" in parameter
    }
    defaults = {name: parameter["defaultValue"] for name, parameter in with_defaults.items()}
    expected = {"verify": {"sample": "1.0"}, "convert": {"seed": "0", "gzip": "false"}}[command]
    assert expected.items() <= defaults.items()
    assert all(re.fullmatch(with_defaults[name]["regexes"][0], value) for name, value in defaults.items())
    assert options_of(command, **defaults) == options_of(command)
