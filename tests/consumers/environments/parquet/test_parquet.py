"""`--container parquet` in datasets, Polars, DuckDB and mlcroissant. None of them knows this project."""

import io
from itertools import islice

import datasets
import duckdb
import mlcroissant
import numpy as np
import polars
import pytest
from PIL import Image

from tests.consumers.coco_truth import Truth


@pytest.fixture
def folder(truth, converted):
    return converted(truth, "--container", "parquet", "--num-shards", 2, "--masks", "rle")


@pytest.fixture
def load(folder, tmp_path):
    """load_dataset of the folder, with its card and without a script."""
    return lambda **more: datasets.load_dataset(str(folder), cache_dir=str(tmp_path), **more)


def assert_boxes(boxes_xywh_px: list, truth: Truth, image_id: int) -> None:
    boxes = np.array(boxes_xywh_px, float).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    np.testing.assert_allclose(boxes, truth.boxes_xyxy_px(image_id), atol=1e-3)


def assert_image(image: Image.Image, truth: Truth, image_id: int) -> None:
    with Image.open(truth.path(image_id)) as expected:
        assert np.array_equal(np.asarray(image.convert("RGB")), np.asarray(expected.convert("RGB")))


def test_datasets_have_features_splits_and_class_names(truth, load):
    data = load()
    assert list(data) == ["train"]
    names = [category["name"] for category in truth.categories]
    features = data["train"].features
    assert features["objects"]["category"].feature.names == names
    assert isinstance(features["image"], datasets.Image)
    assert {row["image_id"] for row in data["train"].remove_columns("image")} == truth.image_ids
    for row in data["train"]:
        image_id, objects = row["image_id"], row["objects"]
        assert_image(row["image"], truth, image_id)
        assert objects["id"] == truth.values(image_id, "id")
        assert objects["category"] == truth.class_indices(image_id)
        assert objects["iscrowd"] == truth.values(image_id, "iscrowd")
        assert_boxes(objects["bbox"], truth, image_id)


@pytest.mark.parametrize("streaming", [False, True])
def test_data_set_that_has_grown(truths, grown, tmp_path, streaming):
    """The card and croissant.json leave out files that --sync replaced."""
    truth, folder = truths["sample"], grown("--container", "parquet", "--num-shards", 2)
    data = datasets.load_dataset(str(folder), cache_dir=str(tmp_path), streaming=streaming, split="train")
    rows = list(data)
    assert sorted(row["image_id"] for row in rows) == sorted(truth.image_ids)
    assert [row["objects"]["id"] for row in rows] == [truth.values(row["image_id"], "id") for row in rows]
    records = mlcroissant.Dataset(str(folder / "croissant.json")).records("train")
    assert sorted(record["train/image_id"] for record in records) == sorted(truth.image_ids)
    assert polars.read_parquet(folder / "*.parquet").height > len(rows)


def test_datasets_stream(truth, load):
    rows = list(load(streaming=True, split="train"))
    assert {row["image_id"] for row in rows} == truth.image_ids
    assert_image(rows[0]["image"], truth, rows[0]["image_id"])


def test_polars_and_duckdb_have_equal_rows(truth, folder):
    table = polars.read_parquet(folder / "*.parquet")
    assert set(table["image_id"]) == truth.image_ids
    row = table.row(0, named=True)
    assert_image(Image.open(io.BytesIO(row["image"]["bytes"])), truth, row["image_id"])
    assert_boxes(row["objects"]["bbox"], truth, row["image_id"])
    query = f"select image.path, image_id, objects.id, objects.category from '{folder}/*.parquet' order by image_id"
    expected = [
        (row["image"]["path"], row["image_id"], row["objects"]["id"], row["objects"]["category"])
        for row in table.sort("image_id").rows(named=True)
    ]
    assert duckdb.sql(query).fetchall() == expected


def test_croissant_is_valid_and_gives_records(truth, folder):
    data = mlcroissant.Dataset(str(folder / "croissant.json"))
    assert not data.metadata.ctx.issues.errors
    for record in islice(data.records("train"), 3):
        image_id = record["train/image_id"]
        assert_image(record["train/image"], truth, image_id)
        assert list(record["train/objects"]["train/objects/id"]) == truth.values(image_id, "id")


def test_rows_of_a_table(recordmill, tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        '{"day": "2020-01-31", "kind": "a: b", "n": 1, "tags": ["<i>"]}\n'
        '{"day": "1969-12-31", "kind": "😀\\nb", "n": null, "tags": []}\n'
    )
    flags = "--container", "parquet", "--label", "kind", "--output", tmp_path / "out"
    assert recordmill("convert", tmp_path / "rows.jsonl", *flags).code == 0
    data = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    names = data.features["kind"].names
    assert sorted(names) == ["a: b", "😀 b"]
    rows = sorted(({**row, "kind": names[row["kind"]]} for row in data), key=lambda row: row["kind"])
    assert [(row["day"], row["kind"], row["n"], row["tags"]) for row in rows] == [
        ("2020-01-31", "a: b", 1, ["<i>"]),
        ("1969-12-31", "😀 b", None, []),
    ]
