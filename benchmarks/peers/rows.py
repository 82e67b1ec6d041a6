"""Input of every peer: COCO's instances joined by image in a dict, as a user writes it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Objects(NamedTuple):
    """Objects of an image; boxes are fractions."""

    boxes: list[tuple[float, float, float, float]]
    """ymin, xmin, ymax, xmax"""
    labels: list[int]
    areas: list[float]
    crowds: list[int]
    ids: list[int]


class Row(NamedTuple):
    id: int
    file_name: str
    height: int
    width: int
    path: str
    objects: Objects


def rows(data: str) -> Iterator[Row]:
    """DATA/instances.json and DATA/images, in the file's order."""
    with open(Path(data, "instances.json"), "rb") as file:
        coco = json.load(file)
    by_image: dict[int, list[dict[str, Any]]] = {}
    for annotation in coco["annotations"]:
        by_image.setdefault(annotation["image_id"], []).append(annotation)
    for image in coco["images"]:
        path = str(Path(data, "images", image["file_name"]))
        size = image["height"], image["width"]
        yield Row(image["id"], image["file_name"], *size, path, objects(*size, by_image.get(image["id"], [])))


def objects(height: int, width: int, annotations: list[dict[str, Any]]) -> Objects:
    boxes = []
    for annotation in annotations:
        x, y, w, h = annotation["bbox"]
        boxes.append((y / height, x / width, (y + h) / height, (x + w) / width))
    return Objects(
        boxes,
        [each["category_id"] for each in annotations],
        [float(each["area"]) for each in annotations],
        [each["iscrowd"] for each in annotations],
        [each["id"] for each in annotations],
    )


def columns(row: Row) -> dict[str, tuple[list[Any], str]]:
    """Model Garden's keys: values, and byte, int or float, as PyPI's tfrecord calls the kinds."""
    of = row.objects
    found: dict[str, tuple[list[Any], str]] = {
        "image/encoded": ([Path(row.path).read_bytes()], "byte"),
        "image/format": ([b"jpeg"], "byte"),
        "image/filename": ([row.file_name.encode()], "byte"),
        "image/source_id": ([str(row.id).encode()], "byte"),
        "image/height": ([row.height], "int"),
        "image/width": ([row.width], "int"),
        "image/object/class/label": (of.labels, "int"),
        "image/object/area": (of.areas, "float"),
        "image/object/is_crowd": (of.crowds, "int"),
        "image/object/id": (of.ids, "int"),
    }
    for index, name in enumerate(("ymin", "xmin", "ymax", "xmax")):
        found[f"image/object/bbox/{name}"] = ([box[index] for box in of.boxes], "float")
    return found


def shard_names(output: str, suffix: str, shards: str) -> list[str]:
    Path(output).mkdir(parents=True)
    return [f"{output}/coco-train.{suffix}-{index:05d}-of-{int(shards):05d}" for index in range(int(shards))]
