"""Facts of images drawn at random, odd ones among them, for comparisons with the oracles."""

import random

from recordmill.schemas.statistics import PixelMeasures
from tests.oracles.image_facts import ImageFacts, RecordPlace

_EDGES = (0.0, -0.0, 0.25, 0.5, 0.50000001, 1e-30)


def draw_facts(seed: int, images: int = 60, kind: str = "") -> tuple[list[ImageFacts], list[RecordPlace]]:
    """Images of one table.

    Args:
        kind: `objects`, `masks`, `captions`, `classes`, or `features`, records without a picture.
    """
    of = random.Random(seed)
    kind = kind or of.choice(("objects", "masks", "captions", "classes", "features"))
    facts, places, record, offset = [], [], of.randint(0, 9), of.randint(0, 1 << 40)
    for number in range(images):
        size = of.randint(1, 1 << 20)
        places.append(RecordPlace(record, offset, size))
        record, offset = record + of.randint(1, 3), offset + size
        facts.append(_draw_image(of, kind, number))
    return facts, places


def _draw_image(of: random.Random, kind: str, number: int) -> ImageFacts:
    name = of.choice((f"{number}.jpg", f"été/{number}" + "n" * 130, "same"))
    image_class = of.randint(0, 3) if kind in ("classes", "features") else None
    if kind == "features":
        return ImageFacts(name, image_class=image_class)
    picture = of.randint(1, 900), of.randint(1, 900), of.choice(("jpeg", "png")), of.randint(1, 200_000_000)
    measures = PixelMeasures(of.randint(0, 255), of.randint(0, 255), of.random(), of.randbytes(of.choice((0, 1024))))
    facts = ImageFacts(name, *picture, measures=of.choice((None, measures)), sha256=of.randbytes(32).hex())
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
        return facts._replace(captions=of.randint(0, 9), segments=[of.randint(0, 4) for _ in range(of.randint(0, 9))])
    return facts


def _draw_box(of: random.Random) -> tuple[float, float, float, float]:
    if of.random() < 0.5:
        return tuple(of.choice(_EDGES) for _ in range(2)) + tuple(of.choice((1.0, 0.75, 1.5)) for _ in range(2))
    ymin, xmin = of.uniform(-0.1, 1), of.uniform(-0.1, 1)
    return ymin, xmin, ymin + of.random(), xmin + of.random() * of.choice((1, 1e-3))
