import numpy as np
import pyarrow as pa
import pytest

from recordmill.schemas.errors import EndedElsewhereError
from recordmill.schemas.shards import ShardSizing
from recordmill.transforms.table.spill_file import RANGES, Records, read_spill, record_orders, write_spill
from recordmill.transforms.table.write_row_shards import plan_rows, read_shard, row_shards


def records(values: list[bytes], orders=None) -> Records:
    made = record_orders(0, values) if orders is None else np.array(orders, np.uint64)
    return Records(made, np.arange(1, len(values) + 1), pa.array(values, pa.large_binary()))


def spills(tmp_path, *parts: list[bytes]):
    return [
        write_spill(str(tmp_path), "train", f"{number}.csv", f"rows-{number:05d}-00000", records(part).sorted())
        for number, part in enumerate(parts)
    ]


VALUES = [f"row {number}".encode() for number in range(1000)]


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
        shards = [read_shard(shard, made).to_pylist() for shard in row_shards("train", plan, made)]
        assert (plan.shards, [len(shard) for shard in shards]) == (len(sizes), sizes)
        found.append(shards)
    assert found[0] == found[1]
    assert sorted(value for shard in found[0] for value in shard) == sorted(VALUES)
    assert found[0][0] != sorted(found[0][0]), "mixed"


def test_more_shards_than_rows(tmp_path):
    made = spills(tmp_path, VALUES[:2])
    shards = list(row_shards("train", plan_rows(made, ShardSizing(num_shards=5)), made))
    assert sorted(shard.end - shard.first for shard in shards) == [0, 0, 0, 1, 1]


def test_records_of_one_order_are_ordered_by_their_bytes():
    one = records([b"c", b"a", b"b", b"z"], [7, 7, 7, 1]).sorted()
    assert one.records.to_pylist() == [b"z", b"a", b"b", b"c"]
    assert one.orders.tolist() == [1, 7, 7, 7]
    assert one.lines.tolist() == [4, 2, 3, 1]


def test_a_file_that_was_cut_is_no_end_of_records(tmp_path):
    (made,) = spills(tmp_path, VALUES)
    path = tmp_path / ".recordmill-train" / "rows-00000-00000"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OSError, match="cut short"):
        read_spill(made, 0, RANGES)
    assert len(read_spill(made, 0, 1).records) == int(np.frombuffer(made.rows_before, np.int64)[1])


def test_another_run_is_done_and_has_deleted_the_rows(tmp_path):
    """What this run has written since is of no use to any."""
    first, _ = spills(tmp_path, VALUES, VALUES[:1])
    state = tmp_path / ".recordmill-train"
    (state / "rows-00000-00000").unlink()
    with pytest.raises(EndedElsewhereError, match=rf"{state}/rows-00000-00000 is gone, with rows .* Run again"):
        read_spill(first, 0, RANGES)
    assert not state.exists()
