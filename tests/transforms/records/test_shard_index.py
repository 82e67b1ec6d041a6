import gzip

import numpy as np
import pytest

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.transforms.records.shard_index import (
    build_index,
    check_indexable,
    decode_index,
    encode_index,
    index_lengths,
    index_shard,
)
from tests.transforms.show.records import framed


@pytest.mark.parametrize("lengths", [[], [16], [20, 17, 5_000_000_000, 16]])
def test_index_is_read_as_it_was_written(lengths):
    index = decode_index(encode_index(index_lengths(lengths)))
    assert index.lengths.tolist() == lengths
    assert index.bounds[:-1].tolist() == [sum(lengths[:each]) for each in range(len(lengths))]
    assert (index.records, index.size) == (len(lengths), sum(lengths))
    assert index.bounds.dtype == np.int64


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"0 20\n20 1", "last line is truncated"),
        (b"0 20\n20", "two numbers"),
        (b"0 20\n\n20 16\n", "lines"),
        (b"0 20\n 20\n", "two numbers"),
        (b"0 20 20\n", "lines"),
        (b"0\n", "lines"),
        (b"0 20\n-1 20\n", "lines"),
        (b"\x00\x01", "lines"),
        (b"0 20\n20 15\n", "record 1 has 15 bytes, but a frame alone has 16"),
        (b"0 20\n1000000000 16\n", "record 1 begins at byte 1,000,000,000, but the previous record ends at 20"),
        (b"16 20\n36 16\n", "record 0 begins at byte 16, but the previous record ends at 0"),
        (b"0 20\n36 16\n", "record 1 begins at byte 36"),
        (b"0 20\n20 99999999999999999999999\n", "record 1"),
        (b"0 9223372036854775807\n9223372036854775807 16\n", "record"),
    ],
)
def test_bad_index_is_refused_with_its_fault(data, told):
    with pytest.raises(ValueError, match=told):
        decode_index(data)


RECORDS = [b"the first", b"the second " * 50, b"", b"the last"]
WHOLE = framed(*RECORDS)
SECOND = 16 + len(RECORDS[0])


def lengths(path, **more) -> list[int]:
    return build_index(str(path), **more).lengths.tolist()


def test_a_file_without_records(tmp_path):
    (tmp_path / "x").touch()
    check_indexable(str(tmp_path / "x"))
    assert lengths(tmp_path / "x") == []


@pytest.mark.parametrize("records", [3, 4096, 10_000])
def test_all_records_passed_are_named(tmp_path, records):
    (tmp_path / "x").write_bytes(framed(b"") * records)
    told = []
    lengths(tmp_path / "x", read=told.append)
    assert sum(told) == records
    assert len(told) <= 4


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (gzip.compress(WHOLE, mtime=0), "GZIP"),
        (b"\xff\xd8\xff" * 10, "is not a TFRecord file"),
        (b"short", "is not a TFRecord file"),
    ],
)
def test_not_plain_tfrecord_file_is_refused(tmp_path, data, told):
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
def test_damaged_record_is_named_by_its_offset(tmp_path, data, reason, record, offset):
    (tmp_path / "x").write_bytes(data)
    check_indexable(str(tmp_path / "x"))
    with pytest.raises(RecordError, match=f"{tmp_path}/x: record {record} at byte {offset}: ") as raised:
        lengths(tmp_path / "x")
    assert (raised.value.reason, raised.value.offset) == (reason, offset)


def test_shard_with_damaged_record_gets_no_index(tmp_path):
    (tmp_path / "x").write_bytes(WHOLE[: SECOND + 20] + b"?" + WHOLE[SECOND + 21 :])
    with pytest.raises(RecordError, match=f"record 1 at byte {SECOND}: the checksum of the record's 550 bytes"):
        index_shard(str(tmp_path / "x"), None, lambda records: None)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
