"""Real data sets, field by field against pycocotools; not part of the project, but beside it on its own machines."""

from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO

from tests.conftest import SHARED_DATA, manifest_of, read_examples

SETS = {
    "coco_mini train": ("coco_mini/train2017", "coco_mini/annotations/instances_train2017.json", 80, 739, 0),
    "coco_mini val": ("coco_mini/val2017", "coco_mini/annotations/instances_val2017.json", 79, 624, 80),
    "facemask train": ("facemask/train2017", "facemask/annotations/custom_train.json", 677, 3106, 0),
    "facemask val": ("facemask/val2017", "facemask/annotations/custom_val.json", 171, 915, 0),
    "labelme": (
        "labelme_coco/examples/instance_segmentation/data_dataset_coco",
        "labelme_coco/examples/instance_segmentation/data_dataset_coco/annotations.json",
        3,
        12,
        4,
    ),
}


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
@pytest.mark.parametrize("name", SETS)
def test_every_field(name, tmp_path, recordmill):
    images, instances, images_count, annotations_count, unlisted = SETS[name]
    flags = ["--images", SHARED_DATA / images, "--instances", SHARED_DATA / instances, "--output", tmp_path]
    assert recordmill("coco", *flags, "--num-shards", 4).code == 0
    assert recordmill("verify", tmp_path).code == 0
    split = manifest_of(tmp_path)["splits"]["train"]
    assert split["images"] == {"rows": images_count, "examples": images_count, "rejected": {}}
    assert split["annotations"]["rows"] == split["annotations"]["written"] == annotations_count
    assert split["unlisted"]["files"] == unlisted
    coco = COCO(str(SHARED_DATA / instances))
    category_ids = sorted(coco.getCatIds())
    examples = read_examples(tmp_path)
    assert sorted(int(e["image/source_id"][0]) for e in examples) == sorted(coco.getImgIds())
    for example in examples:
        row = coco.loadImgs(int(example["image/source_id"][0]))[0]
        annotations = sorted(coco.loadAnns(coco.getAnnIds(row["id"])), key=lambda ann: ann["id"])
        boxes = np.array([ann["bbox"] for ann in annotations], float).reshape(-1, 4)
        x, y, width, height = boxes.T
        names = [coco.loadCats(ann["category_id"])[0]["name"].encode() for ann in annotations]
        expected = {
            "image/encoded": [(SHARED_DATA / images / row["file_name"]).read_bytes()],
            "image/filename": [row["file_name"].encode()],
            "image/format": [b"jpeg"],
            "image/width": [row["width"]],
            "image/height": [row["height"]],
            "image/source_id": [str(row["id"]).encode()],
            "image/object/id": [ann["id"] for ann in annotations],
            "image/object/class/label": [ann["category_id"] for ann in annotations],
            "image/object/class/index": [category_ids.index(ann["category_id"]) for ann in annotations],
            "image/object/class/text": names,
            "image/object/is_crowd": [ann["iscrowd"] for ann in annotations],
        }
        assert {key: example[key] for key in expected} == expected
        fractions = {
            "image/object/area": [ann["area"] for ann in annotations],
            "image/object/bbox/xmin": (x / row["width"]).clip(0, 1).tolist(),
            "image/object/bbox/xmax": ((x + width) / row["width"]).clip(0, 1).tolist(),
            "image/object/bbox/ymin": (y / row["height"]).clip(0, 1).tolist(),
            "image/object/bbox/ymax": ((y + height) / row["height"]).clip(0, 1).tolist(),
        }
        for key, values in fractions.items():
            assert example[key] == pytest.approx(values, rel=1e-6, abs=1e-6), key
        assert set(example) == {*expected, *fractions, "image/key/sha256"}


def test_the_data_folder_is_beside_the_project():
    """So that a moved folder does not turn the tests above into silence on the machines that have it."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    assert SHARED_DATA.exists() == beside.exists()
