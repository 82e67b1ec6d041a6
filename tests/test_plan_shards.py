"""Every image gets its shard, as if all images had been sorted in one place."""

import random
from collections import Counter

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.coco import Annotation
from schemas.images import ImageRef, ImageTask
from schemas.layouts import DETECTION
from schemas.shards import ShardKey, ShardSizing
from transforms.plan_shards import (
    RANGES,
    CensusFn,
    PlanShards,
    SplitPlan,
    empty_shards,
    expected_bytes,
    hash_range,
    image_order,
    place_range,
    plan_split,
)

IDS = st.integers(-(1 << 63), (1 << 63) - 1)
SEED = 3

SIZINGS = [
    ShardSizing(num_shards=1),
    ShardSizing(num_shards=7),
    ShardSizing(num_shards=1000),
    ShardSizing(examples_per_shard=1),
    ShardSizing(examples_per_shard=7),
    ShardSizing(shard_bytes=1),
    ShardSizing(shard_bytes=2_000),
    ShardSizing(shard_bytes=10**9),
]


def sizes_of(least: int, most: int):
    return st.dictionaries(IDS, st.integers(least, most), min_size=1, max_size=80)


def in_order(sizes: dict[int, int]) -> list[int]:
    return sorted(sizes, key=lambda id_: image_order(SEED, id_))


def planned(sizes: dict[int, int], sizing: ShardSizing, bundles: int = 3) -> tuple[SplitPlan, dict[int, int]]:
    """The plan for images of these ids and sizes, counted in several bundles; and each image's shard."""
    census = CensusFn()
    accumulators = [census.create_accumulator() for _ in range(bundles)]
    for place, (id_, size) in enumerate(sizes.items()):
        measured = image_order(SEED, id_), size
        accumulators[place % bundles] = census.add_input(accumulators[place % bundles], measured)
    plan = plan_split(census.extract_output(census.merge_accumulators(accumulators)), sizing)
    ranges: dict[int, list[int]] = {}
    for id_ in in_order(sizes):
        ranges.setdefault(hash_range(image_order(SEED, id_)), []).append(id_)
    placed = {}
    for range_, ids in ranges.items():
        placed |= dict(zip(ids, place_range(plan, range_, [sizes[id_] for id_ in ids]), strict=True))
    return plan, placed


def placed_by_sorting(sizes: dict[int, int], sizing: ShardSizing) -> dict[int, int]:
    """Each image's shard, found with all images in one place."""
    placed, bytes_before = {}, 0
    shard_bytes = max(sizing.shard_bytes or 0, *sizes.values())
    for rank, id_ in enumerate(in_order(sizes)):
        if sizing.num_shards is not None:
            placed[id_] = rank * sizing.num_shards // len(sizes)
        elif sizing.examples_per_shard is not None:
            placed[id_] = rank // sizing.examples_per_shard
        else:
            placed[id_] = (bytes_before + sizes[id_] // 2) // shard_bytes
        bytes_before += sizes[id_]
    return placed


@settings(deadline=None)
@given(sizes_of(0, 5000), st.sampled_from(SIZINGS))
def test_every_image_is_in_one_shard_of_the_plan_in_order(sizes, sizing):
    plan, placed = planned(sizes, sizing)
    assert placed == placed_by_sorting(sizes, sizing)
    assert (plan.images, plan.bytes) == (len(sizes), sum(sizes.values()))
    shards = [placed[id_] for id_ in in_order(sizes)]
    assert shards == sorted(shards)
    empty = {key.index for key in empty_shards("train", plan)}
    assert empty.isdisjoint(shards)
    assert sorted({*shards, *empty}) == list(range(plan.shards))


@pytest.mark.parametrize("sizing", SIZINGS)
def test_ranges_with_many_images(sizing):
    rng = random.Random(0)
    sizes = {id_: rng.randrange(1, 300) for id_ in range(3 * RANGES)}
    assert max(Counter(hash_range(image_order(SEED, id_)) for id_ in sizes).values()) > 5
    assert planned(sizes, sizing)[1] == placed_by_sorting(sizes, sizing)


@settings(deadline=None)
@given(sizes_of(0, 5000), st.integers(1, 100))
def test_num_shards_is_exact_and_their_counts_differ_by_one_at_most(sizes, num_shards):
    plan, placed = planned(sizes, ShardSizing(num_shards=num_shards))
    counts = Counter(placed.values())
    assert plan.shards == num_shards
    every = [counts[index] for index in range(num_shards)]
    assert max(every) - min(every) <= 1
    assert list(empty_shards("val", plan)) == [
        ShardKey("val", index, num_shards) for index, count in enumerate(every) if not count
    ]


@settings(deadline=None)
@given(sizes_of(0, 5000), st.integers(1, 100))
def test_examples_per_shard_is_exact_in_all_but_the_last(sizes, examples):
    plan, placed = planned(sizes, ShardSizing(examples_per_shard=examples))
    counts = Counter(placed.values())
    whole, rest = divmod(len(sizes), examples)
    assert [counts[index] for index in range(plan.shards)] == [examples] * whole + [rest] * (rest > 0)


@settings(deadline=None)
@given(sizes_of(1, 50))
def test_shard_bytes_are_met_within_a_tenth_in_all_but_the_last(sizes):
    plan, placed = planned(sizes, ShardSizing(shard_bytes=1000))
    totals = [sum(sizes[id_] for id_ in placed if placed[id_] == index) for index in range(plan.shards)]
    assert all(900 <= total <= 1100 for total in totals[:-1])
    assert 0 < totals[-1] <= 1100


@settings(deadline=None)
@given(sizes_of(1, 5000), st.integers(1, 6000))
def test_no_shard_is_empty_however_large_the_images(sizes, shard_bytes):
    plan, placed = planned(sizes, ShardSizing(shard_bytes=shard_bytes))
    assert set(placed.values()) == set(range(plan.shards))
    assert list(empty_shards("train", plan)) == []
    assert plan.sizing.shard_bytes == max(shard_bytes, *sizes.values())


@settings(deadline=None)
@given(sizes_of(0, 5000), st.sampled_from(SIZINGS), st.randoms(use_true_random=False), st.integers(1, 6))
def test_the_plan_does_not_depend_on_the_order_of_the_input(sizes, sizing, rng, bundles):
    shuffled = dict(rng.sample(list(sizes.items()), len(sizes)))
    assert planned(sizes, sizing) == planned(shuffled, sizing, bundles)


def test_a_census_of_nothing_plans_nothing_but_what_was_asked_for():
    census = CensusFn()
    nothing = census.extract_output(census.merge_accumulators([census.create_accumulator()]))
    plan = plan_split(nothing, ShardSizing(num_shards=3))
    assert list(empty_shards("train", plan)) == [ShardKey("train", index, 3) for index in range(3)]


# Orders and sizes


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


def task(id_: int, size: int, split: str = "train", objects: int = 0) -> ImageTask:
    annotations = tuple(Annotation(number, 1, (0.0, 0.0, 1.0, 1.0), 1.0, False) for number in range(objects))
    return ImageTask(id_, f"{id_}.jpg", 40, 30, ImageRef(f"images/{id_}.jpg", size), split, annotations)


def test_expected_bytes_grow_with_the_file_and_the_objects():
    plain, larger, fuller = (
        expected_bytes(t, DETECTION) for t in (task(1, 100), task(1, 150), task(1, 100, objects=3))
    )
    assert larger - plain == 50
    assert fuller - plain == 3 * (5 * 4 + 4 * 2 + 9)
    assert plain > 100 + sum(len(feature.name) for feature in DETECTION.features)


# The transform


CROWDED = [id_ for id_ in range(40_000) if hash_range(image_order(SEED, id_)) % 512 == 0][:60]
"""Ids that fall into eight ranges, so that a range has several images."""


@pytest.mark.parametrize("sizing", [SIZINGS[1], SIZINGS[4], ShardSizing(shard_bytes=6_000), ShardSizing(num_shards=70)])
def test_the_transform_plans_each_split_as_sorting_it_would(sizing):
    rng = random.Random(0)
    splits = {
        "train": [task(id_, rng.randrange(50, 500), "train", rng.randrange(3)) for id_ in CROWDED],
        "val": [task(id_, 90, "val") for id_ in range(5)],
    }
    placed, empty = [], []
    for split, tasks in splits.items():
        sizes = {task.image_id: expected_bytes(task, DETECTION) for task in tasks}
        shards = placed_by_sorting(sizes, sizing)
        count = sizing.num_shards or max(shards.values()) + 1
        placed += [(ShardKey(split, shards[task.image_id], count), task) for task in tasks]
        empty += [ShardKey(split, index, count) for index in range(count) if index not in shards.values()]
    everything = rng.sample([*splits["train"], *splits["val"]], 65)
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        plans = p | beam.Create(everything) | PlanShards(sizing, SEED, DETECTION)
        assert_that(plans.placed, equal_to(placed), "Placed")
        assert_that(plans.empty, equal_to(empty), "Empty")
        totals = plans.plans | "Totals" >> beam.MapTuple(lambda split, plan: (split, plan.images, plan.shards))
        counts = {split: next(key.count for key, task in placed if task.split == split) for split in splits}
        assert_that(totals, equal_to([("train", 60, counts["train"]), ("val", 5, counts["val"])]), "Plans")
