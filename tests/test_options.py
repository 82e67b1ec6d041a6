"""Options are checked at the door, all at once."""

import math
from dataclasses import FrozenInstanceError

import pytest

from pipelines.options import DEFAULT_SHARD_BYTES, MAX_SHARDS, CocoOptions
from schemas.errors import ConfigError
from schemas.shards import ShardSizing

GIVEN = {"images": ("images",), "instances": ("a.json",), "output": "out"}


def faults(**changed) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        CocoOptions(**GIVEN | changed)
    return str(caught.value).split("; ")


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"images": ()}, "--images is missing"),
        ({"instances": ()}, "--instances is missing"),
        ({"output": ""}, "--output is missing"),
        ({"images": ("a", "b", "a")}, "--images a is given twice"),
        ({"instances": ("a.json", "a.json", "a.json")}, "--instances a.json is given twice"),
        ({"name": ""}, "--name '' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"name": "a/b"}, "--name 'a/b' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"name": ".a"}, "--name '.a' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"name": "a\n"}, "--name 'a\\n' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"name": "é"}, "--name 'é' must be letters, digits, _ . - and begin with a letter or digit"),
        ({"split": "a-b"}, "--split 'a-b' must be letters, digits and _: it is part of file names"),
        ({"split": ""}, "--split '' must be letters, digits and _: it is part of file names"),
        ({"layout": "yolo"}, "--layout 'yolo' is none of detection"),
        ({"boxes": "Clip"}, "--boxes 'Clip' is none of clip, drop, keep"),
        ({"check": ""}, "--check '' is none of none, header, decode"),
        ({"writer": "tf"}, "--writer 'tf' is none of planned, beam"),
        ({"num_shards": 0}, "--num-shards 0 must be 1 or more"),
        ({"shard_size": 0}, "--shard-size 0 must be 1 or more"),
        ({"examples_per_shard": -1}, "--examples-per-shard -1 must be 1 or more"),
        (
            {"num_shards": MAX_SHARDS + 1},
            "--num-shards 100000 is more than the 99999 that shard names have room for",
        ),
        ({"num_shards": 2, "shard_size": 3}, "--num-shards and --shard-size contradict each other: give one"),
        (
            {"num_shards": 2, "shard_size": 3, "examples_per_shard": 4},
            "--num-shards and --shard-size and --examples-per-shard contradict each other: give one",
        ),
        (
            {"writer": "beam", "shard_size": 5},
            "--writer beam sizes shards by --num-shards only (without it, the runner chooses)",
        ),
        (
            {"writer": "beam", "examples_per_shard": 5},
            "--writer beam sizes shards by --num-shards only (without it, the runner chooses)",
        ),
        ({"min_area": -0.5}, "--min-area -0.5 must be a number of pixels², 0 or more"),
        ({"min_area": math.nan}, "--min-area nan must be a number of pixels², 0 or more"),
        ({"min_area": math.inf}, "--min-area inf must be a number of pixels², 0 or more"),
        ({"max_rejects": 1.5}, "--max-rejects 1.5 must be a fraction, 0 to 1"),
        ({"max_rejects": -0.1}, "--max-rejects -0.1 must be a fraction, 0 to 1"),
        ({"max_rejects": math.nan}, "--max-rejects nan must be a fraction, 0 to 1"),
        ({"workers": 0}, "--workers 0 must be 1 to 256"),
        ({"workers": 257}, "--workers 257 must be 1 to 256"),
    ],
)
def test_a_fault_is_told(changed, fault):
    assert faults(**changed) == [fault]


def test_all_faults_are_told_at_once():
    assert faults(images=(), name="/", boxes="x", workers=0) == [
        "--images is missing",
        "--name '/' must be letters, digits, _ . - and begin with a letter or digit",
        "--boxes 'x' is none of clip, drop, keep",
        "--workers 0 must be 1 to 256",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "coco-2017.v1_x"},
        {"split": "val_2017"},
        {"num_shards": MAX_SHARDS},
        {"writer": "beam", "num_shards": 3},
        {"max_rejects": 0.0, "min_area": 0.0},
        {"max_rejects": 1.0, "workers": 256},
    ],
)
def test_the_edges_of_what_is_allowed(changed):
    options = CocoOptions(**GIVEN | changed)
    assert {name: getattr(options, name) for name in changed} == changed


@pytest.mark.parametrize(
    ("changed", "sizing"),
    [
        ({}, ShardSizing(shard_bytes=DEFAULT_SHARD_BYTES)),
        ({"shard_size": 7}, ShardSizing(shard_bytes=7)),
        ({"num_shards": 7}, ShardSizing(num_shards=7)),
        ({"examples_per_shard": 7}, ShardSizing(examples_per_shard=7)),
    ],
)
def test_sizing(changed, sizing):
    assert CocoOptions(**GIVEN | changed).sizing == sizing


def test_options_do_not_change():
    options = CocoOptions(**GIVEN)
    with pytest.raises(FrozenInstanceError):
        options.seed = 1


# Every option either decides the records, and is in the recipe, or does not, and is not.

DECIDE = {
    "num_shards": 3,
    "shard_size": 5,
    "examples_per_shard": 4,
    "gzip": True,
    "boxes": "keep",
    "no_crowd": True,
    "min_area": 1.5,
    "categories": ("cat",),
    "check": "none",
    "seed": 1,
    "writer": "beam",
}
IN_THE_RECIPE_ITSELF = {"images", "instances", "name", "split", "layout"}
DECIDE_NOTHING = {"output": "elsewhere", "max_rejects": 0.5, "overwrite": True, "dry_run": True, "workers": 3}


def test_every_option_is_of_one_kind():
    assert set(CocoOptions.__dataclass_fields__) == {*DECIDE, *IN_THE_RECIPE_ITSELF, *DECIDE_NOTHING}


@pytest.mark.parametrize("name", DECIDE)
def test_an_option_that_decides_the_records_is_recorded(name):
    plain = CocoOptions(**GIVEN).record_options
    assert CocoOptions(**GIVEN | {name: DECIDE[name]}).record_options != plain


@pytest.mark.parametrize("name", DECIDE_NOTHING)
def test_an_option_that_does_not_is_not(name):
    plain = CocoOptions(**GIVEN).record_options
    assert CocoOptions(**GIVEN | {name: DECIDE_NOTHING[name]}).record_options == plain


def test_the_order_of_categories_is_no_other_recipe():
    orders = [CocoOptions(**GIVEN, categories=names).record_options for names in (("cat", "dog"), ("dog", "cat"))]
    assert orders[0] == orders[1]
