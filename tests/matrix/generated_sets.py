"""Data sets of random images, objects and fields, written in each format by code that knows only the format."""

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import yaml

from tests.literal_data import jpeg, write_files

WIDTH, HEIGHT = 40, 30
CLASSES = ("cat", "dög", "a b", "007", "N/A", "1", "true", "x,y", "<i>&", "no", "Cat", "2.50", "0")
COLOURS = ("red", "dunkel grün", "1", "007", "a;b", "x,y", '"', "<b>", "null", "-")
STEMS = ("1", "img 2", "ö", "a.b", "007", "x'y", "IMG_0001", "%41", "(3)", "a&b", "10", "-1")


class TrueObject(NamedTuple):
    """An object. The box is x, y, width and height in pixels. None if a field is missing."""

    label: str
    box: tuple[int, int, int, int]
    score: float | None
    colour: str | None


class TrueImage(NamedTuple):
    name: str
    data: bytes
    objects: tuple[TrueObject, ...]


def draw_set(seed: int) -> list[TrueImage]:
    """Return one to nine images. One of them has an object of each class."""
    draw = random.Random(seed)
    stems = draw.sample(STEMS, draw.randint(1, 9))
    labels = draw.sample(CLASSES, draw.randint(1, 4))
    images = []
    for number, stem in enumerate(stems):
        chosen = draw.choices(labels, k=draw.choice((0, 1, 1, 2, 5))) if number else labels
        objects = tuple(dict.fromkeys(_draw_object(draw, label) for label in chosen))
        suffix = draw.choice((".jpg", ".JPG", ".jpeg"))
        images.append(TrueImage(stem + suffix, jpeg(number), objects))
    return images


def _draw_object(draw: random.Random, label: str) -> TrueObject:
    x, y = draw.randrange(WIDTH - 1), draw.randrange(HEIGHT - 1)
    box = x, y, draw.randint(1, WIDTH - x), draw.randint(1, HEIGHT - y)
    score = draw.choice((None, 0.5, 0.0, 1.0, draw.randrange(1000) / 1000))
    return TrueObject(label, box, score, draw.choice((None, *COLOURS)))


def _labels(images: Sequence[TrueImage]) -> list[str]:
    return list(dict.fromkeys(one.label for image in images for one in image.objects))


def _some(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


Files = dict[str, bytes | str]


def coco(images: Sequence[TrueImage]) -> Files:
    labels = _labels(images)
    annotations = [
        {"id": len(images) * 100 + at * 10 + number, "image_id": at + 1, "category_id": 3 + labels.index(one.label)}
        | {"bbox": one.box, "area": one.box[2] * one.box[3], "iscrowd": 0}
        | _some(score=one.score, colour=one.colour)
        for at, image in enumerate(images)
        for number, one in enumerate(image.objects)
    ]
    file = {
        "images": [
            {"id": at + 1, "file_name": image.name, "width": WIDTH, "height": HEIGHT} for at, image in enumerate(images)
        ],
        "annotations": annotations,
        "categories": [{"id": 3 + at, "name": label} for at, label in enumerate(labels)],
    }
    return {"annotations/instances_train.json": json.dumps(file)} | _in_folder(images, "images/")


def _in_folder(images: Sequence[TrueImage], folder: str = "") -> Files:
    return {folder + image.name: image.data for image in images}


def _stem(image: TrueImage) -> str:
    return image.name.rpartition(".")[0]


def yolo(images: Sequence[TrueImage]) -> Files:
    labels = _labels(images)
    files: Files = {"data.yaml": yaml.safe_dump({"train": "images", "names": labels}, allow_unicode=True)}
    for image in images:
        lines = []
        for one in image.objects:
            x, y, width, height = one.box
            parts = ((x + width / 2) / WIDTH, (y + height / 2) / HEIGHT, width / WIDTH, height / HEIGHT)
            numbers = [*parts] if one.score is None else [*parts, one.score]
            lines.append(" ".join(map(str, [labels.index(one.label), *numbers])) + "\n")
        files[f"labels/{_stem(image)}.txt"] = "".join(lines)
    return files | _in_folder(images, "images/")


def voc(images: Sequence[TrueImage]) -> Files:
    files: Files = {}
    for image in images:
        objects = "".join(
            f"<object><name>{escape(one.label)}</name>"
            f"<bndbox><xmin>{one.box[0]}</xmin><ymin>{one.box[1]}</ymin><xmax>{one.box[0] + one.box[2]}</xmax>"
            f"<ymax>{one.box[1] + one.box[3]}</ymax></bndbox>"
            + "".join(f"<{name}>{escape(str(v))}</{name}>" for name, v in _fields(one).items())
            + "</object>"
            for one in image.objects
        )
        size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
        files[f"Annotations/{_stem(image)}.xml"] = (
            f"<annotation><filename>{escape(image.name)}</filename>{size}{objects}</annotation>"
        )
    return files | _in_folder(images, "JPEGImages/")


def _fields(one: TrueObject) -> dict[str, object]:
    return _some(score=one.score, colour=one.colour)


def cvat(images: Sequence[TrueImage]) -> Files:
    rows = []
    for at, image in enumerate(images):
        boxes = "".join(
            f'<box label={quoteattr(one.label)} xtl="{one.box[0]}" ytl="{one.box[1]}" xbr="{one.box[0] + one.box[2]}" '
            f'ybr="{one.box[1] + one.box[3]}" occluded="0">'
            + "".join(f'<attribute name="{name}">{escape(str(v))}</attribute>' for name, v in _fields(one).items())
            + "</box>"
            for one in image.objects
        )
        rows.append(f'<image id="{at}" name={quoteattr(image.name)} width="{WIDTH}" height="{HEIGHT}">{boxes}</image>')
    return {"annotations.xml": f"<annotations>{''.join(rows)}</annotations>"} | _in_folder(images, "images/")


def labelme(images: Sequence[TrueImage]) -> Files:
    files: Files = {}
    for image in images:
        shapes = [
            {
                "label": one.label,
                "points": [one.box[:2], [one.box[0] + one.box[2], one.box[1] + one.box[3]]],
                "shape_type": "rectangle",
                "group_id": None,
                "flags": {},
            }
            | _fields(one)
            for one in image.objects
        ]
        file = {"version": "5.4", "shapes": shapes, "imagePath": image.name, "imageData": None}
        files[f"{_stem(image)}.json"] = json.dumps(file | {"imageWidth": WIDTH, "imageHeight": HEIGHT})
    return files | _in_folder(images)


def via(images: Sequence[TrueImage]) -> Files:
    file = {}
    for image in images:
        regions = [
            {
                "shape_attributes": {"name": "rect", **dict(zip(("x", "y", "width", "height"), one.box, strict=True))},
                "region_attributes": {"kind": one.label, **{name: str(v) for name, v in _fields(one).items()}},
            }
            for one in image.objects
        ]
        size = len(image.data)
        entry = {"filename": image.name, "size": size, "regions": regions, "file_attributes": {}}
        file[f"{image.name}{size}"] = entry
    return {"via_export_json.json": json.dumps(file)} | _in_folder(images)


def createml(images: Sequence[TrueImage]) -> Files:
    rows = []
    for image in images:
        annotations = [
            {
                "label": one.label,
                "coordinates": {
                    "x": one.box[0] + one.box[2] / 2,
                    "y": one.box[1] + one.box[3] / 2,
                    "width": one.box[2],
                    "height": one.box[3],
                },
            }
            | _fields(one)
            for one in image.objects
        ]
        rows.append({"image": image.name, "annotations": annotations})
    return {"_annotations.createml.json": json.dumps(rows)} | _in_folder(images)


def labelstudio(images: Sequence[TrueImage]) -> Files:
    tasks = []
    for at, image in enumerate(images):
        results = []
        for number, one in enumerate(image.objects):
            x, y, width, height = one.box
            value = {"x": 100 * x / WIDTH, "y": 100 * y / HEIGHT, "width": 100 * width / WIDTH}
            value |= {"height": 100 * height / HEIGHT, "rotation": 0}
            shared = {"id": f"r{number}", "original_width": WIDTH, "original_height": HEIGHT, "image_rotation": 0}
            box = {**shared, "type": "rectanglelabels", "from_name": "label", "to_name": "image"}
            results.append(box | {"value": value | {"rectanglelabels": [one.label]}} | _some(score=one.score))
            if one.colour is not None:
                text = {**shared, "type": "textarea", "from_name": "colour", "to_name": "image"}
                results.append(text | {"value": value | {"text": [one.colour]}})
        data = {"image": f"/data/local-files/?d={_quoted(image.name)}"}
        tasks.append({"id": at, "data": data, "annotations": [{"id": at, "result": results}]})
    return {"project-1.json": json.dumps(tasks)} | _in_folder(images)


def _quoted(name: str) -> str:
    return name.replace("%", "%25").replace(" ", "%20").replace("&", "%26")


def tfcsv(images: Sequence[TrueImage]) -> Files:
    rows: list[list[object]] = [
        ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax", "score", "colour"]
    ]
    for image in images:
        head: list[object] = [image.name, WIDTH, HEIGHT]
        rows += [
            [
                *head,
                one.label,
                *one.box[:2],
                one.box[0] + one.box[2],
                one.box[1] + one.box[3],
                "" if one.score is None else one.score,
                one.colour or "",
            ]
            for one in image.objects
        ]
        rows += [] if image.objects else [[*head, "", "", "", "", "", "", ""]]
    return {"_annotations.csv": _csv(rows)} | _in_folder(images)


def _csv(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def imagefolder(images: Sequence[TrueImage]) -> Files:
    lines = []
    for image in images:
        objects = {
            "bbox": [one.box for one in image.objects],
            "category": [one.label for one in image.objects],
            "score": [one.score for one in image.objects],
            "colour": [one.colour for one in image.objects],
        }
        lines.append(json.dumps({"file_name": image.name, "objects": objects}) + "\n")
    return {"train/metadata.jsonl": "".join(lines)} | _in_folder(images, "train/")


def vertex(images: Sequence[TrueImage]) -> Files:
    lines = []
    for image in images:
        boxes = [
            {
                "displayName": one.label,
                "xMin": one.box[0] / WIDTH,
                "yMin": one.box[1] / HEIGHT,
                "xMax": (one.box[0] + one.box[2]) / WIDTH,
                "yMax": (one.box[1] + one.box[3]) / HEIGHT,
            }
            | _fields(one)
            for one in image.objects
        ]
        line = {"imageGcsUri": f"gs://bucket/{image.name}", "boundingBoxAnnotations": boxes}
        lines.append(json.dumps(line) + "\n")
    return {"import.jsonl": "".join(lines)} | _in_folder(images)


def ndjson(images: Sequence[TrueImage]) -> Files:
    names = _labels(images)
    header = {"type": "dataset", "task": "detect", "class_names": dict(enumerate(names))}
    lines = [json.dumps(header) + "\n"]
    for image in images:
        boxes = []
        for one in image.objects:
            x, y, width, height = one.box
            centre = (x + width / 2) / WIDTH, (y + height / 2) / HEIGHT
            boxes.append([names.index(one.label), *centre, width / WIDTH, height / HEIGHT])
        line = {"type": "image", "file": image.name, "width": WIDTH, "height": HEIGHT, "annotations": {"boxes": boxes}}
        lines.append(json.dumps(line) + "\n")
    return {"set.ndjson": "".join(lines)} | _in_folder(images)


WRITERS: dict[str, Callable[[Sequence[TrueImage]], Files]] = {
    writer.__name__: writer
    for writer in (coco, yolo, voc, cvat, labelme, via, createml, labelstudio, tfcsv, imagefolder, vertex, ndjson)
}
FIELDS = {
    "yolo": ("score", ""),
    "cvat": ("attributes.score", "attributes.colour"),
    "via": ("region_attributes.score", "region_attributes.colour"),
    "imagefolder": ("objects.score", "objects.colour"),
    "ndjson": ("", ""),
}
"""Paths of the score and the colour in formats that do not name them so; empty if the format does not have it."""


def write_set(folder: Path, format_name: str, images: Sequence[TrueImage]) -> None:
    """Write a data set in a format."""
    write_files(folder, WRITERS[format_name](images))
