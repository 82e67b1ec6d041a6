"""Formats whose label files name their images, from end to end: each gives the boxes that `coco` gives, and real data
sets have the numbers that a reader of a few lines finds."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.conftest import SHARED_DATA, Outcome, draw_jpeg, examples_by_name, read_examples, rejects_of

FORMATS = SHARED_DATA / "formats"
needs_data = pytest.mark.skipif(not FORMATS.exists(), reason="the real data sets are not on this machine")
Boxes = dict[str, list[tuple]]


class Row(NamedTuple):
    """An image of the sample.

    Attributes:
        objects: class name, and left, top, width, height in pixels, of each.
    """

    name: str
    width: int
    height: int
    objects: list[tuple[str, tuple[float, float, float, float]]]


@pytest.fixture(scope="module")
def rows(sample) -> list[Row]:
    """Images of the sample, all but the one without a file."""
    coco = json.loads(Path(sample.instances).read_text())
    names = {category["id"]: category["name"] for category in coco["categories"]}
    objects: dict[int, list] = {}
    for each in coco["annotations"]:
        objects.setdefault(each["image_id"], []).append((names[each["category_id"]], tuple(each["bbox"])))
    return [
        Row(each["file_name"], each["width"], each["height"], objects.get(each["id"], []))
        for each in coco["images"]
        if (Path(sample.images) / each["file_name"]).exists()
    ]


def boxes_of(folder: Path, split: str = "train") -> Boxes:
    """Class names and edges of the boxes of each record, by file name."""
    found = {}
    for name, example in examples_by_name(folder, split).items():
        edges = [example[f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin", "xmax", "ymax")]
        texts = [text.decode() for text in example["image/object/class/text"]]
        found[name] = sorted(zip(texts, *edges, strict=True))
    return found


@pytest.fixture(scope="module")
def truth(sample, copy_converted, tmp_path_factory) -> Boxes:
    folder = tmp_path_factory.mktemp("truth")
    copy_converted(folder)
    return boxes_of(folder)


def write_labelme(folder: Path, rows: list[Row]) -> None:
    """Write LabelMe's files as its label_file.py does: https://github.com/wkentaro/labelme"""
    for row in rows:
        shapes = [
            {"label": name, "points": [[x, y], [x + width, y + height]], "shape_type": "rectangle", "group_id": None}
            for name, (x, y, width, height) in row.objects
        ]
        file = {"version": "5.7.0", "flags": {}, "shapes": shapes, "imagePath": Path(row.name).name, "imageData": None}
        path = (folder / row.name).with_suffix(".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(file | {"imageHeight": row.height, "imageWidth": row.width}))


def write_via(folder: Path, rows: list[Row]) -> None:
    """Write a file of VIA 2: https://gitlab.com/vgg/via/-/blob/master/via-2.x.y/CodeDoc.md"""
    file = {}
    for row in rows:
        regions = [
            {
                "shape_attributes": {"name": "rect", "x": x, "y": y, "width": width, "height": height},
                "region_attributes": {"kind": name},
            }
            for name, (x, y, width, height) in row.objects
        ]
        file[f"{row.name}-1"] = {"filename": row.name, "size": -1, "regions": regions, "file_attributes": {}}
    (folder / "via_export_json.json").write_text(json.dumps(file))


def write_createml(folder: Path, rows: list[Row]) -> None:
    """https://developer.apple.com/documentation/createml/building-an-object-detector-data-source"""
    file = [
        {
            "image": row.name,
            "annotations": [
                {
                    "label": name,
                    "coordinates": {"x": x + width / 2, "y": y + height / 2, "width": width, "height": height},
                }
                for name, (x, y, width, height) in row.objects
            ],
        }
        for row in rows
    ]
    (folder / "annotations.json").write_text(json.dumps(file))


def write_tfcsv(folder: Path, rows: list[Row]) -> None:
    """https://tensorflow-object-detection-api-tutorial.readthedocs.io/en/latest/training.html, xml_to_csv"""
    lines = ["filename,width,height,class,xmin,ymin,xmax,ymax"]
    for row in rows:
        lines += [
            f"{row.name},{row.width},{row.height},{name},{x!r},{y!r},{x + width!r},{y + height!r}"
            for name, (x, y, width, height) in row.objects
        ] or [f"{row.name},{row.width},{row.height},,,,,"]
    (folder / "train_labels.csv").write_text("\n".join(lines))


def fractions(row: Row) -> list[tuple[str, list[float]]]:
    """Left, top, right and bottom of objects within the image, in fractions."""
    found = []
    for name, (x, y, width, height) in row.objects:
        edges = x / row.width, y / row.height, (x + width) / row.width, (y + height) / row.height
        found.append((name, [min(1.0, max(0.0, edge)) for edge in edges]))
    return found


def write_labelstudio(folder: Path, rows: list[Row]) -> None:
    """https://labelstud.io/guide/export#Label-Studio-JSON-format-of-annotated-tasks"""
    file = []
    for number, row in enumerate(rows):
        results = [
            {
                "id": str(index),
                "type": "rectanglelabels",
                "original_width": row.width,
                "original_height": row.height,
                "image_rotation": 0,
                "value": {
                    "x": left * 100,
                    "y": top * 100,
                    "width": (right - left) * 100,
                    "height": (bottom - top) * 100,
                    "rotation": 0,
                    "rectanglelabels": [name],
                },
            }
            for index, (name, (left, top, right, bottom)) in enumerate(fractions(row))
        ]
        data = {"image": f"/data/local-files/?d=sample/{row.name}"}
        file.append({"id": number, "data": data, "annotations": [{"result": results, "was_cancelled": False}]})
    (folder / "project-1-at-2026-01-01.json").write_text(json.dumps(file))


def write_openimages(folder: Path, rows: list[Row]) -> None:
    """https://storage.googleapis.com/openimages/web/download_v7.html. Images are named by their ids, and are .jpg."""
    lines = ["ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf"]
    for row in (row for row in rows if row.name.endswith(".jpg")):
        for name, (left, top, right, bottom) in fractions(row):
            lines.append(f"{Path(row.name).stem},x,/m/{name},1,{left!r},{right!r},{top!r},{bottom!r},0,0,0")
    (folder / "train-annotations-bbox.csv").write_text("\n".join(lines))
    names = {name for row in rows for name, _ in row.objects}
    (folder / "class-descriptions-boxable.csv").write_text("".join(f"/m/{name},{name}\n" for name in sorted(names)))


def write_vertex(folder: Path, rows: list[Row]) -> None:
    """https://cloud.google.com/vertex-ai/docs/image-data/object-detection/prepare-data"""
    lines = []
    for row in rows:
        boxes = [
            {"displayName": name, "xMin": str(left), "yMin": str(top), "xMax": str(right), "yMax": str(bottom)}
            for name, (left, top, right, bottom) in fractions(row)
        ]
        use = {"aiplatform.googleapis.com/ml_use": "training"}
        line = {"imageGcsUri": f"gs://b/{row.name}", "boundingBoxAnnotations": boxes, "dataItemResourceLabels": use}
        lines.append(json.dumps(line))
    (folder / "import.jsonl").write_text("\n".join(lines))


def write_vertex_csv(folder: Path, rows: list[Row]) -> None:
    """The page of write_vertex."""
    lines = []
    for row in rows:
        start = f"TRAINING,gs://b/{row.name}"
        boxes = [
            f"{start},{name},{left!r},{top!r},,,{right!r},{bottom!r},,"
            for name, (left, top, right, bottom) in fractions(row)
        ]
        lines += boxes or [start]
    (folder / "import.csv").write_text("\n".join(lines))


WRITERS: dict[str, Callable[[Path, list[Row]], None]] = {
    "labelme": write_labelme,
    "via": write_via,
    "createml": write_createml,
    "tfcsv": write_tfcsv,
    "labelstudio": write_labelstudio,
    "openimages": write_openimages,
    "vertex": write_vertex,
    "vertex csv": write_vertex_csv,
}


@pytest.mark.parametrize("form", WRITERS)
def test_boxes_are_those_that_coco_gives(form, sample, rows, truth, tmp_path, recordmill):
    (tmp_path / "data").mkdir()
    WRITERS[form](tmp_path / "data", rows)
    verb = form.split()[0]
    outcome = recordmill(
        verb, "--data", tmp_path / "data", "--images", sample.images, "--output", tmp_path / "out", "--max-rejects", 0.2
    )
    assert outcome.code == 0, outcome
    found = boxes_of(tmp_path / "out")
    names = {row.name for row in rows if row.objects and row.name.endswith(".jpg")}
    assert found.keys() == (truth.keys() if verb != "openimages" else truth.keys() & names)
    for name in found:
        boxes = truth[name]
        assert [box[0] for box in found[name]] == [box[0] for box in boxes], name
        edges = [[box[1:] for box in each] for each in (found[name], boxes)]
        assert np.array(edges[0]) == pytest.approx(np.array(edges[1]), abs=1e-6), name


def labels_in(folder: Path, split: str = "train") -> Counter:
    return Counter(box[0] for boxes in boxes_of(folder, split).values() for box in boxes)


def converted(recordmill, tmp_path: Path, verb: str, data: Path, *more: object) -> Outcome:
    outcome = recordmill(verb, "--data", data, "--output", tmp_path / "out", *more)
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
    converted(recordmill, tmp_path, "labelme", data)
    stored = {record["image/filename"][0]: record["image/encoded"][0] for record in read_examples(tmp_path / "out")}
    assert stored == {b"1.jpg": (data / "1.jpg").read_bytes(), b"2.jpg": contents["2"]}


@needs_data
def test_real_via(tmp_path, recordmill):
    data = FORMATS / "via_kudzu"
    flags = ("--output", tmp_path / "out", "--masks", "rle", "--class-name", "none")
    outcome = recordmill("via", "--data", data, *flags)
    assert outcome.code == 2
    assert "the attributes insect, inseto: give the class's as --class-attribute" in outcome.err
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
    outcome = recordmill("tfcsv", "--data", tmp_path, "--output", tmp_path / "out")
    assert (outcome.code, "no label file of the format tfcsv is in it" in outcome.err) == (2, True)


def test_folders_of_splits_in_capitals_and_files(tmp_path, recordmill):
    for folder, ending in (("Train", "JSON"), ("VALID", "json")):
        draw_jpeg(tmp_path / "data" / folder / "1.jpg")
        coordinates = {"x": 50, "y": 5, "width": 4, "height": 4}
        file = [{"image": "1.jpg", "annotations": [{"label": "cat", "coordinates": coordinates}]}]
        (tmp_path / "data" / folder / f"a.{ending}").write_text(json.dumps(file))
    converted(recordmill, tmp_path, "createml", tmp_path / "data", "--max-rejects", "1", "--split", "train")
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
