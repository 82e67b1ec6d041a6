import hashlib

import msgspec
import numpy as np
import pytest

from recordmill.schemas.problems import NO_HASH
from recordmill.schemas.statistics import PixelMeasures
from recordmill.transforms.images.measure_pixels import perceptual_hashes
from recordmill.transforms.insight.fingerprint_images import ImageFingerprints, image_class, label_digests
from tests.transforms.insight.drawn_facts import ImageFacts, draw_facts, fact_columns, fingerprinted

GREY = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)


def facts(name: str = "a.jpg", grey: bytes = b"", **more) -> ImageFacts:
    measures = PixelMeasures(0, 255, 1.0, grey) if grey else None
    return ImageFacts(name, sha256=hashlib.sha256(name.encode()).hexdigest(), measures=measures, **more)


def test_image_has_its_name_digest_hash_and_place():
    images, places = [], []
    for index in range(5):
        width, height = ((0, 0), (50, 50), (80, 40), (900, 30), (1, 900))[index]
        grey = GREY[index].tobytes() if index != 3 else b""
        images.append(facts(f"{index}.jpg", grey, width=width, height=height))
        places.append((index, 7 * index, 9))
    images += ImageFacts("no image"), facts("0.jpg", is_continuation=True)
    of = fingerprinted(*images, places=[*places, (5, 0, 0), (6, 0, 0)])
    names = [f"{index}.jpg" for index in range(5)]
    assert (of.shard, msgspec.json.decode(of.names)) == ("s", names)
    assert [row["digest"].tobytes() for row in of.array] == [
        hashlib.sha256(name.encode()).digest()[:16] for name in names
    ]
    expected = perceptual_hashes(GREY)
    expected[3] = NO_HASH
    assert of.array["hash"].tolist() == expected.tolist()
    assert of.array[["record", "offset", "bytes"]].tolist() == [(index, 7 * index, 9) for index in range(5)]
    parts = GREY.reshape(5, 4, 8, 4, 8).astype(int)
    for index, form in enumerate(of.array["form"]):
        levels = [parts[index, y, :, x].sum() // 64 for y in range(4) for x in range(4)]
        assert form.tolist() == [*(levels if index != 3 else [0] * 16), {0: 0, 1: 128, 2: 208, 3: 255, 4: 0}[index]]


def test_of_no_image_there_is_nothing():
    fingerprints = ImageFingerprints().collect("s")
    assert (bytes(fingerprints.names), fingerprints.rows) == (b"[]", b"")


def digest(image: ImageFacts) -> int:
    return int(label_digests(fact_columns([image]))[0])


def object_digest(*objects: tuple[int, float, float, float, float]) -> int:
    edges = tuple(zip(*(item[1:] for item in objects), strict=True)) or ((), (), (), ())
    return digest(facts(width=100, height=100, boxes=edges, classes=[item[0] for item in objects]))


def classes(digest: int) -> int:
    return int(image_class(np.array([digest], np.uint64))[0])


def test_labels_are_equal_in_any_order_of_objects():
    one, other = (1, 0.1, 0.2, 0.3, 0.4), (2, 0, 0, 1, 1)
    moved = (2, 0, 0, 1, 0.5)
    assert object_digest(one, other) == object_digest(other, one)
    assert object_digest(one) != object_digest(one, one) != object_digest()
    assert object_digest(one, other) != object_digest(one, moved)
    assert classes(object_digest(one, other)) == classes(object_digest(moved, one))
    assert classes(object_digest(one)) != classes(object_digest(other))
    swapped = object_digest((2, *one[1:]), (1, *other[1:]))
    assert classes(object_digest(one, other)) == classes(swapped)
    assert object_digest(one, other) != swapped
    assert object_digest(one) == object_digest((1, *map(float, np.float32(one[1:]))))  # as the record has the box
    # A key of 64 bits could not hold these.
    rows = [(1 << 40, 0.5, 0, 1, 1), (70_000, 0.1, 0, 1, 1)]
    assert object_digest(*rows) == object_digest(*reversed(rows))
    assert object_digest(*rows) != object_digest((70_000, 0.5, 0, 1, 1), (1 << 40, 0.1, 0, 1, 1))


def test_boxes_that_differ_by_rounding_are_the_same_labels():
    """Of a COCO box in pixels with two decimals, and of the same box in YOLO's fractions with six."""
    pixels = [(10.25, 20.5, 33.33, 40.01), (10.25, 5, 630.7, 100)]  # ymin, xmin, ymax, xmax of 480 x 640
    exact = [(1, ymin / 480, xmin / 640, ymax / 480, xmax / 640) for ymin, xmin, ymax, xmax in pixels]
    rounded = [(1, *(round(edge, 6) for edge in box[1:])) for box in exact]
    moved = [exact[0], (1, exact[1][1] + 0.02 / 480, *exact[1][2:])]
    assert exact != rounded
    digests = [
        digest(facts(width=640, height=480, boxes=tuple(zip(*(box[1:] for box in boxes), strict=True)), classes=[1, 1]))
        for boxes in (exact, rounded, rounded[::-1], moved)
    ]
    assert digests[0] == digests[1] == digests[2] != digests[3]


@pytest.mark.parametrize("edge", [-0.0, -1e-6, 1e-6])
def test_box_at_the_edge_is_the_same_label_however_it_is_rounded(edge):
    """--boxes keep stores edges below 0."""
    assert object_digest((1, edge, 0, 1, 1)) == object_digest((1, 0.0, 0, 1, 1)) != object_digest((1, -1e-3, 0, 1, 1))


def test_masks_are_the_labels_of_images_without_objects():
    masks = [{0: 5, 255: 1}, {255: 1, 0: 5}, {0: 4, 1: 2}, {}]
    one, same, other, without = (digest(facts(boxes=((), (), (), ()), pixels=mask)) for mask in masks)
    assert one == same
    assert len({one, other, without}) == 3
    objects = {digest(facts(boxes=((0,), (0,), (1,), (1,)), classes=[1], pixels=mask)) for mask in masks}
    assert len(objects) == 1


def test_of_images_of_one_class_class_is_known():
    assert classes(digest(facts(image_class=7))) == 7
    assert digest(facts()) not in {digest(facts(image_class=index)) for index in range(3)}


@pytest.mark.parametrize("kind", ["objects", "masks", "captions", "classes", "features"])
@pytest.mark.parametrize("seed", range(5))
def test_images_are_fingerprinted_together_as_one_by_one(seed, kind):
    images, places = draw_facts(seed, kind=kind)
    alone = [fingerprinted(image, places=[place]) for image, place in zip(images, places, strict=True)]
    together = fingerprinted(*images, places=places)
    assert together.rows == b"".join(single.rows for single in alone)
    assert msgspec.json.decode(together.names) == [
        name for single in alone for name in msgspec.json.decode(single.names)
    ]
