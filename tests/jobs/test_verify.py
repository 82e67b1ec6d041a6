"""`recordmill verify` finds what is done to a finished data set."""

from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.transforms.records.tfrecord import frame

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


def flip(folder: Path) -> None:
    data = bytearray((folder / SHARD).read_bytes())
    data[500] ^= 4
    (folder / SHARD).write_bytes(data)


def cut(folder: Path) -> None:
    (folder / SHARD).write_bytes((folder / SHARD).read_bytes()[:-100])


def contradict(folder: Path) -> None:
    """Whole as a file, but not what it should be."""
    first, second, *others = records(folder / SHARD)
    rewrite(folder / SHARD, [first, changed(second, "image/height", 7), *others])


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda folder: None, []),
        (flip, [f"{SHARD} record 0: data_crc"]),
        (contradict, [f"{SHARD} record 1: image_size"]),
    ],
)
def test_each_damage_is_found_by_its_place_and_reason(folder, recordmill, damage, found):
    damage(folder)
    outcome = recordmill("verify", folder)
    assert outcome.code == bool(found), outcome
    assert [told for told in found if told not in outcome.out] == []


def test_sample_of_shards_and_foreign_path(folder, recordmill):
    cut(folder)
    assert recordmill("verify", folder, "--check", "hashes", "--sample", "0.1").code == 0
    assert recordmill("verify", folder, "--check", "hashes").code == 1
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace(SHARD, f"../{SHARD}"))
    assert recordmill("verify", folder).code == 2
