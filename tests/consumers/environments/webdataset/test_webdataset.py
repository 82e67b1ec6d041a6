"""The libraries webdataset and datasets read our tars, without any code of ours."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import mlcroissant
import numpy as np
import pytest
import webdataset
from etils import epath
from PIL import Image
from pycocotools import mask as coco_mask

from tests.conftest import every_kind
from tests.consumers.coco_truth import Truth

TARS = ("--container", "webdataset", "--masks", "rle", "--num-shards", 2)


def assert_sample(row: Mapping[str, Any], image: Image.Image, truth: Truth) -> int:
    """Compare a sample with the data set that it was made of. Return the image id."""
    image_id = row["image_id"]
    assert row["file_name"] == truth.row(image_id)["file_name"]
    assert image.size == (row["width"], row["height"]) == (truth.row(image_id)["width"], truth.row(image_id)["height"])
    with Image.open(truth.path(image_id)) as source:
        assert np.array_equal(np.asarray(image.convert("RGB")), np.asarray(source.convert("RGB")))
    objects = sorted(row["annotations"], key=lambda object_: object_["id"])
    by_id = {annotation["id"]: annotation for annotation in truth.annotations(image_id)}
    boxes = truth.boxes_xyxy_px(image_id)[[list(by_id).index(object_["id"]) for object_ in objects]]
    for object_, box in zip(objects, boxes, strict=True):
        expected = by_id[object_["id"]]
        assert object_["category_id"] == expected["category_id"]
        assert np.float32(object_["area"]) == np.float32(expected["area"])
        x, y, width, height = object_["bbox"]
        np.testing.assert_allclose([x, y, x + width, y + height], box, atol=1e-3)
        assert coco_mask.decode(dict(object_["segmentation"])).shape == (row["height"], row["width"])
    return image_id


def tars(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.glob("*.tar"))]


def test_webdataset_reads_every_sample(truth, converted):
    samples = webdataset.WebDataset(tars(converted(truth, *TARS)), shardshuffle=False).decode("pil")
    seen = [assert_sample(sample["json"], sample.get("jpg") or sample["png"], truth) for sample in samples]
    assert sorted(seen) == sorted(truth.image_ids)


@pytest.mark.parametrize("streaming", [True, False])
def test_datasets_reads_folder(truth, converted, tmp_path, streaming):
    folder = converted(truth, *TARS)
    splits = datasets.load_dataset(str(folder), streaming=streaming, cache_dir=str(tmp_path))
    assert list(splits) == ["train"]
    seen = [assert_sample(row["json"], row["jpg"] or row["png"], truth) for row in splits["train"]]
    assert sorted(seen) == sorted(truth.image_ids)


@pytest.mark.parametrize("streaming", [True, False])
def test_data_set_that_has_grown(truths, grown, tmp_path, streaming):
    """The card, RF-DETR's index and croissant.json leave out files that --sync replaced."""
    truth, folder = truths["sample"], grown(*TARS)
    rows = datasets.load_dataset(str(folder), streaming=streaming, cache_dir=str(tmp_path), split="train")
    ids = [assert_sample(row["json"], row["jpg"] or row["png"], truth) for row in rows]
    assert sorted(ids) == sorted(truth.image_ids)
    index = json.loads((folder / "train-index.json").read_text())
    assert sum(index["samples_per_shard"]) == len(ids)
    samples = list(webdataset.WebDataset([str(folder / name) for name in index["shards"]], shardshuffle=False))
    assert sorted(json.loads(sample["json"])["image_id"] for sample in samples) == sorted(truth.image_ids)
    records = list(mlcroissant.Dataset(str(folder / "croissant.json")).records("train-json"))
    assert len(records) == len(ids) < len(list(webdataset.WebDataset(tars(folder), shardshuffle=False)))


def test_maps_and_keypoints(sample, recordmill, tmp_path):
    assert recordmill("convert", *every_kind(sample), *TARS, "--output", tmp_path / "out").code == 0
    rows = list(datasets.load_dataset(str(tmp_path / "out"), streaming=True)["train"])
    raw = list(webdataset.WebDataset(tars(tmp_path / "out"), shardshuffle=False))
    assert len(rows) == len(raw) > 4
    for row, files in zip(rows, raw, strict=True):
        for name in ("semantic.png", "category.png", "instance.png"):
            assert (
                row[name].size
                == Image.open(io.BytesIO(files[name])).size
                == (row["json"]["width"], row["json"]["height"])
            )
        assert row["json"]["captions"] == json.loads(files["json"])["captions"]
        lengths = {len(object_["keypoints"]) for object_ in row["json"]["annotations"]}
        assert lengths <= {15}


def test_classes(tmp_path, recordmill):
    for name in ("cat", "dög"):
        (tmp_path / "in" / name).mkdir(parents=True)
        for number in range(7):
            ending = ("jpg", "png")[number % 2]
            Image.new("RGB", (8, 6), (number, 0, 0)).save(tmp_path / "in" / name / f"{number}.{ending}")
    flags = ["--format", "folder", "--container", "webdataset", "--output", tmp_path / "out"]
    assert recordmill("convert", tmp_path / "in", *flags).code == 0
    split = datasets.load_dataset(str(tmp_path / "out"), streaming=True)["train"]
    names = split.features["cls"].names
    assert names == ["cat", "dög"]
    assert all(row["json"]["file_name"].startswith(names[row["cls"]]) for row in split)
    plain = webdataset.WebDataset(tars(tmp_path / "out"), shardshuffle=False).decode("pil")
    assert sorted(files["cls"] for files in plain) == [0] * 7 + [1] * 7


def test_croissant_is_valid_and_has_members(truth, converted, monkeypatch, tmp_path):
    """mlcroissant keeps what it extracts by the name of the tar, in a folder of the user."""
    monkeypatch.setattr("mlcroissant._src.operation_graph.operations.extract.EXTRACT_PATH", epath.Path(tmp_path))
    folder = converted(truth, *TARS)
    monkeypatch.chdir(folder)
    croissant = mlcroissant.Dataset(jsonld="croissant.json")
    assert not croissant.metadata.issues.errors
    records = {name: list(croissant.records(f"train-{name}")) for name in ("jpg", "png", "json")}
    assert len(records["jpg"]) + len(records["png"]) == len(records["json"]) == len(truth.image_ids)
    rows = {record["train-json/key"]: json.loads(record["train-json/content"]) for record in records["json"]}
    for record in records["jpg"]:
        row = rows[record["train-jpg/key"]]
        assert record["train-jpg/content"].size == (row["width"], row["height"])
