"""Whole jobs with `--container arrayrecord`: the records of the same job as TFRecord files, through every verb."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import recordmill as library
from recordmill.schemas.containers import CONTAINERS
from recordmill.transforms.containers.container import Contents, container_of
from tests.conftest import coco_flags, every_kind
from tests.faults.warm_process import Command, write_in_forked_processes_only
from tests.tiny_models import saved, tiny

pytest.importorskip("array_record")

CONTAINER = ("--container", "arrayrecord")
SHARD = "coco-train.array_record-00001-of-00003"


@pytest.fixture
def out(tmp_path, copy_converted) -> Path:
    """Three shards of the sample."""
    copy_converted(tmp_path / "out", "--num-shards", 3, *CONTAINER)
    return tmp_path / "out"


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.array_record-*"))}


def raw_records(folder: Path) -> list[bytes]:
    manifest = library.decode_manifest((folder / "manifest.json").read_bytes(), "")
    container, contents = container_of(manifest.container), Contents(manifest.table, manifest.labels)
    paths = [str(folder / shard.file) for split in manifest.splits.values() for shard in split.shards]
    return [record for path in paths for record in container.read(path, contents).records()]


def assert_equal_values(one: Iterator[dict], other: Iterator[dict]) -> None:
    for left, right in zip(one, other, strict=True):
        assert left.keys() == right.keys()
        for name, value in left.items():
            assert np.array_equal(value, right[name]), name


@pytest.fixture(params=["detection", "keras", "tfds", "classification", "table", "features"])
def flags(request, sample, tmp_path) -> list[object]:
    """A job of each layout."""
    table = tmp_path / "rows.csv"
    table.write_text(
        "".join(["id,kind,price\n", *(f"{number},{'ab'[number % 2]},{number / 7}\n" for number in range(50))])
    )
    images = ["--format", "folder", sample.classes, "--max-rejects", 0.2]
    jobs = {
        "detection": [*every_kind(sample), "--masks", "both"],
        "keras": [*every_kind(sample)[:4], "--max-rejects", 0.2, "--layout", "keras"],
        "tfds": [*every_kind(sample)[:4], "--max-rejects", 0.2, "--layout", "tfds"],
        "classification": [*images, "--split", "train=0.7,val=0.3"],
        "table": [table, "--label", "kind"],
        "features": [*images, "--model", saved(tiny(), tmp_path / "tiny.keras")] if request.param == "features" else [],
    }
    return ["convert", *jobs[request.param], "--num-shards", 2, "--output"]


def test_records_and_values_of_every_layout_are_those_of_tfrecords(flags, tmp_path, recordmill):
    for name, container in (("records", ()), ("arrays", CONTAINER)):
        outcome = recordmill(*flags, tmp_path / name, *container)
        assert outcome.code == 0, outcome
    assert raw_records(tmp_path / "records") == raw_records(tmp_path / "arrays")
    verified = recordmill("verify", tmp_path / "arrays")
    assert verified.code == 0, verified
    records, arrays = library.open(tmp_path / "records"), library.open(tmp_path / "arrays")
    for split in records:
        one, other = records[split], arrays[split]
        assert len(one) == len(other) > 0
        numbers = range(len(one))
        assert_equal_values(one.numpy(), other.numpy())
        assert_equal_values((one[number] for number in numbers), (other[number] for number in numbers))
        assert one.read(numbers[::-1]) == other.read(numbers[::-1])
        source, same = one.grain(), other.grain()
        assert_equal_values((source[number] for number in numbers), (same[number] for number in numbers))


def test_tensorflow_s_values_come_from_a_generator(out, tmp_path, copy_converted):
    copy_converted(tmp_path / "records", "--num-shards", 3)
    keys = ["image_id", "boxes", "labels"]
    one, other = (library.open(folder)["train"] for folder in (tmp_path / "records", out))
    assert_equal_values(one.tensorflow(keys=keys).as_numpy_iterator(), other.tensorflow(keys=keys).as_numpy_iterator())


def test_files_and_names(out):
    assert list(shards(out)) == [f"coco-train.array_record-0000{number}-of-00003" for number in range(3)]
    assert not (out / ".index").exists()
    assert json.loads((out / "manifest.json").read_text())["container"] == "arrayrecord"
    assert json.loads((out / "dataset_info.json").read_text())["fileFormat"] == "array_record"


@pytest.mark.parametrize("verb", [["show", "--index", 3], ["report"], ["verify", "--check", "decode"]])
def test_verbs(out, recordmill, verb):
    outcome = recordmill(verb[0], out, *verb[1:])
    assert outcome.code == 0, outcome


def test_extracted_files_are_those_of_tfrecords(out, tmp_path, copy_converted, recordmill):
    copy_converted(tmp_path / "records", "--num-shards", 3)
    for folder in ("records", "out"):
        assert recordmill("extract", tmp_path / folder, tmp_path / f"{folder}-images").code == 0
    one, other = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (tmp_path / "records-images", tmp_path / "out-images")
    )
    assert one == other
    assert len(one) > 20


def test_index_is_not_needed(out, recordmill):
    outcome = recordmill("index", out)
    assert (outcome.code, outcome.err.strip().splitlines()[-1].partition(": ")[2]) == (
        2,
        f"{out}/coco-train.array_record-00000-of-00003: arrayrecord files have no index; records are read by number "
        "without one",
    )


def test_deleted_shard_is_written_again(out, sample, recordmill):
    first = shards(out)
    (out / SHARD).unlink()
    outcome = recordmill("verify", out)
    assert (outcome.code, SHARD in outcome.out + outcome.err) == (1, True)
    outcome = recordmill(*coco_flags(sample, out, "--num-shards", 3, *CONTAINER))
    assert outcome.code == 0, outcome
    assert shards(out) == first


def flip_a_record(shard: Path) -> None:
    data = bytearray(shard.read_bytes())
    data[1000] ^= 1
    shard.write_bytes(data)


def flip_the_padding(shard: Path) -> None:
    """A byte that no record has, and no checksum of the format."""
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)


def swap_with_neighbour(shard: Path) -> None:
    other = shard.with_name(SHARD.replace("00001", "00002", 1))
    data = other.read_bytes()
    other.write_bytes(shard.read_bytes())
    shard.write_bytes(data)


def write_foreign(shard: Path) -> None:
    writer = pytest.importorskip("array_record.python.array_record_module").ArrayRecordWriter(
        str(shard), "group_size:1"
    )
    writer.write(b"not a tf.Example")
    writer.close()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_a_record, "record 0: data_crc: array_record cannot read it: chunk data hash mismatch"),
        (flip_the_padding, "sha256"),
        (lambda shard: shard.write_bytes(shard.read_bytes()[:-1000]), "unreadable: array_record cannot open it"),
        (lambda shard: shard.write_bytes(b""), "unreadable: array_record cannot open it"),
        (swap_with_neighbour, "sha256"),
        (write_foreign, "sha256"),
        (lambda shard: shutil.copy(shard, shard.with_name("coco-train.array_record-00003-of-00004")), "unlisted"),
    ],
    ids=["flip", "flip of padding", "cut", "empty", "swap", "foreign", "unlisted"],
)
def test_verify_finds_damage(out, recordmill, damage, message):
    damage(out / SHARD)
    outcome = recordmill("verify", out)
    assert outcome.code == 1
    assert message in outcome.out + outcome.err


def test_forked_processes_write_the_same_bytes(sample, tmp_path):
    commands = {}
    for name, disturbance in (("forked", write_in_forked_processes_only), ("here", None)):
        more = ["--num-shards", 8, *CONTAINER, *([] if disturbance else ["--workers", 1])]
        command = Command(coco_flags(sample, tmp_path / name, *more), tmp_path / f"{name}-log", disturbance=disturbance)
        assert command.end(120).code == 0, command
        commands[name] = shards(tmp_path / name)
    assert commands["forked"] == commands["here"]
    assert len(commands["here"]) == 8


def test_in_bucket(gcs, sample, out, recordmill):
    outcome = recordmill(*coco_flags(sample, "gs://bucket/out", "--num-shards", 3, *CONTAINER))
    assert outcome.code == 0, outcome
    objects = gcs.objects()
    assert {name: objects[f"out/{name}"] for name in shards(out)} == shards(out)
    outcome = recordmill("verify", "gs://bucket/out")
    assert outcome.code == 0, outcome
    split = library.open("gs://bucket/out")["train"]
    assert split.read([5, 0]) == library.open(out)["train"].read([5, 0])


def test_without_extra_no_target_is_claimed(out, tmp_path, recordmill, monkeypatch):
    monkeypatch.setattr("recordmill.schemas.containers.find_spec", lambda name: None)
    outcome = recordmill("extract", out, tmp_path / "images")
    assert outcome.code == 2
    assert outcome.err.startswith("recordmill: Container arrayrecord needs the extra arrayrecord")
    assert not (tmp_path / "images").exists()


def test_without_the_extra_one_sentence(sample, tmp_path, recordmill, monkeypatch):
    monkeypatch.setattr("recordmill.schemas.containers.find_spec", lambda name: None)
    assert not CONTAINERS["arrayrecord"].is_installed
    outcome = recordmill(*coco_flags(sample, tmp_path / "out", *CONTAINER))
    assert (outcome.code, outcome.err) == (
        2,
        'recordmill: --container arrayrecord needs the extra arrayrecord. Run: pip install "recordmill[arrayrecord]"\n',
    )
    assert not (tmp_path / "out").exists()
