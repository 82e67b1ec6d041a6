"""What `recordmill folder` is asked to do is checked at the door, all at once."""

from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest

from recordmill.pipelines.options.convert_options import DEFAULT_SHARD_BYTES, MAX_SHARDS
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.image_labels import LabelColumns, PathLabels
from recordmill.schemas.images import PictureRules
from recordmill.schemas.layouts import CLASSIFICATION
from recordmill.schemas.shards import ShardSizing
from recordmill.schemas.splits import SplitShares

GIVEN = {"images": ("images",), "output": "out"}
TABLE = {"labels": ("labels.csv",)}
HALVES = (("a", Fraction(1, 2)), ("b", Fraction(1, 2)))
BEYOND = (1 << 63, -(1 << 63) - 1)
SEPARATOR = "--label-separator {} would do nothing without --label-from name"
NO_TABLE = "is of tables of --labels, and none is given"


def faults(**changed) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        FolderOptions(**GIVEN | changed)
    return str(caught.value).split("; ")


def shares(*pairs: tuple[str, str]) -> tuple[tuple[str, Fraction], ...]:
    return tuple((name, Fraction(share)) for name, share in pairs)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"images": ()}, "--images is missing"),
        ({"output": ""}, "--output is missing"),
        ({"images": ("a", "b", "a")}, "--images a is given twice"),
        ({"labels": ("a.csv", "b.csv", "a.csv")}, "--labels a.csv is given twice"),
        ({"layout": "detection"}, "--layout 'detection' is none of classification"),
        ({"label_from": "exif"}, "--label-from 'exif' is none of folder, name"),
        ({"label_separator": "", "label_from": "name"}, "--label-separator is empty"),
        ({"path_column": "x"}, f"--path-column {NO_TABLE}"),
        ({"split_column": "x"}, f"--split-column {NO_TABLE}"),
        (
            {**TABLE, "label_from": "name"},
            "--labels gives the labels, and so does --label-from name: give one",
        ),
        ({"classes": ("cat", "dog", "cat", "cat")}, "--classes names 'cat' twice"),
        ({"stratify": True}, "--stratify divides classes, but --split names a single split"),
        ({"split_seed": 3}, "--split-seed divides a data set, but --split names a single split"),
        (
            {"stratify": True, "split_seed": 1, "split": shares(("val", "1"))},
            "--stratify divides classes, but --split names a single split; "
            "--split-seed divides a data set, but --split names a single split",
        ),
        *(
            (
                {"split": HALVES, "split_seed": seed},
                f"--split-seed {seed} must be -9223372036854775808 to 9223372036854775807",
            )
            for seed in BEYOND
        ),
        (
            {"split": HALVES, "stratify": True, "group_from": "x"},
            "--stratify and --group-from contradict each other: a group may hold images of several classes, and is not "
            "divided; give one",
        ),
        ({"label_separator": "-"}, SEPARATOR.format("-")),
        ({"label_separator": "-", **TABLE}, SEPARATOR.format("-")),
        ({"label_separator": ""}, "--label-separator is empty"),
        ({"split": shares(("all", "1"))}, "--split 'all' is what TFDS calls all splits together"),
        ({"split": shares(("a-b", "1"))}, "--split 'a-b' must be letters, digits and _: it is part of file names"),
        ({"split": shares(("x" * 81, "1"))}, f"--split {'x' * 81!r} has 81 characters; file names have room for 80"),
        ({"split": shares(("a", "0.5"), ("a", "0.5"))}, "--split names a twice"),
        (
            {"split": shares(("val", "0.5"), ("Val", "0.5"))},
            "--split names Val and val, which differ only in case, so that some file systems would take their shards "
            "for the same files: give one of them another name",
        ),
        ({"split": shares(("a", "0"), ("b", "1"))}, "--split: every share must be more than 0 and at most 1"),
        (
            {"split": shares(("a", "0.8"), ("b", "0.1"))},
            "--split: the shares sum to 0.9, not 1 (thirds can be given as 1/3)",
        ),
        ({"split": shares(("a", "1.5"))}, "--split: every share must be more than 0 and at most 1"),
        ({"format": "gif"}, "--format 'gif' is none of keep, jpeg, png"),
        (
            {"writer": "beam", "examples_per_shard": 5},
            "--writer beam sizes shards by --num-shards only (without it, the runner chooses)",
        ),
        ({"max_side": 0}, "--max-side 0 must be 1 to 65500 pixels"),
        ({"jpeg_quality": 101}, "--jpeg-quality 101 must be 1 to 100"),
        ({"seed": 1 << 63}, f"--seed {1 << 63} must be -9223372036854775808 to 9223372036854775807"),
    ],
)
def test_a_fault_is_told(changed, fault):
    assert "; ".join(faults(**changed)) == fault


def test_shares_that_sum_to_nearly_1_are_not_said_to_sum_to_1():
    (fault,) = faults(split=shares(("a", "0.3333333"), ("b", "0.3333333"), ("c", "0.3333333")))
    assert fault.startswith("--split: the shares sum to ")
    assert "sum to 1," not in fault


def test_a_share_beyond_all_numbers_is_told():
    (fault,) = faults(split=shares(("a", "1e400"), ("b", "1")))
    assert fault == "--split: every share must be more than 0 and at most 1"


def test_all_faults_are_told_at_once():
    assert faults(images=(), name="/", label_from="x", split=shares(("a", "1"), ("a", "1")), workers=0) == [
        "--images is missing",
        "--label-from 'x' is none of folder, name",
        "--workers 0 must be 1 to 256",
        "--name '/' must be letters, digits, _ . - and begin with a letter or digit",
        "--split names a twice",
        "--split: the shares sum to 2, not 1 (thirds can be given as 1/3)",
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {**TABLE, "path_column": "Bild", "label_column": "Klasse", "split_column": "Teil"},
        {"labels": ("a.csv", "b.csv")},
        {"label_from": "name", "label_separator": " - "},
        {"classes": ("dog", "cat", "Cat")},
        {"split": HALVES, "stratify": True, "split_seed": -7},
        {"split": HALVES, "split_seed": (1 << 63) - 1},
        {"split": HALVES, "split_seed": -(1 << 63)},
        {"label_separator": "_"},
        {"label_separator": "_", **TABLE},
        {"split": shares(("a", "1/3"), ("b", "1/3"), ("c", "1/3"))},
        {"split": shares(("a", "0.1"), ("b", "0.2"), ("c", "0.7"))},  # floats would sum to 0.9999999999999999
        {"split": HALVES, **TABLE, "stratify": True},
        {"num_shards": MAX_SHARDS, "writer": "beam"},
        {"name": "cats-2.v1_x", "max_rejects": 1.0, "workers": 256, "max_side": 65_500, "jpeg_quality": 1},
    ],
)
def test_the_edges_of_what_is_allowed(changed):
    options = FolderOptions(**GIVEN | changed)
    assert {name: getattr(options, name) for name in changed} == changed


def test_without_options_all_images_are_one_split_by_folder():
    options = FolderOptions(**GIVEN)
    assert options.shares == SplitShares((("train", Fraction(1)),), 0)
    assert options.splits == ("train",)
    assert options.path_labels == PathLabels()
    assert options.columns == LabelColumns()
    assert options.table == CLASSIFICATION
    assert options.table.parts == ()
    assert options.sizing == ShardSizing(shard_bytes=DEFAULT_SHARD_BYTES)
    assert options.pictures == PictureRules("decode")
    assert options.box_policy == "keep"


def test_options_become_what_transforms_take():
    options = FolderOptions(
        **GIVEN,
        **TABLE,
        path_column="p",
        label_column="l",
        split_column="s",
        split=HALVES,
        split_seed=3,
        examples_per_shard=7,
        check="header",
        format="png",
        max_side=9,
        jpeg_quality=80,
    )
    assert options.shares == SplitShares(HALVES, 3)
    assert options.splits == ("a", "b")
    assert options.columns == LabelColumns("p", "l", "s")
    assert options.sizing == ShardSizing(examples_per_shard=7)
    assert options.pictures == PictureRules("header", "png", 9, 80)


@pytest.mark.parametrize(
    ("label_from", "rule"), [("folder", PathLabels()), ("name", PathLabels("-")), ("name", PathLabels("_"))]
)
def test_the_separator_is_of_names_only(label_from, rule):
    separator = rule.separator or "_"
    assert FolderOptions(**GIVEN, label_from=label_from, label_separator=separator).path_labels == rule


def test_options_do_not_change():
    options = FolderOptions(**GIVEN)
    with pytest.raises(FrozenInstanceError):
        options.seed = 1


# Every option either decides the records, and is in the recipe, or does not, and is not.

DECIDE = {
    "num_shards": 3,
    "shard_size": 5,
    "examples_per_shard": 4,
    "gzip": True,
    "check": "none",
    "seed": 1,
    "writer": "beam",
    "format": "jpeg",
    "max_side": 100,
    "jpeg_quality": 80,
    "path_column": "p",
    "label_column": "l",
    "split_column": "s",
    "label_from": "name",
    "label_separator": "-",
    "classes": ("cat",),
    "split": HALVES,
    "split_seed": 1,
    "stratify": True,
}
DIVIDE = {"group_from"}
"""Recorded only where it is given, see test_convert_options."""
NEEDED = {
    "path_column": TABLE,
    "label_column": TABLE,
    "split_column": TABLE,
    "label_separator": {"label_from": "name"},
    "split_seed": {"split": HALVES},
    "stratify": {"split": HALVES},
}
"""Without which an option would be a fault, or do nothing."""
IN_THE_RECIPE_ITSELF = {"images", "labels", "groups", "name", "layout"}
DECIDE_NOTHING = {
    "output": "elsewhere",
    "duplicates": "fail",
    "max_rejects": 0.5,
    "overwrite": True,
    "dry_run": True,
    "workers": 3,
}


def test_every_option_is_of_one_kind():
    assert set(FolderOptions.__dataclass_fields__) == {*DECIDE, *DIVIDE, *IN_THE_RECIPE_ITSELF, *DECIDE_NOTHING}


@pytest.mark.parametrize("name", DECIDE)
def test_an_option_that_decides_the_records_is_recorded(name):
    plain = GIVEN | NEEDED.get(name, {})
    before = FolderOptions(**plain).record_options
    after = FolderOptions(**plain | {name: DECIDE[name]}).record_options
    assert before.keys() == after.keys()
    sizes = {"shard_size"} if name in ("num_shards", "examples_per_shard") else set()  # which is then none
    assert {option for option in before if before[option] != after[option]} == {name, *sizes}


@pytest.mark.parametrize("name", DECIDE_NOTHING)
def test_an_option_that_does_not_is_not(name):
    plain = FolderOptions(**GIVEN).record_options
    assert FolderOptions(**GIVEN | {name: DECIDE_NOTHING[name]}).record_options == plain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"classes": ("cat", "dog")}, {"classes": ("dog", "cat")}),
        ({"split": HALVES}, {"split": HALVES[::-1]}),
        ({"split": shares(("a", "0.5"), ("b", "0.5"))}, {"split": shares(("a", "0.51"), ("b", "0.49"))}),
    ],
    ids=["classes", "splits", "shares"],
)
def test_an_order_or_a_share_that_decides_the_records_is_another_recipe(one, other):
    assert FolderOptions(**GIVEN | one).record_options != FolderOptions(**GIVEN | other).record_options
