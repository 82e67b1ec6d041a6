"""`convert --labels-only`: drawn data sets of each format become labels of each format, which JSON's, XML's and YAML's
parsers read back as what was drawn."""

import json
import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from PIL import Image

from recordmill.launch.cli import main
from tests.matrix.drawn_shapes import BOX_FORMATS, DrawnSet, draw_set, write_set

Objects = list[tuple[str, tuple[float, ...]]]
"""Class and xmin, ymin, width, height in pixels of each object of an image, sorted."""


def _box(numbers) -> tuple[float, ...]:
    return tuple(round(float(number), 2) for number in numbers)


def _bounds(xs, ys) -> tuple[float, ...]:
    return _box((min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)))


def read_coco(folder: Path) -> dict[str, Objects]:
    found: dict[str, Objects] = {}
    for path in (folder / "annotations").glob("instances_*.json"):
        document = json.loads(path.read_text())
        names = {row["id"]: row["name"] for row in document["categories"]}
        files = {row["id"]: row["file_name"] for row in document["images"]}
        found |= {name: [] for name in files.values()}
        for row in document["annotations"]:
            found[files[row["image_id"]]].append((names[row["category_id"]], _box(row["bbox"])))
    return found


def read_yolo(folder: Path) -> dict[str, Objects]:
    names = yaml.safe_load((folder / "data.yaml").read_text())
    found: dict[str, Objects] = {}
    for path in (path for path in (folder / "images").rglob("*") if path.suffix.lower() == ".png"):
        parts = list(path.relative_to(folder).parts)
        parts[len(parts) - 2 - parts[-2::-1].index("images")] = "labels"  # as Ultralytics does
        width, height = Image.open(path).size
        rows = [line.split() for line in (folder.joinpath(*parts).with_suffix(".txt")).read_text().splitlines()]
        found[path.relative_to(folder / "images").as_posix()] = [
            (names["names"][int(index)], _yolo_box(numbers, width, height, "kpt_shape" in names))
            for index, *numbers in rows
        ]
    return found


def _yolo_box(texts, width: int, height: int, is_pose: bool) -> tuple[float, ...]:
    numbers = list(map(float, texts))
    if len(numbers) == 4 or is_pose:
        x, y, w, h = numbers[:4]
        return _box(((x - w / 2) * width, (y - h / 2) * height, w * width, h * height))
    return _bounds([x * width for x in numbers[::2]], [y * height for y in numbers[1::2]])


def read_voc(folder: Path) -> dict[str, Objects]:
    found: dict[str, Objects] = {}
    for path in (folder / "Annotations").rglob("*.xml"):
        objects = []
        for element in ET.parse(path).iter("object"):
            edges = [float(element.findtext(f"bndbox/{edge}") or "") for edge in ("xmin", "ymin", "xmax", "ymax")]
            objects.append((element.findtext("name") or "", _bounds(edges[::2], edges[1::2])))
        found[path.relative_to(folder / "Annotations").with_suffix("").as_posix()] = objects
    return found


def read_labelme(folder: Path) -> dict[str, Objects]:
    found: dict[str, Objects] = {}
    for path in folder.rglob("*.json"):
        objects: dict[object, tuple[str, list[float], list[float]]] = {}
        for number, shape in enumerate(json.loads(path.read_text())["shapes"]):
            _, xs, ys = objects.setdefault(shape["group_id"] or f"shape {number}", (shape["label"], [], []))
            xs += [x for x, _ in shape["points"]]
            ys += [y for _, y in shape["points"]]
            if shape["shape_type"] == "mask":  # whose last point is the last pixel
                xs.append(max(xs) + 1)
                ys.append(max(ys) + 1)
        name = path.relative_to(folder).with_suffix("").as_posix()
        found[name] = [(label, _bounds(xs, ys)) for label, xs, ys in objects.values()]
    return found


def read_hf(folder: Path) -> dict[str, Objects]:
    found: dict[str, Objects] = {}
    for path in folder.glob("*/metadata.jsonl"):
        for row in map(json.loads, path.read_text().splitlines()):
            objects = row["objects"]
            boxes = map(_box, objects["bbox"])
            found[f"{path.parent.name}/{row['file_name']}"] = list(zip(objects["category"], boxes, strict=True))
    return found


def read_ndjson(folder: Path) -> dict[str, Objects]:
    head, *rows = map(json.loads, (folder / "dataset.ndjson").read_text().splitlines())
    found: dict[str, Objects] = {}
    for row in rows:
        shapes = [shape for key, shapes in row["annotations"].items() if key != "classification" for shape in shapes]
        found[f"{row['split']}/{row['file']}"] = [
            (
                head["class_names"][str(int(index))],
                _yolo_box(numbers, row["width"], row["height"], head["task"] == "pose"),
            )
            for index, *numbers in shapes
        ]
    return found


def read_cvat(folder: Path) -> dict[str, Objects]:
    found: dict[str, Objects] = {}
    for image in ET.parse(folder / "annotations.xml").iter("image"):
        objects = []
        for shape in image:
            label, at = shape.get("label") or "", shape.attrib
            if shape.tag == "mask":
                box = _box([at["left"], at["top"], at["width"], at["height"]])
            elif shape.tag == "polygon":
                points = [point.split(",") for point in at["points"].split(";")]
                box = _bounds([float(x) for x, _ in points], [float(y) for _, y in points])
            else:
                edges = [float(at[edge]) for edge in ("xtl", "ytl", "xbr", "ybr")]
                box = _bounds(edges[::2], edges[1::2])
            objects.append((label, box))
        found[image.get("name") or ""] = objects
    return found


def read_createml(folder: Path) -> dict[str, Objects]:
    found: dict[str, Objects] = {}
    for path in folder.rglob("*.json"):
        for row in json.loads(path.read_text()):
            boxes = [(one["label"], one["coordinates"]) for one in row["annotations"]]
            name = row.get("image") or row["imagefilename"]
            found[name] = [
                (label, _box((c["x"] - c["width"] / 2, c["y"] - c["height"] / 2, c["width"], c["height"])))
                for label, c in boxes
            ]
    return found


READERS: dict[str, Callable[[Path], dict[str, Objects]]] = {
    "coco": read_coco,
    "yolo": read_yolo,
    "voc": read_voc,
    "labelme": read_labelme,
    "hf": read_hf,
    "ndjson": read_ndjson,
    "cvat": read_cvat,
    "createml": read_createml,
}
_HOLDS_CROWDS = ("coco", "hf")
_JOINS_EQUAL = ("yolo", "ndjson")
"""Formats that write one of several equal objects."""


def _plain(name: str) -> str:
    """Return the last part of a name without its suffix: folders and names differ between the formats."""
    stem = name.rpartition("/")[2]
    stem = stem[:-4] if stem.lower().endswith(".png") else stem
    return re.sub(r".*_(?=[^_]*$)", "", stem) if stem.startswith(("images_", "JPEGImages_", "train_")) else stem


def _truth(drawn: DrawnSet, format_: str) -> dict[str, Objects]:
    return {
        _plain(picture.name): sorted(
            (thing.label, _box(thing.box)) for thing in picture.things if format_ in _HOLDS_CROWDS or not thing.crowd
        )
        for picture in drawn.pictures
    }


@pytest.mark.parametrize("format_", READERS)
@pytest.mark.parametrize("kind", ["coco", *BOX_FORMATS])
def test_labels_of_each_format_become_those_of_each_other(kind, format_, tmp_path, capsys):
    draw = random.Random(f"{kind} {format_}")
    drawn = draw_set(draw, "set", kind, ())
    pictures = tuple(p._replace(name=f"{number}{p.name[-4:]}") for number, p in enumerate(drawn.pictures))
    drawn = drawn._replace(pictures=pictures)
    options = write_set(tmp_path / "set", drawn)
    words = [
        word for name, value in options.items() if name != "data" for word in (f"--{name.replace('_', '-')}", value)
    ]
    data = [options["data"]] if "data" in options else []
    output = tmp_path / "out"
    argv = ["convert", *data, *words, "--labels-only", "--as", format_, "-o", str(output), "--progress", "none"]
    assert main(argv) == 0, capsys.readouterr().err
    found = {_plain(name): sorted(objects) for name, objects in READERS[format_](output).items()}
    truth = _truth(drawn, format_)
    if format_ in _JOINS_EQUAL:
        truth = {name: sorted(set(objects)) for name, objects in truth.items()}
    assert found == truth
    files = [path for path in output.rglob("*") if path.suffix.lower() == ".png"]
    images = {
        _plain(path.name): path for path in files if path.parts[len(output.parts)] not in ("panoptic", "semantic")
    }
    assert {name: path.read_bytes() for name, path in images.items()} == {_plain(p.name): p.data for p in pictures}
    assert all(path.stat().st_nlink == 2 for path in images.values())
