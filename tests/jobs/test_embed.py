"""`recordmill embed` from end to end: what a model makes of pictures becomes records, and what reads them."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import recordmill as package
from recordmill.launch.cli import main
from tests.conftest import draw_jpeg, manifest_of, read_examples, rejects_of, shard_bytes, staged_shards
from tests.jobs.folders import write_table
from tests.tiny_models import saved, tiny


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A model, and 21 pictures of two classes, of which two are broken."""
    folder = tmp_path_factory.mktemp("embed")
    saved(tiny(), folder / "tiny.keras")
    for number in range(21):
        path = folder / "images" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        draw_jpeg(path, 40 + number, 30, colour=(12 * number, 80, 200))
        if number in (4, 11):
            path.write_bytes(path.read_bytes()[:-60])
    return folder


def flags(inputs: Path, out: Path, *more: object) -> list[str]:
    given = ["--images", inputs / "images", "--model", inputs / "tiny.keras", "--batch", 4, "--max-rejects", 0.2]
    return ["embed", *map(str, [*given, "--output", out, *more])]


@pytest.fixture(scope="module")
def embedded(inputs, tmp_path_factory) -> Path:
    """In two splits, of several shards."""
    out = tmp_path_factory.mktemp("embedded") / "out"
    assert main(flags(inputs, out, "--split", "train=0.7,val=0.3", "--num-shards", 2)) == 0
    return out


def by_the_recipe(inputs: Path) -> dict[str, np.ndarray]:
    """One picture after the other."""
    model = keras.models.load_model(inputs / "tiny.keras")
    part = keras.Model(model.inputs, model.get_layer("patches").output)
    features = {}
    for path in sorted((inputs / "images").rglob("*.jpg")):
        if path.stem not in ("4", "11"):
            picture = keras.utils.load_img(path, target_size=(16, 12), interpolation="bilinear")
            features[f"{path.parent.name}/{path.name}"] = part.predict(np.asarray(picture)[None], verbose=0)[0]
    return features


def test_records_are_what_the_recipe_s_loop_would_write(inputs, embedded):
    expected = by_the_recipe(inputs)
    assert len(expected) == 19
    examples = [example for split in ("train", "val") for example in read_examples(embedded, split)]
    assert sorted(example["image/filename"][0].decode() for example in examples) == sorted(expected)
    for example in examples:
        name = example["image/filename"][0].decode()
        assert example["feature/shape"] == [4, 3, 5]
        np.testing.assert_allclose(example["feature"], expected[name].ravel(), rtol=1e-4, atol=1e-5)
        assert example["image/class/text"] == [name.split("/")[0].encode()]
        assert example["image/class/label"] == [("cat", "dog").index(name.split("/")[0])]
    rejected = {row["detail"].split("'")[1]: row["reason"] for row in rejects_of(embedded)}
    assert rejected == {"cat/4.jpg": "image_unreadable", "dog/11.jpg": "image_unreadable"}


def test_the_manifest_says_what_the_model_was(inputs, embedded):
    manifest = manifest_of(embedded)
    assert manifest["layout"] == "features"
    assert {each["name"]: each["shape"] for each in manifest["features"]}["feature"] == ["4", "3", "5"]
    split = manifest["splits"]["train"]
    options = split["recipe"]["options"]
    expected = {
        "batch": 4,
        "dtype": "float32",
        "feature_shape": ["4", "3", "5"],
        "input_size": "16x12",
        "layer": "patches",
        "layers": 3,
        "model": str(inputs / "tiny.keras"),
        "pool": "none",
        "preprocess": "none",
        "resize": "bilinear",
        "tolerance": 0.001,
        "weights": str(inputs / "tiny.keras"),
    }
    assert {name: options[name] for name in expected} == expected
    assert len(options["weights_sha256"]) == 64
    assert split["made_by"]["tensorflow"] == tf.__version__
    assert split["made_by"]["keras"] == keras.__version__
    written = sum(each["images"]["written"] for each in manifest["splits"].values())
    assert written == 19
    assert split["warnings"] == []


def test_a_run_that_was_stopped_goes_on(inputs, embedded, tmp_path, recordmill):
    """As after a kill: a shard is there, another is not; nor is the manifest."""
    out = tmp_path / "out"
    command = flags(inputs, out, "--split", "train=0.7,val=0.3", "--num-shards", 2)
    stopped = recordmill(*command, "--max-rejects", 0)
    assert stopped.code == 1
    lost = sorted(staged_shards(out).values())[0]
    lost.unlink()
    outcome = recordmill(*command)
    assert outcome.code == 0, outcome
    assert "finished shards are kept" in outcome.out
    assert shard_bytes(out) == shard_bytes(embedded)
    assert (out / "manifest.json").read_bytes() == (embedded / "manifest.json").read_bytes()


def test_another_model_under_the_same_name_is_no_way_to_go_on(inputs, tmp_path, recordmill):
    shutil.copytree(inputs, tmp_path / "in")
    assert recordmill(*flags(tmp_path / "in", tmp_path / "out")).code == 0
    other = tiny()
    other.set_weights([weight + 1 for weight in other.get_weights()])
    other.save(tmp_path / "in" / "tiny.keras")
    outcome = recordmill(*flags(tmp_path / "in", tmp_path / "out"))
    assert outcome.code == 2
    assert "sha256" in outcome.err


def test_a_data_set_to_train_on(inputs, embedded, tmp_path, recordmill):
    """Of half precision; a table gives the labels."""
    rows = [(f"{('cat', 'dog')[number % 2]}/{number}.jpg", f"class {number % 3}") for number in range(21)]
    labels = write_table(tmp_path / "labels.csv", [("path", "label"), *rows])
    more = ["--labels", labels, "--dtype", "float16", "--pool", "avg"]
    outcome = recordmill(*flags(inputs, tmp_path / "out", *more))
    assert outcome.code == 0, outcome
    expected = by_the_recipe(inputs)
    half, whole = (package.open(str(out))["train"].tensorflow() for out in (tmp_path / "out", embedded))
    assert half.element_spec["feature"] == tf.TensorSpec([5], tf.float16)
    assert whole.element_spec["feature"] == tf.TensorSpec([4, 3, 5], tf.float32)
    for example in half.as_numpy_iterator():
        mean = expected[example["file_name"].decode()].mean(axis=(0, 1))
        np.testing.assert_allclose(example["feature"], mean, rtol=1e-2, atol=1e-3)
        assert example["label"] == int(Path(example["file_name"].decode()).stem) % 3
    for example in whole.as_numpy_iterator():
        feature = expected[example["file_name"].decode()]
        np.testing.assert_allclose(example["feature"], feature, rtol=1e-4, atol=1e-5)
    assert recordmill("verify", tmp_path / "out").code == 0


def test_random_weights_are_warned_of_and_nothing_is_written_by_a_dry_run(inputs, tmp_path, recordmill, caplog):
    more = ["--model", "mobilenet-v2", "--weights", "none", "--input-size", "32x32", "--dry-run"]
    given = ["embed", "--images", inputs / "images", "--output", tmp_path / "out", "--max-rejects", 1]
    outcome = recordmill(*given, *more)
    assert outcome.code == 0, outcome
    assert "the features mean nothing" in caplog.text
    assert "21" in outcome.out
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--model", "no/such.keras"], "no .keras file that can be loaded"),
        (["--layer", "patch"], "near to it are patches"),
        (["--weights", "no.weights.h5"], "--weights no.weights.h5: no such file"),
        (["--input-size", "big"], "--input-size 'big' is no height and width"),
        (["--input-size", "64x64"], "takes 16x12 only"),
        (["--batch", "0"], "--batch 0 must be 1"),
    ],
)
def test_a_wrong_command_is_refused_before_anything_is_read(inputs, tmp_path, recordmill, monkeypatch, more, told):
    monkeypatch.chdir(tmp_path)
    outcome = recordmill(*flags(inputs, tmp_path / "out", *more))
    assert outcome.code == 2
    assert told in outcome.err
    assert not (tmp_path / "out").exists()


def test_beam_s_sink_writes_the_same_features(inputs, embedded, tmp_path, recordmill):
    """But for what floats differ by in other batches."""
    out = tmp_path / "out"
    outcome = recordmill(*flags(inputs, out, "--split", "train=0.7,val=0.3", "--num-shards", 2, "--writer", "beam"))
    assert outcome.code == 0, outcome
    for split in ("train", "val"):
        found, expected = (
            {each["image/filename"][0]: each for each in read_examples(of, split)} for of in (out, embedded)
        )
        assert found.keys() == expected.keys()
        for name, example in found.items():
            np.testing.assert_allclose(example.pop("feature"), expected[name].pop("feature"), rtol=1e-5, atol=1e-6)
            assert example == expected[name]
    assert sorted(map(str, rejects_of(out))) == sorted(map(str, rejects_of(embedded)))
    assert manifest_of(out)["splits"]["val"]["images"] == manifest_of(embedded)["splits"]["val"]["images"]
    assert recordmill("verify", out).code == 0


def test_there_are_no_pictures_to_extract(embedded, tmp_path, recordmill):
    outcome = recordmill("extract", embedded, tmp_path / "extracted")
    assert outcome.code == 2
    assert "records hold no images" in outcome.err


def test_verify_lets_the_model_make_features_again(inputs, embedded, tmp_path, recordmill):
    outcome = recordmill("verify", embedded, "--recompute", 3)
    assert outcome.code == 0, outcome
    splits = manifest_of(embedded)["splits"].values()
    number = sum(min(3, shard["examples"]) for split in splits for shard in split["shards"])
    assert f"{number} features made again: they differ by at most 0 of their largest number" in outcome.out
    draw_jpeg(tmp_path / "elsewhere" / "cat" / "0.jpg", 40, 30, colour=(250, 80, 0))
    outcome = recordmill("verify", embedded, "--recompute", 20, "--images", tmp_path / "elsewhere")
    assert outcome.code == 1
    assert "19 faults" in outcome.out  # the others are not there


def test_verify_by_another_model_or_of_no_features(inputs, embedded, converted, tmp_path, recordmill):
    shutil.copytree(inputs, tmp_path / "in")
    assert recordmill(*flags(tmp_path / "in", tmp_path / "out")).code == 0
    other = tiny()
    other.set_weights([weight + 1 for weight in other.get_weights()])
    other.save(tmp_path / "in" / "tiny.keras")
    outcome = recordmill("verify", tmp_path / "out", "--recompute", 1)
    assert outcome.code == 1
    assert "another weights_sha256 here" in outcome.err
    outcome = recordmill("verify", converted, "--recompute", 1)
    assert outcome.code == 2
    assert "has records of layout classification" in outcome.err


def test_verify_finds_what_is_no_feature(embedded, tmp_path, recordmill):
    """A shard whose checksums hold, with other records in it."""
    out = tmp_path / "out"
    shutil.copytree(embedded, out)
    manifest = json.loads((out / "manifest.json").read_text())
    assert recordmill("verify", out).code == 0
    file = out / manifest["splits"]["val"]["shards"][0]["file"]
    records = list(tf.data.TFRecordDataset(str(file)).as_numpy_iterator())
    example = tf.train.Example.FromString(records[0])
    example.features.feature["feature"].float_list.value[3] = np.nan
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in (example.SerializeToString(), *records[1:]):
            writer.write(record)
    outcome = recordmill("verify", out)
    assert outcome.code == 1
    assert "feature_values: 1 numbers are NaN or infinite" in outcome.out


def test_rows_name_pictures_and_each_becomes_a_record(inputs, embedded, tmp_path, recordmill):
    names = sorted(str(path.relative_to(inputs / "images")) for path in (inputs / "images").rglob("*.jpg"))
    rows = [{"file": name, "kind": name.split("/")[0], "n": n} for name in names for n in (0, 1)]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"file": "x", "kind": "cat"}])
    )
    of_rows = ["--rows", tmp_path / "rows.jsonl", "--image-column", "file", "--label", "kind"]
    outcome = recordmill(*flags(inputs, tmp_path / "out", *of_rows, "--split", "train=0.7,val=0.3"))
    assert outcome.code == 0, outcome
    for split in ("train", "val"):  # which are those of the folder, as are the features
        once = {example["image/filename"][0]: example for example in read_examples(embedded, split)}
        twice = read_examples(tmp_path / "out", split)
        assert sorted(example["image/filename"][0] for example in twice) == sorted([*once, *once])
        for example in twice:
            expected = once[example["image/filename"][0]]
            np.testing.assert_allclose(example.pop("feature"), expected["feature"], rtol=1e-4, atol=1e-5)
            assert example == {name: value for name, value in expected.items() if name != "feature"}
    rejects = [(row["what"], row["id"], row["reason"]) for row in rejects_of(tmp_path / "out")]
    assert sorted(rejects, key=str) == sorted(
        [("row", line, "image_unreadable") for line in (17, 18, 25, 26)] + [("row", 43, "image_missing")], key=str
    )
    assert recordmill("verify", tmp_path / "out").code == 0
    refused = recordmill(*flags(inputs, tmp_path / "no", *of_rows, "--max-rejects", 0.1))
    assert refused.code == 1
    assert "5 of 43 rows (11.6%) are rejected" in refused.err
