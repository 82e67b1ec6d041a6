"""Each split gets its share of every class."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from types import MappingProxyType

import apache_beam as beam
import msgspec
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.annotations import AnnotatedImage, ImageLabels, ImageRow
from recordmill.schemas.images import ImageRef, JoinSide
from recordmill.schemas.splits import Division, SplitShares, name_id
from recordmill.transforms.folder.stratify import Row, Stratify, class_borders

THREE = SplitShares((("train", Fraction("0.8")), ("val", Fraction("0.1")), ("test", Fraction("0.1"))))
THIRDS = SplitShares(tuple((name, Fraction(1, 3)) for name in "abc"))
MAX = (1 << 63) - 1


def divided(places: list[int], shares: SplitShares, class_name: str = "cat") -> list[str]:
    """The split of each place, with the borders of them all."""
    borders = class_borders(class_name, np.array([(place, 1) for place in places], np.int64), shares)
    return [shares.split_at(place, borders) for place in places]


def counts(splits: list[str], shares: SplitShares) -> tuple[int, ...]:
    return tuple(splits.count(name) for name in shares.names)


def expected_counts(images: int, shares: SplitShares, class_name: str = "cat") -> tuple[int, ...]:
    ends = (0, *shares.ends(images, class_name), images)
    return tuple(end - begin for begin, end in pairwise(ends))


@pytest.mark.parametrize(
    ("images", "expected"), [(0, (0, 0, 0)), (10, (8, 1, 1)), (20, (16, 2, 2)), (1000, (800, 100, 100))]
)
def test_shares_without_a_remainder_are_exact(images, expected):
    places = [THREE.position(f"cat/{number}.jpg") for number in range(images)]
    assert counts(divided(places, THREE), THREE) == expected


def test_units_of_one_position_have_one_order():
    units = np.array([(1, 1), (5, 9), (5, 1), (7, 4), (5, 3), *((place, 2) for place in range(10, 40))], np.int64)
    found = {
        class_borders("cat", units[np.random.default_rng(seed).permutation(len(units))], THIRDS) for seed in range(20)
    }
    assert len(found) == 1


PLACES = st.lists(st.integers(0, MAX - 1), unique=True, max_size=60)


@given(PLACES, st.sampled_from([THREE, THIRDS]), st.text(max_size=8), st.randoms())
def test_a_class_ends_where_its_shares_do_whatever_the_places_and_their_order(places, shares, class_name, shuffling):
    splits = dict(zip(places, divided(places, shares, class_name), strict=True))
    assert counts(list(splits.values()), shares) == expected_counts(len(places), shares, class_name)
    in_order = [shares.names.index(splits[place]) for place in sorted(places)]
    assert in_order == sorted(in_order)
    shuffled = shuffling.sample(places, len(places))
    assert dict(zip(shuffled, divided(shuffled, shares, class_name), strict=True)) == splits


@given(PLACES, st.sampled_from([THREE, THIRDS]), st.text(max_size=8))
def test_each_split_gets_its_share_of_a_class_rounded_up_or_down(places, shares, class_name):
    found = counts(divided(places, shares, class_name), shares)
    for count, (_, share) in zip(found, shares.shares, strict=True):
        assert count in (floor(share * len(places)), ceil(share * len(places)))


def test_an_image_moves_by_one_border_at_most_when_another_one_is_added():
    places = [THREE.position(f"{number}.jpg") for number in range(1000)]
    before, after = divided(places, THREE), divided([*places, THREE.position("new.jpg")], THREE)
    assert sum(old != new for old, new in zip(before, after, strict=False)) <= 2


def test_the_shares_hold_over_classes_of_two():
    shares = SplitShares((("train", Fraction("0.8")), ("val", Fraction("0.2"))))
    names = [[f"{number}/{image}.jpg" for image in range(2)] for number in range(500)]
    found = [split for pair in names for split in divided(list(map(shares.position, pair)), shares, pair[0][:-6])]
    assert found.count("train") == pytest.approx(800, abs=50)


GROUPS = st.lists(st.tuples(st.integers(0, MAX - 1), st.integers(1, 9)), unique_by=lambda unit: unit[0], max_size=40)


@given(GROUPS, st.sampled_from([THREE, THIRDS]), st.randoms())
def test_a_group_is_of_the_split_that_its_middle_is_in(units, shares, shuffling):
    expected, before = {}, 0
    ends = shares.ends(sum(size for _, size in units), "cat")
    for place, size in sorted(units):
        expected[place] = shares.names[sum(2 * end < 2 * before + size for end in ends)]
        before += size
    shuffled = np.array(shuffling.sample(units, len(units)), np.int64)
    borders = class_borders("cat", shuffled, shares)
    assert {place: shares.split_at(place, borders) for place, _ in units} == expected


# The transform

IMAGES = {"cat": 40, "dog": 17, "cow": 3, "owl": 2, "eel": 1}


def row(class_name: str, number: int, file: ImageRef | None = None, split: str = "?") -> Row:
    name = f"{class_name}/{number}.jpg"
    labels = ImageLabels(class_name=class_name)
    return name, JoinSide(AnnotatedImage(ImageRow(name_id(name), name), split, labels=labels), file)


ROWS = [row(class_name, number) for class_name, images in IMAGES.items() for number in range(images)]


@pytest.fixture
def stratified(tmp_path) -> Callable[..., list[Row]]:
    """What the transform makes of rows, sorted by name."""

    def run(
        rows: list[Row], shares: SplitShares = THREE, groups: Mapping[str, str] = MappingProxyType({})
    ) -> list[Row]:
        path = tmp_path / "rows"
        path.write_bytes(b"")
        with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
            p | beam.Create(rows) | Stratify(Division(shares, groups=dict(groups))) | beam.Map(write, str(path))
        found = [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]
        return sorted(found, key=lambda row: row[0])

    return run


def write(row: Row, path: str) -> None:
    with open(path, "ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def test_each_split_gets_its_share_of_every_class(stratified):
    found = stratified(ROWS)
    assert [name for name, _ in found] == sorted(name for name, _ in ROWS)
    metric = Counter((match.image.labels.class_name, match.image.split) for _, match in found)
    for class_name, images in IMAGES.items():
        expected = expected_counts(images, THREE, class_name)
        assert tuple(metric[class_name, name] for name in THREE.names) == expected


def test_nothing_but_the_split_changes(stratified):
    with_files = [row("cat", number, ImageRef(f"images/{number}", 5, "1")) for number in range(4)]
    found = stratified(with_files)
    assert {match.image.split for _, match in found} == {"train", "val"}
    assert [with_split(row, "?") for row in found] == with_files


def with_split(row: Row, split: str) -> Row:
    name, match = row
    return name, JoinSide(msgspec.structs.replace(match.image, split=split), match.file)


def test_the_order_of_rows_and_the_splits_that_they_had_are_no_matter(stratified):
    otherwise = [with_split(row, "train") for row in random.Random(0).sample(ROWS, len(ROWS))]
    assert stratified(ROWS) == stratified(otherwise)


def test_other_classes_are_no_matter(stratified):
    assert stratified(ROWS[:40]) == [row for row in stratified(ROWS) if row[0].startswith("cat/")]


def test_another_seed_is_another_division(stratified):
    assert stratified(ROWS) != stratified(ROWS, SplitShares(THREE.shares, seed=1))


def test_rows_of_one_image_go_to_one_split(stratified):
    """They are told apart later on."""
    rows = [item for number in range(30) for item in [row("cat", number)] * (number % 3 + 1)]
    found = stratified(rows)
    assert len(found) == len(rows)
    assert len({(name, match.image.split) for name, match in found}) == 30


def test_a_file_without_a_row_is_a_mistake():
    with pytest.raises(ValueError, match="a file, where a row is expected"), beam.Pipeline(FnApiRunner()) as p:
        p | beam.Create([("a.jpg", JoinSide(file=ImageRef("a.jpg", 1)))]) | Stratify(Division(THREE))


def test_a_group_is_of_one_split_and_of_the_class_that_most_of_it_has(stratified):
    """40 cats, of which 20 are in pairs, and ten dogs of which each is in a group with two cats."""
    rows = [row("cat", number) for number in range(60)] + [row("dog", number) for number in range(10)]
    groups = {f"cat/{number}.jpg": f"pair {number // 2}" for number in range(20)}
    groups |= {f"cat/{40 + number}.jpg": f"mixed {number // 2}" for number in range(20)}
    groups |= {f"dog/{number}.jpg": f"mixed {number}" for number in range(10)}
    found = stratified(rows, THREE, groups)
    splits = {name: match.image.split for name, match in found}
    of_group: dict[str, set[str]] = {}
    for name, split in splits.items():
        of_group.setdefault(groups.get(name, name), set()).add(split)
    assert {len(found) for found in of_group.values()} == {1}
    counts = Counter(splits.values())
    assert all(abs(counts[name] - 70 * share) <= 3 for name, share in THREE.shares), counts
    units = [(THREE.position(name), 1) for name in (f"cat/{number}.jpg" for number in range(20, 40))]
    units += [(THREE.position(f"pair {number}"), 2) for number in range(10)]
    units += [(THREE.position(f"mixed {number}"), 3) for number in range(10)]
    borders = class_borders("cat", np.array(units), THREE)
    for name, split in splits.items():
        assert split == THREE.split_at(THREE.position(groups.get(name, name)), borders)


def test_a_group_as_much_of_one_class_as_of_another_is_of_the_first(stratified):
    """Of one image of each, the group goes where the class has its only one."""
    two = SplitShares((("a", Fraction(1, 2)), ("b", Fraction(1, 2))))
    for number in range(6):
        rows = [row("dog", number), row("cat", number), *(row("dog", other) for other in range(10, 20))]
        found = dict(stratified(rows, two, {f"{name}/{number}.jpg": f"g{number}" for name in ("cat", "dog")}))
        alone = class_borders("cat", np.array([(two.position(f"g{number}"), 2)]), two)
        expected = two.split_at(two.position(f"g{number}"), alone)
        assert {found[f"{name}/{number}.jpg"].image.split for name in ("cat", "dog")} == {expected}
