"""Shards of a pipeline, full ones and empty ones."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.rejects import Count, Metric
from recordmill.schemas.shards import ShardKey
from recordmill.transforms.runtime.coders import pack
from recordmill.transforms.shards.plan_shards import ShardPlans
from recordmill.transforms.shards.write_shards import WriteShards
from tests.transforms.shards.test_shard_file import STATE, read, recipe
from tests.transforms.shards.test_shard_writer import LABELS, TABLE, source_ids, three_tasks  # noqa: F401  a fixture


def test_the_transform_writes_full_and_empty_shards(tmp_path, tasks):
    made = recipe(tmp_path, gzip=True)
    full, empty = ShardKey("train", 0, 2), ShardKey("train", 1, 2)
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        placed = p | "Placed" >> beam.Create([(full, pack(task)) for task in tasks])
        plans = ShardPlans(placed, p | "Empty" >> beam.Create([empty]), p | "Plans" >> beam.Create([]))
        labels, table = p | "Labels" >> beam.Create([LABELS]), p | "Table" >> beam.Create([TABLE])
        checked = p | "Checked" >> beam.Create([True])
        written = plans | WriteShards(checked, labels, table, made, threads=2)
        files = written.shards | "Files" >> beam.MapTuple(lambda split, info: (split, info.file, info.examples))
        objects = written.counted | "Objects" >> beam.Filter(lambda counted: counted[1].what == Metric.OBJECTS)
        reasons = written.rejected | "Reasons" >> beam.MapTuple(lambda kind, rejects: (kind, rejects.number))
        names = [f"coco-train.tfrecord-{index:05}-of-00002.gz" for index in range(2)]
        assert_that(files, equal_to([("train", names[0], 2), ("train", names[1], 0)]), "Shards")
        assert_that(objects, equal_to([("train", Count(Metric.OBJECTS, 1))]), "Counted")
        assert_that(
            reasons,
            equal_to([(("train", "image", "image_unreadable"), 1), (("train", "annotation", "empty_box"), 1)]),
            "Rejected",
        )
    assert sorted(source_ids(tmp_path / "out" / STATE / names[0])) == [1, 3]
    assert read(tmp_path / "out" / STATE / names[1]) == []
