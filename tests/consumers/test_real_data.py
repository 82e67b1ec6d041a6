"""Real data sets, field by field against pycocotools; not part of the project, but beside it on its own machines."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from tests.conftest import SHARED_DATA, manifest_of, read_examples

SETS = {
    "coco_mini val": ("coco_mini/val2017", "coco_mini/annotations/instances_val2017.json", 79, 624, 80),
    "facemask val": ("facemask/val2017", "facemask/annotations/custom_val.json", 171, 915, 0),
    "labelme": (
        "labelme_coco/examples/instance_segmentation/data_dataset_coco",
        "labelme_coco/examples/instance_segmentation/data_dataset_coco/annotations.json",
        3,
        12,
        4,
    ),
}


pytestmark = pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")


def labels_of(annotations: list[dict], category_ids: list[int], shifted: bool) -> dict[str, list[int]]:
    """Of facemask, whose ids begin at 0; LabelMe's category 0 is the background."""
    found = [ann["category_id"] for ann in annotations]
    if not shifted:
        return {"image/object/class/label": found}
    labels = [category_ids.index(id_) + 1 for id_ in found]
    return {"image/object/class/label": labels, "image/object/category_id": found}


@pytest.mark.parametrize("name", SETS)
def test_every_field(name, tmp_path, recordmill):
    images, instances, images_count, annotations_count, unlisted = SETS[name]
    flags = ["--images", SHARED_DATA / images, "--instances", SHARED_DATA / instances, "--output", tmp_path]
    assert recordmill("coco", *flags, "--num-shards", 4).code == 0
    assert recordmill("verify", tmp_path).code == 0
    split = manifest_of(tmp_path)["splits"]["train"]
    assert split["images"] == {"rows": images_count, "written": images_count, "without_record": 0, "rejected": {}}
    assert split["annotations"]["rows"] == split["annotations"]["objects"] == annotations_count
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
            **labels_of(annotations, category_ids, shifted=name.startswith("facemask")),
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


def test_instances_keypoints_and_captions_of_coco_in_one_record(tmp_path, recordmill):
    """Masks are held against pycocotools in tests/consumers."""
    kinds = {"instances": "instances", "keypoints": "person_keypoints", "captions": "captions"}
    files = {kind: SHARED_DATA / "coco_mini" / "annotations" / f"{name}_train2017.json" for kind, name in kinds.items()}
    flags = [argument for kind, path in files.items() for argument in (f"--{kind}", path)]
    images = SHARED_DATA / "coco_mini" / "train2017"
    assert recordmill("coco", "--images", images, *flags, "--masks", "rle", "--output", tmp_path).code == 0
    assert recordmill("verify", tmp_path).code == 0
    objects, points, captions = (COCO(str(path)) for path in files.values())
    counts = manifest_of(tmp_path)["splits"]["train"]["annotations"]
    assert (counts["objects"], counts["joined"], counts["captions"]) == (
        len(objects.anns),
        len(set(objects.anns) & set(points.anns)),
        len(captions.anns),
    )
    assert counts["rejected"] == {}
    (person,) = points.loadCats(points.getCatIds())
    for example in read_examples(tmp_path):
        image_id = int(example["image/source_id"][0])
        texts = sorted(captions.loadAnns(captions.getAnnIds(image_id)), key=lambda row: row["id"])
        assert example["image/caption"] == [row["caption"].encode() for row in texts]
        width, height = example["image/width"][0], example["image/height"][0]
        found = np.stack(
            [np.reshape(example[f"image/object/keypoint/{part}"], (-1, 17)) for part in ("x", "y", "visibility")], -1
        )
        for id_, category_id, xyv, labelled in zip(
            example["image/object/id"],
            example["image/object/class/label"],
            found,
            example["image/object/keypoint/num"],
            strict=True,
        ):
            row = points.anns.get(id_, {"keypoints": [0] * 51, "num_keypoints": 0})
            assert labelled == row["num_keypoints"]
            expected = np.reshape(row["keypoints"], (17, 3)) / [width, height, 1]
            assert xyv == pytest.approx(expected, abs=1e-6)
            assert id_ not in points.anns or category_id == person["id"]


def test_panoptic_sample(tmp_path, recordmill):
    """panopticapi's own sample: its PNGs against its JSON, and both against what it calls the detection format."""
    folder = SHARED_DATA / "panopticapi" / "sample_data"
    flags = ["--panoptic", folder / "panoptic_examples.json", "--panoptic-masks", folder / "panoptic_examples"]
    detection = ["--instances", folder / "panoptic_coco_detection_format.json", "--masks", "png"]
    images = ["--images", folder / "input_images"]
    assert recordmill("coco", *images, *flags, *detection, "--output", tmp_path).code == 0
    assert recordmill("verify", tmp_path).code == 0
    document = json.loads((folder / "panoptic_examples.json").read_text())
    is_thing = {row["id"]: row["isthing"] for row in document["categories"]}
    rows = {row["image_id"]: row for row in document["annotations"]}
    things = stuff = 0
    for example in read_examples(tmp_path):
        row = rows[int(example["image/source_id"][0])]
        ids = np.asarray(Image.open(folder / "panoptic_examples" / row["file_name"])).astype(np.int64) @ [1, 256, 65536]
        category, instance, semantic = (
            np.asarray(Image.open(io.BytesIO(example[f"image/{name}"][0])))
            for name in ("panoptic/category_mask", "panoptic/instance_mask", "segmentation/class/encoded")
        )
        assert np.array_equal(semantic == 255, ids == 0)
        for number, segment in enumerate(row["segments_info"], 1):
            where = ids == segment["id"]
            thing = is_thing[segment["category_id"]]
            assert set(category[where]) == {segment["category_id"]}
            assert set(instance[where]) == {number if thing else 0}
            assert set(semantic[where]) == {1 if thing else segment["category_id"] - 90}
            things, stuff = things + thing, stuff + (not thing)
        union = sum(np.asarray(Image.open(io.BytesIO(mask))).astype(int) for mask in example["image/object/mask"])
        assert np.array_equal(union, (ids != 0).astype(int))
    assert (things, stuff) == (43, 7)


ASSETS = SHARED_DATA / "datumaro_coco_flavours" / "tests" / "assets"
COCO_DATASET = ASSETS / "coco_dataset"
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
    assert recordmill("coco", *flags).code == 0
    assert recordmill("verify", tmp_path).code == 0
    assert len(read_examples(tmp_path)) == records
    assert manifest_of(tmp_path)["splits"]["train"]["annotations"]["rejected"] == reasons


def test_facemask_has_boxes_and_no_mask(tmp_path, recordmill):
    folder = SHARED_DATA / "facemask"
    flags = ["--images", folder / "val2017", "--instances", folder / "annotations" / "custom_val.json"]
    assert recordmill("coco", *flags, "--masks", "png", "--output", tmp_path).code == 0
    assert recordmill("verify", tmp_path).code == 0
    counts = manifest_of(tmp_path)["splits"]["train"]["annotations"]
    assert (counts["objects"], counts["masks"], counts["rejected"]) == (915, 0, {})
    for example in read_examples(tmp_path):
        size = example["image/height"][0], example["image/width"][0]
        for png in example["image/object/mask"]:
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(png))), np.zeros(size))


def test_the_data_folder_is_beside_the_project():
    """So that a moved folder does not turn the tests above into silence on the machines that have it."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    assert SHARED_DATA.exists() == beside.exists()
