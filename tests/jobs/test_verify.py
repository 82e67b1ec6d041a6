"""`recordmill verify` finds what is done to a finished data set."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.transforms.records.tfrecord import frame
from tests.conftest import shard_bytes

FIRST, SHARD = (f"coco-train.tfrecord-0000{number}-of-00003" for number in range(2))
FOREIGN = "coco-train.tfrecord-00004-of-00007"


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


def flip(folder: Path, place: int) -> None:
    data = bytearray((folder / SHARD).read_bytes())
    data[place] ^= 4
    (folder / SHARD).write_bytes(data)


def cut(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-100])


def swap(folder: Path) -> None:
    data = shard_bytes(folder)
    for one, other in ((FIRST, SHARD), (SHARD, FIRST)):
        (folder / one).write_bytes(data[other])


def miscount(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["splits"]["train"]["annotations"]["captions"] += 1
    (folder / "manifest.json").write_text(json.dumps(manifest))


def contradict(folder: Path) -> None:
    """Whole as a file, but not what it should be."""
    first, second, *others = records(folder / SHARD)
    rewrite(folder / SHARD, [first, changed(second, "image/height", 7), *others])


def take_a_feature(folder: Path) -> None:
    all_records = records(folder / SHARD)
    example = tf.train.Example.FromString(all_records[2])
    del example.features.feature["image/encoded"]
    rewrite(folder / SHARD, [*all_records[:2], example.SerializeToString(), *all_records[3:]])


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda folder: None, []),
        (lambda folder: flip(folder, 0), [f"{SHARD} record 0: length_crc"]),
        (lambda folder: flip(folder, 500), [f"{SHARD} record 0: data_crc"]),
        (cut, [f"{SHARD} record 6: truncated"]),
        (lambda folder: rewrite(folder / SHARD, records(folder / SHARD)[:-1]), [f"{SHARD}: count", f"{SHARD}: sha256"]),
        (lambda folder: (folder / SHARD).unlink(), [f"{SHARD}: missing"]),
        (swap, [f"{FIRST}: sha256", f"{SHARD}: sha256"]),
        (lambda folder: (folder / FOREIGN).write_bytes(b""), [f"{FOREIGN}: unlisted"]),
        (miscount, ["manifest.json: count"]),
        (contradict, [f"{SHARD} record 1: image_size"]),
        (take_a_feature, [f"{SHARD} record 2: schema"]),
    ],
)
def test_each_damage_is_found_by_its_place_and_reason(folder, recordmill, damage, found):
    damage(folder)
    outcome = recordmill("verify", folder)
    assert outcome.code == bool(found), outcome
    assert [told for told in found if told not in outcome.out] == []


def test_a_sample_of_the_shards_and_a_manifest_that_points_elsewhere(folder, recordmill):
    cut(folder)
    assert recordmill("verify", folder, "--check", "hashes", "--sample", "0.1").code == 0
    assert recordmill("verify", folder, "--check", "hashes").code == 1
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace(SHARD, f"../{SHARD}"))
    assert recordmill("verify", folder).code == 2
