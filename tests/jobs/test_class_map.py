"""Classes renamed, merged and dropped by --class-map, from end to end. The oracles map the input's own files."""

import csv
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from recordmill import open as open_data_set
from recordmill.beam import MapClasses, ReadDataset, WriteDataset
from tests.beam_pipeline import Pipeline
from tests.conftest import (
    annotation,
    coco_flags,
    draw_jpeg,
    every_kind,
    examples_by_name,
    grey,
    image_row,
    manifest_of,
    read_examples,
    write_coco,
)
from tests.jobs.folders import draw_all

NEW_NAMES = {"circle": "round", "square": "box", "triangle": "box", "star": "", "figure": "figure"}


def write_map(path: Path, names: dict[str, str]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(names.items())
    return path


def mapped_coco(instances: str, names: dict[str, str]) -> COCO:
    """The COCO file with the classes of a map."""
    document = json.loads(Path(instances).read_text())
    new_ids, ids = {}, {}
    for category in sorted(document["categories"], key=lambda one: one["id"]):
        if name := names.get(category["name"], category["name"]):
            new_ids[category["id"]] = ids.setdefault(name, category["id"])
    objects = [one for one in document["annotations"] if one["category_id"] in new_ids]
    document["annotations"] = [one | {"category_id": new_ids[one["category_id"]]} for one in objects]
    document["categories"] = [{"id": id_, "name": name} for name, id_ in ids.items()]
    coco = COCO()
    coco.dataset = document
    coco.createIndex()
    return coco


def test_records_equal_mapped_coco_file(sample, tmp_path, recordmill):
    path = write_map(tmp_path / "map.csv", NEW_NAMES)
    flags = coco_flags(sample, tmp_path / "out", "--class-map", path)
    plan = recordmill(*flags, "--dry-run").out
    assert recordmill(*flags).code == 0
    coco = mapped_coco(sample.instances, NEW_NAMES)
    for record in read_examples(tmp_path / "out"):
        expected = coco.imgToAnns[int(record["image/source_id"][0])]
        expected = sorted((one["id"], one["category_id"]) for one in expected)
        assert [*zip(record["image/object/id"], record["image/object/class/label"], strict=True)] == expected
    manifest = manifest_of(tmp_path / "out")
    names = [(category["id"], category["name"]) for category in manifest["categories"]]
    assert names == [(category["id"], category["name"]) for category in coco.dataset["categories"]]
    split = manifest["splits"]["train"]
    numbers = Counter(one["category_id"] for one in COCO(sample.instances).dataset["annotations"])
    document = json.loads(Path(sample.instances).read_text())
    by_name = {category["name"]: numbers[category["id"]] for category in document["categories"]}
    changed = {one["name"]: one for one in split["class_map"]}
    assert changed.keys() == {"circle", "square", "triangle", "star"}
    assert {name: one.get("new_name", "") for name, one in changed.items()} == {
        name: NEW_NAMES[name] for name in changed
    }
    assert split["annotations"]["filtered"] == {"class_map": changed["star"]["objects"]}
    assert all(one["objects"] <= by_name[name] for name, one in changed.items())  # two images have no file
    assert [file["kind"] for file in split["recipe"]["inputs"]] == ["instances", "class_map"]
    square, triangle, star = (changed[name]["objects"] for name in ("square", "triangle", "star"))
    for text in (plan, recordmill("show", tmp_path / "out").out):
        assert f"box: square ({square} objects), triangle ({triangle} objects)\n" in text
        assert f"dropped: star ({star} objects)\n" in text
    assert recordmill("verify", tmp_path / "out").code == 0


def test_order_of_categories_is_that_of_their_option(sample, tmp_path, recordmill):
    path = write_map(tmp_path / "map.csv", NEW_NAMES)
    out = tmp_path / "out"
    for container in ("tfrecord", "parquet"):
        flags = ("--class-map", path, "--categories", "box,round", "--container", container, "--overwrite")
        assert recordmill(*coco_flags(sample, out, *flags)).code == 0
        assert recordmill("verify", out).code == 0
        data = open_data_set(out)
        assert data.classes == ("box", "round")
        ids = {0: 2, 1: 1}  # of class indices
        assert all([ids[i] for i in one["labels"].tolist()] == one["category_ids"].tolist() for one in data["train"])


def test_panoptic_segments_follow(sample, tmp_path, recordmill):
    names = NEW_NAMES | {"sky": ""}
    path = write_map(tmp_path / "map.csv", names)
    out = tmp_path / "out"
    assert recordmill("convert", *every_kind(sample), "--output", out, "--class-map", path).code == 0
    assert recordmill("verify", out).code == 0
    document = json.loads(Path(sample.panoptic).read_text())
    new_ids: dict[str, int] = {}
    label_of = {
        category["id"]: new_ids.setdefault(name, category["id"]) if name else 0
        for category in document["categories"]
        for name in [names.get(category["name"], category["name"])]
    }
    records = {int(record["image/source_id"][0]): record for record in read_examples(out)}
    compared = 0
    for row in document["annotations"][:20]:
        if record := records.get(row["image_id"]):
            colours = np.asarray(Image.open(Path(sample.panoptic_masks) / row["file_name"])).astype(int)
            ids = colours @ [1, 256, 65536]
            expected = np.zeros(ids.shape, int)
            for segment in row["segments_info"]:
                expected[ids == segment["id"]] = label_of[segment["category_id"]]
            assert (grey(record["image/panoptic/category_mask"][0]) == expected).all()
            compared += 1
    assert compared > 15


def test_lists_of_lvis_follow(tmp_path, recordmill):
    """By image: categories with objects, those that are absent, and those that are not exhaustive; car, bus, cat."""
    lists = {1: ([1], [], []), 2: ([3], [1, 2], [3]), 3: ([1], [2], []), 4: ([2, 3], [1], [2]), 5: ([], [1], [])}
    categories = [{"id": number, "name": name} for number, name in enumerate(("car", "bus", "cat", "emu"), 1)]
    rows = [
        image_row(id_, f"{id_}.jpg") | {"neg_category_ids": absent, "not_exhaustive_category_ids": partial}
        for id_, (_, absent, partial) in lists.items()
    ]
    pairs = [(id_, label) for id_, (own, *_) in lists.items() for label in own]
    objects = [annotation(number, id_, category_id=label) for number, (id_, label) in enumerate(pairs, 1)]
    instances = write_coco(tmp_path, rows, objects, categories)
    for id_ in lists:
        draw_jpeg(tmp_path / "images" / f"{id_}.jpg")
    path = write_map(tmp_path / "map.csv", {"car": "vehicle", "bus": "vehicle", "emu": ""})
    flags = "--images", tmp_path / "images", "--instances", instances, "--class-map", path
    assert recordmill("convert", *flags, "-o", tmp_path / "out").code == 0
    lists_by_image = {
        int(record["image_id"]): tuple(
            record[name].tolist() for name in ("neg_category_ids", "not_exhaustive_category_ids")
        )
        for record in open_data_set(tmp_path / "out")["train"]
    }
    classes = {one["name"]: one.get("objects") for one in manifest_of(tmp_path / "out")["splits"]["train"]["class_map"]}
    assert classes == {"car": 2, "bus": 1, "emu": None}  # no object is an emu
    assert lists_by_image == {1: ([], [1]), 2: ([1], [3]), 3: ([], []), 4: ([], [1]), 5: ([], [])}


def test_further_splits_have_the_same_map(tmp_path, recordmill):
    for name in ("a", "b"):
        draw_jpeg(tmp_path / f"{name}.jpg")
    categories = [{"id": 1, "name": "cat"}, {"id": 3, "name": "dog"}, {"id": 4, "name": "emu"}]
    files = {}
    for split, name, ids in (("train", "a", (1, 3)), ("val", "b", (3, 4))):
        (tmp_path / split).mkdir()
        shutil.move(tmp_path / f"{name}.jpg", tmp_path / split)
        objects = [annotation(number, 1, category_id=id_) for number, id_ in enumerate(ids, 1)]
        files[split] = write_coco(tmp_path / split, [image_row(1, f"{name}.jpg")], objects, categories)
    path = write_map(tmp_path / "map.csv", {"dog": "cat"})

    def run(split: str, *more: object):
        flags = ["--images", tmp_path / split, "--instances", files[split], "--output", tmp_path / "out"]
        return recordmill("convert", *flags, "--split", split, *more)

    assert run("train", "--class-map", path).code == 0
    refused = run("val")
    assert refused.code == 1
    assert "has no class 'dog'" in refused.err
    assert run("val", "--class-map", path).code == 0
    counts = {name: split["class_counts"] for name, split in manifest_of(tmp_path / "out")["splits"].items()}
    assert counts == {"train": [2, 0], "val": [1, 1]}
    changed = run("val", "--class-map", write_map(tmp_path / "map.csv", {"dog": "cat", "emu": ""}))
    assert changed.code == 2
    assert f"--class-map {path}" in changed.err
    empty = run("val", "--class-map", write_map(tmp_path / "map.csv", {"dog": "", "emu": ""}), "--overwrite")
    assert empty.code == 2
    assert "drops all labels of the split val: 'dog' (1), 'emu' (1)" in empty.err


def test_class_folders_are_stratified_by_new_classes(tmp_path, recordmill):
    classes = [*(f"ant{number}" for number in range(20)), *["cow"] * 10, *["dog"] * 10]
    names = [f"{name}/{number}.jpg" for number, name in enumerate(classes)]
    images = draw_all(tmp_path / "images", names)
    path = write_map(tmp_path / "map.csv", {"dog": "", "cow": "cow", "*": "insect"})
    flags = ["--class-map", path, "--split", "train=0.6,val=0.4", "--stratify"]
    assert recordmill("convert", images, "-o", tmp_path / "out", *flags).code == 0
    manifest = manifest_of(tmp_path / "out")
    assert [(one["id"], one["name"]) for one in manifest["categories"]] == [(0, "insect"), (1, "cow")]
    assert {name: split["class_counts"] for name, split in manifest["splits"].items()} == {
        "train": [12, 6],
        "val": [8, 4],
    }
    assert sum(split["images"]["of_other_classes"] for split in manifest["splits"].values()) == 10
    labels = {
        name: (record["image/class/label"][0], record["image/class/text"][0].decode())
        for split in ("train", "val")
        for name, record in examples_by_name(tmp_path / "out", split).items()
    }
    expected = {"ant": (0, "insect"), "cow": (1, "cow")}
    assert labels == {name: expected[name[:3]] for name in names if not name.startswith("dog")}


def test_ids_of_yolo_that_begin_with_0(tmp_path, recordmill):
    folder = tmp_path / "set"
    (folder / "labels").mkdir(parents=True)
    (folder / "data.yaml").write_text("{names: [dog, bus, car], train: images}")
    draw_jpeg(folder / "images" / "a.jpg")
    (folder / "labels" / "a.txt").write_text("2 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.5 0.5\n0 0.2 0.2 0.2 0.2\n")
    for names, labels, has_ids in (
        ({"bus": "vehicle", "car": "vehicle"}, [2, 2, 1], True),
        ({"bus": "vehicle", "car": "vehicle", "dog": ""}, [1, 1], False),
    ):
        flags = ("--format", "yolo", "--class-map", write_map(tmp_path / "map.csv", names), "--overwrite")
        assert recordmill("convert", folder, "-o", tmp_path / "out", *flags).code == 0
        (record,) = read_examples(tmp_path / "out")
        assert record["image/object/class/label"] == labels
        assert ("image/object/category_id" in record) is has_ids
        assert recordmill("verify", tmp_path / "out").code == 0


@pytest.mark.parametrize("format_", ["coco", "createml"])
def test_splits_are_stratified_by_new_classes(tmp_path, recordmill, format_):
    """Every image has a class of its own, so only those that become one class decide splits."""
    images = draw_all(tmp_path / "images", [f"{number}.jpg" for number in range(20)])
    names = [f"car{number}" for number in range(10)] + [f"pet{number}" for number in range(10)]
    if format_ == "coco":
        rows = [image_row(number, f"{number}.jpg", None, None) for number in range(20)]
        objects = [annotation(number, number, category_id=number) for number in range(20)]
        categories = [{"id": id_, "name": name} for id_, name in enumerate(names)]
        flags = ["--images", images, "--instances", write_coco(tmp_path, rows, objects, categories)]
    else:
        box = {"x": 8, "y": 8, "width": 8, "height": 8}
        rows = [
            {"image": f"{number}.jpg", "annotations": [{"label": names[number], "coordinates": box}]}
            for number in range(20)
        ]
        (images / "_annotations.createml.json").write_text(json.dumps(rows))
        flags = [images, "--format", "createml"]
    path = write_map(tmp_path / "map.csv", dict.fromkeys(names[:10], "vehicle") | {"*": "pet", "pet9": ""})
    divided = ("--split", "a=0.6,b=0.4", "--stratify", "--categories", "vehicle")
    outcome = recordmill("convert", *flags, "-o", tmp_path / "out", "--class-map", path, *divided)
    assert outcome.code == 0, outcome
    splits = manifest_of(tmp_path / "out")["splits"]
    assert [(split["class_counts"], split["images"]["written"]) for split in splits.values()] == [([6], 12), ([4], 8)]


def test_rows_of_dropped_classes_are_no_rejects(tmp_path, recordmill):
    rows = [(number, ("car", "bus", "dog", "cat")[number % 4]) for number in range(40)]
    (tmp_path / "t.csv").write_text("x,label\n" + "".join(f"{x},{name}\n" for x, name in rows))
    path = write_map(tmp_path / "map.csv", {"car": "vehicle", "bus": "vehicle", "dog": ""})
    flags = ("--label", "label", "--class-map", path, "--max-rejects", 0, "--split", "train=0.6,val=0.4", "--stratify")
    out = tmp_path / "out"
    assert recordmill("convert", tmp_path / "t.csv", "-o", out, *flags).code == 0
    manifest = manifest_of(out)
    records = {record["x"][0]: record["label"][0] for split in ("train", "val") for record in read_examples(out, split)}
    assert [one["name"] for one in manifest["categories"]] == ["vehicle", "cat"]
    assert records == {x: int(name == "cat") for x, name in rows if name != "dog"}
    splits = manifest["splits"]
    assert [split["class_counts"] for split in splits.values()] == [[12, 6], [8, 4]]
    assert sum(split["images"]["of_other_classes"] for split in splits.values()) == 10
    number = Counter[str]()
    for split in splits.values():
        number.update({one["name"]: one.get("images", 0) for one in split["class_map"]})
    assert number == {"car": 10, "bus": 10, "dog": 10}
    assert recordmill("verify", out).code == 0


def test_samples_are_mapped_as_by_the_command(sample, tmp_path, recordmill, empty_pages):
    path = write_map(tmp_path / "map.csv", NEW_NAMES | {"sky": ""})
    assert recordmill("convert", *every_kind(sample), "--output", tmp_path / "out", "--class-map", path).code == 0
    keywords = {
        "data": None,
        "format": "coco",
        **{name: getattr(sample, name) for name in ("images", "instances", "keypoints", "captions", "panoptic")},
        "panoptic_masks": sample.panoptic_masks,
    }
    with Pipeline() as p:
        read = p | ReadDataset(**keywords)
        read | MapClasses(path) | WriteDataset(tmp_path / "piped", max_rejects=0.2)
    one, other = (examples_by_name(tmp_path / folder) for folder in ("out", "piped"))
    assert one == other
    manifests = [manifest_of(tmp_path / folder)["splits"]["train"] for folder in ("out", "piped")]
    assert manifests[0]["class_map"] == manifests[1]["class_map"]
    assert manifests[0]["annotations"] == manifests[1]["annotations"]
    assert manifests[0]["images"]["emptied"] == manifests[1]["images"]["emptied"] > 0
