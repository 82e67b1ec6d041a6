"""Options as Airflow Params, and Params as options; tests/airflow runs them in Airflow."""

import json
import re
import subprocess
import sys
from datetime import datetime

import pytest

from recordmill.launch.command_line.parameters import command_line, parameters
from recordmill.launch.services.airflow_params import airflow_params, run_values, template_parameters
from recordmill.pipelines.formats import FORMATS
from recordmill.schemas.errors import ConfigError

INPUTS = {"images": ["gs://b/images"], "instances": ["gs://b/a.json"]}
WHEN = datetime(2026, 11, 21, 2)
NULLABLE_TEXT = {"type": ["null", "string"], "default": None}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("data", {"type": ["null", "array"], "default": None}),
        ("instances", {"type": ["null", "array"], "default": None}),
        ("gzip", {"type": "boolean", "default": False}),
        (
            "layout",
            NULLABLE_TEXT | {"enum": [None, "detection", "keras", "tfds", "classification", "table", "features"]},
        ),
        ("masks", NULLABLE_TEXT | {"enum": [None, "none", "png", "rle", "both"]}),
        (
            "bbox_format",
            NULLABLE_TEXT | {"enum": [None, "xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"]},
        ),
        ("num_shards", {"type": ["null", "integer"], "minimum": 1, "maximum": 99_999, "default": None}),
        ("max_rejects", {"type": "number", "minimum": 0, "maximum": 1, "default": 0.01}),
        ("name", NULLABLE_TEXT),
        ("output", NULLABLE_TEXT),
        ("schema", NULLABLE_TEXT),
        ("format", NULLABLE_TEXT | {"enum": [None, *FORMATS]}),
        ("sets", {"type": ["null", "array"], "items": {"type": "object"}, "default": None}),
        ("class_column", NULLABLE_TEXT),
        ("label_files", {"type": ["null", "array"], "default": None}),
    ],
)
def test_a_schema_of_each_kind(name, expected):
    schema = airflow_params("convert", False, {})[name]
    assert {key: schema[key] for key in expected} == expected
    assert {*schema} - {*expected} <= {"description", "items", "pattern", "section"}
    assert "--" not in schema["description"]
    assert schema.get("section", "") == parameters("convert")[name].group


def test_every_parameter_has_a_schema():
    """None is required: `output` has a default, and a format may need no DATA."""
    schemas = airflow_params("convert", True, {})
    assert set(schemas) == set(parameters("convert"))
    assert {schema["section"] for name, schema in schemas.items() if name != "data"} >= {"what to read", "how to run"}
    assert [name for name, schema in schemas.items() if "default" not in schema] == []


def test_daily_run_adds_to_a_data_set():
    """The first run is without `add`."""
    schemas = airflow_params("convert", False, {"data": ["/in/{%Y/%m/%d}"], "output": "/data/farm", "add": True})
    params = {name: schema["default"] for name, schema in schemas.items()}
    assert {type(params[name]) for name in ("add", "sync", "prune")} == {bool}
    added = {"data": ["/in/2026/11/21"], "output": "/data/farm"}
    assert run_values("convert", params, "/runs/1", WHEN) == added | {"add": True}
    assert run_values("convert", params | {"add": False}, "/runs/1", WHEN) == added
    assert template_parameters(added | {"add": True})["add"] == "true"


def test_defaults_of_a_site():
    schemas = airflow_params("convert", False, {"images": ["/i"], "num_shards": 4})
    assert (schemas["images"]["default"], schemas["num_shards"]["default"]) == (["/i"], 4)
    with pytest.raises(KeyError, match="shards"):
        airflow_params("convert", False, {"shards": 4})


@pytest.mark.parametrize(
    ("path", "is_accepted"),
    [
        *((path, True) for path in ("gs://b/x", "gs://b/{%Y/%m/%d}/*", "gs://b/x{%Y-W%V}", "gs://b/ä b")),
        *((path, False) for path in ("gs://b/{x,y}", "gs://b/{", "gs://b/}", "gs://b/{%}", "gs://b/{{%Y}}")),
        *((path, False) for path in ("gs://b/a,gs://b/c", "b/x", "gs://", "")),
    ],
)
def test_paths(path, is_accepted):
    for gs_only in (False, True):
        schemas = airflow_params("convert", gs_only, {})
        for pattern in (schemas["images"]["items"]["pattern"], schemas["output"]["pattern"]):
            assert bool(re.search(pattern, path)) is is_accepted
            assert bool(re.search(pattern, "/data/out")) is not gs_only


def test_run_sets_changed_defaults():
    defaults = {name: schema.get("default") for name, schema in airflow_params("convert", False, {}).items()}
    assert run_values("convert", defaults | INPUTS, "/o", WHEN) == {**INPUTS, "output": "/o"}
    changed = {"max_rejects": 0, "gzip": True, "seed": -1, "categories": "cat", "output": "/mine"}
    assert run_values("convert", defaults | INPUTS | changed, "/o", WHEN) == {**INPUTS, **changed}


def test_sets_have_date_of_run():
    """On Dataflow they are JSON."""
    sets = [{"data": "/b/{%Y/%m}", "format": "voc"}, {"data": "/c", "format": "yolo", "no_crowd": True}]
    values = run_values("convert", {"sets": sets}, "/o", WHEN)
    dated = [{**sets[0], "data": "/b/2026/11"}, sets[1]]
    assert values == {"sets": dated, "output": "/o"}
    (text,) = [text for name, text in template_parameters(values).items() if name == "sets"]
    assert json.loads(text) == dated
    assert command_line("convert", {"sets": dated}) == command_line("convert", {"sets": text})


def test_only_paths_have_date_of_run():
    params = {
        "images": ["/b/{%Y/%m}/{%d}", "/c"],
        "instances": ["/a"],
        "group_from": "^[a-z]{3}",
        "split": "a=1/2,b=1/2",
    }
    dated = {"images": ["/b/2026/11/21", "/c"], "output": "/o/2026-11-21"}
    assert run_values("convert", params | {"output": "/o/{%Y-%m-%d}"}, "/x", WHEN) == params | dated


def test_contradictions_are_refused():
    with pytest.raises(ConfigError, match=r"--num-shards and --shard-size contradict each other\. Give one"):
        run_values("convert", INPUTS | {"num_shards": 8, "shard_size": "1GB"}, "/o", WHEN)


SCHEDULER = """
import datetime, json, sys
for name in ("google_crc32c", "numpy", "pyarrow", "apache_beam", "PIL", "tensorflow", "google.cloud", "airflow"):
    sys.modules[name] = None
from recordmill.launch.services.airflow_params import airflow_params, run_values
params = {name: schema["default"] for name, schema in airflow_params("convert", False, {}).items()}
given = json.loads(sys.argv[1])
print(json.dumps([run_values("convert", params | values, "/o", datetime.datetime(2026, 11, 21)) for values in given]))
"""


def test_scheduler_has_only_what_the_page_installs():
    """A process without the packages of jobs imports the module, and checks the options of a run."""
    runs = [
        {"data": ["/pets"]},
        {"data": ["/rows/*.csv"], "format": "table", "class_column": "kind"},
        {"data": ["/i"], "instances": ["/a.json"]},
        {"data": ["/i"], "label_files": ["/l.csv"], "model": "mobilenet-v2"},
    ]
    words = [sys.executable, "-c", SCHEDULER, json.dumps(runs)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [values | {"output": "/o"} for values in runs]
