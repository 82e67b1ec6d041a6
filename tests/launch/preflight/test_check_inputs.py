"""Mistyped paths are told before anything runs."""

import os
import zipfile
from pathlib import Path

import pytest

from recordmill.launch.preflight import check_inputs
from recordmill.launch.preflight.check_inputs import check_coco_inputs, check_folder_inputs
from recordmill.pipelines.options.coco_options import CocoOptions
from recordmill.pipelines.options.folder_options import FolderOptions
from recordmill.schemas.errors import ConfigError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with good inputs in it."""
    (tmp_path / "images" / "deep").mkdir(parents=True)
    (tmp_path / "images" / "deep" / "a.jpg").write_text("")
    (tmp_path / "instances.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(images="images", instances="instances.json", output="out") -> None:
    check_coco_inputs(CocoOptions(images=(images,), instances=(instances,), output=output))


@pytest.mark.parametrize("output", ["out", ".", "new/folder", "images"])
def test_good_inputs_pass(folder, output):
    check(output=output)
    check(str(folder / "images"), str(folder / "instances.json"), str(folder / output))
    check(images="images/")


def test_an_output_that_cannot_be_written_to_passes_where_it_holds_a_data_set(folder, monkeypatch):
    """It may be complete, and `claim_output` says so."""
    monkeypatch.setattr(check_inputs, "folder_fault", lambda path: f"{path} may not be written to")
    with pytest.raises(ConfigError, match=r"^--output out may not be written to$"):
        check()
    (folder / "out").mkdir()
    (folder / "out" / "manifest.json").write_text("{}")
    check()


@pytest.mark.parametrize(
    ("paths", "fault"),
    [
        ({"instances": "instance.json"}, "--instances instance.json: no such file (did you mean instances.json?)"),
        ({"instances": "qwertz"}, "--instances qwertz: no such file"),
        ({"instances": "gone/instances.json"}, "--instances gone/instances.json: no such file"),
        ({"instances": "images"}, "--instances images is a folder; give the file"),
        ({"images": "image"}, "--images image: no such folder (did you mean images?)"),
        ({"images": "image/"}, "--images image/: no such folder (did you mean images?)"),
        ({"images": "images/depe"}, "--images images/depe: no such folder (did you mean images/deep?)"),
        (
            {"images": "instances.json"},
            "--images instances.json: is a file; give the folder that holds the images",
        ),
        ({"output": "instances.json"}, "--output instances.json is a file; give a folder, which is made if need be"),
    ],
)
def test_a_fault_is_told(folder, paths, fault):
    with pytest.raises(ConfigError) as caught:
        check(**paths)
    assert str(caught.value) == fault


@pytest.mark.parametrize(
    "paths", [{"instances": "instances.json/x"}, {"images": "instances.json/x"}, {"output": "instances.json/x"}]
)
def test_a_path_below_a_file_is_told_of_its_flag(folder, paths):
    with pytest.raises(ConfigError, match=f"--{next(iter(paths))} instances.json/x"):
        check(**paths)


def zipped(path, *names: str):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"")


def check_panoptic(masks: str, **files) -> None:
    options = {"panoptic": ("instances.json",), "panoptic_masks": (masks,)}
    check_coco_inputs(CocoOptions(images=("images",), output="out", **options | files))


@pytest.mark.parametrize("masks", ["images", "images/", "masks.zip", "masks.zip/val"])
def test_the_pngs_of_a_panoptic_file_may_be_in_a_folder_or_an_archive(folder, masks):
    zipped(folder / "masks.zip", "val/1.png")
    check_panoptic(masks)


@pytest.mark.parametrize(
    ("masks", "near"),
    [
        ("image", " (did you mean images?)"),
        ("gone", ""),
        ("mask.zip", " (did you mean masks.zip?)"),
        ("instances.json", ""),
        ("masks.zip/train", ""),
    ],
)
def test_a_place_without_pngs_is_told(folder, masks, near):
    zipped(folder / "masks.zip", "val/1.png")
    with pytest.raises(ConfigError) as caught:
        check_panoptic(masks)
    assert str(caught.value) == f"--panoptic-masks {masks}: no such folder or .zip{near}"


@pytest.mark.parametrize("kind", ["keypoints", "captions", "stuff", "panoptic", "image_info"])
def test_a_file_of_any_kind_that_is_not_there_is_told_by_its_flag(folder, kind):
    masks = {"panoptic_masks": ("images",)} if kind == "panoptic" else {}
    options = CocoOptions(images=("images",), output="out", **{kind: ("instances.jsn",)}, **masks)
    with pytest.raises(ConfigError) as caught:
        check_coco_inputs(options)
    flag = f"--{kind.replace('_', '-')}"
    assert str(caught.value) == f"{flag} instances.jsn: no such file (did you mean instances.json?)"


def test_one_file_may_be_of_two_kinds(folder):
    check_coco_inputs(
        CocoOptions(images=("images",), output="out", instances=("instances.json",), keypoints=("instances.json",))
    )


def test_a_folder_without_files_is_told(folder):
    (folder / "empty" / "as well").mkdir(parents=True)
    with pytest.raises(ConfigError, match="--images empty: no file in it, nor in any folder below"):
        check(images="empty")


def test_one_file_under_two_names(folder):
    options = CocoOptions(images=("images",), instances=("instances.json", "./instances.json"), output="out")
    with pytest.raises(ConfigError, match=r"--instances instances\.json \./instances\.json: two of these are the same"):
        check_coco_inputs(options)


def test_every_fault_is_told(folder):
    options = CocoOptions(images=("x", "images", "y"), instances=("z", "instances.json"), output="instances.json")
    with pytest.raises(ConfigError) as caught:
        check_coco_inputs(options)
    assert str(caught.value).split("; ")[:3] == [
        "--instances z: no such file",
        "--images x: no such folder",
        "--images y: no such folder",
    ]
    assert "--output instances.json is a file" in str(caught.value)


def test_an_archive_in_place_of_a_file_in_it(folder):
    zipped(folder / "ann.zip", "annotations/instances_val.json", "a.txt")
    zipped(folder / "other.zip", "a.txt")
    for name, example in ("ann.zip", ", ann.zip/annotations/instances_val.json for example"), ("other.zip", ""):
        with pytest.raises(ConfigError) as caught:
            check_coco_inputs(CocoOptions(images=("images",), instances=(name,), output="out"))
        assert str(caught.value) == f"--instances {name} is an archive; name the file in it{example}"


# recordmill folder


def check_folder(images=("images",), labels=(), output="out") -> None:
    check_folder_inputs(FolderOptions(images=images, labels=labels, output=output))


def check_coco(images) -> None:
    check_coco_inputs(CocoOptions(images=images, instances=("instances.json",), output="out"))


def test_good_inputs_of_folder_pass(folder):
    (folder / "labels.csv").write_text("path,label\n")
    zipped(folder / "photos.zip", "cat/1.jpg")
    check_folder()
    check_folder(images=("images", "photos.zip"), labels=("labels.csv",), output="new/folder")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"labels": ("label.csv",)}, "--labels label.csv: no such file (did you mean labels.csv?)"),
        ({"labels": ("images",)}, "--labels images is a folder; give the file"),
        ({"labels": ("labels.csv", "./labels.csv")}, "--labels labels.csv ./labels.csv: two of these are the same"),
        ({"images": ("images", "images/")}, "--images images images/: two of these are the same"),
        ({"images": ("image",)}, "--images image: no such folder (did you mean images?)"),
        ({"images": ("empty.zip",)}, "--images empty.zip: no file in it, nor in any folder below"),
        ({"output": "labels.csv"}, "--output labels.csv is a file; give a folder, which is made if need be"),
        (
            {"images": ("x",), "labels": ("y",), "output": "labels.csv/z"},
            "--labels y: no such file; --images x: no such folder; --output labels.csv/z is below labels.csv, which is "
            "a file; give a folder, which is made if need be",
        ),
    ],
)
def test_faults_of_folder_are_told(folder, given, fault):
    (folder / "labels.csv").write_text("path,label\n")
    zipped(folder / "empty.zip")
    with pytest.raises(ConfigError) as caught:
        check_folder(**given)
    assert str(caught.value) == fault


@pytest.mark.parametrize(
    ("images", "inner", "outer"),
    [
        (("images", "images/deep"), "images/deep", "images"),
        (("images/deep", "images"), "images/deep", "images"),
        ((".", "images"), "images", ""),
        (("images", "link"), "images/deep", "images"),
        (("{here}/images", "images/deep"), "images/deep", "images"),
    ],
)
def test_one_folder_of_images_within_another_is_refused(folder, images, inner, outer):
    """Its files would be taken twice, under two names."""
    (folder / "link").symlink_to(folder / "images" / "deep")
    images = tuple(path.format(here=folder) for path in images)
    within = f"{folder / inner} is within {folder / outer}"
    for check_images in (check_folder, check_coco):
        with pytest.raises(ConfigError) as caught:
            check_images(images)
        assert str(caught.value) == f"--images: {within}, so its files would be taken twice; give one of them"


def test_every_folder_that_is_within_another_is_told(folder):
    (folder / "images" / "deep" / "er").mkdir()
    (folder / "images" / "deep" / "er" / "b.jpg").write_text("")
    with pytest.raises(ConfigError) as caught:
        check_folder(images=("images/deep/er", "images", "images/deep"))
    assert str(caught.value).count("so its files would be taken twice") == 3


def test_a_folder_whose_name_only_begins_as_that_of_another_is_not_in_it(folder):
    for name in ("images2", "images.zip.d"):
        (folder / name).mkdir()
        (folder / name / "a.jpg").write_text("")
    check_folder(images=("images", "images2", "images.zip.d"))


@pytest.mark.parametrize("paths", [{"instances": "hdfs://b/a.json"}, {"images": "s3://b/images"}])
def test_a_store_that_nothing_speaks_is_refused(folder, paths):
    with pytest.raises(ConfigError, match="is not supported"):
        check(**paths)


# Files that would be written over


def test_an_input_that_the_data_set_would_replace_is_refused(folder):
    for name in ("labels.csv", "features.json"):
        (folder / name).write_text("path,label\n")
    told = (
        r"^labels\.csv would be replaced .*; --output \. has features\.json, which would be replaced, and no manifest"
    )
    with pytest.raises(ConfigError, match=told):
        check_folder_inputs(FolderOptions(images=("images",), labels=("labels.csv",), output="."))
    (folder / "out").symlink_to(folder)
    with pytest.raises(ConfigError, match=r"features\.json would be replaced"):
        check(instances="out/features.json", output=str(folder))


def test_an_input_that_the_run_would_delete_with_its_state_is_refused(folder):
    (folder / "out" / ".recordmill-train").mkdir(parents=True)
    (folder / "out" / ".recordmill-train" / "a.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"a\.json is in the state of a run, .*; copy it elsewhere"):
        check(instances="out/.recordmill-train/a.json", output="out")
    check(instances="out/.recordmill-train/a.json", output="other")


@pytest.mark.parametrize(
    "name",
    [
        "label_map.json",
        "rejects-val.jsonl",
        "manifest-train.json",
        "report.html",
        "statistics-val.json",
        "a-b.labels.txt",
    ],
)
def test_somebody_else_s_file_of_such_a_name_is_refused(folder, name):
    (folder / "out").mkdir()
    (folder / "out" / name).write_text("somebody's")
    with pytest.raises(ConfigError, match=f"--output out has {name}, which would be replaced"):
        check()


@pytest.mark.parametrize("name", ["manifest.json", "manifest-train.json", "labels.csv"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_but_called_as_one_of_ours_is_refused_before_all_work(folder, name, make):
    (folder / "out").mkdir()
    make(folder / "out" / name)
    with pytest.raises(ConfigError, match=f"--output out has {name}, which is no file"):
        check()


@pytest.mark.parametrize("ours", ["manifest.json", ".recordmill-val/recipe.json"])
def test_files_of_a_data_set_or_of_an_unfinished_run_are_ours(folder, ours):
    for name in ("labels.csv", "rejects-train.jsonl", ours):
        (folder / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "out" / name).write_text("{}")
    check()
