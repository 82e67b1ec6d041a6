"""Data sets of several formats, whose ids have an order of chance, become one."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import pytest

from recordmill import open as open_data_set
from recordmill.beam import JoinDatasets, ReadDataset, WriteDataset
from tests.literal_data import jpeg, write_files

CLASSES = ("ant", "bee", "cow", "dog", "eel")
Truth = dict[str, list[tuple[str, tuple[int, int, int, int]]]]
"""Class and left, top, right, bottom of each object, by name of the image."""


def draw_truth(rng: random.Random, images: int = 6) -> Truth:
    def draw_object() -> tuple[str, tuple[int, int, int, int]]:
        left, top = rng.randrange(20), rng.randrange(15)
        return rng.choice(CLASSES), (left, top, left + rng.randrange(2, 20), top + rng.randrange(2, 15))

    return {f"{number}.jpg": [draw_object() for _ in range(rng.randrange(1, 4))] for number in range(images)}


def as_coco(truth: Truth, rng: random.Random) -> dict[str, str]:
    image_ids = dict(zip(truth, rng.sample(range(10), len(truth)), strict=True))
    class_ids = dict(zip(CLASSES, rng.sample(range(1, 9), len(CLASSES)), strict=True))
    object_ids = rng.sample(range(30), 30)
    annotations = [
        {
            "id": object_ids.pop(),
            "image_id": image_ids[name],
            "category_id": class_ids[class_name],
            "iscrowd": 0,
            "bbox": [left, top, right - left, bottom - top],
            "area": 9,
        }
        for name, objects in truth.items()
        for class_name, (left, top, right, bottom) in objects
    ]
    contents = {
        "images": [{"id": id_, "file_name": name, "width": 40, "height": 30} for name, id_ in image_ids.items()],
        "annotations": annotations,
        "categories": [{"id": id_, "name": name} for name, id_ in class_ids.items()],
    }
    return {"annotations.json": json.dumps(contents)}


def as_yolo(truth: Truth, rng: random.Random) -> dict[str, str]:
    names = rng.sample(CLASSES, len(CLASSES))
    files = {"data.yaml": f"train: images\nnames: {json.dumps(names)}\n"}
    for name, objects in truth.items():
        boxes = [(names.index(class_name), *box) for class_name, box in objects]
        rows = [
            f"{index} {(left + right) / 80} {(top + bottom) / 60} {(right - left) / 40} {(bottom - top) / 30}\n"
            for index, left, top, right, bottom in boxes
        ]
        files[f"labels/{name[:-4]}.txt"] = "".join(rows)
    return files


def as_voc(truth: Truth, rng: random.Random) -> dict[str, str]:
    corners = ("xmin", "ymin", "xmax", "ymax")
    return {
        f"Annotations/{name[:-4]}.xml": f"<annotation><filename>{name}</filename>"
        "<size><width>40</width><height>30</height></size>"
        + "".join(
            f"<object><name>{class_name}</name><bndbox>"
            + "".join(f"<{key}>{value}</{key}>" for key, value in zip(corners, box, strict=True))
            + "</bndbox></object>"
            for class_name, box in objects
        )
        + "</annotation>"
        for name, objects in truth.items()
    }


FORMATS: dict[str, Callable[[Truth, random.Random], dict[str, str]]] = {"coco": as_coco, "yolo": as_yolo, "voc": as_voc}


@pytest.mark.usefixtures("empty_pages")
@pytest.mark.parametrize("names", [("coco", "yolo", "voc"), ("yolo", "coco", "coco2")])
def test_every_object_has_its_class_and_box(names, tmp_path):
    rng = random.Random(len(names[2]))
    merged: Truth = {}
    for number, name in enumerate(names):
        truth = draw_truth(rng)
        write_files(tmp_path / name, FORMATS[name.rstrip("2")](truth, rng))
        write_files(tmp_path / name, {f"images/{own}": jpeg(10 * number + int(own[0])) for own in truth})
        merged |= {f"{name}/{own}": objects for own, objects in truth.items()}
    with beam.Pipeline() as p:
        sets = {name: p | name >> ReadDataset(tmp_path / name) for name in names}
        sets | JoinDatasets() | WriteDataset(tmp_path / "out")
    data_set = open_data_set(tmp_path / "out")
    classes = [category.name for category in data_set.manifest.categories]
    found: Truth = {}
    image_ids, object_ids = list[int](), list[int]()
    for record in data_set["train"]:
        boxes = (record["boxes"] * (30, 40, 30, 40)).round().astype(int).tolist()
        objects = [
            (classes[label], (left, top, right, bottom))
            for label, (top, left, bottom, right) in zip(record["labels"], boxes, strict=True)
        ]
        folder, own = record["file_name"].decode().split("/", 1)
        found[f"{folder}/{Path(own).name}"] = sorted(objects)
        image_ids.append(record["image_id"])
        object_ids += record["annotation_ids"].tolist()
    assert found == {name: sorted(objects) for name, objects in merged.items()}
    assert len({*image_ids}) == len(image_ids)
    assert len({*object_ids}) == len(object_ids)
