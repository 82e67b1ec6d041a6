"""Mistyped paths and files that would be written over are refused before anything runs."""

import os
import zipfile
from fractions import Fraction
from pathlib import Path

import pytest

from recordmill.launch.command_line.parser import parse_values
from recordmill.launch.preflight import check_inputs
from recordmill.pipelines.formats import FORMATS
from recordmill.schemas.errors import ConfigError
from tests.literal_data import write_files


def zipped(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with inputs in it."""
    for name in ("images/deep/a.jpg", "images2/a.jpg", "empty/as well/", "yolo/data.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    (tmp_path / "instances.json").write_text("{}")
    (tmp_path / "labels.csv").write_text("path,label\n")
    (tmp_path / "link").symlink_to(tmp_path / "images" / "deep")
    zipped(tmp_path / "masks.zip", "val/1.png")
    zipped(tmp_path / "ann.zip", "annotations/instances_val.json", "a.txt", "more.zip")
    zipped(tmp_path / "empty.zip")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fault(format_: str, **given: object) -> str:
    """Message of the refusal; empty without one."""
    given_others = given.keys() & OTHERS
    usual = {
        "coco": {"images": ("images",), **({} if given_others else {"instances": ("instances.json",)})},
        "folder": {"data": ("images",)},
        "folder --model": {"data": ("images",), "model": "mobilenet-v2"},
        "table": {"data": ("labels.csv",)},
    }
    name, has_model, _ = format_.partition(" --model")
    entry = FORMATS[name].with_model() if has_model else FORMATS[name]
    options = entry.options(**{"output": "out", **usual[format_], **given})
    try:
        check_inputs.check_inputs(options)
    except ConfigError as error:
        return str(error)
    return ""


OTHERS = {"keypoints", "captions", "stuff", "panoptic", "image_info"}
PANOPTIC = {"panoptic": "instances.json"}
CAPTIONS = {"captions": "instances.json", "caption_text": "counts"}
TEXTS = {"text_column": "t", "text": "counts"}
HALVES = (("train", Fraction(1, 2)), ("val", Fraction(1, 2)))


@pytest.mark.parametrize(
    ("format_", "given"),
    [
        *(("coco", {"output": output}) for output in ("out", "empty", "new/folder")),
        ("coco", {"images": "images/"}),
        ("coco", {"images": "{here}/images", "instances": "{here}/instances.json", "output": "{here}/out"}),
        *(("coco", {**PANOPTIC, "panoptic_masks": masks}) for masks in ("images", "images/", "masks.zip/val")),
        ("coco", {**PANOPTIC, "panoptic_masks": "masks.zip"}),
        ("coco", {"instances": "instances.json", "keypoints": "instances.json"}),
        ("table", {}),
        ("folder --model", {"weights": "none"}),
        ("folder --model", {"weights": "instances.json"}),
        ("folder", {"data": ("images", "images2", "masks.zip"), "labels": "labels.csv", "output": "new/folder"}),
    ],
)
def test_good_inputs_pass(folder, format_, given):
    absolute = {name: value.format(here=folder) if isinstance(value, str) else value for name, value in given.items()}
    assert fault(format_, **absolute) == ""


REFUSED = [
    ("coco", {"instances": "instance.json"}, ["--instances instance.json: no such file", "mean instances.json?"]),
    ("coco", {"instances": "qwertz"}, ["--instances qwertz: no such file"]),
    ("coco", {"instances": "~"}, ["--instances ~: no such file: only a shell expands ~"]),
    ("coco", {"instances": "gone/instances.json"}, ["--instances gone/instances.json: no such file"]),
    ("coco", {"instances": "images"}, ["--instances images", "folder"]),
    (
        "coco",
        {"instances": "yolo"},
        [
            "--instances yolo is a folder",
            "convert the folder: recordmill convert yolo -o OUT --format yolo (data.yaml)",
        ],
    ),
    ("coco", {"images": "ann.zip/more.zip"}, ["--images ann.zip/more.zip: an archive within", "Unpack ann.zip"]),
    ("coco", {"instances": ("instances.json", "./instances.json")}, ["--instances", "the same"]),
    ("coco", {"instances": "ann.zip"}, ["--instances", "archive", "ann.zip/annotations/instances_val.json"]),
    ("coco", {"instances": "masks.zip"}, ["--instances", "archive"]),
    ("coco", {"instances": "instances.json/x"}, ["--instances instances.json/x"]),
    ("coco", {"instances": "hdfs://b/a.json"}, ["is not supported"]),
    *(
        ("coco", {kind: "instances.jsn"}, [f"--{kind.replace('_', '-')} instances.jsn", "instances.json?"])
        for kind in sorted(OTHERS - {"panoptic"})
    ),
    (
        "coco",
        {"panoptic": "instances.jsn", "panoptic_masks": "images"},
        ["--panoptic instances.jsn", "instances.json?"],
    ),
    *(
        ("coco", {**PANOPTIC, "panoptic_masks": masks}, [f"--panoptic-masks {masks}", near])
        for masks, near in (
            *(("image", "images?"), ("mask.zip", "masks.zip?"), ("gone", "no such"), ("instances.json", "no such")),
            ("masks.zip/train", "no such"),
        )
    ),
    ("coco", {"images": "image"}, ["--images image: no such folder", "images?"]),
    ("coco", {"images": "image/"}, ["--images image/: no such folder", "images?"]),
    ("coco", {"images": "images/depe"}, ["--images images/depe: no such folder", "images/deep?"]),
    ("coco", {"images": "instances.json"}, ["--images instances.json", "is a file"]),
    ("coco", {"images": "instances.json/x"}, ["--images instances.json/x"]),
    ("coco", {"images": "empty"}, ["--images empty: the folder has no files"]),
    ("coco", {"images": "ftp://b/images"}, ["is not supported"]),
    ("coco", {"output": "instances.json"}, ["--output instances.json is a file"]),
    ("coco", {"output": "~/x"}, ["--output ~/x: only a shell expands ~"]),
    ("coco", {"output": "instances.json/x"}, ["--output instances.json/x", "below"]),
    (
        "coco",
        {"images": ("x", "images", "y"), "instances": ("z", "instances.json"), "output": "instances.json"},
        ["--images x", "; --images y", "; --instances z", "; --output instances.json"],
    ),
    ("coco", {"instances": "pipe"}, ["--instances pipe", "twice"]),
    ("coco", {"split": HALVES, "groups": "gone"}, ["--groups gone: no such file"]),
    ("coco", {**CAPTIONS, "stop_words": "gone"}, ["--stop-words gone: no such file"]),
    ("coco", {**CAPTIONS, "encoders": "gone"}, ["--encoders gone: no such folder"]),
    ("table", {"data": ("gone.csv", "images.csv")}, ["DATA gone.csv: no such file", "; DATA images.csv"]),
    ("table", {"data": "masks.zip"}, ["DATA masks.zip"]),
    ("table", {"data": ("labels.csv", "label*.csv")}, ["DATA labels.csv", "the same"]),
    (
        "coco",
        {**PANOPTIC, "panoptic": ("instances.json",) * 2, "panoptic_masks": ("images",) * 2},
        ["--panoptic ", "the same"],
    ),
    ("table", {"data": "ann.zip/a.txt"}, ["DATA ann.zip/a.txt", ".gz"]),
    ("table", {"schema": "gone"}, ["--schema gone: no such file"]),
    ("table", {"images": "gone", "image_column": "i"}, ["--images gone: no such folder"]),
    ("table", {**TEXTS, "stop_words": "gone"}, ["--stop-words gone: no such file"]),
    ("table", {**TEXTS, "encoders": "gone"}, ["--encoders gone: no such folder"]),
    ("table", {"data": "labels.csv", "output": "."}, ["labels.csv would be replaced"]),
    ("folder --model", {"data": "gone"}, ["DATA gone: no such folder"]),
    ("folder", {"split": HALVES, "groups": "gone"}, ["--groups gone: no such file"]),
    ("folder", {"labels": "label.csv"}, ["--labels label.csv: no such file", "labels.csv?"]),
    ("folder", {"labels": "images"}, ["--labels images", "folder"]),
    ("folder", {"labels": ("labels.csv", "./labels.csv")}, ["--labels", "the same"]),
    ("folder", {"data": ("images", "images/")}, ["DATA", "the same"]),
    ("folder", {"data": "empty.zip"}, ["DATA empty.zip: the folder has no files"]),
    *(
        (format_, {name: images}, [f"{typed}: {{here}}/{inner} is within {{here}}{outer}"])
        for format_, name, typed in (("coco", "images", "--images"), ("folder", "data", "DATA"))
        for images, inner, outer in (
            (("images", "images/deep"), "images/deep", "/images"),
            (("images/deep", "images"), "images/deep", "/images"),
            ((".", "images"), "images", ""),
            (("images", "link"), "images/deep", "/images"),
        )
    ),
]


@pytest.mark.parametrize(("format_", "given", "words"), REFUSED)
def test_a_fault_names_its_flag(folder, format_, given, words):
    message = fault(format_, **given)
    assert [word for word in words if word.format(here=folder) not in message] == []
    wanted = sum(word.startswith(("--", "; --", "DATA", "; DATA")) for word in words) or 1
    assert message.count("; --") + message.count("; DATA") + 1 == wanted, message


def test_every_folder_within_another_is_named(folder):
    (folder / "images" / "deep" / "er").mkdir()
    (folder / "images" / "deep" / "er" / "b.jpg").touch()
    assert fault("folder", data=("images/deep/er", "images", "images/deep")).count(" is within ") == 3


# Files that would be written over


def test_read_only_output_passes_if_it_is_complete(folder, monkeypatch):
    """The check is left to `claim_output` if the output may be complete."""
    monkeypatch.setattr(check_inputs, "folder_fault", lambda path: f"{path} may not be written to")
    assert fault("coco") == "--output out may not be written to"
    (folder / "out").mkdir()
    (folder / "out" / "manifest.json").write_text("{}")
    assert fault("coco") == ""


def test_input_that_data_set_would_replace_is_refused(folder):
    (folder / "features.json").touch()
    message = fault("folder", labels="labels.csv", output=".")
    assert "labels.csv would be replaced" in message
    assert "--output . has features.json" in message
    (folder / "out").symlink_to(folder)
    assert "features.json would be replaced" in fault("coco", instances="out/features.json", output=str(folder))


def test_input_in_state_folder_is_refused(folder):
    (folder / "out" / ".recordmill-train").mkdir(parents=True)
    state = "out/.recordmill-train/a.json"
    (folder / state).touch()
    assert "state" in fault("coco", instances=state)
    assert fault("coco", instances=state, output="other") == ""


def test_output_that_is_data_or_within_its_images_is_refused(folder):
    for name in ("zoo/cat/1.jpg", "zoo/train/dog/1.jpg"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    (folder / "to_zoo").symlink_to("zoo")
    for data in ("zoo", "zoo/", str(folder / "to_zoo")):
        assert fault("folder", data=(data,), output="zoo") == "--output zoo is DATA, too. Give another folder"
    for output in ("zoo/cat", "zoo/cat/out", "zoo/cat/new/out"):
        within = f"--output {output} is in {folder}/zoo/cat, which holds images of DATA. Give a folder elsewhere"
        assert fault("folder", data=("zoo",), output=output) == within
    for output in ("zoo/out", "zoo/train/out", "zoo2"):
        assert fault("folder", data=("zoo",), output=output) == ""


def test_output_that_is_a_folder_of_images_is_refused(folder):
    (folder / "coco" / "2017").mkdir(parents=True)
    (folder / "coco" / "2017" / "1.jpg").touch()
    images = "--output coco/2017 is a folder of images, too. Give another folder"
    assert fault("coco", images=("coco/2017",), output="coco/2017") == images
    within = f"--output coco/2017/out is in {folder}/coco/2017, which holds images. Give a folder elsewhere"
    assert fault("coco", images=("coco",), output="coco/2017/out") == within
    assert fault("coco", images=("coco/2017",), output="coco/out") == ""


def test_paths_that_are_no_names_are_refused(folder):
    name = os.fsdecode(b"p\xff")
    (folder / name).mkdir()
    for given in ({"data": (name,)}, {"output": name}):
        typed = "--output" if "output" in given else "DATA"
        assert fault("folder", **given) == f"{typed} {name} is not UTF-8, which manifests need. Rename it"
    assert fault("folder", data=("",)) == "DATA is empty. Give a path"
    assert fault("table", data=("",)) == "DATA is empty. Give a path"
    (folder / "none").mkdir()
    assert fault("table", data=("none",)).startswith("DATA none is a folder without files of rows (.csv, ")


NAMES = ("label_map.json", "rejects-val.jsonl", "manifest-train.json", "report.html", "statistics-val.json")


@pytest.mark.parametrize("name", [*NAMES, "a-b.labels.txt"])
def test_foreign_file_of_our_name_is_refused(folder, name):
    (folder / "out").mkdir()
    (folder / "out" / name).touch()
    assert f"--output out has {name}" in fault("coco")


@pytest.mark.parametrize("name", ["manifest.json", "manifest-train.json", "labels.csv"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_folder_of_our_file_name_is_refused(folder, name, make):
    (folder / "out").mkdir()
    make(folder / "out" / name)
    assert f"--output out has {name}, which is not a file" in fault("coco")


@pytest.mark.parametrize("ours", ["manifest.json", ".recordmill-val/recipe.json"])
def test_files_of_data_set_or_of_unfinished_run_are_ours(folder, ours):
    for name in ("labels.csv", "rejects-train.jsonl", ours):
        (folder / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "out" / name).write_text("{}")
    assert fault("coco") == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("yolo yolo/", "yolo and yolo/ are one path of two data sets. Give it once"),
        ("yolo ./yolo", "yolo and ./yolo are one path of two data sets. Give it once"),
        ("yolo link", "yolo and link are one path of two data sets. Give it once"),
        ("yolo inner", "link/inner of one data set is within yolo of another"),
        ("inner yolo", "link/inner of one data set is within yolo of another"),
        ("yolo voc --output yolo", "--output yolo is DATA, too. Give another folder"),
        ("yolo voc --output voc/JPEGImages/out", "--output voc/JPEGImages/out is in "),
    ],
)
def test_paths_of_two_data_sets(words, message, tmp_path, monkeypatch):
    """A path that is in two sets would have its images in both."""
    write_files(tmp_path, {"yolo/data.yaml": "train: images\nnames: [a]\n", "yolo/images/1.jpg": b"", "yolo/1.txt": ""})
    for folder in ("voc", "yolo/inner"):
        write_files(tmp_path / folder, {"Annotations/1.xml": "<annotation></annotation>", "JPEGImages/1.jpg": b""})
    (tmp_path / "link").symlink_to("yolo")
    monkeypatch.chdir(tmp_path)
    data, _, output = words.replace("inner", "link/inner").partition(" --output ")
    sets = [{"data": path, "format": "voc" if path in ("voc", "link/inner") else "yolo"} for path in data.split()]
    options = parse_values("convert", {"sets": sets, "output": output or "out"}).options
    with pytest.raises(ConfigError) as caught:
        check_inputs.check_inputs(options)
    assert message in str(caught.value)


def test_maps_of_one_folder_are_not_those_of_two_sets(tmp_path, monkeypatch):
    """An image of another set with the same name and size would have a wrong depth map."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"depth/1.png": b""})
    for name in "ab":
        write_files(tmp_path / name, {"Annotations/1.xml": "<annotation></annotation>", "JPEGImages/1.jpg": b""})
    sets = [{"data": name, "format": "voc"} for name in "ab"]
    given = {"sets": sets, "output": "out", "depth_images": ["depth"], "depth_scale": 1}
    with pytest.raises(ConfigError, match="depth and depth are one path of two data sets"):
        check_inputs.check_inputs(parse_values("convert", given).options)


def test_files_of_options_may_be_those_of_several_sets(tmp_path, monkeypatch):
    write_files(tmp_path, {"e.txt": "1.jpg\n"})
    for name in "ab":
        write_files(tmp_path / name, {"Annotations/1.xml": "<annotation><object></object></annotation>", "1.jpg": b""})
    monkeypatch.chdir(tmp_path)
    sets = [{"data": name, "exclude": ["e.txt"]} for name in "ab"]
    check_inputs.check_inputs(parse_values("convert", {"sets": sets, "output": "out", "exclude": ["e.txt"]}).options)
