import gzip
import hashlib

import pytest
import tensorflow as tf

from recordmill.schemas.errors import RecordError
from recordmill.schemas.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.records.read_shards import ManifestShard, readable_records
from recordmill.transforms.records.shard_reader import ShardReader
from recordmill.transforms.runtime import progress

RECORDS = [b"", b"first", bytes(range(256)) * 9000, b"last"]


def write(path, records=RECORDS) -> bytes:
    """A shard as TensorFlow writes it; its bytes."""
    compression = "GZIP" if path.suffix == ".gz" else ""
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


@pytest.mark.parametrize("name", ["x", "x.gz"])
@pytest.mark.parametrize("records", [RECORDS, []])
def test_records_size_and_digest(tmp_path, name, records):
    data = write(tmp_path / name, records)
    reader = ShardReader(str(tmp_path / name))
    assert list(reader.records()) == records
    assert (reader.size, reader.sha256.hexdigest()) == (len(data), hashlib.sha256(data).hexdigest())


def test_a_gzip_file_of_several_members(tmp_path):
    plain = write(tmp_path / "x")
    data = gzip.compress(plain[:1000]) + gzip.compress(b"") + gzip.compress(plain[1000:])
    (tmp_path / "x.gz").write_bytes(data)
    reader = ShardReader(str(tmp_path / "x.gz"))
    assert list(reader.records()) == RECORDS
    assert (reader.size, reader.sha256.hexdigest()) == (len(data), hashlib.sha256(data).hexdigest())


def test_zeros_after_a_gzip_stream_are_in_the_digest(tmp_path):
    data = write(tmp_path / "x.gz") + bytes(3_000_000)
    (tmp_path / "x.gz").write_bytes(data)
    reader = ShardReader(str(tmp_path / "x.gz"))
    assert list(reader.records()) == RECORDS
    assert (reader.size, reader.sha256.hexdigest()) == (len(data), hashlib.sha256(data).hexdigest())


def test_a_gzip_file_cut_anywhere_is_an_error(tmp_path):
    data = write(tmp_path / "x.gz", [b"one", b"two"])
    for size in range(1, len(data)):
        (tmp_path / "x.gz").write_bytes(data[:size])
        with pytest.raises(RecordError) as caught:
            list(ShardReader(str(tmp_path / "x.gz")).records())
        assert caught.value.reason == "unreadable"


def test_a_gzip_file_with_a_flipped_bit_never_gives_other_records(tmp_path):
    whole = [b"one", b"two"]
    data = write(tmp_path / "x.gz", whole)
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << offset % 8
        (tmp_path / "x.gz").write_bytes(damaged)
        reader, records = ShardReader(str(tmp_path / "x.gz")), []
        try:
            for record in reader.records():
                records.append(record)
        except RecordError:
            assert records == whole[: len(records)]
        else:
            assert records == whole  # a flipped bit in the header, as in its time, is no harm
            assert reader.sha256.digest() == hashlib.sha256(damaged).digest()


@pytest.mark.parametrize(
    ("planned", "damage", "done", "skipped"),
    [
        (3, "", 3, 0),
        (5, "", 5, 2),  # fewer than the manifest says
        (2, "", 2, 0),  # more
        (3, "a record", 3, 1),
        (3, "gone", 3, 3),
    ],
)
def test_progress_ends_with_all_that_was_planned(tmp_path, planned, damage, done, skipped):
    data = bytearray(write(tmp_path / "x", [b"one", b"two", b"three"]))
    data[-5] ^= damage == "a record"
    (tmp_path / "x").write_bytes(data)
    if damage == "gone":
        (tmp_path / "x").unlink()
    info = ShardInfo("x", planned, len(data), "crc", hashlib.sha256(data).hexdigest())
    shard = ManifestShard(str(tmp_path / "x"), "val", info, LAYOUTS["detection"], LabelMap(()))
    progress.reset()
    faults = []
    records = list(readable_records(shard, ShardReader(shard.path), faults))
    assert len(records) == {"": 3, "a record": 2, "gone": 0}[damage]
    assert bool(faults) == (planned != 3 or bool(damage))
    now = progress.snapshot()
    assert (now.images_done, now.images_skipped, now.shards_done) == (done, skipped, 1)
    if not faults:
        assert now.bytes_done == len(data)
