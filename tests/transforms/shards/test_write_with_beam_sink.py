import hashlib

import apache_beam as beam
import msgspec
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.shards import ShardInfo, ShardKey
from recordmill.transforms.dataset.facts import add_facts
from recordmill.transforms.records import example
from recordmill.transforms.runtime import progress
from recordmill.transforms.shards.shard_file import FinishedShards
from recordmill.transforms.shards.write_shards import WriteWithBeam
from tests.oracles.encode_tasks import pack_tasks
from tests.transforms.shards.test_shard_file import KEY, index_info, index_of, read, recipe
from tests.transforms.shards.test_shard_writer import FILE, LABELS, TABLE, crc32c, finish, three_tasks  # noqa: F401  a fixture


def numbers_of(facts, split):
    """The counts and the classes of a split."""
    return [
        sorted((key[1], number) for key, number in part.items() if key[0] == split)
        for part in (facts.counts, facts.classes)
    ]


@pytest.mark.parametrize(("gzip", "ending"), [(False, ""), (True, ".gz")])
def test_write_with_beam(tmp_path, tasks, monkeypatch, gzip, ending):
    monkeypatch.setattr(example, "_COPIED_BYTES", 8)  # so that records are in pieces
    usual = finish(tasks, recipe(tmp_path / "usual"))
    records = read(tmp_path / "usual" / "out" / FILE)
    progress.reset()
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        placed = p | beam.Create(
            [(ShardKey(split, 0, 1), packed) for split in ("train", "val") for packed in pack_tasks(tasks)]
        )
        sides = [p | f"Side{side}" >> beam.Create([of]) for side, of in enumerate((True, LABELS, TABLE))]
        written = placed | WriteWithBeam(*sides, recipe(tmp_path, gzip=gzip), 2, splits=("train", "val"), num_shards=2)
        noted = written | beam.Filter(lambda shard: shard.note)
        notes = noted | beam.Map(lambda shard: f"{shard.key.split} {shard.key.index} {shard.note}")
        notes | beam.io.WriteToText(str(tmp_path / "notes"))
        facts = written | "Facts" >> beam.Map(lambda shard: shard.facts) | beam.combiners.ToList() | beam.Map(add_facts)
        numbers = facts | beam.Map(lambda facts: (numbers_of(facts, "val"), facts.statistics["val"].images))
        assert_that(numbers, equal_to([(numbers_of(usual.facts, KEY.split), 2)]))
    assert progress.snapshot().shards_done == 4
    notes = [line.split() for path in tmp_path.glob("notes*") for line in path.read_text().splitlines()]
    finished = FinishedShards(str(tmp_path / "out"), "coco", "detection")
    infos = [finished.result(ShardKey(split, int(index), 2), note).info for split, index, note in notes]
    found = []
    for split in ("train", "val"):
        state = tmp_path / "out" / f".recordmill-{split}"
        names = [f"coco-{split}.tfrecord-0000{index}-of-00002{ending}" for index in range(2)]
        assert {path.name for path in state.iterdir()} - {
            ".index",
            *(f"{name.removesuffix('.gz')}.json" for name in names),
        } == set(names)
        for name in names:
            data, inside = (state / name).read_bytes(), read(state / name)
            index = msgspec.UNSET if gzip else index_info(inside)
            digests = crc32c(data), hashlib.sha256(data).hexdigest()
            assert ShardInfo(name, len(inside), len(data), *digests, index) in infos
            if not gzip:
                assert (state / ".index" / f"{name}.idx").read_bytes() == index_of(inside)
            found += [(split, record) for record in inside]
    assert len(infos) == 4
    assert sorted(found) == sorted((split, record) for record in records for split in ("train", "val"))
