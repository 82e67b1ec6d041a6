"""`Split.grain` in Grain."""

import grain
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from array_record.python.array_record_module import ArrayRecordReader

import recordmill
from recordmill.launch.cli import main
from tests.consumers.pages import DOCS, run
from tests.recordmill.splits import CONTENTS, draw, write_split


def test_grain_reads_a_batch_at_once(tmp_path, monkeypatch):
    contents = CONTENTS["classification"]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(5)])
    calls = []
    read = type(split).read
    monkeypatch.setattr(type(split), "read", lambda self, numbers: calls.append(len(numbers)) or read(self, numbers))
    records = grain.MapDataset.source(split.grain(raw=True))
    assert records._getitems([3, 1]) == [split.raw(3), split.raw(1)]
    assert calls[0] == 2


@pytest.mark.parametrize("processes", [0, 2])
def test_grain_reads_array_records_itself(tmp_path, sample, copy_converted, processes):
    """Its own data source opens the shards unchanged. It complains in a log if a group has several records."""
    copy_converted(tmp_path, "--num-shards", 3, "--container", "arrayrecord")
    split = recordmill.open(tmp_path)["train"]
    paths = [str(tmp_path / shard.file) for shard in split.shards]
    source = grain.sources.ArrayRecordDataSource(paths)
    assert len(source) == len(split) > 20
    records = grain.MapDataset.source(source).shuffle(seed=1).to_iter_dataset()
    if processes:
        flags.FLAGS.mark_as_parsed()
        records = records.mp_prefetch(grain.MultiprocessingOptions(num_workers=processes))
    assert sorted(records) == sorted(split.read(range(len(split))))
    assert "group_size:1," in ArrayRecordReader(paths[0]).writer_options_string()


@pytest.mark.parametrize("processes", [0, 2])
def test_batches_of_static_shapes_are_compiled_once(tmp_path, processes):
    """Of images of several sizes with several numbers of objects; texts are left out."""
    contents = CONTENTS["detection"]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(7)])
    records = grain.MapDataset.source(split.grain(resize=(16, 24), pad=4, threads=2)).to_iter_dataset()
    batches = records.batch(2, drop_remainder=True)
    if processes:
        flags.FLAGS.mark_as_parsed()
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=processes))
    compiled = []

    @jax.jit
    def count(batch):
        compiled.append({name: value.shape for name, value in batch.items()})
        return (batch["labels"] >= 0).sum(axis=1), batch["image"].mean(dtype=jnp.float32)

    results = [(batch["image_id"].tolist(), *count(batch)) for batch in batches]
    assert len(compiled) == 1
    assert compiled[0]["masks"] == (2, 4, 16, 24)
    assert compiled[0]["caption_tokens"] == (2, 4)
    assert sorted(id_ for ids, *_ in results for id_ in ids)[:3] == [0, 1, 2]
    for ids, objects, mean in results:
        assert objects.tolist() == [len(split[id_]["labels"]) for id_ in ids]
        images = [next(split[id_:].numpy(resize=(16, 24)))["image"] for id_ in ids]
        assert abs(np.mean(images) - mean) < 0.01


def test_loader_of_several_processes_reads_each_record_once(tmp_path):
    contents = CONTENTS["classification"]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(8)])
    source = split.grain(resize=(4, 4), pad=2, threads=2)
    flags.FLAGS.mark_as_parsed()
    ids = []
    for shard in range(2):
        options = grain.sharding.ShardOptions(shard_index=shard, shard_count=2)
        sampler = grain.samplers.IndexSampler(len(source), options, shuffle=True, num_epochs=1, seed=0)
        records = list(grain.DataLoader(data_source=source, sampler=sampler, worker_count=2))
        assert {record["image"].shape for record in records} == {(4, 4, 3)}
        ids += [int(record["image_id"]) for record in records]
    assert sorted(ids) == list(range(8))


def test_the_page_s_batches(tmp_path, monkeypatch):
    """The page's example works for images of several sizes, and for lists."""
    monkeypatch.chdir(tmp_path)
    assert main(["sample", "sample"]) == 0
    files = ["--images", "sample/images", "--instances", "sample/annotations/instances.json"]
    assert main(["convert", *files, "--max-rejects", "0.2", "--output", "out"]) == 0
    left = run((DOCS / "training" / "grain_hosts.py").read_text(), SIZE=16, BATCH=8)
    batches = iter(left["batches"])
    seen = [next(batches) for _ in range(len(left["train"]) // 8)]
    assert {batch["image"].shape for batch in seen} == {(8, 16, 16, 3)}
    ids = [id_ for batch in seen for id_ in batch["image_id"].tolist()]
    assert len(set(ids)) == len(ids)
