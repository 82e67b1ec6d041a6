"""Tables are read as TensorFlow's users read them, and a model learns from them."""

import csv
import random

import pytest

import recordmill as package
from recordmill import decode_manifest, parse_spec
from recordmill.launch.cli import main

ROWS = 400


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Rows whose species follows from two of their numbers."""
    folder = tmp_path_factory.mktemp("table")
    rng = random.Random(0)
    with (folder / "rows.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "length", "width", "note", "species"])
        for number in range(ROWS):
            species = number % 3
            note = "" if number % 5 else "seen"
            table.writerow([number, rng.gauss(species, 0.2), rng.gauss(-species, 0.2), note, "abc"[species]])
    flags = ["--label", "species", "--key", "id", "--split", "train=0.8,val=0.2", "--gzip", "--num-shards", "2"]
    assert (
        main(["convert", str(folder / "rows.csv"), "--format", "table", "--output", str(folder / "out"), *flags]) == 0
    )
    return folder / "out"


def batches(out, split: str):
    import tensorflow as tf

    manifest = decode_manifest((out / "manifest.json").read_bytes(), str(out))
    return tf.data.experimental.make_batched_features_dataset(
        str(out / f"*-{split}.tfrecord-*"),
        32,
        parse_spec(manifest.table),
        reader=lambda files: tf.data.TFRecordDataset(files, "GZIP"),
        label_key="species",
        num_epochs=1,
    )


def test_reader_of_batches_of_features(out):
    read = [number for features, _ in batches(out, "train") for number in features["id"].numpy().tolist()]
    read += [number for features, _ in batches(out, "val") for number in features["id"].numpy().tolist()]
    assert sorted(read) == list(range(ROWS))
    (features, _), *_ = batches(out, "val")
    notes = dict(zip(features["id"].numpy().tolist(), features["note"].to_list(), strict=True))
    assert all(note == ([] if number % 5 else [b"seen"]) for number, note in notes.items())
    assert sum(len(list(split.tensorflow())) for split in package.open(str(out)).splits.values()) == ROWS
