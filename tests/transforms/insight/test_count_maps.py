import numpy as np
import pytest

from recordmill.schemas.statistics import SCALE, Histogram, bin_index
from recordmill.transforms.insight.count_images import distribution
from recordmill.transforms.insight.count_maps import count_values, measure_depth


@pytest.mark.parametrize("seed", range(3))
def test_pixels_are_those_of_numpy(seed):
    rng = np.random.default_rng(seed)
    pixels = rng.choice([0, 1, 7, 254, 255], (31, 17)).astype(np.uint8)
    values, counts = np.unique(pixels, return_counts=True)
    assert count_values(pixels) == dict(zip(values.tolist(), counts.tolist(), strict=True))
    assert count_values(pixels[2:5, 3:4]) == count_values(np.ascontiguousarray(pixels[2:5, 3:4]))  # a tile


@pytest.mark.parametrize("scale", [0.001, 1 / 256, 0.0002])
def test_depths_are_those_of_numpy(scale):
    units = np.random.default_rng(5).integers(0, 1 << 16, (40, 60)).astype(np.uint16)
    units[:7] = 0
    metres = (units[units > 0] * scale).round(9)
    histogram = measure_depth(units, scale)
    described = distribution(histogram, is_whole=False)
    assert (described.count, described.least, described.largest) == (metres.size, metres.min(), metres.max())
    assert described.mean == pytest.approx(metres.mean(), rel=1e-6)
    bins, numbers = np.unique([bin_index(value) for value in metres], return_counts=True)
    assert histogram.bins == dict(zip(bins.tolist(), numbers.tolist(), strict=True))
    assert histogram.total == int(np.rint(metres * SCALE).sum())


def test_a_map_without_known_depth():
    assert measure_depth(np.zeros((2, 2), np.uint16), 0.001) == Histogram()
