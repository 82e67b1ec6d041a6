"""`recordmill extract`: what went into a data set comes out of it, and nothing is written beside the folder."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
import tensorflow as tf
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from recordmill.launch.cli import main
from tests.conftest import (
    CATEGORIES,
    SHARED_DATA,
    SQUARE,
    annotation,
    coco_flags,
    convert,
    draw_jpeg,
    every_kind,
    image_row,
    rejects_of,
    shard_bytes,
    write_coco,
)
from tests.jobs.test_verify import changed, records, rewrite

MASKS = ("both", "png")


@pytest.fixture(scope="module")
def converted(sample, tmp_path_factory) -> dict[str, Path]:
    """The sample in the layout detection, with masks as PNGs; with both forms, of every kind."""
    folders = {}
    for masks in MASKS:
        folders[masks] = tmp_path_factory.mktemp(masks)
        flags = every_kind(sample) if masks == "both" else coco_flags(sample, folders[masks])[1:]
        assert main(["coco", *flags, "--masks", masks, "--num-shards", "3", "--output", str(folders[masks])]) == 0
    return folders


@pytest.fixture(scope="module")
def extracted(converted, tmp_path_factory) -> dict[str, Path]:
    """What was extracted of `converted`."""
    folders = {}
    for masks, folder in converted.items():
        folders[masks] = tmp_path_factory.mktemp("extracted") / "new"
        assert main(["extract", str(folder), str(folders[masks])]) == 0
    return folders


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """A folder whose `out` has 14 images of other colours with ids from 1 on in one shard, each with one object that
    has the same id and a mask."""
    folder = tmp_path_factory.mktemp("pictures")
    rows = [image_row(number, f"{number}.jpg") for number in range(1, 15)]
    for row in rows:
        draw_jpeg(folder / "images" / row["file_name"], colour=(row["id"] * 18, 0, 0))
    annotations = [annotation(row["id"], row["id"], segmentation=SQUARE) for row in rows]
    instances = write_coco(folder, rows, annotations, CATEGORIES)
    flags = ["--images", folder / "images", "--instances", instances, "--masks", "png", "--output", folder / "out"]
    assert main(["coco", *map(str, flags)]) == 0
    return folder


@pytest.fixture
def folder(pictures, tmp_path) -> Path:
    """A copy of that data set."""
    return Path(shutil.copytree(pictures / "out", tmp_path / "out"))


def edit(folder: Path, changes: dict[int, tuple[str, object]]) -> str:
    """Give records by image id another value of one feature. They are then ordered by id, and nothing else in the
    folder tells that they were edited; returns the shard's name."""
    (name,) = shard_bytes(folder)
    by_id = sorted(
        (int(tf.train.Example.FromString(record).features.feature["image/source_id"].bytes_list.value[0]), record)
        for record in records(folder / name)
    )
    rewrite(folder / name, [changed(record, *changes[id_]) if id_ in changes else record for id_, record in by_id])
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["splits"]["train"]["shards"][0]["sha256"] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return name


def image_ids(folder: Path) -> list[int]:
    return [row["id"] for row in document(folder)["images"]]


def document(folder: Path, kind: str = "instances", split: str = "train") -> dict:
    return json.loads((folder / "annotations" / f"{kind}_{split}.json").read_bytes())


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows_of(path: str | Path, part: str, bad: Iterable[int] = ()) -> list[dict]:
    """The rows of a COCO file by id, without those of some images."""
    rows = json.loads(Path(path).read_text())[part]
    kept = [row for row in rows if row.get("image_id", row["id"] if part == "images" else None) not in bad]
    return sorted(kept, key=lambda row: row.get("id", row.get("image_id")))


def without(row: dict, *keys: str) -> dict:
    return {key: value for key, value in row.items() if key not in keys}


def bad_images(folder: Path) -> set[int]:
    return {row["id"] for row in rejects_of(folder)}


# What comes out is what went in


def test_image_files_are_the_same_bytes(converted, extracted, sample):
    rows = rows_of(sample.instances, "images", bad_images(converted["png"]))
    originals = {row["file_name"]: (Path(sample.images) / row["file_name"]).read_bytes() for row in rows}
    assert len(originals) == 22
    assert files_below(extracted["both"] / "images" / "train") == originals
    assert document(extracted["both"])["images"] == rows


@pytest.mark.parametrize("masks", MASKS)
def test_instances_are_those_of_the_json(masks, converted, extracted, sample):
    found = document(extracted[masks])
    expected = rows_of(sample.instances, "annotations", bad_images(converted["png"]))
    drawn = ("segmentation", "keypoints", "num_keypoints")
    assert [without(row, "segmentation") for row in found["annotations"]] == [without(row, *drawn) for row in expected]
    names = [without(row, "keypoints", "skeleton") for row in found["categories"]]
    assert names == rows_of(sample.instances, "categories")
    coco, back = COCO(sample.instances), COCO(str(extracted[masks] / "annotations" / "instances_train.json"))
    for id_, row in back.anns.items():
        assert isinstance(row["segmentation"]["counts"], str)
        assert (back.annToMask(row) == coco.annToMask(coco.anns[id_])).all()
    assert len(back.anns) > 50


def test_keypoints_are_those_of_the_json(converted, extracted, sample):
    found = document(extracted["both"], "person_keypoints")
    expected = rows_of(sample.keypoints, "annotations", bad_images(converted["both"]))
    rows = [without(row, "segmentation") for row in found["annotations"]]
    assert rows == [without(row, "segmentation") for row in expected]
    assert found["categories"] == rows_of(sample.keypoints, "categories")
    assert len(rows) > 10


def test_captions_are_numbered_in_the_order_of_images(converted, extracted, sample):
    rows = rows_of(sample.captions, "annotations", bad_images(converted["both"]))
    expected = [{"id": number} | without(row, "id") for number, row in enumerate(rows, 1)]
    assert document(extracted["both"], "captions")["annotations"] == expected


def test_masks_of_whole_images_are_the_records_own(converted, extracted):
    from tests.conftest import read_examples

    folders = {"semantic": "segmentation/class/encoded", "panoptic_categories": "panoptic/category_mask"}
    folders["panoptic_instances"] = "panoptic/instance_mask"
    for folder, feature in folders.items():
        expected = {
            os.path.splitext(example["image/filename"][0].decode())[0] + ".png": example[f"image/{feature}"][0]
            for example in read_examples(converted["both"])
        }
        assert files_below(extracted["both"] / folder / "train") == expected


@pytest.mark.parametrize("layout", ["detection", "keras", "tfds"])
def test_what_was_extracted_gives_the_same_shards_again(layout, converted, sample, tmp_path, recordmill):
    """Byte for byte. The two bad images are left out of the input, as they take part in the plan of shards."""
    bad = bad_images(converted["png"])
    assert len(bad) == 2
    kinds = {"instances": sample.instances}
    if layout != "keras":
        kinds["captions"] = sample.captions
    if layout == "detection":
        kinds["keypoints"] = sample.keypoints
    for kind, path in kinds.items():
        whole = json.loads(Path(path).read_text())
        rows = {part: rows_of(path, part, bad) for part in ("images", "annotations") if part in whole}
        (tmp_path / f"{kind}.json").write_text(json.dumps(whole | rows))
    inputs = [word for kind in kinds for word in (f"--{kind}", tmp_path / f"{kind}.json")]
    same = ["--layout", layout, *(["--masks", "rle"] if layout == "detection" else ["--masks", "none"])]
    same += ["--examples-per-shard", 30] if layout == "keras" else ["--num-shards", 3]
    assert recordmill("coco", "--images", sample.images, *inputs, *same, "--output", tmp_path / "one").code == 0
    assert recordmill("extract", tmp_path / "one", tmp_path / "dir").code == 0
    names = {"instances": "instances", "captions": "captions", "keypoints": "person_keypoints"}
    inputs = [
        word for kind in kinds for word in (f"--{kind}", tmp_path / "dir" / "annotations" / f"{names[kind]}_train.json")
    ]
    if layout == "keras":  # which says nothing of crowds
        assert {row["iscrowd"] for row in document(tmp_path / "dir")["annotations"]} == {0}
    images = tmp_path / "dir" / "images" / "train"
    assert recordmill("coco", "--images", images, *inputs, *same, "--output", tmp_path / "two").code == 0
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*tf*rec*")} for name in ("one", "two")
    )
    assert one == two
    assert len(one) >= 3


def test_layout_keras(sample, tmp_path, recordmill):
    assert recordmill(*coco_flags(sample, tmp_path / "out", "--layout", "keras")).code == 0
    outcome = recordmill("extract", tmp_path / "out", tmp_path / "dir")
    assert outcome.code == 0
    assert "iscrowd is 0" in outcome.out
    bad = bad_images(tmp_path / "out")
    expected = rows_of(sample.instances, "annotations", bad)
    drawn = ("segmentation", "keypoints", "num_keypoints")
    found = document(tmp_path / "dir")
    assert found["annotations"] == [without(row, *drawn) | {"iscrowd": 0} for row in expected]
    with_objects = {row["image_id"] for row in expected}
    images = [row for row in rows_of(sample.instances, "images", bad) if row["id"] in with_objects]
    assert found["images"] == images
    files = {row["file_name"]: (Path(sample.images) / row["file_name"]).read_bytes() for row in images}
    assert files_below(tmp_path / "dir" / "images" / "train") == files


def test_layout_tfds_with_panoptic_pngs(sample, tmp_path, recordmill):
    flags = ["--layout", "tfds", "--captions", sample.captions]
    flags += ["--panoptic", sample.panoptic, "--panoptic-masks", sample.panoptic_masks]
    assert recordmill(*coco_flags(sample, tmp_path / "out", *flags)).code == 0
    assert recordmill("extract", tmp_path / "out", tmp_path / "dir").code == 0
    bad = bad_images(tmp_path / "out")
    drawn = ("segmentation", "keypoints", "num_keypoints")
    rows = rows_of(sample.instances, "annotations", bad)
    assert document(tmp_path / "dir")["annotations"] == [without(row, *drawn) for row in rows]
    assert document(tmp_path / "dir", "captions")["annotations"] == rows_of(sample.captions, "annotations", bad)
    panoptic = document(tmp_path / "dir", "panoptic")
    expected = rows_of(sample.panoptic, "annotations", bad)
    assert panoptic["annotations"] == expected
    assert panoptic["categories"] == rows_of(sample.panoptic, "categories")
    files = {row["file_name"]: (Path(sample.panoptic_masks) / row["file_name"]).read_bytes() for row in expected}
    assert files_below(tmp_path / "dir" / "panoptic" / "train") == files


def test_lists_of_lvis_and_an_object_without_a_mask(tmp_path, recordmill):
    draw_jpeg(tmp_path / "images" / "a.jpg")
    image = image_row(1, "a.jpg") | {"neg_category_ids": [3], "not_exhaustive_category_ids": []}
    rows = [
        annotation(1, 1),
        annotation(2, 1, segmentation=[[5, 5, 15, 5, 15, 15]], area=50.37, bbox=(5.25, 5, 9.1, 8)),
    ]
    instances = write_coco(tmp_path, [image], rows, CATEGORIES)
    assert convert(recordmill, tmp_path, instances, "--masks", "both").code == 0
    assert recordmill("extract", tmp_path / "out", tmp_path / "dir").code == 0
    found = document(tmp_path / "dir")
    assert found["images"] == [image]
    assert found["categories"] == CATEGORIES
    first, second = found["annotations"]
    assert first == annotation(1, 1) | {"segmentation": []}
    drawn = coco_mask.merge(coco_mask.frPyObjects([[5, 5, 15, 5, 15, 15]], 30, 40))
    assert second["segmentation"] == {"counts": drawn["counts"].decode(), "size": [30, 40]}
    assert (second["area"], second["bbox"]) == (50.37, [5.25, 5, 9.1, 8])


@pytest.mark.skipif(not SHARED_DATA.exists(), reason="the real data sets are not on this machine")
def test_coco_s_own_images(tmp_path, recordmill):
    """Boxes and areas with decimals, keypoints of people, crowds."""
    mini = SHARED_DATA / "coco_mini"
    paths = {
        kind: mini / "annotations" / f"{name}_train2017.json"
        for kind, name in (("instances", "instances"), ("keypoints", "person_keypoints"), ("captions", "captions"))
    }
    flags = [word for kind, path in paths.items() for word in (f"--{kind}", path)]
    flags = ["--images", mini / "train2017", *flags, "--masks", "rle", "--gzip", "--num-shards", 2]
    assert recordmill("coco", *flags, "--output", tmp_path / "out").code == 0
    assert recordmill("extract", tmp_path / "out", tmp_path / "dir").code == 0
    images = {row["id"]: row for row in rows_of(paths["instances"], "images")}
    files = {row["file_name"]: (mini / "train2017" / row["file_name"]).read_bytes() for row in images.values()}
    assert files_below(tmp_path / "dir" / "images" / "train") == files
    coco = COCO(str(paths["instances"]))
    found = document(tmp_path / "dir")["annotations"]
    assert [row["id"] for row in found] == sorted(coco.anns)
    for row in found:
        original = coco.anns[row["id"]]
        for key in ("image_id", "category_id", "iscrowd"):
            assert row[key] == original[key]
        assert row["area"] == pytest.approx(original["area"], rel=1e-7)
        x, y, width, height = original["bbox"]
        image = images[row["image_id"]]
        inside = [x, y, min(x + width, image["width"]) - x, min(y + height, image["height"]) - y]
        assert row["bbox"] == pytest.approx(inside, abs=1e-3)
        assert (coco_mask.decode(row["segmentation"]) == coco.annToMask(original)).all()
    figures = {row["id"]: row for row in document(tmp_path / "dir", "person_keypoints")["annotations"]}
    for original in rows_of(paths["keypoints"], "annotations"):
        assert figures[original["id"]]["keypoints"] == original["keypoints"]
        assert figures[original["id"]]["num_keypoints"] == original["num_keypoints"]
    said = sorted((row["image_id"], row["caption"]) for row in document(tmp_path / "dir", "captions")["annotations"])
    assert said == sorted((row["image_id"], row["caption"]) for row in rows_of(paths["captions"], "annotations"))
    names = [without(row, "keypoints", "skeleton") for row in document(tmp_path / "dir")["categories"]]
    assert names == rows_of(paths["instances"], "categories")


def test_what_is_told(converted, tmp_path, recordmill):
    outcome = recordmill("extract", converted["both"], tmp_path / "dir", "--", "--direct_num_workers=2")
    size = sum(map(len, files_below(tmp_path / "dir" / "images").values()))
    kinds = ("instances", "person_keypoints", "captions")
    counts = {kind: len(document(tmp_path / "dir", kind)["annotations"]) for kind in kinds}
    assert outcome.out.splitlines() == [
        f"train: 22 images, {size / 1000:.1f} kB, are in {tmp_path}/dir",
        *(f"  {tmp_path}/dir/annotations/{kind}_train.json  {n} annotations" for kind, n in counts.items()),
        "not in the records, and so not here: of every COCO file: info",
        "layout detection does not keep the ids of captions: they are numbered from 1",
        "layout detection does not keep panoptic segments, but masks: those are written, and no panoptic JSON",
    ]
    assert "Traceback" not in outcome.err


# Splits and folders


def test_two_splits_and_one_of_them(sample, tmp_path, recordmill):
    for split in ("train", "val"):
        assert recordmill(*coco_flags(sample, tmp_path / "out", "--split", split, "--gzip")).code == 0
    outcome = recordmill("extract", tmp_path / "out", tmp_path / "both", "--workers", 1, "--progress", "plain")
    assert outcome.code == 0
    assert [line.split(",")[0] for line in outcome.out.splitlines() if "images" in line] == [
        "train: 22 images",
        "val: 22 images",
    ]
    assert recordmill("extract", tmp_path / "out", tmp_path / "val", "--split", "val").code == 0
    val = files_below(tmp_path / "val")
    assert {name.split("/")[0] for name in val} == {"images", "annotations"}
    assert {name.split("/")[1] for name in val} == {"val", "instances_val.json"}
    both = files_below(tmp_path / "both")
    assert {name: both[name] for name in val} == val
    as_train = {
        name.replace("images/val/", "images/train/").replace("_val", "_train"): data for name, data in val.items()
    }
    assert both == val | as_train


def test_what_it_refuses(folder, tmp_path, recordmill):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "images").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / ".recordmill-extract").symlink_to(tmp_path / "mine")
    for arguments, told in (
        ((folder, tmp_path / "mine"), "is not an empty folder"),
        ((folder, tmp_path / "mine" / "file"), "is not an empty folder"),
        ((folder, tmp_path / "link"), "is not an empty folder"),
        ((folder, tmp_path / "state"), "state/.recordmill-extract is a link"),
        ((folder, folder), "is not an empty folder"),
        ((folder, tmp_path / "dir", "--split", "val"), "has no such split; it has train"),
        ((tmp_path / "mine", tmp_path / "dir"), "has no manifest.json"),
        ((folder, "s3://bucket/dir"), "not supported"),
        ((folder,), "DIR is missing"),
    ):
        outcome = recordmill("extract", *arguments)
        assert (outcome.code, told in outcome.err) == (2, True), outcome
    assert files_below(tmp_path / "mine") == {"file": b""}
    assert not (tmp_path / "dir").exists()


def test_an_empty_folder_will_do(folder, pictures, tmp_path, recordmill):
    (tmp_path / "dir").mkdir()
    assert recordmill("extract", folder, tmp_path / "dir").code == 0
    assert files_below(tmp_path / "dir" / "images" / "train") == files_below(pictures / "images")


def test_a_split_whose_name_was_edited_to_lead_elsewhere(folder, tmp_path, recordmill):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["splits"]["../../x"] = manifest["splits"].pop("train") | {"shards": []}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    outcome = recordmill("extract", folder, tmp_path / "dir")
    assert outcome.code == 2
    assert "the name of the split '../../x' must be letters" in outcome.err
    assert not (tmp_path / "dir").exists()


# Faults


def test_a_damaged_shard(tmp_path, recordmill, copy_converted):
    copy_converted(tmp_path / "out", "--num-shards", 3)
    assert recordmill("extract", tmp_path / "out", tmp_path / "whole").code == 0
    damaged = sorted((tmp_path / "out").glob("*-00001-of-00003*"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    outcome = recordmill("extract", tmp_path / "out", tmp_path / "dir")
    assert outcome.code == 1
    assert f"{damaged.name} record" in outcome.out
    assert "what could be read is extracted" in outcome.out
    whole, part = files_below(tmp_path / "whole"), files_below(tmp_path / "dir")
    images = document(tmp_path / "dir")["images"]
    assert {f"images/train/{row['file_name']}" for row in images} == {name for name in part if "images" in name}
    assert all(whole[name] == data for name, data in part.items() if "images" in name)
    assert 10 < len(images) < 22
    ids = {row["id"] for row in images}
    rows = document(tmp_path / "whole")["annotations"]
    assert document(tmp_path / "dir")["annotations"] == [row for row in rows if row["image_id"] in ids]


def test_a_missing_shard(folder, tmp_path, recordmill):
    (shard,) = shard_bytes(folder)
    (folder / shard).unlink()
    outcome = recordmill("extract", folder, tmp_path / "dir")
    assert outcome.code == 1
    assert f"{shard}: missing" in outcome.out
    assert document(tmp_path / "dir")["images"] == []


def test_a_shard_that_is_not_the_manifest_s(folder, tmp_path, recordmill):
    name = edit(folder, {})
    rewrite(folder / name, records(folder / name)[:-1])
    outcome = recordmill("extract", folder, tmp_path / "dir")
    assert outcome.code == 1
    assert f"{name}: count: 13 records, the manifest says 14" in outcome.out
    assert f"{name}: sha256" in outcome.out
    assert image_ids(tmp_path / "dir") == list(range(1, 14))


HOSTILE = (
    *("../../x.jpg", "/tmp/recordmill-x.jpg", "a/../../../x.jpg", "..\\..\\x.jpg", "C:\\x.jpg", "x\0.jpg", "file://x"),
    *(".", "", "a/" * 3000 + "x", "x" * 300, "1.jpg/c.jpg", "\x1b[2J"),
)


def test_hostile_names_are_written_nowhere(folder, tmp_path, recordmill):
    shard = edit(folder, {id_: ("image/filename", name.encode()) for id_, name in enumerate(HOSTILE, 2)})
    before = set(tmp_path.rglob("*"))
    outcome = recordmill("extract", folder, tmp_path / "dir", "--workers", 1)
    assert outcome.code == 1
    for number in range(1, 14):
        assert f"{shard} record {number}: file_name: " in outcome.out
    assert "\x1b" not in outcome.out
    assert image_ids(tmp_path / "dir") == [1]
    assert document(tmp_path / "dir")["annotations"][0]["id"] == 1
    written = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    files = ("images/train/1.jpg", "annotations/instances_train.json")
    assert written == {tmp_path / "dir" / file for file in files}
    assert not Path("/tmp/recordmill-x.jpg").exists()


def test_pictures_of_one_name(folder, tmp_path, recordmill):
    """The name can be neither's, however it is spelled; the others stay."""
    edit(folder, {2: ("image/filename", b"1.jpg"), 4: ("image/filename", b".//3.jpg")})
    outcome = recordmill("extract", folder, tmp_path / "dir")
    assert outcome.code == 1
    assert "record 1: duplicate_name: 'images/train/1.jpg': record 0 of" in outcome.out
    assert "record 3: duplicate_name: 'images/train/3.jpg': record 2 of" in outcome.out
    assert image_ids(tmp_path / "dir") == list(range(5, 15))
    assert [row["id"] for row in document(tmp_path / "dir")["annotations"]] == list(range(5, 15))
    assert set(files_below(tmp_path / "dir" / "images" / "train")) == {f"{id_}.jpg" for id_ in range(5, 15)}


def test_one_picture_in_two_records(pictures, tmp_path, recordmill):
    """Two image rows of one file, as COCO allows: said, and no fault."""
    rows = [image_row(1, "1.jpg"), image_row(9, "1.jpg")]
    instances = write_coco(tmp_path, rows, [annotation(1, 1), annotation(2, 9)], CATEGORIES)
    flags = ["--images", pictures / "images", "--instances", instances, "--output", tmp_path / "out"]
    assert recordmill("coco", *flags).code == 0
    outcome = recordmill("extract", tmp_path / "out", tmp_path / "dir")
    assert outcome.code == 0
    assert outcome.out.startswith("train: 1 images for 2 entries in the JSON, some of which name one file, ")
    assert "duplicate" not in outcome.out
    assert document(tmp_path / "dir")["images"] == rows
    assert document(tmp_path / "dir")["annotations"] == [annotation(1, 1), annotation(2, 9)]
    expected = (pictures / "images" / "1.jpg").read_bytes()
    assert files_below(tmp_path / "dir" / "images") == {"train/1.jpg": expected}


def test_records_that_contradict_themselves(folder, pictures, tmp_path, recordmill):
    """Each fault is told, and all else is extracted."""
    faults = {
        1: ("image/height", 60, "image_size: the image is 40x30, the record says 40x60"),
        2: ("image/height", 0, "image_size: the image is 40x30, the record says 40x0"),
        3: ("image/encoded", b"\xff\xd8\xff no picture", "image_undecodable: its header cannot be read"),
        4: ("image/source_id", b"1_0", "schema: the image id b'1_0' is no integer"),
        5: ("image/filename", b"\xff.jpg", "schema: the image's file name is not UTF-8"),
        6: ("image/object/class/label", 5, "class: annotation 6: category id 5 is not in the manifest"),
        7: ("image/object/area", float("nan"), "schema: image/object/area has a number that is not finite"),
        8: ("image/object/mask", b"no PNG", "mask: annotation 8: it does not decode as PNG"),
        9: ("image/source_id", b"10", ""),
        10: ("image/format", b"png", "duplicate_image_id: image id 10 is that of record 8"),
    }
    shard = edit(folder, {id_: fault[:2] for id_, fault in faults.items()})
    outcome = recordmill("extract", folder, tmp_path / "dir")
    assert outcome.code == 1
    for id_, (_, _, told) in faults.items():
        assert not told or f"{shard} record {id_ - 1}: {told}" in outcome.out
    assert "10 faults" in outcome.out  # the first has two: its mask is of another size, too
    assert image_ids(tmp_path / "dir") == [1, 3, 6, 8, *range(10, 15)]
    rows = {row["id"]: row for row in document(tmp_path / "dir")["annotations"]}
    assert list(rows) == [1, 3, 6, 8, 9, *range(11, 15)]
    assert {id_ for id_, row in rows.items() if row["segmentation"] == []} == {1, 8}
    assert (rows[6]["category_id"], rows[9]["image_id"]) == (5, 10)
    files = files_below(tmp_path / "dir" / "images" / "train")
    assert files.pop("3.jpg") == faults[3][1]
    originals = files_below(pictures / "images")
    assert files == {f"{id_}.jpg": originals[f"{id_}.jpg"] for id_ in (1, 6, 8, *range(9, 15))}


def test_a_full_disk_stops_the_job(folder, tmp_path, recordmill, monkeypatch):
    def full(storage, path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("recordmill.transforms.storage.local_storage.LocalStorage.write", full)
    outcome = recordmill("extract", folder, tmp_path / "dir")
    assert outcome.code == 1
    assert outcome.err == "recordmill: no space is left; free some, or give another place, and run the command again\n"


def test_what_was_extracted_before_a_fault_of_the_disk_is_kept(tmp_path, recordmill, copy_converted, monkeypatch):
    """The same command goes on; another is refused, as is the same of another data set."""
    copy_converted(tmp_path / "out", "--num-shards", 3)
    assert recordmill("extract", tmp_path / "out", tmp_path / "whole").code == 0

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("recordmill.transforms.extract.extract_documents.write_document", full)
        assert recordmill("extract", tmp_path / "out", tmp_path / "dir").code == 1
    shutil.copytree(tmp_path / "out", tmp_path / "other")
    manifest = json.loads((tmp_path / "other" / "manifest.json").read_text())
    manifest["splits"]["train"]["shards"].pop()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps(manifest))
    outcome = recordmill("extract", tmp_path / "other", tmp_path / "dir")
    assert (outcome.code, "has an unfinished extraction of other records" in outcome.err) == (2, True), outcome
    outcome = recordmill("extract", tmp_path / "out", tmp_path / "dir")
    assert outcome.code == 0
    assert f"Going on with an unfinished extraction in {tmp_path}/dir: 3 shards were extracted" in outcome.out
    assert files_below(tmp_path / "dir") == files_below(tmp_path / "whole")


def test_what_was_written_is_told_before_a_rerun_would_be_refused(folder, tmp_path, recordmill, monkeypatch):
    def interrupted(target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("recordmill.launch.verbs.extract.release_target", interrupted)
        stopped = recordmill("extract", folder, tmp_path / "dir")
    assert stopped.code == 130
    again = recordmill("extract", folder, tmp_path / "dir")
    assert again.code == 0
    assert again.out.partition("\n")[2] == stopped.out
    assert recordmill("extract", folder, tmp_path / "dir").code == 2


def test_a_file_system_without_locks_will_do(folder, pictures, tmp_path, recordmill, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert recordmill("extract", folder, tmp_path / "dir").code == 0
    assert files_below(tmp_path / "dir" / "images" / "train") == files_below(pictures / "images")
