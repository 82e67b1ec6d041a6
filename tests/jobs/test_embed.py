"""`recordmill convert --model` from end to end: what a model makes of images becomes records, and what reads them."""

import json
from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.launch.cli import main
from tests.conftest import draw_jpeg, manifest_of, read_examples, rejects_of
from tests.tiny_models import saved, tiny


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A model, and 21 images of two classes, of which two are broken."""
    folder = tmp_path_factory.mktemp("embed")
    saved(tiny(), folder / "tiny.keras")
    for number in range(21):
        path = folder / "images" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        draw_jpeg(path, 40 + number, 30, colour=(12 * number, 80, 200))
        if number in (4, 11):
            path.write_bytes(path.read_bytes()[:-60])
    return folder


def flags(inputs: Path, out: Path, *more: object, rows: Path | None = None) -> list[str]:
    """Flags to embed class folders, or rows that name images in them."""
    data = [rows, "--format", "table", "--images"] if rows else ["--format", "folder"]
    given = [*data, inputs / "images", "--model", inputs / "tiny.keras", "--batch", 4, "--max-rejects", 0.2]
    return ["convert", *map(str, [*given, "--output", out, *more])]


@pytest.fixture(scope="module")
def embedded(inputs, tmp_path_factory) -> Path:
    """In two splits, of several shards."""
    out = tmp_path_factory.mktemp("embedded") / "out"
    assert main(flags(inputs, out, "--split", "train=0.7,val=0.3", "--num-shards", 2)) == 0
    return out


def by_the_recipe(inputs: Path) -> dict[str, np.ndarray]:
    model = keras.models.load_model(inputs / "tiny.keras")
    part = keras.Model(model.inputs, model.get_layer("patches").output)
    paths = [path for path in sorted((inputs / "images").rglob("*.jpg")) if path.stem not in ("4", "11")]
    pictures = [keras.utils.load_img(path, target_size=(16, 12), interpolation="bilinear") for path in paths]
    features = part.predict(np.array(pictures), verbose=0)
    return {f"{path.parent.name}/{path.name}": feature for path, feature in zip(paths, features, strict=True)}


def test_records_equal_those_of_recipe(inputs, embedded):
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
    manifest = manifest_of(embedded)
    assert {each["name"]: each["shape"] for each in manifest["features"]}["feature"] == ["4", "3", "5"]
    options = manifest["splits"]["train"]["recipe"]["options"]
    assert (options["layer"], options["input_size"], len(options["weights_sha256"])) == ("patches", "16x12", 64)
    rejected = {row["detail"].split("'")[1]: row["reason"] for row in rejects_of(embedded)}
    assert rejected == {"cat/4.jpg": "image_unreadable", "dog/11.jpg": "image_unreadable"}


def test_verify_lets_model_make_features_again(inputs, embedded, tmp_path, recordmill):
    assert recordmill("extract", embedded, tmp_path / "extracted").code == 2, "there are no images in it"
    assert recordmill("verify", embedded, "--recompute", 3).code == 0
    draw_jpeg(tmp_path / "elsewhere" / "cat" / "0.jpg", 40, 30, colour=(250, 80, 0))
    outcome = recordmill("verify", embedded, "--recompute", 20, "--images", tmp_path / "elsewhere")
    assert (outcome.code, "19 faults" in outcome.out) == (1, True), "the others are not there"


def test_rows_name_pictures_and_each_becomes_record(inputs, embedded, tmp_path, recordmill):
    names = sorted(str(path.relative_to(inputs / "images")) for path in (inputs / "images").rglob("*.jpg"))
    rows = [{"file": name, "kind": name.split("/")[0], "n": n} for name in names for n in (0, 1)]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"file": "x", "kind": "cat"}])
    )
    more = ["--image-column", "file", "--label", "kind", "--split", "train=0.7,val=0.3"]
    assert recordmill(*flags(inputs, tmp_path / "out", *more, rows=tmp_path / "rows.jsonl")).code == 0
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


def test_rows_hold_pictures(inputs, embedded, tmp_path, recordmill):
    """Their records, and their order, are those of the table with the same rows."""
    names = sorted(str(path.relative_to(inputs / "images")) for path in (inputs / "images").rglob("*.jpg"))
    pictures = [{"path": name, "bytes": (inputs / "images" / name).read_bytes()} for name in names]
    columns = {"image": [*pictures, {"path": "x", "bytes": b""}], "kind": [*(name[:3] for name in names), "cat"]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    of_rows = [
        tmp_path / "rows.parquet",
        "--format",
        "table",
        "--image-column",
        "image",
        "--label",
        "kind",
        "--seed",
        3,
    ]
    last = ["--max-rejects", 0.2, "--output"]
    model = ["--model", inputs / "tiny.keras", "--batch", 4]
    assert recordmill("convert", *of_rows, *model, "--dry-run", *last, tmp_path / "plan").code == 0
    assert not (tmp_path / "plan").exists()
    assert recordmill("convert", *of_rows, *model, *last, tmp_path / "out").code == 0
    assert recordmill("convert", *of_rows, *last, tmp_path / "table").code == 0
    known = {each["image/filename"][0]: each for split in ("train", "val") for each in read_examples(embedded, split)}
    found = read_examples(tmp_path / "out")
    in_order = [each["image/filename"] for each in read_examples(tmp_path / "table")]
    assert [each["image/filename"] for each in found] == in_order
    assert sorted(each["image/filename"][0] for each in found) == sorted(known)
    for each in found:
        expected = known[each["image/filename"][0]]
        np.testing.assert_allclose(each["feature"], expected["feature"], rtol=1e-4, atol=1e-5)
        assert each["image/class/label"] == expected["image/class/label"]
    rejects = sorted((row["id"], row["reason"]) for row in rejects_of(tmp_path / "out"))
    assert rejects == [(9, "image_unreadable"), (13, "image_unreadable"), (22, "missing_value")]
    outcome = recordmill("verify", tmp_path / "out", "--recompute", 2)
    assert (outcome.code, "--images" in outcome.err) == (2, True)
    assert recordmill("verify", tmp_path / "out", "--recompute", 2, "--images", inputs / "images").code == 0


@pytest.mark.parametrize("has_rows", [False, True])
def test_class_map_of_features(inputs, tmp_path, recordmill, has_rows):
    (tmp_path / "map.csv").write_text("cat,pet\ndog,\n")
    rows = tmp_path / "rows.csv" if has_rows else None
    if rows:
        paths = [path.relative_to(inputs / "images") for path in (inputs / "images").rglob("*.jpg")]
        rows.write_text("".join(f"{line}\n" for line in ("path,kind", *(f"{path},{path.parent}" for path in paths))))
    columns = ("--image-column", "path", "--label", "kind") if rows else ()
    assert main(flags(inputs, tmp_path / "out", *columns, "--class-map", tmp_path / "map.csv", rows=rows)) == 0
    manifest = manifest_of(tmp_path / "out")
    assert [category["name"] for category in manifest["categories"]] == ["pet"]
    images = manifest["splits"]["train"]["images"]
    assert (images["rows"], images["written"], images["of_other_classes"]) == (21, 10, 10)
    assert images["rejected"] == {"image_unreadable": 1}
    assert recordmill("verify", tmp_path / "out", "--recompute", 2, "--images", inputs / "images").code == 0


def test_limits_of_features(inputs, tmp_path):
    more = "--limit", 8, "--max-per-class", 3, "--group-from", "[0-9]+[.]"
    assert main(flags(inputs, tmp_path, *more)) == 0
    images = manifest_of(tmp_path)["splits"]["train"]["images"]
    assert images["over_limit"] == 21 - 8
    assert images["written"] + sum(images["rejected"].values()) + images["over_class_limit"] == 8
    assert len(read_examples(tmp_path)) == images["written"] <= 6
