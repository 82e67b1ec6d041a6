"""What Dataflow is told of the templates: in step with the command line, and what that would refuse does not pass."""

import json
import re
import shutil
import subprocess

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.launch.command_line.parameters import TEMPLATES, parameters
from recordmill.launch.command_line.parser import parse
from recordmill.launch.flat import from_flat
from recordmill.launch.services.template_metadata import FOLDER, metadata, text_of, write

GIVEN = {
    "coco": {"images": "gs://b-1/images", "instances": "gs://b-1/a.json", "output": "gs://b-1/out"},
    "folder": {"images": "gs://b-1/images", "output": "gs://b-1/out"},
    "embed": {"images": "gs://b-1/images", "model": "gs://b-1/model.keras", "output": "gs://b-1/out"},
    "table": {"rows": "gs://b-1/rows-*.csv", "output": "gs://b-1/out"},
    "verify": {"folder": "gs://b-1/out", "check": "decode"},
}
# What must be given along with a parameter, or it would do nothing.
WITH = {
    "label_separator": {"label_from": "name"},
    "path_column": {"label_files": "gs://b-1/l.csv"},
    "label_column": {"label_files": "gs://b-1/l.csv"},
    "split_column": {"label_files": "gs://b-1/l.csv"},
    "split_seed": {"split": "a=1/2,b=1/2"},
    "stratify": {"split": "a=1/2,b=1/2"},
    "group_from": {"split": "a=1/2,b=1/2"},
    "groups": {"split": "a=1/2,b=1/2"},
    "caption_text": {"captions": "gs://b-1/c.json"},
}
OF_TEXT = ("text_features", "min_df", "ngrams", "no_lower", "stop_words", "fit_split", "encoders", "text_names")
WITH |= {name: {"captions": "gs://b-1/c.json", "caption_text": "counts"} for name in OF_TEXT}
OF_PICTURES = {"image_column": "path", "images": "gs://b-1/pictures"}
WITH_OF_TABLE = WITH | {
    "split_column": {},
    "group_column": {"split": "a=1/2,b=1/2"},
    "stratify": {"split": "a=1/2,b=1/2", "class_column": "species"},
    "classes": {"class_column": "species"},
    "images": {"image_column": "path"},
    "image_column": {"images": "gs://b-1/pictures"},
    **dict.fromkeys(("raw_size", "check", "format", "max_side", "jpeg_quality", "workers", "duplicates"), OF_PICTURES),
    "text": {"text_column": "words"},
    "text_column": {"text": "counts"},
    **{name: {"text_column": "words", "text": "counts"} for name in OF_TEXT},
}
PAIRED = {"panoptic": "panoptic_masks", "panoptic_masks": "panoptic"}
BEAMS = {"sdk_container_image", "number_of_worker_harness_threads"}

FIELDS = {"name", "label", "helpText", "isOptional", "regexes", "paramType", "enumOptions", "defaultValue"}
"""Those of ParameterMetadata that are used here, of all that it has."""
TYPES = {"TEXT", "GCS_READ_FILE", "GCS_READ_FOLDER", "GCS_WRITE_FOLDER", "BOOLEAN", "ENUM", "NUMBER"}

PATHS = [
    "gs://my-bucket/train2017",
    "gs://my.bucket/a b/ü.zip",
    "gs://b-1",
    "gs://b-1/a,gs://b-2/b",
    "gs://b-1/a , gs://b-2/b",
]
NO_PATHS = [
    "/data/train2017",
    "images",
    "gs:/b-1/x",
    "gs://B/x",
    "s3://b-1/x",
    "gs://",
    "gs://b-1/a,/data",
    "gs://b-1/a,",
    "",
]
VALUES = {
    "paths": (PATHS, NO_PATHS),
    "switch": (["true", "false"], ["yes", "True", "1", ""]),
    "integer": (["0", "7", "-3"], ["", "1.5", "1e3", "x", "--1", " 1", "1" * 30]),
    "output": (PATHS[:3], NO_PATHS + PATHS[3:]),
    "name": (["coco", "a.b-c_9"], ["", "-a", "a b", "a/b", "ä", "a" * 81]),
    "shard_size": (["150MB", "1.5GiB", "4096", "150 mb", "7B"], ["", "MB", "-1", "1,5GB", "1e6", "1TB"]),
    "num_shards": (["1", "64", "99999"], ["0", "-1", "100000", "1.0", ""]),
    "examples_per_shard": (["1", "4096"], ["0", "-4", "4k", ""]),
    "max_side": (["1", "640", "65500"], ["0", "65501", "99999", "640px", ""]),
    "jpeg_quality": (["1", "95", "100"], ["0", "101", "9.5", ""]),
    "workers": (["1", "32", "256"], ["0", "257", "999", ""]),
    "max_rejects": (["0", "1", "0.01", ".5", "1.0", "1e-3", "2.5E-2"], ["-0.1", "1.1", "2", "1%", "0,1", "1e3", ""]),
    "folder": (PATHS[:3], NO_PATHS + PATHS[3:] + ["--debug"]),
    "sample": (["0", "1", "0.01", ".5", "1.0", "1e-3"], ["-0.1", "1.1", "2", "1%", "0,1", "1e3", ""]),
    "min_area": (["0", "0.0", "100", "2.5", "1e3", "1.5e-2"], ["-1", "inf", "nan", "1,5", "10px", ""]),
    "categories": (["person", "person,traffic light", "猫"], ["", " ", ",", " , "]),
    "classes": (["cat,dog", "3"], ["", ","]),
    "text_column": (["description", "title, body"], ["", " ", ","]),
    "split": (
        ["train", "val_2017", "train=0.8,val=0.1,test=0.1", "a=1/3,b=2/3", "a = .5 , b = 5e-1"],
        ["", "a-b", "ü", "a" * 81, "a,b", "a=", "=1", "a=80%,b=20%", "a=1/0", "a=0.8;b=0.2", "a=x"],
    ),
    "group_from": (["patient[0-9]+", "^(.*)_frame"], ["", " "]),
    "groups": (PATHS[:3], NO_PATHS),
    "text_features": (["1", "20000"], ["0", "-1", "1.5", ""]),
    "min_df": (["1", "2", "0.01", ".5", "1.0", "5e-3"], ["0", "-1", "1.5", "2.0", "1%", "1e3", ""]),
    "ngrams": (["1,1", "1,2", "2 , 3"], ["0,1", "1", "1,10", "1-2", ""]),
    "schema": (PATHS[:3], NO_PATHS + PATHS[3:]),
    "input_size": (["224x224", "32x640"], ["", "224", "0x224", "224x", "224 x 224", "10000x10", "224x224x3"]),
    "batch": (["1", "16", "4096"], ["0", "-1", "4097", "1.5", ""]),
    "default": (["a=0", "a=0,b.c=x y", "a="], ["", "a", "=1", "a=1,b"]),
    "rename": (["a=b", "a=b,c.d=e f"], ["", "a", "a=", "=b"]),
    "raw_size": (["224x224", "1x9999"], ["", "224", "0x1", "10000x1", "224X224"]),
    "encoding": (["utf-8", "latin-1", "cp1252"], ["", "a b"]),
    "fit_split": (["train", "val_2017"], ["", "a-b", "a=1", "ü"]),
    "text_names": (
        ["index=a_index,value=a_value", "index = {column}/i"],
        ["", "index", "index=", "size=a", "index=a=b"],
    ),
    "sdk_container_image": (
        ["europe-west4-docker.pkg.dev/p/r/i:1.2-a", "h:5000/i:t", "p/i@sha256:" + "0" * 64],
        ["", "p/i", "p/i@sha256:12", "p/i:a b", "p/i:"],
    ),
    "number_of_worker_harness_threads": (["1", "12"], ["0", "-1", "x", ""]),
}

DESCRIBED = {command: metadata(command)["parameters"] for command in TEMPLATES}
_PARAMETERS = [(command, it["name"], it["regexes"]) for command in TEMPLATES for it in DESCRIBED[command]]
EVERY = list({(name, *regexes): (command, name) for command, name, regexes in _PARAMETERS}.values())
"""Command and parameter; of one that both commands have alike, once."""


def described(command: str, name: str) -> dict:
    (found,) = (it for it in DESCRIBED[command] if it["name"] == name)
    return found


def kind_of(command: str, name: str) -> str:
    return parameters(command)[name].option.kind.value if name in parameters(command) else "Beam's"


def values_of(command: str, name: str) -> tuple[list[str], list[str]]:
    """Values that must pass, and that must not."""
    if kind_of(command, name) == "choice":
        choices = [option["value"] for option in described(command, name)["enumOptions"]]
        return choices, ["", "nonsense", choices[0].upper(), choices[0] + "x"]
    for key in (name, kind_of(command, name)):
        if key in VALUES:
            return VALUES[key]
    assert kind_of(command, name) in ("text", "names"), f"which values of {name} are good?"
    return ["a", "b c"], [""]


def egrep(regex: str, text: str) -> bool:
    """Whether all of the text matches, by a program that knows POSIX's regexes and no other."""
    done = subprocess.run(["grep", "-E", "-q", "-e", regex], input=text + "\n", text=True, env={"LC_ALL": "C.UTF-8"})
    assert done.returncode in (0, 1)
    return done.returncode == 0


def options_of(command: str, **values: str):
    """What a template that is given these values would do."""
    given = GIVEN[command] | values
    arguments = from_flat([f"--command={command}", *(f"--{name}={value}" for name, value in given.items())])
    return parse(arguments[: arguments.index("--")]).options


@pytest.mark.parametrize("command", TEMPLATES)
def test_the_files_are_in_step_with_the_command_line(command):
    assert (FOLDER / f"{command}.json").read_text(encoding="utf-8") == text_of(command), "`make templates` writes them"


def test_writing_writes_them(tmp_path, monkeypatch):
    monkeypatch.setattr("recordmill.launch.services.template_metadata.FOLDER", tmp_path)
    write()
    assert {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()} == {
        f"{command}.json": metadata(command) for command in TEMPLATES
    }


@pytest.mark.parametrize("command", TEMPLATES)
def test_every_option_is_a_parameter(command):
    names = [it["name"] for it in metadata(command)["parameters"]]
    assert sorted(names) == sorted({*parameters(command)} | BEAMS)
    assert len(names) == len(set(names))
    optional = [it["isOptional"] for it in metadata(command)["parameters"]]
    assert optional == sorted(optional)  # what must be given comes first


@pytest.mark.parametrize("command", TEMPLATES)
def test_the_form_is_what_dataflow_takes(command):
    """https://cloud.google.com/dataflow/docs/reference/rest/v1b3/GetTemplateResponse#ParameterMetadata"""
    whole = metadata(command)
    assert set(whole) == {"name", "description", "parameters"}
    for it in whole["parameters"]:
        assert set(it) <= FIELDS
        assert re.fullmatch("[a-z][a-z_]{0,62}", it["name"])
        assert it["label"]
        assert it["helpText"]
        assert "--" not in it["helpText"], "a form has no flags"
        assert "repeatable" not in it["helpText"]
        assert isinstance(it["isOptional"], bool)
        assert it["paramType"] in TYPES
        assert ("enumOptions" in it) == (it["paramType"] == "ENUM")
        assert isinstance(it.get("defaultValue", ""), str)


def test_no_name_of_ours_is_one_of_beams():
    """They are told apart by their names."""
    beams = {name for options in PipelineOptions.__subclasses__() for name in options([])._visible_option_list()}
    assert beams >= BEAMS
    assert beams & {name for command in TEMPLATES for name in parameters(command)} == set()


@pytest.mark.parametrize(("command", "name"), EVERY)
def test_regexes_are_what_all_engines_know(command, name):
    for regex in described(command, name)["regexes"]:
        assert regex.startswith("^")
        assert regex.endswith("$")
        assert not re.search(r"\\|\(\?|[*+?}][?+]|\[\[:", regex), "not of POSIX, RE2 and Java alike"
        assert max((int(number) for number in re.findall(r"[{,](\d+)", regex)), default=0) <= 255


@pytest.mark.skipif(shutil.which("grep") is None, reason="grep is not installed")
@pytest.mark.parametrize(("command", "name"), EVERY)
def test_good_values_match_and_bad_ones_do_not(command, name):
    good, bad = values_of(command, name)
    assert good
    assert bad
    (regex,) = described(command, name)["regexes"]
    assert {value: (egrep(regex, value), bool(re.fullmatch(regex, value))) for value in good} == dict.fromkeys(
        good, (True, True)
    )
    assert {value: (egrep(regex, value), bool(re.fullmatch(regex, value))) for value in bad} == dict.fromkeys(
        bad, (False, False)
    )


@pytest.mark.parametrize(("command", "name"), [it for it in EVERY if it[1] not in BEAMS])
def test_good_values_are_taken(command, name):
    for value in values_of(command, name)[0]:
        more = (WITH_OF_TABLE if command == "table" else WITH).get(name, {})
        if name in PAIRED:  # as many of one as of the other
            more = {PAIRED[name]: ",".join(f"gs://b-1/{number}.zip" for number, _ in enumerate(value.split(",")))}
        options_of(command, **more, **{name: value})


@pytest.mark.parametrize(
    "name",
    [
        *("name", "num_shards", "examples_per_shard", "max_side", "jpeg_quality", "workers", "max_rejects"),
        *("min_area", "seed", "output"),
    ],
)
@settings(max_examples=20)
@given(data=st.data())
def test_whatever_matches_is_taken(name, data):
    value = data.draw(st.from_regex(described("coco", name)["regexes"][0], fullmatch=True))
    options_of("coco", **{name: value})


@pytest.mark.parametrize("command", TEMPLATES)
def test_the_defaults_that_a_form_begins_with_change_nothing(command):
    defaults = {it["name"]: it["defaultValue"] for it in metadata(command)["parameters"] if "defaultValue" in it}
    expected = {"sample": "1.0"} if command == "verify" else {"seed": "0", "gzip": "false", "max_rejects": "0.01"}
    assert expected.items() <= defaults.items()
    for name, value in defaults.items():
        assert re.fullmatch(described(command, name)["regexes"][0], value)
    assert options_of(command, **defaults) == options_of(command)
