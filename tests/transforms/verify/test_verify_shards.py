import hashlib
from concurrent.futures import ThreadPoolExecutor

import apache_beam as beam
import msgspec
import pytest
import tensorflow as tf
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.dataset.checks import Fault, Faults, ShardCheck
from recordmill.schemas.shards import IndexInfo, ShardInfo
from recordmill.transforms.containers.read_shards import readable_records
from recordmill.transforms.records.shard_index import index_shard
from recordmill.transforms.verify import verify_shards
from recordmill.transforms.verify.check_records import RecordChecker
from recordmill.transforms.verify.verify_shards import ShardToVerify, VerifyShard, verify_shard
from tests.beam_pipeline import Pipeline
from tests.transforms.verify.test_check_records import LABELS, LAYOUTS, record, values  # noqa: F401

TABLE = LAYOUTS["plain"]
WRONG = {"objects.class_index": [1, 1]}


def shard(path, records: list[bytes]) -> ShardToVerify:
    """A shard as TensorFlow writes it, and what the manifest says of it."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record_ in records:
            writer.write(record_)
    data = path.read_bytes()
    info = ShardInfo(path.name, len(records), len(data), "crc", hashlib.sha256(data).hexdigest())
    return ShardToVerify(str(path), "val", info, TABLE, LABELS, "tfrecord", True)


def verify(expected: ShardToVerify) -> ShardCheck:
    with ThreadPoolExecutor(2) as pool:
        return verify_shard(expected, pool, 2)


def listed_faults(check: ShardCheck) -> list[tuple[str, int | None, str]]:
    return [(fault.file, fault.record, fault.reason) for fault in check.faults.listed]


@pytest.fixture
def good(values) -> bytes:  # noqa: F811
    """A record of two objects."""
    return record(values, "plain")


@pytest.fixture
def bad(values) -> bytes:  # noqa: F811
    """Record whose label differs from the class of its text."""
    return record(values, "plain", **WRONG)


def test_counts_and_faults_of_records(tmp_path, good, bad):
    expected = shard(tmp_path / "a", [good] * 9 + [bad, good, bad])
    check = verify(expected)
    assert msgspec.structs.replace(check, faults=Faults()) == ShardCheck(
        "val", "a", 12, 24, 10 * len(good) + 2 * len(bad), expected.info.bytes, Faults()
    )
    assert listed_faults(check) == [("a", 9, "class"), ("a", 11, "class")]


def test_damage_is_named_after_faults_of_records_before_it(tmp_path, good, bad):
    expected = shard(tmp_path / "a", [good, bad, good, good])
    data = bytearray((tmp_path / "a").read_bytes())
    data[-1] ^= 1
    (tmp_path / "a").write_bytes(data)
    check = verify(expected)
    assert (check.examples, check.objects) == (3, 6)
    assert listed_faults(check) == [("a", 1, "class"), ("a", 3, "data_crc")]


def test_box_that_was_kept_may_lie_outside(tmp_path, values):  # noqa: F811
    expected = shard(tmp_path / "a", [record(values, "plain", **{"objects.xmax": [1.5, 1.0]})])
    assert listed_faults(verify(expected)) == [("a", 0, "box_range")]
    assert listed_faults(verify(msgspec.structs.replace(expected, boxes_inside=False))) == []


def test_a_shard_that_is_not_there(tmp_path, good):
    expected = shard(tmp_path / "a", [good])
    (tmp_path / "a").unlink()
    missing = Fault("a", None, "missing", "no such file")
    assert verify(expected) == ShardCheck("val", "a", 0, 0, 0, 0, Faults((missing,)))


def test_a_shard_is_not_held_in_memory(tmp_path, good, monkeypatch):
    read, ahead, check = [], [], RecordChecker.__call__
    monkeypatch.setattr(
        verify_shards,
        "readable_records",
        lambda *of: (read.append(record_) or record_ for record_ in readable_records(*of)),
    )
    monkeypatch.setattr(RecordChecker, "__call__", lambda *of: ahead.append(len(read) - len(ahead)) or check(*of))
    assert verify(shard(tmp_path / "a", [good] * 100)).examples == 100
    assert max(ahead) < 50


def test_index_is_that_of_shard(tmp_path, good):
    expected = shard(tmp_path / "a", [good] * 3)
    assert listed_faults(verify(expected)) == []
    listed = msgspec.structs.replace(expected, info=msgspec.structs.replace(expected.info, index=IndexInfo(1, "")))
    assert listed_faults(verify(listed)) == [(".index/a.idx", None, "missing")]
    index_shard(str(tmp_path / "a"), None, lambda records: None)
    assert listed_faults(verify(expected)) == listed_faults(verify(listed)) == []
    index = tmp_path / ".index" / "a.idx"
    index.write_bytes(index.read_bytes()[:-1] + b"7\n")
    assert listed_faults(verify(expected)) == [(".index/a.idx", None, "index")]
    index.unlink()
    index.mkdir()  # as unreadable as a damaged object of a bucket
    assert listed_faults(verify(expected)) == [(".index/a.idx", None, "index")]
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])
    assert ("a", 2, "truncated") in listed_faults(verify(expected))
    assert ".index/a.idx" not in {file for file, _, _ in listed_faults(verify(expected))}


def test_transform_checks_each_shard(tmp_path, good):
    shards = [shard(tmp_path / name, [good] * number) for name, number in (("a", 1), ("b", 0))]
    with Pipeline() as p:
        checks = p | beam.Create(shards) | beam.ParDo(VerifyShard(2, 2))
        assert_that(checks, equal_to(list(map(verify, shards))))
