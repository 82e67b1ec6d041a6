"""Formats whose label files name their images, from end to end: each gives the boxes that `coco` gives, and real data
sets have the numbers that a reader of a few lines finds."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.conftest import SHARED_DATA, Outcome, read_examples, rejects_of

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
    for example in read_examples(folder, split):
        edges = [example[f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin", "xmax", "ymax")]
        texts = [text.decode() for text in example["image/object/class/text"]]
        found[example["image/filename"][0].decode()] = sorted(zip(texts, *edges, strict=True))
    return found


@pytest.fixture(scope="module")
def truth(sample, copy_converted, tmp_path_factory) -> Boxes:
    folder = tmp_path_factory.mktemp("truth")
    copy_converted(folder)
    return boxes_of(folder)


def write_labelme(folder: Path, rows: list[Row]) -> None:
    """As LabelMe's label_file.py does: https://github.com/wkentaro/labelme"""
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
    """As VIA 2 exports: https://gitlab.com/vgg/via/-/blob/master/via-2.x.y/CodeDoc.md"""
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


WRITERS: dict[str, Callable[[Path, list[Row]], None]] = {
    "labelme": write_labelme,
    "via": write_via,
    "createml": write_createml,
}


@pytest.mark.parametrize("verb", WRITERS)
def test_boxes_are_those_that_coco_gives(verb, sample, rows, truth, tmp_path, recordmill):
    (tmp_path / "data").mkdir()
    WRITERS[verb](tmp_path / "data", rows)
    outcome = recordmill(
        verb, "--data", tmp_path / "data", "--images", sample.images, "--output", tmp_path / "out", "--max-rejects", 0.2
    )
    assert outcome.code == 0, outcome
    found = boxes_of(tmp_path / "out")
    assert found.keys() == truth.keys()
    for name, boxes in truth.items():
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
        if (path.parent / file.get("imagePath", "/none")).suffix == ".jpg":
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
        "image_missing": 1,  # its imagePath is the label file, which holds the image
        "malformed_labels": 1,  # COCO's
    }


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
