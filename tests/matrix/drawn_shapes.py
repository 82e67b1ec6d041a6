"""Drawn data sets with options that shape them, and the records that follow from what was drawn.

Nothing here is of the code under test: masks are NumPy arrays, and run lengths pycocotools'.
"""

import io
import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from PIL import Image

from tests.literal_data import write_files
from tests.matrix import generated_sets
from tests.matrix.generated_sets import HEIGHT, WIDTH

CLASSES = ("cat", "dög", "a b", "x,y", "007", "Cat", "no")
STUFF = ("grass", "sky")
STEMS = ("1", "img 2", "ö", "a.b", "007", "x'y", "%41", "(3)", "10", "-1", "q_1", "z")
BOX_FORMATS = ("yolo", "voc", "cvat", "labelme", "createml", "tfcsv", "imagefolder", "vertex")
NAMES = ("nose", "tail")
PREFIXES = {"yolo": "images/", "voc": "JPEGImages/", "cvat": "images/", "imagefolder": "train/"}
"""Folder of the images in the folder of a set."""


class Thing(NamedTuple):
    """An object. `mask` is bool [height, width]; `points` are x, y, visibility of two keypoints."""

    label: str
    box: tuple[int, int, int, int]
    mask: np.ndarray | None = None
    points: tuple[tuple[int, int, int], ...] = ()
    crowd: int = 0
    colour: str | None = None


class Picture(NamedTuple):
    name: str
    pixels: np.ndarray
    data: bytes
    things: tuple[Thing, ...]
    captions: tuple[str, ...] = ()
    segments: tuple[tuple[str, np.ndarray], ...] = ()  # of a panoptic map, which covers a part
    split: str = ""


class DrawnSet(NamedTuple):
    """A data set.

    Attributes:
        classes: Names in the order of ids, and ids.
        own: Options of the set, and those of what to read.
        class_map, categories, exclude: Values of its options; empty without.
    """

    name: str
    format: str
    pictures: tuple[Picture, ...]
    classes: dict[str, int]
    read: dict[str, Any]
    class_map: dict[str, str] = {}
    categories: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    split: str = ""
    limit: int = 0

    def name_of(self, picture: Picture) -> str:
        """Return the name of a picture in records."""
        return PREFIXES.get(self.format, "") + picture.name

    @property
    def names_splits(self) -> bool:
        return any(picture.split for picture in self.pictures)


def png(pixels: np.ndarray) -> bytes:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


def draw_picture(draw: random.Random, name: str, sides: tuple[int, int]) -> Picture:
    width, height = sides
    noise = np.random.default_rng(draw.randrange(1 << 30))
    pixels = noise.integers(0, 255, (height, width, 3), np.uint8)
    if draw.random() < 0.2:
        pixels = pixels[:, :, 0]
    data = png(pixels)
    return Picture(name, pixels, data, ())


def draw_thing(draw: random.Random, label: str, sides: tuple[int, int], rich: bool) -> Thing:
    width, height = sides
    x, y = draw.randrange(width - 1), draw.randrange(height - 1)
    box = x, y, draw.randint(1, width - x), draw.randint(1, height - y)
    colour = draw.choice((None, "red", "1", "a;b"))
    if not rich:
        return Thing(label, box, colour=colour)
    mask = None
    if draw.random() < 0.8:
        mask = np.zeros((height, width), bool)
        part = mask[y : y + box[3], x : x + box[2]]
        if draw.random() < 0.5:
            part[:] = True
        else:
            seeded = np.random.default_rng(draw.randrange(1 << 30))
            part[:] = seeded.random(part.shape) < 0.6
            part[0, 0] = True
        ys, xs = np.nonzero(mask)
        if len(xs):
            box = (
                int(xs.min()),
                int(ys.min()),
                int(xs.max() - xs.min() + 1),
                int(ys.max() - ys.min() + 1),
            )
    points: tuple = ()
    if label == CLASSES[0]:
        points = tuple(
            (draw.randint(0, width - 1), draw.randint(0, height - 1), draw.choice((1, 2)))
            if draw.random() < 0.8
            else (0, 0, 0)
            for _ in NAMES
        )
    return Thing(label, box, mask, points, int(mask is not None and draw.random() < 0.15), colour)


def run_lengths(mask: np.ndarray) -> dict[str, Any]:
    flat = mask.T.ravel()
    edges = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
    return {"counts": [0, *counts] if flat[0] else counts, "size": list(mask.shape)}


def draw_set(draw: random.Random, name: str, kind: str, copies: Sequence[Picture]) -> DrawnSet:
    rich = kind == "coco"
    sides = (WIDTH, HEIGHT)
    labels = draw.sample(CLASSES, draw.randint(1, 4))
    stems = draw.sample(STEMS, draw.randint(2, 9))
    splits = kind in ("yolo", "voc") and draw.random() < 0.5
    has_map, has_captions = rich and draw.random() < 0.4, rich and draw.random() < 0.3
    pictures = []
    for number, stem in enumerate(stems):
        if rich:
            sides = draw.randint(10, 70), draw.randint(10, 70)
        picture = draw_picture(draw, stem + draw.choice((".png", ".PNG") if kind != "openimages" else (".jpg",)), sides)
        if copies and draw.random() < 0.15:
            other = draw.choice(copies)
            if rich or other.pixels.shape[:2] == (HEIGHT, WIDTH):
                picture = picture._replace(pixels=other.pixels, data=other.data)
                sides = picture.pixels.shape[1], picture.pixels.shape[0]
        chosen = draw.choices(labels, k=draw.choice((0, 1, 1, 2, 5))) if number else labels
        things = [draw_thing(draw, label, sides, rich) for label in chosen]
        unique = {(thing.label, thing.box): thing for thing in things}
        captions = tuple(f"caption {stem} {n}" for n in range(draw.randint(0, 2))) if has_captions else ()
        segments: list = []
        if has_map and draw.random() < 0.8:
            borders = sorted(draw.sample(range(1, sides[0]), min(2, sides[0] - 1)))
            for left, right in itertools.pairwise(borders):
                area = np.zeros((sides[1], sides[0]), bool)
                area[: draw.randint(1, sides[1]), left:right] = True
                segments.append((draw.choice((labels[0], *STUFF)), area))
        split = draw.choice(("train", "val")) if splits else ""
        picture = picture._replace(
            things=tuple(unique.values()), captions=captions, segments=tuple(segments), split=split
        )
        pictures.append(picture)
    if splits and len({picture.split for picture in pictures}) < 2:
        pictures[0], pictures[1] = pictures[0]._replace(split="train"), pictures[1]._replace(split="val")
    names = list(dict.fromkeys(thing.label for picture in pictures for thing in picture.things))
    ids = sorted(draw.sample(range(1, 30), len(names)))
    classes = dict(zip(names, ids, strict=True)) if rich else {n: i for i, n in enumerate(names)}
    if kind in ("voc", "cvat", "labelme", "createml", "tfcsv", "imagefolder", "vertex", "via", "labelstudio"):
        classes = {n: i for i, n in enumerate(sorted(names), 1)}
    if has_map:
        for stuff in STUFF:
            classes[stuff] = max(classes.values()) + 1
    read: dict[str, Any] = {"has_map": has_map, "has_captions": has_captions}
    return DrawnSet(name, kind, tuple(pictures), classes, read)


def draw_class_map(draw: random.Random, classes: Mapping[str, int], stuff: Iterable[str]) -> dict[str, str]:
    """Return new names of some classes of things; a class of stuff may be renamed. Empty drops a class."""
    things = [name for name in classes if name not in stuff]
    result = {}
    for name in draw.sample(things, draw.randint(1, len(things))):
        result[name] = draw.choice(("", "vehicle", draw.choice(things), f"new {name}", name))
    for name in stuff:
        if name in classes and draw.random() < 0.3:
            result[name] = draw.choice(("", "ground"))
    if draw.random() < 0.25 and not any(name in classes for name in stuff):
        result["*"] = draw.choice(("", "other"))
    if not any(mapped(result, name) for name in things):
        result[things[0]] = "other"
    return result


def mapped(class_map: Mapping[str, str], name: str) -> str:
    """Return the new name; empty if the class is dropped."""
    return class_map.get(name, class_map.get("*", name)) if class_map else name


def map_classes(classes: Mapping[str, int], class_map: Mapping[str, str], categories: Sequence[str]) -> dict[str, int]:
    """Return the id of each class: that of its first member."""
    result: dict[str, int] = {}
    for name, id_ in sorted(classes.items(), key=lambda pair: pair[1]):
        new = mapped(class_map, name)
        if new and (not categories or new in categories):
            result.setdefault(new, id_)
    return result


def join_classes(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Merge the classes of sets in ten lines: ids of the first set stay, new names get the next ids."""
    result = dict(parts[0])
    next_id = max(result.values(), default=0) + 1
    for part in parts[1:]:
        for name in sorted(part, key=part.__getitem__):
            if name not in result:
                result[name], next_id = next_id, next_id + 1
    return result


def keep_things(picture: Picture, class_map: Mapping[str, str], categories: Sequence[str]) -> Picture:
    things = [thing._replace(label=mapped(class_map, thing.label)) for thing in picture.things]
    kept = tuple(t for t in things if t.label and (not categories or t.label in categories))
    segments = [(mapped(class_map, label), area) for label, area in picture.segments]
    return picture._replace(things=kept, segments=tuple((n, a) for n, a in segments if n))


# Writers


def write_set(folder: Path, drawn: DrawnSet) -> dict[str, Any]:
    """Write the files of a set. Return its options of what to read."""
    if drawn.format == "coco":
        return write_coco(folder, drawn)
    images = [
        generated_sets.TrueImage(
            picture.name,
            picture.data,
            tuple(generated_sets.TrueObject(t.label, t.box, None, t.colour) for t in picture.things),
        )
        for picture in drawn.pictures
    ]
    generated_sets.write_set(folder, drawn.format, images)
    if drawn.names_splits and drawn.format == "voc":
        for split in ("train", "val"):
            stems = [p.name.rpartition(".")[0] for p in drawn.pictures if p.split == split]
            write_files(folder, {f"ImageSets/Main/{split}.txt": "".join(f"{stem}\n" for stem in stems)})
    if drawn.names_splits and drawn.format == "yolo":
        names = list(dict.fromkeys(t.label for p in drawn.pictures for t in p.things))
        lists = {s: [f"./images/{p.name}" for p in drawn.pictures if p.split == s] for s in ("train", "val")}
        write_files(folder, {f"{s}.txt": "".join(f"{n}\n" for n in lines) for s, lines in lists.items()})
        head = {"train": "train.txt", "val": "val.txt", "names": names}
        write_files(folder, {"data.yaml": yaml.safe_dump(head, allow_unicode=True)})
    return {"data": str(folder), "format": drawn.format}


def write_coco(folder: Path, drawn: DrawnSet) -> dict[str, Any]:
    draw = random.Random(drawn.name + drawn.pictures[0].name)
    rows, annotations, captions, panoptic = [], [], [], []
    next_id = itertools.count(draw.randint(1, 50))
    image_ids = draw.sample(range(1, 40), len(drawn.pictures))
    for image_id, picture in zip(image_ids, drawn.pictures, strict=True):
        height, width = picture.pixels.shape[:2]
        rows.append({"id": image_id, "file_name": picture.name, "width": width, "height": height})
        for thing in picture.things:
            x, y, w, h = thing.box
            area = w * h if thing.mask is None else int(thing.mask.sum())
            row: dict[str, Any] = {"id": next(next_id), "image_id": image_id, "iscrowd": thing.crowd}
            row |= {"category_id": drawn.classes[thing.label], "bbox": [x, y, w, h], "area": area}
            if thing.mask is not None:
                is_box = thing.mask[y : y + h, x : x + w].all() and not thing.crowd and w > 1 and h > 1
                polygon = [[x, y, x + w, y, x + w, y + h, x, y + h]]
                row["segmentation"] = polygon if is_box else run_lengths(thing.mask)
            if thing.points:
                row["keypoints"] = [value for point in thing.points for value in point]
                row["num_keypoints"] = sum(point[2] > 0 for point in thing.points)
            if thing.colour is not None:
                row["colour"] = thing.colour
            annotations.append(row)
        captions += [{"id": next(next_id), "image_id": image_id, "caption": text} for text in picture.captions]
        if picture.segments:
            ids = np.zeros((height, width), np.int64)
            infos = []
            for number, (label, area) in enumerate(picture.segments, 1):
                ids[area] = number * 7
                ys, xs = np.nonzero(area)
                bbox = [int(xs.min()), int(ys.min()), int(np.ptp(xs)) + 1, int(np.ptp(ys)) + 1]
                info = {"id": number * 7, "category_id": drawn.classes[label], "bbox": bbox}
                infos.append(info | {"area": int(area.sum()), "iscrowd": 0})
            colours = np.stack([ids % 256, ids // 256, ids * 0], 2).astype(np.uint8)
            file = f"{image_id}.png"
            write_files(folder, {f"panoptic/{file}": png(colours)})
            panoptic.append({"image_id": image_id, "file_name": file, "segments_info": infos})
    has_points = any(t.points for p in drawn.pictures for t in p.things)
    kinds: list[dict[str, Any]] = []
    for name, id_ in drawn.classes.items():
        kind: dict[str, Any] = {"id": id_, "name": name}
        if has_points and name == CLASSES[0]:
            kind |= {"keypoints": list(NAMES), "skeleton": [[1, 2]]}
        kinds.append(kind)
    things = [kind for kind in kinds if kind["name"] not in STUFF]
    draw.shuffle(things)
    draw.shuffle(annotations)
    draw.shuffle(rows)
    files: dict[str, Any] = {"instances.json": {"images": rows, "annotations": annotations, "categories": things}}
    options: dict[str, Any] = {"format": "coco", "images": str(folder / "images")}
    options["instances"] = str(folder / "instances.json")
    if has_points:
        of_class = [kind for kind in things if "keypoints" in kind]
        poses = [row for row in annotations if "keypoints" in row]
        files["poses.json"] = {"images": rows, "annotations": poses, "categories": of_class}
        options["keypoints"] = str(folder / "poses.json")
    if drawn.read["has_captions"]:
        files["captions.json"] = {"images": rows, "annotations": captions}
        options["captions"] = str(folder / "captions.json")
    if drawn.read["has_map"]:
        marked = [{**kind, "isthing": int(kind["name"] not in STUFF)} for kind in kinds]
        files["panoptic.json"] = {"images": rows, "annotations": panoptic, "categories": marked}
        options |= {"panoptic": str(folder / "panoptic.json"), "panoptic_masks": str(folder / "panoptic")}
        write_files(folder, {"panoptic/.keep": ""})
    write_files(folder, {name: json.dumps(file) for name, file in files.items()})
    write_files(folder, {f"images/{picture.name}": picture.data for picture in drawn.pictures})
    return options


# Tiles


class Tile(NamedTuple):
    name: str
    x: int
    y: int
    pixels: np.ndarray
    things: tuple[Thing, ...]
    area: tuple[float, ...]
    segments: tuple[tuple[str, np.ndarray], ...]
    is_empty: bool


def tiles_of(picture: Picture, size: int, overlap: float, least: float, has_masks: bool) -> list[Tile]:
    """Return the tiles of a picture, cropped by NumPy."""
    height, width = picture.pixels.shape[:2]
    stride = max(1, round(size * (1 - overlap)))
    lefts, tops = (_starts(side, size, stride) for side in (width, height))
    tiles = []
    for y, x in itertools.product(tops, lefts):
        things, areas = [], []
        for thing in picture.things:
            place = x, y, min(size, width - x), min(size, height - y)
            crop, area = _crop_thing(thing, place, (width, height), least, has_masks)
            if crop:
                things.append(crop)
                areas.append(area)
        segments = [(label, area[y : y + size, x : x + size]) for label, area in picture.segments]
        pixels = picture.pixels[y : y + size, x : x + size]
        stem, dot, suffix = picture.name.rpartition(".")
        name = f"{stem}_{x}_{y}{dot}{suffix}"
        shown = tuple((label, area) for label, area in segments if area.any())
        tiles.append(Tile(name, x, y, pixels, tuple(things), tuple(areas), shown, not things and not picture.segments))
    return tiles


def _starts(side: int, size: int, stride: int) -> list[int]:
    starts = [0]
    while starts[-1] + size < side:
        starts.append(starts[-1] + stride)
    return starts


def _crop_thing(
    thing: Thing, place: tuple[int, int, int, int], sides: tuple[int, int], least: float, has_masks: bool
) -> tuple[Thing | None, float]:
    """Return what a tile, at x, y, of width and height, shows of an object, and its area; None if not enough."""
    x, y, width, height = place
    left, top, w, h = thing.box
    low, high = (max(left, x), max(top, y)), (min(left + w, x + width), min(top + h, y + height))
    inside = max(0, high[0] - low[0]) * max(0, high[1] - low[1])
    points = tuple(
        (px - x, py - y, v)
        if v
        and (0 <= px - x < width or (px == sides[0] == x + width))
        and (0 <= py - y < height or (py == sides[1] == y + height))
        else (0, 0, 0)
        for px, py, v in thing.points
    )
    if has_masks and thing.mask is not None and thing.mask.any():
        crop = thing.mask[y : y + height, x : x + width]
        if not crop.any() or crop.sum() < least * thing.mask.sum() * (1 - 1e-9):
            return None, 0
        ys, xs = np.nonzero(crop)
        box = int(xs.min()), int(ys.min()), int(np.ptp(xs)) + 1, int(np.ptp(ys)) + 1
        return thing._replace(box=box, mask=crop, points=points), float(crop.sum())
    if not inside or inside < least * w * h * (1 - 1e-9):
        return None, 0
    area = (w * h if thing.mask is None else int(thing.mask.sum())) * inside / (w * h)
    box = low[0] - x, low[1] - y, high[0] - low[0], high[1] - low[1]
    return thing._replace(box=box, mask=None, points=points), area
