"""The format of a conversion, and where its DATA goes."""

import shlex
from pathlib import Path

import pytest

from recordmill.launch.command_line.parser import parse, read_words
from recordmill.pipelines.choose_format import choose_conversion, command_words, convert_fields, format_fields
from recordmill.pipelines.dataset_options import TerminalOptions
from recordmill.pipelines.formats import FORMATS, LABEL_FILE_FORMATS
from recordmill.pipelines.recognise import describe_data
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.option import option_fields
from tests.literal_data import write_files

INSTANCES = {"instances": ["a.json"]}
LABELS = {"labels": ["l.csv"]}


@pytest.mark.parametrize(
    ("given", "name", "values"),
    [
        *(({"data": "d", "format": name}, name, {"data": "d"}) for name in ("coco", *LABEL_FILE_FORMATS)),
        *(({"data": "d", "format": name}, name, {"data": ["d"]}) for name in ("folder", "table")),
        ({"data": ["a", "b"], "format": "table"}, "table", {"data": ["a", "b"]}),
        ({"data": ["a", "b"], "format": "folder"}, "folder", {"data": ["a", "b"]}),
        ({"data": "d", "format": "yolo", "images": "i"}, "yolo", {"data": "d", "images": "i"}),
        # flags of label files tell the format, and DATA is the images
        ({"data": "i", **INSTANCES}, "coco", {"images": ["i"], **INSTANCES}),
        ({"images": "i", **INSTANCES}, "coco", {"images": ["i"], **INSTANCES}),
        ({"data": ["i", "j"], "images": ["j", "i"], **INSTANCES}, "coco", {"images": ["i", "j"], **INSTANCES}),
        ({"data": "i", "captions": "c.json"}, "coco", {"images": ["i"], "captions": "c.json"}),
        ({"data": "i", **LABELS}, "folder", {"data": ["i"], **LABELS}),
        ({"images": ["i", "j"], **LABELS}, "folder", {"data": ["i", "j"], **LABELS}),
        ({"data": "i", "format": "coco", **INSTANCES}, "coco", {"images": ["i"], **INSTANCES}),
        # missing values count as none
        ({"data": "d", "format": "yolo", "images": [], "task": "", "num_shards": None}, "yolo", {"data": "d"}),
    ],
)
def test_named_formats(given, name, values):
    """The user named the format, so nothing is said of it."""
    conversion = choose_conversion(given)
    assert (conversion.format, conversion.values, conversion.notes) == (FORMATS[name], values, ())


@pytest.mark.parametrize("given", [{"data": "i", "format": "folder"}, {"data": "r", "format": "table"}, {**LABELS}])
def test_model_is_no_format(given):
    conversion = choose_conversion({"data": "d", **given, "model": "m"})
    assert conversion.format.has_model
    assert conversion.values["model"] == "m"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "DATA is missing: the folder, .zip or file"),
        ({"data": "d", "format": "jpeg"}, "--format names the format of DATA. To store images as jpeg, give --image-"),
        ({"data": "d", "format": "keep"}, "--format names the format of DATA. To store images as keep, give --image-"),
        ({"data": "d", "format": "embed"}, "--format embed does not exist. To store features of a model, give --model"),
        (
            {"data": "d", "format": "yolov"},
            f"--format must be one of {', '.join(FORMATS)} (got 'yolov'). Did you mean y",
        ),
        ({"data": "d", "format": "sql"}, f"--format must be one of {', '.join(FORMATS)} (got 'sql')"),
        (
            {"data": "i", **INSTANCES, **LABELS},
            "--instances (coco) and --labels (folder) are of two formats. Give only",
        ),
        ({"data": "i", "images": "j", **INSTANCES}, "i and --images j both name the images. Give only one of them"),
        ({"data": "i", "images": "j", **LABELS}, "i and --images j both name the images. Give only one of them"),
        ({"data": "i", "images": {"a": "b"}, **INSTANCES}, "i and --images {'a': 'b'} both name the images"),
        # options of another format
        ({"data": "d", "format": "voc", "task": "pose"}, "--task is a flag of yolo; --format is voc"),
        ({"data": "i", **INSTANCES, "task": "pose"}, "--task is a flag of yolo; --instances is a flag of coco"),
        (
            {"data": "d", "format": "yolo", "label": "x"},
            "--label is a flag of folder, table; --format is yolo",
        ),
        ({"data": "d", "format": "table", **LABELS}, "--labels is a flag of folder; --format is table"),
        ({"data": "d", "format": "table", "label_from": "name", "group_from": "x"}, "--label-from is a flag of folder"),
        (
            {"data": "d", "format": "folder", "images": "i"},
            "--images is not needed with class folders. Give them as DA",
        ),
        ({"data": "d", "format": "yolo", **INSTANCES}, "--instances is a flag of coco; --format is yolo"),
        # --model
        ({"data": "d", "format": "yolo", "model": "m"}, "--model applies to class folders, and to rows with --image-"),
        ({"data": "i", **INSTANCES, "model": "m"}, "--model applies to class folders, and to rows with --image-column"),
        (
            {"data": "d", "format": "yolo", "pool": "avg"},
            "--pool is a flag of folder --model, table --model; --format is",
        ),
        ({"data": "d", "format": "folder", "pool": "avg"}, "--pool has no effect without --model"),
        ({"data": "d", "format": "folder", "model": "m", "max_side": 9}, "--max-side has no effect with --model"),
        ({"data": "d", "format": "table", "model": "m", "task": "pose"}, "--task is a flag of yolo; --format is table"),
    ],
)
def test_refused(given, message):
    with pytest.raises(ConfigError) as caught:
        choose_conversion(given)
    assert str(caught.value).startswith(message)


def test_each_option_of_another_format_is_named():
    with pytest.raises(ConfigError) as caught:
        choose_conversion({"data": "d", "format": "voc", "task": "pose", "image_column": "x"})
    assert str(caught.value).startswith("--task is a flag of yolo; --format is voc, --image-column is a flag of folder")


# Data whose format is recognised


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working directory, with class folders, and a folder of Pascal VOC."""
    for name in ("pets/cat/1.jpg", "pets/dog/2.jpg", "more/cow/3.jpg", "more/hen/4.jpg", "voc/JPEGImages/1.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "voc" / "Annotations").mkdir()
    (tmp_path / "voc" / "Annotations" / "1.xml").write_text("<annotation><object></object></annotation>")
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x,y\n1,2\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "format_", "command"),
    [
        ("pets", "folder", "convert pets -o out --format folder"),
        ("pets more", "folder", "convert pets more -o out --format folder"),
        ("pets --model m", "folder", "convert pets -o out --model m --format folder"),
        ("voc --masks png", "voc", "convert voc -o out --masks png --format voc"),
        ("a.csv b.csv", "table", "convert a.csv b.csv -o out --format table"),
        ("'*.csv' --num-shards 2", "table", "convert '*.csv' -o out --num-shards 2 --format table"),
    ],
)
def test_command_without_recognition_does_the_same(folder, words, format_, command):
    recognised = parse(["convert", *shlex.split(words), "-o", "out"])
    named = parse(shlex.split(command))
    assert (recognised.format, recognised.options) == (named.format, named.options)
    assert named.notes == ()
    what, shown = recognised.notes
    assert f" read as {format_}: " in what
    again = parse(shlex.split(shown)[1:])
    assert (again.format, again.options, again.notes) == (named.format, named.options, ())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("voc --task pose", "--task is a flag of yolo; voc is voc ("),
        ("voc --model m", "--model applies to class folders"),
        ("pets --images i", "--images is not needed with class folders. Give them as DATA"),
        ("gone", "gone: no such file or folder"),
        ("pet", "pet: no such file or folder (did you mean pets?)"),
        ("pets/dot", "pets/dot: no such file or folder (did you mean pets/dog?)"),
        ("~/gone", "~/gone: no such file or folder: only a shell expands ~"),
        ("gone/*", "gone/*: no file matches"),
        ("~/gone/*", "~/gone/*: no file matches: only a shell expands ~"),
        (r"pets\dog", r"pets\dog: no such file or folder (did you mean pets/dog?)"),
        (r"C:\data\pets", r"C:\data\pets: no such file or folder: a path of Windows, in WSL /mnt/c/data/pets"),
        (
            "pets voc",
            "all records have one layout, but images of pets (folder) have one class each, "
            "and images of voc (voc) have objects. Convert each kind to its own --output",
        ),
    ],
)
def test_recognised_data_refuses_flags_of_others(folder, words, message):
    with pytest.raises(ConfigError) as caught:
        parse(["convert", *words.split(), "-o", "out"])
    assert str(caught.value).startswith(message)


def test_option_of_one_format_chooses_it(folder):
    """Of data that is not recognised. An option of several formats chooses none."""
    (folder / "flat").mkdir()
    (folder / "flat" / "1.jpg").touch()
    assert choose_conversion({"data": "flat", "task": "pose"}).format == FORMATS["yolo"]
    with pytest.raises(ConfigError, match="flat: the format is not recognised"):
        choose_conversion({"data": "flat", "masks": "rle"})


def test_options_help_to_recognise(folder):
    """A column with an unusual name has the classes."""
    (folder / "named").mkdir()
    for name in ("1.jpg", "2.jpg"):
        (folder / "named" / name).touch()
    (folder / "named" / "t.csv").write_text("picture,thing\n1.jpg,cat\n2.jpg,dog\n")
    chosen = choose_conversion({"data": "named", "label": "thing"})
    assert (chosen.format, chosen.values["labels"]) == (FORMATS["folder"], ["named/t.csv"])
    with pytest.raises(ConfigError, match="names images, but not which of its columns has their classes"):
        choose_conversion({"data": "named"})


BOXES = '{"image": "1.jpg", "label": "a", "bbox": [1, 2, 3, 4]}\n{"image": "2.jpg", "label": "b", "bbox": [1, 2, 3, 4]}'


@pytest.mark.parametrize(
    ("name", "text", "given", "outcome"),
    [
        ("t.csv", "image,xmin,ymin,xmax,ymax,label\n1.jpg,1,2,3,4,a\n2.jpg,1,2,3,4,b", {}, "tfcsv"),
        ("t.csv", "Filename,Class,XMin,YMin,XMax,YMax\n1.jpg,a,1,2,3,4\n1.jpg,b,1,2,3,4", {}, "tfcsv"),
        ("t.csv", "filename,label,x,y,w,h\n1.jpg,a,1,2,3,4\n2.jpg,b,1,2,3,4", {}, "tfcsv"),
        ("t.csv", 'image_path,label,bbox\n1.jpg,a,"[1, 2, 3, 4]"', {}, "tfcsv"),
        (
            "t.csv",
            "image,kind,xmin,ymin,xmax,ymax\n1.jpg,a,1,2,3,4\n2.jpg,b,1,2,3,4",
            {},
            "boxed/t.csv has boxes (xmin, ymin, xmax, ymax), and a table of labels has one class per image. To read "
            "the boxes, name the columns of images and classes filename and class. To read a class per image, add "
            "--label COLUMN",
        ),
        (
            "t.csv",
            "ImageID,Source,LabelName,XMin,XMax,YMin,YMax\n1,x,/m/1,0,1,0,1\n2,x,/m/2,0,1,0,1",
            {},
            "boxed/t.csv has boxes (XMin, YMin, XMax, YMax), and a table of labels has one class per image. To read "
            "the boxes: recordmill convert boxed/t.csv --images boxed --format openimages -o OUT. To read a class per "
            "image, add --label COLUMN",
        ),
        (
            "t.jsonl",
            BOXES,
            {},
            "boxed/t.jsonl has boxes (bbox), and a table of labels has one class per image. To read the boxes, save it "
            "as CSV with the columns filename, class, xmin, ymin, xmax, ymax. To read a class per image, add --label "
            "label",
        ),
        ("t.jsonl", BOXES, {"label": "label"}, "folder"),
        ("t.jsonl", BOXES, {"label": "bbox"}, "boxed/t.jsonl has boxes (bbox), and a table of labels has one"),
        ("t.csv", "image,label,width,height\n1.jpg,a,4,3\n2.jpg,b,4,3", {}, "folder"),
    ],
)
def test_tables_of_boxes_do_not_become_classes(folder, name, text, given, outcome):
    (folder / "boxed").mkdir()
    for image in ("1.jpg", "2.jpg"):
        (folder / "boxed" / image).touch()
    (folder / "boxed" / name).write_text(f"{text}\n")
    if outcome in FORMATS:
        assert choose_conversion({"data": "boxed", **given}).format == FORMATS[outcome]
        return
    with pytest.raises(ConfigError) as caught:
        choose_conversion({"data": "boxed", **given})
    assert str(caught.value).startswith(outcome)


@pytest.mark.parametrize(
    ("names", "advised"),
    [(["cat_1.jpg", "dog_1.jpg"], True), (["1.jpg", "2.jpg"], False), (["a.md", "b.md", "c.json"], False)],
)
def test_names_of_images_may_have_the_classes(folder, names, advised):
    """The command is advised if some names have a separator."""
    (folder / "flat").mkdir()
    for name in names:
        (folder / "flat" / name).touch()
    with pytest.raises(ConfigError) as caught:
        choose_conversion({"data": "flat"})
    assert ("Run recordmill convert flat -o OUT --format folder --label-from name for" in str(caught.value)) is advised
    assert "--format table" not in str(caught.value)


def test_service_does_not_read_data():
    assert choose_conversion({"data": "gs://b/d"}, recognises=False) is None
    assert parse(["convert", "gs://b/d", "--output", "gs://b/o"], recognises=False).options is None


# Words and fields


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"output": "o", "data": ["a b", "c"]}, ["a b", "c", "--output", "o"]),
        ({"gzip": True, "no_crowd": False, "overwrite": "true"}, ["--gzip", "--overwrite"]),
        ({"split": {"train": 0.5, "val": "1/2"}}, ["--split", "train=0.5,val=1/2"]),
        ({"instances": ("a", "b"), "num_shards": 3}, ["--instances", "a", "--instances", "b", "--num-shards", "3"]),
        ({"images": Path("i")}, ["--images", "i"]),
        ({"classes": ["a,b", "c"], "rename": {"k": "a,b"}}, ["--classes", '"a,b",c', "--rename", '"k=a,b"']),
        ({"fields": {"score": "float", "a,b": None}}, ["--fields", 'score:float,"a,b"']),
        ({"progress": "none"}, ["--progress", "none"]),
    ],
)
def test_command_words(values, words):
    assert list(command_words(values)) == words
    typed, faults = read_words((*convert_fields(), *option_fields(TerminalOptions)), words)
    assert faults == []
    assert list(command_words(typed)) == words


def test_fields_of_a_format():
    names = {name: {field.name for field in format_fields(name)} for name in FORMATS}
    assert names["yolo"] > {"task", "data", "images", "progress", "debug"}
    assert not names["yolo"] & {"model", "instances", "label", "voc_origin"}
    assert names["folder"] > {"model", "batch", "labels", "image_format"}
    assert {name for name in FORMATS if "model" in names[name]} == {"folder", "table"}


@pytest.mark.parametrize(
    ("files", "data", "message"),
    [
        ({"a.tar.gz": b"\x1f\x8b\x08"}, "a.tar.gz", "the file is compressed by gzip. Unpack it"),
        ({"a.rar": b"Rar!\x1a\x07"}, "a.rar", "the file is a .rar archive. Unpack it"),
        ({"a.xlsx": b"PK\x03\x04" + bytes(26) + b"xl/"}, "a.xlsx", "the file is an Excel workbook. Save it as CSV"),
        (
            {"train2017.zip": b"PK", "a.tar": b""},
            ".",
            "the format is not recognised: 0 images, 2 other files (.tar, .zip). "
            "Archives within a folder are not read. Unpack them, or give one .zip",
        ),
    ],
)
def test_archives_are_to_be_unpacked(files, data, message, tmp_path):
    write_files(tmp_path, files)
    assert describe_data([str(tmp_path / data)]) == message


def test_no_format_of_images_is_advised_without_images(tmp_path):
    write_files(tmp_path, {"list.csv": "1.jpg,cat\n2.jpg,dog\n"})
    assert "--format vertex" not in describe_data([str(tmp_path)])
    write_files(tmp_path, {"1.jpg": b"", "2.jpg": b""})
    assert "--format vertex" in describe_data([str(tmp_path)])
