"""Drawn data sets that come in several deliveries, and their files.

The files of a COCO delivery are those of all images without the rows of others, so that ids of an image stay.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from recordmill.schemas.containers import CONTAINERS
from tests.literal_data import write_files
from tests.matrix.drawn_shapes import (
    BOX_FORMATS,
    CLASSES,
    STUFF,
    DrawnSet,
    Picture,
    Thing,
    draw_class_map,
    draw_picture,
    draw_set,
    write_set,
)
from tests.matrix.generated_sets import HEIGHT, WIDTH

FOLDER = "folder"
FIRST_COLOUR = "red"
"""Of the first object, so that each delivery agrees that colours are texts."""


class Growth:
    """A drawn job, with the sets of each delivery.

    Attributes:
        deliveries: Sets of each run, with the images that are new in it; sets without images are absent.
        is_cumulative: True if each run has the images of the earlier ones, too.
        has_all_classes: True if the first delivery has an object of each class.
    """

    def __init__(self, seed: int, folder: Path):
        draw = self.draw = random.Random(seed)
        self.folder = folder
        number = draw.choice((1, 1, 2, 3))
        is_classes = draw.random() < 0.2
        kinds = [FOLDER if is_classes else draw.choice(("coco", "coco", *BOX_FORMATS)) for _ in range(number)]
        self.sets: list[DrawnSet] = []
        for at, kind in enumerate(kinds):
            copies = [picture for one in self.sets for picture in one.pictures] if draw.random() < 0.3 else []
            name = f"set{at}" if draw.random() < 0.8 else f"n ä{at}"
            one = draw_folders(draw, name) if is_classes else draw_set(draw, name, kind, copies)
            self.sets.append(_with_first_colour(one))
        if draw.random() < 0.25:
            self._break_an_image()
        self.is_joined = number > 1
        self.has_map = any(one.read["has_map"] for one in self.sets)
        self.is_cumulative = draw.random() < 0.5
        self.has_all_classes = draw.random() < 0.8 or self.has_map
        self.deliveries = self._draw_deliveries()
        self.options = self._draw_options(kinds, is_classes)
        self.class_map: dict[str, str] = {}
        if draw.random() < 0.3 and self.has_all_classes:
            names = {name: 0 for one in self.sets for name in one.classes}
            self.class_map = draw_class_map(draw, names, STUFF)

    def _break_an_image(self) -> None:
        at = self.draw.randrange(len(self.sets))
        pictures = [*self.sets[at].pictures]
        if len(pictures) > 2:
            place = self.draw.randrange(1, len(pictures))
            pictures[place] = pictures[place]._replace(data=pictures[place].data[: len(pictures[place].data) // 2])
            self.sets[at] = self.sets[at]._replace(pictures=tuple(pictures))

    def _draw_deliveries(self) -> list[list[DrawnSet]]:
        draw, number = self.draw, self.draw.choice((2, 2, 3))
        pictures: list[list[list[Picture]]] = [[[] for _ in self.sets] for _ in range(number)]
        late = draw.randrange(len(self.sets)) if len(self.sets) > 2 and draw.random() < 0.5 else None
        for at, one in enumerate(self.sets):
            for place, picture in enumerate(one.pictures):
                run = draw.randrange(number)
                is_first = picture.split and picture.split not in {other.split for other in one.pictures[:place]}
                if is_first or (place == 0 and self.has_all_classes):
                    run = 0
                run = max(run, 1) if at == late else run
                pictures[run][at].append(picture)
            if not pictures[0][at] and at != late:  # a base has images of its sets
                run = next(run for run in range(number) if pictures[run][at])
                pictures[0][at].append(pictures[run][at].pop())
        self.has_all_classes = self.has_all_classes and late is None
        runs = [
            [one._replace(pictures=tuple(own)) for one, own in zip(self.sets, of_run, strict=True) if own]
            for of_run in pictures
        ]
        return [run for run in runs if run]

    def _draw_options(self, kinds: Sequence[str], is_classes: bool) -> dict[str, Any]:
        draw = self.draw
        options: dict[str, Any] = {"max_rejects": 0.9, "progress": "none"}
        container = draw.choice([name for name, row in CONTAINERS.items() if row.is_installed])
        layout = "classification" if is_classes else draw.choice(("detection", "detection", "tfds", "keras"))
        if CONTAINERS[container].layouts and layout not in CONTAINERS[container].layouts:
            layout = "classification" if is_classes else "detection"
        options["container"] = container
        if not is_classes:
            options |= {"layout": layout, "allow_empty": True}
            if draw.random() < 0.5 and all(kind in ("coco", "yolo", "labelme", "voc", "cvat") for kind in kinds):
                options["masks"] = "rle" if container != "tfrecord" else draw.choice(("rle", "both"))
            if draw.random() < 0.3 and "yolo" not in kinds and self.has_all_classes:
                options["fields"] = ["all"]
        if layout == "keras":
            options.pop("fields", None)
        if layout != "detection":
            options.pop("masks", None)
        if CONTAINERS[container].can_gzip and draw.random() < 0.3:
            options["gzip"] = True
        if draw.random() < 0.3:
            options |= {"tile": draw.choice((7, 16, 33, 200)), "tile_overlap": draw.choice((0, 0.2))}
            options["tile_min_visible"] = draw.choice((0, 0.3))
            options["keep_empty"] = 1 if container == "webdataset" else draw.choice((0, 0.5, 1))
        if not any(one.names_splits for one in self.sets):
            shares = {} if layout == "keras" else {"split": "train=0.6,val=0.4"}
            options |= draw.choice(({}, {}, shares, {"split": "test"}))
        if "," in options.get("split", "") and draw.random() < 0.3:
            options["group_from"] = "^(.)"
        if draw.random() < 0.15:
            options["duplicates"] = "drop"
        if draw.random() < 0.15 and "tile" not in options:
            options |= {"image_format": "png", "max_side": 20}
        return options

    def write(self, name: str, sets: Sequence[DrawnSet], **more: object) -> list[str]:
        """Write the files of sets to a folder, and the options of a run. Return flags of `convert`."""
        folder = self.folder / name
        folder.mkdir()
        own = [self._write_set(folder / one.name, one) for one in sets]
        options = {**self.options, **more}
        if self.options.get("layout") == "keras" and any(one.names_splits for one in sets):
            options["split"] = "train"
        if self.is_joined and len(own) > 1:
            options["sets"] = [read | {"name": one.name} for read, one in zip(own, sets, strict=True)]
        else:
            options |= own[0]
        if self.class_map:
            path = folder / "map.csv"
            path.write_text("from,to\n" + "".join(f'"{old}","{new}"\n' for old, new in self.class_map.items()))
            options["class_map"] = str(path)
        (folder / "job.yaml").write_text(yaml.safe_dump(options, allow_unicode=True))
        return ["convert", "--config", str(folder / "job.yaml")]

    def _write_set(self, folder: Path, one: DrawnSet) -> dict[str, Any]:
        if one.format == FOLDER:
            write_files(folder, {picture.name: picture.data for picture in one.pictures})
            return {"data": str(folder), "format": FOLDER}
        if one.format != "coco":
            return write_set(folder, one)
        (whole,) = (drawn for drawn in self.sets if drawn.name == one.name)
        changed = {picture.name: picture for picture in one.pictures}
        whole = whole._replace(pictures=tuple(changed.get(picture.name, picture) for picture in whole.pictures))
        options = write_set(folder, whole)
        keep_rows(folder, set(changed))
        unread = {"keras": ("keypoints", "captions", "panoptic", "panoptic_masks"), "tfds": ("keypoints",)}
        left_out = unread.get(self.options.get("layout", ""), ())
        return {name: value for name, value in options.items() if name not in left_out}

    def up_to(self, run: int) -> list[DrawnSet]:
        """Return the sets with the images of deliveries 0 to `run`, in the order of the drawn ones."""
        names = {(one.name, p.name) for sets in self.deliveries[: run + 1] for one in sets for p in one.pictures}
        sets = [
            one._replace(pictures=tuple(p for p in one.pictures if (one.name, p.name) in names)) for one in self.sets
        ]
        return [one for one in sets if one.pictures]


def keep_rows(folder: Path, names: set[str]) -> None:
    """Delete the images with other names from a COCO data set, with their rows."""
    for path in folder.glob("*.json"):
        file = json.loads(path.read_text())
        images = [row for row in file["images"] if row["file_name"] in names]
        ids = {row["id"] for row in images}
        annotations = [row for row in file["annotations"] if row["image_id"] in ids]
        path.write_text(json.dumps(file | {"images": images, "annotations": annotations}))
    for path in folder.glob("images/*"):
        if path.name not in names:
            path.unlink()


def _with_first_colour(one: DrawnSet) -> DrawnSet:
    first, *others = one.pictures
    if not first.things or one.format == FOLDER:
        return one
    things = (first.things[0]._replace(colour=FIRST_COLOUR), *first.things[1:])
    return one._replace(pictures=(first._replace(things=things), *others))


def draw_folders(draw: random.Random, name: str) -> DrawnSet:
    """Draw class folders. The first images have a class each."""
    labels = draw.sample(CLASSES, draw.randint(1, 4))
    chosen = [*labels, *draw.choices(labels, k=draw.randint(2, 9))]
    pictures = []
    for at, label in enumerate(chosen):
        picture = draw_picture(draw, f"{label}/{at}.png", (WIDTH, HEIGHT))
        pictures.append(picture._replace(things=(Thing(label, (0, 0, 1, 1)),)))
    classes = {label: at for at, label in enumerate(sorted(labels))}
    return DrawnSet(name, FOLDER, tuple(pictures), classes, {"has_map": False, "has_captions": False})
