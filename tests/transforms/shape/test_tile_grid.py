import random

import numpy as np
import pytest

from recordmill.schemas.inputs.images import TileRules
from recordmill.transforms.shape.tile_grid import tile_grid


def starts_of(side: int, size: int, stride: int) -> list[int]:
    starts = [0]
    while starts[-1] + size < side:
        starts.append(starts[-1] + stride)
    return starts


@pytest.mark.parametrize(
    ("width", "size", "overlap", "expected"),
    [
        pytest.param(250, 100, 0.0, [(0, 100), (100, 100), (200, 50)], id="what_is_left"),
        pytest.param(200, 100, 0.0, [(0, 100), (100, 100)], id="no_rest"),
        pytest.param(260, 100, 0.2, [(0, 100), (80, 100), (160, 100)], id="none_that_adds_no_pixel"),
        pytest.param(261, 100, 0.2, [(0, 100), (80, 100), (160, 100), (240, 21)], id="one_more_pixel"),
        pytest.param(60, 100, 0.2, [(0, 60)], id="smaller_image"),
        pytest.param(4, 3, 0.99, [(0, 3), (1, 3)], id="stride_of_1"),
        pytest.param(20, 10, 0.25, [(0, 10), (8, 10), (16, 4)], id="rounded_stride"),
    ],
)
def test_row_of_tiles(width, size, overlap, expected):
    grid = tile_grid(np.array([[width, 1]]), TileRules(size, overlap))
    tiles = grid.xywh_px(np.zeros(int(grid.number[0]), np.int64), np.arange(int(grid.number[0])))
    assert [(x, wide) for x, _, wide, _ in tiles.tolist()] == expected


def test_tiles_and_those_that_a_box_touches():
    rng = random.Random(0)
    for _ in range(300):
        width, height, size = (rng.randint(1, most) for most in (60, 60, 30))
        overlap = rng.choice([0, 0.2, 0.5, 0.9])
        grid = tile_grid(np.array([[width, height]]), TileRules(size, overlap))
        tiles = grid.xywh_px(np.zeros(int(grid.number[0]), np.int64), np.arange(int(grid.number[0]))).tolist()
        stride = max(1, round(size * (1 - overlap)))
        assert tiles == [
            [x, y, min(size, width - x), min(size, height - y)]
            for y in starts_of(height, size, stride)
            for x in starts_of(width, size, stride)
        ]
        low = np.array([rng.uniform(0, side * 0.99) for side in (width, height)])
        high = np.array([rng.uniform(low[axis] + 1e-3, side) for axis, side in enumerate((width, height))])
        first, end = grid.touched(np.zeros(1, np.int64), low[None], high[None])
        columns, rows = (range(first[0, axis], end[0, axis]) for axis in (0, 1))
        assert {row * int(grid.columns[0]) + column for row in rows for column in columns} == {
            number
            for number, (x, y, wide, high_) in enumerate(tiles)
            if x < high[0] and low[0] < x + wide and y < high[1] and low[1] < y + high_
        }


def test_narrow_tiles_are_what_is_left():
    grid = tile_grid(np.array([[209, 5]]), TileRules(100))
    images = np.zeros(3, np.int64)
    assert grid.is_narrow(images, grid.xywh_px(images, np.arange(3))).tolist() == [False, False, True]
