import gzip
import random

import pytest

from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.transforms.records.shard_reader import open_records
from tests.transforms.show.records import framed

RECORDS = [b"the first", b"the second " * 50, b"", b"the last"]
WHOLE = framed(*RECORDS)
SECOND = 16 + len(RECORDS[0])


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
    assert read(tmp_path / name) == (RECORDS, None)


@pytest.mark.parametrize("packed", [False, True])
def test_a_wrong_checksum_is_told_by_its_offset(tmp_path, packed):
    damaged = bytearray(WHOLE)
    damaged[SECOND + 30] ^= 1
    (tmp_path / "x").write_bytes(gzip.compress(bytes(damaged)) if packed else bytes(damaged))
    records, error = read(tmp_path / "x")
    assert records == RECORDS[:1]
    assert isinstance(error, RecordError)
    assert (error.reason, error.offset) == ("data_crc", SECOND)
    unpacked = " of what it unpacks to" if packed else ""
    assert f"{tmp_path}/x: record 1 at byte {SECOND}{unpacked}: the checksum" in str(error)


def test_records_before_the_damage_of_a_gzip_stream_are_there(tmp_path):
    many = [random.Random(seed).randbytes(50_000) for seed in range(40)]
    packed = gzip.compress(b"".join(map(framed, many)))
    (tmp_path / "x").write_bytes(packed[:-100])
    records, error = read(tmp_path / "x")
    assert records == many[: len(records)]
    assert len(records) > 20
    assert f"after {len(records)} records its GZIP stream is damaged or cut" in str(error)


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n" + b"pixels" * 9, b"short", gzip.compress(b"no records" * 9)],
    ids=["png", "short", "gzip"],
)
def test_what_is_no_tfrecord_file(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    records, error = read(tmp_path / "x")
    assert records == []
    assert isinstance(error, ConfigError)
    assert "is no TFRecord file" in str(error)
