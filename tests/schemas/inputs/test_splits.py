from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import SlowPatternError
from recordmill.schemas.inputs import splits
from recordmill.schemas.inputs.splits import Division, SplitShares, find_group, group_fault, name_id, split_name_fault

THREE = SplitShares((("train", Fraction("0.8")), ("val", Fraction("0.1")), ("test", Fraction("0.1"))))
NAMES = [f"class {number % 7}/{number:06}.jpg" for number in range(20_000)]
MAX = (1 << 63) - 1

SHARES = st.lists(st.integers(1, 1000), min_size=1, max_size=6).map(
    lambda parts: SplitShares(tuple((f"s{number}", Fraction(part, sum(parts))) for number, part in enumerate(parts)))
)


# Names of splits


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("train", "val_2017", "2017", "A", "x" * 80, "All", "ALL", "all_2017", "overall"), ""),
        (
            ("", "_a", "a-b", "a.b", "a b", "a/b", "été", "a\n", "train=0.8", "٣"),
            "must be letters, digits and _: it is part of file names",
        ),
        (("all",), "is what TFDS calls all splits together"),
        (("x" * 81,), "has 81 characters; file names have room for 80"),
    ],
)
def test_invalid_name_of_split_is_named(names, fault):
    assert {split_name_fault(name) for name in names} == {fault}


# Places


PLACES = [6177560984862207779, 8772244499902826278, 9111327869143913822, 6310081246070840601]
IDS = [5996240643517367183, 2695367441031891898, 3301394070633481237, 3421847916251069624]


def test_places_are_same_everywhere_and_for_ever():
    """Other values would move the images of every data set that has been divided so far."""
    assert [THREE.position(name) for name in ("a.jpg", "Cat/1.jpg", "é/日本.png", "")] == PLACES
    assert [name_id(name) for name in ("a.jpg", "Cat/1.jpg", "é/日本.png", "")] == IDS


@given(st.text(), st.integers(-(1 << 63), MAX))
def test_place_and_id_fit_int64_and_are_not_negative(name, seed):
    assert 0 <= SplitShares(THREE.shares, seed).position(name) <= MAX
    assert 0 <= name_id(name) <= MAX


def test_another_seed_is_another_division():
    other = SplitShares(THREE.shares, seed=1)
    moved = sum(THREE.split_of(name) != other.split_of(name) for name in NAMES)
    assert moved / len(NAMES) == pytest.approx(1 - 0.8**2 - 2 * 0.1**2, abs=0.02)


# Splits


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "shares",
    [
        THREE.shares,
        (("train", Fraction(3, 4)), ("val", Fraction(1, 4))),
        (("a", Fraction(1, 3)), ("b", Fraction(1, 3)), ("c", Fraction(1, 3))),
        (("train", Fraction("0.99")), ("test", Fraction("0.01"))),
        (("val", Fraction(1)),),
    ],
)
def test_shares_of_20_000_images(shares, seed):
    divided = SplitShares(shares, seed)
    found = [divided.split_of(name) for name in NAMES]
    for name, share in shares:
        assert found.count(name) / len(NAMES) == pytest.approx(float(share), abs=0.01)
    assert set(found) == set(divided.names)


@given(SHARES, st.integers(0, MAX))
def test_place_is_in_split_whose_borders_are_around_it(shares, place):
    borders = shares.borders
    index = shares.names.index(shares.split_at(place, borders))
    assert list(borders) == sorted(borders)
    assert len(borders) == len(shares.names) - 1
    assert ((0, *borders)[index]) <= place < (*borders, MAX + 1)[index]


def test_borders_follow_order_in_which_splits_are_named():
    eighth = (MAX + 1) // 8
    shares = (("a", Fraction(1, 8)), ("b", Fraction(3, 4)), ("c", Fraction(1, 8)))
    assert SplitShares(shares).borders == (eighth, 7 * eighth)
    assert SplitShares(shares).names == ("a", "b", "c")
    places = (0, eighth - 1, eighth, 7 * eighth - 1, 7 * eighth, MAX)
    assert [SplitShares(shares).split_at(place, (eighth, 7 * eighth)) for place in places] == list("aabbcc")


# Ends of splits in a group


def counts(shares: SplitShares, images: int, group: str) -> tuple[int, ...]:
    """How many images of a group each split gets."""
    ends = (0, *shares.ends(images, group), images)
    return tuple(end - begin for begin, end in pairwise(ends))


GROUPS = [f"class {number}" for number in range(500)]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("shares", "images"),
    [
        ((("train", Fraction("0.8")), ("val", Fraction("0.2"))), 2),
        ((("train", Fraction("0.9")), ("val", Fraction("0.1"))), 1),
        (THREE.shares, 1),
        (THREE.shares, 5),
        (THREE.shares, 17),
    ],
)
def test_over_many_small_groups_shares_hold(shares, images, seed):
    """Rounding to the nearest would give all images of groups of 1 or 2 to train."""
    divided = SplitShares(shares, seed)
    totals = [sum(column) for column in zip(*(counts(divided, images, group) for group in GROUPS), strict=True)]
    everything = len(GROUPS) * images
    assert sum(totals) == everything
    for total, (_, share) in zip(totals, shares, strict=True):
        assert total / everything == pytest.approx(float(share), abs=0.025)


@given(SHARES, st.integers(0, 10**12), st.text())
def test_each_split_gets_its_share_rounded_up_or_down(shares, images, group):
    found = counts(shares, images, group)
    assert sum(found) == images
    for count, (_, share) in zip(found, shares.shares, strict=True):
        assert count in (floor(share * images), ceil(share * images))


@pytest.mark.parametrize("images", [0, 10, 20, 10**17])
def test_shares_without_remainder_are_exact(images):
    expected = {(images * 8 // 10, images // 10, images // 10)}
    assert {counts(THREE, images, group) for group in GROUPS[:20]} == expected


def test_which_way_is_rounded_is_same_everywhere_and_for_ever():
    """Others would move images of every data set that has been stratified so far."""
    assert [THREE.ends(17, group) for group in ("cat", "dog", "é", "")] == [(14, 15), (14, 15), (14, 15), (13, 15)]
    assert "".join(str(THREE.ends(4, group)[0]) for group in GROUPS[:20]) == "43334343334333333333"


def test_rounding_by_group_and_seed():
    by_group = [THREE.ends(2, group) for group in GROUPS]
    assert by_group == [THREE.ends(2, group) for group in GROUPS]
    assert set(by_group) == {(1, 1), (1, 2), (2, 2)}
    assert by_group != [SplitShares(THREE.shares, seed=1).ends(2, group) for group in GROUPS]


# As text


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ((("train", Fraction(1)),), "train"),
        (THREE.shares, "train=0.8,val=0.1,test=0.1"),
        ((("a", Fraction(1, 4)), ("b", Fraction(3, 4))), "a=0.25,b=0.75"),
    ],
)
def test_as_text_shares_are_as_flag_has_them(shares, text):
    assert str(SplitShares(shares)) == text


# Groups


@pytest.mark.parametrize(
    ("pattern", "group"),
    [
        ("patient[0-9]+", "patient7"),
        ("(patient)[0-9]+", "patient"),
        ("(?:patient)([0-9])(_)", "7"),
        ("^.*/", "x/"),
        ("^patient", ""),
        ("z*", ""),
        ("(z)?patient", ""),
    ],
)
def test_group_is_first_of_pattern_or_all_that_it_finds(pattern, group):
    assert find_group(pattern, "x/patient7_2.jpg") == group


@pytest.mark.parametrize(
    ("pattern", "fault"), [("", "is empty"), ("a(", "is not a regular expression (missing )"), ("x", "")]
)
def test_not_a_pattern_is_named(pattern, fault):
    assert group_fault(pattern).startswith(fault)
    assert bool(group_fault(pattern)) == bool(fault)


def test_pattern_that_takes_for_ever_is_error(monkeypatch):
    monkeypatch.setattr(splits, "_SEARCH_S", 0.2)
    with pytest.raises(SlowPatternError, match=r"--group-from \(a\|aa\)\+\$ takes more than 0.2 seconds for 'aaa"):
        find_group("(a|aa)+$", "a" * 200 + "b")


def test_groups_have_one_split():
    divided = Division(THREE, "^(g[0-9]+)_")
    for number in range(50):
        found = {divided.split_of(f"g{number}_{image}.jpg") for image in range(20)}
        assert found == {THREE.split_of(f"g{number}")}
    for name in (f"{number}.jpg" for number in range(30)):
        assert divided.split_of(name) == THREE.split_of(name) == Division(THREE).split_of(name)
    assert divided.fault("7.jpg") == "does not match --group-from ^(g[0-9]+)_"
    assert divided.fault("g7_1.jpg") == Division(THREE).fault("7.jpg") == ""


def test_groups_of_several_sets_are_those_of_names_without_the_set():
    divided = Division(THREE, "^[a-z]+", sets=("one", "two"))
    assert [divided.group_of(name) for name in ("one/x1.jpg", "two/x2.jpg", "own/x3.jpg")] == ["x", "x", "own/x3.jpg"]
    assert [divided.has_groups(name) for name in ("one/x1.jpg", "own/x3.jpg", "x")] == [True, False, False]
