"""`recordmill coco --data`: a folder that a tool exported gives the records that its files by flags give."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import CATEGORIES, annotation, draw_jpeg, image_row, manifest_of, read_examples, shard_bytes

DATA = Path("/work/shared/data")
ROBOFLOW = [{"id": 0, "name": "pets", "supercategory": "none"}] + [
    each | {"supercategory": "pets"} for each in CATEGORIES
]
LAYOUTS = {
    "roboflow": {
        "train": ("train/_annotations.coco.json", "train", ""),
        "val": ("valid/_annotations.coco.json", "valid", ""),
        "test": ("test/_annotations.coco.json", "test", ""),
    },
    "cvat": {"": ("annotations/instances_default.json", "images", "")},
    "cvat subsets": {
        "train": ("annotations/instances_Train.json", "images/Train", ""),
        "val": ("annotations/instances_Validation.json", "images/Validation", ""),
    },
    "coco": {
        "train": ("annotations/instances_train2017.json", "train2017", ""),
        "val": ("annotations/instances_val2017.json", "val2017", ""),
    },
    "fiftyone": {"": ("labels.json", "data", "")},
    "fiftyone splits": {"train": ("train/labels.json", "train/data", ""), "val": ("val/labels.json", "val/data", "")},
    "label studio": {"": ("result.json", "", "images/")},
    "one folder of images": {
        "train": ("annotations/instances_train.json", "images", "a"),
        "val": ("annotations/instances_val.json", "images", "b"),
    },
    "names of one's own": {"train": ("my_train.json", "train", ""), "val": ("my_val.json", "val", "")},
}


def export(folder: Path, layout: dict, categories: list[dict]) -> Path:
    """A folder whose ids of images and annotations begin at 0 in each file, and whose image sizes tell splits apart."""
    for number, (path, images, prefix) in enumerate(layout.values()):
        rows = [image_row(id_, f"{prefix}{id_}.jpg", 40 + number, 30) for id_ in range(3)]
        for row in rows:
            draw_jpeg(folder / images / row["file_name"], row["width"])
        found = [annotation(id_, id_, category_id=(1, 3)[id_ % 2]) for id_ in range(3)]
        file = {"images": rows, "annotations": found, "categories": categories}
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(file))
    return folder


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name, tmp_path, recordmill):
    layout = LAYOUTS[name]
    data, plain, out = export(tmp_path / "data", layout, CATEGORIES), tmp_path / "plain", tmp_path / "out"
    for split, (path, images, _) in layout.items():
        flags = "--images", data / images, "--instances", data / path, "--split", split or "train"
        assert recordmill("coco", *flags, "--output", plain).code == 0
    assert recordmill("coco", "--data", data, "--output", out).code == 0
    assert shard_bytes(out) == shard_bytes(plain)
    for split in manifest_of(out)["splits"]:
        (rows,) = manifest_of(out)["splits"][split]["inputs"]
        assert rows["images"] == rows["annotations"] == 3


def test_zip(tmp_path, recordmill):
    data = export(tmp_path / "data", LAYOUTS["roboflow"], CATEGORIES)
    shutil.make_archive(str(tmp_path / "packed"), "zip", data)
    for source, out in ((data, "a"), (tmp_path / "packed.zip", "b")):
        assert recordmill("coco", "--data", source, "--output", tmp_path / out).code == 0
    assert shard_bytes(tmp_path / "a") == shard_bytes(tmp_path / "b")


def test_placeholder_of_roboflow(tmp_path, recordmill):
    """The unused category 0 would shift all labels by one."""
    data = export(tmp_path / "data", LAYOUTS["roboflow"], ROBOFLOW)
    done = recordmill("coco", "--data", data, "--output", tmp_path / "out")
    assert "'pets'" in done.err + done.out
    labels = [example["image/object/class/label"] for example in read_examples(tmp_path / "out", "val")]
    assert sorted(labels) == [[1], [1], [3]]
    used = json.loads((data / "test/_annotations.coco.json").read_text())
    used["annotations"][0]["category_id"] = 0
    (data / "test/_annotations.coco.json").write_text(json.dumps(used))
    assert recordmill("coco", "--data", data, "--output", tmp_path / "used").code == 0
    labels = [example["image/object/class/label"] for example in read_examples(tmp_path / "used", "test")]
    assert sorted(labels) == [[1], [2], [3]]


def test_split_of_one_file(tmp_path, recordmill):
    data = export(tmp_path / "data", LAYOUTS["cvat"], CATEGORIES)
    split = "--split", "train=0.5,val=0.5", "--split-by", "rank"
    assert recordmill("coco", "--data", data, *split, "--output", tmp_path / "out").code == 0
    assert sorted(len(read_examples(tmp_path / "out", name)) for name in ("train", "val")) == [1, 2]


@pytest.mark.parametrize(
    ("layout", "flags", "said"),
    [
        ("coco", ["--split", "train=0.5,val=0.5"], "and so does --split"),
        ("coco", ["--instances", "FILE"], "--instances names them"),
        ("fiftyone", ["--masks", "png", "--layout", "keras"], "--masks"),
    ],
)
def test_flags_that_contradict(layout, flags, said, tmp_path, recordmill):
    data = export(tmp_path / "data", LAYOUTS[layout], CATEGORIES)
    flags = [str(data / "annotations/instances_train2017.json") if each == "FILE" else each for each in flags]
    done = recordmill("coco", "--data", data, *flags, "--output", tmp_path / "out")
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("copied", "deleted", "said"),
    [
        (("annotations/instances_train2017.json", "annotations/instances_train2014.json"), "", "both are instances"),
        (("annotations/instances_train2017.json", "labels.json"), "", "says no split"),
        (("annotations/instances_train2017.json", "annotations/panoptic_val2017.json"), "", "of its PNGs"),
        ((), "train2017", "--images gives"),
        ((), "annotations", "no annotation file"),
    ],
)
def test_folders_that_are_ambiguous_or_incomplete(copied, deleted, said, tmp_path, recordmill):
    data = export(tmp_path / "data", LAYOUTS["coco"], CATEGORIES)
    if copied:
        shutil.copy(data / copied[0], data / copied[1])
    if deleted:
        shutil.rmtree(data / deleted)
    done = recordmill("coco", "--data", data, "--output", tmp_path / "out")
    assert said in done.err + done.out
    assert done.code == (0 if "PNGs" in said else 2)


@pytest.mark.skipif(not DATA.exists(), reason="the real data sets are not on this machine")
@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("coco_mini", {"train": "annotations/instances_train2017.json", "val": "annotations/instances_val2017.json"}),
        ("facemask", {"train": "annotations/custom_train.json", "val": "annotations/custom_val.json"}),
        (
            "datumaro_coco_flavours/tests/assets/roboflow_dataset/coco",
            {"train": "train/_annotations.coco.json", "val": "val/_annotations.coco.json"},
        ),
        ("datumaro_coco_flavours/tests/assets/kaggle_dataset/relaxed_coco", {"train": "annotations.json"}),
        ("labelme_coco/examples/instance_segmentation/data_dataset_coco", {"train": "annotations.json"}),
    ],
)
def test_real_sets(folder, files, tmp_path, recordmill):
    assert recordmill("coco", "--data", DATA / folder, "--output", tmp_path / "out").code == 0
    assert {*manifest_of(tmp_path / "out")["splits"]} == {*files}
    for split, path in files.items():
        file = json.loads((DATA / folder / path).read_text())
        examples = read_examples(tmp_path / "out", split)
        assert len(examples) == len(file["images"])
        boxes = sum(len(example["image/object/bbox/xmin"]) for example in examples)
        assert boxes == len(file["annotations"])
