import random
from itertools import pairwise

import pytest

from recordmill.schemas.statistics_file import ClassDrift, ClassInOneSplit, ClassStatistics, SplitStatistics
from recordmill.transforms.statistics.compare_splits import arc_sine_distance, compare_splits


def split(images: int, *having: int) -> SplitStatistics:
    classes = tuple(ClassStatistics(f"c{index}", 3 * number, number) for index, number in enumerate(having))
    return SplitStatistics(images, {}, (), {}, classes, (), {}, {}, 0)


def test_classes_that_the_other_splits_lack():
    found = compare_splits({"a": split(9, 3, 0, 2, 0, 1), "b": split(9, 0, 5, 2, 0, 1), "c": split(9, 0, 0, 0, 0, 2)})
    assert found.one_split_only == (ClassInOneSplit("c1", "b", 5), ClassInOneSplit("c0", "a", 3))


def test_a_file_that_was_edited_to_count_more_than_all_is_compared():
    assert compare_splits({"a": split(9, 12), "b": split(9, 3)}).one_split_only == ()


def test_splits_without_classes_are_not_compared():
    assert compare_splits({"a": split(9, 3), "test": split(9, 0)}) is None
    assert compare_splits({"a": split(9, 3)}) is compare_splits({}) is None
    found = compare_splits({"a": split(900, 300, 0), "b": split(900, 310, 0), "test": split(900, 0, 0)})
    assert (found.one_split_only, found.drifting) == ((), ())


def test_a_share_that_differs_is_told_of_both_splits_the_worst_first():
    found = compare_splits({"train": split(8000, 4000, 800, 800), "val": split(2000, 1000, 400, 100)})
    assert found.drifting == (
        ClassDrift("c1", "train", 800, 0.1, 0.2),
        ClassDrift("c1", "val", 400, 0.2, 0.1),
        ClassDrift("c2", "train", 800, 0.1, 0.05),
        ClassDrift("c2", "val", 100, 0.05, 0.1),
    )


def test_of_three_splits_the_one_that_differs_is_told():
    found = compare_splits({"train": split(8000, 800), "val": split(1000, 180), "test": split(1000, 98)})
    assert next((each.split, each.share, each.elsewhere) for each in found.drifting) == ("val", 0.18, 898 / 9000)
    assert "test" not in {each.split for each in found.drifting}


@pytest.mark.parametrize(("number", "drifts"), [(1240, False), (1250, True)])
def test_a_difference_of_less_than_a_quarter_is_none_however_certain(number, drifts):
    found = compare_splits({"a": split(1_000_000, 100_000), "b": split(10_000, number)})
    assert bool(found.drifting) == drifts
    assert arc_sine_distance((1240, 10_000), (100_000, 1_000_000)) > 7


@pytest.mark.parametrize(("number", "drifts"), [(137, False), (138, True)])
def test_two_shares_drift_at_one_of_a_hundred(number, drifts):
    """2.58 standard deviations, to whichever side."""
    assert 2.56 < arc_sine_distance((137, 1000), (100, 1000)) < 2.576 < arc_sine_distance((138, 1000), (100, 1000))
    found = compare_splits({"a": split(1000, number), "b": split(1000, 100)})
    assert bool(found.drifting) == drifts


def test_the_more_classes_the_further_off_one_has_to_be():
    few = {"a": split(1000, 100), "b": split(1000, 145)}
    many = {"a": split(1000, 100, *[9] * 99), "b": split(1000, 145, *[9] * 99)}
    assert (len(compare_splits(few).drifting), len(compare_splits(many).drifting)) == (2, 0)
    unused = {"a": split(1000, 100, *[0] * 99), "b": split(1000, 145, *[0] * 99)}
    assert compare_splits(unused).drifting == compare_splits(few).drifting


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.8, 0.1, 0.1), (0.98, 0.02)])
def test_random_splits_seldom_seem_to_drift(shares):
    """One of a hundred at the most; here, of 100 divisions with a long tail of classes, 5."""
    of = random.Random(0)
    ends = [sum(shares[:index]) for index in range(len(shares) + 1)]
    alarms = 0
    for _ in range(100):
        sizes = [round(2000 * (end - begin)) for begin, end in pairwise(ends)]
        having = [[sum(of.random() < 0.3 / rank for _ in range(size)) for rank in (1, 5, 20, 80)] for size in sizes]
        splits = {str(index): split(size, *row) for index, (size, row) in enumerate(zip(sizes, having, strict=True))}
        alarms += bool(compare_splits(splits).drifting)
    assert alarms <= 5


def test_a_class_that_is_twice_as_frequent_in_one_split_is_found():
    of = random.Random(1)
    found = 0
    for _ in range(50):
        train, val = (sum(of.random() < share for _ in range(n)) for n, share in ((4000, 0.06), (1000, 0.12)))
        found += bool(compare_splits({"train": split(4000, train), "val": split(1000, val)}).drifting)
    assert found >= 48
