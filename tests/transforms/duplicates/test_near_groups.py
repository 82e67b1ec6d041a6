import numpy as np
import pytest

from recordmill.transforms.duplicates import near_groups as module
from recordmill.transforms.duplicates.near_groups import bits_set


def near_groups(hashes: np.ndarray) -> np.ndarray:
    """Of pictures of one form."""
    return module.near_groups(hashes, np.zeros((len(hashes), 2), np.uint8))


def distinct(number: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, number, dtype=np.uint64)


def flipped(hashes: np.ndarray, bits: int, seed: int = 1) -> np.ndarray:
    of = np.random.default_rng(seed)
    masks = [sum(1 << int(bit) for bit in of.choice(64, bits, replace=False)) for _ in hashes]
    return hashes ^ np.array(masks, np.uint64)


def test_bits_are_counted():
    numbers = distinct(50)
    assert bits_set(numbers).tolist() == [int(number).bit_count() for number in numbers]


@pytest.mark.parametrize("pairs_at_once", [3, 1 << 19])
@pytest.mark.parametrize("bits", range(1, 8))
def test_hashes_that_differ_in_less_than_eight_bits_are_found(bits, pairs_at_once, monkeypatch):
    monkeypatch.setattr(module, "_PAIRS_AT_ONCE", pairs_at_once)
    hashes = distinct(200)
    groups = near_groups(np.concatenate([hashes, flipped(hashes, bits)]))
    assert groups.tolist() == [*range(200), *range(200)]


def test_most_that_differ_in_eight_are_found_and_none_that_differ_in_nine():
    hashes = distinct(1000)
    both = near_groups(np.concatenate([hashes, flipped(hashes, 8)]))
    assert 0.94 < np.mean(both[:1000] == both[1000:]) < 0.99
    assert near_groups(np.concatenate([hashes, flipped(hashes, 9)])).tolist() == [*range(2000)]


def test_a_group_holds_what_is_near_in_steps():
    (first,) = distinct(1)
    steps = [first ^ np.uint64((1 << 5 * step) - 1) for step in range(12)]
    order = [7, 0, 3, 11, 5, 1, 9, 2, 10, 4, 8, 6]
    hashes = np.concatenate([distinct(3, seed=5), np.array(steps)[order]])
    assert near_groups(hashes).tolist() == [0, 1, 2, *[3] * 12]


def test_of_none_and_of_one():
    assert near_groups(distinct(0)).tolist() == []
    assert near_groups(distinct(1)).tolist() == [0]


def test_hashes_of_few_bits_count_where_forms_are_alike():
    """As of drawings, whose hashes say little."""
    few, many = np.uint64((1 << 20) - 1), np.uint64((1 << 32) - 1)
    forms = np.array([[100, 7], [104, 3], [105, 7], [100, 7], [200, 7]], np.uint8)
    hashes = np.array([few, few ^ np.uint64(1), few ^ np.uint64(2), many, many ^ np.uint64(1 << 5)])
    assert module.near_groups(hashes, forms).tolist() == [0, 0, 0, 3, 3]
    forms[2] = 116, 7
    assert module.near_groups(hashes, forms).tolist() == [0, 0, 2, 3, 3]
    forms[1] = 255, 3  # less and more by more than a byte holds
    forms[0] = 3, 3
    assert module.near_groups(hashes, forms).tolist() == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("forms", [(0, 200, 200), (200, 0, 200)])
def test_forms_are_kept_apart_of_hashes_that_may_be_too_few_with_others(forms):
    one = np.uint64((1 << 24) - 1)
    hashes = np.array([one, one, one ^ np.uint64(1)])
    assert module.near_groups(hashes, np.array(forms, np.uint8)[:, None]).tolist() == [0, 0, 0]


def test_of_many_equal_hashes_each_is_compared_with_some_and_in_one_band(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 2)
    hashes = np.repeat(distinct(2), 50)
    assert sum(len(one) for one, _ in module._near_pairs(hashes)) <= 2 * len(hashes)


def test_pictures_of_equal_hash_and_form_are_one_kind_however_many_are_between_them(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 1)
    hashes = np.full(60, (1 << 20) - 1, np.uint64)  # of few bits
    forms = np.arange(0, 240, 8)[np.arange(60) % 30][:, None].astype(np.uint8)
    compared = []
    pairs = module._near_pairs
    monkeypatch.setattr(module, "_near_pairs", lambda hashes: compared.append(len(hashes)) or pairs(hashes))
    assert module.near_groups(hashes, forms).tolist() == [*range(30), *range(30)]
    forms[::-1] = forms + 2  # of which the next ones are near, too
    many = np.full(60, (1 << 40) - 1, np.uint64)
    assert module.near_groups(many, forms).tolist() == [0] * 60
    assert compared == [30, 1]


def test_forms_that_are_near_are_compared_first_of_one_hash(monkeypatch):
    monkeypatch.setattr(module, "_MOST", 1)
    forms = np.array([[200, 9], [10, 9], [203, 9], [12, 9], [90, 9]], np.uint8)
    assert module.near_groups(np.full(5, 3, np.uint64), forms).tolist() == [0, 1, 0, 1, 4]


def test_a_group_is_known_by_its_first_picture_whatever_its_hash():
    (hash_,) = distinct(1) | np.uint64(1)
    assert near_groups(np.array([hash_, hash_ ^ np.uint64(1), hash_])).tolist() == [0, 0, 0]
    assert near_groups(np.array([1, 0, hash_, hash_ ^ np.uint64(1)], np.uint64)).tolist() == [0, 0, 2, 2]
