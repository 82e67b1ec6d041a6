import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.shards import ShardKey
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.shards.write_shards import WriteShards
from tests.oracles.encode_tasks import pack_tasks
from tests.transforms.shards.test_shard_file import STATE, read, recipe
from tests.transforms.shards.test_shard_writer import LABELS, TABLE, source_ids, three_tasks  # noqa: F401  a fixture


def test_transform_writes_full_and_empty_shards(tmp_path, tasks):
    made = recipe(tmp_path, gzip=True)
    full, empty = ShardKey("train", 0, 2), ShardKey("train", 1, 2)
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        packed = [(full, block) for block in pack_tasks(tasks)]
        placed = p | "Placed" >> beam.Create([*packed, (empty, b"")])
        labels, table = p | "Labels" >> beam.Create([LABELS]), p | "Table" >> beam.Create([TABLE])
        checked = p | "Checked" >> beam.Create([True])
        written = placed | WriteShards(checked, labels, table, made, threads=2)
        keys = written | "Keys" >> beam.Map(lambda shard: (shard.key, len(shard.note)))
        facts = written | "Numbers" >> beam.Map(lambda shard: _numbers(shard.facts))
        names = [f"coco-train.tfrecord-{index:05}-of-00002.gz" for index in range(2)]
        assert_that(keys, equal_to([(full, 64), (empty, 64)]), "Shards")
        rejects = {("train", "image", "image_unreadable"): 1, ("train", "annotation", "empty_box"): 1}
        assert_that(facts, equal_to([(1, rejects, 2), (0, {}, 0)]), "Facts")
    assert sorted(source_ids(tmp_path / "out" / STATE / names[0])) == [1, 3]
    assert read(tmp_path / "out" / STATE / names[1]) == []


def _numbers(facts: Facts) -> tuple[int, dict, int]:
    rejects = {kind: rejects.number for kind, rejects in facts.rejects.items()}
    return facts.counts.get(("train", "objects"), 0), rejects, facts.statistics["train"].images
