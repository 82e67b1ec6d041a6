"""Sums of counts of open fields do not depend on their order."""

from functools import reduce

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.statistics import EXACT_LEVEL, MOST_BINS, MOST_TEXTS, TEXT_LENGTH, FieldCounts
from recordmill.transforms.blocks.image_facts import FieldItems
from recordmill.transforms.dataset.count_fields import add_field_counts, bin_starts, count_items

SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)


def numbers(values: list[float]) -> FieldItems:
    return FieldItems(np.array(values, np.float32), len(values), 0)


def texts(*values: bytes) -> FieldItems:
    return FieldItems(list(values), len(values), 0)


def added(parts: list[FieldItems]) -> FieldCounts:
    return reduce(add_field_counts, [count_items([part]) for part in parts], FieldCounts())


@given(st.lists(st.lists(SINGLES, max_size=200), max_size=6), st.randoms(use_true_random=False), st.integers(0, 900))
def test_sum_of_numbers_is_their_count_at_once(lists, of, more):
    parts = [numbers(values) for values in [*lists, [of.gauss(0, 1) for _ in range(more)]]]
    whole = count_items(parts)
    of.shuffle(parts)
    half = of.randint(0, len(parts))
    assert added(parts) == add_field_counts(added(parts[:half]), added(parts[half:])) == whole
    assert sum(whole.bins.values()) == whole.values
    assert len(whole.bins) <= MOST_BINS


def test_bins_are_the_narrowest_that_keep_to_the_number():
    counts = count_items([numbers([*range(MOST_BINS + 1)])])
    assert (counts.level, len(counts.bins)) == (1, MOST_BINS // 2 + 1)
    few = count_items([numbers([0.1, 0.1, -3])])
    assert (few.level, few.bins) == (EXACT_LEVEL, {-3: 1, float(np.float32(0.1)): 2})
    assert bin_starts(np.array([-0.0]), 0).tobytes() == np.zeros(1).tobytes()


def test_infinity_and_large_integers_have_bins():
    ends = np.array([-(2**63), 2**63 - 1])
    assert count_items([FieldItems(ends, 2, 0)]).bins == {-(2.0**63): 1, 2.0**63: 1}
    assert count_items([numbers([np.inf])]).largest == float(np.finfo(np.float32).max)


@given(st.lists(st.lists(st.sampled_from([b"a", b"b", "ö".encode(), b"\xff"]))), st.randoms(use_true_random=False))
def test_sum_of_texts_is_their_count_at_once(lists, of):
    parts = [texts(*values) for values in lists]
    whole = count_items(parts)
    of.shuffle(parts)
    assert added(parts) == whole


def test_texts_have_bounds():
    many = [texts(*(b"%d" % number for number in range(start, start + 600))) for start in (0, 600)]
    assert len(count_items(many[:1]).texts or {}) == 600 <= MOST_TEXTS
    assert count_items(many).texts is added(many).texts is None
    (long,) = count_items([texts("ö".encode() * 1000)]).texts or {}
    assert long == "ö" * (TEXT_LENGTH - 1) + "…"


def test_counts_survive_the_state_of_a_shard():
    counts = count_items([numbers([0.1, -5, 1e-45, 3e38])])
    assert msgspec.json.decode(msgspec.json.encode(counts), type=FieldCounts) == counts
