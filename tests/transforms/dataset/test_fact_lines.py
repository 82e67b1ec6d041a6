from recordmill.schemas.dataset.manifest import InputRows
from recordmill.transforms.dataset.fact_lines import uncarried_lines


def lines(*inputs: tuple[str, dict], layout: str = "detection") -> list[str]:
    rows = (InputRows(str(number), kind, 1, 1, fields) for number, (kind, fields) in enumerate(inputs))
    return list(uncarried_lines(rows, layout))


def test_nothing():
    assert lines(("instances", {})) == []


def test_fields_with_their_flags_and_usual_ones_apart():
    fields = {
        "file": {"info": 1, "licenses": 1, "videos": 1},
        "images": {"license": 9, "coco_url": 9, "lens": 4},
        "annotations": {"x": 12, "segmentation": 3678, "keypoints": 7, "num_keypoints": 6},
        "categories": {"synset": 3},
    }
    assert lines(("instances", fields), ("instances", {"annotations": {"x": 1}})) == [
        "annotations: keypoints 7, num_keypoints 6 (add --keypoints FILE), segmentation 3,678 (add --masks png), "
        "x 13 (add --fields x)",
        "images: lens 4 (add --fields image.lens)",
        "categories: synset 3",
        "file: videos 1",
        "COCO files: info, licenses, license, coco_url (add --fields image.license,image.coco_url)",
    ]


def test_flags_that_layout_and_kind_allow():
    fields = {"annotations": {"area": 2, "bbox": 2, "iscrowd": 1}}
    assert lines(("stuff", fields)) == ["annotations: area 2, bbox 2, iscrowd 1 (add --instances FILE)"]
    assert lines(("stuff", fields), ("instances", {})) == ["annotations: area 2, bbox 2, iscrowd 1"]  # it is given
    crowds = {"annotations": {"iscrowd": 1, "segmentation": 2}, "images": {"neg_category_ids": 3}}
    assert lines(("instances", crowds), layout="keras") == [
        "annotations: iscrowd 1 (add --layout detection), segmentation 2 (add --layout detection --masks png)",
        "images: neg_category_ids 3 (add --layout detection)",
    ]


def test_masks_in_a_container_without_png():
    rows = [InputRows("a", "instances", 1, 1, {"annotations": {"segmentation": 3}})]
    assert list(uncarried_lines(rows, "detection", "parquet")) == ["annotations: segmentation 3 (add --masks rle)"]


def test_many_fields_are_cut_and_counted():
    fields = {"annotations": {f"field {number:02}": 1 for number in range(1234)}}
    (line,) = lines(("instances", fields))
    assert line.startswith("annotations: field 00 1, field 01 1, ")
    assert line.endswith("field 07' ), and 1,226 more fields, listed in the manifest".replace(" )", ")"))


def test_input_of_several_splits_is_counted_once():
    rows = [InputRows("a", kind, 1, 1, {"images": {"lens": 4}}) for kind in ("instances", "instances", "captions")]
    assert list(uncarried_lines(rows, "detection")) == ["images: lens 8 (add --fields image.lens)"]


def test_paths_of_open_fields():
    counts = {"annotations": {"a,b": 3, "attributes": 4, "bbox": 1, "parts": 2}}
    leaves = {"annotations": {"attributes": ("attributes.x", "attributes.y"), "parts": ("parts[]",)}}
    (line,) = uncarried_lines([InputRows("a", "instances", 1, 1, counts, leaves)], "detection")
    cure = """(add --fields '"a,b",attributes.x,attributes.y')"""
    assert line == f"annotations: a,b 3, attributes 4 {cure}, bbox 1, parts 2"
