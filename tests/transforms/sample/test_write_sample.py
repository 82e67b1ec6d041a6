import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from recordmill.transforms.sample.draw_scene import KEYPOINTS, STUFF, THINGS
from recordmill.transforms.sample.write_sample import BROKEN, MISSING, SampleFiles, write_sample


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> SampleFiles:
    return write_sample(str(tmp_path_factory.mktemp("drawn")), count=36, seed=5)


@pytest.fixture(scope="module")
def instances(files) -> COCO:
    return COCO(files.instances)


def document(path: str) -> dict:
    return json.loads(Path(path).read_text())


def test_boxes_and_areas_are_segmentations(instances):
    for row in instances.dataset["annotations"]:
        rle = instances.annToRLE(row)
        assert row["area"] == coco_mask.area(rle)
        assert row["bbox"] == coco_mask.toBbox(rle).tolist()


def test_there_is_something_of_every_kind(instances):
    annotations, images = instances.dataset["annotations"], instances.dataset["images"]
    assert {row["category_id"] for row in annotations} == {category.id for category in THINGS}
    assert {type(row["segmentation"]) for row in annotations} == {list, dict}
    assert {row["iscrowd"] for row in annotations} == {0, 1}
    assert {row["id"] for row in images} > {row["image_id"] for row in annotations}
    names = [row["file_name"] for row in images]
    assert {Path(name).suffix for name in names} >= {".jpg", ".png", ".JPG"}
    assert any("/" in name for name in names)
    assert any(" " in name and not name.isascii() for name in names)


def test_images_match_rows_except_two_bad_ones(files, instances):
    for index, row in enumerate(instances.dataset["images"]):
        path = Path(files.images) / row["file_name"]
        if index == MISSING:
            assert not path.exists()
        elif index == BROKEN:
            assert not path.read_bytes().endswith(b"\xff\xd9")
        else:
            with Image.open(path) as image:
                image.load()
                assert image.size == (row["width"], row["height"])
                assert image.format == {".jpg": "JPEG", ".png": "PNG"}[path.suffix.lower()]


def test_keypoints_are_figures_and_seen_where_figure_is(files, instances):
    keypoints = document(files.keypoints)
    (figure,) = keypoints["categories"]
    assert (figure["name"], figure["keypoints"]) == ("figure", list(KEYPOINTS))
    assert keypoints["annotations"] == [row for row in instances.dataset["annotations"] if "keypoints" in row]
    seen = set()
    for row in keypoints["annotations"]:
        assert (row["category_id"], row["iscrowd"]) == (figure["id"], 0)
        mask = instances.annToMask(row)
        points = np.reshape(row["keypoints"], (len(KEYPOINTS), 3)).tolist()
        assert row["num_keypoints"] == sum(visibility > 0 for _, _, visibility in points)
        for x, y, visibility in points:
            assert visibility == 1 + mask[y, x] if visibility else (x, y) == (0, 0)
            seen.add(visibility)
    assert seen == {0, 1, 2}


def test_panoptic_images_hold_segments(files, instances):
    panoptic = document(files.panoptic)
    is_thing = {row["id"]: row["isthing"] for row in panoptic["categories"]}
    assert is_thing == {**{category.id: 1 for category in THINGS}, **{category.id: 0 for category in STUFF}}
    assert [row["image_id"] for row in panoptic["annotations"]] == instances.getImgIds()
    for row in panoptic["annotations"]:
        ids = np.asarray(Image.open(Path(files.panoptic_masks) / row["file_name"]), np.uint32) @ [1, 256, 65536]
        segments = row["segments_info"]
        assert set(ids.ravel().tolist()) == {segment["id"] for segment in segments}
        for segment in segments:
            rle = coco_mask.encode(np.asfortranarray(ids == segment["id"], np.uint8))
            assert segment["area"] == coco_mask.area(rle)
            assert segment["bbox"] == coco_mask.toBbox(rle).tolist()
        things = [segment for segment in segments if is_thing[segment["category_id"]]]
        drawn = instances.imgToAnns[row["image_id"]]
        for key in ("category_id", "area", "bbox", "iscrowd"):
            assert [segment[key] for segment in things] == [row[key] for row in drawn]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_equal_seeds_give_equal_files_and_others_do_not(tmp_path):
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        write_sample(str(tmp_path / name), 5, seed)
    one, same, other = (files_below(tmp_path / name) for name in ("one", "same", "other"))
    assert one == same
    drawn, drawn_otherwise = ({name for name in files if not name.startswith("classes/")} for files in (one, other))
    assert drawn == drawn_otherwise  # what the largest object is of, differs
    assert [name for name in drawn if one[name] == other[name]] == []


def test_class_folders_of_objects(sample):
    drawn = document(sample.instances)
    names = {category["id"]: category["name"] for category in drawn["categories"]}
    largest = {row["image_id"]: row for row in sorted(drawn["annotations"], key=lambda row: (row["area"], -row["id"]))}
    expected = {f"{names[row['category_id']]}/{row['id']}.png": tuple(row["bbox"][2:]) for row in largest.values()}
    crops = {str(path.relative_to(sample.classes)): path for path in Path(sample.classes).rglob("*.png")}
    assert {name: Image.open(path).size for name, path in crops.items()} == expected
