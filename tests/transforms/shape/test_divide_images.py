import json
import random

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from recordmill.schemas.block import Block, ragged_bytes, ragged_numbers, ragged_texts
from recordmill.schemas.inputs.annotations import Caption, ImageLabels, StuffAnnotation
from recordmill.schemas.inputs.images import TileRules
from recordmill.schemas.inputs.splits import name_id
from recordmill.transforms.blocks.image_tasks import label_column, labels_of
from recordmill.transforms.shape.divide_images import Tiles, divide_images


def block_of(sides, boxes, names=None, **columns) -> Block:
    """Images with their boxes; `columns` replaces others."""
    names = names or [f"d/{number}.jpg" for number in range(len(sides))]
    rows = np.array([box for of_image in boxes for box in of_image], np.float64).reshape(-1, 4)
    block = Block(
        image_id=np.arange(len(sides)) + 5,
        file_name=ragged_texts(names),
        image_size_px=np.array(sides, np.int64),
        split=np.zeros(len(sides), np.int64),
        file_folder=ragged_texts(["/in/"] * len(sides)),
        file_bytes=np.ones(len(sides), np.int64),
        file_version=ragged_texts([""] * len(sides)),
        first_object_of_image=np.cumsum([0, *map(len, boxes)]),
        object_id=np.arange(len(rows)) + 1,
        category_id=np.zeros(len(rows), np.int64),
        boxes_xywh_px=rows,
        area_px2=rows[:, 2] * rows[:, 3],
        is_crowd=np.zeros(len(rows), bool),
    )
    return block.replace(**columns)


def places(tiles: Tiles) -> list[tuple[int, int]]:
    return [tuple(place) for place in tiles.block.tile_xy_px.tolist()]


def boxes_by_place(tiles: Tiles) -> dict[tuple[int, int], list[list[float]]]:
    rows, found = tiles.block.boxes_xywh_px.tolist(), dict[tuple[int, int], list[list[float]]]()
    for row, image in zip(rows, tiles.block.image_of_object.tolist(), strict=True):
        found.setdefault(places(tiles)[image], []).append(row)
    return found


def drawn_mask(rng: random.Random, width: int, height: int) -> tuple[bytes, np.ndarray]:
    """Segmentation of any form, and its pixels."""
    if rng.random() < 0.5:
        sides = width, height
        polygons = [
            [round(rng.uniform(-5, side + 5), rng.choice([0, 1, 3])) for side in sides * rng.randint(3, 7)]
            for _ in range(rng.randint(1, 2))
        ]
        counts = coco_mask.merge(coco_mask.frPyObjects(polygons, height, width))
        return json.dumps(polygons).encode(), coco_mask.decode(counts)
    pixels = np.zeros((height, width), np.uint8)
    x, y = rng.randrange(width), rng.randrange(height)
    pixels[y : y + rng.randint(1, height), x : x + rng.randint(1, width)] = 1
    pixels &= np.array([[rng.random() < 0.8 for _ in range(width)] for _ in range(height)])
    counts = coco_mask.encode(np.asfortranarray(pixels))
    return json.dumps({"counts": counts["counts"].decode(), "size": [height, width]}).encode(), pixels


@pytest.mark.parametrize("seed", range(60))
def test_masks_are_crops_and_areas_add_up(seed):
    rng = random.Random(seed)
    sides = [(rng.randint(1, 40), rng.randint(1, 40)) for _ in range(2)]
    masks = [[drawn_mask(rng, *side) for _ in range(rng.randint(0, 3))] for side in sides]
    boxes = [[(0.25, 0.5, side[0] * 0.5, side[1] * 0.5) for _ in masks[image]] for image, side in enumerate(sides)]
    drawn = [mask for of_image in masks for mask in of_image]
    texts = [text if number % 4 else b"" for number, (text, _) in enumerate(drawn)]
    pixels = [mask if text else np.zeros_like(mask) for text, (_, mask) in zip(texts, drawn, strict=True)]
    overlap = rng.choice([0.0, 0.0, 0.5])
    rules = TileRules(rng.randint(1, 20), overlap, min_visible=0.0, keep_empty=1.0)
    block = block_of(sides, boxes, segmentation=ragged_bytes(texts))
    tiles = divide_images(block, rules)
    tiles.block.check("test")
    areas, shown = np.zeros(len(pixels)), np.zeros(len(pixels), int)
    rows = zip(
        tiles.block.image_of_object.tolist(),
        (tiles.block.whole_object_id - 1).tolist() if len(pixels) else [],
        tiles.block.segmentation.rows() if len(pixels) else [],
        tiles.block.area_px2.tolist(),
        tiles.block.boxes_xywh_px.tolist(),
        strict=True,
    )
    for tile, number, text, area, box in rows:
        (x, y), (width, height) = tiles.block.tile_xy_px[tile], tiles.block.image_size_px[tile]
        expected = pixels[number][y : y + height, x : x + width]
        areas[number] += area
        shown[number] += int(expected.sum())
        if pixels[number].any():
            np.testing.assert_array_equal(coco_mask.decode(json.loads(text)), expected)
            below, right = np.nonzero(expected)
            low = right.min(), below.min()
            assert box == [*low, right.max() + 1 - low[0], below.max() + 1 - low[1]]
            assert area == expected.sum()
    assert sum(tiles.counts.unseen) == 0
    assert sum(tiles.counts.copies) == tiles.block.num_objects - len(pixels)
    if not overlap:
        assert shown.tolist() == [int(mask.sum()) for mask in pixels]
        totals = [mask.sum() or area for mask, area in zip(pixels, block.area_px2.tolist(), strict=True)]
        np.testing.assert_allclose(areas, totals)
        assert tiles.block.image_size_px.prod(axis=1).sum() == block.image_size_px.prod(axis=1).sum()


BOX = (90.0, 10.0, 20.0, 40.0)  # half of it in each of two tiles


@pytest.mark.parametrize(
    ("box", "min_visible", "policy", "expected"),
    [
        pytest.param(BOX, 0.5, "clip", {(0, 0): [[90, 10, 10, 40]], (100, 0): [[0, 10, 10, 40]]}, id="half"),
        pytest.param((89.0, 10, 20, 40), 0.5, "clip", {(0, 0): [[89, 10, 11, 40]]}, id="more_than_half"),
        pytest.param((95.0, 95, 10, 10), 0.3, "clip", {}, id="quarters"),
        pytest.param((10.5, 3, 7.25, 4), 1.0, "clip", {(0, 0): [[10.5, 3, 7.25, 4]]}, id="in_one_tile"),
        pytest.param((-10.0, 0, 20, 10), 1.0, "clip", {(0, 0): [[0, 0, 10, 10]]}, id="clipped"),
        pytest.param((-10.0, 0, 20, 10), 1.0, "keep", {(0, 0): [[-10, 0, 20, 10]]}, id="kept_beyond_the_edge"),
        pytest.param((150.0, 0, 99, 10), 1.0, "keep", {(100, 0): [[50, 0, 99, 10]]}, id="kept_beyond_the_right_edge"),
        pytest.param((-10.0, 0, 20, 10), 0.0, "drop", {}, id="dropped"),
        pytest.param((99.99999999, 0, 50.00000001, 10), 0.0, "clip", {(100, 0): [[0, 0, 50, 10]]}, id="sliver"),
    ],
)
def test_boxes_of_tiles(box, min_visible, policy, expected):
    tiles = divide_images(block_of([(200, 150)], [[box]]), TileRules(100, 0.0, min_visible), policy)
    assert boxes_by_place(tiles) == expected


def test_counts_and_rejects_of_objects():
    boxes = [[(95.0, 95, 10, 10), (-5, 0, 10, 10), (300, 0, 5, 5), (0, 0, 50, 50)]]
    texts = ragged_bytes([b"", b"", b"", b"[[1, 2]]"])
    tiles = divide_images(block_of([(200, 150)], boxes, segmentation=texts), TileRules(100, 0.0, 0.3, 0.0))
    assert [(image, reject.id, reject.reason.value) for image, reject in tiles.rejects] == [
        (0, 3, "empty_box"),
        (0, 4, "malformed_segmentation"),
    ]
    assert tiles.rejects[0].reject.detail == "box x 300, y 0, 5x5 in an image of 200x150"
    counts = {name: column.tolist() for name, column in tiles.counts._asdict().items()}
    assert {name: numbers for name, numbers in counts.items() if any(numbers)} == {
        "empty": [3],
        "unseen": [1],
        "clipped": [1],
    }


def test_names_ids_and_places():
    block = block_of([(150, 80), (90, 90)], [[(0, 0, 150, 80)], []], ["d.x/a.JPG", "b"])
    tiles = divide_images(block, TileRules(100, 0.0, 0.0, 1.0)).block
    assert tiles.file_name.texts() == ["d.x/a_0_0.JPG", "d.x/a_100_0.JPG", "b_0_0"]
    assert tiles.file_folder.texts() == ["/in/d.x/a.JPG", "/in/d.x/a.JPG", "/in/b"]
    assert tiles.whole_name.texts() == ["d.x/a.JPG", "d.x/a.JPG", "b"]
    assert tiles.image_id.tolist() == [name_id(name) for name in tiles.file_name.texts()]
    assert tiles.whole_id.tolist() == [5, 5, 6]
    assert tiles.is_first_tile.tolist() == [True, False, True]
    assert tiles.whole_size_px.tolist() == [[150, 80], [150, 80], [90, 90]]
    assert tiles.image_size_px.tolist() == [[100, 80], [50, 80], [90, 90]]
    assert tiles.whole_object_id.tolist() == [1, 1]
    assert len({1, *tiles.object_id.tolist()}) == 3


def test_keypoints_and_corners():
    points = [(10.0, 10, 2), (100, 10, 2), (150, 10, 1), (-1, 5, 2), (40, 40, 0), (200, 150, 2)]
    block = block_of(
        [(200, 150)],
        [[(0, 0, 200, 150), (0, 0, 200, 150)]],
        keypoints_xyv=ragged_numbers([[number for point in points for number in point], []]),
        corners_px=np.array([[0.0] * 8, [-4.0, 1, 90, 0, 201, 3, 5, 6]]),
    )
    tiles = divide_images(block, TileRules(100, 0.0, 0.0, 1.0))
    none = (0.0, 0.0, 0.0)
    shown = dict(zip(places(tiles), tiles.block.list_rows("keypoints_xyv")[::2], strict=True))
    assert shown == {
        (0, 0): (10, 10, 2, *none * 5),
        (100, 0): (*none, 0, 10, 2, 50, 10, 1, *none * 3),
        (0, 100): none * 6,
        (100, 100): (*none * 5, 100, 50, 2),
    }
    assert tiles.block.corners_px[[0, 2, 3]].tolist() == [[0.0] * 8, [0.0] * 8, [-104, 1, -10, 0, 101, 3, -95, 6]]
    assert tiles.counts.keypoints_outside.tolist() == [1]


def test_fractions_become_pixels():
    columns = {"in_fractions": np.array([True, True]), "area_px2": np.array([0.5, 0.0001])}
    block = block_of([(200, 100)], [[(0.25, 0, 0.5, 1), (0, 0, 0.01, 0.01)]], **columns)
    tiles = divide_images(block, TileRules(100, 0.0, 0.3), "clip", 9.0)
    assert boxes_by_place(tiles) == {(0, 0): [[50, 0, 50, 100]], (100, 0): [[0, 0, 50, 100]]}
    assert tiles.block.area_px2.tolist() == [5000, 5000]
    assert tiles.counts.small.tolist() == [1]


REGION = StuffAnnotation(7, 3, b"[[90, 0, 120, 0, 120, 20, 90, 20]]")


@pytest.mark.parametrize(
    ("labels", "class_ids", "number", "copies", "unseen"),
    [
        pytest.param({}, [1], 0, 0, 0, id="nothing"),
        pytest.param({"captions": (Caption(1, "a"),)}, [1], 0, 0, 1, id="captions_beside_objects"),
        pytest.param({"captions": (Caption(1, "a"), Caption(2, "b"))}, [], 4, 6, 0, id="only_captions"),
        pytest.param({"tags": ("a",)}, [1], 4, 0, 0, id="tags"),
        pytest.param({"regions": (REGION,)}, [1], 2, 1, 0, id="regions"),
    ],
)
def test_tiles_without_objects(labels, class_ids, number, copies, unseen):
    block = block_of([(200, 150)], [[]], labels=label_column([ImageLabels(**labels)]))
    tiles = divide_images(block, TileRules(100, 0.0, 0.3, 0.0), class_ids=np.array(class_ids, np.int64))
    assert len(tiles.block) == number
    counts = tiles.counts
    assert (counts.empty.tolist(), counts.copies.tolist(), counts.unseen.tolist()) == ([4 - number], [copies], [unseen])


def test_label_digests_are_those_of_class_indices():
    boxes = [[(0, 0, 50, 50)]] * 3
    block = block_of([(100, 100)] * 3, boxes, category_id=np.array([1, 2, 3]))
    digests = [
        divide_images(block.replace(category_id=np.array(ids)), TileRules(100), class_ids=np.array(class_ids))
        for ids, class_ids in (([1, 2, 3], [2, 3, 1]), ([9, 7, 8], [7, 8, 9]))
    ]
    selected, ascending = (tiles.block.whole_labels.tolist() for tiles in digests)
    assert selected == ascending
    assert len(set(selected)) == 3


def test_regions_are_cropped_and_a_wrong_one_is_one_reject():
    wrong = StuffAnnotation(8, 3, b'{"counts": [3], "size": [1, 3]}')
    labels = label_column([ImageLabels(regions=(REGION, wrong))])
    tiles = divide_images(block_of([(200, 150)], [[]], labels=labels), TileRules(100, 0.0, 0.9, 0.0))
    regions = [region for image in labels_of(tiles.block) for region in image.regions]
    whole = coco_mask.decode(coco_mask.frPyObjects(json.loads(REGION.segmentation), 150, 200))[:, :, 0]
    for region, x in zip(regions, (0, 100), strict=True):
        np.testing.assert_array_equal(coco_mask.decode(json.loads(region.segmentation)), whole[:100, x : x + 100])
    assert [(reject.id, reject.reason.value) for _, reject in tiles.rejects] == [(8, "mask_size_mismatch")]


def test_kept_empty_tiles_are_a_share_by_hash():
    block = block_of([(1000, 1000)], [[]])
    fewer, more = (places(divide_images(block, TileRules(20, 0.0, 0.3, share))) for share in (0.1, 0.2))
    assert 200 < len(fewer) < 300
    assert 450 < len(more) < 550
    assert set(fewer) < set(more)
