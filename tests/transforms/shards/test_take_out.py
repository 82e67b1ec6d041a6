"""Numbers of a split without some images."""

import msgspec
import pytest

from recordmill.schemas.statistics import ZERO_BIN, FieldCounts, Histogram, Statistics, bin_index
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.shards.take_out import (
    Removed,
    _less_statistics,
    less_counts,
    less_field_counts,
    less_histogram,
    take_out,
)
from tests.transforms.shards.test_grow_split import BASE


def histogram(*numbers: float) -> Histogram:
    bins: dict[int, int] = {}
    for number in numbers:
        bins[bin_index(number)] = bins.get(bin_index(number), 0) + 1
    return Histogram(int(sum(numbers)), min(numbers, default=None), max(numbers, default=None), bins)


@pytest.mark.parametrize(
    ("numbers", "removed", "ends"),
    [
        ((5, 33, 100), (33,), (5, 100)),
        ((5, 33, 100), (5,), (32, 100)),  # the bin of 33 begins at 32
        ((5, 33, 100), (100,), (5, 40)),  # and ends at 40
        ((33, 34, 100), (33,), (33, 100)),  # whether another image has 33 is unknown
        ((0, 5), (5,), (0, 0)),
        ((0, 5), (0,), (5, 5)),
        ((5,), (5,), (None, None)),
    ],
)
def test_ends_of_histograms(numbers, removed, ends):
    left = less_histogram(histogram(*numbers), histogram(*removed))
    assert (left.least, left.largest) == ends
    assert left.count == len(numbers) - len(removed)
    assert left.total == sum(numbers) - sum(removed)


@pytest.mark.parametrize(
    ("one", "other", "left"),
    [
        ({1: 3, 2: 1}, {1: 1}, {1: 2, 2: 1}),
        ({1: 3, 2: 1}, {2: 2}, {1: 2}),  # of keras, whose pixels are rounded: one is in the neighbouring bin
        ({ZERO_BIN: 1, 7: 1}, {8: 1}, {ZERO_BIN: 1}),
        ({1: 1}, {1: 5}, {}),
    ],
)
def test_counts_of_bins(one, other, left):
    assert less_counts(one, other) == left


@pytest.mark.parametrize(
    ("one", "other", "left"),
    [({0: 5, 7: 3}, {7: 3, 0: 1}, {0: 4}), (None, {7: 3}, None), ({7: 3}, None, None), ({}, {}, {})],
)
def test_pixels_of_replaced_masks_are_taken_out(one, other, left):
    """None: an earlier version did not count them."""
    numbers = _less_statistics(Statistics(2, pixels=one), Statistics(1, pixels=other), 1, ())
    assert (numbers.images, numbers.pixels) == (1, left)


@pytest.mark.parametrize(
    ("tiles", "masks", "depth_maps", "left"),
    [
        (0, 10, 4, (8, 4)),  # each image has a mask, and one of the two removed ones is all 255
        (0, 4, 10, (3, 8)),
        (40, 40, 0, (35, 0)),
    ],
)
def test_maps_without_a_known_pixel_are_taken_out(tiles, masks, depth_maps, left):
    counts = msgspec.structs.replace(BASE.annotations, semantic_masks=masks, depth_maps=depth_maps)
    images = msgspec.structs.replace(BASE.images, written=10, tiles=tiles)
    entry = msgspec.structs.replace(BASE, images=images, annotations=counts)
    removed = {"images": 2, "tiles": 5 if tiles else 0, "semantic_masks": 1}
    facts = Facts(counts={("train", name): number for name, number in removed.items()})
    entry, _ = take_out(entry, Statistics(10), Removed(facts, {}))
    assert (entry.annotations.semantic_masks, entry.annotations.depth_maps) == left


def test_bins_of_fields_keep_their_width():
    wide = FieldCounts(10, 1, 9, -3.5, 9.0, 2, {-4.0: 1, 0.0: 3, 8.0: 5}, None)
    exact = FieldCounts(2, 0, 2, -3.5, 1.0, bins={-3.5: 1, 1.0: 1}, texts={})
    assert less_field_counts(wide, exact) == FieldCounts(8, 1, 7, 0.0, 9.0, 2, {0.0: 2, 8.0: 5}, None)


def test_texts_of_fields():
    one = FieldCounts(4, 1, 3, texts={"blue": 2, "red": 1})
    left = less_field_counts(one, FieldCounts(2, 1, 1, texts={"red": 1}))
    assert left == FieldCounts(2, 0, 2, texts={"blue": 2})
