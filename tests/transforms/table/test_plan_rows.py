"""The plan of rows, and shards that are copied by it."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import TABLE
from recordmill.schemas.rejects import Metric
from recordmill.schemas.shards import ShardKey, ShardResult, ShardSizing
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.blocks.pack_block import pack_block
from recordmill.transforms.runtime import progress
from recordmill.transforms.shards.plan_blocks import shard_ranks
from recordmill.transforms.shards.shard_file import FinishedShards
from recordmill.transforms.shards.write_shards import write_shard
from recordmill.transforms.table.spill_rows import CopyRows, plan_rows, read_shard, shard_block
from tests.transforms.shards.test_shard_file import read, recipe
from tests.transforms.table.spills import VALUES, spills


@pytest.mark.parametrize(
    ("sizing", "sizes"),
    [
        (ShardSizing(num_shards=3), [334, 333, 333]),
        (ShardSizing(num_shards=1), [1000]),
        (ShardSizing(examples_per_shard=400), [400, 400, 200]),
        (ShardSizing(examples_per_shard=5000), [1000]),
        (ShardSizing(shard_bytes=6000), [250] * 4),  # of 23 bytes each, framed
    ],
)
def test_shards_hold_each_record_once_in_one_order(tmp_path, sizing, sizes):
    parts = [VALUES[:10], VALUES[10:700], VALUES[700:]]
    found = []
    for folder, divided in ((tmp_path / "a", parts), (tmp_path / "b", [VALUES[::-1]])):
        made = spills(folder, *divided)
        plan = plan_rows(made, sizing)
        assert (plan.images, plan.bytes) == (1000, sum(map(len, VALUES)) + 16 * 1000)
        blocks = [shard_block(plan, index, made) for index in range(plan.shards)]
        shards = [read_shard(block, "train", str(folder)).to_pylist() for block in blocks]
        assert [len(shard) for shard in shards] == sizes
        found.append(shards)
    assert found[0] == found[1]
    assert sorted(value for shard in found[0] for value in shard) == sorted(VALUES)
    assert found[0] != [VALUES[start : start + sizes[0]] for start in range(0, 1000, sizes[0])], "mixed"


@pytest.mark.parametrize(
    ("rows", "sizing", "sizes"),
    [
        (2, ShardSizing(num_shards=5), [0, 0, 0, 1, 1]),
        (0, ShardSizing(num_shards=2), [0, 0]),
        (0, ShardSizing(shard_bytes=100), [0]),
        (0, ShardSizing(examples_per_shard=100), [0]),
    ],
)
def test_empty_shards(rows, sizing, sizes):
    made = spills("", VALUES[:rows]) if rows else []
    plan = plan_rows(made, sizing)
    ranks = [shard_ranks(plan, index) for index in range(plan.shards)]
    assert sorted(end - first for first, end in ranks) == sizes
    assert all(end == first for (_, end), (first, _) in pairwise(ranks))
    assert [len(shard_block(plan, index, made)) for index in range(plan.shards)] == [
        end - first for first, end in ranks
    ]


KEY = ShardKey("train", 0, 2)


def write(tmp_path, *parts: list[bytes]) -> ShardResult:
    """Write a shard; return what its note says."""
    made = spills(tmp_path / "out", *parts)
    block = shard_block(plan_rows(made, ShardSizing(num_shards=2)), 0, made)
    block.check("test")
    with ThreadPoolExecutor(1) as pool:
        made = recipe(tmp_path, layout="table", maker=CopyRows())
        note = write_shard(made, LabelMap(()), TABLE, KEY, [pack_block(block)], pool, 1).note
    return FinishedShards(made.output, made.name, made.layout, made.container).result(KEY, note)


def test_shard_is_kept_while_rows_are_same(tmp_path):
    first = write(tmp_path, VALUES[:500], VALUES[500:])
    file = tmp_path / "out" / ".recordmill-train" / first.info.file
    data = read(file)
    assert set(data) < set(VALUES)
    assert first.counted == {Metric.IMAGES: 500, Metric.RECORD_BYTES: sum(map(len, data))}
    assert first.statistics == Statistics(500)
    written = file.stat().st_mtime_ns
    progress.reset()
    assert write(tmp_path, VALUES[:500], VALUES[500:]) == first
    assert progress.snapshot().images_skipped == 500
    assert file.stat().st_mtime_ns == written
    other = write(tmp_path, VALUES[:500], [*VALUES[500:999], b"other"])
    assert other.plan != first.plan
    assert progress.snapshot().images_done == 1000
