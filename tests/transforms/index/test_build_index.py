import gzip

import pytest
import tensorflow as tf

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.transforms.index.read_index import build_index, check_indexable
from tests.transforms.show.records import framed

RECORDS = [b"the first", b"the second " * 50, b"", b"the last"]
WHOLE = framed(*RECORDS)
SECOND = 16 + len(RECORDS[0])


def lengths(path, **more) -> list[int]:
    return build_index(str(path), **more).lengths.tolist()


def test_lengths_are_those_of_tensorflow_s_records_with_their_frames(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "x")) as writer:
        for record in RECORDS:
            writer.write(record)
    assert lengths(tmp_path / "x") == [len(record) + 16 for record in RECORDS]


def test_a_file_without_records(tmp_path):
    (tmp_path / "x").touch()
    check_indexable(str(tmp_path / "x"))
    assert lengths(tmp_path / "x") == []


@pytest.mark.parametrize("records", [3, 4096, 10_000])
def test_all_records_that_are_passed_are_told(tmp_path, records):
    (tmp_path / "x").write_bytes(framed(b"") * records)
    told = []
    lengths(tmp_path / "x", read=told.append)
    assert sum(told) == records
    assert len(told) <= 4


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (gzip.compress(WHOLE, mtime=0), "GZIP"),
        (b"\xff\xd8\xff" * 10, "is no TFRecord file"),
        (b"short", "is no TFRecord file"),
    ],
)
def test_what_is_no_plain_tfrecord_file_is_refused_beforehand(tmp_path, data, told):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(ConfigError, match=f"{tmp_path}/x is .*{told.removeprefix('is ')}"):
        lengths(tmp_path / "x")
    with pytest.raises(ConfigError, match=told):
        check_indexable(str(tmp_path / "x"))


@pytest.mark.parametrize(
    ("data", "reason", "record", "offset"),
    [
        (WHOLE[:-1], "truncated", 3, len(WHOLE) - 24),
        (WHOLE[: SECOND + 5], "truncated", 1, SECOND),
        (WHOLE[: SECOND - 1], "truncated", 0, 0),
        (WHOLE[:SECOND] + b"\xff" + WHOLE[SECOND + 1 :], "length_crc", 1, SECOND),
    ],
)
def test_a_damaged_record_is_told_by_its_offset(tmp_path, data, reason, record, offset):
    (tmp_path / "x").write_bytes(data)
    check_indexable(str(tmp_path / "x"))
    with pytest.raises(RecordError, match=f"{tmp_path}/x: record {record} at byte {offset}: ") as raised:
        lengths(tmp_path / "x")
    assert (raised.value.reason, raised.value.offset) == (reason, offset)
