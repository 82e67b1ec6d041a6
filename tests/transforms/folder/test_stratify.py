import random
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.inputs.splits import Division, SplitShares
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.folder.stratify import Stratify, class_borders
from tests.beam_pipeline import Pipeline
from tests.transforms.folder.rows import Row, block_of, rows_in

THREE = SplitShares((("train", Fraction("0.8")), ("val", Fraction("0.1")), ("test", Fraction("0.1"))))
THIRDS = SplitShares(tuple((name, Fraction(1, 3)) for name in "abc"))
MAX = (1 << 63) - 1


def divided(places: list[int], shares: SplitShares, class_name: str = "cat") -> list[str]:
    """Return the split of each place, by the borders of all places."""
    borders = class_borders(class_name, np.array([(place, 1) for place in places], np.int64), shares)
    return [shares.split_at(place, borders) for place in places]


def counts(splits: list[str], shares: SplitShares) -> tuple[int, ...]:
    return tuple(splits.count(name) for name in shares.names)


def expected_counts(images: int, shares: SplitShares, class_name: str = "cat") -> tuple[int, ...]:
    ends = (0, *shares.ends(images, class_name), images)
    return tuple(end - begin for begin, end in pairwise(ends))


def test_units_of_one_position_have_one_order():
    units = np.array([(1, 1), (5, 9), (5, 1), (7, 4), (5, 3), *((place, 2) for place in range(10, 40))], np.int64)
    borders = {
        class_borders("cat", units[np.random.default_rng(seed).permutation(len(units))], THIRDS) for seed in range(20)
    }
    assert len(borders) == 1


PLACES = st.lists(st.integers(0, MAX - 1), unique=True, max_size=60)


@given(PLACES, st.sampled_from([THREE, THIRDS]), st.text(max_size=8), st.randoms())
def test_class_ends_at_its_shares(places, shares, class_name, shuffling):
    splits = dict(zip(places, divided(places, shares, class_name), strict=True))
    assert counts(list(splits.values()), shares) == expected_counts(len(places), shares, class_name)
    in_order = [shares.names.index(splits[place]) for place in sorted(places)]
    assert in_order == sorted(in_order)
    shuffled = shuffling.sample(places, len(places))
    assert dict(zip(shuffled, divided(shuffled, shares, class_name), strict=True)) == splits


def test_added_image_moves_few():
    places = [THREE.position(f"{number}.jpg") for number in range(1000)]
    before, after = divided(places, THREE), divided([*places, THREE.position("new.jpg")], THREE)
    assert sum(old != new for old, new in zip(before, after, strict=False)) <= 2


GROUPS = st.lists(st.tuples(st.integers(0, MAX - 1), st.integers(1, 9)), unique_by=lambda unit: unit[0], max_size=40)


@given(GROUPS, st.sampled_from([THREE, THIRDS]), st.randoms())
def test_group_is_of_split_that_its_middle_is_in(units, shares, shuffling):
    expected, before = {}, 0
    ends = shares.ends(sum(size for _, size in units), "cat")
    for place, size in sorted(units):
        expected[place] = shares.names[sum(2 * end < 2 * before + size for end in ends)]
        before += size
    shuffled = np.array(shuffling.sample(units, len(units)), np.int64)
    borders = class_borders("cat", shuffled, shares)
    assert {place: shares.split_at(place, borders) for place, _ in units} == expected


IMAGES = {"cat": 60, "dog": 17, "cow": 3, "owl": 2, "eel": 1}
GROUPS = {f"cat/{number}.jpg": f"pair {number // 2}" for number in range(20)}
GROUPS |= {f"cat/{40 + number}.jpg": f"mixed {number // 2}" for number in range(20)}
GROUPS |= {f"dog/{number}.jpg": f"mixed {number}" for number in range(10)}  # each with two cats: a group of cats
GROUPS |= {"cow/0.jpg": "even", "owl/0.jpg": "even"}  # as much of one class as of the other: of the first
SPLITS = ("test", "train", "val")


def stratified_one_by_one(rows: list[Row], division: Division) -> dict[str, str]:
    """Return the split of each image by a loop over all images."""
    classes: dict[str, Counter[str]] = {}
    for row in rows:
        classes.setdefault(division.groups.get(row.name, row.name), Counter())[row.class_name] += 1
    most = {group: min(counts, key=lambda name: (-counts[name], name)) for group, counts in classes.items()}
    units: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if row.name not in division.groups:
            units.setdefault(row.class_name, []).append((division.shares.position(row.name), 1))
    for group in {*division.groups.values()} & most.keys():
        units.setdefault(most[group], []).append((division.shares.position(group), classes[group].total()))
    borders = {name: class_borders(name, np.array(images), division.shares) for name, images in units.items()}
    groups = {row.name: division.groups.get(row.name, row.name) for row in rows}
    return {
        name: division.shares.split_at(division.shares.position(group), borders[most[group]])
        for name, group in groups.items()
    }


@pytest.mark.parametrize("groups", [{}, GROUPS])
def test_stratify(groups):
    rows = [Row(f"{kind}/{n}.jpg", kind, "train") for kind, images in IMAGES.items() for n in range(images)]
    rows += rows[3:9]  # repeated rows
    division = Division(SplitShares(THREE.shares, 5), groups=groups)
    expected = stratified_one_by_one(rows, division)
    if not groups:
        counted = Counter((name.split("/")[0], split) for name, split in expected.items())
        assert all(
            abs(counted[kind, split] - images * share) <= 1
            for kind, images in IMAGES.items()
            for split, share in THREE.shares
        )
    random.Random(0).shuffle(rows)
    blocks = [(number, pack_block(block_of(rows[number::4], SPLITS))) for number in range(4)]
    with Pipeline() as p:
        stratified = p | beam.Create(blocks) | Stratify(division, SPLITS)
        numbered_rows = stratified | beam.FlatMapTuple(
            lambda number, packed: [(number, *row) for row in rows_in(unpack_block(packed), SPLITS)]
        )
        wanted = [(n, row.name, row.class_name, expected[row.name]) for n in range(4) for row in rows[n::4]]
        assert_that(numbered_rows, equal_to(wanted))
