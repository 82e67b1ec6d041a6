"""The order of images is the same everywhere, and even."""

from collections import Counter
from functools import partial
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.shards.task_order import RANGES, hash_range, image_order, task_order
from tests.transforms.shards.sorted_split import IDS, row


@given(st.integers(), IDS)
def test_ranges_are_in_the_order_of_images(seed, id_):
    order = image_order(seed, id_)
    assert 0 <= order[0] < 1 << 63
    assert hash_range(order) == order[0] * RANGES >> 63


def test_the_order_is_the_same_everywhere():
    assert [image_order(seed, id_)[0] for seed, id_ in ((0, 139), (1, 139), (0, -1), (0, (1 << 63) - 1))] == [
        4972096885692211845,
        7612023283703258603,
        1036271949232448158,
        2985157815886775743,
    ]


def test_images_are_spread_evenly_over_the_ranges():
    eighths = Counter(hash_range(image_order(0, id_)) * 8 // RANGES for id_ in range(8000))
    assert all(900 < eighths[index] < 1100 for index in range(8))


def test_rows_of_one_key_are_in_the_order_of_what_they_are():
    rows = [
        row(1, b"a", "x", "2"),
        row(1, b"a", "x", "1"),
        row(1, b"a", "w", "3"),
        row(1, b"", "z", "9"),
        row(2, b"", "", ""),
    ]
    for given_ in permutations(rows):
        of_one = [each for each in sorted(given_, key=partial(task_order, 0)) if each.image_id == 1]
        assert of_one == [rows[3], rows[2], rows[1], rows[0]]
