"""COCO files in several splits: images go by their names or groups, and all that is of an image with it."""

import json
import re
from collections import Counter
from pathlib import Path
from posixpath import normpath

import pytest

from recordmill.launch.cli import main
from tests.conftest import (
    CATEGORIES,
    Outcome,
    annotation,
    draw_jpeg,
    examples_by_name,
    image_row,
    manifest_of,
    rejects_of,
    write_coco,
)

PATIENTS = 8
NAMES = [f"patient{number // 3}/{number}.jpg" for number in range(3 * PATIENTS)]
SPLIT = ["--split", "train=0.5,val=0.5", "--group-from", "^(patient[0-9]+)/", "--max-rejects", "0.5"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Three images of each patient, each with an object and a caption; and rows of every kind that cannot be used."""
    folder = tmp_path_factory.mktemp("inputs")
    for name in NAMES[:-1]:
        draw_jpeg(folder / "images" / name)
    draw_jpeg(folder / "images" / "nobody.jpg")
    rows = [image_row(id_, name) for id_, name in enumerate([f"./{NAMES[0]}", *NAMES[1:], "nobody.jpg"])]
    good = [annotation(id_, id_) for id_ in range(len(rows))]
    bad = [
        *(annotation(100 + id_, id_, category_id=77) for id_ in (0, 5, 9)),
        *(annotation(200 + id_, id_) | {"bbox": None} for id_ in (1, 6, 12, 20)),
        *(annotation(id_, id_) for id_ in (2, 7)),
        annotation(300, 999),
        annotation(300, 3),
        {"id": 301},
    ]
    write_coco(folder, [*rows, {"id": "no id"}], good + bad, CATEGORIES)
    captions = [{"id": id_, "image_id": id_, "caption": str(id_)} for id_ in range(len(rows))]
    (folder / "captions.json").write_text(json.dumps({"images": rows, "annotations": captions, "categories": []}))
    return folder


def flags(inputs: Path, out: Path, *more: object) -> list[str]:
    files = ["--images", inputs / "images", "--instances", inputs / "instances.json"]
    return list(map(str, ["convert", *files, "--captions", inputs / "captions.json", "--output", out, *more]))


@pytest.fixture(scope="module")
def converted(inputs, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("converted")
    assert main(flags(inputs, out, *SPLIT)) == 0
    return out


def by_name(folder: Path, split: str) -> dict[str, dict[str, list]]:
    return {normpath(name): example for name, example in examples_by_name(folder, split).items()}


def test_no_group_is_in_two_splits(converted, inputs, tmp_path, recordmill):
    train, val = by_name(converted, "train"), by_name(converted, "val")
    groups = [{name.split("/")[0] for name in names} for names in (train, val)]
    assert groups[0] & groups[1] == set()
    assert [len(split_groups) for split_groups in groups] == [3, 5]  # of all versions
    assert recordmill(*flags(inputs, tmp_path, "--max-rejects", 0.5)).code == 0
    whole = by_name(tmp_path, "train")
    assert whole.pop("nobody.jpg")
    assert train | val == whole


def test_stratified_objects_wanted(tmp_path, recordmill):
    """By all objects, dogs would come first; the wanted cats are in the first images by the hash."""
    for number in range(20):
        draw_jpeg(tmp_path / "images" / f"{number}.jpg")
    objects = [annotation(number, number, category_id=3) for number in range(0, 20, 5)]
    objects += [annotation(100 + number, number, area=90 if number < 8 else 1) for number in range(20)]
    write_coco(tmp_path, [image_row(number, f"{number}.jpg") for number in range(20)], objects, CATEGORIES)
    flags = ["--images", tmp_path / "images", "--instances", tmp_path / "instances.json", "--output", tmp_path / "out"]
    asked = ["--split", "train=0.5,val=0.5", "--stratify", "--categories", "cat", "--min-area", 50]
    assert recordmill("convert", *flags, *asked).code == 0
    splits = [by_name(tmp_path / "out", split) for split in ("train", "val")]
    assert [len(split) for split in splits] == [10, 10]
    with_cats = [[int(name[:-4]) < 8 for name in split].count(True) for split in splits]
    assert with_cats == [4, 4]


def test_all_image_is_counted_in_its_split(converted, inputs, recordmill):
    split_of = {name: split for split in ("train", "val") for name in by_name(converted, split)}
    patients = {name.split("/")[0]: split for name, split in split_of.items()}
    names = dict(enumerate([*NAMES, "nobody.jpg"]))
    rejects = rejects_of(converted)
    assert Counter(reject["reason"] for reject in rejects) == {
        "unknown_category": 3,
        "malformed_box": 4,
        "duplicate_annotation_id": 2,
        "unknown_image": 1,
        "malformed_annotation": 1,
        "malformed_image": 1,
        "image_missing": 1,
        "no_group": 1,
    }
    for reject in rejects:
        name = names.get(reject["id"] if reject["what"] == "image" else reject["image_id"], "")
        if patient := re.match("patient[0-9]+", name):
            assert reject["split"] == patients[patient[0]], reject
        elif not name:
            assert reject["split"] == "train"
    counts = {split: entry["images"] for split, entry in manifest_of(converted)["splits"].items()}
    assert [counts[split]["groups"] for split in ("train", "val")] == [3, 5]
    assert sum(split_counts["rows"] for split_counts in counts.values()) == len(NAMES) + 2
    assert recordmill("verify", converted).code == 0


def test_split_added_has_classes_of_others(tmp_path, recordmill):
    def split(name: str, categories: list[dict]) -> Outcome:
        draw_jpeg(tmp_path / name / "images" / f"{name}.jpg")
        objects = [annotation(7, 1, category_id=categories[-1]["id"])]
        instances = write_coco(tmp_path / name, [image_row(1, f"{name}.jpg")], objects, categories)
        flags = ["--images", tmp_path / name / "images", "--instances", instances, "--output", tmp_path / "out"]
        return recordmill("convert", *flags, "--split", name)

    assert split("train", CATEGORIES).code == 0
    added = split("val", CATEGORIES[1:])
    assert f"no example is of 'cat'; labels are those of train of {tmp_path / 'out'}" in added.out
    assert manifest_of(tmp_path / "out")["splits"]["val"]["class_counts"] == [0, 1]
    refused = split("test", [{"id": 4, "name": "dog"}])
    assert refused.code == 1
    same_name = (
        "has another id for the class 'dog', so labels would differ between splits. Write all splits by one command"
    )
    assert same_name in refused.err
    refused = split("test", [{"id": 4, "name": "bird"}])
    assert "has no class 'bird', so labels would differ" in refused.err
