"""Data sets of several formats, whose ids have an order of chance, become one."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
import msgspec
import pytest

from recordmill import convert
from recordmill import open as open_data_set
from recordmill.beam import JoinDatasets, ReadDataset, Sample, SampleObject, WriteDataset
from recordmill.schemas.features import FeatureKind
from recordmill.schemas.field_features import field_columns
from tests.beam_pipeline import Pipeline
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
    with Pipeline() as p:
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


def test_split_divides_samples_of_pipelines_and_not_those_of_reads(tmp_path):
    write_files(tmp_path / "read", as_coco({"1.jpg": [("ant", (1, 2, 9, 9))]}, random.Random(1)))
    write_files(tmp_path / "read", {"images/1.jpg": jpeg(1)})
    cow = (SampleObject("cow", (1, 2, 3, 4)),)
    made = [Sample(f"{number}.jpg", data=jpeg(10 + number), objects=cow) for number in range(8)]
    made[7] = msgspec.structs.replace(made[7], split="b")
    with Pipeline() as p:
        sets = {"read": p | ReadDataset(tmp_path / "read", split="test"), "made": p | beam.Create(made)}
        sets | JoinDatasets(split="a=0.5,b=0.5") | WriteDataset(tmp_path / "out")
    data_set = open_data_set(tmp_path / "out")
    names = {split: {record["file_name"].decode() for record in data_set[split]} for split in ("test", "a", "b")}
    assert (names["test"], "made/7.jpg" in names["b"]) == ({"read/1.jpg"}, True)
    assert names["a"] | names["b"] == {f"made/{number}.jpg" for number in range(8)}
    assert names["a"]


def test_taken_ids_of_one_file_and_kinds_of_fields_are_those_of_the_command(tmp_path, monkeypatch):
    """Two image ids of `b` have the same file, and `a` has both ids."""
    monkeypatch.chdir(tmp_path)
    for name, files in (("a", ("1.jpg", "2.jpg")), ("b", ("1.jpg", "1.jpg"))):
        images = [{"id": id_, "file_name": file, "width": 40, "height": 30} for id_, file in enumerate(files)]
        row = {"category_id": 1, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0, "age": 1}
        annotations = [row | {"id": id_, "image_id": id_} for id_ in range(2)]
        rows = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "ant"}]}
        write_files(tmp_path / name, {"annotations.json": json.dumps(rows)})
        write_files(tmp_path / name, {f"images/{file}": jpeg(ord(name) + int(file[0])) for file in files})
    with Pipeline() as p:
        sets = {"a": p | "A" >> ReadDataset("a"), "b": p | "B" >> ReadDataset("b", fields={"age": "float"})}
        sets | JoinDatasets() | WriteDataset("piped")
    piped = open_data_set("piped")
    assert {column.path: column.kind for column in field_columns(piped.manifest.table)}["age"] is FeatureKind.FLOAT
    converted = convert(sets=[{"data": "a"}, {"data": "b"}], output="converted", progress="none")
    ids = [[(record["file_name"], record["image_id"]) for record in out["train"]] for out in (piped, converted)]
    assert (ids[0], len({*ids[0]})) == (ids[1], 4)
