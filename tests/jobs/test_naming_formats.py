"""Formats whose label files name their images, from end to end: a box of each, and real data sets, whose numbers a
reader of a few lines finds."""

import base64
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import SHARED_DATA, Outcome, draw_jpeg, read_examples, rejects_of

FORMATS = SHARED_DATA / "formats"
needs_data = pytest.mark.skipif(not FORMATS.exists(), reason="the real data sets are not on this machine")

# A cat from (10, 6) to (20, 24) in 1.jpg of 40x30 pixels, as each format has it.
FILES = {
    "labelme": (
        "1.json",
        """{"shapes": [{"label": "cat", "points": [[10, 6], [20, 24]], "shape_type": "rectangle"}],
            "imagePath": "1.jpg", "imageData": null, "imageWidth": 40, "imageHeight": 30}""",
    ),
    "via": (
        "via_export_json.json",
        """{"1.jpg-1": {"filename": "1.jpg", "size": -1, "regions": [{"region_attributes": {"kind": "cat"},
            "shape_attributes": {"name": "rect", "x": 10, "y": 6, "width": 10, "height": 18}}]}}""",
    ),
    "createml": (
        "annotations.json",
        """[{"image": "1.jpg", "annotations": [
            {"label": "cat", "coordinates": {"x": 15, "y": 15, "width": 10, "height": 18}}]}]""",
    ),
    "tfcsv": ("a.csv", "filename,width,height,class,xmin,ymin,xmax,ymax\n1.jpg,40,30,cat,10,6,20,24\n"),
    "labelstudio": (
        "project-1-at-2026-01-01.json",
        """[{"data": {"image": "/data/local-files/?d=1.jpg"}, "annotations": [{"result": [{
            "type": "rectanglelabels", "original_width": 40, "original_height": 30, "image_rotation": 0,
            "value": {"x": 25, "y": 20, "width": 25, "height": 60, "rotation": 0, "rectanglelabels": ["cat"]}}]}]}]""",
    ),
    "openimages": (
        "train-annotations-bbox.csv",
        "ImageID,LabelName,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf\n1,cat,0.25,0.5,0.2,0.8,0,0,0\n",
    ),
    "ndjson": (
        "set.ndjson",
        """{"type": "dataset", "task": "detect", "class_names": {"0": "cat"}}
            {"type": "image", "file": "1.jpg", "split": "train", "annotations": {"boxes": [[0, 0.375, 0.5, 0.25, 0.6]]}}
        """,
    ),
    "vertex": ("import.csv", "TRAINING,gs://b/1.jpg,cat,0.25,0.2,,,0.5,0.8,,\n"),
}


@pytest.mark.parametrize("format_", FILES)
def test_box_and_class(format_, tmp_path, recordmill):
    draw_jpeg(tmp_path / "images" / "1.jpg")
    (tmp_path / "data").mkdir()
    name, text = FILES[format_]
    (tmp_path / "data" / name).write_text(text)
    (tmp_path / "images" / name).write_text(text)  # label files of an older copy, which are not read
    converted(recordmill, tmp_path, format_, tmp_path / "data", "--images", tmp_path / "images")
    (example,) = read_examples(tmp_path / "out")
    assert example["image/object/class/text"] == [b"cat"]
    edges = [example[f"image/object/bbox/{edge}"][0] for edge in ("xmin", "ymin", "xmax", "ymax")]
    assert edges == pytest.approx([0.25, 0.2, 0.5, 0.8])


def test_an_image_that_is_only_a_url_is_a_reject_with_the_command_that_fetches_it(tmp_path, recordmill):
    lines = [
        {"type": "dataset", "class_names": ["cat"]},
        *({"type": "image", "file": f"a b/{at}.jpg", "url": f"https://x/{at}.jpg?k=1&t=2"} for at in (1, 2)),
    ]
    draw_jpeg(tmp_path / "data" / "1.jpg")
    (tmp_path / "data" / "set.ndjson").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    converted(recordmill, tmp_path, "ndjson", tmp_path / "data", "--allow-empty", "--max-rejects", 1)
    (reject,) = rejects_of(tmp_path / "out")
    command = f"curl --create-dirs -fLo '{tmp_path}/data/a b/2.jpg' 'https://x/2.jpg?k=1&t=2'"
    assert reject["reason"] == "image_missing"
    assert reject["detail"] == f"no file 'a b/2.jpg' in the folders of images, only a URL. To fetch it: {command}"


def labels_in(folder: Path, split: str = "train") -> Counter:
    examples = read_examples(folder, split)
    return Counter(text.decode() for example in examples for text in example["image/object/class/text"])


def converted(recordmill, tmp_path: Path, format_: str, data: Path, *more: object) -> Outcome:
    outcome = recordmill("convert", data, "--format", format_, "--output", tmp_path / "out", *more)
    assert outcome.code == 0, outcome
    return outcome


@needs_data
def test_real_labelme(tmp_path, recordmill):
    data = FORMATS / "labelme_examples" / "examples"
    converted(recordmill, tmp_path, "labelme", data, "--masks", "rle", "--max-rejects", "1")
    expected: Counter = Counter()
    for path in data.rglob("*.json"):
        file = json.loads(path.read_text())
        if "shapes" in file:
            shapes = [each for each in file["shapes"] if each["shape_type"] not in ("point", "line", "linestrip")]
            groups = {
                (each["label"], index if each["group_id"] is None else each["group_id"])
                for index, each in enumerate(shapes, 100)
            }
            expected += Counter(label for label, _ in groups if label != "__ignore__")
    assert labels_in(tmp_path / "out") == expected
    assert Counter(reject["reason"] for reject in rejects_of(tmp_path / "out")) == {
        "empty_box": 3,
        "excluded": 4,
        "malformed_labels": 1,  # COCO's
    }


def test_images_inside_label_files(tmp_path, recordmill):
    data = tmp_path / "data"
    contents = {}
    for name, colour in {"1": (0, 0, 0), "2": (0, 0, 200)}.items():
        draw_jpeg(tmp_path / f"{name}.jpg", colour=colour)
        contents[name] = (tmp_path / f"{name}.jpg").read_bytes()
        image_data = base64.b64encode(contents[name]).decode()
        file = {"shapes": [], "imagePath": f"{name}.jpg", "imageData": image_data, "imageHeight": 30, "imageWidth": 40}
        data.mkdir(exist_ok=True)
        (data / f"{name}.json").write_text(json.dumps(file))
    draw_jpeg(data / "1.jpg", colour=(200, 0, 0))
    converted(recordmill, tmp_path, "labelme", data, "--allow-empty")
    stored = {record["image/filename"][0]: record["image/encoded"][0] for record in read_examples(tmp_path / "out")}
    assert stored == {b"1.jpg": (data / "1.jpg").read_bytes(), b"2.jpg": contents["2"]}


@needs_data
def test_real_via(tmp_path, recordmill):
    data = FORMATS / "via_kudzu"
    flags = ("--output", tmp_path / "out", "--masks", "rle", "--class-name", "none")
    outcome = recordmill("convert", data, "--format", "via", *flags)
    assert outcome.code == 2
    assert "the attributes insect, inseto. Add --class-attribute" in outcome.err
    converted(recordmill, tmp_path, "via", data, *flags, "--class-attribute", "inseto")
    for split in ("train", "val"):
        images = json.loads((data / split / "via_region_data.json").read_text()).values()
        regions = [region["region_attributes"] for image in images for region in image["regions"]]
        assert labels_in(tmp_path / "out", split) == Counter(each.get("inseto") or "none" for each in regions)
        assert len(read_examples(tmp_path / "out", split)) == len(images)


@needs_data
def test_real_createml(tmp_path, recordmill):
    data = FORMATS / "createml_anpr"
    converted(recordmill, tmp_path, "createml", data)
    for split, folder in {"val": "valid", "test": "test"}.items():
        images = json.loads((data / folder / "_annotations.createml.json").read_text())
        labels = Counter(each["label"] for image in images for each in image["annotations"])
        assert labels_in(tmp_path / "out", split) == labels
        assert len(read_examples(tmp_path / "out", split)) == len(images)


@needs_data
def test_real_labelstudio(tmp_path, recordmill):
    data = FORMATS / "cvat_and_label_studio"
    exports = data / "resourses" / "label_studio" / "export"
    more = ("--images", data / "src" / "images", "--max-rejects", "0.2")
    outcome = converted(recordmill, tmp_path, "labelstudio", exports, *more)
    assert "no image has the code of an upload in its name, so codes are dropped" in outcome.out + outcome.err
    (path,) = exports.glob("project-1-*fa7.json")
    labels: Counter = Counter()
    for task in json.loads(path.read_text()):
        if (data / "src" / "images" / task["file_upload"][9:]).exists():
            labels += Counter(each["value"]["rectanglelabels"][0] for each in task["annotations"][0]["result"])
    assert labels_in(tmp_path / "out") == labels
    assert [reject["reason"] for reject in rejects_of(tmp_path / "out")] == ["image_missing"]


def test_a_folder_without_label_files_is_an_error(tmp_path, recordmill):
    draw_jpeg(tmp_path / "1.jpg")
    outcome = recordmill("convert", tmp_path, "--format", "tfcsv", "--output", tmp_path / "out")
    assert (outcome.code, "has no label file of the format tfcsv" in outcome.err) == (2, True)


def test_folders_of_splits_in_capitals_and_files(tmp_path, recordmill):
    for folder, ending in (("Train", "JSON"), ("VALID", "json")):
        draw_jpeg(tmp_path / "data" / folder / "1.jpg")
        coordinates = {"x": 50, "y": 5, "width": 4, "height": 4}
        file = [{"image": "1.jpg", "annotations": [{"label": "cat", "coordinates": coordinates}]}]
        (tmp_path / "data" / folder / f"a.{ending}").write_text(json.dumps(file))
    converted(recordmill, tmp_path, "createml", tmp_path / "data", "--max-rejects", "1")
    assert [len(read_examples(tmp_path / "out", split)) for split in ("train", "val")] == [1, 1]


def test_label_files_in_a_folder_of_images_beside_folders_of_splits(tmp_path, recordmill):
    for folder in ("data/train", "data/val", "images/train", "images/val"):
        draw_jpeg(tmp_path / folder / "1.jpg")
        (tmp_path / folder / "a.json").write_text('[{"image": "1.jpg", "annotations": []}]')
    converted(recordmill, tmp_path, "createml", tmp_path / "data", "--images", tmp_path / "images", "--allow-empty")
    assert [len(read_examples(tmp_path / "out", split)) for split in ("train", "val")] == [1, 1]


def test_rows_that_disagree_on_an_image(tmp_path, recordmill):
    for name in ("1", "2", "3"):
        draw_jpeg(tmp_path / "data" / f"{name}.jpg")
    rows = ["1.jpg,40,30,cat,1,2,4,6", "1.jpg,50,30,cat,0,0,1,1", "2.jpg,40,30,cat,1,2,4,6", "3.jpg,,,cat,1,2,4,6"]
    rows += ["3.jpg,40,30,cat,9,9,12,12", "2.jpg,40,30,,1,2,4,6", "1.jpg,,,cat,1,2,4,6"]
    (tmp_path / "data" / "a.csv").write_text("\n".join(["filename,width,height,class,xmin,ymin,xmax,ymax", *rows]))
    outcome = converted(recordmill, tmp_path, "tfcsv", tmp_path / "data", "--max-rejects", "1")
    assert "annotations         3 of 7 (unknown_category 1, image rejected 3)" in outcome.out
    assert {reject["detail"] for reject in rejects_of(tmp_path / "out")} == {
        "'1.jpg' is 40x30 but 50x30 in its label files",
        "a.csv, line 7: no class",
    }
    assert labels_in(tmp_path / "out") == {"cat": 3}


def test_image_in_two_splits(tmp_path, recordmill):
    draw_jpeg(tmp_path / "images" / "1.jpg")
    rows = [f"{use},gs://b/images/1.jpg,cat,0,0,,,0.5,0.5,," for use in ("TRAIN", "TRAIN", "TEST")]
    rows.append("TEST,gs://b/images/1.jpg,cat,0.5,0,,,0.5,1,,")
    (tmp_path / "import.csv").write_text("\n".join(rows))
    outcome = converted(recordmill, tmp_path, "vertex", tmp_path / "import.csv", "--max-rejects", "1")
    assert [reject["detail"] for reject in rejects_of(tmp_path / "out")] == [
        "'images/1.jpg': box x 20, y 0, 0x30 in an image of 40x30"
    ]
    assert labels_in(tmp_path / "out", "train") == {"cat": 2}
    assert labels_in(tmp_path / "out", "test") == {"cat": 1}
    assert "duplicates" in outcome.out
