from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from recordmill.schemas.splits import SplitShares
from recordmill.transforms.folder import stratify
from recordmill.transforms.table.stratify_rows import all_held, class_borders, merged

SHARES = SplitShares((("train", Fraction(7, 10)), ("val", Fraction(1, 5)), ("test", Fraction(1, 10))))


def positions(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 63, count, np.uint64)


@pytest.mark.parametrize("count", [1, 2, 10, 4096, 4097, 200_000])
def test_borders_are_those_of_all_positions_in_any_order(count):
    found = positions(count)
    units = np.stack([found.astype(np.int64), np.ones(count, np.int64)], axis=1)
    expected = stratify.class_borders("cat", units, SHARES)
    for parts in ([found], np.array_split(found, 7), np.array_split(np.sort(found), 30)[::-1]):
        one = merged([], SHARES.borders)
        for part in parts:
            one = merged([one, all_held(part, SHARES.borders)], SHARES.borders)
        at_once = merged([all_held(part, SHARES.borders) for part in parts], SHARES.borders)
        for each in (one, at_once):
            borders = class_borders("cat", each, SHARES)
            splits = [
                np.searchsorted(expected, found, "right"),
                np.searchsorted(np.array(borders, np.uint64), found, "right"),
            ]
            assert np.array_equal(*splits)
            assert sum(len(near.held) for near in each.near) <= 2 * max(4096, 20 * count**0.5)
    sizes = np.bincount(splits[1], minlength=3)
    assert np.all(np.abs(sizes.cumsum() - count * np.cumsum([0.7, 0.2, 0.1])) < 1)


def test_a_class_of_few_keys_is_divided_as_near_as_they_reach():
    """Rows of one key are never parted, and positions far from a share are only counted."""
    found = np.repeat(positions(3), 100_000)
    one = merged([all_held(part, SHARES.borders) for part in np.array_split(found, 100)], SHARES.borders)
    one = merged([one], SHARES.borders)
    borders = class_borders("cat", one, SHARES)
    assert all(before <= after for before, after in pairwise(borders))
    assert sum(len(near.held) for near in one.near) < len(found)
    for position, splits in ((5, [0]), ((1 << 63) - 5, [2])):
        (few,) = {
            class_borders(
                "cat", merged([all_held(np.full(9000, position, np.uint64), SHARES.borders)], SHARES.borders), SHARES
            )
        }
        assert set(np.searchsorted(np.array(few, np.uint64), [position], "right")) == set(splits)
