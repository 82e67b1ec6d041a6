"""The command line's grammar, and its YAML files."""

from fractions import Fraction

import pytest

from recordmill.launch.command_line.parser import parse
from recordmill.pipelines.dataset_options import ExtractOptions, SampleOptions, TerminalOptions, VerifyOptions
from recordmill.pipelines.verbs import VERBS
from recordmill.schemas.errors import ConfigError
from recordmill.transforms.coco.coco_options import CocoOptions

INPUTS = ["coco", "--images", "images", "--instances", "a.json", "--output", "out"]
PLAIN = CocoOptions(images=("images",), instances=("a.json",), output="out")


def options(*flags: str) -> CocoOptions:
    return parse([*INPUTS, *flags]).options


def fault(*arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(arguments)
    return str(caught.value)


FLAGS = [  # one or two of each kind; tests/launch/command_line/test_parameters.py gives every option a value
    (("--name", "faces"), {"name": "faces"}),
    (
        ("--split", "a=1/2,b=1/2", "--split-seed", "-3", "--group-from", "^[a-z]+"),
        {"split": (("a", Fraction(1, 2)), ("b", Fraction(1, 2))), "split_seed": -3, "group_from": "^[a-z]+"},
    ),
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
    ((), {}),
]


@pytest.mark.parametrize(("flags", "changed"), FLAGS)
def test_flag_sets_its_option_and_no_other(flags, changed):
    assert options(*flags) == PLAIN.model_copy(update=changed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("coco --imagse x", ["--imagse", "--images?"]),
        ("coco --imagse=x", ["--imagse", "--images?"]),
        ("coco --Images x", ["--Images", "--images?"]),
        ("coco --num_shards 3", ["--num_shards", "--num-shards?"]),
        ("coco --image_dir x --annotations y", ["--image_dir; did you mean --images?", "--instances?"]),
        ("folder --annotations=x --shuffle_seed 1", ["--annotations; did you mean --labels?", "--seed?"]),
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
def test_fault_is_named_and_where_help_is(arguments, words):
    message = fault(*arguments.split())
    assert [word for word in words if word not in message] == []
    is_of_words = any(
        word in message for word in ("unknown", "unexpected", "needs a value", "not take a value", "verb")
    )
    assert ("--help lists the" in message) == is_of_words


def test_faults_of_every_kind_are_named_at_once_and_each_once():
    message = fault(
        *("coco", "--num-shards", "x", "--shard-size", "big", "--boxes", "y", "--gzip=1", "--imagse", "i"),
        *("--instances", "a", "--categories", ",", "--output", "--split", "a-b"),
    )
    faults = [part for part in message.split("; ") if not part.startswith("did you mean")]
    flags = [next(word for word in part.split() if word.startswith("--")) for part in faults]
    wrong = ["--shard-size", "--num-shards", "--boxes", "--categories"]
    assert flags == ["--gzip", "--imagse", "--output", *wrong, "--split"]


def test_value_of_unknown_flag_is_no_fault():
    for command in ([*INPUTS, "--frobnicate", "x", "--gzip"], ["verify", "--frobnicate", "out"]):
        assert fault(*command).startswith("unknown flag --frobnicate (recordmill ")


def test_misspelt_option_counts_as_given():
    message = fault("coco", "--imagse", "i", "--num_shards", "x", "--instances", "a", "--output", "o")
    assert "is missing" not in message
    assert "--num-shards 'x'" in message


def test_of_values_given_twice_last_counts_and_said(caplog):
    assert options("--num-shards", "2", "--num-shards=2", "--seed", "1").num_shards == 2
    assert caplog.text == ""
    assert options("--num-shards", "2", "--num-shards=3").num_shards == 3
    assert "--num-shards is set several times (2, 3); the last value is used" in caplog.text


@pytest.mark.parametrize("value", ["-", "-3", "-.5", "- -", "--a b"])
def test_value_may_begin_with_dash(value):
    folder = ["folder", "--images", "images", "--output", "out", "--label-from", "name"]
    assert parse([*folder, "--label-separator", value]).options.label_separator == value


def test_the_other_verbs():
    verify = parse(["verify", "out", "--workers", "2", "--progress", "none", "--debug"])
    assert verify == ("verify", VerifyOptions(folder="out", workers=2), TerminalOptions(progress="none", debug=True))
    sample = parse(["sample", "new", "--count", "3"])
    assert sample == ("sample", SampleOptions(folder="new", count=3), TerminalOptions())
    extract = parse(["extract", "out", "new", "--split", "val"])
    assert extract.options == ExtractOptions(folder="out", target="new", split="val")


# --config and --print-config


def config(tmp_path, text: str) -> list[str]:
    (tmp_path / "job.yaml").write_text(text)
    return ["--config", str(tmp_path / "job.yaml")]


@pytest.mark.parametrize(
    "words",
    [
        [*INPUTS, "--split", "a=1/3,b=2/3", "--gzip", "--min-area", "0.5", "--categories", "a,b c", "--seed=-3"],
        [*INPUTS, "--keypoints", "k", "--bbox-format", "xyxy", "--shard-size", "1GB", "--debug", "--progress", "none"],
        ["table", "--rows", "a", "--rows", "b", "--output", "o", "--schema", "s", "--default", "a=1", "--label", "l"],
        ["show", "out", "--json", "--index", "0"],
        ["index", "a", "b"],
    ],
)
def test_printed_config_is_read(tmp_path, capsys, words):
    with pytest.raises(SystemExit):
        parse([*words, "--print-config"])
    assert parse([words[0], *config(tmp_path, capsys.readouterr().out)])[:2] == parse(words)[:2]


def test_flags_win(tmp_path):
    flags = config(tmp_path, "images: i\ninstances: [a.json, b.json]\noutput: 2017\nnum-shards: 3\ngzip: true\n")
    options = parse(["coco", *flags, "--instances", "c.json", "--num-shards", "4"]).options
    assert (options.images, options.instances, options.output) == (("i",), ("c.json",), "2017")
    assert (options.num_shards, options.gzip, options.seed) == (4, True, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- images", ["must map names"]),
        ("images: [", ["is not YAML"]),
        ("imagse: i", ["unknown option 'imagse'; did you mean images?", "--output is missing"]),
        ("config: other.yaml\ndebug: true", ["unknown option 'config'", "unknown option 'debug'"]),
        ("images: i\nnum_shards: many\ngzip: perhaps", ["--num-shards 'many'", "--gzip 'perhaps': true or false"]),
        ("images: {a: b}\ncategories: {a: b}", ["--images", "--categories"]),
    ],
)
def test_faults_of_a_file(tmp_path, text, words):
    message = fault("coco", *config(tmp_path, text))
    assert [word for word in words if word not in message] == []
    assert "no such file" in fault("coco", "--config", str(tmp_path / "gone.yaml"))
