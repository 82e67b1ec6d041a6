import json
import re

import msgspec
import pytest

from recordmill.schemas.dataset.dataset_files import state_folder
from recordmill.schemas.dataset.manifest import FORMAT, ImageCounts, Manifest, decode_manifest, encode_json, num_classes
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.layouts import DETECTION, LAYOUTS
from tests.transforms.shards.test_describe_split import SPLIT as OF_TRAIN

OPTIONS = {"gzip": False, "seed": 0, "min_area": 0.5, "boxes": "clip", "categories": ["cat"], "num_shards": None}
SPLIT = msgspec.structs.replace(OF_TRAIN, recipe=msgspec.structs.replace(OF_TRAIN.recipe, options=OPTIONS))
MANIFEST = Manifest(
    format=FORMAT,
    name="coco",
    layout="detection",
    parts=(Part.CAPTIONS, Part.LVIS),
    categories=(Category(1, "cat", keypoints=("nose", "tail"), skeleton=((1, 2),)), Category(3, "dog", "animal")),
    segments=(Category(3, "dog", "animal", isthing=1), Category(92, "banner", isthing=0)),
    splits={"train": SPLIT},
)


def test_encode_json():
    """Anybody can read it, and equal values give equal bytes."""
    assert decode_manifest(encode_json(MANIFEST), "manifest.json") == MANIFEST
    document = json.loads(encode_json(MANIFEST))
    assert document["categories"][1] == {"id": 3, "name": "dog", "supercategory": "animal"}
    assert document["parts"] == ["captions", "lvis"]
    assert document["segments"][1] == {"id": 92, "name": "banner", "isthing": 0}
    split = document["splits"]["train"]
    assert split["images"].items() >= {"rows": 10, "written": 8, "without_record": 0}.items()
    assert split["inputs"][0] == {"path": "a.json", "kind": "instances", "images": 8, "annotations": 16}
    assert split["recipe"]["options"] == OPTIONS
    assert encode_json({"b": 1, "a": {"d": 2, "c": 3}}) == encode_json({"a": {"c": 3, "d": 2}, "b": 1})
    assert encode_json({"b": 1, "a": 2}) == b'{\n  "a": 2,\n  "b": 1\n}\n'


def test_sums():
    assert (SPLIT.examples, SPLIT.bytes) == (8, 800)
    assert SPLIT.annotations.in_records == 9 + 8 + 5 + 3 + 1
    assert SPLIT.annotations.accounted == SPLIT.annotations.rows == 26 + 2 + 3 + 2
    images = ImageCounts(20, 10, 4, {"image_missing": 1, "too_large": 2}, of_other_classes=3)
    assert images.accounted == 10 + 4 + 1 + 2 + 3
    assert SPLIT.images.accounted == SPLIT.images.rows


def test_table_and_labels():
    assert MANIFEST.table == DETECTION.with_parts((Part.CAPTIONS, Part.LVIS))
    assert MANIFEST.labels == LabelMap(MANIFEST.categories, MANIFEST.segments)


COCO_IDS = (Category(1, "person"), Category(90, "toothbrush"))
FROM_0 = (Category(0, "car"), Category(1, "van"))


@pytest.mark.parametrize(
    ("layout", "categories", "number"),
    [
        ("detection", COCO_IDS, 91),
        ("detection", FROM_0, 3),  # class index + 1: 0 means background
        ("detection", (Category(0, "background"), Category(4, "car")), 5),
        ("detection", (), 0),
        ("keras", COCO_IDS, 91),
        ("keras", FROM_0, 2),
        ("tfds", COCO_IDS, 2),
        ("classification", FROM_0, 2),
        ("classification", (), 0),
    ],
)
def test_num_classes(layout, categories, number):
    """A model has to know the largest label, and one more. Segments do not count."""
    labels = LabelMap(categories, (Category(200, "sky", isthing=0),))
    assert num_classes(labels, LAYOUTS[layout].with_parts(())) == number


def test_num_classes_of_masks_is_one_more_than_the_largest_value():
    labels = LabelMap((), (Category(0, "sky"), Category(7, "car")), has_pixel_ids=True)
    assert num_classes(labels, LAYOUTS["detection"].with_parts((Part.SEMANTIC,))) == 8


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "is not a Recordmill manifest"),
        (b"{}", "is not a Recordmill manifest"),
        (encode_json(MANIFEST)[:-100], "is not a Recordmill manifest"),
        (encode_json(MANIFEST).replace(b'"rows": 10', b'"rows": "10"'), "is not a Recordmill manifest"),
        (encode_json(MANIFEST).replace("ü".encode(), b"\xfc"), "is not a Recordmill manifest"),
        (encode_json({"format": FORMAT + 1}), f"has manifest format {FORMAT + 1}"),
        (encode_json({"format": FORMAT + 1, "name": "x", "splits": {}}), f"has manifest format {FORMAT + 1}"),
        (encode_json(MANIFEST).replace(b'"detection"', b'"yolo"'), "has the unknown layout 'yolo'"),
    ],
)
def test_not_a_manifest_is_refused(data, fault):
    with pytest.raises(ConfigError, match=f"^out/manifest.json {re.escape(fault)}"):
        decode_manifest(data, "out/manifest.json")


SHARD = "coco-train.tfrecord-00001-of-00002"


@pytest.mark.parametrize("layout", ["detection", "keras"])
@pytest.mark.parametrize(
    "file",
    [
        *("../x", "", "manifest.json"),
        *(f"../{SHARD}", f"{SHARD}\n", SHARD.replace("train", "val")),
        "a/file_00-1.tfrec",
    ],
)
def test_file_not_named_as_shard_of_its_split_is_refused(file, layout):
    data = encode_json(msgspec.structs.replace(MANIFEST, layout=layout))
    assert decode_manifest(data, "manifest.json").layout == layout
    changed = data.replace(json.dumps(SHARD).encode(), json.dumps(file).encode())
    with pytest.raises(ConfigError, match="which is not the name of a shard of its split train"):
        decode_manifest(changed, "manifest.json")


@pytest.mark.parametrize(
    ("known", "changed", "told"),
    [
        ('"coco', '"../victim/coco', "the name '../victim/coco' must be letters, digits"),
        ('"train"', '"../train"', "the name of the split '../train' must be letters, digits"),
        ('"split": "train"', '"split": "val"', "the recipe of coco-train belongs to coco-val"),
    ],
)
def test_manifest_names_nothing_outside_its_folder(known, changed, told):
    """Its names begin those of files that --overwrite deletes."""
    data = encode_json(MANIFEST).decode()
    assert known in data
    with pytest.raises(ConfigError, match=re.escape(told)):
        decode_manifest(data.replace(known, changed).encode(), "manifest.json")


def test_state_folders_of_splits_differ_and_are_hidden():
    assert (state_folder("train"), state_folder("val")) == (".recordmill-train", ".recordmill-val")
