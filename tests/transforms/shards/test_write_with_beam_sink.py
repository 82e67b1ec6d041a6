"""Beam's own sink writes the records that ours writes."""

import hashlib

import apache_beam as beam
import msgspec
import pytest
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas import example
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.shards import ShardInfo
from recordmill.schemas.statistics import Statistics
from recordmill.transforms.runtime import progress
from recordmill.transforms.shards.encode_pictures import EncodePictures
from recordmill.transforms.shards.write_with_beam_sink import WriteWithBeamSink, describe_shard
from recordmill.transforms.statistics.count_records import Counted
from tests.transforms.rejects.kinds import rejects_in
from tests.transforms.shards.test_shard_file import index_info, index_of, read, recipe
from tests.transforms.shards.test_shard_writer import FILE, LABELS, TABLE, crc32c, finish, three_tasks  # noqa: F401  a fixture


@pytest.mark.parametrize(("gzip", "ending"), [(False, ""), (True, ".gz")])
def test_records_counts_and_rejects_are_those_of_the_usual_writer(tmp_path, tasks, gzip, ending, monkeypatch):
    monkeypatch.setattr(example, "_COPIED_BYTES", 8)  # so that records are in pieces
    usual = finish(tasks, recipe(tmp_path, output=str(tmp_path / "usual")))
    names = [f"coco-val.tfrecord-0000{index}-of-00002{ending}" for index in range(2)]
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        labels, table = p | "Labels" >> beam.Create([LABELS]), p | "Table" >> beam.Create([TABLE])
        checked = p | "Checked" >> beam.Create([True])
        sink = WriteWithBeamSink(checked, labels, table, recipe(tmp_path, gzip=gzip), None, "val", num_shards=2)
        written = p | "Tasks" >> beam.Create(tasks) | sink
        files = written.shards | "File" >> beam.MapTuple(lambda split, info: (split, info.file))
        counts = (
            written.counted
            | "Number" >> beam.MapTuple(lambda split, counted: ((split, counted.what), counted.number))
            | "Sum" >> beam.CombinePerKey(sum)
            | "Some" >> beam.Filter(lambda total: total[1])
        )
        expected = [(("val", metric), number) for metric, number in usual.counted.items() if number]
        assert_that(files, equal_to([("val", name) for name in names]), "Files")
        assert_that(counts, equal_to(expected), "Counted")
        rejected = written.rejected | "Rejects" >> beam.FlatMap(rejects_in)
        assert_that(rejected, equal_to([("val", reject) for reject in usual.rejected]), "Rejected")
    state = tmp_path / "out" / ".recordmill-val"
    assert {path.name for path in state.iterdir()} - {".index"} == set(names)
    for name in [] if gzip else names:
        assert (state / ".index" / f"{name}.idx").read_bytes() == index_of(read(state / name))
    records = [record for name in names for record in read(tmp_path / "out" / ".recordmill-val" / name)]
    assert sorted(records) == sorted(read(tmp_path / "usual" / FILE))


@pytest.mark.parametrize("name", ["coco-val.tfrecord-00000-of-00002", "coco-val.tfrecord-00000-of-00002.gz"])
def test_a_shard_is_described_by_what_is_in_its_file(tmp_path, name):
    with tf.io.TFRecordWriter(str(tmp_path / name), "GZIP" if name.endswith(".gz") else "") as writer:
        for record in (b"one", b"two", b""):
            writer.write(record)
    data = (tmp_path / name).read_bytes()
    progress.reset()
    info, counted = describe_shard(str(tmp_path / name), LABELS, LAYOUTS["table"])
    index = msgspec.UNSET if name.endswith(".gz") else index_info([b"one", b"two", b""])
    assert info == ShardInfo(name, 3, len(data), crc32c(data), hashlib.sha256(data).hexdigest(), index)
    assert (tmp_path / ".index" / f"{name}.idx").exists() != name.endswith(".gz")
    assert counted == Counted(Statistics(3), None)
    assert progress.snapshot().shards_done == 1


def test_images_are_taken_as_many_at_once_as_their_maker_wants(tmp_path, tasks, monkeypatch):
    """So that its threads, or its model, have work."""
    taken = []
    start = EncodePictures.start
    monkeypatch.setattr(EncodePictures, "images_at_once", 2)
    monkeypatch.setattr(
        EncodePictures, "start", lambda maker, of: lambda given: taken.append(len(given)) or start(maker, of)(given)
    )
    with beam.Pipeline(FnApiRunner(), PipelineOptions([])) as p:
        labels, table = p | "Labels" >> beam.Create([LABELS]), p | "Table" >> beam.Create([TABLE])
        checked = p | "Checked" >> beam.Create([True])
        p | "Tasks" >> beam.Create(tasks) | WriteWithBeamSink(checked, labels, table, recipe(tmp_path), 3, "val", 1)
    assert sorted(taken) == [1, 2]
