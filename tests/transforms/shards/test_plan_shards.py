"""The transform plans as if all images had been sorted in one place."""

import random

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.layouts import KERAS
from recordmill.schemas.shards import ShardKey, ShardSizing
from recordmill.transforms.examples.estimate_records import RecordEstimate
from recordmill.transforms.runtime.coders import pack
from recordmill.transforms.shards.plan_shards import PlanShards, expected_amount
from recordmill.transforms.shards.split_plan import split_task
from recordmill.transforms.shards.task_order import hash_range, image_order
from tests.transforms.shards.sorted_split import PLAIN, SEED, SIZINGS, placed_by_sorting, task


def test_expected_bytes_grow_with_the_file_and_the_objects():
    plain, larger, fuller = (
        RecordEstimate(PLAIN).bytes(t) for t in (task(1, 100), task(1, 150), task(1, 100, objects=3))
    )
    assert larger - plain == 50
    assert fuller - plain == 3 * (5 * 4 + 4 * 2 + 9)
    assert plain > 100 + sum(len(feature.name) for feature in PLAIN.features)


CROWDED = [id_ for id_ in range(40_000) if hash_range(image_order(SEED, id_)) % 512 == 0][:60]
"""Ids that fall into eight ranges, so that a range has several images."""


@pytest.mark.parametrize(
    ("sizing", "table"),
    [
        (SIZINGS[1], PLAIN),
        (SIZINGS[4], KERAS),
        (ShardSizing(shard_bytes=6_000), KERAS),
        (ShardSizing(num_shards=70), PLAIN),
    ],
)
def test_the_transform_plans_each_split_as_sorting_it_would(sizing, table):
    rng = random.Random(0)
    splits = {
        "train": [task(id_, rng.randrange(50, 500), "train", rng.randrange(3)) for id_ in CROWDED],
        "val": [task(id_, 90, "val", 1) for id_ in range(5)],
    }
    placed, empty = [], []
    for split, tasks in splits.items():
        sizes = {task.image_id: expected_amount(task, RecordEstimate(table)) for task in tasks}
        shards = placed_by_sorting(sizes, sizing)
        used = {piece.shard for pieces in shards.values() for piece in pieces}
        count = sizing.num_shards or max(used) + 1
        for whole in tasks:
            pieces = shards[whole.image_id]
            parts = split_task(whole, [piece.examples for piece in pieces])
            placed += [
                (ShardKey(split, piece.shard, count), pack(part)) for piece, part in zip(pieces, parts, strict=True)
            ]
        empty += [ShardKey(split, index, count) for index in range(count) if index not in used]
    everything = rng.sample([*splits["train"], *splits["val"]], 65)
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        plans = p | beam.Create(everything) | PlanShards(sizing, SEED, RecordEstimate(table))
        assert_that(plans.placed, equal_to(placed), "Placed")
        assert_that(plans.empty, equal_to(empty), "Empty")
        totals = plans.plans | "Totals" >> beam.MapTuple(lambda split, plan: (split, plan.images, plan.shards))
        counts = {split: next(key.count for key, _ in placed if key.split == split) for split in splits}
        assert_that(totals, equal_to([("train", 60, counts["train"]), ("val", 5, counts["val"])]), "Plans")
