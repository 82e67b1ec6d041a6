import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path

import google_crc32c
import msgspec
import pytest
import tensorflow as tf

from recordmill.schemas.dataset.manifest import FORMAT
from recordmill.schemas.errors import JobError
from recordmill.schemas.inputs.images import ImageRules
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION
from recordmill.schemas.shards import IndexInfo, ShardInfo, ShardKey
from recordmill.transforms.containers.container import Contents
from recordmill.transforms.shards.encode_images import EncodeImages
from recordmill.transforms.shards.shard_file import ShardFile, ShardRecipe
from recordmill.transforms.storage.interface import crc32c_text

KEY = ShardKey("train", 1, 3)
STATE = ".recordmill-train"


def index_of(records: Sequence[bytes]) -> bytes:
    """Index of a file of these records, as tfrecord2idx of DALI and PyPI's tfrecord write it."""
    lines, offset = [], 0
    for record in records:
        lines.append(f"{offset} {len(record) + 16}\n")
        offset += len(record) + 16
    return "".join(lines).encode()


def crc32c(data: bytes) -> str:
    return crc32c_text(google_crc32c.Checksum(data))


def index_info(records: Sequence[bytes]) -> IndexInfo:
    index = index_of(records)
    return IndexInfo(len(index), crc32c(index))


RECORDS = [b"", b"first", bytes(range(256)) * 10_000, b"last"]


def read(path: Path) -> list[bytes]:
    compression = "GZIP" if path.suffix == ".gz" else ""
    return list(tf.data.TFRecordDataset(str(path), compression).as_numpy_iterator())


CONTENTS = Contents(DETECTION, LabelMap(()))
MAKER = EncodeImages("clip", ImageRules("decode"))


def recipe(tmp_path, **changed) -> ShardRecipe:
    made = ShardRecipe(str(tmp_path / "out"), "coco", "detection", False, 0, MAKER, FORMAT)
    return msgspec.structs.replace(made, **changed)


def write(recipe: ShardRecipe, records: list[bytes] = RECORDS) -> ShardFile:
    with ShardFile(recipe, KEY, CONTENTS) as shard:
        for record in records:
            shard.append(record[:2], b"", record[2:])
    return shard


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, "coco-train.tfrecord-00001-of-00003"),
        ({"gzip": True}, "coco-train.tfrecord-00001-of-00003.gz"),
        ({"layout": "keras"}, "file_01-{examples}.tfrec"),
        ({"layout": "keras", "gzip": True}, "file_01-{examples}.tfrec.gz"),
    ],
)
@pytest.mark.parametrize("records", [RECORDS, []])
def test_tensorflow_reads_file_and_size_and_digest_are_its(tmp_path, changed, name, records):
    shard = write(recipe(tmp_path, **changed), records)
    name = name.format(examples=len(records))
    assert [path.name for path in (tmp_path / "out").iterdir()] == [STATE]
    names = {name} if changed.get("gzip") else {name, ".index"}
    assert {path.name for path in (tmp_path / "out" / STATE).iterdir()} == names
    data = (tmp_path / "out" / STATE / name).read_bytes()
    assert read(tmp_path / "out" / STATE / name) == records
    index = msgspec.UNSET if changed.get("gzip") else index_info(records)
    assert shard.info == ShardInfo(name, len(records), len(data), crc32c(data), hashlib.sha256(data).hexdigest(), index)
    if not changed.get("gzip"):
        assert (tmp_path / "out" / STATE / ".index" / f"{name}.idx").read_bytes() == index_of(records)


def test_gzip_file_has_plain_bytes_without_time_and_name(tmp_path):
    plain = write(recipe(tmp_path)).info.file
    data = (tmp_path / "out" / STATE / write(recipe(tmp_path, gzip=True)).info.file).read_bytes()
    assert gzip.decompress(data) == (tmp_path / "out" / STATE / plain).read_bytes()
    assert data[3:8] == bytes(5)  # flags: no name; modification time: none


@pytest.mark.parametrize("layout", ["detection", "keras"])
def test_file_is_not_there_before_it_is_whole(tmp_path, layout):
    with ShardFile(recipe(tmp_path, layout=layout), KEY, CONTENTS) as shard:
        shard.append(bytes(3_000_000))
        assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == []
    assert {path.name for path in (tmp_path / "out" / STATE).iterdir()} == {shard.info.file, ".index"}
    assert read(tmp_path / "out" / STATE / shard.info.file) == [bytes(3_000_000)]


def test_container_that_cannot_write_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(JobError, match="TMPDIR"):
        ShardFile(recipe(tmp_path, container="arrayrecord"), KEY, CONTENTS)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_file_broken_off_leaves_no_trace(tmp_path, error):
    def break_off():
        with ShardFile(recipe(tmp_path, gzip=True), KEY, CONTENTS) as shard:
            shard.append(bytes(3_000_000))
            raise error

    with pytest.raises(error):
        break_off()
    assert list((tmp_path / "out").iterdir()) == []
