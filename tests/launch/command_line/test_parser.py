"""The command line's grammar."""

from fractions import Fraction

import pytest

from recordmill.launch.command_line.parser import parse
from recordmill.launch.command_line.verbs import TerminalOptions
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.extract_options import ExtractOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.pipelines.options.sample_options import SampleOptions
from recordmill.pipelines.options.verify_options import VerifyOptions
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


FLAGS = [
    (("--name", "faces"), {"name": "faces"}),
    (("--split", "val"), {"split": (("val", Fraction(1)),)}),
    (
        ("--split", "a=1/2,b=1/2", "--split-seed", "-3", "--group-from", "^[a-z]+"),
        {"split": (("a", Fraction(1, 2)), ("b", Fraction(1, 2))), "split_seed": -3, "group_from": "^[a-z]+"},
    ),
    (
        ("--split", "a=1/2,b=1/2", "--groups", "g.csv"),
        {"split": (("a", Fraction(1, 2)), ("b", Fraction(1, 2))), "groups": "g.csv"},
    ),
    (("--layout", "detection"), {"layout": "detection"}),
    (("--layout", "tfds"), {"layout": "tfds"}),
    (("--masks", "both"), {"masks": "both"}),
    (("--keypoints", "k.json", "--keypoints=l.json"), {"keypoints": ("k.json", "l.json")}),
    (("--captions", "c.json"), {"captions": ("c.json",)}),
    (("--stuff", "s.json"), {"stuff": ("s.json",)}),
    (
        ("--panoptic", "p.json", "--panoptic-masks", "p.zip", "--panoptic-masks", "q", "--panoptic", "q.json"),
        {"panoptic": ("p.json", "q.json"), "panoptic_masks": ("p.zip", "q")},
    ),
    (("--image-info", "i.json"), {"image_info": ("i.json",)}),
    (("--num-shards", "7"), {"num_shards": 7}),
    (("--shard-size", "1.5MB"), {"shard_size": 1_500_000}),
    (("--examples-per-shard", "12"), {"examples_per_shard": 12}),
    (("--gzip",), {"gzip": True}),
    (("--boxes", "drop"), {"boxes": "drop"}),
    (("--bbox-format", "rel-xyxy"), {"bbox_format": "rel-xyxy"}),
    (("--no-crowd",), {"no_crowd": True}),
    (("--no-list",), {"no_list": True}),
    (("--match", "name"), {"match": "name"}),
    (("--min-area", "2.5"), {"min_area": 2.5}),
    (("--categories", "cat, traffic light"), {"categories": ("cat", "traffic light")}),
    (("--check", "none"), {"check": "none"}),
    (("--format", "png"), {"format": "png"}),
    (("--max-side", "640"), {"max_side": 640}),
    (("--jpeg-quality", "80"), {"jpeg_quality": 80}),
    (("--duplicates", "fail"), {"duplicates": "fail"}),
    (("--seed", "-3"), {"seed": -3}),
    (("--writer", "beam"), {"writer": "beam"}),
    (("--max-rejects", "0.5"), {"max_rejects": 0.5}),
    (("--overwrite",), {"overwrite": True}),
    (("--dry-run",), {"dry_run": True}),
    (("--workers", "3"), {"workers": 3}),
    (
        (
            *("--captions", "c.json", "--caption-text", "counts", "--text-features", "9", "--min-df", "0.1"),
            *("--ngrams", "1,2", "--no-lower", "--stop-words", "a.txt", "--stop-words=b.txt", "--fit-split", "val"),
            *("--text-names", "index=i,value=v"),
        ),
        {
            "captions": ("c.json",),
            "caption_text": "counts",
            "text_features": 9,
            "min_df": "0.1",
            "ngrams": "1,2",
            "no_lower": True,
            "stop_words": ("a.txt", "b.txt"),
            "fit_split": "val",
            "text_names": "index=i,value=v",
        },
    ),
    (
        ("--captions", "c.json", "--caption-text", "tokens", "--encoders", "a"),
        {"captions": ("c.json",), "caption_text": "tokens", "encoders": ("a",)},
    ),
    (("--images", "more images"), {"images": ("images", "more images")}),
    (("--instances=b.json",), {"instances": ("a.json", "b.json")}),
    (("--output", "elsewhere"), {"output": "elsewhere"}),
]


@pytest.mark.parametrize(("flags", "changed"), FLAGS)
def test_a_flag_sets_its_option_and_no_other(flags, changed):
    assert options(*flags) == CocoOptions(
        **{**{name: getattr(PLAIN, name) for name in CocoOptions.__dataclass_fields__}, **changed}
    )


def test_every_option_has_a_flag():
    assert {name for _, changed in FLAGS for name in changed} == set(CocoOptions.__dataclass_fields__)


# recordmill folder

PLAIN_FOLDER = FolderOptions(images=("images",), output="out")
FOLDER_FLAGS = [
    (("--name", "pets"), {"name": "pets"}),
    (("--layout", "classification"), {"layout": "classification"}),
    (("--labels", "a.csv", "--labels=b.csv"), {"labels": ("a.csv", "b.csv")}),
    (("--labels", "a.csv", "--path-column", "Bild"), {"labels": ("a.csv",), "path_column": "Bild"}),
    (("--labels", "a.csv", "--label-column", "Art"), {"labels": ("a.csv",), "label_column": "Art"}),
    (("--labels", "a.csv", "--split-column", "Teil"), {"labels": ("a.csv",), "split_column": "Teil"}),
    (("--label-from", "name"), {"label_from": "name"}),
    (("--label-from", "name", "--label-separator", " - "), {"label_from": "name", "label_separator": " - "}),
    (("--classes", "dog, big cat"), {"classes": ("dog", "big cat")}),
    (("--split", "val"), {"split": (("val", Fraction(1)),)}),
    (("--split", "a=0.8,b=1/5"), {"split": (("a", Fraction(4, 5)), ("b", Fraction(1, 5)))}),
    (
        ("--split", "a=0.5,b=0.5", "--stratify"),
        {"split": (("a", Fraction(1, 2)), ("b", Fraction(1, 2))), "stratify": True},
    ),
]


def folder_of(*flags: str) -> FolderOptions:
    return parse(["folder", "--images", "images", "--output", "out", *flags]).options


def test_without_flags_the_options_of_folder_are_the_defaults():
    assert folder_of() == PLAIN_FOLDER


@pytest.mark.parametrize(("flags", "changed"), FOLDER_FLAGS)
def test_a_flag_of_folder_sets_its_option_and_no_other(flags, changed):
    assert folder_of(*flags) == FolderOptions(
        **{**{name: getattr(PLAIN_FOLDER, name) for name in FolderOptions.__dataclass_fields__}, **changed}
    )


def test_every_option_of_folder_has_a_flag():
    """Those of all conversions are tested above."""
    own = set(FolderOptions.__dataclass_fields__) - set(CocoOptions.__dataclass_fields__)
    assert {name for _, changed in FOLDER_FLAGS for name in changed} == own | {"name", "layout", "split"}


def test_all_faults_of_values_of_folder_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        parse(["folder", "--split", "a=0.5,a=0.4", "--label-column", "x", "--layout", "keras"])
    for told in (
        "--images is missing",
        "--output is missing",
        "--split names a twice",
        "--split: the shares sum to 0.9, not 1",
        "--label-column is of tables of --labels",
        "--layout 'keras' is none of classification",
    ):
        assert told in str(caught.value)


def test_coco_knows_nothing_of_the_layout_of_folder():
    with pytest.raises(ConfigError, match="--layout 'classification' is none of detection, keras, tfds"):
        options("--layout", "classification")


def test_all_faults_of_values_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        parse(["coco", "--boxes", "x", "--split", "a-b"])
    for told in (
        "--images is missing",
        "--instances is missing",
        "--output is missing",
        "--boxes 'x'",
        "--split 'a-b'",
    ):
        assert told in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("coco", "--imagse", "x"), "unknown flag --imagse; did you mean --images?"),
        (("coco", "--imagse=x"), "unknown flag --imagse; did you mean --images?"),
        (("coco", "--Images", "x"), "unknown flag --Images; did you mean --images?"),
        (("coco", "--num_shards", "3"), "unknown flag --num_shards; did you mean --num-shards?"),
        (("coco", "--region", "us-east1"), "unknown flag --region; Beam's flags go after a lone --"),
        (("coco", "--temp_location=gs://b/t"), "unknown flag --temp_location; Beam's flags go after a lone --"),
        (("coco", "--runner", "DataflowRunner"), "unknown flag --runner"),
        (("coco", "-x"), "unknown flag -x"),
        (("coco", "stray"), "unexpected argument 'stray'"),
        (("verify", "out", "more"), "unexpected argument 'more'"),
        (
            ("show", "a.record", "b.record", "c.record", "d.record", "e.record"),
            "unexpected argument 'b.record'; unexpected argument 'c.record'; and 2 more, so quote a pattern of files, "
            "which the shell else replaces by all of them",
        ),
        (("verify", "--frobnicate", "out"), "unknown flag --frobnicate"),
        (("sample", "out", "--progress", "none"), "unknown flag --progress"),
        (("sample", "out", "--workers", "1"), "unknown flag --workers"),
        (("folder", "--instances", "a.json"), "unknown flag --instances"),
        (("folder", "--split", "a=x"), "--split 'a=x': a name, or shares like train=0.8,val=0.1,test=0.1"),
        (("folder", "--classes", ","), "--classes ',': names, with commas between them, are expected"),
        (("coco", "--categories", ""), "--categories '': names, with commas between them, are expected"),
        (("coco", "--num-shards", "many"), "--num-shards 'many': a whole number is expected"),
        (("coco", "--min-area", "2 px"), "--min-area '2 px': a number is expected"),
        (("coco", "--shard-size", "big"), "--shard-size 'big': a size like 150MB"),
        (("coco", "--gzip=1"), "--gzip takes no value, and '1' is given"),
        (("coco", "--images"), "--images needs a value"),
        (("coco", "--images", "--output", "x"), "--images needs a value"),
        (("folder", "--split", "train", "--split", "val"), "--split 'train,val': a name, or shares like"),
    ],
)
def test_a_fault_is_told_and_where_help_is(arguments, told):
    message = fault(*arguments)
    assert told in message
    assert message.endswith(f"(recordmill {arguments[0]} --help lists the flags)")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("cocoa",), "'cocoa' is no verb; did you mean coco?"),
        (("help", "exract"), "'exract' is no verb; did you mean extract?"),
        (
            ("xyz",),
            "'xyz' is no verb; they are coco, folder, embed, table, verify, extract, show, report, index, config, "
            "sample",
        ),
        (("--gzip", "coco"), "--gzip must stand after the verb"),
        (("--debug", "coco"), "--debug must stand after the verb"),
        (("--gzpi", "coco"), "unknown flag --gzpi, and no verb before it"),
    ],
)
def test_what_is_no_verb(arguments, told):
    assert fault(*arguments) == f"{told} (recordmill --help lists the verbs)"


def test_faults_of_every_kind_are_told_at_once_and_each_once():
    message = fault(
        *("coco", "--num-shards", "x", "--shard-size", "big", "--boxes", "y", "--gzip=1", "--imagse", "i"),
        *("--instances", "a", "--categories", ",", "--output", "--split", "a-b"),
    )
    faults = message.removesuffix(" (recordmill coco --help lists the flags)").split("; ")
    assert [each[:24] for each in faults] == [
        "--gzip takes no value, a",
        "unknown flag --imagse",
        "did you mean --images?",
        "--output needs a value (",
        "--shard-size 'big': a si",
        "--num-shards 'x': a whol",
        "--categories ',': names,",
        "--boxes 'y' is none of c",
        "--split 'a-b' must be le",
    ]


def test_the_value_of_an_unknown_flag_is_no_fault_of_its_own():
    advice = "(recordmill {} --help lists the flags)"
    assert fault(*INPUTS, "--frobnicate", "x", "--gzip") == f"unknown flag --frobnicate {advice.format('coco')}"
    assert fault("verify", "--frobnicate", "out") == f"unknown flag --frobnicate {advice.format('verify')}"


def test_what_was_probably_meant_counts_as_given():
    message = fault("coco", "--imagse", "i", "--num_shards", "x", "--instances", "a", "--output", "o")
    assert "is missing" not in message
    assert "--num-shards 'x': a whole number is expected" in message


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


@pytest.mark.parametrize(("verb", "flags"), [("coco", FLAGS), ("folder", FOLDER_FLAGS)])
def test_help_names_every_flag(verb, flags, capsys):
    with pytest.raises(SystemExit):
        parse([verb, "--help"])
    shown = capsys.readouterr().out
    assert [flag for (flag, *_), _ in flags if flag.partition("=")[0] not in shown] == []


def test_help_tells_the_defaults_of_its_verb(capsys):
    for verb, default in (("coco", "coco"), ("folder", "images")):
        with pytest.raises(SystemExit):
            parse([verb, "--help"])
        assert f"begins the shards' file names (default {default})" in " ".join(capsys.readouterr().out.split())


def test_version(capsys):
    from importlib.metadata import version

    with pytest.raises(SystemExit):
        parse(["--version"])
    assert capsys.readouterr().out == f"recordmill {version('recordmill')}\n"
