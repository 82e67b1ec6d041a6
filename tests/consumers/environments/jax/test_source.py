"""`Split.grain` in Grain: a global shuffle, checkpoints, and another number of hosts after each."""

import random

import grain
import pytest

from recordmill.launch.cli import main
from tests.consumers.pages import run_section
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


def test_the_page_s_batches(tmp_path, monkeypatch):
    """Of records as the documentation's own have them: pictures of several sizes, and lists."""
    monkeypatch.chdir(tmp_path)
    assert main(["sample", "sample"]) == 0
    files = ["--images", "sample/images", "--instances", "sample/annotations/instances.json"]
    assert main(["coco", *files, "--max-rejects", "0.2", "--output", "out"]) == 0
    left = run_section("reading.md", "Grain, JAX", SIZE=16, BATCH=8)
    batches = iter(left["batches"])
    seen = [next(batches) for _ in range(len(left["train"]) // 8)]
    assert {batch["image"].shape for batch in seen} == {(8, 16, 16, 3)}
    ids = [id_ for batch in seen for id_ in batch["image_id"].tolist()]
    assert len(set(ids)) == len(ids)
