"""Every kind of annotation, from end to end through the command, against an independent reading of the same files."""

import io
import json
import os
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

import recordmill as package
from tests.conftest import (
    CATEGORIES,
    PANOPTIC_CATEGORIES,
    SKELETON,
    SQUARE,
    annotation,
    draw_jpeg,
    every_kind,
    grey,
    image_row,
    manifest_of,
    read_examples,
    rejects_of,
    shard_bytes,
)
from tests.gcs_stand_in import running


@pytest.fixture(scope="module")
def converted(sample, tmp_path_factory):
    """The sample with all kinds in one record, and both forms of masks."""
    from recordmill.launch.cli import main

    out = tmp_path_factory.mktemp("kinds")
    assert main(["coco", *every_kind(sample), "--masks", "both", "--num-shards", "2", "--output", str(out)]) == 0
    return out


def by_image(folder: Path) -> dict[int, dict[str, list]]:
    return {int(example["image/source_id"][0]): example for example in read_examples(folder)}


# All kinds of the sample in one record


def test_nothing_is_lost(converted, sample, recordmill):
    split = manifest_of(converted)["splits"]["train"]
    counts = split["annotations"]
    rows = {Path(path).name: len(json.loads(Path(path).read_text())["annotations"]) for path in (
        sample.instances, sample.keypoints, sample.captions, sample.panoptic)}  # fmt: skip
    assert {Path(file["path"]).name: file["annotations"] for file in split["inputs"]} == rows
    assert counts["rows"] == sum(rows.values())
    assert counts["joined"] == rows["person_keypoints.json"]
    assert (counts["captions"], counts["panoptic"]) == (2 * 22, 22)
    assert counts["rejected"] == counts["filtered"] == {}
    bad = {row["id"] for row in rejects_of(converted)}
    lost = sum(
        row["image_id"] in bad
        for path in (sample.instances, sample.captions, sample.panoptic)
        for row in json.loads(Path(path).read_text())["annotations"]
    )
    assert counts["of_rejected_images"] == lost
    assert recordmill("verify", converted).code == 0


def test_masks_are_those_of_pycocotools(converted, sample):
    coco = COCO(sample.instances)
    for image_id, example in by_image(converted).items():
        size = [example["image/height"][0], example["image/width"][0]]
        for id_, png, rle in zip(
            example["image/object/id"], example["image/object/mask"], example["image/object/mask/rle"], strict=True
        ):
            expected = coco.annToMask(coco.anns[id_])
            assert coco.anns[id_]["image_id"] == image_id
            assert np.array_equal(grey(png), expected)
            assert np.array_equal(coco_mask.decode({"counts": rle, "size": size}), expected)


def test_keypoints_captions_and_their_order(converted, sample):
    figures = {row["id"]: row for row in json.loads(Path(sample.keypoints).read_text())["annotations"]}
    captions: dict[int, list] = {}
    for row in json.loads(Path(sample.captions).read_text())["annotations"]:
        captions.setdefault(row["image_id"], []).append((row["id"], row["caption"].encode()))
    seen = 0
    for image_id, example in by_image(converted).items():
        assert example["image/caption"] == [text for _, text in sorted(captions[image_id])]
        width, height = example["image/width"][0], example["image/height"][0]
        xyv = np.zeros((len(example["image/object/id"]), 5, 3))
        for place, id_ in enumerate(example["image/object/id"]):
            if id_ in figures:
                xyv[place] = np.reshape(figures[id_]["keypoints"], (5, 3))
                seen += 1
        assert example["image/object/keypoint/x"] == pytest.approx((xyv[:, :, 0] / width).ravel().tolist())
        assert example["image/object/keypoint/y"] == pytest.approx((xyv[:, :, 1] / height).ravel().tolist())
        assert example["image/object/keypoint/visibility"] == xyv[:, :, 2].ravel().tolist()
        assert example["image/object/keypoint/num"] == (xyv[:, :, 2] > 0).sum(1).tolist()
        named = dict(
            zip(example["image/object/id"], np.reshape(example["image/object/keypoint/text"], (-1, 5)), strict=True)
        )
        for id_, names in named.items():
            figure = [b"head", b"left_hand", b"right_hand", b"left_foot", b"right_foot"]
            assert names.tolist() == (figure if id_ in figures else [b""] * 5)
    assert seen > 5


def test_semantic_and_panoptic_masks(converted, sample):
    document = json.loads(Path(sample.panoptic).read_text())
    is_thing = {row["id"]: row["isthing"] for row in document["categories"]}
    rows = {row["image_id"]: row for row in document["annotations"]}
    for image_id, example in by_image(converted).items():
        colours = np.asarray(Image.open(Path(sample.panoptic_masks) / rows[image_id]["file_name"])).astype(np.int64)
        ids = colours @ [1, 256, 65536]
        expected = {name: np.zeros(ids.shape, np.uint8) for name in ("category", "instance")}
        semantic = np.full(ids.shape, 255, np.uint8)
        for number, segment in enumerate(rows[image_id]["segments_info"], 1):
            where = ids == segment["id"]
            thing = is_thing[segment["category_id"]]
            expected["category"][where] = segment["category_id"]
            expected["instance"][where] = number if thing else 0
            semantic[where] = 1 if thing else segment["category_id"] - 90
        assert np.array_equal(grey(example["image/segmentation/class/encoded"][0]), semantic)
        for name, pixels in expected.items():
            assert np.array_equal(grey(example[f"image/panoptic/{name}_mask"][0]), pixels), name


def test_dataset_decodes_all_of_it(converted):
    examples = by_image(converted)
    for example in package.open(str(converted))["train"].tensorflow().as_numpy_iterator():
        record = examples[int(example["image_id"])]
        height, width = record["image/height"][0], record["image/width"][0]
        objects = len(record["image/object/id"])
        assert example["masks"].shape == (objects, height, width)
        for mask, png in zip(example["masks"], record["image/object/mask"], strict=True):
            assert np.array_equal(mask, grey(png))
        xyv = zip(*(record[f"image/object/keypoint/{part}"] for part in ("x", "y", "visibility")), strict=True)
        assert example["keypoints"].tolist() == np.reshape(list(xyv), (objects, 5, 3)).astype(np.float32).tolist()
        assert example["captions"].tolist() == record["image/caption"]
        assert np.array_equal(example["semantic"], grey(record["image/segmentation/class/encoded"][0]))
        assert np.array_equal(example["categories"], grey(record["image/panoptic/category_mask"][0]))
        assert np.array_equal(example["instances"], grey(record["image/panoptic/instance_mask"][0]))


def test_panoptic_masks_in_a_zip_give_the_same_shards(converted, sample, tmp_path, recordmill):
    with zipfile.ZipFile(tmp_path / "panoptic.zip", "w") as archive:  # with a folder, as COCO's
        for path in Path(sample.panoptic_masks).iterdir():
            archive.write(path, f"panoptic/{path.name}")
    flags = [str(tmp_path / "panoptic.zip") if flag == sample.panoptic_masks else flag for flag in every_kind(sample)]
    out = tmp_path / "out"
    assert recordmill("coco", *flags, "--masks", "both", "--num-shards", 2, "--output", out).code == 0
    assert shard_bytes(out) == shard_bytes(converted)


# Small data sets, known by heart


def segment(id_: int, category_id: int, **more) -> dict:
    return {"id": id_, "category_id": category_id, "iscrowd": 0, "bbox": [0, 0, 40, 30], "area": 1200} | more


IDS = np.where(np.arange(1200).reshape(30, 40) < 600, 70_000, 300)
GOOD_SEGMENTS = [segment(70_000, 92), segment(300, 3)]


def rle(counts, size=(30, 40)) -> dict:
    return {"counts": counts, "size": list(size)}


def test_bad_objects_are_rejected_and_the_others_stay(inputs, recordmill):
    bad = [
        {"segmentation": [[1, 2, 3]]},
        {"segmentation": rle([1200], size=(40, 30))},
        {"bbox": [1, 2, float("nan"), 4]},
        {"area": float("inf")},
    ]
    rows = [annotation(id_, 1) | row for id_, row in enumerate(bad, 1)]
    instances = inputs.file("instances.json", [*rows, annotation(5, 1, segmentation=SQUARE)])
    assert recordmill(*inputs.flags("--instances", instances, "--masks", "both")).code == 0
    reasons = ["malformed_segmentation", "mask_size_mismatch", "malformed_box", "malformed_annotation"]
    assert {reject["id"]: reject["reason"] for reject in rejects_of(inputs.out)} == dict(enumerate(reasons, 1))
    (example,) = read_examples(inputs.out)
    assert example["image/object/id"] == [5]
    assert grey(example["image/object/mask"][0]).sum() == 100
    assert recordmill("verify", inputs.out).code == 0


def test_bad_keypoints_and_captions_are_rejected_and_their_instance_stays(inputs, recordmill):
    instances = inputs.file("instances.json", [annotation(4, 1), annotation(5, 1)])
    rows = [annotation(4, 1, keypoints=[1, 2, 3, 3, 4, 2]), annotation(5, 1, keypoints=[8, 6, 2, 0, 0, 0])]
    points = inputs.file("keypoints.json", rows, [{**CATEGORIES[0], **SKELETON}])
    captions = [{"id": 4, "image_id": 1, "caption": 7}, {"id": 3, "image_id": 1, "caption": "été"}]
    flags = ["--keypoints", points, "--captions", inputs.file("captions.json", captions, [])]
    assert recordmill(*inputs.flags("--instances", instances, *flags)).code == 0
    rejected = [(reject["id"], reject["reason"], reject["image_id"]) for reject in rejects_of(inputs.out)]
    assert rejected == [(4, "malformed_caption", 1), (4, "malformed_keypoints", 1)]
    assert not any("\n" in reject["detail"] for reject in rejects_of(inputs.out))
    (example,) = read_examples(inputs.out)
    assert example["image/caption"] == ["été".encode()]
    assert example["image/object/id"] == [4, 5]
    assert example["image/object/keypoint/visibility"] == [0, 0, 2, 0]
    assert example["image/object/keypoint/x"] == pytest.approx([0, 0, 0.2, 0])
    assert example["image/object/keypoint/text"] == [b"nose", b"tail", b"nose", b"tail"]


def test_a_bad_panoptic_annotation_leaves_its_image_void(inputs, recordmill):
    flags = inputs.panoptic(IDS, GOOD_SEGMENTS)
    masks = inputs.folder / "masks"
    (masks / "folder").mkdir()
    (masks / "loop.png").symlink_to("loop.png")
    os.mkfifo(masks / "pipe.png")
    bad = [
        ("gone.png", GOOD_SEGMENTS, "mask_missing"),
        ("folder", GOOD_SEGMENTS, "mask_missing"),
        ("x" * 300, GOOD_SEGMENTS, "mask_missing"),
        ("loop.png", GOOD_SEGMENTS, "mask_missing"),
        ("pipe.png", GOOD_SEGMENTS, "mask_missing"),
        ("a.png", GOOD_SEGMENTS[:1], "segment_mismatch"),
        ("a.png", [segment(70_000, 92), segment(300, 77)], "unknown_category"),
        ("a.png", "none", "malformed_panoptic"),
    ]
    rows = [image_row(id_, f"{id_}.jpg") for id_, _ in enumerate(bad)]
    for row in rows:
        draw_jpeg(inputs.folder / "images" / row["file_name"])
    segments = [{"image_id": id_, "file_name": name, "segments_info": of} for id_, (name, of, _) in enumerate(bad)]
    inputs.file("panoptic.json", segments, PANOPTIC_CATEGORIES, rows)
    instances = inputs.file("instances.json", [annotation(5, id_) for id_, _ in enumerate(bad)], CATEGORIES, rows)
    assert recordmill(*inputs.flags("--instances", instances, *flags)).code == 0
    rejected = sorted((reject["image_id"], reject["reason"]) for reject in rejects_of(inputs.out))
    assert rejected == [(id_, reason) for id_, (_, _, reason) in enumerate(bad)]
    examples = read_examples(inputs.out)
    assert len(examples) == len(bad)
    for example in examples:
        assert example["image/object/id"] == [5]
        assert set(grey(example["image/segmentation/class/encoded"][0]).ravel()) == {255}
        for name in ("category", "instance"):
            assert set(grey(example[f"image/panoptic/{name}_mask"][0]).ravel()) == {0}
    assert recordmill("verify", inputs.out).code == 0


def test_a_panoptic_zip_that_is_none_or_damaged(inputs, recordmill):
    panoptic, path, *_ = inputs.panoptic(IDS, GOOD_SEGMENTS)
    archive = inputs.folder / "masks.zip"
    archive.write_bytes(b"no archive")
    outcome = recordmill(*inputs.flags(panoptic, path, "--panoptic-masks", archive))
    assert outcome.code == 2
    assert "masks.zip is not a ZIP archive" in outcome.err
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as file:
        file.write(inputs.folder / "masks" / "a.png", "a.png")
    data = bytearray(archive.read_bytes())
    data[45:60] = bytes(15)
    archive.write_bytes(data)
    assert recordmill(*inputs.flags(panoptic, path, "--panoptic-masks", archive)).code == 0
    assert [reject["reason"] for reject in rejects_of(inputs.out)] == ["mask_unreadable"]


def test_the_two_channel_format_is_refused_with_what_to_do(inputs, recordmill):
    flags = inputs.panoptic(np.where(IDS > 300, 3 + 256, 92), GOOD_SEGMENTS)
    outcome = recordmill(*inputs.flags(*flags, "--max-rejects", 0))
    assert outcome.code == 1
    assert "two-channel format" in outcome.err
    assert "2channels2panoptic_coco_format.py" in outcome.err


def test_images_without_objects_captions_or_segments_have_empty_lists_and_void_masks(inputs, recordmill):
    draw_jpeg(inputs.folder / "images" / "b.jpg")
    draw_jpeg(inputs.folder / "images" / "c.jpg")
    instances = inputs.file("instances.json", [annotation(5, 1, segmentation=[])])
    captions = inputs.file("captions.json", [{"id": 1, "image_id": 2, "caption": "x"}], [], [image_row(2, "b.jpg")])
    info = inputs.file("info.json", [], [], [image_row(3, "c.jpg"), image_row(2, "b.jpg", None, None)])
    flags = ["--instances", instances, "--captions", captions, "--image-info", info, "--masks", "both"]
    assert recordmill(*inputs.flags(*flags, *inputs.panoptic(IDS, GOOD_SEGMENTS))).code == 0
    examples = by_image(inputs.out)
    assert {id_: (e["image/object/id"], e["image/caption"]) for id_, e in examples.items()} == {
        1: ([5], []),
        2: ([], [b"x"]),
        3: ([], []),
    }
    assert grey(examples[1]["image/object/mask"][0]).max() == 0
    assert examples[2]["image/object/mask"] == examples[2]["image/object/mask/rle"] == []
    assert {id_: set(grey(e["image/panoptic/category_mask"][0]).ravel()) for id_, e in examples.items()} == {
        1: {92, 3},
        2: {0},
        3: {0},
    }
    counts = manifest_of(inputs.out)["splits"]["train"]["annotations"]
    assert (counts["objects"], counts["masks"]) == (1, 0)
    assert len({frozenset(example) for example in examples.values()}) == 1


def test_stuff_paints_the_semantic_mask(inputs, recordmill):
    rows = [
        {"id": 9, "image_id": 1, "category_id": 95, "segmentation": rle([0, 600, 600])},
        {"id": 8, "image_id": 1, "category_id": 92, "segmentation": SQUARE},
        {"id": 7, "image_id": 1, "category_id": 92, "segmentation": [[1]]},
    ]
    categories = [{"id": 92, "name": "sky"}, {"id": 95, "name": "ground"}]
    assert recordmill(*inputs.flags("--stuff", inputs.file("stuff.json", rows, categories))).code == 0
    (example,) = read_examples(inputs.out)
    expected = np.full((30, 40), 255, np.uint8)
    expected[5:15, 10:20] = 2
    expected[:, :20] = 5
    assert np.array_equal(grey(example["image/segmentation/class/encoded"][0]), expected)
    assert [(reject["id"], reject["reason"]) for reject in rejects_of(inputs.out)] == [(7, "malformed_segmentation")]
    labels = json.loads((inputs.out / "label_map.json").read_text())
    assert labels["semantic_by_id"] == {"92": 2, "95": 5}
    assert "id: 92" in (inputs.out / "label_map.pbtxt").read_text()


def test_lvis(inputs, recordmill):
    """Its rows have an address in place of a file name, and two lists of categories; its annotations no iscrowd."""
    lvis = {"id": 1, "width": 40, "height": 30, "coco_url": "http://images.cocodataset.org/train2017/a.jpg"}
    lvis |= {"neg_category_ids": [30, 2], "not_exhaustive_category_ids": []}
    row = {"id": 5, "image_id": 1, "category_id": 3, "bbox": [10, 5, 10, 10], "area": 100, "segmentation": SQUARE}
    categories = [{"id": 3, "name": "dog", "synset": "dog.n.01", "frequency": "f", "def": "x", "synonyms": ["dog"]}]
    instances = inputs.file("lvis.json", [row], categories, [lvis])
    assert recordmill(*inputs.flags("--instances", instances, "--masks", "png")).code == 0
    (example,) = read_examples(inputs.out)
    assert example["image/filename"] == [b"a.jpg"]
    assert example["image/neg_category_ids"] == [30, 2]
    assert example["image/not_exhaustive_category_ids"] == []
    assert example["image/object/is_crowd"] == [0]
    assert manifest_of(inputs.out)["parts"] == ["mask_png", "lvis"]
    assert recordmill("verify", inputs.out).code == 0


def test_splits_of_one_folder_hold_the_same_parts(inputs, recordmill):
    instances = inputs.file("instances.json", [annotation(5, 1)])
    assert recordmill(*inputs.flags("--instances", instances)).code == 0
    before = shard_bytes(inputs.out)
    outcome = recordmill(*inputs.flags("--instances", instances, "--masks", "png", "--split", "val"))
    assert outcome.code == 2
    assert "for all splits, or another --output" in outcome.err
    assert shard_bytes(inputs.out) == before


@pytest.mark.parametrize("form", ["folder", "zip"])
def test_a_panoptic_png_in_a_bucket_is_one_request_or_comes_with_its_neighbours(
    form, converted, sample, tmp_path, recordmill, monkeypatch
):
    names = [path.name for path in Path(sample.panoptic_masks).iterdir()]
    with running() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        if form == "zip":
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w") as file:
                for name in sorted(names):
                    file.write(Path(sample.panoptic_masks) / name, name)
            server.put("masks.zip", archive.getvalue())
        else:
            for name in names:
                server.put(f"masks/{name}", (Path(sample.panoptic_masks) / name).read_bytes())
        masks = "gs://bucket/masks.zip" if form == "zip" else "gs://bucket/masks"
        flags = [masks if flag == sample.panoptic_masks else flag for flag in every_kind(sample)]
        outcome = recordmill("coco", *flags, "--output", tmp_path / "out", "--num-shards", 2, "--masks", "both")
        assert outcome.code == 0, outcome
        calls = Counter(call.operation for call in server.log if call.name.startswith("masks"))
        if form == "zip":
            assert calls["read"] <= 6  # the directory's two and those of spans
        else:
            assert calls == {"read": 22}  # two images cannot be read
    assert shard_bytes(tmp_path / "out") == shard_bytes(converted)
