"""Drawn data sets go out to other formats and in again with the objects that were drawn."""

import random
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from pycocotools import mask as coco_mask

from recordmill.launch.cli import main
from tests.conftest import leave_pages_empty, manifest_of, read_examples
from tests.matrix.drawn_shapes import BOX_FORMATS, DrawnSet, Thing, draw_set, write_set

OTHERS = ("yolo", "voc", "labelme", "hf", "ndjson")
WITH_MASKS = ("labelme", "cvat")
FOLDERS = re.compile("((images|JPEGImages|train|val)[/_])*")
"""Folders before the name of an image; NDJSON has _ for /."""


@pytest.mark.parametrize("kind", ["coco", *BOX_FORMATS])
def test_drawn_set_goes_out_and_in_again(kind, tmp_path, monkeypatch):
    leave_pages_empty(monkeypatch)
    draw = random.Random(kind)
    drawn = draw_set(draw, "set", kind, ())
    masks = {"masks": "rle"} if kind == "coco" else {}
    convert(tmp_path / "out", write_set(tmp_path / "set", drawn) | masks)
    for format_ in ("cvat", "createml", draw.choice(OTHERS)):
        back, again = tmp_path / format_, tmp_path / f"{format_} again"
        run("extract", tmp_path / "out", back, "--as", format_)
        has_masks = bool(masks) and format_ in WITH_MASKS
        name = "imagefolder" if format_ == "hf" else format_
        convert(again, {"data": str(back), "format": name} | (masks if has_masks else {}))
        assert read_objects(again, has_masks) == drawn_objects(drawn, has_masks, format_ == "hf"), format_


def convert(out: Path, options: dict) -> None:
    file = out.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(options | {"max_rejects": 0}, allow_unicode=True))
    run("convert", "--config", file, "-o", out)


def run(*words: object) -> None:
    assert main([*map(str, words), "--progress", "none"]) == 0


Objects = dict[str, list[tuple[bytes, tuple, bytes]]]
"""Class, box in pixels and mask of the objects, by split and name of the image."""


def drawn_objects(drawn: DrawnSet, has_masks: bool, has_crowds: bool) -> Objects:
    objects = {}
    for picture in drawn.pictures:
        things = [thing for thing in picture.things if has_crowds or not thing.crowd]
        rows = [(thing.label.encode(), tuple(map(float, thing.box)), mask_bytes(thing, has_masks)) for thing in things]
        objects[f"{picture.split or 'train'}/{picture.name}"] = sorted(rows)
    return objects


def mask_bytes(thing: Thing, has_masks: bool) -> bytes:
    return b"" if thing.mask is None or not has_masks else thing.mask.astype(np.uint8).tobytes()


def read_objects(folder: Path, has_masks: bool) -> Objects:
    objects = {}
    for split in manifest_of(folder)["splits"]:
        for example in read_examples(folder, split):
            size = [example["image/height"][0], example["image/width"][0]]
            edges = [example[f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin", "xmax", "ymax")]
            boxes = np.reshape(np.transpose(edges), (-1, 4)) * [*size[::-1], *size[::-1]]
            boxes[:, 2:] -= boxes[:, :2]
            masks = example.get("image/object/mask/rle") if has_masks else None
            pixels = [coco_mask.decode({"size": size, "counts": rle}).tobytes() for rle in masks or ()]
            pixels = [mask if any(mask) else b"" for mask in pixels]
            rows = zip(
                example["image/object/class/text"],
                map(tuple, (boxes.round(2) + 0.0).tolist()),
                pixels or [b""] * len(boxes),
                strict=True,
            )
            objects[f"{split}/{FOLDERS.sub('', example['image/filename'][0].decode())}"] = sorted(rows)
    return objects
