import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from recordmill.data_set import Split
from recordmill.schemas.errors import ConfigError, RecordError
from recordmill.transforms.records.example import ExampleWriter
from recordmill.transforms.records.shard_reader import open_records
from recordmill.transforms.records.tfrecord import frame
from tests.gcs_stand_in import running
from tests.recordmill.splits import CONTENTS, draw, split_of, write_split

RECORDS = 7
CLASSES = CONTENTS["classification"]


@pytest.fixture(params=[False, True], ids=["plain", "gzip"])
def split(request, tmp_path):
    return write_split(
        tmp_path, CLASSES, [draw(CLASSES, number) for number in range(RECORDS)], compressed=request.param
    )


def plain(folder):
    return write_split(folder, CLASSES, [draw(CLASSES, number) for number in range(RECORDS)])


def ids(records) -> list[int]:
    return [int(record["image_id"]) for record in records]


def test_records_in_order(split):
    assert len(split) == RECORDS
    assert ids(split) == ids(split.numpy()) == list(range(RECORDS))
    assert list(split.features) == list(next(iter(split)))
    assert split.features["image"].shape == ("height", "width", "3")


@pytest.mark.parametrize("number", [0, 2, RECORDS - 1, -1, -RECORDS, np.int64(3)])
def test_a_record_by_its_number(tmp_path, number):
    split = plain(tmp_path)
    place = range(RECORDS)[number]
    assert ids([split[number]]) == [place]
    assert split.raw(number) == ExampleWriter(CLASSES.table).write(draw(CLASSES, place).values)
    if place:
        assert ids([split[1:][place - 1], split[1:][place - RECORDS]]) == [place, place]


def test_records_in_any_order_at_once(tmp_path):
    split = plain(tmp_path)
    numbers = [5, 0, -1, 2, 0]
    assert split.read(numbers) == [split.raw(number) for number in numbers]
    assert split[2:6].read([3, 0]) == [split.raw(5), split.raw(2)]


@pytest.mark.parametrize("name", ["detection", "keras", "tfds", "float16", "rows", "pictures"])
def test_keys_are_what_is_decoded(tmp_path, name):
    contents = CONTENTS[name]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(3)])
    whole = split[2]  # decoded before keys are given, which another split must not inherit
    for key in split.features:
        (*_, found) = split.numpy(keys=[key])
        assert list(found) == [key]
        np.testing.assert_array_equal(found[key], whole[key])
    assert list(split.grain(keys=list(whole)[:2])[1]) == list(whole)[:2]
    assert list(split[2]) == list(whole)


@pytest.mark.parametrize("keys", ["image", [], ["image", "imagr"]])
def test_a_key_that_is_not_there(tmp_path, keys):
    with pytest.raises(ConfigError, match="give a list of image, "):
        plain(tmp_path).numpy(keys=keys)


@pytest.mark.parametrize("number", [RECORDS, -RECORDS - 1, 10**9])
def test_a_number_beyond_the_records(tmp_path, number):
    split = plain(tmp_path)
    with pytest.raises(IndexError, match=f"there is no record {number:,}; train has 7"):
        split[number]
    with pytest.raises(IndexError, match="there is no record 2; train has 2"):
        split[3:5].raw(2)


def test_compressed_shards_have_no_records_by_number(tmp_path):
    split = write_split(tmp_path, CLASSES, [draw(CLASSES, 0)], compressed=True)
    with pytest.raises(ConfigError, match="GZIP"):
        split[0]


@pytest.mark.parametrize(
    "part", [slice(1, 6), slice(None, -3), slice(2, 3), slice(-4, None), slice(5, 2), slice(0, 99)]
)
def test_slices_are_splits(split, part):
    found = split[part]
    assert ids(found) == list(range(RECORDS))[part]
    assert len(found) == len(range(RECORDS)[part])
    assert ids(found[1:]) == list(range(RECORDS))[part][1:]
    assert len(split) == RECORDS


def test_a_slice_with_a_step(split):
    with pytest.raises(ConfigError, match="step 2"):
        split[::2]


@pytest.mark.parametrize("hosts", [1, 2, 3, 9])
def test_hosts_read_each_record_once_and_as_many_as_the_others(split, hosts):
    parts = [split.pieces(host, hosts) for host in range(hosts)]
    numbers = [sum(piece.end - piece.first for piece in pieces) for pieces in parts]
    assert max(numbers) - min(numbers) <= 1
    places = [
        (piece.shard.info.file, number)
        for pieces in parts
        for piece in pieces
        for number in range(piece.first, piece.end)
    ]
    assert places == [(split.shards[0].info.file, n) for n in range(2)] + [
        (split.shards[2].info.file, n) for n in range(5)
    ]


def test_a_damaged_record(tmp_path):
    split = plain(tmp_path)
    path = tmp_path / split.shards[2].info.file
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    read = iter(split)
    assert ids(next(read) for _ in range(RECORDS - 1)) == list(range(RECORDS - 1))
    with pytest.raises(RecordError, match=r"00002-of-00003: record 4 at byte .* checksum"):
        next(read)


def test_a_record_that_cannot_be_decoded_is_named(tmp_path):
    values = draw(CLASSES, 1).values
    writer = ExampleWriter(CLASSES.table)
    records = [writer.write(each) for each in (values, values | {"image.encoded": b"none"})]
    with pytest.raises(RecordError, match=r"00000-of-00001: record 1 cannot be decoded"):
        list(split_of(tmp_path, CLASSES, [records]))
    with pytest.raises(RecordError, match=r"00000-of-00001: record 1 cannot be decoded"):
        split_of(tmp_path, CLASSES, [records])[1:][0]


def test_a_shard_that_is_gone_or_replaced(tmp_path):
    drawn = [draw(CLASSES, number) for number in range(RECORDS)]
    split = write_split(tmp_path, CLASSES, drawn)
    path = tmp_path / split.shards[2].info.file
    write_split(tmp_path, CLASSES, drawn[:-1])
    read = iter(split)
    assert ids([next(read), next(read)]) == [0, 1]
    with pytest.raises(RecordError, match=r"00002-of-00003 has .* bytes, where its manifest says"):
        next(read)
    path.unlink()
    with pytest.raises(RecordError, match="00002-of-00003: no such file"):
        list(type(split)("train", str(tmp_path), split.shards, CLASSES))


def put_other(path: Path) -> None:
    """Another shard of that name, of the same size, and with as many records of the same lengths."""
    data = path.read_bytes()
    records = [record.replace(b"image/class/label", b"image/class/other") for record in open_records(str(path))]
    new = path.with_name("new")
    new.write_bytes(b"".join(part for record in records for part in (frame(record)[0], record, frame(record)[1])))
    assert new.stat().st_size == len(data)
    assert new.read_bytes() != data
    os.utime(new, ns=(path.stat().st_mtime_ns + 1,) * 2)
    os.replace(new, path)


def in_another_process(split):
    return pickle.loads(pickle.dumps(split))[6]


@pytest.mark.parametrize(
    "read", [list, lambda split: list(split[1:6]), Split.tensorflow, lambda split: split[6], in_another_process]
)
def test_a_shard_that_is_replaced_by_one_of_the_same_size_is_an_error(tmp_path, read):
    split = plain(tmp_path)
    assert ids(split) == list(range(RECORDS))
    put_other(tmp_path / split.shards[2].info.file)
    for _ in range(2):
        with pytest.raises(RecordError, match=r"00002-of-00003 has changed since it was opened.*open the data set"):
            read(split)


def test_a_shard_that_is_replaced_while_it_is_read_is_read_on_as_it_was_and_not_again(tmp_path):
    split = plain(tmp_path)
    read = iter(split)
    found = [next(read) for _ in range(3)]
    put_other(tmp_path / split.shards[2].info.file)
    assert ids([*found, *read]) == list(range(RECORDS))
    with pytest.raises(RecordError, match="has changed since it was opened"):
        list(split)


def test_a_shard_that_is_written_over_while_it_is_read_is_an_error(tmp_path):
    records = [bytes([number]) * 100_000 for number in range(3)]
    split = split_of(tmp_path, CLASSES, [records])
    path = tmp_path / split.shards[0].info.file
    read = split.files.files[0].in_order()
    assert next(read) == records[0]
    before = path.stat().st_mtime_ns
    path.write_bytes(b"".join(part for record in records for part in (frame(record)[0], record, frame(record)[1])))
    os.utime(path, ns=(before + 1, before + 1))
    with pytest.raises(RecordError, match="has changed since it was opened"):
        list(read)


def test_a_shard_with_fewer_records_than_the_manifest_has(tmp_path):
    split = write_split(tmp_path, CLASSES, [draw(CLASSES, number) for number in range(2)], shards=1)
    info = type(split.shards[0].info)(**{**as_dict(split.shards[0].info), "examples": 3})
    longer = type(split)("train", str(tmp_path), [split.shards[0]._replace(info=info)], CLASSES)
    with pytest.raises(RecordError, match="it ends after 2 records, where the manifest has 3"):
        list(longer)


def as_dict(struct) -> dict:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def test_nothing_to_read(tmp_path):
    split = split_of(tmp_path, CLASSES, [])
    assert len(split) == 0
    assert list(split) == split.pieces() == []


def test_in_a_bucket_a_shard_of_the_same_size_is_told_by_its_checksum(tmp_path, monkeypatch):
    split = plain(tmp_path)
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        shards = [shard._replace(path=f"gs://bucket/out/{shard.info.file}") for shard in split.shards]
        for shard in shards:
            server.put(f"out/{shard.info.file}", (tmp_path / shard.info.file).read_bytes())
        remote = type(split)("train", "gs://bucket/out", shards, CLASSES)
        for one, other in zip(remote, split, strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in other)
        assert remote.read([6, 0, 3]) == split.read([6, 0, 3])
        server.put(f"out/{shards[2].info.file}", bytes(shards[2].info.bytes))
        with pytest.raises(RecordError, match="has changed since it was opened"):
            list(remote)
        with pytest.raises(RecordError, match=r"has the CRC-32C .* where its manifest says"):
            list(type(split)("train", "gs://bucket/out", shards, CLASSES))
