"""The command line's grammar, and its YAML files."""

from fractions import Fraction

import pytest

from recordmill.launch.command_line.parser import Command, parse, parse_values
from recordmill.pipelines.dataset_options import ExtractOptions, SampleOptions, TerminalOptions, VerifyOptions
from recordmill.pipelines.formats import FORMATS, LABEL_FILE_FORMATS
from recordmill.pipelines.verbs import OLD_VERBS, VERBS
from recordmill.schemas.errors import ConfigError
from recordmill.transforms.coco.coco_options import CocoOptions

INPUTS = ["convert", "--images", "images", "--instances", "a.json", "--output", "out"]
PLAIN = CocoOptions(images=("images",), instances=("a.json",), output="out")


def options(*flags: str) -> CocoOptions:
    return parse_one(*INPUTS, *flags).options


def parse_one(*words: str) -> Command:
    return parse(words)


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
        ("convert --imagse x", ["--imagse", "--images?"]),
        ("convert --imagse=x", ["--imagse", "--images?"]),
        ("convert --Images x", ["--Images", "--images?"]),
        ("convert --num_shards 3", ["--num_shards", "--num-shards?"]),
        ("convert --image_dir x --annotations y", ["--image_dir. Did you mean --images?", "--instances?"]),
        ("convert --csv=x --shuffle_seed 1", ["--csv. Did you mean --labels?", "--seed?"]),
        ("convert --region us-east1", ["--region", "lone --"]),
        ("convert --temp_location=gs://b/t", ["--temp_location", "lone --"]),
        ("convert --runner DataflowRunner", ["--runner"]),
        ("convert -x", ["-x"]),
        ("convert --data d", ["unknown flag --data. Give DATA without a flag"]),
        ("convert --rows r.csv --format table", ["unknown flag --rows. Give DATA without a flag"]),
        ("verify out more", ["argument 'more'"]),
        ("show a b c d e", ["argument 'b'", "argument 'c'", "2 more", "Quote"]),
        ("verify --frobnicate out", ["--frobnicate"]),
        ("sample out --progress none", ["--progress"]),
        ("sample out --workers 1", ["--workers"]),
        ("convert d --format folder --instances a.json", ["--instances is a flag of coco; --format is folder"]),
        ("convert --gzip=1", ["--gzip", "'1'"]),
        ("convert --images", ["--images needs"]),
        ("convert --images --output x", ["--images needs"]),
        ("convert d --format folder --split train --split val", ["--split 'train,val'"]),
        ("convrt", ["'convrt'", "convert?"]),
        ("help exract", ["'exract'", "extract?"]),
        ("xyz", ["'xyz'", *VERBS]),
        ("--gzip convert", ["--gzip", "after the verb"]),
        ("--debug convert", ["--debug", "after the verb"]),
        ("--gzpi convert", ["unknown", "--gzpi"]),
        ("version", ["'version'", "Did you mean --version?"]),
        ("convert --version", ["unknown flag --version. Run recordmill --version"]),
    ],
)
def test_fault_is_named_and_where_help_is(arguments, words):
    message = fault(*arguments.split())
    assert [word for word in words if word not in message] == []
    is_of_words = any(
        word in message for word in ("unknown", "unexpected", "needs a value", "not take a value", "verb")
    )
    assert ("--help lists the" in message) == is_of_words


def test_output_given_as_data(tmp_path, monkeypatch):
    """As `cp DATA OUT` does. A path that exists may be DATA, and so may a pattern or a path in a bucket."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets").mkdir()
    message = "--output is missing, and my out does not exist. If it is the output, write -o 'my out'"
    assert fault("convert", "pets", "my out") == message
    for words in (["pets", "pets"], ["pets", "*.csv"], ["gone", "out"], ["pets"], ["pets", "out", "-o", "x"]):
        assert "If it is the output" not in fault("convert", *words)


def test_faults_of_every_kind_are_named_at_once_and_each_once():
    message = fault(
        *("convert", "--num-shards", "x", "--shard-size", "big", "--boxes", "y", "--gzip=1", "--imagse", "i"),
        *("--instances", "a", "--categories", ",", "--output", "--split", "a-b"),
    )
    faults = message.split("; ")
    flags = [next(word.rstrip(".") for word in part.split() if word.startswith("--")) for part in faults]
    wrong = ["--shard-size", "--num-shards", "--boxes", "--categories"]
    assert flags == ["--gzip", "--imagse", "--output", *wrong, "--split"]


def test_value_of_unknown_flag_is_no_fault():
    for command in ([*INPUTS, "--frobnicate", "x", "--gzip"], ["verify", "--frobnicate", "out"]):
        assert fault(*command).startswith("unknown flag --frobnicate (recordmill ")


def test_misspelt_option_counts_as_given():
    message = fault("convert", "--imagse", "i", "--num_shards", "x", "--instances", "a", "--output", "o")
    assert "is missing" not in message
    assert "--num-shards must be a whole number (got 'x')" in message


def test_of_values_given_twice_last_counts_and_said(caplog):
    assert options("--num-shards", "2", "--num-shards=2", "--seed", "1").num_shards == 2
    assert caplog.text == ""
    assert options("--num-shards", "2", "--num-shards=3").num_shards == 3
    assert "--num-shards is set several times (2, 3); the last value is used" in caplog.text


@pytest.mark.parametrize("value", ["-", "-3", "-.5", "- -", "--a b"])
def test_value_may_begin_with_dash(value):
    words = ["convert", "images", "--format", "folder", "--output", "out", "--label-from", "name"]
    assert parse_one(*words, "--label-separator", value).options.label_separator == value


def test_the_other_verbs():
    verify = parse_one("verify", "out", "--workers", "2", "--progress", "none", "--debug")
    assert verify == Command(
        "verify", VerifyOptions(folder="out", workers=2), TerminalOptions(progress="none", debug=True)
    )
    sample = parse_one("sample", "new", "--count", "3")
    assert sample == Command("sample", SampleOptions(folder="new", count=3), TerminalOptions())
    extract = parse_one("extract", "out", "new", "--split", "val")
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
        [
            "convert",
            "a",
            "b",
            "--format",
            "table",
            "--output",
            "o",
            "--schema",
            "s",
            "--default",
            "a=1",
            "--label",
            "l",
        ],
        ["show", "out", "--json", "--index", "0"],
        ["index", "a", "b"],
        [*INPUTS, "--split", "train"],
        [*INPUTS, "--categories", '"a,b", 02146,no', "--categories", "c"],
    ],
)
def test_printed_config_is_read(tmp_path, capsys, words):
    with pytest.raises(SystemExit):
        parse([*words, "--print-config"])
    read, typed = parse_one(words[0], *config(tmp_path, capsys.readouterr().out)), parse_one(*words)
    assert (read.verb, read.format, read.options) == (typed.verb, typed.format, typed.options)
    assert ("split" in read.options.model_fields_set) == ("--split" in words)


def test_flags_win(tmp_path):
    flags = config(tmp_path, "images: i\ninstances: [a.json, b.json]\noutput: 2017\nnum-shards: 3\ngzip: true\n")
    options = parse_one("convert", *flags, "--instances", "c.json", "--num-shards", "4").options
    assert (options.images, options.instances, options.output) == (("i",), ("c.json",), "2017")
    assert (options.num_shards, options.gzip, options.seed) == (4, True, 0)


@pytest.mark.parametrize(
    ("text", "classes", "label"),
    [
        ("classes: [a,b, 02146, no, 1e3, ~]\nlabel: 010", ("a", "b", "02146", "no", "1e3", "~"), "010"),
        ("classes:\n- a,b\n- 2.50", ("a,b", "2.50"), None),
        ("classes: c, d\nlabel: ~", ("c", "d"), None),
        ("classes: 012", ("012",), None),
        ("classes: null", (), None),
    ],
)
def test_names_of_a_file_are_its_texts(tmp_path, text, classes, label):
    options = parse_one("convert", *config(tmp_path, f"labels: l.csv\ndata: i\noutput: o\n{text}\n")).options
    assert (options.classes, options.label) == (classes, label)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- images", ["must map names"]),
        ("images: [", ["not valid YAML"]),
        ("rows: [r.csv]\nformat: table", ["unknown option 'rows'. Did you mean data?"]),
        ("data: d\nformat: jpeg", ["--image-format jpeg"]),
        ("imagse: i\ninstances: a", ["unknown option 'imagse'. Did you mean images?", "--output is missing"]),
        ("config: other.yaml\ndebug: true", ["unknown option 'config'", "unknown option 'debug'"]),
        (
            "instances: i\nnum_shards: many\ngzip: perhaps",
            ["--num-shards must be a whole number (got 'many')", "--gzip must be true or false (got 'perhaps')"],
        ),
        ("instances: a\nimages: {a: b}\ncategories: {a: b}", ["--images", "--categories"]),
    ],
)
def test_faults_of_a_file(tmp_path, text, words):
    message = fault("convert", *config(tmp_path, text))
    assert [word for word in words if word not in message] == []
    assert "no such file" in fault("convert", "--config", str(tmp_path / "gone.yaml"))


def test_data_of_the_command_line_replaces_that_of_a_file(tmp_path):
    for text, data in (("[a, b]", ("a", "b")), ("a", ("a",))):
        flags = config(tmp_path, f"data: {text}\nformat: table\noutput: o\n")
        assert parse_one("convert", *flags).options.rows == data
        assert parse_one("convert", "c", *flags, "d").options.rows == ("c", "d")


def test_old_names_are_not_options_of_python():
    with pytest.raises(ConfigError, match=r"^unknown option 'rows'. Did you mean data\?$"):
        parse_values("convert", {"rows": ["r.csv"], "format": "table", "output": "o"})


# Verbs of earlier versions


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("coco --images I --instances F -o O", "--images I --instances F -o O"),
        ("coco --images=I --panoptic=P -o O --format jpeg", "--images=I --panoptic=P -o O --image-format jpeg"),
        ("coco --data D -o O", "D -o O --format coco"),
        *((f"{name} --data D -o O", f"D -o O --format {name}") for name in LABEL_FILE_FORMATS),
        ("cvat --data D --images I -o O", "D --images I -o O --format cvat"),
        ("folder --images I --images=J -o O", "I J -o O --format folder"),
        (
            "folder --images I --labels F -o O --path-column a --label-column=b",
            "--images I --labels F -o O --image-column a --label=b",
        ),
        ("table --rows R --rows S -o O", "R S -o O --format table"),
        ("table --rows R --images I --image-column c -o O", "R --images I --image-column c -o O --format table"),
        ("embed --images I --model m --dtype float16 -o O", "I --model m --feature-dtype float16 -o O"),
        ("embed --images I --labels F --model m -o O", "--images I --labels F --model m -o O"),
        (
            "embed --rows R --images I --image-column c --label l --model m -o O",
            "R --images I --image-column c --label l --model m -o O",
        ),
        ("auto --data D -o O", "D -o O"),
        ("auto --format-in yolo --data=D -o O", "D --format yolo -o O"),
    ],
)
def test_old_verb_shows_a_command_that_parses(words, command):
    verb, *flags = words.split()
    what = "a format of DATA, not a verb" if verb in FORMATS else "not a verb; convert does it"
    assert fault(verb, *flags) == f"{verb} is {what}. The same command is: recordmill convert {command}"
    if "panoptic" not in command:  # its masks are missing
        options = parse(["convert", *command.split()], recognises=False).options
        assert options is None or options.output == "O"  # None if the format is recognised


def test_every_old_verb_is_known():
    assert {*OLD_VERBS} == {*FORMATS, "embed", "auto"}
    assert fault("coco", "--images", "my images", "--captions", "c").endswith(
        "The same command is: recordmill convert --images 'my images' --captions c"
    )
