"""Real data sets, field by field against pycocotools; not part of the project, but beside it on its own machines."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import SHARED_DATA, manifest_of, read_examples

pytestmark = pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")


ASSETS = SHARED_DATA / "datumaro_coco_flavours" / "tests" / "assets"
COCO_DATASET = ASSETS / "coco_dataset"
LABELME = SHARED_DATA / "labelme_coco" / "examples" / "instance_segmentation"
# Folder of a flavour; images in it; flags that read it; records; and the reasons of what is rejected.
FLAVOURS = [
    ("coco_instances", "images/train", {"instances": "annotations/instances_train.json"}, 1, {}),
    ("coco_captions", "images/train", {"captions": "annotations/captions_train.json"}, 1, {}),
    ("coco_stuff", "images/train", {"stuff": "annotations/stuff_train.json"}, 1, {}),
    ("coco_stuff", "images/val", {"instances": "annotations/stuff_val.json"}, 1, {}),
    ("coco_image_info", "images/train", {"image-info": "annotations/image_info_train.json"}, 1, {}),
    ("coco_panoptic", "images/val", {"panoptic": "annotations/panoptic_val.json"}, 1, {}),
    # Its PNG is 5x5, its image 10x5.
    ("coco_panoptic", "images/train", {"panoptic": "annotations/panoptic_train.json"}, 1, {"mask_size_mismatch": 1}),
    # Its categories name no keypoints, its annotations have three.
    ("coco_person_keypoints", "images/train", {"keypoints": "annotations/person_keypoints_train.json"}, 1, {}),
    ("coco_person_keypoints", "images/val", {"instances": "annotations/person_keypoints_val.json"}, 1, {}),
    # Labels of whole images: no object has a box.
    ("coco_labels", "images/train", {"instances": "annotations/labels_train.json"}, 1, {"malformed_annotation": 1}),
    ("mmdet_coco", "train", {"instances": "annotations/instances_train.json"}, 1, {}),
    ("coco_roboflow", "train", {"instances": "train/_annotations.coco.json"}, 1, {}),
    (
        "coco",
        "images/val",
        {
            "instances": "annotations/instances_val.json",
            "captions": "annotations/captions_val.json",
            "panoptic": "annotations/panoptic_val.json",
        },
        1,
        {},
    ),
    (f"{LABELME}/data_dataset_coco", ".", {"instances": "annotations.json"}, 3, {}),
    ("../kaggle_dataset/relaxed_coco", ".", {"instances": "annotations.json"}, 2, {}),
    ("../roboflow_dataset/coco", "train", {"instances": "train/_annotations.coco.json"}, 2, {}),
]


@pytest.mark.parametrize(("flavour", "images", "kinds", "records", "reasons"), FLAVOURS)
def test_flavours(flavour, images, kinds, records, reasons, tmp_path, recordmill):
    folder = COCO_DATASET / flavour
    flags = ["--images", folder / images, "--output", tmp_path, "--max-rejects", 1]
    for kind, name in kinds.items():
        flags += [f"--{kind}", folder / name]
        if kind == "panoptic":
            flags += ["--panoptic-masks", folder / name.removesuffix(".json")]
    if "instances" in kinds:
        flags += ["--masks", "both"]
    assert recordmill("convert", *flags).code == 0
    assert recordmill("verify", tmp_path).code == 0
    assert len(read_examples(tmp_path)) == records
    assert manifest_of(tmp_path)["splits"]["train"]["annotations"]["rejected"] == reasons


def test_facemask_has_boxes_and_no_mask(tmp_path, recordmill):
    folder = SHARED_DATA / "facemask"
    flags = ["--images", folder / "val2017", "--instances", folder / "annotations" / "custom_val.json"]
    assert recordmill("convert", *flags, "--masks", "png", "--output", tmp_path).code == 0
    assert recordmill("verify", tmp_path).code == 0
    counts = manifest_of(tmp_path)["splits"]["train"]["annotations"]
    assert (counts["objects"], counts["masks"], counts["rejected"]) == (915, 0, {})
    for example in read_examples(tmp_path):
        size = example["image/height"][0], example["image/width"][0]
        for png in example["image/object/mask"]:
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(png))), np.zeros(size))


def test_data_folder_is_beside_project():
    """So that a moved folder does not turn the tests above into silence on the machines that have it."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    assert SHARED_DATA.exists() == beside.exists()
