import gzip
import hashlib
import io
import random
import tarfile

import pytest
import tensorflow as tf

from recordmill.schemas.dataset.checks import Fault
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import LAYOUTS
from recordmill.schemas.shards import ShardInfo
from recordmill.transforms.containers.read_shards import LISTED_OF_REASON, FaultList, ManifestShard, readable_records
from recordmill.transforms.containers.tfrecord import TFRecordReader, open_records
from recordmill.transforms.runtime import progress
from tests.gcs_stand_in import Fault as ServerFault
from tests.gcs_stand_in import Kind
from tests.transforms.records.test_shard_index import RECORDS as FOUR
from tests.transforms.records.test_shard_index import SECOND, WHOLE
from tests.transforms.show.records import framed
from tests.transforms.storage.conftest import path_of

RECORDS = [b"", b"first", bytes(range(256)) * 9000, b"last"]


def write(path, records=RECORDS) -> bytes:
    """A shard as TensorFlow writes it; its bytes."""
    compression = "GZIP" if path.suffix == ".gz" else ""
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("x", lambda plain: plain),
        ("x.gz", gzip.compress),
        ("x.gz", lambda plain: gzip.compress(plain[:1000]) + gzip.compress(b"") + gzip.compress(plain[1000:])),
        ("x.gz", lambda plain: gzip.compress(plain) + bytes(3_000_000)),
    ],
    ids=["plain", "gzip", "several members", "zeros after it"],
)
@pytest.mark.parametrize("records", [RECORDS, []])
def test_records_size_and_digest(tmp_path, name, packed, records):
    data = packed(write(tmp_path / "plain", records))
    (tmp_path / name).write_bytes(data)
    reader = TFRecordReader(str(tmp_path / name))
    assert list(reader.records()) == records
    assert (reader.size, reader.sha256.hexdigest()) == (len(data), hashlib.sha256(data).hexdigest())


def test_gzip_file_cut_anywhere_is_error(tmp_path):
    data = write(tmp_path / "x.gz", [b"one", b"two"])
    for size in range(1, len(data)):
        (tmp_path / "x.gz").write_bytes(data[:size])
        with pytest.raises(RecordError) as caught:
            list(TFRecordReader(str(tmp_path / "x.gz")).records())
        assert caught.value.reason == "unreadable"


def test_gzip_file_with_flipped_bit_never_gives_other_records(tmp_path):
    whole = [b"one", b"two"]
    data = write(tmp_path / "x.gz", whole)
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << offset % 8
        (tmp_path / "x.gz").write_bytes(damaged)
        reader, records = TFRecordReader(str(tmp_path / "x.gz")), []
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
    shard = ManifestShard(str(tmp_path / "x"), "val", info, LAYOUTS["detection"], LabelMap(()), "tfrecord")
    progress.reset()
    faults = []
    records = list(readable_records(shard, TFRecordReader(shard.path), faults))
    assert len(records) == {"": 3, "a record": 2, "gone": 0}[damage]
    assert bool(faults) == (planned != 3 or bool(damage))
    now = progress.snapshot()
    assert (now.images_done, now.images_skipped, now.shards_done) == (done, skipped, 1)
    if not faults:
        assert now.bytes_done == len(data)


@pytest.mark.parametrize("kind", [Kind.CORRUPTED, Kind.STATUS])
def test_damage_is_fault_refusal_is_not(gcs, tmp_path, kind):
    gcs.put("x", write(tmp_path / "x"))
    gcs.faults.append(ServerFault(kind, "read", times=100, status=403))
    info = ShardInfo("x", len(RECORDS), 0, "crc", "")
    shard = ManifestShard(path_of("x"), "val", info, LAYOUTS["detection"], LabelMap(()), "tfrecord")
    found = []
    records = readable_records(shard, TFRecordReader(shard.path), found)
    if kind is Kind.STATUS:
        with pytest.raises(PermissionError):
            list(records)
    else:
        assert list(records) == []
    assert [fault.reason for fault in found] == ["unreadable"] * (kind is Kind.CORRUPTED)


def faults_of(reason: str, number: int) -> list[Fault]:
    return [Fault("a", record, reason, "") for record in range(number)]


def test_first_of_each_reason_are_listed_and_all_are_counted():
    one, other = FaultList(), FaultList()
    one.add(faults_of("class", LISTED_OF_REASON + 7))
    one.add(faults_of("mask", 2))
    other.add(faults_of("class", 3))
    other.add_listed(one.faults())
    found = other.faults()
    expected = faults_of("class", 3) + faults_of("class", LISTED_OF_REASON - 3) + faults_of("mask", 2)
    assert (list(found.listed), len(found)) == (expected, LISTED_OF_REASON + 12)


def read(path) -> tuple[list[bytes], Exception | None]:
    """The records up to the first fault, and the fault."""
    records = []
    try:
        for record in open_records(str(path)):
            records.append(record)
    except (ConfigError, RecordError) as error:
        return records, error
    return records, None


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["x.tfrecord", "x.tfrecord.gz", "anything"])
def test_gzip_is_known_by_content_and_not_by_name(tmp_path, name, packed):
    (tmp_path / name).write_bytes(gzip.compress(WHOLE) if packed else WHOLE)
    assert read(tmp_path / name) == (FOUR, None)


@pytest.mark.parametrize("packed", [False, True])
def test_wrong_checksum_is_named_by_its_offset(tmp_path, packed):
    damaged = bytearray(WHOLE)
    damaged[SECOND + 30] ^= 1
    (tmp_path / "x").write_bytes(gzip.compress(bytes(damaged)) if packed else bytes(damaged))
    records, error = read(tmp_path / "x")
    assert records == FOUR[:1]
    assert isinstance(error, RecordError)
    assert (error.reason, error.offset) == ("data_crc", SECOND)
    unpacked = " of the unpacked data" if packed else ""
    assert f"{tmp_path}/x: record 1 at byte {SECOND}{unpacked}: the checksum" in str(error)


def test_records_before_damage_of_gzip_stream_are_there(tmp_path):
    many = [random.Random(seed).randbytes(50_000) for seed in range(40)]
    packed = gzip.compress(b"".join(map(framed, many)))
    (tmp_path / "x").write_bytes(packed[:-100])
    records, error = read(tmp_path / "x")
    assert records == many[: len(records)]
    assert len(records) > 20
    assert f"after {len(records)} records its GZIP stream is damaged or truncated" in str(error)


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n" + b"pixels" * 9, b"short", gzip.compress(b"no records" * 9)],
    ids=["png", "short", "gzip"],
)
def test_not_a_tfrecord_file(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    records, error = read(tmp_path / "x")
    assert records == []
    assert isinstance(error, ConfigError)
    assert "is not a TFRecord file" in str(error)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar_is_named(tmp_path, mode):
    with tarfile.open(tmp_path / "x", mode) as archive:
        archive.addfile(tarfile.TarInfo("0.jpg"), io.BytesIO())
    records, error = read(tmp_path / "x")
    assert (records, type(error)) == ([], ConfigError)
    assert "x is a tar file, not a TFRecord file: tar -tf lists it" in str(error)
