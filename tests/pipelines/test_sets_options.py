"""Several data sets of one job: which DATA are several, their names, their options."""

import shlex
from pathlib import Path

import pytest

from recordmill.launch.command_line.parser import parse, parse_values, to_config
from recordmill.pipelines.convert import job_limits
from recordmill.pipelines.sets_options import set_names
from recordmill.schemas.errors import ConfigError
from tests.literal_data import jpeg, write_files

COCO = '{"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [], "categories": []}'
YOLO = {"data.yaml": "train: images\nnames: [a]\n", "labels/1.txt": "0 0.5 0.5 0.5 0.5\n", "images/1.jpg": jpeg(1)}
FILES = {
    "coco": {"annotations/instances.json": COCO, "images/1.jpg": jpeg(2)},
    "coco2": {"annotations/instances.json": COCO, "images/1.jpg": jpeg(3)},
    "yolo": YOLO,
    "voc": {"JPEGImages/1.jpg": jpeg(4), "Annotations/1.xml": "<annotation><object></object></annotation>"},
    "pets": {"cat/1.jpg": jpeg(5), "dog/2.jpg": jpeg(6)},
    "more": {"cow/3.jpg": jpeg(7), "hen/4.jpg": jpeg(8)},
    "parts": {f"{split}/{name}/1.jpg": jpeg(9) for split in ("train", "val") for name in ("cat", "dog")},
    "flat": {"1.jpg": jpeg(11)},
    "rows": {"a.csv": "x,y\n1,2\n", "b.csv": "x,y\n3,4\n"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working directory, with a data set of each name of FILES."""
    for name, files in FILES.items():
        write_files(tmp_path / name, files)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "format_", "names"),
    [
        ("coco coco2", "sets", ["coco", "coco2"]),
        ("coco yolo voc", "sets", ["coco", "yolo", "voc"]),
        ("coco/annotations/instances.json coco2/annotations/instances.json", "sets", ["coco", "coco2"]),
        ("coco coco2 --format coco", "sets", ["coco", "coco2"]),
        ("parts pets", "sets", ["parts", "pets"]),  # folders of splits
        ("parts parts", "sets", ["parts", "parts2"]),
        # one data set, as before
        ("pets more", "folder", None),
        ("rows/a.csv rows/b.csv", "table", None),
        ("flat coco/images --instances coco/annotations/instances.json", "coco", None),
    ],
)
def test_data_are_one_set_or_several(words, format_, names, folder):
    command = parse(["convert", *words.split(), "-o", "out"])
    assert command.format.name == format_
    assert [one["name"] for one in command.options.sets] == names if names else not hasattr(command.options, "sets")


@pytest.mark.parametrize(
    "words", ["coco yolo voc --masks png --split a=0.5,b=0.5", "parts pets", "yolo voc --no-crowd"]
)
def test_recognised_sets_are_those_of_the_shown_command_and_of_the_config(words, folder):
    recognised = parse(["convert", *words.split(), "-o", "out"])
    shown = parse(shlex.split(recognised.notes[-1])[1:])
    (folder / "job.yaml").write_text(to_config(recognised))
    configured = parse(["convert", "--config", "job.yaml"])
    assert shown.options == configured.options == recognised.options


def test_values_of_a_config_are_read_as_those_of_one_set(folder):
    """YAML 1.1 reads `no` as False, 12 as a number."""
    (folder / "job.yaml").write_text(
        "output: out\nsets:\n- {data: yolo, categories: [no, 012], name: no}\n- {data: voc, voc-origin: 1, name: 07}\n"
    )
    yolo, voc = parse(["convert", "--config", "job.yaml"]).options.members
    assert (yolo.options.categories, voc.options.voc_origin) == (("no", "012"), "1")
    assert (yolo.name, voc.name) == ("no", "07")


@pytest.mark.parametrize(
    ("sets", "names"),
    [
        ([{"data": "x/pets/"}, {"data": "y/pets.zip"}, {"data": "pets2"}], ["pets", "pets3", "pets2"]),
        ([{"data": "x/a.json"}, {"data": "x/annotations/b.json.gz"}, {"data": "gs://bucket"}], ["x", "x2", "bucket"]),
        ([{"data": ["p", "q"]}, {"images": ["z/i"], "instances": ["f.json"]}], ["p", "i"]),
        ([{"data": "a", "name": "b"}, {"data": "b"}], ["b", "b2"]),
        ([{"data": "cats/images"}, {"data": "dogs/data/"}, {"data": "x/train"}], ["cats", "dogs", "train"]),
        (
            [{"images": ["cats/images/train2017"]}, {"images": ["dogs/val"]}, {"data": "/images"}],
            ["cats", "dogs", "images"],
        ),
        ([{"data": "gs://b/images"}, {"data": "gs://images"}], ["b", "images"]),
        ([{"data": "pe\u0301ts"}, {"data": "x/p\u00e9ts"}], ["p\u00e9ts", "p\u00e9ts2"]),
    ],
)
def test_names(sets, names):
    assert set_names(sets) == names


def test_options_of_the_job_are_those_of_each_set(folder):
    """But not those that are applied to the images of all sets."""
    words = "--masks rle --no-crowd --seed 3 --categories a --exclude e.txt --duplicates drop --split a=0.5,b=0.5"
    command = parse(["convert", "yolo", "voc", "-o", "out", *words.split()])
    for member in command.options.members:
        options = member.options
        assert (options.masks, options.no_crowd, options.seed, options.output) == ("rle", True, 3, "out")
        assert (options.categories, options.exclude, options.duplicates, options.is_part) == ((), (), "report", True)
        assert (options.splits, member.divided.splits) == (("train",), ("a", "b"))


def test_own_options_of_a_set_come_first(folder):
    sets = [{"data": "yolo", "split": "val", "no_crowd": False}, {"data": "voc"}]
    command = parse_values("convert", {"sets": sets, "no_crowd": True, "split": "test", "output": "out"})
    yolo, voc = command.options.members
    assert (yolo.divided.splits, yolo.options.no_crowd) == (("val",), False)
    assert (voc.divided.splits, voc.options.no_crowd) == (("test",), True)


def test_class_maps_that_need_labels(folder):
    sets = [{"data": "yolo", "class_map": "y.csv"}, {"data": "voc", "class_map": "v.csv", "allow_empty": True}]
    command = parse_values("convert", {"sets": sets, "class_map": "m.csv", "output": "out"})
    flag = "--allow-empty"
    maps = {"": ("--class-map m.csv", flag), "yolo": ("--class-map y.csv", flag)}
    assert job_limits(command.options, ("train",), "").class_maps == maps


def test_groups_of_the_job_are_for_its_limit_and_not_for_sets_with_their_own(folder):
    sets = [{"data": "yolo", "split": "a=0.5,b=0.5", "group_from": "x"}, {"data": "voc"}]
    options = parse_values("convert", {"sets": sets, "limit": 9, "group_from": "y", "output": "out"}).options
    assert options.division.sets == ("voc",)
    assert [member.divided.group_from for member in options.members] == ["x", None]
    assert [member.divided.groups_prefix for member in options.members] == ["", ""]
    divided = parse_values("convert", {"sets": sets, "split": "a=0.5,b=0.5", "group_from": "y", "output": "out"})
    assert [member.divided.groups_prefix for member in divided.options.members] == ["", "voc/"]


@pytest.mark.parametrize(
    ("sets", "more", "message"),
    [
        ([{"data": "yolo"}], {}, "--sets needs two or more data sets (got 1). Give a single one as DATA"),
        (["x"], {}, "--sets: 'x' is not JSON (JSON is malformed: invalid character (byte 0)). Give the options of"),
        ([["yolo"], "voc"], {}, "--sets: 'voc' is not JSON"),
        ([{"data": "yolo"}, {"data": "voc"}], {"data": "coco"}, "DATA and --sets both name the data sets. Give only"),
        (
            [{"data": "yolo", "num_shards": 2}, {"data": "voc"}],
            {},
            "yolo: --num-shards is an option of the whole job.",
        ),
        (
            [{"data": "yolo"}, {"data": "voc", "masks": "png"}],
            {},
            "voc: --masks is an option of the whole job. Give it",
        ),
        (
            [{"data": "yolo", "taks": "pose"}, {"data": "voc"}],
            {},
            "--sets, item 1: unknown option 'taks'. Did you mean",
        ),
        ([{"data": "yolo", "format": "yollo"}, {"data": "voc"}], {}, "yolo: --format must be one of coco, yolo, voc"),
        ([{"data": "yolo"}, {"data": "gone"}], {}, "gone: no such file or folder"),
        ([{"data": "yolo"}, {"data": "flat"}], {}, "flat: the format is not recognised"),
        ([{"data": ["yolo", "voc"]}, {"data": "coco"}], {}, "yolo: its data are 2 data sets. List each by itself"),
        ([{"data": "yolo", "name": "a/b"}, {"data": "voc"}], {}, "--sets: name 'a/b' has a slash. File names begin"),
        ([{"data": "yolo", "name": False}, {"data": "voc"}], {}, "--sets: name False is not a text. File names begin"),
        ([{"data": "yolo", "name": ".."}, {"data": "voc"}], {}, "--sets: name '..' has .. in it. File names begin"),
        (
            [{"data": "yolo", "name": "."}, {"data": "voc"}],
            {},
            "--sets: name '.' is the folder itself. File names",
        ),
        ([{"data": "yolo", "name": None}, {"data": "voc"}], {}, "--sets: name None is not a text. File names begin"),
        (
            [{"data": "yolo", "name": "é" * 200}, {"data": "voc"}],
            {},
            f"--sets: name '{'é' * 78}… has more than 255",
        ),
        (
            [{"data": "yolo"}, {"data": "a\nb"}],
            {},
            "--sets: name 'a\\nb' has a control character. Give the set",
        ),
        (
            [{"data": "yolo", "name": "a"}, {"data": "voc", "name": "a"}],
            {},
            "--sets: two sets are named 'a'. Give each",
        ),
        (
            [{"data": "yolo"}, {"data": "pets"}],
            {},
            "all records have one layout, but images of pets (folder)",
        ),
        (
            [{"data": "yolo"}, {"data": "rows/a.csv"}],
            {},
            "rows is rows (rows/a.csv is read as table: a.csv has rows), and",
        ),
        (
            [{"data": "pets"}, {"data": "more"}],
            {"model": "m"},
            "--model is not for several data sets. Leave it out, or",
        ),
        (
            [{"data": "coco"}, {"data": "yolo"}],
            {"caption_text": "counts"},
            "--caption-text is not for several data sets",
        ),
        (
            [{"data": "coco"}, {"data": "yolo"}],
            {"classes": "a"},
            "--classes is not an option of coco, the format of the",
        ),
        ([{"data": "coco"}, {"data": "yolo"}], {"task": "pose"}, "coco: --task is a flag of yolo; coco is coco ("),
        ([{"data": "yolo"}, {"data": "voc"}], {"shard_size": "x"}, "--shard-size 'x': not a size"),
        (
            [{"data": "yolo"}, {"data": "voc"}],
            {"split": "a=0.5,b=0.5", "groups": "g.csv", "split_by": "rank"},
            "--split-by divides each data set by itself, but --groups may group images of two sets. Leave out one",
        ),
    ],
)
def test_refused(sets, more, message, folder):
    with pytest.raises(ConfigError) as caught:
        parse_values("convert", {"sets": sets, "output": "out", **more})
    assert str(caught.value).startswith(message)


def test_faults_of_the_job_are_reported_once(folder):
    with pytest.raises(ConfigError) as caught:
        parse(["convert", "yolo", "voc", "-o", "out", "--num-shards", "0", "--split", "a=0.5,b=0.6"])
    assert str(caught.value).count("--num-shards") == str(caught.value).count("shares sum") == 1
