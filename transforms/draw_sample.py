"""A small COCO data set, drawn: its boxes, masks, keypoints, captions and panoptic maps are known exactly, because
each object is drawn with the same call into the picture and into a map of object numbers, and everything else is read
off that map."""

import io
import math
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from PIL import Image, ImageDraw

from schemas.coco import Category
from transforms.storage import storage_for

Points = list[tuple[float, float]]

# With gaps between the ids, as in COCO.
THINGS = (
    Category(1, "circle", "round"),
    Category(2, "square", "angular"),
    Category(4, "triangle", "angular"),
    Category(7, "star", "angular"),
    Category(11, "figure", "person"),
)
STUFF = (Category(92, "sky", "outdoor"), Category(95, "ground", "outdoor"))
KEYPOINTS = ("head", "left_hand", "right_hand", "left_foot", "right_foot")
SKELETON = ((1, 2), (1, 3), (1, 4), (1, 5))

BROKEN, MISSING = 10, 12
"""The one image whose file is cut in half, and the one that has a row and no file."""

_COLOURS = {
    "red": (214, 57, 49),
    "blue": (48, 96, 200),
    "green": (46, 150, 78),
    "yellow": (236, 190, 50),
    "white": (245, 245, 240),
}

_SKY, _GROUND = (150, 190, 220), (150, 130, 100)


class Thing(NamedTuple):
    """An object of a scene.

    Attributes:
        keypoints: x, y in pixels of a figure's KEYPOINTS, which may lie outside the picture.
    """

    category: Category
    colour: str
    is_crowd: bool
    keypoints: Sequence[tuple[int, int]] = ()


class Scene(NamedTuple):
    """A drawn picture.

    Attributes:
        image: the picture.
        numbers: int32 [height, width]: 1 for sky, 2 for ground, 3 + n for the n-th of `things`.
    """

    image: Image.Image
    numbers: np.ndarray
    things: list[Thing]


def draw_scene(rng: random.Random, width: int, height: int, things: int, crowd: bool, grey: bool) -> Scene:
    """A scene of `things` objects before sky and ground; later ones cover earlier ones."""
    picture, numbers = Image.new("RGB", (width, height)), Image.new("I", (width, height))
    pens = ImageDraw.Draw(picture), ImageDraw.Draw(numbers)
    horizon = int(height * rng.uniform(0.4, 0.7))
    _both(pens, "rectangle", (0, 0, width, horizon), _SKY, 1)
    _both(pens, "rectangle", (0, horizon, width, height), _GROUND, 2)
    drawn = []
    for index in range(things):
        category, colour = rng.choice(THINGS), rng.choice(list(_COLOURS))
        size = int(min(width, height) * rng.uniform(0.15, 0.4))
        # Some cross the picture's edge, as real objects do.
        x, y = rng.randint(-size // 4, width - size), rng.randint(-size // 4, height - size)
        number = index + 3
        if crowd and index == 0:
            category = THINGS[0]
            for _ in range(12):
                spot = x + rng.randint(0, size), y + rng.randint(0, size)
                _both(pens, "ellipse", (*spot, spot[0] + size // 4, spot[1] + size // 4), _COLOURS[colour], number)
            drawn.append(Thing(category, colour, True))
        elif category.name == "figure":
            points = _draw_figure(pens, x, y, size, _COLOURS[colour], number)
            drawn.append(Thing(category, colour, False, points))
        else:
            _draw_shape(pens, category.name, x, y, size, _COLOURS[colour], number)
            drawn.append(Thing(category, colour, False))
    return Scene(picture.convert("L") if grey else picture, np.asarray(numbers, np.int32), drawn)


Pens = tuple[ImageDraw.ImageDraw, ImageDraw.ImageDraw]


def _both(pens: Pens, shape: str, place: object, colour: tuple[int, int, int], number: int, **kwargs: int) -> None:
    for pen, fill in zip(pens, (colour, number), strict=True):
        getattr(pen, shape)(place, fill=fill, **kwargs)


def _draw_shape(pens: Pens, name: str, x: int, y: int, size: int, colour: tuple[int, int, int], number: int) -> None:
    if name == "circle":
        _both(pens, "ellipse", (x, y, x + size, y + size), colour, number)
    elif name == "square":
        _both(pens, "rectangle", (x, y, x + size, y + size), colour, number)
    else:
        corners = _triangle(x, y, size) if name == "triangle" else _star(x, y, size)
        _both(pens, "polygon", corners, colour, number)


def _triangle(x: int, y: int, size: int) -> Points:
    return [(x + size / 2, y), (x + size, y + size), (x, y + size)]


def _star(x: int, y: int, size: int) -> Points:
    centre, radius = (x + size / 2, y + size / 2), size / 2
    tips = ((index, radius if index % 2 == 0 else radius * 0.4) for index in range(10))
    return [
        (centre[0] + r * math.sin(index * math.pi / 5), centre[1] - r * math.cos(index * math.pi / 5))
        for index, r in tips
    ]


def _draw_figure(
    pens: Pens, x: int, y: int, size: int, colour: tuple[int, int, int], number: int
) -> list[tuple[int, int]]:
    """A stick figure; returns where its KEYPOINTS are."""
    head = (x + size // 2, y + size // 8)
    neck, hip = (head[0], y + size // 4), (head[0], y + size * 5 // 8)
    hands = (x, y + size // 3), (x + size, y + size // 3)
    feet = (x + size // 8, y + size), (x + size * 7 // 8, y + size)
    limb = max(3, size // 10)
    for line in ((neck, hip), *((neck, hand) for hand in hands), *((hip, foot) for foot in feet)):
        _both(pens, "line", line, colour, number, width=limb)
    radius = size // 8
    _both(pens, "ellipse", (head[0] - radius, head[1] - radius, head[0] + radius, head[1] + radius), colour, number)
    return [head, *hands, *feet]


def mask_of(scene: Scene, number: int) -> np.ndarray:
    """bool [height, width]: where the object of that number is seen."""
    return scene.numbers == number


def box_of(mask: np.ndarray) -> list[int]:
    """x, y, width, height in pixels of the smallest box around a mask that is not empty."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    x, y = int(columns[0]), int(rows[0])
    return [x, y, int(columns[-1]) - x + 1, int(rows[-1]) - y + 1]


def rle_of(mask: np.ndarray) -> dict[str, list[int]]:
    """COCO's uncompressed run lengths: down the columns, zeros first.

    >>> rle_of(np.array([[False, True], [True, True]]))
    {'counts': [1, 3], 'size': [2, 2]}
    """
    flat = mask.flatten(order="F")
    changes = np.flatnonzero(np.diff(flat, prepend=False)).tolist()
    edges = [0, *changes, len(flat)]
    return {"counts": [end - start for start, end in pairwise(edges)], "size": list(mask.shape)}


class SampleFiles(NamedTuple):
    """What `write_sample` wrote, as paths."""

    images: str
    instances: str
    captions: str
    keypoints: str
    panoptic: str
    panoptic_masks: str


def write_sample(folder: str, count: int, seed: int) -> SampleFiles:
    """Draw a data set of `count` image rows into `folder`; equal counts and seeds give equal files."""
    storage = storage_for(folder)
    files = SampleFiles(
        *(
            storage.join(folder, name)
            for name in (
                "images",
                "annotations/instances.json",
                "annotations/captions.json",
                "annotations/person_keypoints.json",
                "annotations/panoptic.json",
                "panoptic",
            )
        )
    )
    rows: dict[str, list[dict]] = {"images": [], "instances": [], "captions": [], "keypoints": [], "panoptic": []}
    for index in range(count):
        _add_image(files, rows, index, random.Random(f"{seed}/{index}"))
    thing_rows = [msgspec.to_builtins(category) for category in THINGS]
    figure = {**thing_rows[-1], "keypoints": KEYPOINTS, "skeleton": SKELETON}
    panoptic_rows = [
        {**msgspec.to_builtins(category), "isthing": int(category in THINGS)} for category in (*THINGS, *STUFF)
    ]
    for path, annotations, categories in (
        (files.instances, rows["instances"], thing_rows),
        (files.captions, rows["captions"], None),
        (files.keypoints, rows["keypoints"], [figure]),
        (files.panoptic, rows["panoptic"], panoptic_rows),
    ):
        document = {
            "info": {"description": "drawn by recordmill sample"},
            "images": rows["images"],
            "annotations": annotations,
        }
        if categories is not None:
            document["categories"] = categories
        storage.write(path, msgspec.json.encode(document))
    return files


def _add_image(files: SampleFiles, rows: dict[str, list[dict]], index: int, rng: random.Random) -> None:
    """Draw an image, write its files, and append its rows."""
    storage = storage_for(files.images)
    width, height = rng.randint(160, 320), rng.randint(120, 280)
    things = 0 if index % 11 == 5 else rng.randint(1, 7)
    scene = draw_scene(rng, width, height, things, crowd=index % 9 == 4, grey=index % 7 == 3)
    image_id = 1000 + index * 7
    png = index % 4 == 1
    file_name = _file_name(index, image_id, "png" if png else "jpg")
    data = _encoded(scene.image, "PNG" if png else "JPEG")
    if index == BROKEN:
        data = data[: len(data) // 2]
    if index != MISSING:
        storage.write(storage.join(files.images, file_name), data)
    rows["images"].append({"id": image_id, "file_name": file_name, "width": width, "height": height})
    for row in _instances(scene, image_id):
        rows["instances"].append(row)
        if "keypoints" in row:
            rows["keypoints"].append(row)
    rows["captions"] += [
        {"id": image_id * 10 + number, "image_id": image_id, "caption": caption}
        for number, caption in enumerate(_captions(scene))
    ]
    segments, mask = _panoptic(scene)
    mask_name = f"{image_id:012}.png"
    storage.write(storage.join(files.panoptic_masks, mask_name), _encoded(mask, "PNG"))
    rows["panoptic"].append({"image_id": image_id, "file_name": mask_name, "segments_info": segments})


def _file_name(index: int, image_id: int, ending: str) -> str:
    """Mostly as COCO's; some in a sub-folder, some with spaces and accents, some endings in capitals."""
    if index % 10 == 6:
        return f"more/{image_id:012}.{ending}"
    if index % 10 == 8:
        return f"été {image_id} à la mer.{ending.upper()}"
    return f"{image_id:012}.{ending}"


def _encoded(image: Image.Image, format_: str) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format_, **({"quality": 90} if format_ == "JPEG" else {}))
    return stream.getvalue()


def _instances(scene: Scene, image_id: int) -> Iterator[dict]:
    """Annotation rows of the things that can be seen."""
    for index, thing in enumerate(scene.things):
        mask = mask_of(scene, index + 3)
        area = int(mask.sum())
        if not area:
            continue
        box = box_of(mask)
        x, y, width, height = box
        # A square that nothing covers is a polygon of four corners; what is covered, round or a crowd is run lengths.
        whole = thing.category.name == "square" and area == width * height
        corners = [x, y, x + width, y, x + width, y + height, x, y + height]
        row = {
            "id": image_id * 100 + index,
            "image_id": image_id,
            "category_id": thing.category.id,
            "bbox": box,
            "area": area,
            "iscrowd": int(thing.is_crowd),
            "segmentation": [corners] if whole else rle_of(mask),
        }
        if thing.keypoints:
            points = [_labelled(mask, x, y) for x, y in thing.keypoints]
            row["keypoints"] = [number for point in points for number in point]
            row["num_keypoints"] = sum(visibility > 0 for _, _, visibility in points)
        yield row


def _labelled(mask: np.ndarray, x: int, y: int) -> tuple[int, int, int]:
    """A keypoint as COCO has it: visibility 2 where it is seen, 1 where something covers it; zeros outside the picture."""
    if not (0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]):
        return 0, 0, 0
    return x, y, 2 if mask[y, x] else 1


def _captions(scene: Scene) -> tuple[str, str]:
    named = [f"a {thing.colour} {thing.category.name}" for thing in scene.things]
    first = f"{', '.join(named) or 'nothing'} before sky and ground"
    return first, f"a drawing of {len(named)} object{'s' if len(named) != 1 else ''}"


def _panoptic(scene: Scene) -> tuple[list[dict], Image.Image]:
    """segments_info, and the picture whose colours are the segments' ids: R + 256 G + 65536 B."""
    segments = []
    ids = np.zeros(scene.numbers.shape, np.uint32)
    categories = [*STUFF, *(thing.category for thing in scene.things)]
    for number, category in enumerate(categories, 1):
        mask = mask_of(scene, number)
        if not mask.any():
            continue
        id_ = number * 65_793 + 7  # all three bytes are used
        ids[mask] = id_
        crowd = number > 2 and scene.things[number - 3].is_crowd
        segments.append(
            {
                "id": id_,
                "category_id": category.id,
                "area": int(mask.sum()),
                "bbox": box_of(mask),
                "iscrowd": int(crowd),
            }
        )
    channels = np.stack([ids & 255, ids >> 8 & 255, ids >> 16 & 255], axis=-1).astype(np.uint8)
    return segments, Image.fromarray(channels)
