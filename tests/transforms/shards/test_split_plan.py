"""Each image is placed by its range as if all images had been sorted in one place."""

import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.shards import Amount, ShardKey, ShardSizing
from recordmill.transforms.runtime.coders import pack
from recordmill.transforms.shards.plan_shards import CensusFn, CollectRanges, in_range
from recordmill.transforms.shards.split_plan import (
    Piece,
    SplitPlan,
    Start,
    count_range,
    empty_shards,
    find_starts,
    first_starts,
    pieces_of,
    plan_split,
    split_task,
)
from recordmill.transforms.shards.task_order import RANGES, hash_range, image_order, task_order
from tests.transforms.shards.sorted_split import IDS, SEED, SIZINGS, Placed, in_order, placed_by_sorting, row, task


def amounts_of(least: int, most: int):
    """Amounts by image id: of so many bytes, and one example."""
    return st.dictionaries(IDS, st.builds(Amount, st.integers(least, most), st.just(1)), min_size=1, max_size=80)


def several():
    """As of records that are one an object: some images have none, and those with none have no bytes."""
    examples = st.integers(0, 9) | st.just(0)
    amounts = st.builds(lambda each, examples: Amount(each * examples, examples), st.integers(1, 50), examples)
    return st.dictionaries(IDS, amounts, min_size=1, max_size=80)


def planned(amounts: dict[int, Amount], sizing: ShardSizing, bundles: int = 3) -> tuple[SplitPlan, Placed]:
    """The plan for images of these ids and amounts, collected and counted in several bundles; and where each image
    goes, as its place among the starts of all ranges says."""
    collect, census = CollectRanges(), CensusFn()
    ranges: dict[int, list[list[bytes]]] = {}
    for place, (id_, amount) in enumerate(amounts.items()):
        key = task_order(SEED, task(id_, 1))
        of_range = ranges.setdefault(hash_range(key[0]), [collect.create_accumulator() for _ in range(bundles)])
        of_range[place % bundles] = collect.add_input(of_range[place % bundles], pack((key, amount)))
    images = {
        range_: in_range(collect.extract_output(collect.merge_accumulators(of_range)))
        for range_, of_range in ranges.items()
    }
    accumulators = [census.create_accumulator() for _ in range(bundles)]
    for range_, of_range in images.items():
        bundle = range_ % bundles
        accumulators[bundle] = census.add_input(accumulators[bundle], (range_, count_range(of_range)))
    plan = plan_split(census.extract_output(census.merge_accumulators(accumulators)), sizing)
    starts = list(
        first_starts(start for range_, of_range in images.items() for start in find_starts(plan, range_, of_range))
    )
    return plan, {id_: list(pieces_of(task_order(SEED, task(id_, 1)), starts, amounts[id_])) for id_ in amounts}


def contents(plan: SplitPlan, placed: Placed) -> list[int]:
    """How many examples there are in each shard."""
    counts = Counter()
    for pieces in placed.values():
        for piece in pieces:
            counts[piece.shard] += piece.examples
    assert counts.keys() <= set(range(plan.shards))
    return [counts[index] for index in range(plan.shards)]


def shard_of(placed: Placed) -> dict[int, int]:
    """The shard of each image that is in one."""
    assert {len(pieces) for pieces in placed.values()} <= {1}
    return {id_: pieces[0].shard for id_, pieces in placed.items()}


@settings(deadline=None)
@given(amounts_of(0, 5000) | several(), st.sampled_from(SIZINGS))
def test_every_image_is_in_its_shards_of_the_plan_in_order(sizes, sizing):
    plan, placed = planned(sizes, sizing)
    assert placed == placed_by_sorting(sizes, sizing)
    totals = sum(amount.bytes for amount in sizes.values()), sum(amount.examples for amount in sizes.values())
    assert (plan.images, plan.bytes, plan.examples) == (len(sizes), *totals)
    shards = [piece.shard for id_ in in_order(sizes) for piece in placed[id_]]
    assert shards == sorted(shards)
    empty = {key.index for key in empty_shards("train", plan)}
    assert empty.isdisjoint(shards)
    assert sorted({*shards, *empty}) == list(range(plan.shards))


@pytest.mark.parametrize("sizing", SIZINGS)
def test_ranges_with_many_images(sizing):
    rng = random.Random(0)
    sizes = {id_: Amount(rng.randrange(1, 300), rng.randrange(4)) for id_ in range(3 * RANGES)}
    assert max(Counter(hash_range(image_order(SEED, id_)) for id_ in sizes).values()) > 5
    assert planned(sizes, sizing)[1] == placed_by_sorting(sizes, sizing)


@settings(deadline=None)
@given(amounts_of(0, 5000), st.integers(1, 100))
def test_num_shards_is_exact_and_their_counts_differ_by_one_at_most(sizes, num_shards):
    plan, placed = planned(sizes, ShardSizing(num_shards=num_shards))
    assert plan.shards == num_shards
    counts = Counter(shard_of(placed).values())
    every = [counts[index] for index in range(num_shards)]
    assert max(every) - min(every) <= 1
    assert list(empty_shards("val", plan)) == [
        ShardKey("val", index, num_shards) for index, count in enumerate(every) if not count
    ]


@settings(deadline=None)
@given(amounts_of(0, 5000) | several(), st.integers(1, 100))
def test_examples_per_shard_is_exact_in_all_but_the_last(sizes, examples):
    plan, placed = planned(sizes, ShardSizing(examples_per_shard=examples))
    whole, rest = divmod(sum(amount.examples for amount in sizes.values()), examples)
    assert contents(plan, placed) == ([examples] * whole + [rest] * (rest > 0) or [0])


@settings(deadline=None)
@given(several(), st.sampled_from(SIZINGS))
def test_no_example_of_an_image_is_lost_or_written_twice_and_its_shards_are_neighbours(amounts, sizing):
    _, placed = planned(amounts, sizing)
    for id_, pieces in placed.items():
        assert sum(piece.examples for piece in pieces) == amounts[id_].examples
        assert all(piece.examples for piece in pieces) or len(pieces) == 1
        assert [piece.shard for piece in pieces] == list(range(pieces[0].shard, pieces[-1].shard + 1))


@settings(deadline=None)
@given(several(), st.sampled_from([sizing for sizing in SIZINGS if sizing.num_shards is None]))
def test_images_without_examples_never_open_a_shard(amounts, sizing):
    plan, placed = planned(amounts, sizing)
    opened = {piece.shard for id_, pieces in placed.items() for piece in pieces if amounts[id_].examples}
    assert opened | {0} == set(range(plan.shards))
    assert list(empty_shards("train", plan)) == []


@settings(deadline=None)
@given(several(), st.sets(IDS, max_size=20))
def test_what_has_no_example_does_not_move_what_has(amounts, others):
    fewer = {id_: amount for id_, amount in amounts.items() if amount.examples} or {0: Amount(1, 1)}
    more = fewer | {id_: Amount(0, 0) for id_ in others if id_ not in fewer}
    for sizing in (ShardSizing(examples_per_shard=7), ShardSizing(shard_bytes=60)):
        (plan, placed), (plan_of_more, placed_of_more) = planned(fewer, sizing), planned(more, sizing)
        assert plan_of_more.shards == plan.shards
        assert {id_: placed_of_more[id_] for id_ in fewer} == placed


@settings(deadline=None)
@given(amounts_of(1, 50))
def test_shard_bytes_are_met_within_a_tenth_in_all_but_the_last(sizes):
    plan, placed = planned(sizes, ShardSizing(shard_bytes=1000))
    shards = shard_of(placed)
    totals = [sum(sizes[id_].bytes for id_ in shards if shards[id_] == index) for index in range(plan.shards)]
    assert all(900 <= total <= 1100 for total in totals[:-1])
    assert 0 < totals[-1] <= 1100


@settings(deadline=None)
@given(amounts_of(1, 5000), st.integers(1, 6000))
def test_no_shard_is_empty_however_large_the_images(sizes, shard_bytes):
    plan, placed = planned(sizes, ShardSizing(shard_bytes=shard_bytes))
    assert set(shard_of(placed).values()) == set(range(plan.shards))
    assert list(empty_shards("train", plan)) == []
    assert plan.sizing.shard_bytes == max(shard_bytes, *(amount.bytes for amount in sizes.values()))


@settings(deadline=None)
@given(amounts_of(0, 5000), st.sampled_from(SIZINGS), st.randoms(use_true_random=False), st.integers(1, 6))
def test_the_plan_does_not_depend_on_the_order_of_the_input(sizes, sizing, rng, bundles):
    shuffled = dict(rng.sample(list(sizes.items()), len(sizes)))
    assert planned(sizes, sizing) == planned(shuffled, sizing, bundles)


def test_a_census_of_nothing_plans_nothing_but_what_was_asked_for():
    census = CensusFn()
    nothing = census.extract_output(census.merge_accumulators([census.create_accumulator()]))
    plan = plan_split(nothing, ShardSizing(num_shards=3))
    assert list(empty_shards("train", plan)) == [ShardKey("train", index, 3) for index in range(3)]


def test_a_task_of_one_piece_is_itself_and_of_several_has_its_annotations_shared_out():
    whole = task(1, 100, objects=6)
    assert list(split_task(whole, [6])) == [whole]
    parts = list(split_task(whole, [1, 3, 2]))
    assert [[annotation.id for annotation in part.annotations] for part in parts] == [[0], [1, 2, 3], [4, 5]]
    assert [part.is_continuation for part in parts] == [False, True, True]
    assert [msgspec.structs.replace(part, annotations=(), is_continuation=False) for part in parts] == [
        task(1, 100)
    ] * 3


def test_a_shard_begins_once_however_many_ranges_it_has():
    starts = [Start(((place, 1), b"", "", ""), (Piece(place // 3, 1),)) for place in range(9)]
    of_two = Start(((5, 2), b"", "", ""), (Piece(1, 1), Piece(2, 2)))
    places = [start.order[0] for start in first_starts([*starts[5::-1], of_two, *starts[6:]])]
    assert places == [(0, 1), (3, 1), (5, 2), (6, 1)]


def test_rows_of_one_key_are_shared_out_by_what_they_are():
    rows = [row(1, record, name, place) for record in (b"", b"a") for name in "vw" for place in "12"]
    keys = [task_order(SEED, each) for each in rows]
    range_ = hash_range(keys[0][0])
    images = [(key, Amount(10, 1)) for key in keys]
    census = CensusFn()
    counted = census.add_input(census.create_accumulator(), (range_, count_range(images)))
    starts = list(find_starts(plan_split(census.extract_output(counted), SIZINGS[1]), range_, images))
    assert len({start.order for start in starts}) == 7
    assert [pieces_of(key, starts, Amount(10, 1)) for key in keys] == [
        (Piece(index * 7 // 8, 1),) for index in range(8)
    ]
