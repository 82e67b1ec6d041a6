"""Options as Airflow Params, and Params as options; tests/airflow runs them in Airflow."""

import re
from datetime import datetime

import pytest

from recordmill.launch.command_line.parameters import COMMANDS, parameters
from recordmill.launch.services.airflow_params import airflow_params, run_values
from recordmill.schemas.errors import ConfigError

INPUTS = {"images": ["gs://b/images"], "instances": ["gs://b/a.json"]}
WHEN = datetime(2026, 11, 21, 2)
NULLABLE_TEXT = {"type": ["null", "string"], "default": None}


@pytest.mark.parametrize(
    ("verb", "name", "expected"),
    [
        ("folder", "images", {"type": "array", "minItems": 1}),
        ("coco", "instances", {"type": ["null", "array"], "default": None}),
        ("coco", "gzip", {"type": "boolean", "default": False}),
        ("coco", "layout", {"type": "string", "enum": ["detection", "keras", "tfds"], "default": "detection"}),
        (
            "coco",
            "bbox_format",
            NULLABLE_TEXT | {"enum": [None, "xywh", "xyxy", "cxcywh", "rel-xywh", "rel-xyxy", "rel-cxcywh"]},
        ),
        ("coco", "num_shards", {"type": ["null", "integer"], "minimum": 1, "maximum": 99_999, "default": None}),
        ("coco", "max_rejects", {"type": "number", "minimum": 0, "maximum": 1, "default": 0.01}),
        ("coco", "name", {"type": "string", "default": "coco"}),
        ("coco", "output", NULLABLE_TEXT),
        ("table", "schema", NULLABLE_TEXT),
        ("auto", "data", {"type": "string"}),
        ("auto", "format_in", NULLABLE_TEXT),
    ],
)
def test_a_schema_of_each_kind(verb, name, expected):
    schema = airflow_params(verb, False, {})[name]
    assert {key: schema[key] for key in expected} == expected
    assert {*schema} - {*expected} <= {"description", "items", "pattern"}
    assert "--" not in schema["description"]


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_parameter_has_a_schema(verb):
    schemas = airflow_params(verb, True, {})
    assert set(schemas) == set(parameters(verb))
    required = {name for name, schema in schemas.items() if "default" not in schema}
    assert required == {name for name, option in parameters(verb).items() if option.is_required} - {"output"}


def test_defaults_of_a_site():
    schemas = airflow_params("coco", False, {"images": ["/i"], "num_shards": 4})
    assert (schemas["images"]["default"], schemas["num_shards"]["default"]) == (["/i"], 4)
    with pytest.raises(KeyError, match="shards"):
        airflow_params("coco", False, {"shards": 4})


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
        schemas = airflow_params("coco", gs_only, {})
        for pattern in (schemas["images"]["items"]["pattern"], schemas["output"]["pattern"]):
            assert bool(re.search(pattern, path)) is is_accepted
            assert bool(re.search(pattern, "/data/out")) is not gs_only


def test_run_sets_changed_defaults():
    defaults = {name: schema.get("default") for name, schema in airflow_params("coco", False, {}).items()}
    assert run_values("coco", defaults | INPUTS, "/o", WHEN) == {**INPUTS, "output": "/o"}
    changed = {"max_rejects": 0, "gzip": True, "seed": -1, "categories": "cat", "output": "/mine"}
    assert run_values("coco", defaults | INPUTS | changed, "/o", WHEN) == {**INPUTS, **changed}


def test_only_paths_have_date_of_run():
    params = {
        "images": ["/b/{%Y/%m}/{%d}", "/c"],
        "instances": ["/a"],
        "group_from": "^[a-z]{3}",
        "split": "a=1/2,b=1/2",
    }
    dated = {"images": ["/b/2026/11/21", "/c"], "output": "/o/2026-11-21"}
    assert run_values("coco", params | {"output": "/o/{%Y-%m-%d}"}, "/x", WHEN) == params | dated


def test_contradictions_are_refused():
    with pytest.raises(ConfigError, match="--num-shards and --shard-size contradict each other: give one"):
        run_values("coco", INPUTS | {"num_shards": 8, "shard_size": "1GB"}, "/o", WHEN)
