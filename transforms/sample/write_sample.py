"""Write the sample data set: drawn scenes with COCO files of every kind."""

import csv
import io
import random
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
from PIL import Image

from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.sizes import number_text
from recordmill.transforms.sample.draw_scene import (
    KEYPOINTS,
    SKELETON,
    STUFF,
    THINGS,
    Scene,
    bounding_box,
    draw_odd,
    draw_scene,
    encode_run_lengths,
    encoded,
    object_mask,
)
from recordmill.transforms.storage.resolve import join_path, storage_for

BROKEN, MISSING = 10, 12
"""Index of the image whose file is truncated, and of the image that has a row and no file."""


class SampleFiles(NamedTuple):
    """Paths of `write_sample`'s files."""

    images: str
    instances: str
    captions: str
    keypoints: str
    stuff: str
    panoptic: str
    panoptic_masks: str
    image_info: str
    classes: str
    objects: str
    pictures: str


def write_sample(folder: str, count: int, seed: int, odd: bool = False) -> SampleFiles:
    """Draw a data set of `count` image rows into `folder`; equal counts and seeds give equal files.

    Args:
        odd: Add an image of every unusual form, see `draw_odd`, with the objects of one scene.
    """
    documents = ("instances", "captions", "person_keypoints", "stuff", "panoptic", "image_info")
    *first, info = (f"annotations/{name}.json" for name in documents)
    names = ("images", *first, "panoptic", info, "classes", "objects.csv", "pictures.csv")
    files = SampleFiles(*(join_path(folder, name) for name in names))
    kinds = ("images", "instances", "captions", "keypoints", "stuff", "panoptic", "pictures")
    rows: dict[str, list[dict]] = {kind: [] for kind in kinds}
    for index in range(count):
        _add_image(files, rows, index, random.Random(f"{seed}/{index}"))
    if odd:
        _add_odd(files, rows, random.Random(f"{seed}/odd"))
    _write_documents(files, rows)
    _write_object_table(files, rows)
    _write_table(files.pictures, [["image", "description", "label"], *map(dict.values, rows["pictures"])])
    return files


def _write_object_table(files: SampleFiles, rows: dict[str, list[dict]]) -> None:
    """Write a table with one row per object."""
    file_names = {row["id"]: row["file_name"] for row in rows["images"]}
    captions = {row["image_id"]: row["caption"] for row in reversed(rows["captions"])}  # first caption of each image
    shapes = {category.id: category.name for category in THINGS}
    table = [["object", "image", "shape", "x", "y", "width", "height", "area", "crowd", "caption"]]
    for row in rows["instances"]:
        image, shape, crowd = row["image_id"], shapes[row["category_id"]], str(bool(row["iscrowd"])).lower()
        box = *row["bbox"], row["area"]
        table.append([row["id"], file_names[image], shape, *box, crowd, captions.get(image, "")])
    _write_table(files.objects, table)


def _write_table(path: str, rows: Iterable[Iterable[object]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    storage_for(path).write(path, text.getvalue().encode())


def _write_documents(files: SampleFiles, rows: dict[str, list[dict]]) -> None:
    things, stuff = msgspec.to_builtins(THINGS), msgspec.to_builtins(STUFF)
    figure = {**things[-1], "keypoints": KEYPOINTS, "skeleton": SKELETON}
    for path, annotations, categories in (
        (files.instances, rows["instances"], things),
        (files.captions, rows["captions"], None),
        (files.keypoints, rows["keypoints"], [figure]),
        (files.stuff, rows["stuff"], stuff),
        (files.panoptic, rows["panoptic"], [{**row, "isthing": int(row in things)} for row in (*things, *stuff)]),
        (files.image_info, None, None),
    ):
        document = {"info": {"description": "drawn by recordmill sample"}, "images": rows["images"]}
        parts = {"annotations": annotations, "categories": categories}
        document |= {part: values for part, values in parts.items() if values is not None}
        storage_for(path).write(path, msgspec.json.encode(document))


def _add_image(files: SampleFiles, rows: dict[str, list[dict]], index: int, rng: random.Random) -> None:
    """Draw an image, write its files, and append its rows."""
    storage = storage_for(files.images)
    width, height = rng.randint(160, 320), rng.randint(120, 280)
    things = 0 if index % 11 == 5 else rng.randint(1, 7)
    scene = draw_scene(rng, width, height, things, crowd=index % 9 == 4, grey=index % 7 == 3)
    image_id = 1000 + index * 7
    png = index % 4 == 1
    file_name = _choose_file_name(index, image_id, "png" if png else "jpg")
    data = encoded(scene.image, "PNG") if png else encoded(scene.image, "JPEG", quality=90)
    if index == BROKEN:
        data = data[: len(data) // 2]
    if index != MISSING:
        storage.write(join_path(files.images, file_name), data)
    rows["images"].append({"id": image_id, "file_name": file_name, "width": width, "height": height})
    if instances := _add_instances(rows, scene, image_id):
        rows["pictures"].append(_write_crop(files.classes, scene, max(instances, key=itemgetter("area"))))
    rows["captions"] += [
        {"id": image_id * 10 + number, "image_id": image_id, "caption": caption}
        for number, caption in enumerate(_write_captions(scene))
    ]
    rows["stuff"] += [
        _annotation_row(image_id * 10 + number, image_id, category, seen)
        for number, category in enumerate(STUFF, 1)
        if (seen := object_mask(scene, number)).any()
    ]
    segments, mask = _draw_panoptic(scene)
    mask_name = f"{image_id:012}.png"
    storage.write(join_path(files.panoptic_masks, mask_name), encoded(mask, "PNG"))
    rows["panoptic"].append({"image_id": image_id, "file_name": mask_name, "segments_info": segments})


def _write_crop(folder: str, scene: Scene, row: dict) -> dict[str, str]:
    """Write a crop of the image's largest object to the folder of its class, and return its row of a table."""
    storage = storage_for(folder)
    x, y, width, height = row["bbox"]
    thing = scene.things[row["id"] % 100]
    name = thing.category.name
    cut_out, file = scene.image.crop((x, y, x + width, y + height)), f"{name}/{row['id']}.png"
    storage.write(join_path(folder, file), encoded(cut_out, "PNG"))
    around = f"with {len(scene.things) - 1} others around" if len(scene.things) > 1 else "alone"
    return {"image": file, "description": f"a {thing.colour} {name}, {around}", "label": name}


ODD_FOLDER = "odd"
_ODD_WIDTH, _ODD_HEIGHT = 240, 180
_FIRST_ODD_ID = 900_000


def _add_odd(files: SampleFiles, rows: dict[str, list[dict]], rng: random.Random) -> None:
    storage = storage_for(files.images)
    scene = draw_scene(rng, _ODD_WIDTH, _ODD_HEIGHT, 4, crowd=False, grey=False)
    for number, odd in enumerate(draw_odd(scene.image)):
        image_id = _FIRST_ODD_ID + number
        file_name = f"{ODD_FOLDER}/{odd.name}"
        storage.write(join_path(files.images, file_name), odd.data)
        rows["images"].append({"id": image_id, "file_name": file_name, "width": odd.width, "height": odd.height})
        _add_instances(rows, scene, image_id)


def _add_instances(rows: dict[str, list[dict]], scene: Scene, image_id: int) -> list[dict]:
    instances = list(_instance_rows(scene, image_id))
    rows["instances"] += instances
    rows["keypoints"] += [row for row in instances if "keypoints" in row]
    return instances


def _choose_file_name(index: int, image_id: int, ending: str) -> str:
    """Return a name: most are like COCO's; some have a sub-folder, spaces and accents, or upper-case suffixes."""
    if index % 10 == 6:
        return f"more/{image_id:012}.{ending}"
    if index % 10 == 8:
        return f"été {image_id} à la mer.{ending.upper()}"
    return f"{image_id:012}.{ending}"


def _instance_rows(scene: Scene, image_id: int) -> Iterator[dict]:
    """Yield the annotation rows of visible things."""
    for index, thing in enumerate(scene.things):
        mask = object_mask(scene, index + 3)
        if not mask.any():
            continue
        row = _annotation_row(image_id * 100 + index, image_id, thing.category, mask, thing.is_crowd)
        x, y, width, height = row["bbox"]
        # An uncovered square is a polygon of four corners. Covered or round things and crowds are run lengths.
        if thing.category.name == "square" and row["area"] == width * height:
            row["segmentation"] = [[x, y, x + width, y, x + width, y + height, x, y + height]]
        if thing.keypoints:
            points = [_coco_keypoint(mask, x, y) for x, y in thing.keypoints]
            row["keypoints"] = [number for point in points for number in point]
            row["num_keypoints"] = sum(visibility > 0 for _, _, visibility in points)
        yield row


def _annotation_row(id_: int, image_id: int, category: Category, mask: np.ndarray, is_crowd: bool = False) -> dict:
    return {
        "id": id_,
        "image_id": image_id,
        "category_id": category.id,
        "bbox": bounding_box(mask),
        "area": int(mask.sum()),
        "iscrowd": int(is_crowd),
        "segmentation": encode_run_lengths(mask),
    }


def _coco_keypoint(mask: np.ndarray, x: int, y: int) -> tuple[int, int, int]:
    """Return a COCO keypoint: visibility 2 if visible, 1 if covered; zeros outside the image."""
    if not (0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]):
        return 0, 0, 0
    return x, y, 2 if mask[y, x] else 1


def _write_captions(scene: Scene) -> tuple[str, str]:
    named = [f"a {thing.colour} {thing.category.name}" for thing in scene.things]
    first = f"{', '.join(named) or 'nothing'} before sky and ground"
    return first, f"a drawing of {number_text(len(named), 'object')}"


def _draw_panoptic(scene: Scene) -> tuple[list[dict], Image.Image]:
    """Return segments_info, and the image whose colours are the segments' ids: R + 256 G + 65536 B."""
    segments = []
    ids = np.zeros(scene.numbers.shape, np.uint32)
    categories = [*STUFF, *(thing.category for thing in scene.things)]
    for number, category in enumerate(categories, 1):
        mask = object_mask(scene, number)
        if mask.any():
            id_ = number * 65_793 + 7  # all three bytes are used
            ids[mask] = id_
            crowd = number > 2 and scene.things[number - 3].is_crowd
            segment = {"id": id_, "category_id": category.id, "area": int(mask.sum()), "bbox": bounding_box(mask)}
            segments.append({**segment, "iscrowd": int(crowd)})
    channels = np.stack([ids & 255, ids >> 8 & 255, ids >> 16 & 255], axis=-1).astype(np.uint8)
    return segments, Image.fromarray(channels)
