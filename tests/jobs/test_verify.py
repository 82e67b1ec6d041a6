"""`recordmill verify` finds what is done to a finished data set."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.schemas.tfrecord import frame
from tests.conftest import coco_flags, shard_bytes

SHARD = "coco-train.tfrecord-00001-of-00003"


@pytest.fixture
def folder(copy_converted, tmp_path) -> Path:
    """A whole data set of three shards."""
    copy_converted(tmp_path / "out", "--num-shards", 3)
    return tmp_path / "out"


def records(path: Path) -> list[bytes]:
    return list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())


def rewrite(path: Path, all_records: list[bytes]) -> None:
    path.write_bytes(
        b"".join(piece for record in all_records for piece in (frame(record)[0], record, frame(record)[1]))
    )


def changed(record: bytes, feature: str, value: object) -> bytes:
    """A record in which one feature has another value."""
    example = tf.train.Example.FromString(record)
    kind = example.features.feature[feature].WhichOneof("kind")
    getattr(example.features.feature[feature], kind).value[:] = [value]
    return example.SerializeToString(deterministic=True)


def test_a_whole_data_set_passes(folder, recordmill):
    outcome = recordmill("verify", folder)
    assert outcome.code == 0
    assert "whole: every record read, parsed and decoded" in outcome.out


def test_a_sample_of_the_shards(folder, recordmill):
    """The others may be anything."""
    outcome = recordmill("verify", folder, "--check", "hashes", "--sample", "0.5")
    assert outcome.code == 0
    assert "no fault in the 2 of 3 shards that were read: every record read and parsed" in outcome.out


@pytest.mark.parametrize("place", [0, 500])
def test_a_flipped_bit(folder, recordmill, place):
    data = bytearray((folder / SHARD).read_bytes())
    data[place] ^= 4
    (folder / SHARD).write_bytes(data)
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert f"{SHARD} record 0: {'data_crc' if place else 'length_crc'}" in outcome.out


def records_before_damage(data: bytes) -> list[int]:
    """Offsets of the records that lie wholly before the last byte."""
    offsets, place = [], 0
    while place + 12 + int.from_bytes(data[place : place + 8], "little") + 4 < len(data):
        offsets.append(place)
        place += 12 + int.from_bytes(data[place : place + 8], "little") + 4
    return offsets


def test_a_flipped_bit_in_gzip(sample, tmp_path, recordmill):
    assert recordmill(*coco_flags(sample, tmp_path, "--gzip")).code == 0
    path = tmp_path / "coco-train.tfrecord-00000-of-00001.gz"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    outcome = recordmill("verify", tmp_path)
    assert outcome.code == 1
    assert path.name in outcome.out


def test_a_shard_that_is_cut(folder, recordmill):
    data = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(data[:-100])
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert f"{SHARD} record {len(records_before_damage(data))}: truncated" in outcome.out


def test_a_shard_that_is_cut_between_two_records(folder, recordmill):
    rewrite(folder / SHARD, records(folder / SHARD)[:-1])
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert f"{SHARD}: count" in outcome.out


def test_a_missing_shard(folder, recordmill):
    (folder / SHARD).unlink()
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert f"{SHARD}: missing" in outcome.out


def test_two_shards_swapped(folder, recordmill):
    paths = sorted(folder.glob("[!.]*.tfrecord-*"))[:2]
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert all(f"{path.name}: sha256" in outcome.out for path in paths)


def test_a_shard_of_another_run(folder, recordmill):
    foreign = folder / "coco-train.tfrecord-00004-of-00007"
    foreign.write_bytes(shard_bytes(folder)[SHARD])
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert f"{foreign.name}: unlisted" in outcome.out


def test_a_manifest_whose_counts_disagree(folder, recordmill):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["splits"]["train"]["annotations"]["captions"] += 1
    (folder / "manifest.json").write_text(json.dumps(manifest))
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert "manifest.json: count" in outcome.out


def test_a_record_that_contradicts_itself(folder, recordmill):
    """Whole as a file, but not what it should be."""
    first, second, *others = records(folder / SHARD)
    rewrite(folder / SHARD, [first, changed(second, "image/height", 7), *others])
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert f"{SHARD} record 1: image_size" in outcome.out
    assert f"{SHARD} record 0: " not in outcome.out


def test_a_record_without_a_feature(folder, recordmill):
    all_records = records(folder / SHARD)
    example = tf.train.Example.FromString(all_records[2])
    del example.features.feature["image/encoded"]
    rewrite(folder / SHARD, [*all_records[:2], example.SerializeToString(), *all_records[3:]])
    outcome = recordmill("verify", folder)
    assert outcome.code == 1
    assert f"{SHARD} record 2: schema" in outcome.out


def test_a_folder_that_is_no_data_set(tmp_path, recordmill):
    outcome = recordmill("verify", tmp_path)
    assert outcome.code == 2
    assert "has no manifest.json" in outcome.err


def test_a_manifest_that_points_elsewhere(folder, recordmill):
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace(SHARD, f"../{SHARD}"))
    outcome = recordmill("verify", folder)
    assert outcome.code == 2
    assert "is not the name of a shard of its split" in outcome.err


def test_an_image_that_ends_in_zeros_is_whole(tmp_path, recordmill):
    from tests.conftest import CATEGORIES, convert, draw_jpeg, image_row, write_coco

    draw_jpeg(tmp_path / "images" / "a.jpg")
    with open(tmp_path / "images" / "a.jpg", "ab") as file:
        file.write(bytes(100))
    instances = write_coco(tmp_path, [image_row(1, "a.jpg")], [], CATEGORIES)
    assert convert(recordmill, tmp_path, instances).code == 0
    assert recordmill("verify", tmp_path / "out").code == 0
