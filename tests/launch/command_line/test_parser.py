"""The command line's grammar."""

from fractions import Fraction

import pytest

from recordmill.launch.command_line.parser import parse
from recordmill.launch.command_line.verbs import VERBS, TerminalOptions
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.dataset_options import ExtractOptions, SampleOptions, VerifyOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.schemas.errors import ConfigError

INPUTS = ["coco", "--images", "images", "--instances", "a.json", "--output", "out"]
PLAIN = CocoOptions(images=("images",), instances=("a.json",), output="out")


def options(*flags: str) -> CocoOptions:
    return parse([*INPUTS, *flags]).options


def fault(*arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(arguments)
    return str(caught.value)


def test_without_flags_the_options_are_the_defaults():
    assert options() == PLAIN


FLAGS = [  # one or two of each kind; tests/launch/command_line/test_parameters.py gives every option a value
    (("--name", "faces"), {"name": "faces"}),
    (
        ("--split", "a=1/2,b=1/2", "--split-seed", "-3", "--group-from", "^[a-z]+"),
        {"split": (("a", Fraction(1, 2)), ("b", Fraction(1, 2))), "split_seed": -3, "group_from": "^[a-z]+"},
    ),
    (("--layout", "tfds"), {"layout": "tfds"}),
    (("--keypoints", "k.json", "--keypoints=l.json"), {"keypoints": ("k.json", "l.json")}),
    (
        ("--panoptic", "p.json", "--panoptic-masks", "p.zip", "--panoptic-masks", "q", "--panoptic", "q.json"),
        {"panoptic": ("p.json", "q.json"), "panoptic_masks": ("p.zip", "q")},
    ),
    (("--shard-size", "1.5MB"), {"shard_size": 1_500_000}),
    (("--gzip",), {"gzip": True}),
    (("--min-area", "2.5"), {"min_area": 2.5}),
    (("--categories", "cat, traffic light"), {"categories": ("cat", "traffic light")}),
    (
        ("--instances=b.json", "--images", "more images"),
        {"instances": ("a.json", "b.json"), "images": ("images", "more images")},
    ),
    (("--output", "elsewhere"), {"output": "elsewhere"}),
]


@pytest.mark.parametrize(("flags", "changed"), FLAGS)
def test_a_flag_sets_its_option_and_no_other(flags, changed):
    assert options(*flags) == CocoOptions(
        **{**{name: getattr(PLAIN, name) for name in CocoOptions.__dataclass_fields__}, **changed}
    )


def folder_of(*flags: str) -> FolderOptions:
    return parse(["folder", "--images", "images", "--output", "out", *flags]).options


def test_all_faults_of_values_are_told_at_once():
    message = fault("folder", "--split", "a=0.5,a=0.4", "--label-column", "x", "--layout", "keras")
    found = [part.split()[0].rstrip(":") for part in message.split("; ")]
    assert sorted(found) == ["--images", "--label-column", "--layout", "--layout", "--output", "--split", "--split"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("coco --imagse x", ["--imagse", "--images?"]),
        ("coco --imagse=x", ["--imagse", "--images?"]),
        ("coco --Images x", ["--Images", "--images?"]),
        ("coco --num_shards 3", ["--num_shards", "--num-shards?"]),
        ("coco --region us-east1", ["--region", "lone --"]),
        ("coco --temp_location=gs://b/t", ["--temp_location", "lone --"]),
        ("coco --runner DataflowRunner", ["--runner"]),
        ("coco -x", ["-x"]),
        ("coco stray", ["argument 'stray'"]),
        ("verify out more", ["argument 'more'"]),
        ("show a b c d e", ["argument 'b'", "argument 'c'", "2 more", "quote"]),
        ("verify --frobnicate out", ["--frobnicate"]),
        ("sample out --progress none", ["--progress"]),
        ("sample out --workers 1", ["--workers"]),
        ("folder --instances a.json", ["--instances"]),
        ("folder --split a=x", ["--split 'a=x'"]),
        ("folder --classes ,", ["--classes ','"]),
        ("coco --num-shards many", ["--num-shards 'many'"]),
        ("coco --min-area 2px", ["--min-area '2px'"]),
        ("coco --shard-size big", ["--shard-size 'big'"]),
        ("coco --gzip=1", ["--gzip", "'1'"]),
        ("coco --images", ["--images needs"]),
        ("coco --images --output x", ["--images needs"]),
        ("folder --split train --split val", ["--split 'train,val'"]),
        ("cocoa", ["'cocoa'", "coco?"]),
        ("help exract", ["'exract'", "extract?"]),
        ("xyz", ["'xyz'", *VERBS]),
        ("--gzip coco", ["--gzip", "after the verb"]),
        ("--debug coco", ["--debug", "after the verb"]),
        ("--gzpi coco", ["unknown", "--gzpi"]),
    ],
)
def test_a_fault_is_told_and_where_help_is(arguments, words):
    message = fault(*arguments.split())
    assert [word for word in words if word not in message] == []
    verb = arguments.split()[0]
    assert message.endswith(
        f"(recordmill {verb} --help lists the flags)" if verb in VERBS else "--help lists the verbs)"
    )


def test_faults_of_every_kind_are_told_at_once_and_each_once():
    message = fault(
        *("coco", "--num-shards", "x", "--shard-size", "big", "--boxes", "y", "--gzip=1", "--imagse", "i"),
        *("--instances", "a", "--categories", ",", "--output", "--split", "a-b"),
    )
    faults = [part for part in message.split("; ") if not part.startswith("did you mean")]
    found = [next(word for word in part.split() if word.startswith("--")) for part in faults]
    assert found == [
        "--gzip",
        "--imagse",
        "--output",
        "--shard-size",
        "--num-shards",
        "--categories",
        "--boxes",
        "--split",
    ]


def test_the_value_of_an_unknown_flag_is_no_fault_of_its_own():
    for command in ([*INPUTS, "--frobnicate", "x", "--gzip"], ["verify", "--frobnicate", "out"]):
        assert fault(*command).startswith("unknown flag --frobnicate (recordmill ")


def test_what_was_probably_meant_counts_as_given():
    message = fault("coco", "--imagse", "i", "--num_shards", "x", "--instances", "a", "--output", "o")
    assert "is missing" not in message
    assert "--num-shards 'x'" in message


@pytest.mark.parametrize("typed", [("a,b", "c"), ("a", "b,c"), ("a,b,c",), ("a", "b", "c")])
def test_lists_add_up(typed):
    repeated = [word for text in typed for word in ("--categories", text)]
    assert options(*repeated).categories == ("a", "b", "c")
    classes = [word for text in typed for word in ("--classes", text)]
    assert folder_of(*classes).classes == ("a", "b", "c")


def test_shares_add_up():
    assert folder_of("--split", "a=0.75", "--split", "b=1/4").split == (("a", Fraction(3, 4)), ("b", Fraction(1, 4)))


def test_of_values_given_twice_the_last_counts_and_that_is_said(caplog):
    assert options("--num-shards", "2", "--num-shards=2", "--seed", "1").num_shards == 2
    assert caplog.text == ""
    assert options("--num-shards", "2", "--num-shards=3").num_shards == 3
    assert "--num-shards is given as 2, 3; the last counts" in caplog.text


@pytest.mark.parametrize("value", ["-", "-3", "-.5", "- -", "--a b"])
def test_a_value_may_begin_with_a_dash(value):
    assert folder_of("--label-from", "name", "--label-separator", value).label_separator == value


def test_the_other_verbs():
    verify = parse(["verify", "out", "--workers", "2", "--progress", "none", "--debug"])
    assert verify == ("verify", VerifyOptions(folder="out", workers=2), TerminalOptions(progress="none", debug=True))
    sample = parse(["sample", "new", "--count", "3"])
    assert sample == ("sample", SampleOptions(folder="new", count=3), TerminalOptions())
    extract = parse(["extract", "out", "new", "--split", "val"])
    assert extract.options == ExtractOptions(folder="out", target="new", split="val")
