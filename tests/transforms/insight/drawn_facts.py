"""Facts of images, also drawn at random with odd ones among them: as columns, counted and fingerprinted."""

import random
from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from recordmill.schemas.block import Ragged, ragged_bytes, starts_of
from recordmill.schemas.problems import Fingerprints
from recordmill.schemas.statistics import PixelMeasures, Statistics
from recordmill.transforms.blocks.image_facts import NO_CLASS, FactColumns, RecordPlaces, SortedObjects, sort_objects
from recordmill.transforms.insight.count_images import ImageCounter
from recordmill.transforms.insight.count_maps import measure_depth
from recordmill.transforms.insight.fingerprint_images import ImageFingerprints

Place = tuple[int, int, int]
"""Number, offset and bytes of an image's first record in a shard."""


class ImageFacts(NamedTuple):
    """Contents of an image's records: a row of `FactColumns`, None where records have no such column.

    Attributes:
        boxes: ymin, xmin, ymax, xmax of all objects, as fractions of height and width.
        captions: their number.
        pixels: number by value of the semantic mask.
        depth_mm: depth of pixels in millimetres, 0 unknown.
        mask_bounds: ymin, xmin, ymax, xmax in pixels of each object's mask; None for an object without one.
    """

    name: str
    width: int = 0
    height: int = 0
    format: str = ""
    bytes: int = 0
    boxes: tuple[Sequence[float], Sequence[float], Sequence[float], Sequence[float]] | None = None
    classes: Collection[int] = ()
    captions: int | None = None
    segments: Collection[int] = ()
    is_continuation: bool = False
    measures: PixelMeasures | None = None
    mask_bounds: Sequence[tuple[int, int, int, int] | None] | None = None
    sha256: str = ""
    image_class: int | None = None
    pixels: dict[int, int] | None = None
    depth_mm: Sequence[int] | None = None


def fact_columns(images: Sequence[ImageFacts]) -> FactColumns:
    columns: dict[str, Any] = {
        "name": ragged_bytes([facts.name.encode() for facts in images]),
        "size_px": np.array([(facts.width, facts.height) for facts in images], np.int64).reshape(-1, 2),
        "format": [facts.format for facts in images],
        "num_bytes": np.array([facts.bytes for facts in images], np.int64),
        "sha256": [facts.sha256 for facts in images],
        "is_continuation": np.array([facts.is_continuation for facts in images], bool),
        "measures": [facts.measures for facts in images],
        "image_class": np.array([NO_CLASS if f.image_class is None else f.image_class for f in images], np.int64),
    }
    if any(facts.boxes is not None for facts in images):
        edges = [np.array(facts.boxes, np.float32).reshape(4, -1).T for facts in images]
        columns["yxyx_frac"] = np.concatenate(edges)
        columns["first_object_of_image"] = starts_of(np.array(list(map(len, edges)), np.int64))
        columns["class_index"] = np.array([index for facts in images for index in facts.classes], np.int64)
    if any(facts.mask_bounds for facts in images):
        bounds = [facts.mask_bounds or [None] * len(facts.classes) for facts in images]
        rows = [(np.nan,) * 4 if box is None else box for image_bounds in bounds for box in image_bounds]
        columns["mask_bounds_px"] = np.array(rows, np.float64).reshape(-1, 4)
    if any(facts.captions is not None for facts in images):
        columns["num_captions"] = np.array([facts.captions for facts in images], np.int64)
    if any(facts.segments for facts in images):
        lengths = np.array([len(facts.segments) for facts in images], np.int64)
        values = np.array([index for facts in images for index in facts.segments], np.int64)
        columns["segments"] = Ragged(values, starts_of(lengths))
    if any(facts.pixels is not None for facts in images):
        columns["pixels"] = [facts.pixels for facts in images]
    if any(facts.depth_mm is not None for facts in images):
        columns["depth"] = [measure_depth(np.array([facts.depth_mm], np.uint16), 0.001) for facts in images]
    return FactColumns(**columns)


def sorted_objects(facts: FactColumns) -> SortedObjects | None:
    return None if facts.first_object_of_image is None else sort_objects(facts)


def record_places(places: Sequence[Place]) -> RecordPlaces:
    record, offset, size = np.array(places, np.int64).reshape(-1, 3).T
    return RecordPlaces(record, np.ones_like(record), offset, size)


def usual_places(images: Sequence[ImageFacts]) -> list[Place]:
    return [(number, 100 * number, 100) for number in range(len(images))]


def counted(*images: ImageFacts, shard: str = "s", places: Sequence[Place] = ()) -> Statistics:
    """Statistics of images, which have different bytes unless they have a digest or a name in common."""
    images = [facts._replace(sha256=facts.sha256 or sha256(facts.name.encode()).hexdigest()) for facts in images]
    facts, counter = fact_columns(images), ImageCounter()
    counter.add(facts, record_places(places or usual_places(images)), sorted_objects(facts))
    return counter.statistics(shard)


def fingerprinted(*images: ImageFacts, places: Sequence[Place] = ()) -> Fingerprints:
    facts, fingerprints = fact_columns(images), ImageFingerprints()
    fingerprints.add(facts, record_places(places or usual_places(images)))
    return fingerprints.collect("s")


_EDGES = (0.0, -0.0, 0.25, 0.5, 0.50000001, 1e-30)


def draw_facts(seed: int, images: int = 60, kind: str = "") -> tuple[list[ImageFacts], list[Place]]:
    """Images of one table.

    Args:
        kind: `objects`, `masks`, `captions`, `maps`, `classes`, or `features`, records without an image.
    """
    of = random.Random(seed)
    kind = kind or of.choice(("objects", "masks", "captions", "maps", "classes", "features"))
    facts, places, record, offset = [], [], of.randint(0, 9), of.randint(0, 1 << 40)
    for number in range(images):
        size = of.randint(1, 1 << 20)
        places.append((record, offset, size))
        record, offset = record + of.randint(1, 3), offset + size
        facts.append(_draw_image(of, kind, number))
    return facts, places


def _draw_image(of: random.Random, kind: str, number: int) -> ImageFacts:
    name = of.choice((f"{number}.jpg", f"été/{number}" + "n" * 130, "same"))
    image_class = of.randint(0, 3) if kind in ("classes", "features") else None
    if kind == "features":
        return ImageFacts(name, image_class=image_class)
    header = of.randint(1, 900), of.randint(1, 900), of.choice(("jpeg", "png")), of.randint(1, 200_000_000)
    measures = PixelMeasures(of.randint(0, 255), of.randint(0, 255), of.random(), of.randbytes(of.choice((0, 1024))))
    facts = ImageFacts(name, *header, measures=of.choice((None, measures)), sha256=of.randbytes(32).hex())
    if kind == "classes":
        return facts._replace(image_class=image_class)
    boxes = [_draw_box(of) for _ in range(of.choice((0, 0, 1, 2, 9, 40)))]
    boxes += [of.choice(boxes) for _ in boxes[:2]]
    facts = facts._replace(
        boxes=tuple(zip(*boxes, strict=True)) or ((),) * 4,
        classes=[of.choice((0, 1, 7, 130)) for _ in boxes],
        is_continuation=of.random() < 0.2,
    )
    if kind == "masks":
        bounds = [of.choice((None, (0, 0, 2, 2), (of.randint(0, 9), 3, 400, 500))) for _ in boxes]
        return facts._replace(mask_bounds=bounds)
    if kind == "captions":
        facts = facts._replace(captions=of.randint(0, 9), segments=[of.randint(0, 4) for _ in range(of.randint(0, 9))])
    if kind == "maps":
        units = [of.choice((0, 1, 1000, 65535, of.randint(0, 65535))) for _ in range(of.randint(1, 30))]
        return facts._replace(pixels={of.randint(0, 255): of.randint(1, 99) for _ in range(3)}, depth_mm=units)
    return facts


def _draw_box(of: random.Random) -> tuple[float, float, float, float]:
    if of.random() < 0.5:
        return tuple(of.choice(_EDGES) for _ in range(2)) + tuple(of.choice((1.0, 0.75, 1.5)) for _ in range(2))
    ymin, xmin = of.uniform(-0.1, 1), of.uniform(-0.1, 1)
    return ymin, xmin, ymin + of.random(), xmin + of.random() * of.choice((1, 1e-3))
