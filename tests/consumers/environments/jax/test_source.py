"""`Split.grain` in Grain: a global shuffle, checkpoints, and another number of hosts after each."""

import random

import grain
import pytest

from tests.recordmill.splits import CONTENTS, draw, write_split

RECORDS, BATCH = 60, 12


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    contents = CONTENTS["classification"]
    return write_split(
        tmp_path_factory.mktemp("split"), contents, [draw(contents, number) for number in range(RECORDS)]
    )


def id_of(example) -> int:
    return int(example["image_id"])


def test_stops_and_other_numbers_of_hosts_change_nothing(split):
    records = grain.MapDataset.source(split.grain()).shuffle(seed=3).map(id_of)
    order = [records[number] for number in range(RECORDS)]
    assert sorted(order) == list(range(RECORDS))
    assert order != sorted(order)
    chosen = random.Random(0)
    for _ in range(20):
        read: list[int] = []
        state = None
        while len(read) < RECORDS:
            hosts = chosen.choice([1, 2, 3, 4])
            parts = [
                iter(grain.experimental.ElasticIterator(records, BATCH, grain.sharding.ShardOptions(host, hosts)))
                for host in range(hosts)
            ]
            if state is not None:
                for part in parts:
                    part.set_state(state)
            batches = [next(part).tolist() for part in parts]
            read += [number for step in zip(*batches, strict=True) for number in step]
            state = parts[0].get_state()
        assert read == order


def test_an_iterator_goes_on_where_it_was_saved(split):
    records = grain.MapDataset.source(split.grain()).shuffle(seed=1).map(id_of).to_iter_dataset()
    iterator = iter(records)
    first = [next(iterator) for _ in range(17)]
    state = iterator.get_state()
    rest = list(iterator)
    again = iter(records)
    again.set_state(state)
    assert list(again) == rest
    assert sorted(first + rest) == list(range(RECORDS))


def test_grain_reads_a_batch_at_once(split, monkeypatch):
    calls = []
    source = split.grain(raw=True)
    read = type(split).read
    monkeypatch.setattr(type(split), "read", lambda self, numbers: calls.append(len(numbers)) or read(self, numbers))
    records = grain.MapDataset.source(source)
    assert records._getitems([3, 1]) == [split.raw(3), split.raw(1)]
    assert calls[0] == 2
