import json
from pathlib import Path

import msgspec
import pytest

from recordmill.schemas.errors import WrongFlagError
from recordmill.schemas.inputs.coco import AnnotationKind, AnnotationSource, BoxFormat
from recordmill.transforms.coco.describe_file import describe_file, summarize
from recordmill.transforms.coco.read_coco import cut_file, read_block
from tests.transforms.coco.whole_files import IMAGE, Read

OBJECT = {"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0}
OUTLINE = {"segmentation": [[1, 2, 3, 4, 5, 6]]}
POINTS = {"keypoints": [1, 2, 2], "num_keypoints": 1}
ROWS = {
    "instances": {**OBJECT, **OUTLINE},
    "keypoints": {**OBJECT, **OUTLINE, **POINTS},
    "captions": {"id": 4, "image_id": 1, "caption": "a dog"},
    "stuff": {"id": 5, "image_id": 1, "category_id": 3, **OUTLINE},
    "panoptic": {"image_id": 1, "file_name": "a.png", "segments_info": [{"id": 1, "category_id": 3}]},
}
GOOD = {
    *[("stuff", "instances"), ("stuff", "keypoints"), ("instances", "keypoints"), ("keypoints", "keypoints")],
    ("instances", "stuff"),  # objects whose boxes are missing
}
"""Rows of more than one kind: flag, and what it may be given."""


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("flag", [*ROWS, "image_info"])
@pytest.mark.parametrize("more", [[], [5]])
def test_each_kind_by_each_flag(tmp_path, flag, rows, more):
    document = {"images": [IMAGE], "annotations": [ROWS[rows], *more], "categories": [{"id": 3, "name": "dog"}]}
    if flag == rows or (flag, rows) in GOOD:
        Read(tmp_path, document, flag)
        return
    with pytest.raises(WrongFlagError) as caught:
        Read(tmp_path, document, flag)
    assert f"--{flag.replace('_', '-')}" in str(caught.value)
    assert f"to --{rows}" in str(caught.value)
    assert f"{1 + len(more)} annotations" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("keypoints", [None, []])
def test_keypoints_that_neither_rows_nor_categories_have(tmp_path, keypoints):
    category = {"id": 3, "name": "dog", "keypoints": []}
    document = {"images": [IMAGE], "annotations": [{**OBJECT, "keypoints": keypoints}], "categories": [category]}
    with pytest.raises(WrongFlagError, match=r"none of the 1 annotations .* has keypoints.* to --instances"):
        Read(tmp_path, document, "keypoints")
    named = {**document, "categories": [{**category, "keypoints": ["nose"]}]}
    Read(tmp_path, named, "keypoints")
    Read(tmp_path, {**document, "annotations": [{**OBJECT, "keypoints": [0, 0, 0]}]}, "keypoints")
    Read(tmp_path, {**document, "annotations": []}, "keypoints")


@pytest.mark.parametrize("segmentation", [[], None, [[]]])
def test_stuff_without_a_segmentation(tmp_path, segmentation):
    row = {**OBJECT, "segmentation": segmentation, "keypoints": [], "caption": ""}
    document = {"images": [IMAGE], "annotations": [row], "categories": []}
    with pytest.raises(WrongFlagError, match=r"has segmentation, .* to --instances"):
        Read(tmp_path, document, "stuff")


@pytest.mark.parametrize("flag", [*ROWS, "image_info"])
def test_file_without_list_of_annotations_is_of_images(tmp_path, flag):
    if flag == "image_info":
        Read(tmp_path, {"images": [IMAGE]}, flag)
        return
    for image in IMAGE, {**IMAGE, "id": "1"}:
        with pytest.raises(WrongFlagError, match=r"no list of annotations.* to --image-info"):
            Read(tmp_path, {"images": [image]}, flag)
    Read(tmp_path, {"images": [IMAGE], "annotations": []}, flag)


def test_faulty_rows_of_right_kind(tmp_path):
    document = {"images": [IMAGE], "annotations": [{**ROWS["keypoints"], "id": None}], "categories": []}
    assert Read(tmp_path, document, "keypoints").rejected


def test_stuff_empty_and_of_no_other_kind_stays(tmp_path):
    row = {**ROWS["stuff"], "segmentation": []}
    Read(tmp_path, {"images": [IMAGE], "annotations": [row]}, "stuff")


@pytest.mark.parametrize("rows", [[{**ROWS["instances"], "id": None}], [{"id": 1}], [5]])
def test_rows_bad_and_of_no_other_kind_are_rejected_as_ever(tmp_path, rows):
    document = {"images": [IMAGE], "annotations": rows}
    assert Read(tmp_path, document, "instances").rejected


def warnings_of(folder: Path, flag: str, *annotations: dict) -> tuple[str, ...]:
    path = folder / "file.json"
    path.write_text(
        json.dumps(
            {
                "images": [IMAGE],
                "annotations": annotations,
                "categories": [{"id": 3, "name": "dog", "keypoints": ["nose"]}],
            }
        )
    )
    source = AnnotationSource(AnnotationKind(flag), str(path), "")
    return describe_file(source, [summarize(block, read_block(block)) for block in cut_file(source, 40)]).warnings


@pytest.mark.parametrize("points", [{}, {"keypoints": []}, {"keypoints": [0, 0, 0]}])
def test_keypoints_file_without_keypoint(tmp_path, points):
    (text,) = warnings_of(tmp_path, "keypoints", {**OBJECT, **points}, {**OBJECT, "id": 8, **points})
    assert "none of the 2 annotations has a labelled keypoint" in text
    assert warnings_of(tmp_path, "keypoints", {**OBJECT, **points}, {**OBJECT, "id": 8, **POINTS}) == ()
    assert warnings_of(tmp_path, "keypoints", {"id": 8, **POINTS}) == ()  # rejected, and not for its keypoints


@pytest.mark.parametrize(("x", "texts"), [(1.5, 1), (2, 0)])
def test_keypoints_that_are_fractions(tmp_path, x, texts):
    points = {"keypoints": [x, 0.5, 2]}
    warnings = warnings_of(tmp_path, "keypoints", {**OBJECT, **points}, {**OBJECT, "id": 8, "keypoints": [0.25, 0, 1]})
    assert ["no keypoint has a coordinate above 1.5. They look like fractions" in text for text in warnings] == [
        True
    ] * texts


def test_numbers_as_texts(tmp_path):
    (text,) = warnings_of(tmp_path, "instances", {**OBJECT, "area": "12"}, {**OBJECT, "id": 8.0}, {**OBJECT, "id": "9"})
    assert "2 rows have numbers as strings" in text


def test_rotated_boxes(tmp_path):
    rotated, upright = ({**OBJECT, "attributes": {"occluded": True, "rotation": angle}} for angle in (30.5, 0.0))
    (text,) = warnings_of(tmp_path, "instances", rotated, {**upright, "id": 8})
    assert "1 of 2 annotations have attributes.rotation" in text
    not_json = {**upright, "id": 8, "area": float("nan")}  # as Python writes it
    (text,) = warnings_of(tmp_path, "instances", rotated, not_json)
    assert "1 of 2 annotations have attributes.rotation" in text


@pytest.mark.parametrize(("wrong", "texts"), [(2, 0), (3, 1)])
def test_some_boxes_are_elsewhere_than_their_polygons(tmp_path, wrong, texts):
    right = [{**OBJECT, **OUTLINE, "id": id_, "bbox": [1, 2, 4, 4]} for id_ in range(8)]
    moved = [{**OBJECT, **OUTLINE, "id": id_, "bbox": [9, 2, 4, 4]} for id_ in range(8, 8 + wrong)]
    empty = {**OBJECT, **OUTLINE, "bbox": [1, 2, 0, 0]}  # is rejected
    warnings = warnings_of(tmp_path, "instances", *right, *moved, *({**empty, "id": id_} for id_ in range(20, 24)))
    assert len(warnings) == texts
    assert all(
        f"{wrong} of {8 + wrong} boxes with polygons overlap them by less than half" in text for text in warnings
    )


def test_some_boxes_are_fractions(tmp_path):
    boxes = [[5, 6, 7, 8], [0.5, 0.25, 0.1, 1e-3], [0, 0, 1, 1], [0.5, 0.5, 2, 1]]
    (text,) = warnings_of(tmp_path, "instances", *({**OBJECT, "id": id_, "bbox": box} for id_, box in enumerate(boxes)))
    assert "1 of 4 boxes are within 0..1" in text
    assert "annotation 1 has [0.5, 0.25, 0.1, 0.001]" in text


def test_negative_areas(tmp_path):
    (text,) = warnings_of(tmp_path, "instances", {**OBJECT, "area": -1}, {**OBJECT, "id": 8, "area": 0})
    assert "1 of 2 annotations have a negative area" in text


def test_ids_that_are_texts(tmp_path):
    (text,) = warnings_of(tmp_path, "instances", OBJECT, {**OBJECT, "id": "eight"}, {**OBJECT, "id": "0009"})
    assert "0 images and 1 annotations have string ids" in text


def test_boxes_of_polygons(tmp_path):
    outlined = {key: value for key, value in {**OBJECT, **OUTLINE}.items() if key != "bbox"}
    (text,) = warnings_of(tmp_path, "instances", OBJECT, {**outlined, "id": 8})
    assert "1 of 2 annotations have no bbox" in text
    source = AnnotationSource(AnnotationKind.INSTANCES, str(tmp_path / "file.json"), "")
    rows = [row for block in cut_file(source) for row in read_block(block).annotations]
    assert [json.loads(bytes(row.bbox)) for row in rows] == [[1, 2, 3, 4], [1, 2, 4, 4]]
    for empty in ([], None):
        boxless = warnings_of(tmp_path, "instances", {**OBJECT, **OUTLINE}, {**outlined, "id": 8, "bbox": empty})
        assert "1 of 2 annotations have no bbox" in boxless[0]
    pixel = {**outlined, "id": 9, "segmentation": {"counts": [4, 1, 4], "size": [3, 3]}}
    assert (
        "2 of 3 annotations have no bbox" in warnings_of(tmp_path, "instances", OBJECT, {**outlined, "id": 8}, pixel)[0]
    )
    corners = msgspec.structs.replace(source, bbox_format=BoxFormat.XYXY)
    rejected = [one for block in cut_file(corners) for one in read_block(block).rejected]
    assert [one.id for one in rejected] == [8, 9]
